//! An end of a RoCEv2 connection: an engine with a queue pair, as the verbs libraries use it.

use crate::rdma::{PATIENCE, RING_BYTES};
use kiban_base::{Region, SharedBytes, Wait};
use kiban_os::Clock;
use kiban_rdma_runtime::verbs::{
    Access, Channel, Completion, CqChannels, Engine, Features, Notify, Peer, QpAttributes, QueuePair,
    Sending, Service, Sge, Sges, Status, Wire,
};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The address of the memory that an end registers.
pub(super) const BASE: u64 = 1 << 32;
/// The initial PSN of both ends.
const PSN: u32 = 1000;
/// How long a requester waits for an acknowledgement: timeout 14, perftest's default.
const ACK_TIMEOUT: Duration = Duration::from_micros(67_109);
/// Number of polls between two looks at the clock.
const POLLS: usize = 1 << 12;

/// One end: receives and sends have separate completion queues.
pub(super) struct End {
    pub(super) engine: Engine,
    address: IpAddr,
    waits: Wait,
    pd: u32,
    pub(super) received: Queue,
    pub(super) sent: Queue,
    pub(super) key: u32,
    async_events: Arc<Channel<kiban_rdma_runtime::verbs::AsyncEvent>>,
}

/// A completion queue, and the channel of its notifications.
pub(super) struct Queue {
    number: u32,
    channel: Arc<Channel<u64>>,
}

impl End {
    /// Opens an engine without shared memory, registers a ring of blocks, and creates completion queues.
    pub(super) fn open(address: IpAddr, waits: Wait) -> End {
        let features = Features { extensions: true, shared_memory: false, wire: Wire::Roce };
        let engine = Engine::open(features).expect("sockets");
        let pd = engine.alloc_pd().expect("room");
        let ring = Region::new(BASE, RING_BYTES);
        let noise = crate::noise::noise(2, RING_BYTES);
        ring.write(BASE, SharedBytes::from(&noise[..])).expect("it fits");
        let key = engine.reg_mr(pd, ring, BASE, Access::ALL).expect("room");
        let async_events = Arc::new(Channel::new().expect("files"));
        let queue = |entries| {
            let channel = Arc::new(Channel::new().expect("files"));
            let events = async_events.clone();
            let channels = CqChannels { completions: Some(channel.clone()), async_events: events, cookie: 0 };
            Queue { number: engine.create_cq(entries, channels).expect("room"), channel }
        };
        let (received, sent) = (queue(64), queue(1024));
        End { engine, address, waits, pd, received, sent, key, async_events }
    }

    /// Creates a queue pair. Returns its number for calls, and the one for its peer.
    pub(super) fn queue_pair(&self) -> (u32, u32) {
        let attributes = QpAttributes {
            pd: self.pd,
            send_cq: self.sent.number,
            receive_cq: self.received.number,
            srq: None,
            send_work_max: 128,
            receive_work_max: 16,
            send_sges_max: 1,
            receive_sges_max: 1,
            inline_bytes_max: 64,
            signal_all: true,
            waits_for_receives: false,
        };
        let async_events = self.async_events.clone();
        let (address, service) = (self.address, Service::Connected);
        let made = QueuePair { address, service, attributes, async_events, cookie: 0 };
        let made = self.engine.create_qp(made).expect("the address is this host's").expect("room");
        self.engine.modify_to_init(made.0, 0).expect("it is new");
        made
    }

    /// Connects a queue pair with a peer's.
    pub(super) fn connect(&self, qp: u32, peer: IpAddr, qpn: u32, path_mtu: usize) {
        let peer = Peer { address: peer, qpn, initial_psn: PSN, reads: 16, path_mtu, rnr_timer: 12 };
        self.engine.modify_to_rtr(qp, Some(peer)).expect("sockets").expect("it is ready");
        let sending = Sending {
            initial_psn: PSN,
            reads: 16,
            connect_timeout: None,
            ack_timeout: Some(ACK_TIMEOUT),
            retries: 7,
            rnr_retries: 7,
        };
        self.engine.modify_to_rts(qp, sending).expect("it receives");
    }

    /// Returns part of the registered memory.
    pub(super) fn block(&self, at: usize, bytes: usize) -> Sges {
        [Sge { stag: self.key, address: BASE + at as u64, length: bytes as u32 }].into_iter().collect()
    }

    fn poll(&self, queue: &Queue) -> Option<Completion> {
        let mut found = None;
        self.engine.poll_cq(queue.number, 1, false, |done| found = Some(done)).expect("it exists");
        found
    }

    /// Waits for the next completion, which must be a success. Returns the identifier and the number of
    /// bytes.
    pub(super) fn next(&self, queue: &Queue) -> (u64, usize) {
        let done = match self.waits {
            Wait::Poll => self.spin(queue),
            _ => self.sleep(queue),
        };
        assert_eq!(done.status, Status::Success);
        (done.id, done.bytes as usize)
    }

    fn spin(&self, queue: &Queue) -> Completion {
        let clock = Clock::new();
        let until = clock.now() + PATIENCE;
        loop {
            if let Some(done) = (0..POLLS).find_map(|_| self.poll(queue)) {
                return done;
            }
            assert!(clock.now() < until, "a completion arrives");
        }
    }

    fn sleep(&self, queue: &Queue) -> Completion {
        loop {
            if let Some(done) = self.poll(queue) {
                return done;
            }
            self.engine.arm_cq(queue.number, Notify::Any).expect("it exists");
            if let Some(done) = self.poll(queue) {
                return done;
            }
            self.engine.next_event(&queue.channel, PATIENCE).expect("a completion arrives");
        }
    }
}
