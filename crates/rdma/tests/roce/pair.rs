//! Two NICs, each with a connected queue pair, and the wire between them. Time is simulated.

use kiban_base::{Instant, Region, RngKey, SharedBytes};
use kiban_rdma::rnic::{
    self, Access, Completion, Config, Data, Event, Operation, QpAttributes, ReceiveWork, Rnic, RoceSending,
    SendWork, Sge, Status, TaggedAddress,
};
use kiban_rdma::wire::roce::{Packet, Service};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// The memory of each NIC: its address, and its length.
pub(crate) const BASE: u64 = 0x10_0000;
pub(crate) const BYTES: usize = 1 << 18;
/// How long a packet takes.
pub(crate) const DELAY: Duration = Duration::from_micros(10);
pub(crate) const ACK_TIMEOUT: Duration = Duration::from_millis(1);

/// What the wire does with a packet: it arrives once for each of these delays.
pub(crate) type Fate = Vec<Duration>;

pub(crate) fn arrives() -> Fate {
    vec![DELAY]
}

pub(crate) fn is_lost() -> Fate {
    Vec::new()
}

/// A packet without its ICRC: the headers, and the payload.
pub(crate) type Parsed = (Packet, Vec<u8>);

pub(crate) struct Host {
    pub(crate) nic: Rnic,
    pub(crate) pd: u32,
    pub(crate) cq: u32,
    pub(crate) qp: u32,
    pub(crate) memory: Region,
    pub(crate) stag: u32,
}

impl Host {
    pub(crate) fn new(seed: u64, access: Access) -> Host {
        let mut nic = Rnic::new(Config::default(), RngKey::for_simulation(seed));
        let pd = nic.create_pd().expect("room");
        let cq = nic.create_cq(4096).expect("room");
        let qp = nic.create_qp(attributes(pd, cq)).expect("room");
        let memory = Region::new(BASE, BYTES);
        let stag = nic.register(pd, memory.clone(), access).expect("room");
        Host { nic, pd, cq, qp, memory, stag }
    }

    pub(crate) fn element(&self, offset: u64, length: u32) -> Sge {
        Sge { stag: self.stag, address: BASE + offset, length }
    }

    pub(crate) fn post(&mut self, id: u64, operation: Operation, sge: Sge) {
        self.nic.post_send(self.qp, SendWork::new(id, operation, Data::one(sge))).expect("room");
    }

    pub(crate) fn receive(&mut self, id: u64, sge: Sge) {
        let work = ReceiveWork { id, sges: [sge].into_iter().collect() };
        self.nic.post_receive(self.qp, work).expect("room");
    }

    pub(crate) fn completions(&mut self) -> Vec<Completion> {
        std::iter::from_fn(|| self.nic.poll(self.cq).expect("a queue")).collect()
    }

    pub(crate) fn results(&mut self) -> Vec<(u64, Status)> {
        self.completions().iter().map(|done| (done.id, done.status)).collect()
    }

    pub(crate) fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.nic.event()).collect()
    }

    pub(crate) fn fill(&self, offset: u64, bytes: &[u8]) {
        self.memory.write(BASE + offset, SharedBytes::from(bytes)).expect("within");
    }

    pub(crate) fn bytes(&self, offset: u64, length: usize) -> Vec<u8> {
        self.memory.read(BASE + offset, length).expect("within")
    }
}

pub(crate) fn attributes(pd: u32, cq: u32) -> QpAttributes {
    QpAttributes {
        pd,
        send_cq: cq,
        receive_cq: cq,
        srq: None,
        send_work_max: 256,
        receive_work_max: 256,
        send_sges_max: 4,
        receive_sges_max: 4,
        inline_bytes_max: 256,
        signal_all: true,
        waits_for_receives: false,
    }
}

/// How the two hosts send and receive.
#[derive(Clone, Copy)]
pub(crate) struct RoceTraits {
    pub(crate) service: Service,
    pub(crate) path_mtu: usize,
    /// The first PSNs of host 0 and host 1.
    pub(crate) first_psn_out: u32,
    pub(crate) first_psn_in: u32,
    pub(crate) ird: u16,
    pub(crate) ord: u16,
    pub(crate) ack_timeout: Option<Duration>,
    pub(crate) retries: u8,
    pub(crate) rnr_retries: u8,
    pub(crate) rnr_timer: u8,
    pub(crate) window: u32,
    /// How many packets host 0 and host 1 keep behind a missing one; 0: go-back-N.
    pub(crate) reorder_max: [u32; 2],
}

/// The traits of host 0; host 1's mirror them.
pub(crate) fn traits() -> RoceTraits {
    RoceTraits {
        service: Service::Rc,
        path_mtu: 1024,
        first_psn_out: 0xff_fff0,
        first_psn_in: 0x00_1234,
        ird: 8,
        ord: 4,
        ack_timeout: Some(ACK_TIMEOUT),
        retries: 7,
        rnr_retries: 7,
        rnr_timer: 12,
        window: 64,
        reorder_max: [0; 2],
    }
}

/// A packet on its way: arrival time, a number that keeps equal times in order, destination, octets.
pub(crate) type Flying = Reverse<(Instant, u64, usize, Vec<u8>)>;

pub(crate) struct Pair {
    pub(crate) hosts: [Host; 2],
    pub(crate) now: Instant,
    /// Every packet that was sent: sender, headers, payload.
    pub(crate) sent: Vec<(usize, Packet, Vec<u8>)>,
    flying: BinaryHeap<Flying>,
    made: u64,
}

impl Pair {
    pub(crate) fn new(traits: RoceTraits) -> Pair {
        Pair::with_access(traits, Access::ALL)
    }

    /// Creates a pair of which host 1 exposes its memory with this access.
    pub(crate) fn with_access(traits: RoceTraits, access: Access) -> Pair {
        Pair::of([Host::new(1, Access::ALL), Host::new(2, access)], traits)
    }

    /// Connects the queue pairs of two hosts.
    pub(crate) fn of(mut hosts: [Host; 2], traits: RoceTraits) -> Pair {
        let RoceTraits { service, path_mtu, ird, rnr_timer, .. } = traits;
        let RoceTraits { ord, ack_timeout, retries, rnr_retries, window, .. } = traits;
        let psns = [traits.first_psn_out, traits.first_psn_in];
        for (index, host) in hosts.iter_mut().enumerate() {
            let (own, peer) = (0x1000 + index as u32, 0x1001 - index as u32);
            host.nic.set_qpn(host.qp, own).expect("a queue pair");
            let first_psn = psns[1 - index];
            let receiving = rnic::RoceTraits {
                service,
                peer,
                pkey: 0xffff,
                path_mtu,
                first_psn,
                ird,
                rnr_timer,
                reorder_max: traits.reorder_max[index],
            };
            host.nic.connect_roce(host.qp, receiving).expect("an idle queue pair");
            let first_psn = psns[index];
            let sending = RoceSending { first_psn, ord, ack_timeout, retries, rnr_retries, window };
            host.nic.start_roce(host.qp, sending).expect("a connected queue pair");
        }
        Pair { hosts, now: Instant::ZERO, sent: Vec::new(), flying: BinaryHeap::new(), made: 0 }
    }

    /// Returns an address in the memory of a host.
    pub(crate) fn at(&self, host: usize, offset: u64) -> TaggedAddress {
        TaggedAddress { stag: self.hosts[host].stag, offset: BASE + offset }
    }

    /// Delivers a packet to a host.
    pub(crate) fn deliver(&mut self, host: usize, packet: &Packet, payload: &[u8]) {
        let Host { nic, qp, .. } = &mut self.hosts[host];
        nic.packet(*qp, packet, payload, self.now);
    }

    /// Takes all packets that the hosts can send now; `fate` decides when each arrives, if it does.
    pub(crate) fn send(&mut self, fate: &mut impl FnMut(usize, &Packet) -> Fate) {
        for (sender, host) in self.hosts.iter_mut().enumerate() {
            while let Some(qp) = host.nic.pop_packet_tx_queue() {
                let mut room = Vec::new();
                while host.nic.next_packet(qp, self.now, &mut room) {
                    let (packet, payload) = parsed(&room);
                    for delay in fate(sender, &packet) {
                        self.made += 1;
                        self.flying.push(Reverse((self.now + delay, self.made, 1 - sender, room.clone())));
                    }
                    self.sent.push((sender, packet, payload));
                    room.clear();
                }
            }
        }
    }

    /// Goes to the time of the next arrival or timer, and lets it happen. Returns false if there is none.
    pub(crate) fn step(&mut self) -> bool {
        let deadlines = self.hosts.iter().filter_map(|host| host.nic.packet_deadline(host.qp)).min();
        let arrival = self.flying.peek().map(|Reverse((at, ..))| *at);
        let Some(next) = deadlines.into_iter().chain(arrival).min() else { return false };
        self.now = self.now.max(next);
        while let Some(Reverse((at, ..))) = self.flying.peek()
            && *at <= self.now
            && let Some(Reverse((_, _, host, octets))) = self.flying.pop()
        {
            let (packet, payload) = parsed(&octets);
            self.deliver(host, &packet, &payload);
        }
        for host in &mut self.hosts {
            if host.nic.packet_deadline(host.qp).is_some_and(|deadline| deadline <= self.now) {
                host.nic.on_packet_timer(host.qp, self.now);
            }
        }
        true
    }

    /// Runs until no packet is in flight and no timer is running.
    pub(crate) fn run(&mut self, mut fate: impl FnMut(usize, &Packet) -> Fate) {
        for _ in 0..1_000_000 {
            self.send(&mut fate);
            if !self.step() {
                return;
            }
        }
        panic!("the pair never comes to rest");
    }

    /// Runs over a wire that loses nothing.
    pub(crate) fn run_cleanly(&mut self) {
        self.run(|_, _| arrives());
    }
}

/// Reads a packet without its ICRC.
pub(crate) fn parsed(octets: &[u8]) -> Parsed {
    let whole = [octets, &[0; 4]].concat();
    let (packet, payload) = Packet::read(&whole).expect("a valid packet");
    (packet, whole[payload].to_vec())
}

/// Returns bytes without repetitions, so that misplaced data is noticed.
pub(crate) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|at| ((at.wrapping_mul(2_654_435_761) ^ seed.wrapping_mul(97)) >> 11) as u8)
        .collect()
}
