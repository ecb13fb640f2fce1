//! Datagram sockets on the board's UDP, for programs on this host.
//!
//! Socket    a program's connection to `NAME.sockets` becomes its datagram socket ([`Request::Bind`]): a Unix
//!           socket that preserves packet boundaries and works with poll and epoll. Each packet begins with a
//!           header that has the remote address ([`DatagramHeader`]).
//! Send      at most `TURN_DATAGRAMS` of a socket before other work has a turn. As in other hosts, a datagram
//!           is lost if the port has no room for it, or if there is no packet memory.
//! Receive   as long as the Unix socket has room (net.core.wmem_default, usually 208 KiB). Further datagrams
//!           wait in the board's socket, which holds `BoardConfig::datagrams_max`; the board drops and counts
//!           any more.
//! Errors    if there is no route for a datagram, the program gets a packet with the error. It gets ICMP
//!           errors only for a remote address that it has set, as on other hosts (RFC 1122 §4.1.3.3), unless
//!           it asks for all (IP_RECVERR).
//! Sharing   as with SO_REUSEADDR on Linux, a socket may be bound to the same address as others of its user
//!           if all have the option and all of the others have set their remote addresses: servers bind such
//!           a socket for the next client. A datagram goes to the first socket whose remote address is the
//!           datagram's sender, or else to the one without a remote address. With SO_REUSEPORT, several
//!           sockets of one user without a remote address may be bound to it; a hash of the addresses of a
//!           datagram selects one. Only with SO_REUSEPORT can a socket be bound to the wildcard address, and
//!           another one to a specific address and the same port. While several sockets share an address,
//!           datagrams for a full one are dropped.
//! Groups    a socket at the wildcard address receives the datagrams to its port of all groups that any
//!           socket has joined, as in Linux (ip(7), IP_MULTICAST_ALL). Sockets that share an address get a
//!           copy each.
//! Shards    on a divided board, shard 0 has all sockets, and the other shards copies ([`Change`]), which
//!           pass the datagrams of their flows to programs. Until a shard has a copy, shard 0 gets its
//!           datagrams, too. The datagrams of each program's socket are taken and sent by one shard, in turn.
//!           Shard 0 handles groups, ICMP errors and the end of a socket, whose last datagrams it may take.
//! Trust     the board parses its own copy of each packet, which the program cannot change. A program that
//!           sends an invalid packet is disconnected. Datagrams leave only from the address and port to which
//!           the socket is bound.
//! Requests  Requests name a socket by its local address. If several sockets have that address, the tag
//!           selects one: the first four bytes of the random part of the abstract name of the program's end.
//!           A tag of zero means the socket without a remote address. Only the user of a socket and root can
//!           name it; over a channel, only with the socket's token ([`super::tokens`]).
//!
//! [`Request::Bind`]: kiban_attach::Request::Bind

use super::clients::user_of;
use super::counters::ServiceCounters;
use super::tokens::{Access, Token};
use kiban_attach::{
    DATAGRAM_BYTES_MAX, DATAGRAM_HEADER_BYTES, DatagramHeader, EndReason, IcmpReport, Indication, Sharing,
};
use kiban_board::{Completion, DatagramInfo, Host, HostError, MEMBERSHIPS_MAX, SocketId};
use kiban_link::{EpollSet, Interest};
use kiban_os::clock::machine_nanos;
use kiban_os::unix::Peer;
use kiban_tcpip::ip::IcmpErrorKind;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown};
use socket2::SockRef;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The user that names a datagram socket, and its access.
pub(super) type DatagramAsker = (Option<u32>, Access);

/// Maximum number of datagrams taken from a program before other work has a turn.
const TURN_DATAGRAMS: usize = 64;

/// A program's socket.
struct ProgramSocket {
    id: SocketId,
    local: SocketAddr,
    /// The only remote address from which it receives.
    remote: Option<SocketAddr>,
    /// Whether it receives no IPv4 at `::` (IPV6_V6ONLY).
    v6_only: bool,
    /// The program's user; `None` if the system does not say.
    user: Option<u32>,
    token: Token,
    /// Whether it allows others at its address once all have a remote address (SO_REUSEADDR).
    reuse_address: bool,
    /// The user whose sockets may have the same address (SO_REUSEPORT).
    shared_by: Option<u32>,
    /// The groups that it has joined, each with the address of an interface.
    groups: Vec<(IpAddr, IpAddr)>,
    /// Whether the program gets errors about datagrams to all addresses. The shard that takes the program's
    /// datagrams sets it, and shard 0 has the errors. It is shared, so that nothing queues between them.
    takes_errors: Arc<AtomicBool>,
    socket: Arc<Peer>,
    /// Whether this is a copy of a socket of shard 0.
    is_copy: bool,
    /// Whether this shard takes the program's datagrams.
    takes: bool,
    /// A packet for which the Unix socket has no room.
    waiting: Option<Vec<u8>>,
    watched: Option<Interest>,
}

/// A change of shard 0's sockets, for the copies on the other shards. The number is that of the program's
/// connection.
#[derive(Clone)]
pub(super) enum Change {
    Bind {
        number: u64,
        taker: usize,
        local: SocketAddr,
        v6_only: bool,
        shared_by: Option<u32>,
        socket: Arc<Peer>,
        takes_errors: Arc<AtomicBool>,
    },
    Unbind {
        number: u64,
    },
}

impl ProgramSocket {
    fn new(id: SocketId, local: SocketAddr, socket: Arc<Peer>) -> ProgramSocket {
        ProgramSocket {
            id,
            local,
            remote: None,
            v6_only: false,
            user: None,
            token: 0,
            reuse_address: false,
            shared_by: None,
            groups: Vec::new(),
            takes_errors: Arc::default(),
            socket,
            is_copy: false,
            takes: false,
            waiting: None,
            watched: None,
        }
    }

    /// Returns the first four bytes of the random part of the abstract name, which follows a zero byte and
    /// `kiban`; `None` if the program's end has no such name.
    fn tag(&self) -> Option<u32> {
        let name = SockRef::from(&self.socket).peer_addr().ok()?;
        let random = name.as_abstract_namespace()?.strip_prefix(b"kiban")?;
        random.first_chunk().copied().map(u32::from_ne_bytes)
    }

    /// Watches the program's connection for what this shard can use; with `takes`, for the program's
    /// datagrams. Shard 0 watches all for their end.
    fn watch(&mut self, number: u64, files: &EpollSet, takes: bool) -> io::Result<()> {
        let wanted = Interest { read: takes, write: self.waiting.is_some() };
        let wanted = (!self.is_copy || wanted != Interest::default()).then_some(wanted);
        files.update(&*self.socket, number, &mut self.watched, wanted)
    }

    fn has_hung_up(&self) -> bool {
        let mut polled = [PollFd::new(&*self.socket, PollFlags::empty())];
        let told = rustix::event::poll(&mut polled, Some(&Timespec::default()));
        told.is_ok() && polled[0].revents().contains(PollFlags::HUP)
    }

    /// Passes a packet to the program, or keeps it if its socket has no room and no other packet waits.
    fn pass(&mut self, packet: &[u8], counters: &mut ServiceCounters) {
        if self.waiting.is_some() {
            return;
        }
        match send(&self.socket, packet) {
            Ok(()) => {
                counters.datagrams_in += 1;
                counters.bytes_in += (packet.len() - DATAGRAM_HEADER_BYTES) as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.waiting = Some(packet.to_vec()),
            // Either the system has no memory, and the datagram is lost; or the program has closed its
            // socket, which an event reports.
            Err(_) => {}
        }
    }
}

/// The sockets of all programs.
pub(super) struct Datagrams {
    /// The number of this shard, and the number of shards.
    shard: (usize, usize),
    /// The shard that takes the datagrams of the next socket.
    next_taker: usize,
    sockets: BTreeMap<u64, ProgramSocket>,
    room: Box<[u8]>,
    /// Changes that the copies on other shards do not know yet.
    changes: Vec<Change>,
    /// Sockets whose datagrams this shard should take, but cannot: it has no copy. Shard 0 does not know yet.
    not_taken: Vec<u64>,
    /// Spreads datagrams over the sockets that share an address.
    hash: RandomState,
}

impl Datagrams {
    /// Returns the sockets of a shard, given its number and the number of shards. On all of them, the same
    /// hash spreads datagrams over the sockets that share an address.
    pub(super) fn new(shard: (usize, usize), hash: RandomState) -> Datagrams {
        Datagrams {
            shard,
            next_taker: 0,
            sockets: BTreeMap::new(),
            room: vec![0; DATAGRAM_HEADER_BYTES + DATAGRAM_BYTES_MAX].into(),
            changes: Vec::new(),
            not_taken: Vec::new(),
            hash,
        }
    }

    /// Returns the number of programs' sockets, without copies.
    pub(super) fn len(&self) -> usize {
        self.sockets.values().filter(|socket| !socket.is_copy).count()
    }

    /// Takes the changes that the copies on other shards do not know yet.
    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Returns the sockets whose datagrams this shard cannot take, as far as shard 0 does not know them yet.
    pub(super) fn take_not_taken(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.not_taken)
    }

    /// Applies a change of shard 0's sockets to the copies on this shard.
    pub(super) fn copy(&mut self, change: Change, host: &mut Host<'_>, files: &EpollSet) {
        match change {
            Change::Bind { number, taker, local, v6_only, shared_by, socket, takes_errors } => {
                let takes = taker == self.shard.0;
                let shared = self.sockets.values().find(|its| its.local == local).map(|its| its.id);
                // Without a copy, shard 0 gets the datagrams.
                let bound = shared.or_else(|| host.bind_with(local, v6_only).ok());
                let mut copy = bound.map(|id| ProgramSocket::new(id, local, socket));
                if let Some(copy) = &mut copy {
                    (copy.is_copy, copy.shared_by) = (true, shared_by);
                    copy.takes_errors = takes_errors;
                    copy.takes = takes && copy.watch(number, files, takes).is_ok();
                }
                if takes && !copy.as_ref().is_some_and(|copy| copy.takes) {
                    self.not_taken.push(number);
                }
                self.sockets.extend(copy.map(|copy| (number, copy)));
            }
            Change::Unbind { number } => self.remove(number, host, files),
        }
    }

    /// Takes the datagrams of a socket whose shard cannot take them.
    pub(super) fn take_over(&mut self, number: u64, host: &mut Host<'_>, files: &EpollSet) {
        let Some(socket) = self.sockets.get_mut(&number) else { return };
        match socket.watch(number, files, true) {
            Ok(()) => socket.takes = true,
            Err(_) => self.remove(number, host, files),
        }
    }

    /// Opens a socket on the board for a program's connection, which is watched under `number`. `shares`
    /// allows other sockets at the same address. Returns the connection if that fails.
    pub(super) fn bind(
        &mut self,
        (number, socket, token): (u64, Peer, Token),
        (local, remote, shares): (SocketAddr, Option<SocketAddr>, Sharing),
        host: &mut Host<'_>,
        files: &EpollSet,
    ) -> Result<(), (Peer, EndReason)> {
        if remote.is_some_and(|remote| host.source_for(remote.ip()).is_none()) {
            return Err((socket, EndReason::NoRoute));
        }
        let user = user_of(socket.connected());
        let shared_by = user.filter(|_| shares.reuse_port);
        let Sharing { reuse_address, v6_only, .. } = shares;
        let shared = self.shared_at((local, v6_only), reuse_address, shared_by, user);
        let is_free = |local| !self.overlaps((local, v6_only), shared_by);
        let bound = match shared {
            Some(id) if is_free(local) => Ok((id, local)),
            Some(_) => Err(EndReason::InUse),
            None => kiban_board::streams::bind(host, local, v6_only, is_free),
        };
        let (id, local) = match bound {
            Ok(bound) => bound,
            Err(why) => return Err((socket, why)),
        };
        let reply = Indication::Listening { listener: 0, result: Ok(local) };
        let (taker, shards) = (self.next_taker, self.shard.1);
        let takes = taker == 0;
        let watched = Interest { read: takes, write: false };
        let begun = files.watch(&socket, number, watched).and_then(|()| send(&socket, &reply.bytes()));
        if begun.is_err() {
            let _ = files.forget(&socket);
            if shared.is_none() {
                let _ = host.unbind(id);
            }
            return Err((socket, EndReason::TooMany));
        }
        self.next_taker = (taker + 1) % shards;
        let socket = Arc::new(socket);
        let own = ProgramSocket::new(id, local, socket);
        let (socket, takes_errors) = (own.socket.clone(), own.takes_errors.clone());
        self.changes.push(Change::Bind { number, taker, local, v6_only, shared_by, socket, takes_errors });
        let watched = Some(watched);
        let own = ProgramSocket { v6_only, user, token, reuse_address, shared_by, takes, watched, ..own };
        self.sockets.insert(number, own);
        Ok(())
    }

    /// Returns the board's socket at an address that another one of `user` may share: all sockets there are
    /// this user's, and either all have SO_REUSEADDR and a remote address, or all have SO_REUSEPORT, which
    /// `shared_by` stands for.
    fn shared_at(
        &self,
        (local, v6_only): (SocketAddr, bool),
        reuse_address: bool,
        shared_by: Option<u32>,
        user: Option<u32>,
    ) -> Option<SocketId> {
        let there = || self.sockets.values().filter(|its| its.local == local);
        let is_for_next = |its: &ProgramSocket| its.reuse_address && its.user == user && its.remote.is_some();
        let may_share = (reuse_address && user.is_some() && there().all(is_for_next))
            || (shared_by.is_some() && there().all(|its| its.shared_by == shared_by));
        let may_share = may_share && there().all(|its| its.v6_only == v6_only);
        there().next().filter(|_| may_share).map(|its| its.id)
    }

    /// Returns whether a socket at this address would take datagrams from one at the wildcard address, or the
    /// reverse. Sockets that `shared_by` shares its addresses with do not count.
    fn overlaps(&self, (local, v6_only): (SocketAddr, bool), shared_by: Option<u32>) -> bool {
        let covers = |wide: SocketAddr, v6_only: bool, narrow: SocketAddr| match wide.ip() {
            IpAddr::V4(wide) => wide.is_unspecified() && narrow.is_ipv4(),
            // Without IPV6_V6ONLY, the socket receives IPv4, too.
            IpAddr::V6(wide) => wide.is_unspecified() && !(v6_only && narrow.is_ipv4()),
        };
        self.sockets.values().any(|its| {
            its.local != local
                && its.local.port() == local.port()
                && (covers(its.local, its.v6_only, local) || covers(local, v6_only, its.local))
                && (shared_by.is_none() || its.shared_by != shared_by)
        })
    }

    /// Returns the socket with a local address: the one that is bound to it, or else to all addresses; and
    /// with this tag, if it is not zero. The user of `asker` must be the socket's user or root, and its
    /// access must include the socket.
    fn at(
        &mut self,
        (local, tag): (SocketAddr, u32),
        asker: DatagramAsker,
    ) -> Option<(u64, &mut ProgramSocket)> {
        let (user, access) = asker;
        let is_allowed = |its: &ProgramSocket| {
            access.includes(its.token) && (user == Some(0) || (user.is_some() && its.user == user))
        };
        let find = |is_it: &dyn Fn(&ProgramSocket) -> bool| {
            self.sockets.iter().find(|(_, its)| is_allowed(its) && is_it(its)).map(|(&number, _)| number)
        };
        let is_any = |its: &ProgramSocket| {
            its.local.ip().is_unspecified() && its.local.port() == local.port() && local.port() != 0
        };
        let number = match tag {
            0 => find(&|its| its.local == local && its.remote.is_none())
                .or_else(|| find(&|its| its.local == local))
                .or_else(|| find(&|its| is_any(its) && its.remote.is_none()))
                .or_else(|| find(&is_any)),
            _ => find(&|its| (its.local == local || is_any(its)) && its.tag() == Some(tag)),
        };
        let number = number?;
        Some((number, self.sockets.get_mut(&number)?))
    }

    /// Sets the remote address of the copy of a socket on this shard.
    pub(super) fn copy_remote(&mut self, number: u64, remote: Option<SocketAddr>) {
        self.sockets.get_mut(&number).into_iter().for_each(|socket| socket.remote = remote);
    }

    /// Sets the remote address of a socket. Returns the number of the socket, and the address from which it
    /// sends.
    pub(super) fn set_remote(
        &mut self,
        local: (SocketAddr, u32),
        asker: DatagramAsker,
        remote: Option<SocketAddr>,
        host: &Host<'_>,
    ) -> Result<(u64, SocketAddr), EndReason> {
        let (number, socket) = self.at(local, asker).ok_or(EndReason::Closed)?;
        let source = match remote {
            Some(remote) => host.source_for(remote.ip()).ok_or(EndReason::NoRoute)?,
            None => socket.local.ip(),
        };
        socket.remote = remote;
        let ip = if socket.local.ip().is_unspecified() { source } else { socket.local.ip() };
        Ok((number, SocketAddr::new(ip, socket.local.port())))
    }

    /// Makes a socket join a group, or leave it.
    pub(super) fn set_member(
        &mut self,
        (local, tag): (SocketAddr, u32),
        asker: DatagramAsker,
        (group, joins): (IpAddr, bool),
        host: &mut Host<'_>,
    ) -> Indication {
        let ended = |why| Indication::Ended { slot: 0, why };
        let any = if group.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
        let is_same_family = local.is_ipv4() == group.is_ipv4();
        let mut member = (group, if is_same_family { local.ip() } else { any });
        let Some((_, socket)) = self.at((local, tag), asker) else { return ended(EndReason::Closed) };
        let id = socket.id;
        let exact = socket.groups.iter().position(|its| *its == member);
        // The local address changes when the socket gets a remote address.
        let alone = || socket.groups.iter().position(|its| its.0 == group).filter(|_| !joins);
        match exact.or_else(alone) {
            None if joins && socket.groups.len() >= MEMBERSHIPS_MAX => return ended(EndReason::TooMany),
            None if joins => socket.groups.push(member),
            Some(at) if !joins => member = socket.groups.swap_remove(at),
            None => return ended(EndReason::BadAddress),
            Some(_) => return ended(EndReason::InUse),
        }
        // The board's socket is a member as long as any program's socket is.
        let others = self.sockets.values().filter(|its| its.id == id && its.groups.contains(&member)).count();
        let result = match joins {
            true if others == 1 => host.join(id, member.0, member.1),
            false if others == 0 => host.leave(id, member.0, member.1),
            _ => Ok(()),
        };
        match result {
            Ok(()) => Indication::Opened { slot: 0, local },
            Err(refused) => {
                if let (true, Some((_, socket))) = (joins, self.at((local, tag), asker)) {
                    socket.groups.retain(|its| *its != member);
                }
                ended(refused.into())
            }
        }
    }

    /// Returns the remote address of a socket.
    pub(super) fn query_remote(&mut self, local: (SocketAddr, u32), asker: DatagramAsker) -> Indication {
        match self.at(local, asker).and_then(|(_, socket)| socket.remote) {
            Some(remote) => Indication::Accepted { listener: 0, slot: 0, local: local.0, remote },
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
            let Some(program) = self.sockets.get_mut(&number) else { return false };
            if !program.takes {
                // Another shard takes the datagrams, until the program has closed its socket.
                program.takes = !program.is_copy && program.has_hung_up();
                if !program.takes {
                    break;
                }
            }
            let length = match program.socket.receive(&mut self.room) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => 0,
            };
            let packet = DatagramHeader::read(&self.room[..length]);
            let (info, payload) = match packet {
                Some((DatagramHeader::Data { remote, local, traffic_class, hop_limit, .. }, payload)) => {
                    (DatagramInfo { remote, local, traffic_class, hop_limit }, payload)
                }
                Some((DatagramHeader::Settings { takes_errors }, [])) => {
                    program.takes_errors.store(takes_errors, Ordering::Relaxed);
                    continue;
                }
                _ => {
                    // The program has closed its socket, or has sent an invalid packet.
                    counters.errors += u64::from(length > 0);
                    if program.is_copy {
                        // Shard 0 sees the end, too.
                        let _ = rustix::net::shutdown(&*program.socket, Shutdown::Both);
                    }
                    self.remove(number, host, files);
                    return true;
                }
            };
            match host.send_datagram(program.id, &info, payload) {
                Ok(()) => {
                    counters.datagrams_out += 1;
                    counters.bytes_out += payload.len() as u64;
                }
                Err(refused) => {
                    counters.datagrams_refused += 1;
                    if !matches!(refused, HostError::NoMemory | HostError::TooLong) {
                        let why = EndReason::from(refused);
                        let error = DatagramHeader::Error { remote: info.remote, why, icmp: None };
                        let _ = send(&program.socket, &error.bytes());
                    }
                }
            }
        }
        if let Some(program) = self.sockets.get(&number) {
            self.deliver(program.id, host, files, counters);
        }
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
        if let Completion::DatagramError { remote, reporter, kind, .. } = completion {
            // Shard 0 gets all ICMP errors, but not those that this board reports about another's datagrams.
            let is_ours = host.is_own(reporter);
            let reports = |program: &&ProgramSocket| !program.is_copy || (program.takes && is_ours);
            let there = || self.sockets.values().filter(|its| its.id == socket).filter(reports);
            let program = there().find(|program| program.remote == Some(remote)).or_else(|| {
                there()
                    .find(|program| program.remote.is_none() && program.takes_errors.load(Ordering::Relaxed))
            });
            if let (Some(program), Some(why)) = (program, reason(kind, remote)) {
                let icmp = Some(report(kind, reporter));
                // If the socket is full, the error is lost, as in the network.
                let _ = send(&program.socket, &DatagramHeader::Error { remote, why, icmp }.bytes());
            }
            return;
        }
        self.deliver(socket, host, files, counters);
    }

    /// Passes received datagrams of a socket of the board to the programs, as far as their sockets have room.
    fn deliver(
        &mut self,
        id: SocketId,
        host: &mut Host<'_>,
        files: &EpollSet,
        counters: &mut ServiceCounters,
    ) {
        let Datagrams { sockets, room, hash, .. } = self;
        let mut programs: Vec<(u64, &mut ProgramSocket)> = sockets
            .iter_mut()
            .filter(|(_, program)| program.id == id)
            .map(|(&number, program)| (number, program))
            .collect();
        programs.iter_mut().for_each(|(_, program)| {
            if let Some(packet) = program.waiting.take() {
                program.pass(&packet, counters);
            }
        });
        // If only one program has the socket, its datagrams wait on the board.
        while !matches!(&programs[..], [(_, one)] if one.waiting.is_some()) {
            let (header, payload) = room.split_at_mut(DATAGRAM_HEADER_BYTES);
            let Ok(Some((info, length))) = host.receive_datagram(id, payload) else { break };
            let DatagramInfo { remote, local, traffic_class, hop_limit } = info;
            let nanos = machine_nanos();
            let data = DatagramHeader::Data { remote, nanos, local, traffic_class, hop_limit };
            header.copy_from_slice(&data.bytes());
            let packet = &room[..DATAGRAM_HEADER_BYTES + length];
            if local.is_multicast() {
                let takes = |program: &ProgramSocket| program.remote.is_none_or(|its| its == remote);
                let those = programs.iter_mut().filter(|(_, program)| takes(program));
                those.for_each(|(_, program)| program.pass(packet, counters));
                continue;
            }
            let mut takers = |wanted: Option<SocketAddr>| {
                let shares =
                    |program: &ProgramSocket| program.remote == wanted && program.shared_by.is_some();
                let number_of = programs.iter().filter(|(_, program)| shares(program)).count() as u64;
                // The board's port is the same for all of them.
                let chosen = hash.hash_one((remote, local)).checked_rem(number_of);
                let takes = |program: &ProgramSocket| match chosen {
                    Some(_) => shares(program),
                    None => program.remote == wanted,
                };
                let mut those = programs.iter_mut().filter(|(_, program)| takes(program));
                let (_, program) = those.nth(chosen.unwrap_or(0) as usize)?;
                program.pass(packet, counters);
                Some(())
            };
            // A datagram that no program takes is lost.
            let _ = takers(Some(remote)).or_else(|| takers(None));
        }
        for (number, program) in programs {
            // If a socket cannot be watched for room, its packet waits until the next one arrives.
            let _ = program.watch(number, files, program.takes);
        }
    }

    fn remove(&mut self, number: u64, host: &mut Host<'_>, files: &EpollSet) {
        if let Some(program) = self.sockets.remove(&number) {
            if program.watched.is_some() {
                let _ = files.forget(&*program.socket);
            }
            self.changes.push(Change::Unbind { number });
            let others = || self.sockets.values().filter(|other| other.id == program.id);
            if others().next().is_none() {
                let _ = host.unbind(program.id);
            }
            for member in &program.groups {
                if !others().any(|other| other.groups.contains(member)) {
                    // An unbound socket has left its groups.
                    let _ = host.leave(program.id, member.0, member.1);
                }
            }
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

/// Returns the ICMP message that reported an error (RFC 792, RFC 4443). Over IPv4, an MTU is in a message of
/// the type Destination Unreachable with code 4 (RFC 1191 §4).
fn report(kind: IcmpErrorKind, reporter: IpAddr) -> IcmpReport {
    let is_4 = reporter.is_ipv4();
    let (kind, code, info) = match kind {
        IcmpErrorKind::Unreachable { code } => (if is_4 { 3 } else { 1 }, code, 0),
        IcmpErrorKind::FragmentationNeeded { mtu } => {
            if is_4 {
                (3, 4, mtu)
            } else {
                (2, 0, mtu)
            }
        }
        IcmpErrorKind::TimeExceeded { code } => (if is_4 { 11 } else { 3 }, code, 0),
        IcmpErrorKind::ParameterProblem { code, pointer } => (if is_4 { 12 } else { 4 }, code, pointer),
    };
    IcmpReport { reporter, kind, code, info }
}

/// Returns what an ICMP error means for a program, if it means anything (ip(7)).
fn reason(kind: IcmpErrorKind, remote: SocketAddr) -> Option<EndReason> {
    match kind {
        _ if kind == IcmpErrorKind::port_unreachable(remote.is_ipv4()) => Some(EndReason::Refused),
        IcmpErrorKind::Unreachable { .. } | IcmpErrorKind::TimeExceeded { .. } => {
            Some(EndReason::Unreachable)
        }
        // The board sends fragments.
        IcmpErrorKind::FragmentationNeeded { .. } | IcmpErrorKind::ParameterProblem { .. } => None,
    }
}
