//! Files over a board's own TCP: one side of an association in TPKTs (RFC 1006), as a program of a world.
//!
//! Goal      run the same OSI stack as on the serial line over a TCP session, however the boards are
//!           connected.
//! Steps     the initiator connects, associates, does one job, releases, closes. The responder serves
//!           one initiator.
//! Limits    data that TCP does not accept waits in the OSI stack, which then neither requests more data from
//!           its user nor reads from TCP.
//! Left out  the timers of the layers: programs have no timers, and TCP ends a silent connection.

use super::user::User;
use crate::programs::program::Program;
use kiban_base::Instant;
use kiban_board::{Completion, Host, StreamId};
use kiban_osi::ftam::filestore::memory::MemoryDisk;
use kiban_osi::ftam::initiator::{Failure, Job, Outcome};
use kiban_osi::network::Origin;
use kiban_osi::stack::end::End;
use kiban_osi::stack::layers::StackConfig;
use kiban_osi::stack::stream::ConnectionAction;
use kiban_osi::transport;
use kiban_tcpip::tcp;
use std::any::Any;
use std::net::{Ipv6Addr, SocketAddr};

enum Role {
    /// Connects to the address and performs the job.
    Initiator(SocketAddr, Option<Job>),
    /// Listens on the port; holds the listener's number.
    Responder(u16, Option<u32>),
}

/// One side of an association, with its user and the user's disk.
pub struct Peer {
    role: Role,
    user: User,
    end: End,
    stream: Option<StreamId>,
    /// The result of the job, and when it was reported.
    ended: Option<(Result<Outcome, Failure>, Instant)>,
    is_closed: bool,
}

impl Peer {
    /// Creates an initiator that connects to `remote` and performs `job`. Data elements and TPDUs have at
    /// most `fdata_bytes` and `tpdu_bytes`.
    pub fn initiator(remote: SocketAddr, job: Job, fdata_bytes: usize, tpdu_bytes: usize) -> Peer {
        Peer::new(Role::Initiator(remote, Some(job)), fdata_bytes, tpdu_bytes)
    }

    /// Creates a responder that serves connections to `port`.
    pub fn responder(port: u16, fdata_bytes: usize, tpdu_bytes: usize) -> Peer {
        Peer::new(Role::Responder(port, None), fdata_bytes, tpdu_bytes)
    }

    fn new(role: Role, fdata_bytes: usize, tpdu_bytes: usize) -> Peer {
        let (user, machine) = User::new(matches!(role, Role::Initiator(..)), fdata_bytes);
        let transport = transport::Config { tpdu_bytes_max: tpdu_bytes, ..transport::Config::default() };
        let end = End::new(machine, &StackConfig { transport, ..StackConfig::default() });
        Peer { role, user, end, stream: None, ended: None, is_closed: false }
    }

    /// Returns the disk of the peer's host.
    pub fn disk(&self) -> &MemoryDisk {
        &self.user.disk
    }

    /// Returns the disk of the peer's host, to put files there.
    pub fn disk_mut(&mut self) -> &mut MemoryDisk {
        &mut self.user.disk
    }

    /// Returns the OSI layers.
    pub fn end(&self) -> &End {
        &self.end
    }

    /// Returns the result of the initiator's job, and when it was reported; `None` if it has not ended.
    pub fn ended(&self) -> Option<&(Result<Outcome, Failure>, Instant)> {
        self.ended.as_ref()
    }

    fn opened(&mut self, stream: StreamId, host: &mut Host<'_>, now: Instant) {
        // A request must not wait for the acknowledgement of the previous one.
        let _ = host.set_nagle(stream, tcp::Nagle::Off);
        self.stream = Some(stream);
        match self.role {
            Role::Initiator(..) => self.user.connect(self.end.machine()),
            Role::Responder(..) => self.end.connected(now, &mut ()),
        }
    }

    /// Moves as much data as possible between TCP and the user.
    fn turn(&mut self, host: &mut Host<'_>, now: Instant) {
        let Some(stream) = self.stream.filter(|_| !self.is_closed) else { return };
        while self.read(stream, host, now) | self.work(now) | self.write(stream, host) {}
        if self.end.connection_action() == ConnectionAction::Close && self.end.outgoing().is_empty() {
            self.close(stream, host);
        }
    }

    fn read(&mut self, stream: StreamId, host: &mut Host<'_>, now: Instant) -> bool {
        let bytes = host.readable(stream).unwrap_or(0);
        if bytes == 0 || self.end.room() == 0 {
            return false;
        }
        let mut piece = vec![0; bytes];
        let count = host.read(stream, &mut piece).unwrap_or(0);
        piece.truncate(count);
        self.end.arrive(piece.into(), now, &mut ());
        count > 0
    }

    fn work(&mut self, now: Instant) -> bool {
        let room = self.end.room();
        self.user.work(self.end.machine(), room);
        self.hear(now);
        let moved = self.end.settle(now, &mut ());
        // The TCP session is established already, so report the connection at once.
        let asks = self.end.connection_action() == ConnectionAction::Connect;
        if asks {
            self.end.connected(now, &mut ());
        }
        moved | asks
    }

    /// Handles the initiator's indications.
    fn hear(&mut self, now: Instant) {
        let Role::Initiator(_, job) = &mut self.role else { return };
        if self.ended.is_some() {
            return;
        }
        match (self.user.take_connected(), job.take()) {
            (Some(Ok(())), Some(job)) => self.user.start(job, self.end.machine()),
            (Some(Err(failure)), _) => self.ended = Some((Err(failure), now)),
            (_, waiting) => *job = waiting,
        }
        if let Some(result) = self.user.take_ended() {
            self.ended = Some((result, now));
            self.user.terminate(self.end.machine());
        }
    }

    fn write(&mut self, stream: StreamId, host: &mut Host<'_>) -> bool {
        let mut written = 0;
        for run in self.end.outgoing().runs() {
            let taken = host.write(stream, run).unwrap_or(0);
            written += taken;
            if taken < run.len() {
                break;
            }
        }
        self.end.outgoing().skip(written);
        written > 0
    }

    fn close(&mut self, stream: StreamId, host: &mut Host<'_>) {
        // This also frees a stream that the peer closed first.
        let _ = host.close(stream);
        self.is_closed = true;
    }
}

impl Program for Peer {
    fn start(&mut self, host: &mut Host<'_>, _now: Instant) {
        match &mut self.role {
            Role::Initiator(remote, _) => self.stream = host.open(*remote).ok(),
            Role::Responder(port, listener) => {
                let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, *port));
                *listener = host.listen_with(any, false).ok();
            }
        }
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        match completion {
            Completion::Opened { stream } if self.stream == Some(stream) => self.opened(stream, host, now),
            Completion::Accepted { stream, listener, .. } if self.stream.is_none() => {
                if !matches!(self.role, Role::Responder(_, Some(own)) if own == listener) {
                    return;
                }
                self.opened(stream, host, now);
            }
            Completion::PeerFinished { stream } | Completion::Ended { stream, .. }
                if self.stream == Some(stream) =>
            {
                self.turn(host, now);
                let whole = matches!(completion, Completion::PeerFinished { .. });
                let origin = if whole { Origin::User } else { Origin::Provider };
                self.end.ended(origin, now, &mut ());
            }
            Completion::Readable { stream } | Completion::Writable { stream }
                if self.stream == Some(stream) => {}
            _ => return,
        }
        self.turn(host, now);
    }

    fn is_done(&self) -> bool {
        self.is_closed
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
