//! What the lock of a NIC guards: the NIC itself, its paths and their links.

use super::carried::{self, Carried, Step};
use super::desks::Desks;
use super::device::{Device, HostAddress, OpenError};
use crate::clock::machine_nanos;
use crate::link::channel::{Door, Half};
use crate::link::shm::{self, ShmLink};
use crate::link::udp::{self, UdpLink};
use crate::random;
use crate::streams::Settings;
use crate::streams::nonblocking::{Board, Listener, Stream};
use crate::turn::{Machine, watch};
use kiban_ground::{Instant, SharedBytes, SharedRoom};
use kiban_stack::vi::{Config, Nic, PathTraits};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Packets taken from one link before the next has its turn.
const TURN_PACKETS: usize = 64;
/// Callers that have not said yet who they are, at most.
const HALVES_MAX: usize = 16;
/// Links at most.
const LINKS_MAX: usize = 1024;
/// Packets that leave by one link before the next has its turn, where nothing else bounds them.
const FLUSH_PACKETS: usize = 256;
/// Paths that never leave the host's memory.
const MEMORY: PathTraits =
    PathTraits { packet_bytes: shm::PACKET_BYTES, loses_nothing: true, checked: false };
/// Paths over a board's TCP. Their links look after the checks.
const CARRIED: PathTraits =
    PathTraits { packet_bytes: carried::PACKET_BYTES, loses_nothing: true, checked: false };
/// Streams of a NIC that is called on a board: of those some are kept for who calls next.
const STREAMS_CALLED: usize = 32;
/// Streams of one that only calls.
const STREAMS_CALLING: usize = 16;
/// How often a driver that does not sleep looks whether a peer has died, or calls.
const LOOK_AROUND: Duration = Duration::from_millis(1);

/// A path and its link.
struct Way {
    path: u32,
    host: HostAddress,
    link: Link,
    /// Two NICs that call each other at once have two links: each sends on the one it called, and this is the other.
    only_in: bool,
    /// It has gone, or broke a rule.
    over: bool,
}

enum Link {
    /// What leaves arrives here.
    Loopback,
    /// Shared memory, before both have spoken.
    Half(Half),
    /// Shared memory.
    Shm(Box<ShmLink>),
    /// A peer of the socket.
    Udp(SocketAddr),
    /// A stream of the board's.
    Board(Box<Carried>),
}

impl Way {
    fn is_gone(&self) -> bool {
        self.shm().is_some_and(|link| link.channel.is_gone())
    }

    fn carried(&self) -> Option<&Carried> {
        match &self.link {
            Link::Board(carried) => Some(carried),
            _ => None,
        }
    }

    /// Whether nobody has said yet who it is.
    fn is_nameless(&self) -> bool {
        match &self.link {
            Link::Half(_) => true,
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

/// The board on which a NIC is, and where it is called there.
struct OnBoard {
    board: Board,
    listener: Option<Listener>,
    at: SocketAddr,
}

impl OnBoard {
    fn open(name: Option<&str>, at: SocketAddr) -> io::Result<OnBoard> {
        let streams = if at.port() == 0 { STREAMS_CALLING } else { STREAMS_CALLED };
        let board = Board::attach(name, Settings { streams, ..Settings::default() })?;
        let said = |error: io::Error| io::Error::new(error.kind(), format!("{at} on the board: {error}"));
        let listener = (at.port() != 0).then(|| board.listen(at).map_err(said)).transpose()?;
        Ok(OnBoard { board, listener, at })
    }

    /// Calls another NIC, from the address at which it finds us.
    fn call(&self, to: SocketAddr) -> io::Result<Stream> {
        let from = (!self.at.ip().is_unspecified()).then_some(SocketAddr::new(self.at.ip(), 0));
        self.board.connect(from, to)
    }

    fn caller(&self) -> Option<Stream> {
        self.listener.as_ref()?.accept().ok().flatten()
    }
}

/// The NIC and its links.
pub(crate) struct Core {
    pub(crate) nic: Nic,
    links: Vec<Way>,
    address: HostAddress,
    door: Option<Door>,
    udp: Option<UdpLink>,
    board: Option<OnBoard>,
    /// It had a board, which has gone.
    board_is_gone: bool,
    /// When the first of the callers that say nothing has had its time.
    silent_until: Instant,
    epoll: OwnedFd,
    room: Box<[u8]>,
    /// When to look around again.
    around_at: Instant,
    /// Where hosts attach, and those who have.
    pub(super) desks: Desks,
    /// The last drive took something: there may be more, whatever the bells say.
    pub(super) took: bool,
    /// A channel has come whose bell was not there when a driver armed the others.
    pub(super) rearm: bool,
    /// Some link is over, and is to be closed when none is being looked at.
    some_over: bool,
}

impl Core {
    pub(crate) fn open(device: &Device, config: Config, epoll: &OwnedFd) -> Result<Core, OpenError> {
        let mut core = Core {
            nic: Nic::new(config, random::key()?),
            links: Vec::new(),
            address: HostAddress::Loopback,
            door: None,
            udp: None,
            board: None,
            board_is_gone: false,
            silent_until: Instant::NEVER,
            epoll: epoll.try_clone()?,
            room: vec![0; udp::PACKET_BYTES_MAX].into(),
            around_at: Instant::ZERO,
            desks: Desks::default(),
            took: false,
            rearm: false,
            some_over: false,
        };
        match device {
            Device::Loopback => {}
            Device::Shm(name) => {
                let name = match name {
                    Some(name) => name.clone(),
                    // Names of sockets can be read by everybody: this number is for nothing else.
                    None => format!("{}-{:016x}", std::process::id(), u64::from_ne_bytes(random::bytes()?)),
                };
                let door = Door::open(name.as_bytes())?;
                watch(epoll, door.as_fd(), false)?;
                core.address = HostAddress::Name(name.into_bytes());
                core.door = Some(door);
            }
            Device::Udp(local) => {
                let udp = UdpLink::bind(*local)?;
                watch(epoll, udp.as_fd(), false)?;
                core.address = HostAddress::Udp(udp.local());
                core.udp = Some(udp);
            }
            Device::Board { name, at } => {
                let on = OnBoard::open(name.as_deref(), *at)?;
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
        self.links.iter().find(|way| way.path == path).map_or(HostAddress::Loopback, |way| way.host.clone())
    }

    /// Bytes of the longest packet that this NIC sends to others.
    pub(crate) fn packet_bytes(&self) -> usize {
        match (&self.udp, &self.address) {
            (Some(udp), _) => UdpLink::packet_bytes(udp.local().ip()),
            (None, HostAddress::Board(_)) => carried::PACKET_BYTES,
            (None, _) => shm::PACKET_BYTES,
        }
    }

    /// Whether its board has gone, and all that came before has been taken.
    pub(crate) fn is_gone(&self) -> bool {
        self.board_is_gone && self.board.is_none()
    }

    pub(super) fn watch(&self, file: BorrowedFd<'_>, edges: bool) -> io::Result<()> {
        watch(&self.epoll, file, edges)
    }

    // ---- paths

    /// The path to a host, made if there is none.
    pub(crate) fn path_to(&mut self, host: &HostAddress) -> io::Result<u32> {
        let own = *host == self.address || *host == HostAddress::Loopback;
        let wanted = if own { &HostAddress::Loopback } else { host };
        if matches!(host, HostAddress::Board(to) if to.port() == 0) {
            // So stand callers here that have not said who they are.
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "nobody is called at port 0"));
        }
        if let Some(way) = self.links.iter().find(|way| way.host == *wanted) {
            return Ok(way.path);
        }
        match (wanted, &self.address) {
            (HostAddress::Loopback, _) => self.add(MEMORY, HostAddress::Loopback, Link::Loopback),
            (HostAddress::Name(name), HostAddress::Name(own)) => {
                let half = shm::call(name, own)?;
                self.add_half(half, host.clone())
            }
            (HostAddress::Udp(to), HostAddress::Udp(_)) => self.add_udp(*to),
            (HostAddress::Board(to), HostAddress::Board(own)) => self.call(*to, *own),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "an address of another kind of device")),
        }
    }

    fn add(&mut self, traits: PathTraits, host: HostAddress, link: Link) -> io::Result<u32> {
        let path = self.nic.open_path(traits).map_err(|refusal| io::Error::other(refusal.to_string()))?;
        self.links.push(Way { path, host, link, only_in: false, over: false });
        Ok(path)
    }

    fn add_half(&mut self, half: Half, host: HostAddress) -> io::Result<u32> {
        self.watch(half.as_fd(), true)?;
        self.add(MEMORY, host, Link::Half(half))
    }

    fn add_udp(&mut self, to: SocketAddr) -> io::Result<u32> {
        let packet_bytes = UdpLink::packet_bytes(to.ip());
        let traits = PathTraits { packet_bytes, loses_nothing: false, checked: true };
        self.add(traits, HostAddress::Udp(to), Link::Udp(to))
    }

    /// Calls another NIC by the board's TCP.
    fn call(&mut self, to: SocketAddr, own: SocketAddr) -> io::Result<u32> {
        let on = self.board.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let stream = on.call(to)?;
        let link = Link::Board(Box::new(Carried::calling(stream, own)));
        self.add(CARRIED, HostAddress::Board(to), link)
    }

    // ---- moving packets

    #[inline]
    fn take_from_rings(&mut self, now: Instant) {
        let Core { nic, links, some_over, took, .. } = self;
        for way in links.iter_mut() {
            let Link::Shm(link) = &mut way.link else { continue };
            if !link.into.is_ready() && !link.into.is_condemned() {
                continue;
            }
            for _ in 0..TURN_PACKETS {
                match link.into.peek() {
                    Ok(Some(packet)) => {
                        *took = true;
                        nic.arrive(way.path, packet, now);
                    }
                    Ok(None) => break,
                    Err(_) => {
                        (way.over, *some_over) = (true, true);
                        break;
                    }
                }
                link.give_back();
            }
            // A producer that found its ring full may sleep; it has filled more than this since it was last told.
            if link.taken_since_rung() {
                link.channel.ring(machine_nanos);
            }
        }
        if self.some_over {
            self.close_over();
        }
    }

    fn take_from_streams(&mut self, now: Instant) {
        let Core { nic, links, some_over, took, .. } = self;
        for way in links.iter_mut() {
            let Link::Board(carried) = &mut way.link else { continue };
            if way.over || !carried.has_news() {
                continue;
            }
            *took = true;
            if carried.take(|packet| nic.arrive(way.path, packet.into(), now)).is_err() {
                (way.over, *some_over) = (true, true);
            }
        }
        if self.some_over {
            self.close_over();
        }
    }

    fn take_from_udp(&mut self, now: Instant) {
        for _ in 0..TURN_PACKETS {
            let Core { nic, links, udp: Some(udp), room, .. } = self else { return };
            let Some((length, from)) = udp.receive(room) else { return };
            self.took = true;
            let known = links.iter().find(|way| matches!(way.link, Link::Udp(to) if to == from));
            if let Some(way) = known {
                nic.arrive(way.path, SharedBytes::from(&room[..length]), now);
                continue;
            }
            // A stranger: it gets a path for as long as it has something to say.
            let Ok(path) = self.add_udp(from) else { continue };
            self.nic.arrive(path, SharedBytes::from(&self.room[..length]), now);
            if !self.nic.uses(path) {
                self.nic.close_path(path);
                self.links.pop();
            }
        }
    }

    fn flush_way(&mut self, index: usize, now: Instant) {
        let Core { nic, links, udp, room, some_over, took, .. } = self;
        let Way { path, link, over, .. } = &mut links[index];
        match link {
            Link::Half(_) => {}
            Link::Shm(link) => {
                let mut sent = false;
                loop {
                    match link.out.room() {
                        Ok(Some(mut slot)) => {
                            let Some(length) = nic.fetch(*path, &mut slot, now) else { break };
                            link.out.publish(length);
                            sent = true;
                        }
                        // Full: the other side rings when it has taken some.
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
                    match carried.leave() {
                        Ok(true) if fetched > 0 => {}
                        // There is no more, or the board rings when there is room.
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

    /// Looks for what happens seldom: callers, words of callers, ends.
    fn look_around(&mut self, now: Instant) {
        self.around_at = now + LOOK_AROUND;
        while let Some(half) = self.door.as_ref().and_then(Door::caller) {
            if self.has_room() {
                // It says who it is when it speaks.
                let _ = self.add_half(half, HostAddress::Name(Vec::new()));
            }
        }
        let mut again = self.look_for_hosts();
        if self.board.is_some() {
            again |= self.look_at_board(now);
        }
        for index in 0..self.links.len() {
            let Way { path, link, over, .. } = &mut self.links[index];
            match link {
                Link::Half(half) => match ShmLink::complete(half) {
                    Ok(None) => {}
                    Ok(Some(whole)) => {
                        let caller = whole.channel.caller().to_vec();
                        // The socket is watched since it called.
                        *link = Link::Shm(Box::new(whole));
                        self.rearm = true;
                        if !caller.is_empty() {
                            self.name_caller(index, HostAddress::Name(caller));
                        }
                    }
                    Err(_) => *over = true,
                },
                // What it sent before its end is taken first.
                Link::Shm(link) if link.channel.is_gone() => match link.into.is_ready() {
                    true => again = true,
                    false => *over = true,
                },
                Link::Shm(_) => {}
                // A path to a stranger that nobody uses any more is forgotten.
                Link::Udp(_) => *over |= !self.nic.uses(*path),
                // Nobody waits any more for a call that TCP has not given up.
                Link::Board(carried) => match carried.step(now) {
                    Ok(Step::Nothing) => {
                        *over |= !carried.is_open() && carried.is_ours() && !self.nic.uses(*path);
                    }
                    Ok(Step::Answered) => self.rearm = true,
                    Ok(Step::CalledBy(caller)) => {
                        self.name_caller(index, HostAddress::Board(caller));
                    }
                    Err(_) => *over = true,
                },
                Link::Loopback => {}
            }
        }
        self.close_over();
        if again {
            // Nobody will say again that they have gone.
            self.around_at = Instant::ZERO;
            self.took = true;
        }
    }

    /// Whether one more may call.
    fn has_room(&self) -> bool {
        let nameless = self.links.iter().filter(|way| way.is_nameless()).count();
        nameless < HALVES_MAX && self.links.len() < LINKS_MAX
    }

    /// Takes what woke us, and callers. Whether somebody is left of a board that has gone.
    fn look_at_board(&mut self, now: Instant) -> bool {
        let callers = self.links.iter().filter_map(Way::carried).filter_map(Carried::silent_until);
        self.silent_until = callers.min().unwrap_or(Instant::NEVER);
        let Some(on) = &self.board else { return false };
        if on.board.is_gone() {
            // Its streams have ended, with what they still hold: nobody is woken by a board that is no more.
            let left = self.links.iter().any(|way| way.carried().is_some());
            self.board_is_gone = true;
            if !left {
                self.board = None;
            }
            return true;
        }
        while let Some(stream) = self.board.as_ref().and_then(OnBoard::caller) {
            if !self.has_room() {
                stream.abort();
                continue;
            }
            let carried = Carried::called(stream, now);
            self.silent_until = self.silent_until.min(carried.silent_until().unwrap_or(Instant::NEVER));
            // Its bell is not armed yet. It says who it is when it speaks.
            self.rearm = true;
            let nobody = HostAddress::Board((std::net::Ipv6Addr::UNSPECIFIED, 0).into());
            let _ = self.add(CARRIED, nobody, Link::Board(Box::new(carried)));
        }
        false
    }

    /// A caller has said who it is. If we have called it as well, both links are one path.
    fn name_caller(&mut self, index: usize, host: HostAddress) {
        let local = self.links[index].carried().and_then(Carried::local_ip);
        let is_same = |way: &Way| way.host == host && !way.over && !way.is_gone();
        // TCP may not know that a peer has gone; but who calls again has no other link to this address.
        let is_old =
            |way: &Way| way.carried().is_some_and(|link| !link.is_ours() && link.local_ip() == local);
        let old: Vec<u32> =
            self.links.iter().filter(|way| is_same(way) && is_old(way)).map(|way| way.path).collect();
        for way in self.links.iter_mut().filter(|way| old.contains(&way.path)) {
            way.over = true;
        }
        let is_crossing = |way: &Way| {
            let elsewhere = way
                .carried()
                .is_some_and(|link| !link.is_ours() || link.local_ip().is_some_and(|ip| Some(ip) != local));
            way.host == host && !way.over && !way.is_gone() && !elsewhere
        };
        let ours = self.links.iter().find(|way| is_crossing(way)).map(|way| way.path);
        let way = &mut self.links[index];
        way.host = host;
        if let Some(path) = ours {
            self.nic.close_path(std::mem::replace(&mut way.path, path));
            way.only_in = true;
        }
    }

    /// Closes links that are over. A path goes with the link on which it sends.
    fn close_over(&mut self) {
        self.some_over = false;
        while let Some(index) = self.links.iter().position(|way| way.over) {
            let Way { path, only_in, link, .. } = self.links.swap_remove(index);
            if let Link::Board(carried) = link {
                carried.end();
            }
            if !only_in {
                self.nic.close_path(path);
                self.links.iter_mut().filter(|way| way.path == path).for_each(|way| way.over = true);
            }
        }
    }
}

impl Machine for Core {
    #[inline]
    fn drive(&mut self, now: Instant) {
        self.took = false;
        if now >= self.around_at {
            self.look_around(now);
        }
        self.take_from_rings(now);
        if self.board.is_some() {
            self.take_from_streams(now);
        }
        if self.udp.is_some() {
            self.take_from_udp(now);
        }
        if !self.desks.is_empty() {
            self.serve_hosts(now);
        }
        self.flush(now);
    }

    #[inline]
    fn settle(&mut self, now: Instant) {
        self.nic.settle(now);
        self.flush(now);
    }

    /// Sends what there is to send, as far as links take it.
    #[inline]
    fn flush(&mut self, now: Instant) {
        let mut index = 0;
        while index < self.links.len() {
            let Way { path, only_in, .. } = self.links[index];
            let owes = self.links[index].carried().is_some_and(Carried::owes);
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
    fn take_news(&mut self) -> bool {
        self.nic.take_news()
    }

    #[inline]
    fn deadline(&self) -> Instant {
        self.nic.deadline().min(self.silent_until)
    }

    #[inline]
    fn has_more(&self) -> bool {
        // Whoever empties the board's file beside a driver that sleeps leaves it a bell that has rung.
        self.took || self.rearm || self.board.as_ref().is_some_and(|on| !on.board.is_armed())
    }

    fn arm(&mut self) {
        self.rearm = false;
        if let Some(on) = &self.board {
            on.board.arm();
            // Callers, and words of those who called: nobody rings again for what came before.
            self.around_at = Instant::ZERO;
            self.links.iter().filter_map(Way::carried).for_each(Carried::arm);
        }
        self.links.iter().filter_map(Way::shm).for_each(|link| link.channel.own_bell().arm());
        self.desks.channels().for_each(|channel| channel.own_bell().arm());
    }

    fn disarm(&mut self) -> Option<u64> {
        let links = self.links.iter().filter_map(Way::shm).map(|link| &link.channel);
        let rung = links.chain(self.desks.channels()).filter_map(|channel| channel.own_bell().disarm()).min();
        rung.into_iter().chain(self.board.as_ref().and_then(|on| on.board.disarm())).min()
    }

    fn after_sleep(&mut self) {
        self.around_at = Instant::ZERO;
    }
}
