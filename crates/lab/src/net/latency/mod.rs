//! Latency under load: round trips of probes on the idle path and beside TCP connections that fill it.
//!
//! ```text
//! idle ── upload ── download ── both        each a phase: probes over UDP, and a load
//! ```
//!
//! Probes    datagrams of 40 octets, to which the server replies at once. The time that the server takes is
//!           not part of a round trip, and arrivals are timestamps of the kernels.
//! Load      several connections in each loaded direction, which carry as much as they can.
//! Grade     of the increase of the median ([`Grade`]).
//! Queue     the increase of one-way delays shows the direction in which packets wait. It needs no
//!           synchronised clocks, because it is a difference.
//! Losses    a policer or a very short queue drops the load instead of delaying it, so round trips stay
//!           short. The share of retransmitted segments shows that.
//! Limits    the load must fill the path. If the server's rate limit slowed it, the report says so. A
//!           direction in which no data moved, or in which the hosts' own buffers limited the load to less
//!           than fills a queue ([`Limit`]), has no grade.

mod clocks;
mod figures;
mod grade;
mod limit;
mod page;
mod phase;
mod report;
mod request;

pub use crate::remote::probes::Segments;
pub use figures::{Fate, Percentiles};
pub use grade::Grade;
pub use limit::Limit;
pub use report::{Latency, LoadName, LoadRow};
pub use request::{LatencyRequest, Next};

use crate::engine::Failure;
use crate::remote::client::Client;
pub(super) use clocks::Clocks;
use kiban_os::Clock;
pub(super) use phase::{Exchange, Observed, Phase, Prober, StartLine, here, open, run as run_phase};
pub(super) use report::round_trips;
pub(super) use request::trace_command;
use std::time::Duration;

/// The interval of probes beside a load.
pub(super) const PROBE_INTERVAL: Duration = Duration::from_millis(20);
/// The interval of probes on the idle path.
const IDLE_PROBE_INTERVAL: Duration = Duration::from_millis(5);

/// Measures latency under load to a server, `host`; calls `progress` with each load. Advice contains commands
/// from `command`.
///
/// # Errors
/// Returns [`Failure`] with the cause.
pub fn measure(
    client: &mut Client,
    host: &str,
    request: &LatencyRequest,
    command: Next<'_>,
    progress: &dyn Fn(LoadName),
) -> Result<Latency, Failure> {
    let clock = Clock::new();
    let mut phases: Vec<(LoadName, Observed)> = Vec::new();
    for name in LoadName::ALL {
        progress(name);
        let idle = phases.first().and_then(|(_, idle)| report::round_trips(idle));
        // Queues are empty again when round trips are about as long as they were.
        let settled = idle.map(|idle| ((idle.p95_ms * 1.5 + 2.0) * 1e6) as i64);
        let (length, interval) = match name {
            LoadName::Idle => (request.idle_length(), IDLE_PROBE_INTERVAL),
            _ => (request.length, PROBE_INTERVAL),
        };
        let connections = name.directions().map(|is_loaded| if is_loaded { request.connections } else { 0 });
        let phase = Phase { connections, length, interval, octets: 0, settled };
        phases.push((name, phase::run(client, clock, &phase, None)?));
    }
    let address = client.peer().ip().to_canonical().to_string();
    Latency::of((host.to_owned(), address, client.welcome().kernel.clone()), request, command, &phases)
}
