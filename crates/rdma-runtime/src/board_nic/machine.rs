//! The rings, the objects, and what the board reports about them.

use super::door::Door;
use super::queues::{CqRing, PostedWork};
use crate::error::Error;
use crate::linked_nic::EndState;
use kiban_base::ring::{Consumer, Poisoned, Producer};
use kiban_base::{Instant, Region};
use kiban_os::channel::{Channel, FRONT_BYTES};
use kiban_os::clock::machine_nanos;
use kiban_os::turn::{Machine, watch};
use kiban_rdma::hif::{Answer, ENTRY_BYTES, Layout, Notice, Refusal, Request, Transport};
use kiban_rdma::nic::{self, ConnectError};
use kiban_rdma::rnic::{
    Completion, Data, Event, Kind, QpAttributes, ReceiveWork, RequestError, SendWork, Status,
};
use kiban_streams::board_gone_error;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// Number of `drive` calls after which a driver that does not sleep checks whether the board still exists.
const CHECK_EVERY: u32 = 4096;

/// The addresses of both ends of a connection, ours first.
type Addresses = (Option<SocketAddr>, Option<SocketAddr>);

/// A board's NIC.
pub(crate) struct BoardNic {
    channel: Channel,
    transport: Transport,
    work: Producer,
    /// Requests that did not fit into the ring.
    waiting: VecDeque<Vec<u8>>,
    notices: Consumer,
    /// Notices taken since the board last learned of room.
    taken: usize,
    ring_pending: bool,
    numbers: u32,
    /// Requests whose reply is wanted, and whether the reply is the number of an end.
    wanted: BTreeMap<u32, bool>,
    replies: BTreeMap<u32, Result<Answer, Refusal>>,
    /// Keys of regions and windows.
    keys: BTreeSet<u32>,
    cqs: BTreeMap<u32, CqRing>,
    qps: BTreeMap<u32, PostedWork>,
    /// Shared receive queues: capacity, and posted receives.
    srqs: BTreeMap<u32, (usize, usize)>,
    pub(crate) end_states: HashMap<u32, EndState>,
    addresses: HashMap<u32, Addresses>,
    /// IRD and ORD of connections.
    depths: HashMap<u32, (u16, u16)>,
    requests: VecDeque<nic::Request>,
    /// Ends whose state has changed, if they are followed ([`BoardNic::follow_all`]).
    changed: Option<VecDeque<u32>>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) cq_events: VecDeque<u32>,
    pub(crate) has_gone: bool,
    progress: bool,
    drives: u32,
}

impl BoardNic {
    /// Attaches to a board.
    ///
    /// # Errors
    /// No board with that name has a service of kind `rdma`, or it refuses.
    pub(crate) fn attach(
        name: Option<&str>,
        transport: Transport,
        epoll: &OwnedFd,
    ) -> io::Result<(BoardNic, Door)> {
        let (door, channel) = Door::open(name)?;
        watch(epoll, channel.socket(), false)?;
        let (memory, layout) = (channel.region().clone(), Layout::new(FRONT_BYTES));
        let nic = BoardNic {
            work: Producer::new(&memory, layout.work_at(), layout.work()),
            notices: Consumer::new(&memory, layout.notices_at(), layout.notices()),
            channel,
            transport,
            waiting: VecDeque::new(),
            taken: 0,
            ring_pending: false,
            numbers: 0,
            wanted: BTreeMap::new(),
            replies: BTreeMap::new(),
            keys: BTreeSet::new(),
            cqs: BTreeMap::new(),
            qps: BTreeMap::new(),
            srqs: BTreeMap::new(),
            end_states: HashMap::new(),
            addresses: HashMap::new(),
            depths: HashMap::new(),
            requests: VecDeque::new(),
            changed: None,
            events: VecDeque::new(),
            cq_events: VecDeque::new(),
            has_gone: false,
            progress: false,
            drives: 0,
        };
        Ok((nic, door))
    }

    pub(crate) fn transport(&self) -> Transport {
        self.transport
    }

    // ---- requests

    /// Sends a request whose reply nobody waits for.
    pub(crate) fn tell(&mut self, request: &Request) {
        if let Some(bytes) = request.to_bytes(0) {
            self.send(bytes);
        }
    }

    /// Sends a request. Returns its number, for [`BoardNic::reply`].
    pub(crate) fn ask(&mut self, request: &Request) -> Result<u32, Error> {
        if self.has_gone {
            return Err(board_gone_error().into());
        }
        // Zero is the number of requests without a reply.
        self.numbers = self.numbers.wrapping_add(1).max(1);
        let bytes = request.to_bytes(self.numbers).ok_or_else(too_long)?;
        self.wanted.insert(self.numbers, matches!(request, Request::Connect { .. }));
        self.send(bytes);
        Ok(self.numbers)
    }

    /// Returns the reply to a request, once it has arrived.
    pub(crate) fn reply(&mut self, number: u32) -> Option<Result<Answer, Error>> {
        if let Some(result) = self.replies.remove(&number) {
            return Some(result.map_err(|refusal| match refusal {
                Refusal::Request(error) => error.into(),
                Refusal::Other(text) => io::Error::other(text).into(),
            }));
        }
        self.has_gone.then(|| Err(board_gone_error().into()))
    }

    /// Gives up waiting for a reply.
    pub(crate) fn forget_reply(&mut self, number: u32) {
        self.wanted.remove(&number);
        self.replies.remove(&number);
    }

    fn send(&mut self, bytes: Vec<u8>) {
        if !self.has_gone {
            self.waiting.push_back(bytes);
            self.send_waiting();
        }
    }

    fn send_waiting(&mut self) {
        while let Some(bytes) = self.waiting.front() {
            match self.work.push(bytes) {
                Ok(true) => drop(self.waiting.pop_front()),
                Ok(false) => break,
                Err(Poisoned) => return self.lose_board(),
            }
            self.ring_pending = true;
        }
    }

    fn ring(&mut self) {
        if std::mem::take(&mut self.ring_pending) {
            self.channel.ring(machine_nanos);
        }
    }

    // ---- queues

    pub(crate) fn add_key(&mut self, key: u32) {
        self.keys.insert(key);
    }

    pub(crate) fn remove_key(&mut self, key: u32) {
        self.keys.remove(&key);
    }

    pub(crate) fn add_cq(&mut self, cq: u32, memory: Region, entries: usize) {
        self.cqs.insert(cq, CqRing::new(memory, entries));
    }

    pub(crate) fn remove_cq(&mut self, cq: u32) {
        self.cqs.remove(&cq);
    }

    pub(crate) fn add_srq(&mut self, srq: u32, work_max: usize) {
        self.srqs.insert(srq, (work_max, 0));
    }

    pub(crate) fn remove_srq(&mut self, srq: u32) {
        self.srqs.remove(&srq);
    }

    pub(crate) fn add_qp(&mut self, qp: u32, attributes: QpAttributes) {
        self.qps.insert(qp, PostedWork::new(attributes));
    }

    pub(crate) fn remove_qp(&mut self, qp: u32) {
        self.qps.remove(&qp);
    }

    /// Returns the numbers of queue pairs, keys and connections.
    pub(crate) fn in_use(&self) -> (usize, usize, usize) {
        (self.qps.len(), self.keys.len(), self.end_states.len())
    }

    /// Returns the capacity of a shared receive queue.
    pub(crate) fn srq_capacity(&self, srq: u32) -> Option<usize> {
        self.srqs.get(&srq).map(|&(capacity, _)| capacity)
    }

    /// Returns how many more sends may be posted.
    pub(crate) fn room_for_sends(&self, qp: u32) -> usize {
        self.qps
            .get(&qp)
            .map_or(0, |posted| posted.attributes.send_work_max.saturating_sub(posted.sends.len()))
    }

    /// Returns whether a queue pair has sends that are not known to be complete.
    pub(crate) fn has_sends(&self, qp: u32) -> bool {
        self.qps.get(&qp).is_some_and(|posted| !posted.sends.is_empty())
    }

    /// Forgets the work of a queue pair that has been reset.
    pub(crate) fn reset_qp(&mut self, qp: u32) {
        if let Some(work) = self.qps.get_mut(&qp) {
            *work = PostedWork::new(work.attributes);
        }
    }

    /// Requests one notification for the next completion.
    pub(crate) fn arm_cq(&mut self, cq: u32) {
        if let Some(ring) = self.cqs.get_mut(&cq) {
            ring.is_armed = true;
        }
    }

    pub(crate) fn poll(&mut self, cq: u32) -> Option<Completion> {
        let (completion, is_room) = match self.cqs.get_mut(&cq)?.poll() {
            Ok(polled) => polled,
            Err(Poisoned) => {
                self.lose_board();
                return None;
            }
        };
        if is_room {
            self.tell(&Request::Room { cq });
            self.ring();
        }
        let completion = completion?;
        if let Some(work) = self.qps.get_mut(&completion.qp) {
            work.on_completion(&completion);
            let srq = work.attributes.srq.filter(|_| PostedWork::is_receive(&completion));
            if let Some((_, posted)) = srq.and_then(|srq| self.srqs.get_mut(&srq)) {
                *posted = posted.saturating_sub(1);
            }
        }
        Some(completion)
    }

    pub(crate) fn post_send(&mut self, qp: u32, work: SendWork) -> Result<(), Error> {
        if self.has_gone {
            return Err(board_gone_error().into());
        }
        let posted = self.qps.get_mut(&qp).ok_or(RequestError::UnknownQp)?;
        let its = &posted.attributes;
        if posted.sends.len() >= its.send_work_max {
            return Err(RequestError::Full.into());
        }
        match &work.data {
            Data::Elements(sges) if sges.len() > its.send_sges_max => {
                return Err(RequestError::TooManyElements.into());
            }
            Data::Inline(bytes) if bytes.len() > its.inline_bytes_max => {
                return Err(RequestError::TooMuchInline.into());
            }
            _ => {}
        }
        let entry = (work.id, work.signalled || its.signal_all);
        let bytes = Request::PostSend { qp, work }.to_bytes(0).ok_or(RequestError::OtherKind)?;
        posted.sends.push_back(entry);
        self.send(bytes);
        Ok(())
    }

    pub(crate) fn post_receive(&mut self, qp: u32, work: ReceiveWork) -> Result<(), Error> {
        if self.has_gone {
            return Err(board_gone_error().into());
        }
        let posted = self.qps.get_mut(&qp).ok_or(RequestError::UnknownQp)?;
        let its = &posted.attributes;
        if its.srq.is_some() || posted.receives.len() >= its.receive_work_max {
            return Err(RequestError::Full.into());
        }
        if work.sges.len() > its.receive_sges_max {
            return Err(RequestError::TooManyElements.into());
        }
        posted.receives.push_back(work.id);
        self.tell(&Request::PostReceive { qp, work });
        Ok(())
    }

    pub(crate) fn post_srq_receive(&mut self, srq: u32, work: ReceiveWork) -> Result<(), Error> {
        if self.has_gone {
            return Err(board_gone_error().into());
        }
        let (most, posted) = self.srqs.get_mut(&srq).ok_or(RequestError::UnknownSrq)?;
        if *posted >= *most {
            return Err(RequestError::Full.into());
        }
        if work.sges.len() > kiban_rdma::hif::SGES_MAX {
            return Err(RequestError::TooManyElements.into());
        }
        *posted += 1;
        self.tell(&Request::PostSrqReceive { srq, work });
        Ok(())
    }

    // ---- connections

    /// Aborts every connection.
    pub(crate) fn abort_all(&mut self) {
        let qps: Vec<u32> = self.qps.keys().copied().collect();
        qps.into_iter().for_each(|qp| self.tell(&Request::AbortQp { qp }));
    }

    /// Returns the next request at a listener, and the peer's address.
    pub(crate) fn request(&mut self, listener: u32) -> Option<(nic::Request, Option<SocketAddr>)> {
        let at = self.requests.iter().position(|request| request.listener == listener)?;
        let request = self.requests.remove(at)?;
        let from = self.addresses.get(&request.end).and_then(|addresses| addresses.1);
        Some((request, from))
    }

    /// Makes [`BoardNic::changed`] report every end whose state changes.
    pub(crate) fn follow_all(&mut self) {
        self.changed = Some(VecDeque::new());
    }

    /// Returns the next end whose state has changed.
    pub(crate) fn changed(&mut self) -> Option<u32> {
        self.changed.as_mut()?.pop_front()
    }

    /// Reports the state of an end again, which may have changed before it had an owner.
    pub(crate) fn report(&mut self, end: u32) {
        self.note_change(end);
    }

    fn note_change(&mut self, end: u32) {
        if let Some(changed) = &mut self.changed {
            changed.push_back(end);
            self.progress = true;
        }
    }

    /// Returns the next request at any listener.
    pub(crate) fn next_request(&mut self) -> Option<nic::Request> {
        self.requests.pop_front()
    }

    /// Returns IRD and ORD of a connected end.
    pub(crate) fn depths(&self, end: u32) -> (u16, u16) {
        self.depths.get(&end).copied().unwrap_or_default()
    }

    pub(crate) fn unlisten(&mut self, listener: u32) {
        self.tell(&Request::Unlisten { transport: self.transport, listener });
        let (theirs, others) = self.requests.drain(..).partition(|request| request.listener == listener);
        self.requests = others;
        let theirs: VecDeque<nic::Request> = theirs;
        theirs.into_iter().for_each(|request| self.release(request.end));
    }

    pub(crate) fn release(&mut self, end: u32) {
        self.forget_end(end);
        self.tell(&Request::Release { end });
    }

    /// Forgets an end, which the board releases with its queue pair.
    pub(crate) fn forget_end(&mut self, end: u32) {
        self.end_states.remove(&end);
        self.addresses.remove(&end);
        self.depths.remove(&end);
    }

    pub(crate) fn addresses(&self, end: u32) -> Option<(SocketAddr, SocketAddr)> {
        let (own, peer) = self.addresses.get(&end)?;
        (*own).zip(*peer)
    }

    // ---- notices

    fn take_notices(&mut self) {
        let mut entry = [0; ENTRY_BYTES];
        loop {
            let length = match self.notices.peek() {
                Ok(Some(bytes)) => bytes.copy_to(0, &mut entry),
                Ok(None) => return,
                Err(Poisoned) => return self.lose_board(),
            };
            self.notices.release();
            self.taken += 1;
            if self.taken >= self.notices.shape().slots() / 4 {
                // The board may have found the ring full.
                self.taken = 0;
                self.ring_pending = true;
            }
            match Notice::from_bytes(&entry[..length]) {
                Some(notice) => self.on_notice(notice),
                None => return self.lose_board(),
            }
            self.progress = true;
        }
    }

    fn on_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Reply { number, result } => {
                let Some(is_end) = self.wanted.remove(&number) else { return };
                if let (true, Ok(Answer::Number(end))) = (is_end, &result) {
                    self.end_states.insert(*end, EndState::default());
                }
                self.replies.insert(number, result);
            }
            Notice::ConnectRequest { end, listener, depths, extensions, addresses, private_data } => {
                self.end_states.insert(end, EndState::default());
                self.addresses.insert(end, addresses);
                let request = nic::Request { end, listener, private_data, depths, extensions };
                self.requests.push_back(request);
            }
            Notice::Connected { end, depths, addresses, private_data } => {
                if let Some(state) = self.end_states.get_mut(&end) {
                    state.connected = Some(private_data);
                    self.addresses.insert(end, addresses);
                    self.depths.insert(end, depths);
                    self.note_change(end);
                }
            }
            Notice::Failed { end, error } => {
                if let Some(state) = self.end_states.get_mut(&end) {
                    state.failed = Some(error);
                    self.note_change(end);
                }
            }
            Notice::Withdrawn { end } => {
                let before = self.requests.len();
                self.requests.retain(|request| request.end != end);
                if self.requests.len() < before {
                    self.release(end);
                } else if let Some(state) = self.end_states.get_mut(&end) {
                    state.gone = true;
                    self.note_change(end);
                }
            }
            Notice::Gone { end } => {
                if let Some(state) = self.end_states.get_mut(&end) {
                    state.gone = true;
                    self.note_change(end);
                }
            }
            Notice::Event(event) => self.events.push_back(event),
        }
    }

    /// Handles the loss of the board: ends all connections, and flushes incomplete work.
    fn lose_board(&mut self) {
        if std::mem::replace(&mut self.has_gone, true) {
            return;
        }
        self.progress = true;
        self.waiting.clear();
        self.requests.clear();
        for state in self.end_states.values_mut() {
            state.gone = true;
            state.failed.get_or_insert(ConnectError::Lost);
        }
        if let Some(changed) = &mut self.changed {
            changed.extend(self.end_states.keys());
        }
        for (&qp, posted) in &mut self.qps {
            let completion = |id, kind, status| Completion {
                id,
                status,
                kind,
                bytes: 0,
                qp,
                immediate: None,
                invalidated: None,
                source: None,
            };
            if let Some(cq) = self.cqs.get_mut(&posted.attributes.send_cq) {
                posted.sends.drain(..).for_each(|(id, _)| cq.flush(completion(id, Kind::Send, Status::Lost)));
            }
            if let Some(cq) = self.cqs.get_mut(&posted.attributes.receive_cq) {
                let ids = posted.receives.drain(..);
                ids.for_each(|id| cq.flush(completion(id, Kind::Receive, Status::Flushed)));
            }
        }
    }

    fn check_board(&mut self) {
        if !self.has_gone && self.channel.is_gone() {
            // What the board has reported before its end is still valid.
            self.take_notices();
            self.lose_board();
        }
    }
}

fn too_long() -> Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the private data is too long: use at most 508 bytes").into()
}

impl Machine for BoardNic {
    fn drive(&mut self, _: Instant) {
        self.send_waiting();
        self.take_notices();
        self.drives = self.drives.wrapping_add(1);
        if self.drives.is_multiple_of(CHECK_EVERY) {
            self.check_board();
        }
        for (&cq, ring) in &mut self.cqs {
            if ring.is_armed && ring.is_ready() {
                ring.is_armed = false;
                self.cq_events.push_back(cq);
                self.progress = true;
            }
            self.progress |= ring.announce();
        }
        self.ring();
    }

    fn settle(&mut self, _: Instant) {}

    fn flush(&mut self, _: Instant) {
        self.ring();
    }

    fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.progress)
    }

    fn deadline(&self) -> Instant {
        Instant::NEVER
    }

    fn has_more(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn arm(&mut self) {
        self.channel.own_bell().arm();
    }

    fn disarm(&mut self) -> Option<u64> {
        self.channel.own_bell().disarm()
    }

    fn after_sleep(&mut self) {
        self.check_board();
    }
}
