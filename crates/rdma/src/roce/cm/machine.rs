//! The table of connections, its indices, timers and queues.

use super::config::CmConfig;
use super::connection::{Connection, QpKey, RequestKey, State};
use super::counters::CmCounters;
use super::interface::{CmError, CmEvent, ConnectionId, Transmit};
use crate::wire::roce::PORT;
use crate::wire::roce::cm::{Message, Rej, RejectReason, RejectedMessage, timeout};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use kiban_base::{Instant, RngKey, SecureRng};

/// Communication management of one channel adapter.
#[derive(Debug)]
pub struct Cm {
    pub(super) config: CmConfig,
    pub(super) services: BTreeSet<u64>,
    pub(super) counters: CmCounters,
    pub(super) rng: SecureRng,
    /// By local communication id. Changed only through `insert`, `update` and `remove`, which keep the
    /// following indices.
    connections: BTreeMap<u32, Connection>,
    by_request: BTreeMap<RequestKey, u32>,
    /// The connections whose peer's queue pair is in use.
    by_qp: BTreeMap<QpKey, u32>,
    /// The numbers of peers' requests that are not established, and of those of each address.
    pending: usize,
    pending_of: BTreeMap<IpAddr, usize>,
    timers: BTreeSet<(Instant, u32)>,
    time_waits: BTreeSet<(Instant, u32)>,
    transmits: VecDeque<Transmit>,
    events: VecDeque<CmEvent>,
}

/// Returns an address for comparing and sending: with RoCEv2's port in place of the peer's source port.
pub(super) fn normal(mut address: SocketAddr) -> SocketAddr {
    address.set_port(PORT);
    if let SocketAddr::V6(v6) = &mut address {
        v6.set_flowinfo(0);
    }
    address
}

/// Copies private data into the field of a message.
pub(super) fn padded<const BYTES: usize>(data: &[u8]) -> Result<[u8; BYTES], CmError> {
    let mut field = [0; BYTES];
    field.get_mut(..data.len()).ok_or(CmError::PrivateData)?.copy_from_slice(data);
    Ok(field)
}

/// Returns a REJ without private data and additional information.
pub(super) fn rej(
    local_comm_id: u32,
    remote_comm_id: u32,
    message: RejectedMessage,
    reason: RejectReason,
) -> Rej {
    Rej {
        local_comm_id,
        remote_comm_id,
        message,
        information_bytes: 0,
        reason,
        information: [0; 72],
        private_data: [0; Rej::PRIVATE_BYTES],
    }
}

impl Cm {
    /// Creates the state of a channel adapter without connections. `key` seeds the generator of communication
    /// and transaction ids.
    pub fn new(config: CmConfig, key: RngKey) -> Cm {
        Cm {
            config,
            services: BTreeSet::new(),
            counters: CmCounters::default(),
            rng: SecureRng::new(key),
            connections: BTreeMap::new(),
            by_request: BTreeMap::new(),
            by_qp: BTreeMap::new(),
            pending: 0,
            pending_of: BTreeMap::new(),
            timers: BTreeSet::new(),
            time_waits: BTreeSet::new(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> &CmCounters {
        &self.counters
    }

    /// Returns the number of connections and resolutions, including those in TimeWait.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Returns the next MAD to be sent.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<CmEvent> {
        self.events.pop_front()
    }

    /// Returns whether an event says that a peer has ended its connection.
    pub fn has_disconnected(&self) -> bool {
        self.events.iter().any(|event| matches!(event, CmEvent::Disconnected { .. }))
    }

    /// Returns when [`Cm::advance`] is due; `None`: not without another call.
    pub fn deadline(&self) -> Option<Instant> {
        let firsts = [self.timers.first(), self.time_waits.first()];
        firsts.into_iter().flatten().map(|(at, _)| *at).min()
    }

    /// Retransmits, gives up, and leaves TimeWait, as far as that is due.
    pub fn advance(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.time_waits.first()
            && at <= now
        {
            self.remove(id);
        }
        // A timer that is set in this loop is later than `now`.
        while let Some(&(at, id)) = self.timers.first()
            && at <= now
        {
            self.on_timeout(id, now);
        }
    }

    fn on_timeout(&mut self, id: u32, now: Instant) {
        let is_retry = self.update(id, |connection| {
            let is_retry = connection.retries_left > 0;
            if is_retry {
                connection.retries_left -= 1;
                connection.deadline = Some(now + connection.patience.interval);
            }
            is_retry
        });
        if is_retry {
            self.counters.retransmits += 1;
            return self.send_again(id);
        }
        self.counters.timeouts += 1;
        let connection = ConnectionId(id);
        match self.get(id).state {
            State::ReqSent => {
                self.event(id, CmEvent::TimedOut { connection });
                self.withdraw(id);
            }
            State::RepSent => {
                self.event(id, CmEvent::TimedOut { connection });
                let rej = self.timeout_rej(id, RejectedMessage::Rep);
                self.end_with(id, Message::Rej(rej), now);
            }
            State::DreqSent => {
                let private_data = alloc::vec::Vec::new();
                self.event(id, CmEvent::Disconnected { connection, private_data });
                self.update(id, |connection| connection.end(None, now));
            }
            _ => {
                self.event(id, CmEvent::TimedOut { connection });
                self.remove(id);
            }
        }
    }

    /// Tells the peer that the answer to a REQ is not awaited any more, and forgets the connection.
    pub(super) fn withdraw(&mut self, id: u32) {
        let rej = self.timeout_rej(id, RejectedMessage::Req);
        self.send(id, Message::Rej(rej));
        self.remove(id);
    }

    /// Returns a REJ because the peer has not answered `message` in time.
    fn timeout_rej(&self, id: u32, message: RejectedMessage) -> Rej {
        let remote = self.get(id).remote_id.unwrap_or(0);
        let mut rej = rej(id, remote, message, RejectReason::TIMEOUT);
        // IBTA volume 1 §12.6.7.2: the GUID, by which a receiver finds the connection without its own id.
        rej.information[..8].copy_from_slice(&self.config.ca_guid.to_be_bytes());
        rej.information_bytes = 8;
        rej
    }

    // ---- the table

    /// Returns a connection that exists.
    pub(super) fn get(&self, id: u32) -> &Connection {
        self.connections.get(&id).expect("the id is that of a connection")
    }

    /// Returns a connection.
    pub(super) fn find(&self, id: u32) -> Option<&Connection> {
        self.connections.get(&id)
    }

    /// Returns the connection that a peer's request began.
    pub(super) fn by_request(&self, key: RequestKey) -> Option<u32> {
        self.by_request.get(&key).copied()
    }

    /// Returns the connection of a peer's queue pair.
    pub(super) fn by_qp(&self, key: QpKey) -> Option<u32> {
        self.by_qp.get(&key).copied()
    }

    /// Changes a connection that exists.
    pub(super) fn update<T>(&mut self, id: u32, change: impl FnOnce(&mut Connection) -> T) -> T {
        let mut connection = self.connections.remove(&id).expect("the id is that of a connection");
        self.unindex(id, &connection);
        let result = change(&mut connection);
        self.insert(id, connection);
        result
    }

    /// Adds a connection under an id that is free.
    pub(super) fn insert(&mut self, id: u32, connection: Connection) {
        if let Some(key) = connection.request {
            self.by_request.insert(key, id);
        }
        if let Some(key) = connection.remote_qp
            && connection.state != State::TimeWait
        {
            self.by_qp.insert(key, id);
        }
        if connection.state.is_pending() {
            self.pending += 1;
            *self.pending_of.entry(connection.peer.ip()).or_default() += 1;
        }
        if let Some(deadline) = connection.deadline {
            self.timers_of(connection.state).insert((deadline, id));
        }
        self.connections.insert(id, connection);
    }

    fn unindex(&mut self, id: u32, connection: &Connection) {
        if let Some(key) = connection.request {
            self.by_request.remove(&key);
        }
        if let Some(key) = connection.remote_qp
            && connection.state != State::TimeWait
        {
            self.by_qp.remove(&key);
        }
        if connection.state.is_pending() {
            self.pending -= 1;
            let of_peer = self.pending_of.get_mut(&connection.peer.ip()).expect("it was counted");
            *of_peer -= 1;
            if *of_peer == 0 {
                self.pending_of.remove(&connection.peer.ip());
            }
        }
        if let Some(deadline) = connection.deadline {
            self.timers_of(connection.state).remove(&(deadline, id));
        }
    }

    fn timers_of(&mut self, state: State) -> &mut BTreeSet<(Instant, u32)> {
        if state == State::TimeWait { &mut self.time_waits } else { &mut self.timers }
    }

    /// Forgets a connection.
    pub(super) fn remove(&mut self, id: u32) {
        let connection = self.connections.remove(&id).expect("the id is that of a connection");
        self.unindex(id, &connection);
        if connection.was_connected && !connection.is_aborted {
            self.events.push_back(CmEvent::TimeWaitExit { connection: ConnectionId(id) });
        }
    }

    /// Returns whether another connection fits; if necessary, one leaves TimeWait.
    pub(super) fn make_room(&mut self) -> bool {
        if self.connections.len() < self.config.connections_max {
            return true;
        }
        let Some(&(_, id)) = self.time_waits.first() else { return false };
        self.counters.time_waits_evicted += 1;
        self.remove(id);
        true
    }

    /// Returns whether another request of a peer fits.
    pub(super) fn make_room_for_request(&mut self, peer: IpAddr) -> bool {
        let of_peer = self.pending_of.get(&peer).copied().unwrap_or(0);
        self.pending < self.config.requests_max
            && of_peer < self.config.requests_per_peer_max
            && self.events.len() < self.config.events_max
            && self.make_room()
    }

    /// Draws an id that is free and not zero, because zero means "unknown" in a REJ.
    pub(super) fn draw_id(&mut self) -> u32 {
        loop {
            let drawn = self.rng.draw_u32();
            let id = self.config.id_prefix.map_or(drawn, |prefix| u32::from(prefix) << 16 | drawn & 0xffff);
            if id != 0 && !self.connections.contains_key(&id) {
                return id;
            }
        }
    }

    /// Returns the time in TimeWait for the code of an ACK timeout. It is long enough that packets which are
    /// still on their way begin no new connection.
    pub(super) fn time_wait(&self, ack_timeout: u8) -> Duration {
        (2 * timeout(ack_timeout).max(timeout(self.config.packet_lifetime))).min(self.config.timeout_max)
    }

    /// Returns how long to wait for a peer that answers within the time of a code. `transmissions` such waits
    /// are limited together.
    pub(super) fn interval(&self, code: u8, transmissions: u8) -> Duration {
        let limit = self.config.timeout_max / u32::from(transmissions);
        timeout(code).min(limit) + 2 * timeout(self.config.packet_lifetime)
    }

    // ---- the queues

    /// Queues an event, unless the caller has forgotten the connection.
    pub(super) fn event(&mut self, id: u32, event: CmEvent) {
        if !self.get(id).is_aborted {
            self.events.push_back(event);
        }
    }

    /// Queues a MAD. If there is no room it is dropped, like one that the network loses.
    pub(super) fn transmit(&mut self, to: SocketAddr, from: IpAddr, message: &Message, transaction: u64) {
        if self.transmits.len() >= self.config.transmits_max {
            self.counters.transmits_dropped += 1;
            return;
        }
        self.counters.mads_out += 1;
        self.transmits.push_back(Transmit { to, from, mad: message.mad(transaction) });
    }

    /// Sends a message to the peer of a connection, with the transaction id of its last message.
    pub(super) fn send(&mut self, id: u32, message: Message) {
        let Connection { peer, local, transaction, .. } = *self.get(id);
        self.transmit(peer, local, &message, transaction);
    }

    /// Sends the last message of a connection again.
    pub(super) fn send_again(&mut self, id: u32) {
        if let Some(message) = self.get(id).sent {
            self.send(id, message);
        }
    }

    /// Sends a message that answers duplicates from now on, and enters TimeWait.
    pub(super) fn end_with(&mut self, id: u32, message: Message, now: Instant) {
        self.send(id, message);
        self.update(id, |connection| connection.end(Some(message), now));
    }
}
