//! The control interface: a Unix socket for requests to a board; each request and each answer is a line of
//! JSON.
//!
//! Path             `NAME.sock` in the user's directory of sockets ([`kiban_os::unix::names`]).
//! Access           the user who runs the board, and root: the socket has mode 0600, and the board checks the
//!                  client's user as the kernel reports it.
//! Requests         `{"verb":"status"}`, `reload`, `down`, `capture` with `port`, `file` and optionally
//!                  `seconds` and `packets`; `loopback` with `port`, `vc`, `segment`.
//! Answers          `{"status":{…}}`, `{"done":"…"}`, `{"loopback":123.4}` (microseconds; null without an
//!                  answer) or `{"refused":"…"}`.
//! Capture          has two answers: `{"done":"…"}` when it has started; and when it has ended,
//!                  `{"captured":{…}}`, or `{"refused":"…"}` if its file is incomplete. It ends when it
//!                  reaches a limit, or when the client sends anything more or shuts down its side.

mod admission;
mod client;
mod scrape;
mod server;

pub use client::{CaptureEnd, ControlClient, boards};
pub use scrape::MetricsListener;
pub use server::ControlServer;

use crate::requests::{Answer, Captured, Request};
use crate::status::{Status, rounded};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Length limit of a request, in bytes.
pub(crate) const LINE_BYTES_MAX: usize = 16 << 10;
/// Time limit of a capture.
pub const CAPTURE_MAX: Duration = Duration::from_secs(24 * 3600);

/// A request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "lowercase", deny_unknown_fields)]
pub enum Question {
    /// Return the status.
    Status {},
    /// Read the configuration again.
    Reload {},
    /// Stop.
    Down {},
    /// Ping a circuit.
    Loopback {
        /// The name of its port.
        port: String,
        /// The circuit, such as `0.100`.
        vc: String,
        /// Whether the end of the segment returns the cell, instead of the end of the connection.
        #[serde(default)]
        segment: bool,
    },
    /// Capture the traffic of a port.
    Capture {
        /// The port's name.
        port: String,
        /// The file, which the board's process writes.
        file: PathBuf,
        /// The duration; if absent, until the client ends it, a day at most.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seconds: Option<f64>,
        /// The number of packets; if absent, unlimited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        packets: Option<u64>,
    },
}

/// An answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// The status.
    Status(Box<Status>),
    /// A ping's round-trip time in microseconds; `None` if no cell returned.
    Loopback(Option<f64>),
    /// A capture has ended.
    Captured(Captured),
    /// The request was executed; the text describes what was done.
    Done(String),
    /// The request was refused; the text gives the reason.
    Refused(String),
}

impl TryFrom<Question> for Request {
    type Error = String;

    fn try_from(question: Question) -> Result<Request, String> {
        Ok(match question {
            Question::Status {} => Request::Status,
            Question::Reload {} => Request::Reload,
            Question::Down {} => Request::Down,
            Question::Loopback { port, vc, segment } => {
                let vc = vc.parse().map_err(|error| format!("invalid circuit `{vc}`: {error}"))?;
                Request::Loopback { port, vc, segment }
            }
            Question::Capture { port, file, seconds, packets } => {
                let time = match seconds.map(Duration::try_from_secs_f64) {
                    None => CAPTURE_MAX,
                    Some(Ok(time)) => time.min(CAPTURE_MAX),
                    Some(Err(_)) => return Err(format!("invalid duration: {} s", seconds.unwrap_or(0.0))),
                };
                Request::Capture { port, file, time, packets: packets.unwrap_or(u64::MAX) }
            }
        })
    }
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Reply {
        match answer {
            Answer::Status(status) => Reply::Status(status),
            Answer::Loopback(time) => Reply::Loopback(time.map(|time| rounded(time.as_secs_f64() * 1e6))),
            Answer::Capturing(_) => Reply::Done("capture started".into()),
            Answer::Done(what) => Reply::Done(what),
            Answer::Refused(why) => Reply::Refused(why),
        }
    }
}
