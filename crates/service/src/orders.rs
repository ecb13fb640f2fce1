//! What is asked of a board that runs, from other threads: a queue, a bell, and answers.

use kiban_real::driver::Waker;
use kiban_wire::atm::Vc;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

use crate::status::Status;

/// Orders that may wait.
const ORDERS_MAX: usize = 64;

/// What is asked.
#[derive(Clone, PartialEq, Debug)]
pub enum Order {
    /// How are you?
    Status,
    /// Read the configuration again.
    Reload,
    /// Stop: sessions may end in their time; at once when it is asked a second time.
    Down,
    /// Ping a circuit (I.610): the answer is given when the cell came back, or did not.
    Loopback {
        /// The name of its port.
        port: String,
        /// The circuit.
        vc: Vc,
        /// Of the segment, not from end to end.
        segment: bool,
    },
    /// Record what passes at a port.
    Capture {
        /// Its name.
        port: String,
        /// Where to.
        file: PathBuf,
        /// For how long at most.
        time: Duration,
        /// How many packets at most.
        packets: u64,
    },
    /// End a record of that number, if it still runs: whoever has it is told.
    EndCapture(u64),
}

/// A record that has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Captured {
    /// The port.
    pub port: String,
    /// The file.
    pub file: PathBuf,
    /// Packets, or frames, that are in it.
    pub packets: u64,
    /// Its length.
    pub bytes: u64,
}

/// A record that runs. It ends as well when nobody has this any more.
#[derive(Debug)]
pub struct Capturing {
    /// Its number.
    pub number: u64,
    /// What became of it; why it is not whole.
    pub ended: oneshot::Receiver<Result<Captured, String>>,
}

/// What comes of it.
#[derive(Debug)]
pub enum Answer {
    /// How it is.
    Status(Box<Status>),
    /// How long a ping was away; none: it did not come back in time.
    Loopback(Option<Duration>),
    /// It is being recorded.
    Capturing(Capturing),
    /// Done; what was done.
    Done(String),
    /// Not done; why.
    Refused(String),
}

/// The queue.
pub struct Orders {
    queue: Mutex<VecDeque<(Order, oneshot::Sender<Answer>)>>,
    waits: AtomicBool,
    waker: Waker,
}

impl Orders {
    pub(crate) fn new(waker: Waker) -> Orders {
        Orders { queue: Mutex::default(), waits: AtomicBool::new(false), waker }
    }

    /// Asks; the answer comes when the board has looked.
    pub fn ask(&self, order: Order) -> oneshot::Receiver<Answer> {
        let (sender, receiver) = oneshot::channel();
        let mut queue = self.queue.lock().expect("nobody panics with it");
        if queue.len() < ORDERS_MAX {
            queue.push_back((order, sender));
            self.waits.store(true, Ordering::Release);
        }
        drop(queue);
        self.waker.wake();
        receiver
    }

    pub(crate) fn waits(&self) -> bool {
        self.waits.load(Ordering::Acquire)
    }

    pub(crate) fn next(&self) -> Option<(Order, oneshot::Sender<Answer>)> {
        let mut queue = self.queue.lock().expect("nobody panics with it");
        let next = queue.pop_front();
        self.waits.store(!queue.is_empty(), Ordering::Release);
        next
    }
}
