//! The state behind an RDMA NIC's lock: the NIC and its links. This file moves the bytes.
//!
//! Purpose  needs few system calls: one read and one write per burst. One or two connections are tried
//!          directly; with more, epoll reports which are ready.
//! Files    sockets are watched, level-triggered, by the NIC's own epoll, which the turn's epoll watches. A
//!          sleeping and a polling driver therefore do not consume each other's events. Streams in memory
//!          have no file of their own and are polled (`offer.rs`, `board_streams.rs`).
//! Budget   a connection moves a limited number of bytes per `drive` call, and then it is the next
//!          connection's turn. Remaining work is recorded.

mod board;
mod board_streams;
mod carrier;
mod ends;
mod file;
mod line;
mod offer;

pub(crate) use self::ends::{EndState, Route};

use self::board::BoardLink;
use self::carrier::Transport;
use self::file::File;
use self::line::{Connection, ListenSocket, MpaListener, SharedMemoryOffer};
use super::link::{EfeLink, Lower};
use crate::shared::SharedLink;
use kiban_base::Instant;
use kiban_os::random;
use kiban_os::turn::{Machine, watch};
use kiban_rdma::nic::{CmEvent, ConnectError, HOLD, NUDGE, NUDGES_MAX, Nic, Request};
use kiban_rdma::rnic::{Config, Event, PlacementBuffers, StreamAction};
use rustix::event::epoll::{self, EventFlags};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Size of the receive buffer in bytes.
const ROOM_BYTES: usize = 256 << 10;
/// Maximum number of bytes that a connection reads or writes before it is the next connection's turn.
const BUDGET_BYTES: usize = 4 << 20;
/// Maximum number of connections that are tried directly, without epoll.
const DIRECT_MAX: usize = 2;
/// Number of failed tries, while another connection received something, after which a connection is not
/// tried until epoll reports it. Otherwise, programs that keep an idle connection beside the active one
/// (such as perftest) would pay for both.
const QUIET_TRIES: u32 = 64;
/// Number of `drive` calls after which a driver that tries connections directly also calls epoll.
const ASK_EVERY: u32 = 32;
/// How long a listener is paused when the process is out of file descriptors.
const LISTENER_PAUSE: Duration = Duration::from_millis(100);
/// How long to wait for the peer to close its direction after this side closed a stream in order.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Timers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Timer {
    /// Checks whether a responder's reply has arrived, so that the responder may send. Holds the number of
    /// earlier checks.
    Hold(u32, u32),
    /// Nudges an initiator's peer, which may have missed the first message. Holds the number of earlier
    /// nudges.
    Nudge(u32, u32),
    /// The time for the orderly close of a connection has expired.
    Farewell(u32),
    /// The time for a detached stream to close in order has expired.
    Parted(u32),
    /// An offer of shared memory was not answered.
    Offer(u32),
    /// Resumes a listener that was paused for lack of file descriptors.
    Listener(u32),
}

/// The NIC and its links.
pub(crate) struct LinkedNic {
    pub(crate) nic: Nic,
    lower: Lower,
    efe: Option<EfeLink>,
    board: Option<BoardLink>,
    epoll: OwnedFd,
    /// Looked up several times per `drive` call. For a few entries, a tree is faster than a hash table.
    connections: BTreeMap<u32, Connection>,
    /// The ends that are tried directly.
    direct: Vec<u32>,
    drives: u32,
    listeners: BTreeMap<u32, MpaListener>,
    listeners_opened: u32,
    room: Box<[u8]>,
    places: PlacementBuffers,
    /// The state of each end that has an owner.
    pub(crate) end_states: HashMap<u32, EndState>,
    /// Connection requests that have not been taken.
    requests: VecDeque<Request>,
    /// The end that received something last.
    busy: u32,
    /// The ends whose streams use shared memory, and whether this NIC offers shared memory.
    shared: Vec<u32>,
    shares: bool,
    /// Index in `shared` at which the last `drive` call stopped.
    shared_at: usize,
    /// Ends whose state has changed, for a host that follows all ends collectively instead of polling each
    /// one.
    changed: Option<Vec<u32>>,
    /// Streams detached from their ends, which wait for the peer to close.
    closing_streams: BTreeMap<u32, Transport>,
    farewells_made: u32,
    pub(crate) events: VecDeque<Event>,
    /// Completion queues with a notification that has not been taken.
    pub(crate) cq_events: VecDeque<u32>,
    timers: BinaryHeap<Reverse<(Instant, Timer)>>,
    completions_seen: u64,
    progress: bool,
    more: bool,
    /// A driver sleeps or is about to sleep, so epoll interests must be up to date.
    armed: bool,
    /// Ends without an owner that are still closing.
    orphans: Vec<u32>,
}

impl LinkedNic {
    pub(crate) fn open(lower: Lower, config: Config, outer: &OwnedFd) -> io::Result<LinkedNic> {
        let inner = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        watch(outer, inner.as_fd(), false)?;
        let efe = EfeLink::open(&lower, random::key()?)?;
        let board = BoardLink::attach(&lower)?;
        let core = LinkedNic {
            nic: Nic::new(config, random::key()?),
            lower,
            efe,
            board,
            epoll: inner,
            connections: BTreeMap::new(),
            direct: Vec::new(),
            drives: 0,
            listeners: BTreeMap::new(),
            listeners_opened: 0,
            room: vec![0; ROOM_BYTES].into(),
            places: PlacementBuffers::new(),
            end_states: HashMap::new(),
            requests: VecDeque::new(),
            busy: 0,
            shared: Vec::new(),
            shares: false,
            shared_at: 0,
            changed: None,
            closing_streams: BTreeMap::new(),
            farewells_made: 0,
            events: VecDeque::new(),
            cq_events: VecDeque::new(),
            timers: BinaryHeap::new(),
            completions_seen: 0,
            progress: false,
            more: false,
            armed: false,
            orphans: Vec::new(),
        };
        if let Some(efe) = &core.efe {
            core.watch(efe.as_fd(), File::Efe, EventFlags::IN)?;
        }
        core.watch_board()?;
        Ok(core)
    }

    fn watch(&self, file: BorrowedFd<'_>, what: File, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, file, what.data(), flags)?)
    }

    /// Selects the connections to try directly, if there are few.
    fn choose_direct(&mut self) {
        let was_direct = !self.direct.is_empty();
        self.direct.clear();
        if self.connections.len() <= DIRECT_MAX {
            self.direct.extend(self.connections.keys());
        } else if was_direct {
            // The epoll interests were not updated while the connections were tried directly.
            let ends: Vec<u32> = self.connections.keys().copied().collect();
            ends.into_iter().for_each(|end| self.set_interest(end));
        }
    }

    /// Returns whether to try to read from a directly tried connection. A pending write is retried in any
    /// case.
    fn is_worth_a_try(&mut self, end: u32) -> bool {
        let Some(line) = self.connections.get_mut(&end) else { return false };
        if line.connected && mem::take(&mut line.blocked) {
            self.nic.schedule(end);
        }
        line.tries = line.tries.saturating_add(1);
        let is_quiet = line.tries > QUIET_TRIES && self.busy != end;
        if mem::replace(&mut line.quiet, is_quiet) != is_quiet && is_quiet {
            self.set_interest(end);
        }
        !is_quiet
    }

    /// Discards data from the peer of a detached stream until the peer closes.
    fn drain_closing_stream(&mut self, number: u32) {
        let Some(carrier) = self.closing_streams.get_mut(&number) else { return };
        for _ in 0..BUDGET_BYTES / ROOM_BYTES {
            match carrier.receive(&[], &mut self.room) {
                Ok(Some(read)) if read > 0 => {}
                Ok(None) => return,
                _ => {
                    self.closing_streams.remove(&number);
                    return;
                }
            }
        }
    }

    fn ask(&mut self, now: Instant) {
        let mut events = [const { mem::MaybeUninit::<epoll::Event>::uninit() }; 256];
        let none = kiban_os::wait::timespec(Duration::ZERO);
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, Some(&none)) else { return };
        self.more |= events.len() == 256;
        for &mut epoll::Event { flags, data } in events {
            match File::of(data.u64()) {
                Some(File::Link(end)) => {
                    let bits = { flags };
                    if bits.intersects(EventFlags::OUT) {
                        self.on_writable(end, now);
                    }
                    if bits.intersects(EventFlags::RDHUP) {
                        self.peer_left(end);
                    }
                    if bits.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                        self.read(end, bits.intersects(EventFlags::HUP | EventFlags::ERR), now);
                    }
                }
                Some(File::Listener(listener)) => self.accept_connections(listener, now),
                Some(File::Farewell(link)) => self.drain_closing_stream(link),
                Some(File::Offer(end)) => self.on_offer(end),
                Some(File::Shared(end)) => {
                    let shared = self.connections.get_mut(&end).and_then(|line| line.transport.shared_mut());
                    if let Some(shared) = shared {
                        let over = shared.is_hung_up();
                        self.read(end, over, now);
                    }
                }
                Some(File::Board) => self.hear_board(),
                Some(File::Efe) | None => {}
            }
        }
    }

    fn accept_connections(&mut self, number: u32, now: Instant) {
        for _ in 0..64 {
            let Some(MpaListener { entrance, config }) = self.listeners.get(&number) else { return };
            let carrier = match (entrance.accept(), entrance) {
                (Ok(Some(carrier)), _) => carrier,
                (Ok(None), _) => return,
                (Err(_), ListenSocket::Board(_)) => return self.lose_board(),
                // The process is out of file descriptors: give up a waiting connection, or pause the
                // listener.
                (Err(_), _) if self.nic.evict_oldest() => {
                    self.more = true;
                    return;
                }
                (Err(_), ListenSocket::Socket(listener)) => {
                    let (listener, data) = (listener.as_fd(), File::Listener(number).data());
                    // Cannot fail: the listener is watched as long as it exists.
                    let _ = epoll::modify(&self.epoll, listener, data, EventFlags::empty());
                    self.timers.push(Reverse((now + LISTENER_PAUSE, Timer::Listener(number))));
                    return;
                }
            };
            // The NIC accepts no further incoming connection, so close this one.
            let Some(end) = self.nic.incoming(config, number, now) else { continue };
            let offer = if self.shares { SharedMemoryOffer::Awaited } else { SharedMemoryOffer::None };
            if self.add_line(end, carrier, true, offer).is_err() {
                self.nic.forget(None, end, now);
            }
        }
        self.more = true;
    }

    fn on_writable(&mut self, end: u32, now: Instant) {
        let Some(line) = self.connections.get_mut(&end) else { return };
        if !line.connected {
            match line.transport.is_connected() {
                Ok(false) => return,
                Ok(true) => line.connected = true,
                Err(_) => {
                    self.nic.fail(end, ConnectError::Unreachable);
                    return self.on_stream_end(end, false, now);
                }
            }
        }
        line.blocked = false;
        self.nic.schedule(end);
        self.write(end, now);
    }

    /// Reads available bytes for an end. `over`: whether its stream is closed in both directions or lost.
    fn read(&mut self, end: u32, over: bool, now: Instant) {
        let is_awaited = |line: &Connection| matches!(line.offer, SharedMemoryOffer::Awaited);
        if self.connections.get(&end).is_some_and(is_awaited) && !self.call_peer(end, now) {
            return;
        }
        let mut budget = BUDGET_BYTES;
        loop {
            let LinkedNic { nic, connections: lines, room, places, .. } = self;
            let Some(line) = lines.get_mut(&end).filter(|line| line.connected) else { return };
            if matches!(line.offer, SharedMemoryOffer::Calling(_)) {
                return;
            }
            let Some((stream, core)) = nic.stream(end) else { return };
            if !stream.wants_bytes() {
                let has_ended = line.transport.has_ended();
                // epoll reports EPOLLHUP regardless of the interest and would keep reporting it, so a closed
                // stream cannot wait for a receive.
                return match (over, has_ended) {
                    (true, _) => self.on_stream_end(end, false, now),
                    (_, true) => self.peer_left(end),
                    _ => self.set_interest(end),
                };
            }
            let landing = stream.placement_buffers(core, places);
            let most = stream.read_ahead(ROOM_BYTES);
            let rest = if landing > 0 { &mut [] } else { stream.frame_remainder() };
            // The number of bytes to store at their final destination, and how many more may be read after
            // them.
            let first = landing + rest.len();
            let read = match rest {
                [] => line.transport.receive(places, &mut room[..most]),
                rest => line.transport.receive_into(rest, &mut room[..most]),
            };
            let read = match read {
                Ok(None) => return,
                Ok(Some(0)) => return self.on_stream_end(end, true, now),
                Ok(Some(read)) => read,
                Err(_) => return self.on_stream_end(end, false, now),
            };
            (line.tries, self.busy) = (0, end);
            let landed = read.min(first);
            match landed {
                0 => {}
                _ if landing > 0 => stream.on_placed(core, landed),
                _ => stream.on_remainder_received(core, landed),
            }
            // Drop all references to the host's memory.
            places.clear();
            if read > landed {
                self.nic.arrive(end, &self.room[..read - landed], now);
                // Everything after the start frames uses shared memory, if both ends have it.
                if self.change_over(end) {
                    return;
                }
            }
            budget = budget.saturating_sub(read);
            // After a short read, nothing more is available, except perhaps an end of stream that epoll will
            // not report separately.
            if read < first + most {
                self.more |= self.connections.get(&end).is_some_and(|line| line.transport.has_more_unsaid());
                return;
            }
            if budget == 0 {
                self.more = true;
                return;
            }
        }
    }

    /// Handles the end of a stream. `in_order`: the peer has closed its direction.
    fn on_stream_end(&mut self, end: u32, in_order: bool, now: Instant) {
        // Work finished by the end of the stream could cause more data to be sent, but no peer would read
        // it.
        self.nic.on_stream_closed(end, in_order);
        if let Some(at) = self.orphans.iter().position(|&orphan| orphan == end) {
            self.orphans.swap_remove(at);
            self.nic.forget(None, end, now);
        }
        match self.remove_line(end) {
            Some(line) if !in_order => line.transport.abort(),
            Some(mut line) if line.transport.shared().is_some() => line.transport.finish(),
            _ => {}
        }
        self.choose_direct();
        self.progress = true;
    }

    /// Sends an end's pending bytes.
    fn write(&mut self, end: u32, now: Instant) {
        // Abort even if the socket could accept more bytes.
        if self.connections.contains_key(&end) && self.nic.stream_action(end) == StreamAction::Abort {
            return self.on_stream_end(end, false, now);
        }
        let mut budget = BUDGET_BYTES;
        loop {
            let LinkedNic { nic, connections: lines, .. } = self;
            let Some(line) = lines.get_mut(&end) else { return };
            if !line.leaving && nic.is_over(end) {
                // Limit the wait for a slow reader.
                line.leaving = true;
                line.farewell.get_or_insert(now + CLOSE_TIMEOUT);
                self.timers.push(Reverse((now + CLOSE_TIMEOUT, Timer::Farewell(end))));
            }
            if line.blocked {
                return;
            }
            if matches!(line.offer, SharedMemoryOffer::Ready(_))
                && nic.stream(end).is_some_and(|(stream, _)| stream.unsent_bytes() == 0)
                && self.change_over(end)
            {
                continue;
            }
            let LinkedNic { nic, connections: lines, .. } = self;
            let (Some(line), Some((stream, core))) = (lines.get_mut(&end), nic.stream(end)) else { return };
            if !stream.fill(core) {
                break;
            }
            let whole = stream.unsent_bytes();
            match line.transport.send(stream.chunks()) {
                Ok(sent) => {
                    stream.advance(core, sent);
                    if sent < whole {
                        line.blocked = true;
                        return self.set_interest(end);
                    }
                    budget = budget.saturating_sub(sent);
                    if budget == 0 {
                        self.more = true;
                        // Requeue behind all other ends that wait.
                        match self.nic.qp_of(end) {
                            Some(qp) => self.nic.core.requeue(qp),
                            None => self.nic.schedule(end),
                        }
                        return;
                    }
                }
                Err(_) => return self.on_stream_end(end, false, now),
            }
        }
        self.set_interest(end);
        match self.nic.stream_action(end) {
            StreamAction::Open => {}
            StreamAction::Finish => {
                if let Some(line) = self.connections.get_mut(&end)
                    && !mem::replace(&mut line.finished, true)
                {
                    line.transport.finish();
                    line.farewell.get_or_insert(now + CLOSE_TIMEOUT);
                    self.timers.push(Reverse((now + CLOSE_TIMEOUT, Timer::Farewell(end))));
                }
            }
            StreamAction::Abort => self.on_stream_end(end, false, now),
        }
    }

    /// Reports that the peer has closed its direction although an earlier message still waits for a receive.
    /// The host is notified now, as in InfiniBand, where such a message would not delay the event.
    fn peer_left(&mut self, end: u32) {
        let stands_still = self.nic.stream(end).is_some_and(|(stream, _)| !stream.wants_bytes());
        let Some(line) = self.connections.get_mut(&end).filter(|line| stands_still && !line.left) else {
            return;
        };
        line.left = true;
        self.go_on(end, |state| state.left = true);
        self.set_interest(end);
        self.progress = true;
    }

    /// Returns whether the peer has closed its direction while received data still waits.
    pub(crate) fn has_left(&self, end: u32) -> bool {
        self.connections.get(&end).is_some_and(|line| line.left)
    }

    /// Updates the epoll interests of an end's socket. For directly tried ends, that can wait until a driver
    /// sleeps.
    fn set_interest(&mut self, end: u32) {
        let are_tried = !self.direct.is_empty() && !self.armed;
        let LinkedNic { nic, connections: lines, epoll, .. } = self;
        let (Some(line), Some((stream, _))) = (lines.get_mut(&end), nic.stream(end)) else { return };
        if !line.transport.is_announced() || are_tried && !line.quiet && stream.wants_bytes() {
            return;
        }
        let Some(link) = line.transport.socket() else { return };
        let mut wanted = EventFlags::empty();
        let waits = matches!(line.offer, SharedMemoryOffer::Calling(_));
        wanted.set(EventFlags::IN, line.connected && stream.wants_bytes() && !waits);
        wanted.set(EventFlags::OUT, line.blocked);
        wanted.set(EventFlags::RDHUP, !stream.wants_bytes() && !line.left);
        if wanted != line.interest {
            line.interest = wanted;
            // This fails if the socket is closed, which the next read reports.
            let _ = epoll::modify(&*epoll, link.as_fd(), File::Link(end).data(), wanted);
        }
    }

    /// Serves ends in the order of the TX queue.
    fn serve(&mut self, now: Instant) {
        if let Some(efe) = &mut self.efe {
            efe.pump(&mut self.nic, now);
        } else {
            while let Some(end) = self.nic.next_resumed() {
                self.set_interest(end);
                self.nic.schedule(end);
                // Data that arrived earlier is not reported a second time.
                self.more |= self.connections.get(&end).is_some_and(|line| !line.transport.is_announced());
            }
            // Ends that have used up their budget are queued again and wait for the next `drive` call.
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
        self.nic.release_invalidated();
        self.dispatch_events(now);
    }

    /// Updates the state of an end, if it has an owner. Returns whether it has.
    fn go_on(&mut self, end: u32, how: impl FnOnce(&mut EndState)) -> bool {
        let Some(state) = self.end_states.get_mut(&end) else { return false };
        how(state);
        if let Some(changed) = &mut self.changed {
            changed.push(end);
        }
        true
    }

    /// Dispatches the NIC's events to their recipients.
    fn dispatch_events(&mut self, now: Instant) {
        while let Some(event) = self.nic.poll() {
            self.progress = true;
            match event {
                CmEvent::ConnectRequest(request) => self.requests.push_back(request),
                CmEvent::Connected { end, private_data } => {
                    if self.nic.peer_may_sleep(end) {
                        self.timers.push(Reverse((now + NUDGE, Timer::Nudge(end, 0))));
                    }
                    self.go_on(end, |state| state.connected = Some(private_data));
                }
                CmEvent::Failed { end, error } => {
                    self.go_on(end, |state| state.failed = Some(error));
                }
                CmEvent::Withdrawn { end } => {
                    self.requests.retain(|request| request.end != end);
                    if self.go_on(end, |state| state.gone = true) {
                    } else if self.connections.contains_key(&end) {
                        self.orphans.push(end);
                    } else {
                        self.nic.forget(None, end, now);
                    }
                }
                CmEvent::Gone { end }
                    if self.orphans.contains(&end) && !self.connections.contains_key(&end) =>
                {
                    self.forget(end, now);
                }
                CmEvent::Gone { end } => drop(self.go_on(end, |state| state.gone = true)),
            }
        }
        while self.events.len() < self.nic.core.config().events_max
            && let Some(event) = self.nic.core.event()
        {
            self.progress = true;
            self.events.push_back(event);
        }
        while let Some(cq) = self.nic.core.cq_event() {
            self.progress = true;
            self.cq_events.push_back(cq);
        }
        let completions = self.nic.core.counters().completions;
        self.progress |= mem::replace(&mut self.completions_seen, completions) != completions;
    }

    fn advance(&mut self, now: Instant) {
        self.nic.settle(now);
        while let Some(&Reverse((at, timer))) = self.timers.peek()
            && at <= now
        {
            self.timers.pop();
            match timer {
                Timer::Hold(end, times) => self.hold(end, times, now),
                Timer::Nudge(end, times) => {
                    if self.nic.nudge(end) && times + 1 < NUDGES_MAX {
                        let later = NUDGE * 2u32.pow(times + 1);
                        self.timers.push(Reverse((now + later, Timer::Nudge(end, times + 1))));
                    }
                }
                Timer::Farewell(end) => {
                    let until = self.connections.get(&end).and_then(|line| line.farewell);
                    if until.is_some_and(|until| until <= now) {
                        self.on_stream_end(end, true, now);
                    }
                }
                Timer::Offer(end) => self.withdraw_offer(end),
                Timer::Parted(number) => drop(self.closing_streams.remove(&number)),
                Timer::Listener(number) => {
                    if let Some(MpaListener { entrance: ListenSocket::Socket(listener), .. }) =
                        self.listeners.get(&number)
                    {
                        let data = File::Listener(number).data();
                        // Cannot fail: the listener is watched as long as it exists.
                        let _ = epoll::modify(&self.epoll, listener.as_fd(), data, EventFlags::IN);
                    }
                }
            }
        }
    }

    /// Allows a responder to send once its reply has arrived, although the initiator has not sent yet.
    fn hold(&mut self, end: u32, times: u32, now: Instant) {
        let (Some(line), Some(qp)) = (self.connections.get(&end), self.nic.qp_of(end)) else { return };
        if self.nic.core.query_qp(qp).is_ok_and(|(.., traits)| traits.may_send) {
            return;
        }
        if line.transport.is_acknowledged() {
            self.nic.core.may_send(qp);
        } else {
            let later = HOLD * 2u32.pow(times.min(10));
            self.timers.push(Reverse((now + later, Timer::Hold(end, times + 1))));
        }
    }
}

impl Machine for LinkedNic {
    fn drive(&mut self, now: Instant) {
        self.more = false;
        if self.deadline() <= now {
            self.advance(now);
        }
        if let Some(efe) = &mut self.efe {
            self.more |= efe.take(now);
        }
        self.drives = self.drives.wrapping_add(1);
        let is_due = self.drives.is_multiple_of(ASK_EVERY);
        if self.direct.is_empty() || is_due {
            // While the driver is awake, it polls the board. The board's file only serves to wake the
            // driver.
            if is_due || self.board.is_none() {
                self.ask(now);
            }
            self.look_at_shared(now);
            self.look_at_board(now);
        } else {
            for index in 0..self.direct.len() {
                let Some(&end) = self.direct.get(index) else { break };
                if self.is_worth_a_try(end) {
                    self.read(end, false, now);
                }
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

    fn take_progress(&mut self) -> bool {
        mem::take(&mut self.progress)
    }

    fn deadline(&self) -> Instant {
        let own = self.timers.peek().map_or(Instant::NEVER, |Reverse((at, _))| *at);
        let efe = self.efe.as_ref().map_or(Instant::NEVER, EfeLink::deadline);
        own.min(self.nic.deadline()).min(efe)
    }

    fn has_more(&self) -> bool {
        let is_rung = |end| self.shared_link(end).is_some_and(|link| !link.is_armed());
        let board_is_rung = self.board.as_ref().is_some_and(BoardLink::is_rung);
        self.more || self.armed && (board_is_rung || self.shared.iter().any(is_rung))
    }

    fn arm(&mut self) {
        self.armed = true;
        self.shared.iter().filter_map(|end| self.shared_link(end)).for_each(SharedLink::arm);
        self.arm_board();
        for index in 0..self.direct.len() {
            self.set_interest(self.direct[index]);
        }
    }

    fn disarm(&mut self) -> Option<u64> {
        self.armed = false;
        let rung = self.shared.iter().filter_map(|end| self.shared_link(end)?.disarm()).min();
        rung.into_iter().chain(self.board.as_ref().and_then(BoardLink::disarm)).min()
    }

    fn after_sleep(&mut self) {
        self.drives = ASK_EVERY - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Connect, Context, QpOptions};
    use std::net::{Ipv4Addr, SocketAddr};

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_timer_of_an_earlier_end_with_the_same_number_does_nothing() {
        let [one, two] = [(); 2].map(|()| Context::open(&Lower::Tcp { from: None }).expect("sockets"));
        let sides = [&one, &two].map(|context| {
            let cq = context.create_cq(16).expect("room");
            let pd = context.alloc_pd().expect("room");
            let qp = pd.create_qp(&cq, &cq, QpOptions::default()).expect("room");
            (pd, cq, qp)
        });
        let [(_, _, from), (_, _, to)] = &sides;
        let at = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let listener = two.listen(at.into(), &Connect::default()).expect("an address");
        let _ends = std::thread::scope(|scope| {
            let accepts = || listener.request(LONG)?.accept(to, &Connect::default());
            let accepted = scope.spawn(accepts);
            let connected = from.connect(listener.address(), &Connect::default(), LONG);
            (connected.expect("there is a listener"), accepted.join().expect("no panic").expect("connected"))
        });
        one.turn.work(|core, now| {
            let ends: Vec<u32> = core.connections.keys().copied().collect();
            assert_eq!(ends.len(), 1);
            core.timers.extend(ends.into_iter().map(|end| Reverse((now, Timer::Farewell(end)))));
            core.advance(now);
            assert_eq!(core.connections.len(), 1);
        });
    }
}
