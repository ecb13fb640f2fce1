//! What the turn of an RDMA NIC guards: the NIC and its links.
//!
//! Goal      few system calls: a read and a write a burst. With one or two connections they are tried directly, with more an
//!           epoll says which have something.
//! Files     sockets are watched by their level on an epoll of the NIC's own, which the turn's epoll watches: a sleeping
//!           driver and a looking one take nothing from each other.
//! Budget    a connection moves so many bytes a drive, then the next has its turn; what is left is known to be left.

use super::link::{Address, EfeLink, Lower};
use crate::link::tcp::{TcpDoor, TcpLink};
use crate::turn::{Machine, watch};
use kiban_ground::Instant;
use kiban_stack::iwarp::mpa;
use kiban_stack::iwarp::nic::{ConnectError, HOLD, News, Nic, OpenError, Request};
use kiban_stack::iwarp::rnic::{Config, Event, Places, StreamWish};
use rustix::event::epoll::{self, EventData, EventFlags};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Room for what is read at once.
const ROOM_BYTES: usize = 256 << 10;
/// Bytes that a connection reads or writes before the next has its turn.
const BUDGET_BYTES: usize = 4 << 20;
/// Up to so many connections are tried without asking which have something.
const DIRECT_MAX: usize = 2;
/// How often a driver that tries directly asks all the same.
const ASK_EVERY: u32 = 32;
/// How long a door stays closed when this program has no file left.
const DOOR_CLOSED: Duration = Duration::from_millis(100);
/// How long a peer may take to end its half of a stream that has ended in order.
const FAREWELL: Duration = Duration::from_secs(5);

/// What a file is whose event came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum File {
    Link(u32),
    Door(u32),
    Efe,
}

impl File {
    fn data(self) -> EventData {
        EventData::new_u64(match self {
            File::Efe => 1 << 32,
            File::Door(door) => 2 << 32 | u64::from(door),
            File::Link(end) => 3 << 32 | u64::from(end),
        })
    }

    fn of(data: u64) -> Option<File> {
        match data >> 32 {
            1 => Some(File::Efe),
            2 => Some(File::Door(data as u32)),
            3 => Some(File::Link(data as u32)),
            _ => None,
        }
    }
}

/// An end's socket.
struct Line {
    link: TcpLink,
    connected: bool,
    /// The socket takes nothing now: its event says when.
    blocked: bool,
    /// Our half has ended.
    finished: bool,
    /// It is over, and has so long to say why and to hear the peer's end.
    leaving: bool,
    /// What its events are.
    interest: EventFlags,
}

struct Door {
    door: TcpDoor,
    config: mpa::Config,
}

/// What time asks for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Alarm {
    /// Whether a responder's reply has arrived, so that it may speak; so many times it had not.
    Hold(u32, u32),
    /// A line's farewell is over.
    Farewell(u32),
    /// A door that was closed for want of files opens again.
    Door(u32),
}

/// How an end's life went, for whoever holds it.
#[derive(Default)]
pub(super) struct Story {
    pub(super) connected: Option<Vec<u8>>,
    pub(super) failed: Option<ConnectError>,
    pub(super) gone: bool,
}

/// The NIC and its links.
pub(crate) struct Core {
    pub(super) nic: Nic,
    lower: Lower,
    efe: Option<EfeLink>,
    epoll: OwnedFd,
    /// Looked at several times a drive: a few are found faster in a tree than by a hash.
    lines: BTreeMap<u32, Line>,
    /// The ends that are tried directly.
    direct: Vec<u32>,
    asked: u32,
    doors: BTreeMap<u32, Door>,
    doors_made: u32,
    room: Box<[u8]>,
    places: Places,
    /// What has been told of each end that somebody holds.
    pub(super) stories: HashMap<u32, Story>,
    /// Requests that nobody has taken.
    requests: VecDeque<Request>,
    pub(super) events: VecDeque<Event>,
    /// Completion queues that told, and nobody has heard.
    pub(super) told: VecDeque<u32>,
    alarms: BinaryHeap<Reverse<(Instant, Alarm)>>,
    completions_seen: u64,
    news: bool,
    more: bool,
    /// A driver is about to sleep, or sleeps: what a socket is watched for must be true now.
    armed: bool,
    /// Ends that nobody holds, on their way to their end.
    orphans: Vec<u32>,
}

impl Core {
    pub(super) fn open(lower: Lower, config: Config, outer: &OwnedFd) -> io::Result<Core> {
        let mut seed = [0; 8];
        rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())?;
        let seed = u64::from_ne_bytes(seed);
        let inner = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        watch(outer, inner.as_fd(), false)?;
        let efe = EfeLink::open(&lower, seed)?;
        let core = Core {
            nic: Nic::new(config, seed),
            lower,
            efe,
            epoll: inner,
            lines: BTreeMap::new(),
            direct: Vec::new(),
            asked: 0,
            doors: BTreeMap::new(),
            doors_made: 0,
            room: vec![0; ROOM_BYTES].into(),
            places: Places::new(),
            stories: HashMap::new(),
            requests: VecDeque::new(),
            events: VecDeque::new(),
            told: VecDeque::new(),
            alarms: BinaryHeap::new(),
            completions_seen: 0,
            news: false,
            more: false,
            armed: false,
            orphans: Vec::new(),
        };
        if let Some(efe) = &core.efe {
            core.watch(efe.as_fd(), File::Efe, EventFlags::IN)?;
        }
        Ok(core)
    }

    fn watch(&self, file: BorrowedFd<'_>, what: File, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, file, what.data(), flags)?)
    }

    // ---- connections

    /// Begins to connect: the end.
    pub(super) fn connect(
        &mut self,
        to: Address,
        config: &mpa::Config,
        qp: u32,
        depths: (u16, u16),
        private_data: &[u8],
        now: Instant,
    ) -> io::Result<Result<u32, OpenError>> {
        if let Some(efe) = &mut self.efe {
            let place = efe.place(to)?;
            let opened =
                self.nic.connect_flow(&mut efe.endpoint, place, config, qp, depths, private_data, now);
            if let Ok(end) = opened {
                self.stories.insert(end, Story::default());
            }
            return Ok(opened);
        }
        let link = TcpLink::connect(tcp_address(to)?, self.lower.from())?;
        let end = match self.nic.open(config, qp, depths, private_data, now) {
            Ok(end) => end,
            Err(error) => return Ok(Err(error)),
        };
        if let Err(error) = self.add_line(end, link, false) {
            self.nic.forget(None, end, now);
            return Err(error);
        }
        self.stories.insert(end, Story::default());
        Ok(Ok(end))
    }

    fn add_line(&mut self, end: u32, link: TcpLink, connected: bool) -> io::Result<()> {
        let interest = if connected { EventFlags::IN } else { EventFlags::OUT };
        self.watch(link.as_fd(), File::Link(end), interest)?;
        self.lines.insert(
            end,
            Line { link, connected, blocked: !connected, finished: false, leaving: false, interest },
        );
        self.choose_direct();
        Ok(())
    }

    /// Few connections are tried directly.
    fn choose_direct(&mut self) {
        let was_direct = !self.direct.is_empty();
        self.direct.clear();
        if self.lines.len() <= DIRECT_MAX {
            self.direct.extend(self.lines.keys());
        } else if was_direct {
            // What they wait for was not asked for while they were tried.
            let ends: Vec<u32> = self.lines.keys().copied().collect();
            ends.into_iter().for_each(|end| self.set_interest(end));
        }
    }

    /// Listens: the listener's number, and its address.
    pub(super) fn listen(
        &mut self,
        at: Address,
        config: mpa::Config,
        backlog: u32,
    ) -> io::Result<(u32, Address)> {
        if let Some(efe) = &mut self.efe {
            return efe.listen(at);
        }
        let door = TcpDoor::open(tcp_address(at)?, backlog)?;
        let address = door.address()?;
        self.doors_made += 1;
        let number = self.doors_made;
        self.watch(door.as_fd(), File::Door(number), EventFlags::IN)?;
        self.doors.insert(number, Door { door, config });
        Ok((number, address.into()))
    }

    pub(super) fn unlisten(&mut self, listener: u32, now: Instant) {
        match &mut self.efe {
            Some(efe) => efe.endpoint.unlisten(listener as u16),
            None => drop(self.doors.remove(&listener)),
        }
        let (theirs, others) = self.requests.drain(..).partition(|request| request.listener == listener);
        self.requests = others;
        let theirs: VecDeque<Request> = theirs;
        for request in theirs {
            self.forget(request.end, now);
        }
    }

    /// The next request at a listener.
    pub(super) fn request(&mut self, listener: u32) -> Option<(Request, Option<SocketAddr>)> {
        let at = self.requests.iter().position(|request| request.listener == listener)?;
        let request = self.requests.remove(at)?;
        self.stories.entry(request.end).or_default();
        let from = self.lines.get(&request.end).and_then(|line| line.link.addresses().ok());
        Some((request, from.map(|(_, peer)| peer)))
    }

    pub(super) fn accept(
        &mut self,
        end: u32,
        qp: u32,
        depths: (u16, u16),
        private_data: &[u8],
        now: Instant,
    ) -> Result<(), OpenError> {
        let endpoint = self.efe.as_mut().map(|efe| &mut efe.endpoint);
        self.nic.accept(endpoint, end, qp, depths, private_data, now)?;
        if self.nic.may_go_first(end) {
            self.alarms.push(Reverse((now + HOLD, Alarm::Hold(end, 0))));
        }
        Ok(())
    }

    pub(super) fn reject(&mut self, end: u32, private_data: &[u8], now: Instant) -> Result<(), OpenError> {
        let endpoint = self.efe.as_mut().map(|efe| &mut efe.endpoint);
        self.nic.reject(endpoint, end, private_data, now)
    }

    /// Nobody holds an end any more. One that is on its way to its end goes on, as long as its queue pair lives: its line
    /// says its farewell when there is no more to say ([`Core::write`]).
    pub(super) fn release(&mut self, end: u32, now: Instant) {
        if !self.nic.is_ending(end) {
            return self.forget(end, now);
        }
        self.stories.remove(&end);
        self.orphans.push(end);
        self.nic.stir(end);
    }

    /// An end goes at once.
    pub(super) fn forget(&mut self, end: u32, now: Instant) {
        self.stories.remove(&end);
        self.orphans.retain(|&orphan| orphan != end);
        if self.lines.get(&end).is_some_and(|line| line.finished) {
            // It has said its farewell: the rest is the system's.
            self.lines.remove(&end);
        } else if let Some(line) = self.lines.remove(&end) {
            line.link.abort();
        }
        self.choose_direct();
        let endpoint = self.efe.as_mut().map(|efe| &mut efe.endpoint);
        self.nic.forget(endpoint, end, now);
    }

    /// The addresses of an end's stream, ours first.
    pub(super) fn addresses(&self, end: u32) -> Option<(SocketAddr, SocketAddr)> {
        self.lines.get(&end)?.link.addresses().ok()
    }

    /// Every connection is cut.
    pub(super) fn abort_all(&mut self, now: Instant) {
        let ends: Vec<u32> = self.stories.keys().chain(self.lines.keys()).copied().collect();
        for end in ends {
            match self.nic.qp_of(end) {
                Some(qp) => drop(self.nic.core.abort(qp)),
                None => self.nic.fail(end, ConnectError::Lost),
            }
        }
        self.doors.clear();
        if let Some(efe) = &mut self.efe {
            efe.stop_listening();
        }
        self.serve(now);
    }

    /// Lines that there are.
    pub(super) fn lines(&self) -> usize {
        self.lines.len()
    }

    // ---- moving bytes

    fn ask(&mut self, now: Instant) {
        let mut events = [const { mem::MaybeUninit::<epoll::Event>::uninit() }; 256];
        let none = crate::wait::timespec(Duration::ZERO);
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, Some(&none)) else { return };
        self.more |= events.len() == 256;
        for &mut epoll::Event { flags, data } in events {
            match File::of(data.u64()) {
                Some(File::Link(end)) => {
                    let bits = { flags };
                    if bits.intersects(EventFlags::OUT) {
                        self.on_writable(end, now);
                    }
                    if bits.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                        self.read(end, bits.intersects(EventFlags::HUP | EventFlags::ERR), now);
                    }
                }
                Some(File::Door(door)) => self.open_door(door, now),
                Some(File::Efe) | None => {}
            }
        }
    }

    fn open_door(&mut self, number: u32, now: Instant) {
        for _ in 0..64 {
            let Some(Door { door, config }) = self.doors.get(&number) else { return };
            let link = match door.accept() {
                Ok(Some((link, _))) => link,
                Ok(None) => return,
                // No file is left: one of those that wait makes room, or the door stays closed for a while.
                Err(_) if self.nic.give_up_oldest() => {
                    self.more = true;
                    return;
                }
                Err(_) => {
                    let (door, data) = (door.as_fd(), File::Door(number).data());
                    // It is watched as long as it is there.
                    let _ = epoll::modify(&self.epoll, door, data, EventFlags::empty());
                    self.alarms.push(Reverse((now + DOOR_CLOSED, Alarm::Door(number))));
                    return;
                }
            };
            // Too many: it is closed.
            let Some(end) = self.nic.incoming(config, number, now) else { continue };
            if self.add_line(end, link, true).is_err() {
                self.nic.forget(None, end, now);
            }
        }
        self.more = true;
    }

    fn on_writable(&mut self, end: u32, now: Instant) {
        let Some(line) = self.lines.get_mut(&end) else { return };
        if !line.connected {
            match line.link.is_connected() {
                Ok(false) => return,
                Ok(true) => line.connected = true,
                Err(_) => {
                    self.nic.fail(end, ConnectError::Unreachable);
                    return self.gone(end, false, now);
                }
            }
        }
        line.blocked = false;
        self.nic.stir(end);
        self.write(end, now);
    }

    /// Reads what is there for an end. `over`: its stream has ended both ways, or is lost.
    fn read(&mut self, end: u32, over: bool, now: Instant) {
        let mut budget = BUDGET_BYTES;
        loop {
            let Core { nic, lines, room, places, .. } = self;
            let Some(line) = lines.get_mut(&end).filter(|line| line.connected) else { return };
            let Some((stream, core)) = nic.stream(end) else { return };
            if !stream.wants_bytes() {
                // Its end is announced for as long as it stands, whatever is watched: it cannot stand in an ended stream.
                return if over { self.gone(end, false, now) } else { self.set_interest(end) };
            }
            let landing = stream.landing(core, places);
            let most = stream.read_ahead(ROOM_BYTES);
            let rest = if landing > 0 { &mut [] } else { stream.rest() };
            // What goes where it belongs, and how much may be read behind it.
            let first = landing + rest.len();
            let read = match rest {
                [] => line.link.receive(places, &mut room[..most]),
                rest => line.link.receive_into(rest, &mut room[..most]),
            };
            let read = match read {
                Ok(None) => return,
                Ok(Some(0)) => return self.gone(end, true, now),
                Ok(Some(read)) => read,
                Err(_) => return self.gone(end, false, now),
            };
            let landed = read.min(first);
            match landed {
                0 => {}
                _ if landing > 0 => stream.landed(core, landed),
                _ => stream.rest_came(core, landed),
            }
            // Nothing of the host's is held from here on.
            places.clear();
            if read > landed {
                self.nic.receive(end, &self.room[..read - landed], now);
            }
            budget = budget.saturating_sub(read);
            // Less than there was room for: that was all.
            if read < first + most {
                return;
            }
            if budget == 0 {
                self.more = true;
                return;
            }
        }
    }

    /// The peer's half of a stream has ended.
    fn gone(&mut self, end: u32, in_order: bool, now: Instant) {
        // What the end of the stream finishes may still want to be said, but nobody reads it.
        self.nic.stream_gone(end, in_order);
        if let Some(at) = self.orphans.iter().position(|&orphan| orphan == end) {
            self.orphans.swap_remove(at);
            self.nic.forget(None, end, now);
        }
        if let Some(line) = self.lines.remove(&end)
            && !in_order
        {
            line.link.abort();
        }
        self.choose_direct();
        self.news = true;
    }

    /// Writes what an end has to send.
    fn write(&mut self, end: u32, now: Instant) {
        // Whatever the socket could still take.
        if self.lines.contains_key(&end) && self.nic.wish(end) == StreamWish::Abort {
            return self.gone(end, false, now);
        }
        let mut budget = BUDGET_BYTES;
        loop {
            let Core { nic, lines, .. } = self;
            let Some(line) = lines.get_mut(&end) else { return };
            if !line.leaving && nic.is_over(end) {
                // However slow the peer reads, it is not waited for for ever.
                line.leaving = true;
                self.alarms.push(Reverse((now + FAREWELL, Alarm::Farewell(end))));
            }
            if line.blocked {
                return;
            }
            let Some((stream, core)) = nic.stream(end) else { return };
            if !stream.fill(core) {
                break;
            }
            let whole = stream.unsent_bytes();
            match line.link.send(stream.chunks()) {
                Ok(sent) => {
                    stream.advance(core, sent);
                    if sent < whole {
                        line.blocked = true;
                        return self.set_interest(end);
                    }
                    budget = budget.saturating_sub(sent);
                    if budget == 0 {
                        self.more = true;
                        // Behind all others that wait.
                        match self.nic.qp_of(end) {
                            Some(qp) => self.nic.core.back_in_line(qp),
                            None => self.nic.stir(end),
                        }
                        return;
                    }
                }
                Err(_) => return self.gone(end, false, now),
            }
        }
        self.set_interest(end);
        match self.nic.wish(end) {
            StreamWish::Open => {}
            StreamWish::Finish => {
                if let Some(line) = self.lines.get_mut(&end)
                    && !mem::replace(&mut line.finished, true)
                {
                    line.link.finish();
                    self.alarms.push(Reverse((now + FAREWELL, Alarm::Farewell(end))));
                }
            }
            StreamWish::Abort => self.gone(end, false, now),
        }
    }

    /// What an end's socket is watched for. Where it is tried directly that can wait until a driver sleeps.
    fn set_interest(&mut self, end: u32) {
        if !self.direct.is_empty() && !self.armed {
            return;
        }
        let Core { nic, lines, epoll, .. } = self;
        let (Some(line), Some((stream, _))) = (lines.get_mut(&end), nic.stream(end)) else { return };
        let mut wanted = EventFlags::empty();
        wanted.set(EventFlags::IN, line.connected && stream.wants_bytes());
        wanted.set(EventFlags::OUT, line.blocked);
        if wanted != line.interest {
            line.interest = wanted;
            // It fails when the socket has gone, which its next read tells.
            let _ = epoll::modify(&*epoll, line.link.as_fd(), File::Link(end).data(), wanted);
        }
    }

    /// Serves ends in the order of the work acceptor's line.
    fn serve(&mut self, now: Instant) {
        if let Some(efe) = &mut self.efe {
            efe.pump(&mut self.nic, now);
        } else {
            while let Some(end) = self.nic.next_resumed() {
                self.set_interest(end);
                self.nic.stir(end);
            }
            // Those whose budget is spent stand in line again: they wait for the next drive.
            let more = mem::take(&mut self.more);
            while let Some(end) = self.nic.next_to_serve() {
                self.write(end, now);
                if mem::take(&mut self.more) {
                    self.more = true;
                    break;
                }
            }
            self.more |= more;
        }
        self.nic.let_go_withdrawn();
        self.hear(now);
    }

    /// What has happened is put where it is looked for.
    fn hear(&mut self, now: Instant) {
        while let Some(news) = self.nic.news() {
            self.news = true;
            match news {
                News::Asked(request) => self.requests.push_back(request),
                News::Connected { end, private_data } => {
                    if let Some(story) = self.stories.get_mut(&end) {
                        story.connected = Some(private_data);
                    }
                }
                News::Failed { end, error } => {
                    if let Some(story) = self.stories.get_mut(&end) {
                        story.failed = Some(error);
                    }
                }
                News::Withdrawn { end } => {
                    self.requests.retain(|request| request.end != end);
                    match self.stories.get_mut(&end) {
                        Some(story) => story.gone = true,
                        None if self.lines.contains_key(&end) => self.orphans.push(end),
                        None => self.nic.forget(None, end, now),
                    }
                }
                News::Gone { end } if self.orphans.contains(&end) && !self.lines.contains_key(&end) => {
                    self.forget(end, now);
                }
                News::Gone { end } => {
                    if let Some(story) = self.stories.get_mut(&end) {
                        story.gone = true;
                    }
                }
            }
        }
        while self.events.len() < self.nic.core.config().events_max
            && let Some(event) = self.nic.core.event()
        {
            self.news = true;
            self.events.push_back(event);
        }
        while let Some(cq) = self.nic.core.cq_event() {
            self.news = true;
            self.told.push_back(cq);
        }
        let completions = self.nic.core.counters().completions;
        self.news |= mem::replace(&mut self.completions_seen, completions) != completions;
    }

    fn advance(&mut self, now: Instant) {
        self.nic.advance(now);
        while let Some(&Reverse((at, alarm))) = self.alarms.peek()
            && at <= now
        {
            self.alarms.pop();
            match alarm {
                Alarm::Hold(end, times) => self.hold(end, times, now),
                Alarm::Farewell(end) if self.lines.contains_key(&end) => self.gone(end, true, now),
                Alarm::Farewell(_) => {}
                Alarm::Door(number) => {
                    if let Some(Door { door, .. }) = self.doors.get(&number) {
                        let data = File::Door(number).data();
                        // It is watched as long as it is there.
                        let _ = epoll::modify(&self.epoll, door.as_fd(), data, EventFlags::IN);
                    }
                }
            }
        }
    }

    /// A responder that has not heard of its initiator may speak when its reply has arrived.
    fn hold(&mut self, end: u32, times: u32, now: Instant) {
        let (Some(line), Some(qp)) = (self.lines.get(&end), self.nic.qp_of(end)) else { return };
        if self.nic.core.query_qp(qp).is_ok_and(|(.., traits)| traits.may_send) {
            return;
        }
        if line.link.is_acknowledged() {
            self.nic.core.may_send(qp);
        } else {
            let later = HOLD * 2u32.pow(times.min(10));
            self.alarms.push(Reverse((now + later, Alarm::Hold(end, times + 1))));
        }
    }
}

impl Machine for Core {
    fn drive(&mut self, now: Instant) {
        self.more = false;
        if self.deadline() <= now {
            self.advance(now);
        }
        if let Some(efe) = &mut self.efe {
            self.more |= efe.take(now);
        }
        self.asked = self.asked.wrapping_add(1);
        if self.direct.is_empty() || self.asked.is_multiple_of(ASK_EVERY) {
            self.ask(now);
        } else {
            for index in 0..self.direct.len() {
                let Some(&end) = self.direct.get(index) else { break };
                if let Some(line) = self.lines.get_mut(&end)
                    && line.connected
                    && mem::take(&mut line.blocked)
                {
                    self.nic.stir(end);
                }
                self.read(end, false, now);
            }
        }
        self.serve(now);
    }

    fn settle(&mut self, now: Instant) {
        if let Some(efe) = &mut self.efe {
            efe.settle(now);
        }
        self.flush(now);
    }

    fn flush(&mut self, now: Instant) {
        self.serve(now);
    }

    fn take_news(&mut self) -> bool {
        mem::take(&mut self.news)
    }

    fn deadline(&self) -> Instant {
        let own = self.alarms.peek().map_or(Instant::NEVER, |Reverse((at, _))| *at);
        let efe = self.efe.as_ref().map_or(Instant::NEVER, EfeLink::deadline);
        own.min(self.nic.deadline()).min(efe)
    }

    fn has_more(&self) -> bool {
        self.more
    }

    fn arm(&mut self) {
        self.armed = true;
        for index in 0..self.direct.len() {
            self.set_interest(self.direct[index]);
        }
    }

    fn disarm(&mut self) -> Option<u64> {
        self.armed = false;
        None
    }

    fn after_sleep(&mut self) {
        self.asked = ASK_EVERY - 1;
    }
}

/// TCP is reached by IP.
fn tcp_address(address: Address) -> io::Result<SocketAddr> {
    match address {
        Address::Ip(address) => Ok(address),
        Address::Ethernet { .. } => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "TCP is reached by IP:PORT, not by an Ethernet address",
        )),
    }
}

impl Lower {
    /// The address that connections come from, if it was chosen.
    fn from(&self) -> Option<IpAddr> {
        match self {
            Lower::Tcp { from } => *from,
            _ => None,
        }
    }
}
