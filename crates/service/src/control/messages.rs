//! Requests and answers of the control interface.

use crate::requests::{Answer, BYTES_MAX, Captured, Echo, EchoResult, Request, WAIT_MAX};
use crate::status::{Status, rounded};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
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
        /// Whether to loop the cell back at the end of the segment instead of at the end of the connection.
        #[serde(default)]
        segment: bool,
    },
    /// Ping a host (ICMP).
    Echo {
        /// The host's address.
        target: IpAddr,
        /// Payload of the request, in bytes.
        bytes: u16,
        /// How long to wait for the reply, in seconds.
        wait: f64,
    },
    /// Capture the traffic of a port.
    Capture {
        /// The port's name.
        port: String,
        /// The capture file, which the board's process writes.
        file: PathBuf,
        /// The duration; if absent, the capture runs until the client ends it, or for a day.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seconds: Option<f64>,
        /// The maximum number of packets; unlimited if absent.
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
    /// A ping's round-trip time in microseconds; `None` if the cell did not return.
    Loopback(Option<f64>),
    /// The result of an ICMP ping.
    Echo(EchoResult),
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
            Question::Echo { target, bytes, wait: seconds } => {
                let wait = Duration::try_from_secs_f64(seconds).ok().filter(|wait| *wait <= WAIT_MAX);
                let most = WAIT_MAX.as_secs();
                let wait = wait.ok_or_else(|| format!("a ping waits at most {most} s, not {seconds} s"))?;
                if bytes > BYTES_MAX {
                    return Err(format!("a ping carries at most {BYTES_MAX} bytes, not {bytes}"));
                }
                Request::Echo(Echo { target, bytes, wait })
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
            Answer::Echo(EchoResult::Reply { bytes, round_trip_us }) => {
                Reply::Echo(EchoResult::Reply { bytes, round_trip_us: rounded(round_trip_us) })
            }
            Answer::Echo(result) => Reply::Echo(result),
            Answer::Capturing(_) => Reply::Done("capture started".into()),
            Answer::Done(what) => Reply::Done(what),
            Answer::Refused(why) => Reply::Refused(why),
        }
    }
}
