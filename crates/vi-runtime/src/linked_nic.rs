//! The state protected by a NIC's lock: the NIC itself, its paths and their links.

use super::attached::HostTable;
use super::carried::{self, BoardLink, Step};
use super::device::{Device, HostAddress, OpenError};
use crate::shm;
use crate::shm::ShmLink;
use kiban_base::{Instant, SharedBytes, SharedRoom, loss_guard};
use kiban_os::channel::{ChannelListener, PendingChannel};
use kiban_os::clock::machine_nanos;
use kiban_os::random;
use kiban_os::turn::{Machine, watch};
use kiban_os::udp;
use kiban_os::udp::UdpLink;
use kiban_streams::Settings;
use kiban_streams::nonblocking::{Board, Listener, Stream};
use kiban_vi::{Config, Nic, PathTraits};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Maximum number of packets taken from one link before the next is served.
const TURN_PACKETS: usize = 64;
/// Maximum number of callers that have not identified themselves yet.
const UNIDENTIFIED_CALLERS_MAX: usize = 16;
/// The socket buffer that a NIC over UDP requests, the largest receive buffer in Murayama et al. 2000 (table
/// 3). Messages wait there while the process is stalled.
const UDP_BUFFER_BYTES: usize = 15_000_000;
/// Maximum links.
const LINKS_MAX: usize = 1024;
/// Maximum number of packets sent on one link before the next is served, if there is no other limit.
const FLUSH_PACKETS: usize = 256;
/// Traits of paths within the host's memory.
const MEMORY: PathTraits = PathTraits { packet_bytes: shm::PACKET_BYTES, lossless: true, checked: false };
/// Traits of paths over a board's TCP. Their links add and verify the CRC themselves.
const CARRIED: PathTraits =
    PathTraits { packet_bytes: carried::PACKET_BYTES, lossless: true, checked: false };
/// Number of streams for a NIC that listens on a board. Some are reserved for incoming calls.
const STREAMS_CALLED: usize = 32;
/// Number of streams for a NIC that only makes outgoing calls.
const STREAMS_CALLING: usize = 16;
/// Interval at which a driver that does not sleep checks for new callers and dead peers.
const RARE_CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// A path and its link.
struct PathLink {
    path: u32,
    host: HostAddress,
    link: Link,
    /// If two NICs call each other at the same time, they have two links. Each NIC sends on the link that it
    /// opened; this is the other link.
    receive_only: bool,
    /// The link has ended or its peer violated a protocol; the link is to be closed.
    has_ended: bool,
}

enum Link {
    /// A loopback link: packets sent on it arrive at this NIC.
    Loopback,
    /// Shared memory during set-up.
    SettingUp(PendingChannel),
    /// Shared memory.
    Shm(Box<ShmLink>),
    /// A peer of the UDP socket.
    Udp(SocketAddr),
    /// A TCP stream of the board.
    Board(Box<BoardLink>),
}

impl PathLink {
    fn is_gone(&self) -> bool {
        self.shm().is_some_and(|link| link.channel.is_gone())
    }

    fn carried(&self) -> Option<&BoardLink> {
        match &self.link {
            Link::Board(carried) => Some(carried),
            _ => None,
        }
    }

    /// Returns whether the peer has not identified itself yet.
    fn is_unidentified(&self) -> bool {
        match &self.link {
            Link::SettingUp(_) => true,
            Link::Board(carried) => carried.silent_until().is_some(),
            _ => false,
        }
    }

    fn shm(&self) -> Option<&ShmLink> {
        match &self.link {
            Link::Shm(link) => Some(link),
            _ => None,
        }
    }
}

/// The board that a NIC uses, and the NIC's listening address on that board.
struct BoardAttachment {
    board: Board,
    listener: Option<Listener>,
    at: SocketAddr,
}

impl BoardAttachment {
    fn open(name: Option<&str>, at: SocketAddr) -> io::Result<BoardAttachment> {
        let streams = if at.port() == 0 { STREAMS_CALLING } else { STREAMS_CALLED };
        let board = Board::attach(name, Settings { streams, ..Settings::default() })?;
        let listen_error = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot listen on the board at {at}: {error}"))
        };
        let listener = (at.port() != 0).then(|| board.listen(at).map_err(listen_error)).transpose()?;
        Ok(BoardAttachment { board, listener, at })
    }

    /// Calls another NIC, from the local address at which this NIC can be called.
    fn call(&self, to: SocketAddr) -> io::Result<Stream> {
        let from = (!self.at.ip().is_unspecified()).then_some(SocketAddr::new(self.at.ip(), 0));
        self.board.connect(from, to)
    }

    fn caller(&self) -> Option<Stream> {
        self.listener.as_ref()?.accept().ok().flatten()
    }
}

/// The NIC and its links.
pub(crate) struct LinkedNic {
    pub(crate) nic: Nic,
    links: Vec<PathLink>,
    address: HostAddress,
    name_listener: Option<ChannelListener>,
    udp: Option<UdpLink>,
    /// The size of the UDP socket's receive buffer.
    udp_buffer_bytes: usize,
    board: Option<BoardAttachment>,
    /// Set when the board has ended.
    board_is_gone: bool,
    /// The earliest deadline by which a caller's hello must arrive.
    silent_until: Instant,
    epoll: OwnedFd,
    room: Box<[u8]>,
    /// The next time to check for rare events.
    around_at: Instant,
    /// The listener for attaching hosts, and the attached hosts.
    pub(super) hosts: HostTable,
    /// Set if the last `drive` call processed something, so that there may be more, even if no bell has been
    /// rung.
    pub(super) took: bool,
    /// Set if a channel was added whose bell has not been armed with the others.
    pub(super) rearm: bool,
    /// Set if a link has ended, and is to be closed once no link is being processed.
    some_over: bool,
}

impl LinkedNic {
    pub(crate) fn open(device: &Device, config: Config, epoll: &OwnedFd) -> Result<LinkedNic, OpenError> {
        let mut core = LinkedNic {
            nic: Nic::new(config, random::key()?),
            links: Vec::new(),
            address: HostAddress::Loopback,
            name_listener: None,
            udp: None,
            udp_buffer_bytes: 0,
            board: None,
            board_is_gone: false,
            silent_until: Instant::NEVER,
            epoll: epoll.try_clone()?,
            room: vec![0; udp::PACKET_BYTES_MAX].into(),
            around_at: Instant::ZERO,
            hosts: HostTable::default(),
            took: false,
            rearm: false,
            some_over: false,
        };
        match device {
            Device::Loopback => {}
            Device::Shm(name) => {
                let name = match name {
                    Some(name) => name.clone(),
                    // Socket names are visible to every process, so use this random number for nothing else.
                    None => format!("{}-{:016x}", std::process::id(), u64::from_ne_bytes(random::bytes()?)),
                };
                let name_listener = ChannelListener::open(name.as_bytes())?;
                watch(epoll, name_listener.as_fd(), false)?;
                core.address = HostAddress::Name(name.into_bytes());
                core.name_listener = Some(name_listener);
            }
            Device::Udp(local) => {
                let udp = UdpLink::bind(*local)?;
                udp.request_receive_buffer(UDP_BUFFER_BYTES);
                watch(epoll, udp.as_fd(), false)?;
                core.address = HostAddress::Udp(udp.local());
                core.udp_buffer_bytes = udp.receive_buffer_bytes();
                core.udp = Some(udp);
            }
            Device::Board { name, at } => {
                let on = BoardAttachment::open(name.as_deref(), *at)?;
                watch(epoll, on.board.file(), false)?;
                core.address = HostAddress::Board(*at);
                core.board = Some(on);
            }
        }
        Ok(core)
    }

    pub(crate) fn address(&self) -> &HostAddress {
        &self.address
    }

    pub(crate) fn address_of(&self, path: u32) -> HostAddress {
        self.links
            .iter()
            .find(|path_link| path_link.path == path)
            .map_or(HostAddress::Loopback, |path_link| path_link.host.clone())
    }

    /// Returns the maximum length of packets to other NICs in bytes.
    pub(crate) fn packet_bytes(&self) -> usize {
        match (&self.udp, &self.address) {
            (Some(udp), _) => UdpLink::packet_bytes(udp.local().ip()),
            (None, HostAddress::Board(_)) => carried::PACKET_BYTES,
            (None, _) => shm::PACKET_BYTES,
        }
    }

    /// Returns how long a thread should poll before it sleeps, so that a late wake-up loses no message to a
    /// VI.
    pub(crate) fn receive_guard(&self, vi: u32) -> Duration {
        self.nic.descriptors_at_risk(vi).map_or(Duration::ZERO, |at_risk| self.guard(at_risk))
    }

    /// Returns the same as [`LinkedNic::receive_guard`], for the VIs that share a completion queue.
    pub(crate) fn queue_guard(&self, queue: u32) -> Duration {
        self.nic.queue_at_risk(queue).map(|at_risk| self.guard(at_risk)).max().unwrap_or_default()
    }

    fn guard(&self, (path, descriptors): (u32, usize)) -> Duration {
        let link = self.links.iter().find(|path_link| path_link.path == path).map(|found| &found.link);
        match link {
            // While the process is stalled, packets wait in the socket's buffer, not in descriptors.
            Some(Link::Udp(to)) => {
                let packets = self.udp_buffer_bytes / UdpLink::packet_bytes(to.ip());
                loss_guard(packets.min(descriptors))
            }
            // Packets wait at the sender. Only those that one turn takes can find too few descriptors.
            _ if descriptors >= TURN_PACKETS => Duration::ZERO,
            _ => loss_guard(descriptors),
        }
    }

    /// Returns whether the board has ended and everything received before that has been processed.
    pub(crate) fn is_gone(&self) -> bool {
        self.board_is_gone && self.board.is_none()
    }

    pub(super) fn watch(&self, file: BorrowedFd<'_>, edges: bool) -> io::Result<()> {
        watch(&self.epoll, file, edges)
    }

    // ---- paths

    /// Returns the path to a host, and creates it if there is none.
    pub(crate) fn path_to(&mut self, host: &HostAddress) -> io::Result<u32> {
        let own = *host == self.address || *host == HostAddress::Loopback;
        let wanted = if own { &HostAddress::Loopback } else { host };
        if matches!(host, HostAddress::Board(to) if to.port() == 0) {
            // Callers that have not identified themselves are stored with this address.
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "cannot connect to port 0: give the port that the other side listens on",
            ));
        }
        if let Some(path_link) = self.links.iter().find(|path_link| path_link.host == *wanted) {
            return Ok(path_link.path);
        }
        match (wanted, &self.address) {
            (HostAddress::Loopback, _) => self.add(MEMORY, HostAddress::Loopback, Link::Loopback),
            (HostAddress::Name(name), HostAddress::Name(own)) => {
                let half = shm::call(name, own)?;
                self.add_half(half, host.clone())
            }
            (HostAddress::Udp(to), HostAddress::Udp(_)) => self.add_udp(*to),
            (HostAddress::Board(to), HostAddress::Board(own)) => self.call(*to, *own),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "this address belongs to another kind of device: open both NICs on the same kind",
            )),
        }
    }

    fn add(&mut self, traits: PathTraits, host: HostAddress, link: Link) -> io::Result<u32> {
        let path = self.nic.open_path(traits).map_err(|refusal| io::Error::other(refusal.to_string()))?;
        self.links.push(PathLink { path, host, link, receive_only: false, has_ended: false });
        Ok(path)
    }

    fn add_half(&mut self, half: PendingChannel, host: HostAddress) -> io::Result<u32> {
        self.watch(half.as_fd(), true)?;
        self.add(MEMORY, host, Link::SettingUp(half))
    }

    fn add_udp(&mut self, to: SocketAddr) -> io::Result<u32> {
        let packet_bytes = UdpLink::packet_bytes(to.ip());
        let traits = PathTraits { packet_bytes, lossless: false, checked: true };
        self.add(traits, HostAddress::Udp(to), Link::Udp(to))
    }

    /// Calls another NIC over the board's TCP.
    fn call(&mut self, to: SocketAddr, own: SocketAddr) -> io::Result<u32> {
        let on = self.board.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let stream = on.call(to)?;
        let link = Link::Board(Box::new(BoardLink::calling(stream, own)));
        self.add(CARRIED, HostAddress::Board(to), link)
    }

    // ---- moving packets

    #[inline]
    fn take_from_rings(&mut self, now: Instant) {
        let LinkedNic { nic, links, some_over, took, .. } = self;
        for path_link in links.iter_mut() {
            let Link::Shm(link) = &mut path_link.link else { continue };
            if !link.into.is_ready() && !link.into.is_poisoned() {
                continue;
            }
            for _ in 0..TURN_PACKETS {
                match link.into.peek() {
                    Ok(Some(packet)) => {
                        *took = true;
                        nic.arrive(path_link.path, packet, now);
                    }
                    Ok(None) => break,
                    Err(_) => {
                        (path_link.has_ended, *some_over) = (true, true);
                        break;
                    }
                }
                link.give_back();
            }
            // A producer that found its ring full may be asleep, so its bell is rung once enough slots have
            // been freed.
            if link.taken_since_rung() {
                link.channel.ring(machine_nanos);
            }
        }
        if self.some_over {
            self.close_over();
        }
    }

    fn take_from_streams(&mut self, now: Instant) {
        let LinkedNic { nic, links, some_over, took, .. } = self;
        for path_link in links.iter_mut() {
            let Link::Board(carried) = &mut path_link.link else { continue };
            if path_link.has_ended || !carried.is_readable() {
                continue;
            }
            *took = true;
            if carried.take(|packet| nic.arrive(path_link.path, packet.into(), now)).is_err() {
                (path_link.has_ended, *some_over) = (true, true);
            }
        }
        if self.some_over {
            self.close_over();
        }
    }

    fn take_from_udp(&mut self, now: Instant) {
        for _ in 0..TURN_PACKETS {
            let LinkedNic { nic, links, udp: Some(udp), room, .. } = self else { return };
            let Some((length, from)) = udp.receive(room) else { return };
            self.took = true;
            let known = links.iter().find(|path_link| matches!(path_link.link, Link::Udp(to) if to == from));
            if let Some(path_link) = known {
                nic.arrive(path_link.path, SharedBytes::from(&room[..length]), now);
                continue;
            }
            // An unknown sender gets a path, which exists only as long as the NIC uses it.
            let Ok(path) = self.add_udp(from) else { continue };
            self.nic.arrive(path, SharedBytes::from(&self.room[..length]), now);
            if !self.nic.uses(path) {
                self.nic.close_path(path);
                self.links.pop();
            }
        }
    }

    fn flush_way(&mut self, index: usize, now: Instant) {
        let LinkedNic { nic, links, udp, room, some_over, took, .. } = self;
        let PathLink { path, link, has_ended: over, .. } = &mut links[index];
        match link {
            Link::SettingUp(_) => {}
            Link::Shm(link) => {
                let mut sent = false;
                loop {
                    match link.out.room() {
                        Ok(Some(mut slot)) => {
                            let Some(length) = nic.fetch(*path, &mut slot, now) else { break };
                            link.out.publish(length);
                            sent = true;
                        }
                        // The ring is full. The other side rings our bell once it has taken some packets.
                        Ok(None) => break,
                        Err(_) => {
                            (*over, *some_over) = (true, true);
                            break;
                        }
                    }
                }
                if sent {
                    link.channel.ring(machine_nanos);
                }
            }
            Link::Udp(to) => {
                for _ in 0..FLUSH_PACKETS {
                    let Some(length) = nic.fetch(*path, &mut SharedRoom::from(&mut room[..]), now) else {
                        return;
                    };
                    if let Some(udp) = udp {
                        udp.send(&room[..length], *to);
                    }
                }
                *took = true;
            }
            Link::Board(carried) => {
                for _ in 0..FLUSH_PACKETS {
                    let mut fetched = 0;
                    while let Some(place) = carried.place() {
                        let Some(length) = nic.fetch(*path, &mut place.into(), now) else { break };
                        carried.put(length);
                        fetched += 1;
                    }
                    match carried.write_out() {
                        Ok(true) if fetched > 0 => {}
                        // There is nothing more to send, or the board will ring our bell when there is room.
                        Ok(_) => return,
                        Err(_) => {
                            (*over, *some_over) = (true, true);
                            return;
                        }
                    }
                }
                *took = true;
            }
            Link::Loopback => {
                let mut slot = SharedRoom::from(&mut room[..shm::PACKET_BYTES]);
                for _ in 0..FLUSH_PACKETS {
                    let Some(length) = nic.fetch(*path, &mut slot, now) else { return };
                    let packet = &*slot.private(length).expect("a room of our own");
                    nic.arrive(*path, SharedBytes::from(packet), now);
                }
                *took = true;
            }
        }
    }

    /// Handles rare events: callers, their hellos, links that have ended.
    fn check_rare_events(&mut self, now: Instant) {
        self.around_at = now + RARE_CHECK_INTERVAL;
        while let Some(half) = self.name_listener.as_ref().and_then(ChannelListener::try_accept) {
            if self.has_room() {
                // The caller will identify itself in its first message.
                let _ = self.add_half(half, HostAddress::Name(Vec::new()));
            }
        }
        let mut again = self.look_for_hosts();
        if self.board.is_some() {
            again |= self.look_at_board(now);
        }
        for index in 0..self.links.len() {
            let PathLink { path, link, has_ended: over, .. } = &mut self.links[index];
            match link {
                Link::SettingUp(half) => match ShmLink::complete(half) {
                    Ok(None) => {}
                    Ok(Some(whole)) => {
                        let caller = whole.channel.caller().to_vec();
                        // The socket has been watched by epoll since the call, but the bell is not armed yet.
                        *link = Link::Shm(Box::new(whole));
                        self.rearm = true;
                        if !caller.is_empty() {
                            self.identify_caller(index, HostAddress::Name(caller));
                        }
                    }
                    Err(_) => *over = true,
                },
                // Packets that the peer sent before it ended are processed first.
                Link::Shm(link) if link.channel.is_gone() => match link.into.is_ready() {
                    true => again = true,
                    false => *over = true,
                },
                Link::Shm(_) => {}
                // A path to an unknown sender is closed once the NIC no longer uses it.
                Link::Udp(_) => *over |= !self.nic.uses(*path),
                // The NIC has given up this call, but TCP is still trying.
                Link::Board(carried) => match carried.step(now) {
                    Ok(Step::Nothing) => {
                        *over |= !carried.is_open() && carried.is_ours() && !self.nic.uses(*path);
                    }
                    Ok(Step::Answered) => self.rearm = true,
                    Ok(Step::CalledBy(caller)) => {
                        self.identify_caller(index, HostAddress::Board(caller));
                    }
                    Err(_) => *over = true,
                },
                Link::Loopback => {}
            }
        }
        self.close_over();
        if again {
            // The events that caused this call are not signalled a second time.
            self.around_at = Instant::ZERO;
            self.took = true;
        }
    }

    /// Returns whether one more caller can be admitted.
    fn has_room(&self) -> bool {
        let unidentified = self.links.iter().filter(|path_link| path_link.is_unidentified()).count();
        unidentified < UNIDENTIFIED_CALLERS_MAX && self.links.len() < LINKS_MAX
    }

    /// Handles board events and incoming calls. Returns whether links remain on a board that has ended.
    fn look_at_board(&mut self, now: Instant) -> bool {
        let callers = self.links.iter().filter_map(PathLink::carried).filter_map(BoardLink::silent_until);
        self.silent_until = callers.min().unwrap_or(Instant::NEVER);
        let Some(on) = &self.board else { return false };
        if on.board.is_gone() {
            // The board's streams have ended but still hold data, and a board that has ended sends no
            // wake-ups.
            let left = self.links.iter().any(|path_link| path_link.carried().is_some());
            self.board_is_gone = true;
            if !left {
                self.board = None;
            }
            return true;
        }
        while let Some(stream) = self.board.as_ref().and_then(BoardAttachment::caller) {
            if !self.has_room() {
                stream.abort();
                continue;
            }
            let carried = BoardLink::called(stream, now);
            self.silent_until = self.silent_until.min(carried.silent_until().unwrap_or(Instant::NEVER));
            // The bell of the stream is not armed yet. The caller identifies itself in its hello.
            self.rearm = true;
            let nobody = HostAddress::Board((std::net::Ipv6Addr::UNSPECIFIED, 0).into());
            let _ = self.add(CARRIED, nobody, Link::Board(Box::new(carried)));
        }
        false
    }

    /// Sets the address of a caller that has identified itself. If we have called it as well, both links
    /// become one path.
    fn identify_caller(&mut self, index: usize, host: HostAddress) {
        let local = self.links[index].carried().and_then(BoardLink::local_ip);
        let is_same =
            |path_link: &PathLink| path_link.host == host && !path_link.has_ended && !path_link.is_gone();
        // TCP may not have detected yet that a peer has ended. So if a peer calls a second time, its earlier
        // link to this address no longer exists.
        let is_old = |path_link: &PathLink| {
            path_link.carried().is_some_and(|link| !link.is_ours() && link.local_ip() == local)
        };
        let old: Vec<u32> = self
            .links
            .iter()
            .filter(|path_link| is_same(path_link) && is_old(path_link))
            .map(|path_link| path_link.path)
            .collect();
        for path_link in self.links.iter_mut().filter(|path_link| old.contains(&path_link.path)) {
            path_link.has_ended = true;
        }
        let is_crossing = |path_link: &PathLink| {
            let elsewhere = path_link
                .carried()
                .is_some_and(|link| !link.is_ours() || link.local_ip().is_some_and(|ip| Some(ip) != local));
            path_link.host == host && !path_link.has_ended && !path_link.is_gone() && !elsewhere
        };
        let ours = self.links.iter().find(|path_link| is_crossing(path_link)).map(|path_link| path_link.path);
        let path_link = &mut self.links[index];
        path_link.host = host;
        if let Some(path) = ours {
            self.nic.close_path(std::mem::replace(&mut path_link.path, path));
            path_link.receive_only = true;
        }
    }

    /// Closes links that have ended. A path is closed when the link on which it sends is closed.
    fn close_over(&mut self) {
        self.some_over = false;
        while let Some(index) = self.links.iter().position(|path_link| path_link.has_ended) {
            let PathLink { path, receive_only: only_in, link, .. } = self.links.swap_remove(index);
            if let Link::Board(carried) = link {
                carried.end();
            }
            if !only_in {
                self.nic.close_path(path);
                self.links
                    .iter_mut()
                    .filter(|path_link| path_link.path == path)
                    .for_each(|path_link| path_link.has_ended = true);
            }
        }
    }
}

impl Machine for LinkedNic {
    #[inline]
    fn drive(&mut self, now: Instant) {
        self.took = false;
        if now >= self.around_at {
            self.check_rare_events(now);
        }
        self.take_from_rings(now);
        if self.board.is_some() {
            self.take_from_streams(now);
        }
        if self.udp.is_some() {
            self.take_from_udp(now);
        }
        if !self.hosts.is_empty() {
            self.serve_hosts(now);
        }
        self.flush(now);
    }

    #[inline]
    fn settle(&mut self, now: Instant) {
        self.nic.settle(now);
        self.flush(now);
    }

    /// Sends as many packets as the links accept.
    #[inline]
    fn flush(&mut self, now: Instant) {
        let mut index = 0;
        while index < self.links.len() {
            let PathLink { path, receive_only: only_in, .. } = self.links[index];
            let owes = self.links[index].carried().is_some_and(BoardLink::has_unsent);
            if !only_in && (owes || self.nic.has_packet(path)) {
                self.flush_way(index, now);
            }
            index += 1;
        }
        if self.some_over {
            self.close_over();
        }
    }

    #[inline]
    fn take_progress(&mut self) -> bool {
        self.nic.take_progress()
    }

    #[inline]
    fn deadline(&self) -> Instant {
        self.nic.deadline().min(self.silent_until)
    }

    #[inline]
    fn has_more(&self) -> bool {
        // If the board's file was read while another driver slept, the board's bell has already rung, so do
        // not sleep.
        self.took || self.rearm || self.board.as_ref().is_some_and(|on| !on.board.is_armed())
    }

    fn arm(&mut self) {
        self.rearm = false;
        if let Some(on) = &self.board {
            on.board.arm();
            // Check callers and their hellos, because no bell rings again for those that have already
            // arrived.
            self.around_at = Instant::ZERO;
            self.links.iter().filter_map(PathLink::carried).for_each(BoardLink::arm);
        }
        self.links.iter().filter_map(PathLink::shm).for_each(|link| link.channel.own_bell().arm());
        self.hosts.channels().for_each(|channel| channel.own_bell().arm());
    }

    fn disarm(&mut self) -> Option<u64> {
        let links = self.links.iter().filter_map(PathLink::shm).map(|link| &link.channel);
        let rung = links.chain(self.hosts.channels()).filter_map(|channel| channel.own_bell().disarm()).min();
        rung.into_iter().chain(self.board.as_ref().and_then(|on| on.board.disarm())).min()
    }

    fn after_sleep(&mut self) {
        self.around_at = Instant::ZERO;
    }
}
