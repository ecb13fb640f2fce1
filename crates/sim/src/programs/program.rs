//! Programs: applications on a board, in virtual time.
//!
//! A program gets completions and calls the host edge. Its work takes no virtual time.

use kiban_base::Instant;
pub use kiban_board::Program;
use kiban_board::{Completion, Host, StreamId};
use kiban_tcpip::tcp;
use std::any::Any;
use std::net::{Ipv6Addr, SocketAddr};

/// Fills a whole buffer with the bytes of a stream at an offset.
pub type Source = Box<dyn FnMut(u64, &mut [u8])>;
/// Receives the bytes of a stream at an offset.
pub type Sink = Box<dyn FnMut(u64, &[u8])>;

/// Number of bytes that a program moves in one call.
const BUFFER_BYTES: usize = 64 << 10;

/// Sends streams to a peer, each over its own session.
pub struct Sender {
    jobs: Vec<Outgoing>,
    buffer: Vec<u8>,
}

struct Outgoing {
    /// The local address, if it is given, and the remote one.
    ends: (Option<SocketAddr>, SocketAddr),
    stream: Option<StreamId>,
    local: Option<SocketAddr>,
    source: Source,
    length: u64,
    sent: u64,
    /// Bytes that were read from the source and that the board has not accepted yet.
    kept: Vec<u8>,
    info: Option<tcp::Info>,
    ended: bool,
}

impl Sender {
    /// Sends one stream for each `(length, source)` to `remote`, all at once.
    pub fn new(remote: SocketAddr, streams: Vec<(u64, Source)>) -> Sender {
        Sender::between(
            streams.into_iter().map(|(length, source)| ((None, remote), length, source)).collect(),
        )
    }

    /// Sends one stream for each `((local, remote), length, source)`, all at once. Without a local address,
    /// the route determines it.
    pub fn between(streams: Vec<((Option<SocketAddr>, SocketAddr), u64, Source)>) -> Sender {
        let jobs = streams
            .into_iter()
            .map(|(ends, length, source)| Outgoing {
                ends,
                stream: None,
                local: None,
                source,
                length,
                sent: 0,
                kept: Vec::new(),
                info: None,
                ended: false,
            })
            .collect();
        Sender { jobs, buffer: vec![0; BUFFER_BYTES] }
    }

    /// Returns the local address of each stream, in the order in which they were given.
    pub fn locals(&self) -> Vec<Option<SocketAddr>> {
        self.jobs.iter().map(|job| job.local).collect()
    }

    /// Returns TCP's state for each stream at the time when both sides had sent everything.
    pub fn infos(&self) -> Vec<Option<tcp::Info>> {
        self.jobs.iter().map(|job| job.info).collect()
    }

    fn pump(&mut self, index: usize, host: &mut Host<'_>) {
        let job = &mut self.jobs[index];
        let Some(stream) = job.stream else { return };
        while job.sent < job.length {
            if job.kept.is_empty() {
                // Read no more than fits, so that each byte is read from the source only once.
                let room = host.room(stream).unwrap_or(0).max(1);
                let count = (room.min(BUFFER_BYTES) as u64).min(job.length - job.sent) as usize;
                (job.source)(job.sent, &mut self.buffer[..count]);
                match host.write(stream, &self.buffer[..count]) {
                    Ok(taken) if taken == count => job.sent += count as u64,
                    Ok(taken) => {
                        job.sent += taken as u64;
                        job.kept.extend_from_slice(&self.buffer[taken..count]);
                        return;
                    }
                    Err(_) => return,
                }
            } else {
                match host.write(stream, &job.kept) {
                    Ok(taken) => {
                        job.sent += taken as u64;
                        job.kept.drain(..taken);
                        if !job.kept.is_empty() {
                            return;
                        }
                    }
                    Err(_) => return,
                }
            }
        }
        let _ = host.finish(stream);
    }
}

impl Program for Sender {
    fn start(&mut self, host: &mut Host<'_>, _now: Instant) {
        for job in &mut self.jobs {
            job.stream = match job.ends {
                (Some(local), remote) => host.open_from(local, remote).ok(),
                (None, remote) => host.open(remote).ok(),
            };
            job.local = job.stream.and_then(|stream| host.info(stream).ok()).map(|info| info.local);
        }
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, _now: Instant) {
        let find = |jobs: &[Outgoing], stream| jobs.iter().position(|job| job.stream == Some(stream));
        match completion {
            Completion::Opened { stream } | Completion::Writable { stream } => {
                if let Some(index) = find(&self.jobs, stream) {
                    self.pump(index, host);
                }
            }
            Completion::PeerFinished { stream } => {
                if let Some(index) = find(&self.jobs, stream) {
                    self.jobs[index].info = host.info(stream).ok();
                }
            }
            Completion::Ended { stream, .. } => {
                if let Some(index) = find(&self.jobs, stream) {
                    self.jobs[index].ended = true;
                    let _ = host.close(stream);
                }
            }
            _ => {}
        }
    }

    fn is_done(&self) -> bool {
        self.jobs.iter().all(|job| job.ended)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Receives streams.
pub struct Receiver {
    port: u16,
    listener: Option<u32>,
    jobs: Vec<Incoming>,
    make: Box<dyn FnMut(usize) -> Sink>,
    expected: usize,
    buffer: Vec<u8>,
    refused: usize,
}

struct Incoming {
    stream: StreamId,
    remote: SocketAddr,
    sink: Sink,
    received: u64,
    opened_at: Instant,
    first_at: Option<Instant>,
    last_at: Instant,
    finished: bool,
}

/// The results of one received stream.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// The peer's address.
    pub remote: SocketAddr,
    /// The number of bytes received.
    pub bytes: u64,
    /// When the stream was accepted.
    pub opened_at: Instant,
    /// When the first bytes arrived.
    pub first_at: Option<Instant>,
    /// When the last bytes arrived.
    pub last_at: Instant,
}

impl Receiver {
    /// Listens on `port` of every address, of both families, for `expected` streams; `make(n)` gives the sink
    /// of the n-th accepted stream.
    pub fn new(port: u16, expected: usize, make: Box<dyn FnMut(usize) -> Sink>) -> Receiver {
        Receiver {
            port,
            listener: None,
            jobs: Vec::new(),
            make,
            expected,
            buffer: vec![0; BUFFER_BYTES],
            refused: 0,
        }
    }

    /// Returns the results of the streams, in the order in which they were accepted.
    pub fn received(&self) -> Vec<Received> {
        let received = |job: &Incoming| Received {
            remote: job.remote,
            bytes: job.received,
            opened_at: job.opened_at,
            first_at: job.first_at,
            last_at: job.last_at,
        };
        self.jobs.iter().map(received).collect()
    }

    fn drain(&mut self, stream: StreamId, host: &mut Host<'_>, now: Instant) {
        let Some(job) = self.jobs.iter_mut().find(|job| job.stream == stream) else { return };
        while let Ok(count @ 1..) = host.read(stream, &mut self.buffer) {
            (job.sink)(job.received, &self.buffer[..count]);
            job.received += count as u64;
            job.first_at.get_or_insert(now);
            job.last_at = now;
        }
    }
}

impl Program for Receiver {
    fn start(&mut self, host: &mut Host<'_>, _now: Instant) {
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, self.port));
        match host.listen_with(any, false) {
            Ok(listener) => self.listener = Some(listener),
            Err(_) => self.refused += 1,
        }
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        match completion {
            // A board may have several receivers, so check that the listener belongs to this one.
            Completion::Accepted { stream, remote, listener } if self.listener == Some(listener) => {
                let sink = (self.make)(self.jobs.len());
                self.jobs.push(Incoming {
                    stream,
                    remote,
                    sink,
                    received: 0,
                    opened_at: now,
                    first_at: None,
                    last_at: now,
                    finished: false,
                });
            }
            Completion::Readable { stream } => self.drain(stream, host, now),
            Completion::PeerFinished { stream } | Completion::Ended { stream, .. } => {
                self.drain(stream, host, now);
                if let Some(job) = self.jobs.iter_mut().find(|job| job.stream == stream && !job.finished) {
                    job.finished = true;
                    let _ = host.close(stream);
                }
            }
            _ => {}
        }
    }

    fn is_done(&self) -> bool {
        self.jobs.len() == self.expected && self.jobs.iter().all(|job| job.finished)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
