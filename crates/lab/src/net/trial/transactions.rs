//! Trials of exchanges: one end sends a message, in one write or in two, and waits for the reply.
//!
//! Trial     starts with a warm-up, which is not measured; then measures for the requested time.
//! Slow      a case is slow if more than half of its time passed in exchanges that stalled.
//! Capture   after a slow case, some exchanges are repeated with a capture, if captures are permitted.
//! Back      the server sends the messages and times the exchanges; this host replies. Only a trace is
//!           captured: after the last exchange the server does not wait for this host to judge the case.

use super::digest::{Digest, Segment};
use super::evidence::{Evidence, Exchanges};
use super::setup::Setup;
use super::task::{Done, Recorder, Sending, Task, broken, given, info};
use crate::engine::Failure;
use crate::remote::exchanges::{EXCHANGES_MIN, WARM_UP};
use crate::remote::protocol::{Outcome, Work};
use crate::remote::tcp::Stream;
use kiban_os::Clock;
use std::io::{self, Read, Write};
use std::time::Duration;

/// The fraction of time spent in stalls above which a case is slow.
pub const SLOW_PART: f64 = 0.5;
/// The maximum number of exchanges in a capture, and the longest time of a capture.
const CAPTURED: (u64, Duration) = (6, Duration::from_secs(2));

/// Exchanges on a connection.
pub struct Line<'a> {
    stream: &'a Stream,
    writes: Vec<Vec<u8>>,
    reply: Vec<u8>,
}

impl<'a> Line<'a> {
    /// Creates a client of exchanges on this connection.
    pub fn new(stream: &'a Stream, setup: &Setup, reply_bytes: u32) -> Line<'a> {
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

/// Runs one trial. If `captured`, the whole trial is captured, and the packets are returned.
pub(super) fn run(mut task: Task<'_>) -> Done {
    let (setup, clock) = (task.setup, task.clock);
    let work = Work::Reply { message_bytes: setup.message_bytes, reply_bytes: 1 };
    let most = WARM_UP.0 + setup.length() + CAPTURED.1;
    let mut data = task.begin(work, most)?;
    let capture = data.capture.take();
    let mut line = Line::new(&data.stream, setup, 1);

    let begin = clock.now();
    let mut warm_up = 0;
    while warm_up < WARM_UP.1 && clock.now().since(begin) < WARM_UP.0 {
        line.exchange(clock)?;
        warm_up += 1;
    }
    let mut recorder = Recorder::begin(capture);
    let info_before = info(&data)?;
    let begin = clock.now();
    let mut times = Vec::new();
    while (clock.now().since(begin) < setup.length()) || (times.len() as u64) < EXCHANGES_MIN {
        times.push(line.exchange(clock)?.as_secs_f64() * 1e6);
        if times.len().is_multiple_of(16) {
            recorder.drain();
        }
    }
    let seconds = clock.now().since(begin).as_secs_f64();
    let info = info(&data)?;
    let exchanges = Exchanges::of(&times, warm_up, task.path.exchange_us(setup.message_bytes));

    let mut digest = None;
    let mut more = 0;
    let is_slow = exchanges.stalled_part >= SLOW_PART && !recorder.is_on();
    if let Some(mut capture) = is_slow.then(|| data.stream.capture()).flatten() {
        let begin = clock.now();
        while more < CAPTURED.0 && clock.now().since(begin) < CAPTURED.1 {
            line.exchange(clock)?;
            more += 1;
        }
        let segments = Segment::read_all(capture.frames());
        // If the wall clock was adjusted during the capture, the gaps between timestamps are meaningless.
        digest =
            (!capture.clock_stepped()).then(|| Digest::of(&segments, info.snd_mss, task.path.round_trip_us));
    }
    let packets = recorder.packets();
    let given = given(&data)?;
    let counters = task.counters(&data);
    drop(data);
    let server = task.client.end()?;
    let evidence = task.evidence(Sending { seconds, given, info_before, info, counters }, server);
    let exchanges = Exchanges { warm_up: warm_up + more, ..exchanges };
    Ok((Evidence { exchanges: Some(exchanges), capture: digest, ..evidence }, packets))
}

/// Runs one trial in which the server sends the messages and this host replies. The server times the
/// exchanges. A capture on this host shows the packets as the receiver sees them.
pub(super) fn run_back(mut task: Task<'_>) -> Done {
    let (setup, clock) = (task.setup, task.clock);
    let writes = setup.writes();
    let work = Work::Ask {
        first_bytes: writes[0],
        rest_bytes: writes.get(1).copied().unwrap_or(0),
        reply_bytes: 1,
        needed_us: task.path.exchange_us(setup.message_bytes).min(1e9) as u64,
    };
    let mut data = task.begin(work, WARM_UP.0 + setup.length())?;
    let mut recorder = Recorder::begin(data.capture.take());
    let mut message = vec![0; setup.message_bytes as usize];
    let begin = clock.now();
    let (mut messages, mut last) = (0u64, begin);
    while fill(&mut data.stream, &mut message).map_err(|error| broken(&error))? {
        (messages, last) = (messages + 1, clock.now());
        if let Err(error) = data.stream.write_all(&[0x5a]) {
            // The server may have ended the trial, so that it no longer needs this reply.
            if !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) {
                return Err(broken(&error));
            }
            break;
        }
        if messages.is_multiple_of(16) {
            recorder.drain();
        }
    }
    let bytes = messages * u64::from(setup.message_bytes);
    let receiver = task.received(&data, bytes, last.since(begin))?;
    drop(data);
    let sender = task.client.end()?;
    let asked =
        sender.asked.ok_or_else(|| Failure::Lost("the server did not report its exchanges".to_owned()))?;
    let packets = recorder.packets();
    let sending = Sending {
        seconds: asked.seconds,
        given: sender.given,
        info_before: asked.info_before,
        info: sender.info,
        counters: sender.counters,
    };
    let evidence = task.evidence(sending, Outcome { rate_limited: sender.rate_limited, ..receiver });
    Ok((Evidence { exchanges: Some(asked.exchanges), ..evidence }, packets))
}

/// Reads a whole message; returns false if the server has ended the trial.
fn fill(stream: &mut Stream, message: &mut [u8]) -> io::Result<bool> {
    let mut count = 0;
    while count < message.len() {
        match stream.read(&mut message[count..]) {
            // The server's rate limit may have cut off the last message.
            Ok(0) => return Ok(false),
            Ok(length) => count += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
