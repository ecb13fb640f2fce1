//! Control: a Unix socket on which a board is asked, one line of JSON each way.
//!
//! Where     `$XDG_RUNTIME_DIR/kiban/NAME.sock`, or `/run/kiban/NAME.sock` where that is not set.
//! Who       the user who runs the board, and root: the socket's mode is 0600, and the system is asked who calls.
//! Ask       `{"verb":"status"}`, `reload`, `down`, `capture` with `port`, `file` and perhaps `seconds` and `packets`;
//!           `loopback` with `port`, `vc`, `segment`.
//! Answer    `{"status":{…}}`, `{"done":"…"}`, `{"loopback":123.4}` (microseconds; none: null) or `{"refused":"…"}`.
//! Capture   has two answers: `{"done":"…"}` when it has begun, and when it has ended `{"captured":{…}}` or, if its file is not whole,
//!           `{"refused":"…"}`. It ends at its bounds, and when the caller says anything more or has no more to say.

mod client;
mod desk;
mod scrape;
mod seats;

pub use client::{Caller, CaptureEnd, boards};
pub use desk::Desk;
pub use scrape::Figures;

use crate::orders::{Answer, Captured, Order};
use crate::status::{Status, rounded};
use kiban_real::streams::folders;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// The longest question.
pub(crate) const LINE_BYTES_MAX: usize = 16 << 10;
/// The longest recording.
pub const CAPTURE_MAX: Duration = Duration::from_secs(24 * 3600);

/// A question.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "lowercase", deny_unknown_fields)]
pub enum Question {
    /// How are you?
    Status {},
    /// Read the configuration again.
    Reload {},
    /// Stop.
    Down {},
    /// Ping a circuit.
    Loopback {
        /// The name of its port.
        port: String,
        /// The circuit, as `0.100`.
        vc: String,
        /// Of the segment, not from end to end.
        #[serde(default)]
        segment: bool,
    },
    /// Record what passes at a port.
    Capture {
        /// Its name.
        port: String,
        /// Where to; the board's process writes it.
        file: PathBuf,
        /// For how long; not said: until the caller has enough, a day at most.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seconds: Option<f64>,
        /// How many packets; not said: however many come.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        packets: Option<u64>,
    },
}

/// A reply.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// How it is.
    Status(Box<Status>),
    /// How long a ping was away, microseconds; none: it did not come back.
    Loopback(Option<f64>),
    /// A record has ended.
    Captured(Captured),
    /// Done; what was done.
    Done(String),
    /// Not done; why.
    Refused(String),
}

impl TryFrom<Question> for Order {
    type Error = String;

    fn try_from(question: Question) -> Result<Order, String> {
        Ok(match question {
            Question::Status {} => Order::Status,
            Question::Reload {} => Order::Reload,
            Question::Down {} => Order::Down,
            Question::Loopback { port, vc, segment } => {
                let vc = vc.parse().map_err(|error| format!("`{vc}` is no circuit: {error}"))?;
                Order::Loopback { port, vc, segment }
            }
            Question::Capture { port, file, seconds, packets } => {
                let time = match seconds.map(Duration::try_from_secs_f64) {
                    None => CAPTURE_MAX,
                    Some(Ok(time)) => time.min(CAPTURE_MAX),
                    Some(Err(_)) => return Err(format!("{} seconds are no time", seconds.unwrap_or(0.0))),
                };
                Order::Capture { port, file, time, packets: packets.unwrap_or(u64::MAX) }
            }
        })
    }
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Reply {
        match answer {
            Answer::Status(status) => Reply::Status(status),
            Answer::Loopback(time) => Reply::Loopback(time.map(|time| rounded(time.as_secs_f64() * 1e6))),
            Answer::Capturing(_) => Reply::Done("it is being recorded".into()),
            Answer::Done(what) => Reply::Done(what),
            Answer::Refused(why) => Reply::Refused(why),
        }
    }
}
