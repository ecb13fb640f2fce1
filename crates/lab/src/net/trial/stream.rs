//! A stream: messages sent back to back, without replies.
//!
//! Trial     the client writes for the requested time and closes the connection; the server reports how many
//!           bytes arrived, and the time from the first to the last.
//! Back      the server writes, and the client counts the bytes; the server reports the state of the sender's
//!           kernel.
//! Limits    slow start is part of the measurement, so a trial on a long path has to be long.

use super::digest::{Digest, Segment};
use super::evidence::Evidence;
use super::path::Path;
use super::setup::Setup;
use super::transactions::{broken, info};
use crate::engine::Failure;
use crate::remote::client::Client;
use crate::remote::protocol::{Outcome, Work};
use kiban_measure::{Frame, TcpInfo};
use kiban_os::Clock;
use std::io::{Read, Write};
use std::net::Shutdown;

/// Bytes read at a time.
const READ_BYTES: usize = 256 << 10;

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
    let mut data = client.begin(&setup.settings(), Work::Read, setup.length())?;
    let message = vec![0x5a; setup.message_bytes as usize];
    let mut whole = if captured { data.stream.capture() } else { None };
    let info_before = info(&data.stream)?;
    let begin = clock.now();
    let mut messages = 0u64;
    while clock.now().since(begin) < setup.length() {
        data.stream.write_all(&message).map_err(|error| broken(&error))?;
        messages += 1;
        if let Some(capture) = whole.as_mut().filter(|_| messages.is_multiple_of(16)) {
            capture.drain();
        }
    }
    let seconds = clock.now().since(begin).as_secs_f64();
    let info = info(&data.stream)?;
    let given = data.stream.given().map_err(|error| broken(&error))?;
    let counters = client.tcp().counters().since(&data.before);
    data.stream.shutdown(Shutdown::Write).map_err(|error| broken(&error))?;
    let server = client.end()?;
    let frames = whole.as_mut().map(|capture| capture.frames().to_vec()).unwrap_or_default();
    let stepped = whole.as_ref().is_some_and(|capture| capture.clock_stepped());
    let digest = (captured && !stepped).then(|| Digest::of(&Segment::read_all(&frames), info.snd_mss));
    let evidence = Evidence {
        pattern: setup.pattern,
        message_bytes: setup.message_bytes,
        last_write_bytes: setup.message_bytes,
        settings: setup.settings(),
        seconds,
        path: *path,
        board: client.tcp().board().map(str::to_owned),
        peer: client.welcome().clone(),
        given,
        info_before,
        info,
        counters,
        receiver: server,
        exchanges: None,
        capture: digest,
    };
    Ok((evidence, frames))
}

/// Runs one trial from the server to the client. A capture on this host shows the packets as the receiver
/// sees them.
///
/// # Errors
/// Returns [`Failure`] with the cause.
pub fn run_back(
    client: &mut Client,
    path: &Path,
    setup: &Setup,
    clock: Clock,
    captured: bool,
) -> Result<(Evidence, Vec<Frame>), Failure> {
    let work = Work::Write { message_bytes: setup.message_bytes };
    let mut data = client.begin(&setup.settings(), work, setup.length())?;
    let mut whole = if captured { data.stream.capture() } else { None };
    let mut room = vec![0; READ_BYTES];
    let mut bytes = 0;
    let mut ends = None;
    loop {
        let length = data.stream.read(&mut room).map_err(|error| broken(&error))?;
        if length == 0 {
            break;
        }
        let now = clock.now();
        if let Some(capture) = whole.as_mut() {
            capture.drain();
        }
        bytes += length as u64;
        ends = Some((ends.map_or(now, |(first, _)| first), now));
    }
    let receiver = Outcome {
        bytes,
        seconds: ends.map_or(0.0, |(first, last)| last.since(first).as_secs_f64()),
        rate_limited: false,
        info: info(&data.stream)?,
        given: data.stream.given().map_err(|error| broken(&error))?,
        counters: client.tcp().counters().since(&data.before),
        asked: None,
    };
    drop(data);
    let sender = client.end()?;
    let info = sender.info;
    let frames = whole.as_mut().map(|capture| capture.frames().to_vec()).unwrap_or_default();
    let none = |count: Option<u64>| count.map(|_| 0);
    let evidence = Evidence {
        pattern: setup.pattern,
        message_bytes: setup.message_bytes,
        last_write_bytes: setup.message_bytes,
        settings: setup.settings(),
        seconds: sender.seconds,
        path: *path,
        board: client.tcp().board().map(str::to_owned),
        peer: client.welcome().clone(),
        given: sender.given,
        // The connection began with the trial, so its sender's counters started at zero.
        info_before: TcpInfo {
            data_segs_out: info.data_segs_out.map(|_| 0),
            busy_us: none(info.busy_us),
            rwnd_limited_us: none(info.rwnd_limited_us),
            sndbuf_limited_us: none(info.sndbuf_limited_us),
            ..TcpInfo::default()
        },
        info,
        counters: sender.counters,
        receiver: Outcome { rate_limited: sender.rate_limited, ..receiver },
        exchanges: None,
        capture: None,
    };
    Ok((evidence, frames))
}
