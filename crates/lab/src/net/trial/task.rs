//! What a trial is given, and what the trials of all patterns share.

use super::evidence::Evidence;
use super::path::Path;
use super::setup::Setup;
use crate::engine::Failure;
use crate::remote::client::{Client, Data, SILENCE};
use crate::remote::protocol::{Outcome, Work};
use kiban_measure::socket::Given;
use kiban_measure::{Capture, Counters, Frame, TcpInfo};
use kiban_os::Clock;
use std::io;
use std::time::Duration;

/// A trial to be run.
pub(in crate::net) struct Task<'a> {
    pub(in crate::net) client: &'a mut Client,
    pub(in crate::net) path: &'a Path,
    pub(in crate::net) setup: &'a Setup,
    pub(in crate::net) clock: Clock,
    /// Whether the whole trial is captured on this host.
    pub(in crate::net) captured: bool,
}

/// The evidence of a trial and, if the whole trial was captured, its packets.
pub(in crate::net) type Done = Result<(Evidence, Packets), Failure>;

/// The packets of a trial, from the handshake on.
#[derive(Clone, PartialEq, Debug, Default)]
pub(in crate::net) struct Packets {
    pub(in crate::net) frames: Vec<Frame>,
    /// The number of packets before the measurement: the handshake, the greeting and the warm-up.
    first: usize,
}

impl Packets {
    /// Returns the packets of the measurement, without those before it.
    pub(in crate::net) fn measured(&self) -> &[Frame] {
        self.frames.get(self.first..).unwrap_or_default()
    }
}

/// A capture of a whole trial, if it is wanted and permitted.
pub(super) struct Recorder {
    capture: Option<Capture>,
    first: usize,
}

impl Recorder {
    /// Begins the measurement: packets so far are kept, but do not count.
    pub(super) fn begin(mut capture: Option<Capture>) -> Recorder {
        let first = capture.as_mut().map_or(0, |capture| capture.frames().len());
        Recorder { capture, first }
    }

    pub(super) fn is_on(&self) -> bool {
        self.capture.is_some()
    }

    /// Takes the packets out of the kernel's buffer.
    pub(super) fn drain(&mut self) {
        if let Some(capture) = &mut self.capture {
            capture.drain();
        }
    }

    /// Returns whether the times between packets are meaningless, because the wall clock was set.
    pub(super) fn clock_stepped(&self) -> bool {
        self.capture.as_ref().is_some_and(Capture::clock_stepped)
    }

    /// Returns all packets.
    pub(super) fn packets(&mut self) -> Packets {
        let frames = self.capture.as_mut().map(|capture| capture.frames().to_vec()).unwrap_or_default();
        Packets { frames, first: self.first }
    }
}

/// The sender's account of a trial.
pub(super) struct Sending {
    pub(super) seconds: f64,
    pub(super) given: Given,
    pub(super) info_before: TcpInfo,
    pub(super) info: TcpInfo,
    pub(super) counters: Counters,
}

impl Task<'_> {
    /// Opens the data connection, with a capture if the task is captured.
    pub(super) fn begin(&mut self, work: Work, length: Duration) -> Result<Data, Failure> {
        self.client.begin_captured(&self.setup.settings(), work, length, self.captured)
    }

    /// Returns this end's account of what it has received, like that of a server.
    pub(super) fn received(&self, data: &Data, bytes: u64, time: Duration) -> Result<Outcome, Failure> {
        Ok(Outcome {
            bytes,
            seconds: time.as_secs_f64(),
            rate_limited: false,
            info: info(data)?,
            given: given(data)?,
            counters: self.counters(data),
            asked: None,
            windows: None,
        })
    }

    /// Returns this host's counters since the connection was opened.
    pub(super) fn counters(&self, data: &Data) -> Counters {
        self.client.tcp().counters().since(&data.before)
    }

    /// Puts the accounts of both ends together; there are neither exchanges nor a digest yet.
    pub(super) fn evidence(&self, sending: Sending, receiver: Outcome) -> Evidence {
        let Sending { seconds, given, info_before, info, counters } = sending;
        Evidence {
            pattern: self.setup.pattern,
            message_bytes: self.setup.message_bytes,
            last_write_bytes: self.setup.writes().last().copied().unwrap_or(0),
            settings: self.setup.settings(),
            seconds,
            path: *self.path,
            board: self.client.tcp().board().map(str::to_owned),
            peer: self.client.welcome().clone(),
            given,
            info_before,
            info,
            counters,
            receiver,
            exchanges: None,
            capture: None,
            windows: None,
            beside: None,
        }
    }
}

/// The beginning of the description of a connection that is silent for too long.
pub(in crate::net) const NO_DATA: &str = "no data moved on the data connection";

/// Returns [`Failure::Lost`] with a description of an error on the data connection.
pub(in crate::net) fn broken(error: &io::Error) -> Failure {
    Failure::Lost(match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("{NO_DATA} for {} s", SILENCE.as_secs())
        }
        io::ErrorKind::UnexpectedEof => "the server closed the data connection".into(),
        _ => format!("the data connection broke: {error}"),
    })
}

/// Returns the kernel's state of a connection.
pub(in crate::net) fn info(data: &Data) -> Result<TcpInfo, Failure> {
    data.stream.info().map_err(|error| broken(&error))
}

/// Returns the socket options that the kernel has applied.
pub(super) fn given(data: &Data) -> Result<Given, Failure> {
    data.stream.given().map_err(|error| broken(&error))
}
