//! Moves the bytes of connections, and accepts connections.

use super::carrier::is_unmapped;
use super::file::File;
use super::line::{Connection, ListenSocket, MpaListener, SharedMemoryOffer};
use super::state::{CLOSE_TIMEOUT, LinkedNic, ROOM_BYTES, Timer};
use kiban_base::Instant;
use kiban_rdma::nic::ConnectError;
use kiban_rdma::rnic::StreamAction;
use rustix::event::epoll::{self, EventFlags};
use std::cmp::Reverse;
use std::mem;
use std::os::fd::AsFd;
use std::time::Duration;

/// Maximum number of bytes that a connection reads or writes before it is the next connection's turn.
const BUDGET_BYTES: usize = 4 << 20;
/// Maximum number of connections that are tried directly, without epoll.
const DIRECT_MAX: usize = 2;
/// Number of failed tries, while another connection received something, after which a connection is not
/// tried until epoll reports it. Otherwise, programs that keep an idle connection in addition to the active
/// one (such as perftest) would pay for both.
const QUIET_TRIES: u32 = 64;
/// How long a listener is paused when the process is out of file descriptors.
const LISTENER_PAUSE: Duration = Duration::from_millis(100);

impl LinkedNic {
    /// Selects the connections to try directly, if there are few.
    pub(super) fn choose_direct(&mut self) {
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
    pub(super) fn is_worth_a_try(&mut self, end: u32) -> bool {
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
    pub(super) fn drain_closing_stream(&mut self, number: u32) {
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

    pub(super) fn ask(&mut self, now: Instant) {
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
                Some(File::Efe(port)) => {
                    if let Some(efe) = &mut self.efe {
                        efe.on_event(port, { flags }.intersects(EventFlags::ERR), now);
                        // The event is not repeated, and the ports were looked at before.
                        self.more = true;
                    }
                }
                Some(File::Roce) | None => {}
            }
        }
    }

    pub(super) fn accept_connections(&mut self, number: u32, now: Instant) {
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

    pub(super) fn on_writable(&mut self, end: u32, now: Instant) {
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

    /// Reads available bytes for an end. `over` says whether the end's stream is closed in both directions or
    /// lost.
    pub(super) fn read(&mut self, end: u32, over: bool, now: Instant) {
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
                // A Terminate follows; the rest of the stream is read and ignored.
                Err(error) if landing > 0 && is_unmapped(&error) => {
                    stream.on_unmapped(core);
                    continue;
                }
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

    /// Handles the end of a stream. `in_order` is true if the peer closed its direction.
    pub(super) fn on_stream_end(&mut self, end: u32, in_order: bool, now: Instant) {
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
    pub(super) fn write(&mut self, end: u32, now: Instant) {
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
    pub(super) fn peer_left(&mut self, end: u32) {
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
    pub(super) fn set_interest(&mut self, end: u32) {
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
}
