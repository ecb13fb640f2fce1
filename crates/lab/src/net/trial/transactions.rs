//! Trials of exchanges: the client sends a message, in one write or in two, and waits for the reply.
//!
//! Trial     starts with exchanges that are not measured, because a receiver acknowledges immediately at the
//!           start of a connection (quick ACK); then measures for the requested time.
//! Slow      a case is slow if more than half of its time passed in exchanges that took [`STALL`] longer than
//!           a round trip plus the transmission time at the path's rate.
//! Capture   after a slow case, some exchanges are repeated with a capture, if captures are permitted.

use super::digest::{Digest, Segment};
use super::evidence::{Evidence, Exchanges};
use super::path::Path;
use super::setup::Setup;
use crate::engine::Failure;
use crate::remote::client::{Client, SILENCE, capture};
use crate::remote::protocol::Work;
use crate::stats::{quantile, sorted};
use kiban_measure::socket::given;
use kiban_measure::{Counters, Frame, TcpInfo};
use kiban_os::Clock;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The warm-up, which is not measured, ends after this time or this number of exchanges.
const WARM_UP: (Duration, u64) = (Duration::from_millis(150), 40);
/// An exchange that takes this much longer than necessary has waited for a timer.
pub const STALL: Duration = Duration::from_millis(20);
/// The fraction of time spent in stalls above which a case is slow.
pub const SLOW_PART: f64 = 0.5;
/// The maximum number of exchanges in a capture, and the longest time of a capture.
const CAPTURED: (u64, Duration) = (6, Duration::from_secs(2));
/// The fewest exchanges that are measured.
const EXCHANGES_MIN: u64 = 5;

/// Exchanges on a connection.
pub struct Line<'a> {
    stream: &'a TcpStream,
    writes: Vec<Vec<u8>>,
    reply: Vec<u8>,
}

impl<'a> Line<'a> {
    /// Creates a client of exchanges on this connection.
    pub fn new(stream: &'a TcpStream, setup: &Setup, reply_bytes: u32) -> Line<'a> {
        let writes = setup.writes().iter().map(|bytes| vec![0x5a; *bytes as usize]).collect();
        Line { stream, writes, reply: vec![0; reply_bytes as usize] }
    }

    /// Performs one exchange, and returns how long it took.
    ///
    /// # Errors
    /// [`Failure::Lost`].
    pub fn exchange(&mut self, clock: Clock) -> Result<Duration, Failure> {
        let begin = clock.now();
        for write in &self.writes {
            self.stream.write_all(write).map_err(|error| broken(&error))?;
        }
        self.stream.read_exact(&mut self.reply).map_err(|error| broken(&error))?;
        Ok(clock.now().since(begin))
    }
}

/// Returns [`Failure::Lost`] with a description of an error on the data connection.
pub(in crate::net) fn broken(error: &io::Error) -> Failure {
    Failure::Lost(match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("no data moved on the data connection for {} s", SILENCE.as_secs())
        }
        io::ErrorKind::UnexpectedEof => "the server closed the data connection".into(),
        _ => format!("the data connection broke: {error}"),
    })
}

/// Returns the kernel's state of a connection.
pub(in crate::net) fn info(stream: &TcpStream) -> Result<TcpInfo, Failure> {
    TcpInfo::of(stream).map_err(|error| broken(&error))
}

/// Runs one trial. If `captured`, the whole trial is captured, and the packets are returned.
///
/// # Errors
/// Returns [`Failure`] with the cause.
pub fn run(
    client: &mut Client,
    path: &Path,
    setup: &Setup,
    clock: Clock,
    captured: bool,
) -> Result<(Evidence, Vec<Frame>), Failure> {
    let work = Work::Reply { message_bytes: setup.message_bytes, reply_bytes: 1 };
    let most = WARM_UP.0 + setup.length() + CAPTURED.1;
    let data = client.begin(&setup.settings(), work, most)?;
    let mut line = Line::new(&data.stream, setup, 1);

    let begin = clock.now();
    let mut warm_up = 0;
    while warm_up < WARM_UP.1 && clock.now().since(begin) < WARM_UP.0 {
        line.exchange(clock)?;
        warm_up += 1;
    }
    let mut whole = if captured { capture(&data.stream) } else { None };
    let info_before = info(&data.stream)?;
    let begin = clock.now();
    let mut times = Vec::new();
    while (clock.now().since(begin) < setup.length()) || (times.len() as u64) < EXCHANGES_MIN {
        times.push(line.exchange(clock)?.as_secs_f64() * 1e6);
        if let Some(capture) = whole.as_mut().filter(|_| times.len().is_multiple_of(16)) {
            capture.drain();
        }
    }
    let seconds = clock.now().since(begin).as_secs_f64();
    let info = info(&data.stream)?;
    let exchanges = sum_up(&times, warm_up, path, setup.message_bytes);

    let mut digest = None;
    let mut more = 0;
    let is_slow = exchanges.stalled_part >= SLOW_PART && whole.is_none();
    if let Some(mut capture) = is_slow.then(|| capture(&data.stream)).flatten() {
        let begin = clock.now();
        while more < CAPTURED.0 && clock.now().since(begin) < CAPTURED.1 {
            line.exchange(clock)?;
            more += 1;
        }
        let segments = Segment::read_all(capture.frames());
        // If the wall clock was adjusted during the capture, the gaps between timestamps are meaningless.
        digest = (!capture.clock_stepped()).then(|| Digest::of(&segments, info.snd_mss));
    }
    let frames = whole.as_mut().map(|capture| capture.frames().to_vec()).unwrap_or_default();
    let given = given(&data.stream).map_err(|error| broken(&error))?;
    let counters = Counters::read().unwrap_or_default().since(&data.before);
    drop(data);
    let server = client.end()?;
    let evidence = Evidence {
        pattern: setup.pattern,
        message_bytes: setup.message_bytes,
        last_write_bytes: setup.writes().last().copied().unwrap_or(0),
        settings: setup.settings(),
        seconds,
        path: *path,
        peer: client.welcome().clone(),
        given,
        info_before,
        info,
        counters,
        receiver: server,
        exchanges: Some(Exchanges { warm_up: warm_up + more, ..exchanges }),
        capture: digest,
    };
    Ok((evidence, frames))
}

fn sum_up(times_us: &[f64], warm_up: u64, path: &Path, message_bytes: u32) -> Exchanges {
    let sorted = sorted(times_us);
    let needed_us = path.round_trip_us + f64::from(message_bytes) * 8.0 / path.rate_mbps.max(1e-6);
    let stall_us = needed_us + STALL.as_secs_f64() * 1e6;
    let stalled = &sorted[sorted.partition_point(|time| *time < stall_us)..];
    let all: f64 = sorted.iter().sum();
    Exchanges {
        count: sorted.len() as u64,
        warm_up,
        p50_us: quantile(&sorted, 0.5).unwrap_or(0.0),
        max_us: sorted.last().copied().unwrap_or(0.0),
        stalls: stalled.len() as u64,
        stall_ms: quantile(stalled, 0.5).unwrap_or(0.0) * 1e-3,
        stalled_part: if all > 0.0 { stalled.iter().sum::<f64>() / all } else { 0.0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_exchanges_that_took_much_longer_than_a_round_trip() {
        let path = Path { round_trip_us: 10_000.0, mss_bytes: 1448, rate_mbps: 8.0 };
        let times = [10_000.0, 29_000.0, 51_000.0, 53_000.0, 10_000.0];
        let exchanges = sum_up(&times, 3, &path, 100);
        assert_eq!((exchanges.count, exchanges.stalls, exchanges.warm_up), (5, 2, 3));
        assert!((exchanges.stall_ms - 52.0).abs() < 1e-9);
        assert!((exchanges.stalled_part - 104.0 / 153.0).abs() < 1e-9);
        // 25,000 bytes at 8 Mbit/s take 25 ms: there was no stall.
        assert_eq!(sum_up(&times, 3, &path, 25_000).stalls, 0);
        assert_eq!(sum_up(&[], 0, &path, 100).stalled_part, 0.0);
    }
}
