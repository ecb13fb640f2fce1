//! Datagram sockets of programs on this host, on the board's UDP.
//!
//! Socket    a program's connection to `NAME.sockets` becomes its datagram socket ([`Request::Bind`]): a Unix
//!           socket that keeps the borders of packets, so poll and epoll work on it. Each packet has a header
//!           with the remote address ([`DatagramHeader`]).
//! Send      at most `TURN_DATAGRAMS` of a socket before other work has a turn. The board sends them as a
//!           host does: without room at the port, or without packet memory, they are lost.
//! Receive   as far as the Unix socket has room (net.core.wmem_default, usually 208 KiB). The next datagrams
//!           wait in the board's socket, which holds `BoardConfig::datagrams_max`; the board drops and counts
//!           the others.
//! Errors    a datagram that cannot be sent, because there is no route to its target, is reported in a packet;
//!           an ICMP error only to a socket that has set its remote address, as on other hosts (RFC 1122
//!           §4.1.3.3).
//! Trust     each packet is read once, from the copy that the kernel made. A program that sends an invalid one
//!           is disconnected. Datagrams leave only from the address and port that the socket is bound to.
//!
//! [`Request::Bind`]: kiban_attach::Request::Bind

use super::counters::ServiceCounters;
use kiban_attach::{DATAGRAM_BYTES_MAX, DATAGRAM_HEADER_BYTES, DatagramHeader, EndReason, Indication};
use kiban_board::{Completion, Host, HostError, SocketId};
use kiban_link::{EpollSet, Interest};
use kiban_os::clock::machine_nanos;
use kiban_os::unix::Peer;
use kiban_tcpip::ip::IcmpErrorKind;
use kiban_tcpip::wire::{icmp, icmpv6};
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

/// Maximum number of datagrams taken from a program before other work has a turn.
const TURN_DATAGRAMS: usize = 64;

/// A program's socket.
struct ProgramSocket {
    id: SocketId,
    local: SocketAddr,
    /// The only remote address from which it receives.
    remote: Option<SocketAddr>,
    socket: Peer,
    /// A packet for which the Unix socket has no room.
    waiting: Option<Vec<u8>>,
}

/// The sockets of all programs.
pub(super) struct Datagrams {
    sockets: BTreeMap<u64, ProgramSocket>,
    room: Box<[u8]>,
}

impl Datagrams {
    pub(super) fn new() -> Datagrams {
        let room = vec![0; DATAGRAM_HEADER_BYTES + DATAGRAM_BYTES_MAX].into();
        Datagrams { sockets: BTreeMap::new(), room }
    }

    pub(super) fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Opens a socket on the board, with the program's connection, which is watched under `number`. Returns the
    /// connection if that fails.
    pub(super) fn bind(
        &mut self,
        (number, socket): (u64, Peer),
        local: SocketAddr,
        remote: Option<SocketAddr>,
        host: &mut Host<'_>,
        files: &EpollSet,
    ) -> Result<(), (Peer, EndReason)> {
        if remote.is_some_and(|remote| host.source_for(remote.ip()).is_none()) {
            return Err((socket, EndReason::NoRoute));
        }
        let (id, local) = match kiban_board::streams::bind(host, local) {
            Ok(bound) => bound,
            Err(why) => return Err((socket, why)),
        };
        let bound = Indication::Listening { listener: 0, result: Ok(local) };
        let begun = files.watch(&socket, number, Interest::READ).and_then(|()| send(&socket, &bound.bytes()));
        if begun.is_err() {
            let _ = files.forget(&socket);
            let _ = host.unbind(id);
            return Err((socket, EndReason::TooMany));
        }
        self.sockets.insert(number, ProgramSocket { id, local, remote: None, socket, waiting: None });
        Ok(())
    }

    /// Returns the socket with a local address: the one that is bound to it, or else to all addresses.
    fn at(&mut self, local: SocketAddr) -> Option<&mut ProgramSocket> {
        let find = |is_it: &dyn Fn(&SocketAddr) -> bool| {
            self.sockets.iter().find(|(_, its)| is_it(&its.local)).map(|(&number, _)| number)
        };
        let is_any = |bound: &SocketAddr| bound.ip().is_unspecified() && bound.port() == local.port();
        let number = find(&|bound| *bound == local).or_else(|| find(&is_any))?;
        self.sockets.get_mut(&number)
    }

    /// Sets the remote address of a socket.
    pub(super) fn set_remote(
        &mut self,
        local: SocketAddr,
        remote: Option<SocketAddr>,
        host: &Host<'_>,
    ) -> Indication {
        let ended = |why| Indication::Ended { slot: 0, why };
        let Some(socket) = self.at(local) else { return ended(EndReason::Closed) };
        let source = match remote {
            Some(remote) => match host.source_for(remote.ip()) {
                Some(source) => source,
                None => return ended(EndReason::NoRoute),
            },
            None => socket.local.ip(),
        };
        socket.remote = remote;
        let ip = if socket.local.ip().is_unspecified() { source } else { socket.local.ip() };
        Indication::Opened { slot: 0, local: SocketAddr::new(ip, socket.local.port()) }
    }

    /// Returns the remote address of a socket.
    pub(super) fn query_remote(&mut self, local: SocketAddr) -> Indication {
        match self.at(local).and_then(|socket| socket.remote) {
            Some(remote) => Indication::Accepted { listener: 0, slot: 0, local, remote },
            None => Indication::Ended { slot: 0, why: EndReason::Closed },
        }
    }

    /// Handles an event of a program's connection. Returns false if it is not that of a datagram socket.
    pub(super) fn on_ready(
        &mut self,
        number: u64,
        host: &mut Host<'_>,
        files: &EpollSet,
        counters: &mut ServiceCounters,
    ) -> bool {
        for _ in 0..TURN_DATAGRAMS {
            let Some(program) = self.sockets.get(&number) else { return false };
            let length = match program.socket.receive(&mut self.room) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => 0,
            };
            let packet = DatagramHeader::read(&self.room[..length]);
            let Some((DatagramHeader::Data { remote, .. }, payload)) = packet else {
                // The program has closed its socket, or has sent an invalid packet.
                counters.errors += u64::from(length > 0);
                self.remove(number, host, files);
                return true;
            };
            match host.send_to(program.id, remote, payload) {
                Ok(()) => {
                    counters.datagrams_out += 1;
                    counters.bytes_out += payload.len() as u64;
                }
                Err(refused) => {
                    counters.datagrams_refused += 1;
                    if !matches!(refused, HostError::NoMemory | HostError::TooLong) {
                        let why = EndReason::from(refused);
                        let _ = send(&program.socket, &DatagramHeader::Error { remote, why }.bytes());
                    }
                }
            }
        }
        self.deliver(number, host, files, counters);
        true
    }

    /// Handles a completion of a datagram socket.
    pub(super) fn on_completion(
        &mut self,
        completion: Completion,
        host: &mut Host<'_>,
        files: &EpollSet,
        counters: &mut ServiceCounters,
    ) {
        let (Completion::Datagram { socket } | Completion::DatagramError { socket, .. }) = completion else {
            return;
        };
        let found = self.sockets.iter().find(|(_, program)| program.id == socket);
        let Some((&number, program)) = found else { return };
        if let Completion::DatagramError { remote, kind, .. } = completion {
            if let Some(why) = reason(kind, remote).filter(|_| program.remote == Some(remote)) {
                // If the socket is full, the error is lost, as in the network.
                let _ = send(&program.socket, &DatagramHeader::Error { remote, why }.bytes());
            }
            return;
        }
        self.deliver(number, host, files, counters);
    }

    /// Passes received datagrams to the program, as far as its socket has room.
    fn deliver(
        &mut self,
        number: u64,
        host: &mut Host<'_>,
        files: &EpollSet,
        counters: &mut ServiceCounters,
    ) {
        let Some(program) = self.sockets.get_mut(&number) else { return };
        let had_waited = program.waiting.is_some();
        loop {
            let packet = match program.waiting.take() {
                Some(packet) => packet,
                None => {
                    let (header, payload) = self.room.split_at_mut(DATAGRAM_HEADER_BYTES);
                    let Ok(Some((remote, length))) = host.receive_from(program.id, payload) else { break };
                    if program.remote.is_some_and(|wanted| wanted != remote) {
                        continue;
                    }
                    let nanos = machine_nanos();
                    header.copy_from_slice(&DatagramHeader::Data { remote, nanos }.bytes());
                    self.room[..DATAGRAM_HEADER_BYTES + length].to_vec()
                }
            };
            match send(&program.socket, &packet) {
                Ok(()) => {
                    counters.datagrams_in += 1;
                    counters.bytes_in += (packet.len() - DATAGRAM_HEADER_BYTES) as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    program.waiting = Some(packet);
                    break;
                }
                // The system has no memory, and the datagram is lost; or the program has closed its socket, of
                // which an event informs.
                Err(_) => {}
            }
        }
        let waits = program.waiting.is_some();
        if waits != had_waited {
            // This cannot fail: the socket is watched.
            let _ = files.change(&program.socket, number, Interest { read: true, write: waits });
        }
    }

    fn remove(&mut self, number: u64, host: &mut Host<'_>, files: &EpollSet) {
        if let Some(program) = self.sockets.remove(&number) {
            let _ = files.forget(&program.socket);
            let _ = host.unbind(program.id);
        }
    }

    /// Closes all sockets.
    pub(super) fn close(&mut self, host: &mut Host<'_>, files: &EpollSet) {
        while let Some((&number, _)) = self.sockets.first_key_value() {
            self.remove(number, host, files);
        }
    }
}

fn send(socket: &Peer, packet: &[u8]) -> io::Result<()> {
    match rustix::net::send(socket, packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
        Ok(_) => Ok(()),
        Err(Errno::AGAIN) => Err(io::ErrorKind::WouldBlock.into()),
        Err(error) => Err(error.into()),
    }
}

/// Returns what an ICMP error means for a program, if it means anything (ip(7)).
fn reason(kind: IcmpErrorKind, remote: SocketAddr) -> Option<EndReason> {
    let port = if remote.is_ipv4() { icmp::UNREACHABLE_PORT } else { icmpv6::UNREACHABLE_PORT };
    match kind {
        IcmpErrorKind::Unreachable { code } if code == port => Some(EndReason::Refused),
        IcmpErrorKind::Unreachable { .. } | IcmpErrorKind::TimeExceeded { .. } => {
            Some(EndReason::Unreachable)
        }
        // The board sends fragments.
        IcmpErrorKind::FragmentationNeeded { .. } | IcmpErrorKind::ParameterProblem { .. } => None,
    }
}
