//! A stream: messages sent back to back, without replies.
//!
//! Trial     the client writes for the requested time and closes the connection; the server reports how many
//!           bytes arrived, and the time from the first to the last.
//! Back      the server writes, and the client counts the bytes; the server reports the state of the sender's
//!           kernel.
//! Limits    slow start is part of the measurement, so a trial on a long path has to be long.

use super::digest::{Digest, Segment};
use super::evidence::Evidence;
use super::task::{Done, Recorder, Sending, Task, broken, given, info};
use crate::remote::protocol::{Outcome, Work};
use crate::remote::windows::WindowSampler;
use kiban_measure::TcpInfo;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

/// Bytes read at a time.
const READ_BYTES: usize = 256 << 10;

/// Runs one trial. If `captured`, the whole trial is captured, and the packets are returned.
pub(super) fn run(mut task: Task<'_>) -> Done {
    let (setup, clock) = (task.setup, task.clock);
    let mut data = task.begin(Work::Read, setup.length())?;
    let message = vec![0x5a; setup.message_bytes as usize];
    let mut recorder = Recorder::begin(data.capture.take());
    let info_before = info(&data)?;
    let begin = clock.now();
    let mut messages = 0u64;
    let mut sampler = WindowSampler::new(begin, setup.length());
    let mut now = begin;
    while now.since(begin) < setup.length() {
        data.stream.write_all(&message).map_err(|error| broken(&error))?;
        messages += 1;
        now = clock.now();
        sampler.sample(now, &data.stream);
        if messages.is_multiple_of(16) {
            recorder.drain();
        }
    }
    let seconds = clock.now().since(begin).as_secs_f64();
    let info = info(&data)?;
    let given = given(&data)?;
    let counters = task.counters(&data);
    data.stream.shutdown(Shutdown::Write).map_err(|error| broken(&error))?;
    let server = task.client.end()?;
    let packets = recorder.packets();
    let digest = (task.captured && !recorder.clock_stepped())
        .then(|| Digest::of(&Segment::read_all(packets.measured()), info.snd_mss, task.path.round_trip_us));
    let evidence = task.evidence(Sending { seconds, given, info_before, info, counters }, server);
    Ok((Evidence { capture: digest, windows: sampler.windows(), ..evidence }, packets))
}

/// Runs one trial from the server to the client. A capture on this host shows the packets as the receiver
/// sees them.
pub(super) fn run_back(mut task: Task<'_>) -> Done {
    let (setup, clock) = (task.setup, task.clock);
    let work = Work::Write { message_bytes: setup.message_bytes };
    let mut data = task.begin(work, setup.length())?;
    let mut recorder = Recorder::begin(data.capture.take());
    let mut room = vec![0; READ_BYTES];
    let mut bytes = 0;
    let mut ends = None;
    loop {
        let length = data.stream.read(&mut room).map_err(|error| broken(&error))?;
        if length == 0 {
            break;
        }
        let now = clock.now();
        recorder.drain();
        bytes += length as u64;
        ends = Some((ends.map_or(now, |(first, _)| first), now));
    }
    let time = ends.map_or(Duration::ZERO, |(first, last)| last.since(first));
    let receiver = task.received(&data, bytes, time)?;
    drop(data);
    let sender = task.client.end()?;
    let info = sender.info;
    let packets = recorder.packets();
    let none = |count: Option<u64>| count.map(|_| 0);
    let sending = Sending {
        seconds: sender.seconds,
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
    };
    let receiver = Outcome { rate_limited: sender.rate_limited, ..receiver };
    Ok((Evidence { windows: sender.windows, ..task.evidence(sending, receiver) }, packets))
}
