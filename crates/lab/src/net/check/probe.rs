//! One series of probes of a check.

use crate::engine::Failure;
use crate::net::latency::{Prober, here, open};
use crate::remote::client::Client;
use crate::remote::probes::{ProbeOutcome, ProbeRequest};
use crate::remote::protocol::Request;
use kiban_measure::Datagrams;
use kiban_os::Clock;
use std::net::SocketAddr;
use std::time::Duration;

/// The announced length of a series of probes.
const LENGTH: Duration = Duration::from_secs(30);

/// Calls `act` with a prober and its socket, and returns its result with the server's observations. Replies
/// have the type of service `tos`.
pub(super) fn probe<T>(
    client: &mut Client,
    clock: Clock,
    octets_max: usize,
    tos: Option<u8>,
    act: impl FnOnce(&mut Prober<'_>, &Datagrams) -> Result<T, Failure>,
) -> Result<(T, ProbeOutcome), Failure> {
    let most = client.welcome().trial_seconds_max.saturating_mul(1000);
    let millis = (LENGTH.as_millis() as u32).min(most);
    let request = ProbeRequest { millis, up: 0, down: 0, tos };
    let ready = client.request(|nonce| Request::Probe { nonce, request })?;
    let to = SocketAddr::new(client.peer().ip(), ready.datagrams);
    let socket = open(to.ip()).map_err(|error| here(&error))?;
    let mut prober = Prober::new(&socket, to, ready.nonce, clock, octets_max);
    let done = prober.prove().and_then(|()| act(&mut prober, &socket));
    let outcome = client.end_probes()?;
    done.map(|done| (done, outcome))
}
