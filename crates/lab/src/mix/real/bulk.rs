//! The TCP flows of a mix: kernel connections from client to server that send as much as they can.
//!
//! Begin     each connection starts with the greeting of the measurement and the number of its circuit.
//! Block     the interval between the completion of one 64 KiB block and that of the next. Data that is sent
//!           as fast as possible has no due times, so its delay variation cannot be measured in any other
//!           way.
//! RTT       the kernel's smoothed RTT (TCP_INFO), sampled every [`ROUND`] at the sender.
//! Pace      a flow with `shape_mbps` paces its writes, so that its cells would have that rate on an ATM
//!           line.

use super::super::traffic::BLOCK_OCTETS;
use super::delays::Delays;
use crate::remote::protocol::Nonce;
use crate::remote::tcp::Stream;
use kiban_atm::wire::aal5;
use kiban_atm::wire::atm::CELL_BYTES;
use kiban_base::Instant;
use kiban_measure::pause::pace;
use kiban_os::Clock;
use kiban_os::lock;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The interval at which a waiting thread checks whether the session has ended.
pub(crate) const LOOK: Duration = Duration::from_millis(200);
/// The interval at which round-trip times are read.
const ROUND: Duration = Duration::from_millis(20);
/// Octets per write.
const WRITE_OCTETS: usize = 16 << 10;

/// Returns the octets with which a connection starts.
pub(crate) fn greeting(nonce: &Nonce, circuit: u16) -> Vec<u8> {
    [&nonce.greeting()[..], &circuit.to_be_bytes()].concat()
}

/// The progress of a sender.
#[derive(Default)]
pub(super) struct SendStats {
    pub(super) octets: AtomicU64,
}

/// The result of a sender.
#[derive(Default)]
pub(super) struct Outgoing {
    pub(super) retransmissions: u64,
    pub(super) round_us: Delays,
    /// The error, if one occurred.
    pub(super) error: Option<String>,
}

/// Sends from `begin` until `end`, or until it is stopped.
pub(super) fn send(
    mut stream: Stream,
    clock: Clock,
    (begin, end): (Instant, Instant),
    shape_mbps: Option<f64>,
    sent: &SendStats,
    stop: &AtomicBool,
) -> Outgoing {
    let mut outgoing = Outgoing::default();
    let stopped = || stop.load(Ordering::Acquire);
    // Assume segments of 9140 octets over AAL5, as between the boards of the virtual network.
    let payload = 9140.0 / (aal5::cells(9140 + 40 + 8) * CELL_BYTES) as f64;
    let octets_per_second = shape_mbps.map(|mbps| mbps * 1e6 / 8.0 * payload);
    let room = [0x5a; WRITE_OCTETS];
    let (mut octets, mut looked) = (0u64, Instant::ZERO);
    while !stopped() {
        let now = clock.now();
        if now < begin {
            pace(begin.since(now).min(LOOK));
            continue;
        }
        if now >= end {
            break;
        }
        if let Some(rate) = octets_per_second {
            let due = begin + Duration::from_secs_f64(octets as f64 / rate);
            if due > now {
                pace(due.since(now).min(LOOK));
                continue;
            }
        }
        match stream.write(&room) {
            Ok(count) => {
                octets += count as u64;
                sent.octets.store(octets, Ordering::Release);
            }
            Err(error) if is_pause(&error) => {}
            Err(error) => {
                outgoing.error = Some(format!("a connection of TCP failed: {error}"));
                break;
            }
        }
        if now >= looked + ROUND {
            looked = now;
            if let Ok(info) = stream.info() {
                outgoing.round_us.push(i64::from(info.rtt_us) * 1000);
            }
        }
    }
    // The connection may be closed already.
    let _ = stream.shutdown(Shutdown::Write);
    outgoing.retransmissions = stream.info().map_or(0, |info| info.total_retrans.into());
    outgoing
}

/// The statistics of what a receiving end has read since the last call.
#[derive(Debug, Default)]
pub(crate) struct ReceiveStats {
    pub(crate) octets: u64,
    pub(crate) gaps: Vec<u64>,
    pub(crate) ended: bool,
}

/// A receiving end's statistics, shared with the thread that reports them.
pub(crate) type Tally = Mutex<ReceiveStats>;

/// Reads at most `read_octets` at a time until the connection ends; `pay` delays reading when the rate is too
/// high.
pub(crate) fn receive(
    mut stream: Stream,
    clock: Clock,
    tally: &Tally,
    stop: &AtomicBool,
    read_octets: usize,
    pay: &dyn Fn(u64),
) -> io::Result<()> {
    stream.set_read_timeout(Some(LOOK))?;
    let mut room = vec![0; read_octets];
    let (mut octets, mut last) = (0u64, None);
    while !stop.load(Ordering::Acquire) {
        match stream.read(&mut room) {
            Ok(0) => break,
            Ok(count) => {
                let now = clock.now();
                pay(count as u64);
                let blocks = octets / BLOCK_OCTETS;
                octets += count as u64;
                let more = octets / BLOCK_OCTETS - blocks;
                let mut tally = lock(tally);
                tally.octets += count as u64;
                if let Some(last) = last.filter(|_| more > 0) {
                    // If one read completes several blocks, the interval is divided evenly among them.
                    let gap = (now.since(last).as_nanos() as u64) / more;
                    tally.gaps.extend((0..more).map(|_| gap));
                }
                if more > 0 {
                    last = Some(now);
                }
            }
            Err(error) if is_pause(&error) => {}
            Err(error) => {
                lock(tally).ended = true;
                return Err(error);
            }
        }
    }
    lock(tally).ended = true;
    Ok(())
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}
