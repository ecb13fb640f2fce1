//! A stream: messages one after the other, without replies.
//!
//! Trial     the client writes for as long as was asked for and ends the connection; the server says how many bytes came, and
//!           how long it took from the first to the last.
//! Limits    slow start is part of it: on a long path a trial has to be long.

use super::client::{Client, capture};
use super::digest::{Digest, Segment};
use super::evidence::{Evidence, Pattern};
use super::protocol::Work;
use super::session::{Path, Session};
use super::setup::{STREAM_PARAMETERS, Setup};
use super::transactions::{broken, info};
use crate::engine::{Failure, Metric, Metrics, Parameter, Point, Question, Time};
use kiban_real::Clock;
use kiban_real::measure::socket::given;
use kiban_real::measure::{Counters, Frame};
use std::io::Write;
use std::net::Shutdown;
use std::sync::Arc;

/// The question: how many bits in a second?
pub struct Stream(pub Arc<Session>);

const METRICS: [Metric; 2] = [
    Metric { name: "mbps", what: "payload that arrived", unit: "Mbit/s" },
    Metric { name: "sent_again", what: "segments sent again", unit: "1" },
];

impl Question for Stream {
    fn name(&self) -> &'static str {
        "net-stream"
    }

    fn what(&self) -> &'static str {
        "How much payload does a stream of messages carry, over a real network?"
    }

    fn time(&self) -> Time {
        Time::Real
    }

    fn parameters(&self) -> &[Parameter] {
        &STREAM_PARAMETERS
    }

    fn metrics(&self) -> &[Metric] {
        &METRICS
    }

    fn judge(&self, point: &Point) -> Result<(), Failure> {
        match Setup::of(point)?.pattern {
            Pattern::Stream => Ok(()),
            _ => Err(Failure::Impossible("net-transactions asks for exchanges".into())),
        }
    }

    fn trial(&self, point: &Point, _seed: u64) -> Result<Metrics, Failure> {
        self.judge(point)?;
        let setup = Setup::of(point)?;
        let clock = self.0.clock();
        let (evidence, _) = self.0.with(|client, path| run(client, path, &setup, clock, false))?;
        Ok(metrics(&evidence))
    }
}

/// A record's figures.
pub fn metrics(evidence: &Evidence) -> Metrics {
    let figures = [("mbps", evidence.mbps()), ("sent_again", evidence.sent_again() as f64)];
    Metrics::of(&figures, serde_json::to_value(evidence).expect("plain values"))
}

/// One trial. With `captured`, it is captured, and the packets are handed back.
///
/// # Errors
/// [`Failure`]: whose fault it is.
pub fn run(
    client: &mut Client,
    path: &Path,
    setup: &Setup,
    clock: Clock,
    captured: bool,
) -> Result<(Evidence, Vec<Frame>), Failure> {
    let mut data = client.begin(&setup.settings(), Work::Read, setup.length())?;
    let message = vec![0x5a; setup.message_bytes as usize];
    let mut whole = if captured { capture(&data.stream) } else { None };
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
    let given = given(&data.stream).map_err(|error| broken(&error))?;
    let counters = Counters::read().unwrap_or_default().since(&data.before);
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
        round_trip_us: path.round_trip_us,
        given,
        info_before,
        info,
        counters,
        server,
        exchanges: None,
        capture: digest,
    };
    Ok((evidence, frames))
}
