//! What a trial is given, and what the trials of all patterns share.

use super::evidence::Evidence;
use super::path::Path;
use super::setup::Setup;
use crate::engine::Failure;
use crate::remote::client::{Client, Data, SILENCE};
use crate::remote::protocol::Outcome;
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
pub(in crate::net) type Done = Result<(Evidence, Vec<Frame>), Failure>;

/// The sender's account of a trial.
pub(super) struct Sending {
    pub(super) seconds: f64,
    pub(super) given: Given,
    pub(super) info_before: TcpInfo,
    pub(super) info: TcpInfo,
    pub(super) counters: Counters,
}

impl Task<'_> {
    /// Starts the capture of the whole trial, if it is wanted and permitted.
    pub(super) fn capture(&self, data: &Data) -> Option<Capture> {
        if self.captured { data.stream.capture() } else { None }
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
        }
    }
}

/// Returns the packets of a whole trial.
pub(super) fn frames(capture: &mut Option<Capture>) -> Vec<Frame> {
    capture.as_mut().map(|capture| capture.frames().to_vec()).unwrap_or_default()
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
