//! RDMA programs: two sides that transfer memory between them, and check what arrives.
//!
//! Each side registers a source with known contents, a target for the peer and buffers for messages, and
//! sends the location of the target as private data. Once connected, each side performs the transfers of its
//! plan in turn, then waits for the peer's.

use crate::programs::program::Program;
use kiban_base::ethernet::Mac;
use kiban_base::{Instant, Region, SharedBytes};
use kiban_board::{Completion, Host};
use kiban_rdma::nic::CmEvent;
use kiban_rdma::rnic::{
    self, Access, Data, Kind, Operation, QpAttributes, ReceiveWork, SendWork, Sge, Status, TaggedAddress,
};
use kiban_rdma::wire::rdmap::Atomic;
use std::any::Any;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// The address to which a side connects, or at which it listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RdmaAddress {
    /// Over the board's TCP.
    Tcp(SocketAddr),
    /// The listener's address and service, over EFE.
    Efe(Mac, u16),
    /// Over EFE in the board's UDP: the listener's address, and the service.
    EfeUdp(SocketAddr),
    /// Over RoCEv2: the listener's address, and the port of RDMA-CM.
    Roce(SocketAddr),
}

/// How long the connecting side waits over RoCEv2 before it disconnects. The peer's last work request is
/// complete only when it has our acknowledgement, which may be lost several times.
const LINGER: Duration = Duration::from_secs(2);

/// A transfer to or from the peer's memory or queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransferKind {
    /// Write the whole source into the peer's target.
    Write,
    /// Write the whole source into the peer's target, and notify the peer (Write with immediate data).
    WriteAndTell,
    /// Send the whole source as a message, into a receive that the peer has posted.
    Send,
    /// Read the peer's target.
    Read,
    /// Add one to the first eight bytes of the peer's target (an atomic operation).
    Add,
}

/// The results of one side.
#[derive(Clone, Debug, Default)]
pub struct TransferStats {
    /// The transfers in order, each with its status and completion time.
    pub done: Vec<(TransferKind, Status, Instant)>,
    /// When it was connected.
    pub connected: Option<Instant>,
    /// The messages received. For each: whether it had immediate data, and its length in bytes.
    pub received: Vec<(bool, u32)>,
    /// When the connection ended.
    pub gone: Option<Instant>,
}

/// One side.
pub struct Transfer {
    meeting: RdmaAddress,
    asks: bool,
    bytes: usize,
    plan: VecDeque<TransferKind>,
    under_way: Option<TransferKind>,
    /// Number of messages that the peer will send.
    expected: usize,
    source: Region,
    target: Region,
    inbox: Region,
    back: Region,
    numbers: Numbers,
    moved: TransferStats,
    closing: bool,
    /// When the connecting side disconnects.
    closes_at: Instant,
}

#[derive(Default)]
struct Numbers {
    cq: u32,
    qp: u32,
    end: u32,
    source: u32,
    target: u32,
    back: u32,
    peer: TaggedAddress,
}

/// Returns the contents of a side's source; the two sides have different ones.
fn contents(bytes: usize, asks: bool) -> Vec<u8> {
    let step = if asks { 7 } else { 11 };
    (0..bytes).map(|at| (at * step + at / 253) as u8).collect()
}

impl Transfer {
    /// Creates a side that connects (`asks`) or listens, with sources and targets of the given size;
    /// `expected` is the number of messages that the peer's plan sends.
    pub fn new(
        meeting: RdmaAddress,
        asks: bool,
        bytes: usize,
        plan: &[TransferKind],
        expected: usize,
    ) -> Transfer {
        let region = |n: u64| Region::new(n << 32, bytes.max(8));
        let source = region(1);
        source.write(source.address(), SharedBytes::from(&contents(bytes, asks)[..])).expect("it fits");
        Transfer {
            meeting,
            asks,
            bytes,
            plan: plan.iter().copied().collect(),
            under_way: None,
            expected,
            source,
            target: region(2),
            inbox: region(3),
            back: region(4),
            numbers: Numbers::default(),
            moved: TransferStats::default(),
            closing: false,
            closes_at: Instant::NEVER,
        }
    }

    /// Returns the results.
    pub fn moved(&self) -> &TransferStats {
        &self.moved
    }

    /// Returns whether the target holds the contents of the peer's source, after `additions` atomic additions
    /// to it.
    pub fn target_is_right(&self, additions: u64) -> bool {
        let mut expected = contents(self.bytes, !self.asks);
        if let Some(word) = expected.first_chunk_mut::<8>() {
            *word = u64::from_ne_bytes(*word).wrapping_add(additions).to_ne_bytes();
        }
        self.target.read(self.target.address(), self.bytes) == Some(expected)
    }

    /// Returns whether the last message holds the contents of the peer's source.
    pub fn inbox_is_right(&self) -> bool {
        self.inbox.read(self.inbox.address(), self.bytes) == Some(contents(self.bytes, !self.asks))
    }

    /// Returns whether the bytes that were read from the peer's target equal our source, which was written
    /// there before.
    pub fn back_is_right(&self) -> bool {
        self.back.read(self.back.address(), self.bytes) == Some(contents(self.bytes, self.asks))
    }

    fn sge(stag: u32, region: &Region, bytes: usize) -> Sge {
        Sge { stag, address: region.address(), length: bytes as u32 }
    }

    /// Returns the private data: the address and key of our target.
    fn private_data(&self) -> Vec<u8> {
        [&self.numbers.target.to_be_bytes()[..], &self.target.address().to_be_bytes()[..]].concat()
    }

    fn hear(&mut self, private_data: &[u8]) {
        if let Some((stag, offset)) = private_data.split_first_chunk::<4>()
            && let Some(offset) = offset.first_chunk::<8>()
        {
            self.numbers.peer =
                TaggedAddress { stag: u32::from_be_bytes(*stag), offset: u64::from_be_bytes(*offset) };
        }
    }

    fn go_on(&mut self, host: &mut Host<'_>, now: Instant) {
        if self.under_way.is_some() || self.moved.connected.is_none() {
            return;
        }
        let Numbers { qp, source, back, peer, .. } = self.numbers;
        let Some(next) = self.plan.pop_front() else {
            // The connecting side ends the connection when both have finished.
            if self.asks && !self.closing && self.moved.received.len() >= self.expected {
                self.closing = true;
                match self.meeting {
                    RdmaAddress::Roce(_) => self.closes_at = now + LINGER,
                    _ => host.rdma().expect("a NIC").nic().core.disconnect(qp).expect("connected"),
                }
            }
            return;
        };
        let whole = Data::one(Self::sge(source, &self.source, self.bytes));
        let into = |bytes| Data::one(Self::sge(back, &self.back, bytes));
        let (operation, data) = match next {
            TransferKind::Write => (Operation::write(peer), whole),
            TransferKind::WriteAndTell => (Operation::Write { remote: peer, immediate: Some(1) }, whole),
            TransferKind::Send => (Operation::SEND, whole),
            TransferKind::Read => (Operation::read(peer), into(self.bytes)),
            TransferKind::Add => {
                (Operation::Atomic { remote: peer, atomic: Atomic::FetchAdd { add: 1, mask: 0 } }, into(8))
            }
        };
        self.under_way = Some(next);
        let mut rdma = host.rdma().expect("a NIC");
        rdma.nic().core.post_send(qp, SendWork::new(0, operation, data)).expect("room");
    }

    fn look(&mut self, host: &mut Host<'_>, now: Instant) {
        loop {
            let mut rdma = host.rdma().expect("a NIC");
            if let Some(event) = rdma.nic().poll() {
                match event {
                    CmEvent::ConnectRequest(request) => {
                        self.hear(&request.private_data);
                        self.numbers.end = request.end;
                        let depths = request.depths;
                        rdma.accept(request.end, self.numbers.qp, depths, &self.private_data())
                            .expect("it waits");
                    }
                    CmEvent::Connected { private_data, .. } => {
                        self.hear(&private_data);
                        self.moved.connected = Some(now);
                    }
                    CmEvent::Gone { .. } => self.moved.gone = Some(now),
                    CmEvent::Failed { error, .. } => panic!("the connection failed: {error}"),
                    CmEvent::Withdrawn { .. } => {}
                }
                self.go_on(host, now);
                continue;
            }
            let Ok(Some(done)) = rdma.nic().core.poll(self.numbers.cq) else { return };
            self.on_done(done, host, now);
        }
    }

    fn on_done(&mut self, done: rnic::Completion, host: &mut Host<'_>, now: Instant) {
        match done.kind {
            // Receives that were posted but not used are flushed when the connection ends.
            Kind::Receive | Kind::ReceiveImmediate if done.status == Status::Flushed => {}
            Kind::Receive | Kind::ReceiveImmediate => {
                self.moved.received.push((done.immediate.is_some(), done.bytes));
            }
            _ => {
                let under_way = self.under_way.take().expect("something was posted");
                self.moved.done.push((under_way, done.status, now));
            }
        }
        self.go_on(host, now);
    }
}

impl Program for Transfer {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        let mut rdma = host.rdma().expect("the board has an RDMA NIC");
        let core = &mut rdma.nic().core;
        let pd = core.create_pd().expect("room");
        let cq = core.create_cq(64).expect("room");
        let mut register = |region: &Region, access| core.register(pd, region.clone(), access).expect("room");
        let source = register(&self.source, Access::NONE);
        let target = register(&self.target, Access::ALL);
        let inbox = register(&self.inbox, Access::LOCAL);
        let back = register(&self.back, Access::LOCAL);
        let qp = core
            .create_qp(QpAttributes {
                pd,
                send_cq: cq,
                receive_cq: cq,
                srq: None,
                send_work_max: 16,
                receive_work_max: 16,
                send_sges_max: 1,
                receive_sges_max: 1,
                inline_bytes_max: 0,
                signal_all: false,
                waits_for_receives: false,
            })
            .expect("room");
        for id in 0..8 {
            let sges = [Self::sge(inbox, &self.inbox, self.bytes)].into_iter().collect();
            core.post_receive(qp, ReceiveWork { id, sges }).expect("room");
        }
        self.numbers = Numbers { cq, qp, source, target, back, ..Numbers::default() };
        let private_data = self.private_data();
        match (self.asks, self.meeting) {
            (true, RdmaAddress::Tcp(remote)) => {
                self.numbers.end = rdma.connect(remote, qp, (4, 4), &private_data).expect("a route");
            }
            (true, RdmaAddress::Efe(mac, service)) => {
                self.numbers.end = rdma.connect_efe(mac, service, qp, (4, 4), &private_data).expect("a port");
            }
            (true, RdmaAddress::Roce(remote)) => {
                self.numbers.end = rdma.connect_roce(remote, qp, (4, 4), &private_data).expect("a route");
            }
            (false, RdmaAddress::Roce(local)) => rdma.listen_roce(local.port()).expect("free"),
            (false, RdmaAddress::Tcp(local)) => drop(rdma.listen(local).expect("free")),
            (true, RdmaAddress::EfeUdp(remote)) => {
                let connected = rdma.connect_efe_over_udp(remote, qp, (4, 4), &private_data);
                self.numbers.end = connected.expect("a route");
            }
            (false, RdmaAddress::Efe(_, service)) => rdma.listen_efe(service).expect("free"),
            (false, RdmaAddress::EfeUdp(local)) => rdma.listen_efe(local.port()).expect("free"),
        }
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        if completion == Completion::Rdma {
            self.look(host, now);
        }
    }

    fn on_timeout(&mut self, host: &mut Host<'_>, now: Instant) {
        if self.closes_at <= now {
            self.closes_at = Instant::NEVER;
            host.rdma().expect("a NIC").nic().core.disconnect(self.numbers.qp).expect("connected");
        }
    }

    fn deadline(&self) -> Instant {
        self.closes_at
    }

    fn is_done(&self) -> bool {
        self.moved.gone.is_some()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
