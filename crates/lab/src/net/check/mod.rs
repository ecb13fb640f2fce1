//! Faults of a path that no throughput shows: path MTU black holes, removed ECN marks, and forged resets.
//!
//! ```text
//! probes of all sizes ── probes with each ECN codepoint ── an exchange, a pause, an exchange, and bulk data
//! ```
//!
//! Evidence  a fault is named only if probes that differ in nothing else arrive, all of a series, and if the
//!           innocent explanations were ruled out: see the module of each check.
//! Limits    losses, reordering and delays are not measured ([`super::udp`]). Probes are UDP: a device that
//!           treats TCP differently is found by its resets only. ECN negotiation of TCP is not tested.

mod ecn;
mod finding;
mod mtu;
mod probe;
mod report;
mod reset;

pub use ecn::EcnReport;
pub use finding::{Cause, Finding};
pub use mtu::MtuReport;
pub use report::Check;
pub use reset::ResetReport;

use super::latency::{Next, here};
use crate::engine::Failure;
use crate::remote::client::Client;
use crate::remote::protocol::Work;
use kiban_measure::Settings;
use kiban_os::Clock;
use std::time::Duration;

/// A request for a check.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CheckRequest {
    /// How long a connection is idle before it is used again.
    pub idle: Duration,
}

/// The shortest and the longest time to wait for replies. The shortest is more than a busy host delays them.
const TIMEOUT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_millis(1500));

/// Checks the path to a server, `host`; calls `progress` with the name of each check. The verdict contains a
/// command from `command`.
///
/// # Errors
/// Returns [`Failure`] with the cause.
pub fn check(
    client: &mut Client,
    host: &str,
    request: &CheckRequest,
    command: Next<'_>,
    progress: &dyn Fn(&'static str),
) -> Result<Check, Failure> {
    let clock = Clock::new();
    progress("path MTU");
    let (mss_bytes, round_trip) = connection(client)?;
    // Long enough for a few round trips; a queue may grow meanwhile.
    let timeout = (4 * round_trip).clamp(TIMEOUT.0, TIMEOUT.1);
    let mtu = mtu::check(client, clock, timeout, mss_bytes)?;
    progress("ECN");
    let ecn = ecn::check(client, clock, timeout)?;
    progress("resets");
    let reset = reset::check(client, clock, request.idle)?;
    let address = client.peer().ip().to_canonical().to_string();
    let kernel = client.welcome().kernel.clone();
    Ok(Check::of((host.to_owned(), address, kernel), mtu, ecn, reset, command))
}

/// Returns the MSS of a connection, and the round trip of its handshake.
fn connection(client: &mut Client) -> Result<(u32, Duration), Failure> {
    let work = Work::Reply { message_bytes: 1, reply_bytes: 1 };
    let data = client.begin(&Settings::default(), work, Duration::from_secs(1))?;
    let info = data.stream.info();
    drop(data);
    client.end()?;
    let info = info.map_err(|error| here(&error))?;
    Ok((info.snd_mss, Duration::from_micros(info.rtt_us.into())))
}
