//! Applications: one that sends, one that receives, at either end of a connection.

use kiban_base::{Instant, SimRng};
use kiban_board::{Completion, Host, Program, StreamId};
use std::any::Any;
use std::net::SocketAddr;
use std::time::Duration;

/// Whether a program opens the connection or waits for it.
#[derive(Clone, Copy)]
pub(crate) enum Role {
    Open(SocketAddr),
    Listen(SocketAddr),
}

impl Role {
    fn begin(self, host: &mut Host<'_>) {
        match self {
            Role::Open(remote) => drop(host.open(remote).expect("a stream is free")),
            Role::Listen(local) => drop(host.listen(local).expect("the port is free")),
        }
    }
}

/// What a sender sends.
#[derive(Clone)]
pub(crate) enum Job {
    /// This many bytes, as fast as possible.
    Bulk(usize),
    /// Chunks, with a pause after each, up to half as long again.
    Paused { count: usize, bytes: usize, pause: Duration },
    /// Messages in several writes, a moment apart, each answered before the next.
    Exchange { count: usize, writes: Vec<usize>, no_delay: bool },
}

/// The time that an application takes between two writes of a message.
const BETWEEN_WRITES: Duration = Duration::from_micros(30);

/// How a receiver reads.
#[derive(Clone, Copy)]
pub(crate) enum Reading {
    /// At once.
    AtOnce,
    /// This many bytes at a time, with pauses.
    Slowly { bytes: usize, pause: Duration },
    /// At once; answers every message of `message` bytes with `answer` bytes.
    Answering { message: usize, answer: usize },
    /// The same, a time after each message.
    Thinking { message: usize, answer: usize, pause: Duration },
}

pub(crate) struct Sender {
    pub(crate) role: Role,
    pub(crate) job: Job,
    pub(crate) rng: SimRng,
    stream: Option<StreamId>,
    /// Bytes of the job that have not been written, in writes.
    rest: usize,
    done: usize,
    /// Writes of the current message.
    written: usize,
    resume_at: Instant,
    ended: bool,
}

impl Sender {
    pub(crate) fn new(role: Role, job: Job, rng: SimRng) -> Sender {
        Sender {
            role,
            job,
            rng,
            stream: None,
            rest: 0,
            done: 0,
            written: 0,
            resume_at: Instant::NEVER,
            ended: false,
        }
    }

    fn begin(&mut self, stream: StreamId, host: &mut Host<'_>, now: Instant) {
        self.stream = Some(stream);
        if let Job::Bulk(bytes) = self.job {
            self.rest = bytes;
        }
        if let Job::Exchange { no_delay, .. } = self.job {
            host.set_no_delay(stream, no_delay).expect("the stream is open");
        }
        self.pump(host, now);
    }

    fn pump(&mut self, host: &mut Host<'_>, now: Instant) {
        let Some(stream) = self.stream else { return };
        static BYTES: [u8; 1 << 16] = [7; 1 << 16];
        loop {
            while self.rest > 0 {
                match host.write(stream, &BYTES[..self.rest.min(BYTES.len())]) {
                    Ok(taken @ 1..) => self.rest -= taken,
                    _ => return,
                }
            }
            match &self.job {
                Job::Paused { count, bytes, pause } if self.done < *count => {
                    if self.resume_at == Instant::NEVER {
                        self.resume_at = now + pause.mul_f64(1.0 + self.rng.unit() / 2.0);
                        return;
                    }
                    if self.resume_at > now {
                        return;
                    }
                    (self.rest, self.done) = (*bytes, self.done + 1);
                    self.resume_at = Instant::NEVER;
                }
                // The answer starts the next message: see `on_completion`.
                Job::Exchange { count, writes, .. } if self.done < *count => {
                    let is_early = self.resume_at > now && self.resume_at != Instant::NEVER;
                    if is_early || self.written == writes.len() {
                        return;
                    }
                    let bytes = writes[self.written];
                    let taken = host.write(stream, &BYTES[..bytes]);
                    assert_eq!(taken, Ok(bytes), "messages fit into the send buffer");
                    self.written += 1;
                    let is_last = self.written == writes.len();
                    self.resume_at = if is_last { Instant::NEVER } else { now + BETWEEN_WRITES };
                    return;
                }
                _ => {
                    let _ = host.finish(stream);
                    return;
                }
            }
        }
    }
}

impl Program for Sender {
    fn start(&mut self, host: &mut Host<'_>, _now: Instant) {
        self.role.begin(host);
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        match completion {
            Completion::Opened { stream } | Completion::Accepted { stream, .. } => {
                self.begin(stream, host, now)
            }
            Completion::Writable { .. } => self.pump(host, now),
            Completion::Readable { stream } => {
                // Whole answers are small, and come in one segment.
                let mut answer = [0; 4096];
                let mut received = 0;
                while let Ok(count @ 1..) = host.read(stream, &mut answer) {
                    received += count;
                }
                if received > 0 {
                    (self.done, self.written) = (self.done + 1, 0);
                }
                self.pump(host, now);
            }
            Completion::PeerFinished { .. } | Completion::Ended { .. } => {
                self.ended = true;
                if let Some(stream) = self.stream.take() {
                    let _ = host.close(stream);
                }
            }
            _ => {}
        }
    }

    fn deadline(&self) -> Instant {
        if self.stream.is_some() { self.resume_at } else { Instant::NEVER }
    }

    fn on_timeout(&mut self, host: &mut Host<'_>, now: Instant) {
        self.pump(host, now);
    }

    fn is_done(&self) -> bool {
        self.ended
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub(crate) struct Receiver {
    pub(crate) role: Role,
    pub(crate) reading: Reading,
    stream: Option<StreamId>,
    received: usize,
    resume_at: Instant,
    peer_finished: bool,
    ended: bool,
}

impl Receiver {
    pub(crate) fn new(role: Role, reading: Reading) -> Receiver {
        let (resume_at, stream) = (Instant::NEVER, None);
        Receiver { role, reading, stream, received: 0, resume_at, peer_finished: false, ended: false }
    }

    fn read(&mut self, host: &mut Host<'_>, now: Instant) {
        let Some(stream) = self.stream else { return };
        let mut buffer = [0; 1 << 16];
        match self.reading {
            Reading::AtOnce => while let Ok(1..) = host.read(stream, &mut buffer) {},
            Reading::Answering { message, answer } => {
                while let Ok(count @ 1..) = host.read(stream, &mut buffer) {
                    let before = self.received / message;
                    self.received += count;
                    for _ in before..self.received / message {
                        let _ = host.write(stream, &buffer[..answer]);
                    }
                }
            }
            Reading::Thinking { message, answer, pause } => {
                let before = self.received / message;
                while let Ok(count @ 1..) = host.read(stream, &mut buffer) {
                    self.received += count;
                }
                if self.received / message > before {
                    self.resume_at = now + pause;
                } else if self.resume_at <= now {
                    let _ = host.write(stream, &buffer[..answer]);
                    self.resume_at = Instant::NEVER;
                }
            }
            Reading::Slowly { bytes, pause } => {
                if self.resume_at == Instant::NEVER {
                    self.resume_at = now + pause;
                } else if self.resume_at <= now {
                    let _ = host.read(stream, &mut buffer[..bytes]);
                    let waits = host.readable(stream).is_ok_and(|bytes| bytes > 0);
                    self.resume_at = if waits { now + pause } else { Instant::NEVER };
                }
            }
        }
        if self.peer_finished && host.readable(stream).is_ok_and(|bytes| bytes == 0) {
            let _ = host.close(stream);
            self.ended = true;
        }
    }
}

impl Program for Receiver {
    fn start(&mut self, host: &mut Host<'_>, _now: Instant) {
        self.role.begin(host);
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        match completion {
            Completion::Opened { stream } | Completion::Accepted { stream, .. } => {
                self.stream = Some(stream);
                self.read(host, now);
            }
            Completion::Readable { .. } => self.read(host, now),
            Completion::PeerFinished { .. } => {
                self.peer_finished = true;
                self.read(host, now);
            }
            Completion::Ended { stream, .. } => {
                let _ = host.close(stream);
                self.ended = true;
            }
            _ => {}
        }
    }

    fn deadline(&self) -> Instant {
        if self.ended { Instant::NEVER } else { self.resume_at }
    }

    fn on_timeout(&mut self, host: &mut Host<'_>, now: Instant) {
        self.read(host, now);
    }

    fn is_done(&self) -> bool {
        self.ended
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
