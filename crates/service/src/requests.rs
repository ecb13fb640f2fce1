//! Requests to a running board from other threads: a queue, a bell, and answers.

use kiban_atm::wire::atm::Vc;
use kiban_link::board_driver::Waker;
use kiban_os::{Flag, lock};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::status::Status;

/// Limit of waiting requests.
const REQUESTS_MAX: usize = 64;
/// Timeout of an answer.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);
/// The longest time that a ping may wait for its reply.
pub const WAIT_MAX: Duration = Duration::from_secs(60);
/// The most payload that a ping can carry, in bytes: an IPv4 packet of 65,535 bytes less both headers.
pub const BYTES_MAX: u16 = 65_507;

/// A request to a running board.
#[derive(Clone, PartialEq, Debug)]
pub enum Request {
    /// Return the status.
    Status,
    /// Read the configuration again.
    Reload,
    /// Stop the board. Sessions get their configured time to end; a second request stops the board at once.
    Down,
    /// Ping a circuit (I.610). The answer is sent when the cell has returned or the wait has timed out.
    Loopback {
        /// The name of its port.
        port: String,
        /// The circuit.
        vc: Vc,
        /// Whether to loop back at the end of the segment instead of end to end.
        segment: bool,
    },
    /// Ping a host (ICMP). The answer is sent when the reply has arrived or the wait has timed out.
    Echo(Echo),
    /// Capture the traffic of a port.
    Capture {
        /// The port's name.
        port: String,
        /// The file to create.
        file: PathBuf,
        /// Limit of its duration.
        time: Duration,
        /// Limit of its packets.
        packets: u64,
    },
    /// End the capture with this number if it is still running; its client gets the result.
    EndCapture(u64),
}

/// The result of a ping.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EchoResult {
    /// The target replied.
    Reply {
        /// Payload bytes in the reply.
        bytes: u64,
        /// The round-trip time, in microseconds.
        round_trip_us: f64,
    },
    /// A host reported that the request could not be delivered.
    Error {
        /// That host; the board itself if the next hop does not answer.
        from: IpAddr,
        /// What it reported.
        error: String,
    },
    /// Neither arrived in time.
    Timeout {},
}

/// A request for a ping.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Echo {
    /// The host to ping.
    pub target: IpAddr,
    /// Payload of the request, in bytes.
    pub bytes: u16,
    /// How long to wait for the reply.
    pub wait: Duration,
}

/// A capture that has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Captured {
    /// The port.
    pub port: String,
    /// The file.
    pub file: PathBuf,
    /// The number of packets or frames in the file.
    pub packets: u64,
    /// Length of the file, in bytes.
    pub bytes: u64,
}

/// A running capture. Dropping this value also ends it.
#[derive(Debug)]
pub struct RunningCapture {
    /// Its number.
    pub number: u64,
    /// Receives the result, or the reason why the file is incomplete.
    pub ended: oneshot::Receiver<Result<Captured, String>>,
}

/// The answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// The status.
    Status(Box<Status>),
    /// A ping's round-trip time; `None` if it timed out.
    Loopback(Option<Duration>),
    /// The result of an ICMP ping.
    Echo(EchoResult),
    /// The capture has started.
    Capturing(RunningCapture),
    /// Done; the text says what.
    Done(String),
    /// The request was refused; the text gives the reason.
    Refused(String),
}

/// A queue of requests.
pub struct RequestQueue {
    queue: Mutex<VecDeque<(Request, oneshot::Sender<Answer>)>>,
    /// Whether the queue has entries. Changed only while the queue is locked.
    waits: Flag,
    waker: Waker,
}

impl RequestQueue {
    pub(crate) fn new(waker: Waker) -> RequestQueue {
        RequestQueue { queue: Mutex::default(), waits: Flag::default(), waker }
    }

    /// Queues a request; the board answers after handling it.
    pub fn ask(&self, request: Request) -> oneshot::Receiver<Answer> {
        let (sender, receiver) = oneshot::channel();
        let mut queue = lock(&self.queue);
        if queue.len() < REQUESTS_MAX {
            queue.push_back((request, sender));
            self.waits.set(true);
        }
        drop(queue);
        self.waker.wake();
        receiver
    }

    /// Queues a request and waits for the answer; returns a refusal if the board does not answer within
    /// [`ANSWER`], or for a ping within this time after its own.
    pub(crate) async fn answer(&self, request: Request) -> Answer {
        let own = if let Request::Echo(echo) = &request { echo.wait } else { Duration::ZERO };
        match timeout(ANSWER + own, self.ask(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Answer::Refused("the board is stopping".into()),
            Err(_) => Answer::Refused(format!("the board did not answer within {} s", ANSWER.as_secs())),
        }
    }

    pub(crate) fn waits(&self) -> bool {
        self.waits.get()
    }

    pub(crate) fn next(&self) -> Option<(Request, oneshot::Sender<Answer>)> {
        let mut queue = lock(&self.queue);
        let next = queue.pop_front();
        self.waits.set(!queue.is_empty());
        next
    }
}
