//! The parts of an HTTP request: look-up of the name, TCP connect, TLS handshake, first byte, transfer.
//!
//! ```text
//! new connection:   DNS ── connect ── TLS ── request, first byte ── transfer
//! kept connection:                           request, first byte ── transfer
//! ```
//!
//! Repeats   each round opens a connection, requests, and requests once more on the same connection.
//! Names     a stub resolver does what glibc's does ([`names`]), and records each query, so that a wait for a
//!           silent name server can be told from a slow answer.
//! Distance  a round trip is the RTT of the TCP handshake, in which the kernels answer, not programs. What a
//!           part takes beyond its round trips is due to a program or a device behind the other end.
//! Delayed   if a short response on a kept connection stops for about the time of a delayed acknowledgement,
//!           a third request acknowledges its beginning at once (TCP_QUICKACK). If the wait is gone, the
//!           server held the rest back (Nagle's algorithm); if not, its program paused.
//! Cause     named only if it explains at least half of the dominating part ([`Verdict`]).
//! Limits    HTTP/1.1, without proxies, cookies, compression or redirects; one address at a time, without the
//!           parallel attempts of browsers (RFC 8305); each TLS handshake is a full one.

mod http;
pub mod names;
mod once;
mod query;
mod report;
mod target;
mod verdict;

pub use report::{PartReport, RequestReport};
pub use target::{RequestOptions, Target};
pub use verdict::{RequestCause, Verdict};

use crate::engine::Failure;
use kiban_os::Clock;
use once::{Connection, Sample};
use rustls::ClientConfig;
use rustls::client::Resumption;
use std::sync::Arc;
use verdict::may_be_held;

/// Repeats a request; calls `progress` after each connection.
///
/// # Errors
/// Returns [`Failure`] with the step that failed, and the cause.
pub fn measure(
    target: &Target,
    options: &RequestOptions,
    progress: &dyn Fn(),
) -> Result<RequestReport, Failure> {
    let clock = Clock::new();
    let mut target = target.clone();
    if let Some((config, _)) = &mut target.tls {
        let mut full = ClientConfig::clone(config);
        // A resumed handshake would make later connections differ from the first.
        full.resumption = Resumption::disabled();
        *config = Arc::new(full);
    }
    let mut samples: Vec<[Option<Sample>; 2]> = Vec::new();
    for round in 0..options.count {
        if round > 0 {
            kiban_measure::pause::pace(options.pause);
        }
        let (mut connection, mut sample) = Connection::open(clock, &target, options)?;
        connection.request(clock, &target, &mut sample)?;
        let kept = if connection.is_kept() {
            let mut kept = Sample { rtt_ms: sample.rtt_ms, ..Sample::default() };
            // A server may close a connection at any time; then there is no second request.
            let is_whole = connection.request(clock, &target, &mut kept).is_ok();
            if is_whole && may_be_held(&kept) && connection.is_kept() {
                connection.is_quick = true;
                let mut quick = Sample::default();
                let is_whole = connection.request(clock, &target, &mut quick).is_ok();
                kept.quick_ack_ms = is_whole.then_some(quick.parts.transfer);
            }
            is_whole.then_some(kept)
        } else {
            None
        };
        samples.push([Some(sample), kept]);
        progress();
    }
    let part = |at: usize| samples.iter().filter_map(|pair| pair[at].clone()).collect::<Vec<_>>();
    Ok(RequestReport::of(&target, part(0), part(1)))
}
