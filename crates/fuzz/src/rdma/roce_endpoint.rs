//! A RoCEv2 endpoint with hostile peers. An input is a sequence of packets, the host's calls, and
//! expiries of timers.
//!
//! Set-up    one NIC has three connected queue pairs: two reliable, of which one is on a shared receive
//!           queue, and one unreliable. There is memory open to peers, memory only for the host, and *canary*
//!           memory: the gaps between these, a region without access rights, and a region in a domain without
//!           queue pairs.
//! Peer      the peer knows all keys and numbers and sees every packet. It sends requests and responses whose
//!           PSNs are usually right, from the right address and usually with the right ICRC.
//! Checks    no byte of the canary memory is written, and no run of it is sent. Every packet sent can be
//!           parsed, is addressed to the peer, and has the right ICRC; the endpoint comes to rest, and timers
//!           need not run again at the same time. Each work request completes at most once, in queue order,
//!           and by the end exactly once, unless it was unsignalled and succeeded. At the end, everything can
//!           be destroyed, and no state is left.

use crate::features::Features;
use crate::input::Input;
use kiban_base::{Instant, Region, SharedBytes};
use kiban_rdma::rnic::{
    Access, Config, Data, Operation, QpAttributes, QpState, ReceiveWork, Rnic, RoceSending, RoceTraits,
    SendWork, Sge, Status, TaggedAddress,
};
use kiban_rdma::roce::{Endpoint, Path};
use kiban_rdma::wire::rdmap::Atomic;
use kiban_rdma::wire::roce::icrc::Icrc;
use kiban_rdma::wire::roce::{
    Aeth, AtomicAckEth, AtomicEth, Bth, ICRC_BYTES, NakCode, Opcode, PORT, PSN_MASK, Packet, Reth, Syndrome,
};
use std::collections::{BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

const BASE: u64 = 0x10_0000;
const AREA_BYTES: u64 = 0x800;
/// Areas are separated by gaps. Each gap is as long as the area after it.
const AREAS: u64 = 4;
const OPEN: usize = 0;
const HOST: usize = 1;
const CLOSED: usize = 2;
const PRIVATE: usize = 3;
const CANARY: u8 = 0xc7;
const STEPS_MAX: usize = 250;
const PATH_MTU: usize = 256;
const READS_MAX: u16 = 3;
const WINDOW: u32 = 16;
/// Maximum number of packets after one step: all responses that may wait, twice, and the window of each queue
/// pair. A read has at most a whole area's packets.
const PACKETS_MAX: usize = 2 * 3 * (READS_MAX as usize + 1) * (AREA_BYTES as usize / PATH_MTU + 1) + 200;
const QPS: usize = 3;
/// The number of the first queue pair; the peer's numbers are behind it.
const QPN: u32 = 0x12_0000;

const fn address(area: usize) -> u64 {
    BASE + (2 * area as u64 + 1) * AREA_BYTES
}

fn path() -> Path {
    let end = |octet| SocketAddr::from((Ipv4Addr::new(192, 0, 2, octet), PORT));
    Path { local: end(1), remote: end(2) }
}

/// One connection: the work that the host has posted, and the state of the peer.
struct End {
    qp: u32,
    cq: u32,
    qpn: u32,
    is_reliable: bool,
    sends: VecDeque<(u64, bool)>,
    receives: VecDeque<u64>,
    /// The peer's next PSN.
    psn: u32,
    /// What the peer has heard and may respond to: PSN, and the length of the data that is asked for.
    heard: VecDeque<(u32, u32)>,
}

struct Stand {
    nic: Rnic,
    endpoint: Endpoint,
    now: Instant,
    pds: [u32; 2],
    guard: Region,
    stags: [u32; AREAS as usize],
    srq: u32,
    ends: Vec<End>,
    shared: BTreeSet<u64>,
    next_id: u64,
    train: Vec<u8>,
}

impl Stand {
    fn new(settings: u8) -> Stand {
        let mut nic = Rnic::new(Config { events_max: 64, ..Config::default() }, crate::key::key(9));
        let pds = [(); 2].map(|()| nic.create_pd().expect("room"));
        let guard = Region::new(BASE, ((2 * AREAS + 1) * AREA_BYTES) as usize);
        guard.write(BASE, SharedBytes::from(&vec![CANARY; guard.len()][..])).expect("within");
        for area in [OPEN, HOST] {
            guard.write(address(area), SharedBytes::from(&[0; AREA_BYTES as usize][..])).expect("within");
        }
        let mut area = 0;
        let kinds = [(0, Access::ALL), (0, Access::LOCAL), (0, Access::NONE), (1, Access::ALL)];
        let stags = kinds.map(|(pd, access)| {
            let part = guard.part(address(area), AREA_BYTES as usize).expect("within");
            area += 1;
            nic.register(pds[pd], part, access).expect("room")
        });
        let srq = nic.create_srq(pds[0], 16, 2).expect("room");
        let ends = (0..QPS)
            .map(|n| {
                let cq = nic.create_cq(2000).expect("room");
                let attributes = QpAttributes {
                    pd: pds[0],
                    send_cq: cq,
                    receive_cq: cq,
                    srq: (n == 1).then_some(srq),
                    send_work_max: 16,
                    receive_work_max: 16,
                    send_sges_max: 4,
                    receive_sges_max: 4,
                    inline_bytes_max: 64,
                    signal_all: false,
                    waits_for_receives: false,
                };
                let qp = nic.create_qp(attributes).expect("room");
                let qpn = QPN + n as u32;
                nic.set_qpn(qp, qpn).expect("there");
                End {
                    qp,
                    cq,
                    qpn,
                    is_reliable: n != 2,
                    sends: VecDeque::new(),
                    receives: VecDeque::new(),
                    psn: 0,
                    heard: VecDeque::new(),
                }
            })
            .collect();
        let mut stand = Stand {
            nic,
            endpoint: Endpoint::default(),
            now: Instant::ZERO,
            pds,
            guard,
            stags,
            srq,
            ends,
            shared: BTreeSet::new(),
            next_id: 0,
            train: Vec::new(),
        };
        (0..QPS).for_each(|n| stand.connect(n, settings));
        stand
    }

    fn connect(&mut self, n: usize, settings: u8) {
        let end = &mut self.ends[n];
        // Both PSNs wrap soon.
        (end.psn, end.heard) = (0xff_fff0, VecDeque::new());
        let traits = RoceTraits {
            is_reliable: end.is_reliable,
            peer: end.qpn + QPS as u32,
            pkey: 0xffff,
            path_mtu: PATH_MTU,
            first_psn: end.psn,
            ird: READS_MAX,
            rnr_timer: 1,
        };
        let sending = RoceSending {
            first_psn: 0xff_fff8,
            ord: READS_MAX,
            ack_timeout: (settings & 1 == 0).then_some(Duration::from_millis(1)),
            retries: settings >> 1 & 7,
            rnr_retries: settings >> 4 & 7,
            window: WINDOW,
        };
        self.nic.connect_roce(end.qp, traits).expect("idle");
        if settings & 0x80 == 0 {
            self.nic.start_roce(end.qp, sending).expect("connected");
        }
        self.endpoint.attach(end.qp, path());
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Returns a key that usually exists, and an address that is usually near its memory.
    fn place(&self, input: &mut Input<'_>) -> (u32, u64) {
        let choice = usize::from(input.byte());
        let area = if choice % 8 < 4 { choice % 4 } else { OPEN };
        let stag = if choice < 8 { input.long() } else { self.stags[area] };
        let near = match input.byte() % 8 {
            0 => u64::from(input.distance()),
            1 => AREA_BYTES - u64::from(input.byte()),
            2 => 0u64.wrapping_sub(u64::from(input.byte())),
            _ => u64::from(input.byte()) & !7,
        };
        (stag, address(area).wrapping_add(near))
    }

    fn length(input: &mut Input<'_>) -> u32 {
        match input.byte() % 8 {
            0 => input.long(),
            1 => 0,
            2 => PATH_MTU as u32,
            3 => u32::from(input.byte()),
            _ => u32::from(input.short()) % (AREA_BYTES as u32 + 64),
        }
    }

    /// Returns a scatter-gather element of the host's own memory, possibly invalid, but never one that could
    /// expose the canary memory to a peer.
    fn sge(&self, input: &mut Input<'_>) -> Sge {
        let area = match input.byte() % 16 {
            0 => PRIVATE,
            1 => OPEN,
            _ => HOST,
        };
        let offset = u64::from(input.byte());
        Sge { stag: self.stags[area], address: address(area) + offset, length: Stand::length(input) }
    }

    fn post_receive(&mut self, input: &mut Input<'_>, n: usize) {
        let count = usize::from(input.byte() % 4);
        let mut sges: Vec<Sge> = (0..count).map(|_| self.sge(input)).collect();
        // Memory to which even the host has no write access.
        if input.byte().is_multiple_of(16) {
            sges.push(Sge { stag: self.stags[CLOSED], address: address(CLOSED), length: 64 });
        }
        let id = self.id();
        let work = ReceiveWork { id, sges: sges.into_iter().collect() };
        if n == 1 {
            if self.nic.post_srq_receive(self.srq, work).is_ok() {
                self.shared.insert(id);
            }
        } else if self.nic.post_receive(self.ends[n].qp, work).is_ok() {
            self.ends[n].receives.push_back(id);
        }
    }

    fn post_send(&mut self, input: &mut Input<'_>, n: usize) {
        let count = usize::from(input.byte() % 4);
        let mut data = Data::Elements((0..count).map(|_| self.sge(input)).collect());
        let flags = input.byte();
        let remote = TaggedAddress { stag: 7, offset: u64::from(input.long()) };
        let operation = match input.byte() % 8 {
            0 => Operation::Send { invalidate: Some(9) },
            1 => {
                data = Data::Inline((0..input.byte() % 64).collect());
                Operation::SEND
            }
            2 => Operation::SendImmediate { data: 9 },
            3 => Operation::Write { remote, immediate: (flags & 8 != 0).then_some(8) },
            4 | 5 => Operation::Read { remote, invalidate: false },
            6 if flags & 8 != 0 => {
                data = Data::one(Sge { stag: self.stags[HOST], address: address(HOST), length: 8 });
                Operation::Atomic { remote, atomic: Atomic::FetchAdd { add: 1, mask: 0 } }
            }
            6 => Operation::LocalInvalidate { stag: self.place(input).0 ^ 1 },
            _ => Operation::SEND,
        };
        let id = self.id();
        let signalled = flags & 1 == 0;
        let work = SendWork {
            id,
            operation,
            data,
            signalled,
            solicited: flags & 2 != 0,
            fence: flags & 4 != 0,
            local_fence: flags & 0xc0 == 0xc0,
        };
        if self.nic.post_send(self.ends[n].qp, work).is_ok() {
            self.ends[n].sends.push_back((id, signalled));
        }
    }

    /// Returns a packet chosen by the input, with its ICRC.
    fn craft(&mut self, input: &mut Input<'_>, n: usize) -> Vec<u8> {
        let (rkey, at) = self.place(input);
        let length = Stand::length(input);
        let end = &mut self.ends[n];
        let service = if end.is_reliable { 0 } else { 1 << 5 };
        let opcode = Opcode::read(service | (input.byte() % 24)).or_else(|_| Opcode::read(service | 4));
        let Ok(opcode) = opcode else { return input.take(64).to_vec() };
        let headers = opcode.headers();
        let (mut payload_bytes, psn) = if headers.ack {
            let (psn, asked) = match input.byte() {
                choice @ 0..128 => end.heard.get(usize::from(choice) % 8).copied().unwrap_or_default(),
                128..240 => end.heard.pop_front().unwrap_or_default(),
                _ => (input.long(), 0),
            };
            (asked.min(PATH_MTU as u32), psn.wrapping_add(input.distance()))
        } else {
            let psn = end.psn.wrapping_add(input.distance());
            if psn == end.psn {
                let packets = if headers.rdma && !opcode_carries_payload(opcode) {
                    length.div_ceil(PATH_MTU as u32).max(1)
                } else {
                    1
                };
                end.psn = end.psn.wrapping_add(packets) & PSN_MASK;
            }
            (length.min(PATH_MTU as u32), psn)
        };
        match input.byte() {
            0..16 => payload_bytes = u32::from(input.byte()) * 5,
            16..32 => payload_bytes = PATH_MTU as u32,
            _ => {}
        }
        if !opcode_carries_payload(opcode) {
            payload_bytes = 0;
        }
        let mut packet = Packet::new(Bth {
            opcode,
            solicited: payload_bytes & 1 != 0,
            migrated: true,
            pad: (payload_bytes.wrapping_neg() % 4) as u8,
            pkey: 0x7fff,
            fecn: false,
            becn: false,
            destination: end.qpn,
            ack_request: !input.byte().is_multiple_of(4),
            psn: psn & PSN_MASK,
        });
        packet.reth = headers.rdma.then_some(Reth { address: at, rkey, length });
        packet.atomic = headers.atomic.then_some(AtomicEth { address: at, rkey, swap_or_add: 1, compare: 0 });
        packet.aeth = headers.ack.then(|| {
            let choice = input.byte();
            let syndrome = match choice % 8 {
                0 => Syndrome::RnrNak(choice >> 3),
                1 => Syndrome::Nak(NakCode::SequenceError),
                2 if choice >> 3 == 0 => Syndrome::Nak(NakCode::RemoteAccess),
                2 if choice >> 3 == 1 => Syndrome::Nak(NakCode::InvalidRequest),
                _ => Syndrome::Ack(choice >> 3),
            };
            Aeth { syndrome, msn: 1 }
        });
        packet.atomic_ack = headers.atomic_ack.then_some(AtomicAckEth { original: 5 });
        packet.immediate = headers.immediate.then_some(3);
        packet.invalidate = headers.invalidate.then_some(rkey);
        let mut whole = vec![0; packet.length()];
        packet.write(&mut whole);
        whole.resize(whole.len() + payload_bytes as usize + usize::from(packet.bth.pad), 0xee);
        match input.byte() {
            0..16 => {
                let at = usize::from(input.short()) % whole.len();
                whole[at] ^= input.byte();
            }
            16..20 => whole.truncate(usize::from(input.byte()) % (whole.len() + 1)),
            _ => {}
        }
        // If the peer sent bytes equal to the canary's, the check for leaked canary bytes would raise a false
        // alarm.
        whole.iter_mut().filter(|byte| **byte == CANARY).for_each(|byte| *byte = 0xee);
        if let Some(icrc) = icrc(&Path { local: path().remote, remote: path().local }, &whole, 0) {
            whole.extend_from_slice(&icrc);
        }
        if input.byte() == 1
            && let Some(last) = whole.last_mut()
        {
            *last ^= input.byte();
        }
        whole
    }

    fn arrive(&mut self, datagram: &[u8]) {
        let Stand { nic, endpoint, ends, now, .. } = self;
        let find = |qpn| ends.iter().find(|end| end.qpn == qpn).map(|end| end.qp);
        endpoint.take(nic, find, path(), datagram, *now);
    }

    /// Lets time pass until the next timer.
    fn wait(&mut self) {
        let next = self.endpoint.deadline();
        if next != Instant::NEVER {
            self.now = self.now.max(next);
            self.endpoint.advance(&mut self.nic, self.now);
            assert!(self.endpoint.deadline() > self.now, "a timer runs again at the same time");
        }
    }

    /// Takes everything that can be sent, and checks it.
    fn pump(&mut self, features: &mut Features<'_>) {
        let mut made = 0;
        let mut train = std::mem::take(&mut self.train);
        while let Some(departure) = self.endpoint.next_train(&mut self.nic, self.now, (8, 4000), &mut train) {
            assert_eq!(departure.path, path());
            assert!(train.len() <= 4000, "a train is too long");
            for (number, datagram) in train.chunks(departure.each).enumerate() {
                made += 1;
                assert!(made < PACKETS_MAX, "an endpoint sends without end");
                self.hear(datagram, number as u16, features);
            }
        }
        self.train = train;
        self.complete(features);
        while let Some(event) = self.nic.event() {
            features.show(std::mem::discriminant(&event));
        }
        let now = self.guard.read(BASE, self.guard.len()).expect("within");
        for (n, area) in now.chunks(AREA_BYTES as usize).enumerate() {
            let is_canary = n % 2 == 0 || n / 2 >= CLOSED;
            assert!(!is_canary || area.iter().all(|&byte| byte == CANARY), "the canary was touched");
        }
    }

    /// Lets the peer receive a packet.
    fn hear(&mut self, datagram: &[u8], number: u16, features: &mut Features<'_>) {
        let (packet, payload) = Packet::read(datagram).expect("sent packets can be parsed");
        let (covered, received) = datagram.split_last_chunk::<ICRC_BYTES>().expect("it has an ICRC");
        assert_eq!(icrc(&path(), covered, number), Some(*received));
        let payload = &datagram[payload];
        assert!(payload.len() <= PATH_MTU, "a packet is too long");
        let leaks = payload.windows(16).any(|run| run.iter().all(|&byte| byte == CANARY));
        assert!(!leaks, "the canary has left");
        let peer = packet.bth.destination - QPS as u32;
        let end = self.ends.iter_mut().find(|end| end.qpn == peer).expect("it goes to a peer");
        features.show((
            packet.bth.opcode.octet(),
            packet.aeth.map(|aeth| std::mem::discriminant(&aeth.syndrome)),
        ));
        if packet.aeth.is_none() {
            end.heard.push_back((packet.bth.psn, packet.reth.map_or(8, |reth| reth.length)));
            if end.heard.len() > 32 {
                end.heard.pop_front();
            }
        }
    }

    fn complete(&mut self, features: &mut Features<'_>) {
        for n in 0..self.ends.len() {
            while let Some(done) = self.nic.poll(self.ends[n].cq).expect("there") {
                features.show((done.kind as u8, done.status as u8, n));
                let end = &mut self.ends[n];
                assert_eq!(done.qp, end.qpn);
                if self.shared.remove(&done.id) {
                    assert_eq!(n, 1, "only the shared queue's user takes from it");
                    continue;
                }
                if end.receives.front() == Some(&done.id) {
                    end.receives.pop_front();
                    continue;
                }
                loop {
                    let (id, signalled) =
                        end.sends.pop_front().expect("it was not posted, or it completed twice");
                    if id == done.id {
                        assert!(
                            signalled || done.status != Status::Success,
                            "completed, though not signalled"
                        );
                        break;
                    }
                    assert!(!signalled, "out of order, or left out");
                }
            }
        }
    }

    /// Ends a queue pair, and checks that all posted work has completed.
    fn end(&mut self, n: usize, features: &mut Features<'_>) {
        let qp = self.ends[n].qp;
        self.nic.abort(qp).expect("there");
        self.pump(features);
        self.endpoint.detach(qp);
        let End { receives, sends, .. } = &mut self.ends[n];
        assert!(receives.is_empty(), "a receive never completed");
        assert!(sends.iter().all(|(_, signalled)| !signalled), "work never completed");
        sends.clear();
    }

    /// Ends everything.
    fn finish(mut self, features: &mut Features<'_>) {
        (0..QPS).for_each(|n| self.end(n, features));
        for End { qp, cq, .. } in self.ends {
            self.nic.destroy_qp(qp).expect("there");
            self.nic.destroy_cq(cq).expect("it is unused");
        }
        self.endpoint.advance(&mut self.nic, Instant::NEVER);
        assert_eq!(self.endpoint.deadline(), Instant::NEVER, "a timer is left");
        self.nic.destroy_srq(self.srq).expect("it is unused");
        for stag in self.stags {
            self.nic.deregister(stag).expect("no window refers to it");
        }
        for pd in self.pds {
            self.nic.destroy_pd(pd).expect("nobody is in it");
        }
        assert_eq!(self.nic.in_use(), (0, 0));
        self.nic.counters().each(&mut |name, value| features.show((name, value.min(4))));
        self.endpoint.counters().each(&mut |name, value| features.show((name, value.min(2))));
    }
}

fn opcode_carries_payload(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Transport(_, operation) if operation.carries_payload())
}

/// Computes the ICRC of a packet; `None`: it is too short to have one.
fn icrc(path: &Path, packet: &[u8], number: u16) -> Option<[u8; ICRC_BYTES]> {
    if packet.len() < kiban_rdma::wire::roce::BTH_BYTES {
        return None;
    }
    let mut icrc = Icrc::new(path.local, path.remote, packet.len() + ICRC_BYTES, number);
    icrc.headers(packet);
    Some(icrc.octets())
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    vec![vec![0; 60], vec![9; 80], (0..250).collect(), (0..250u8).map(|n| n.wrapping_mul(7)).collect()]
}

pub(crate) fn run(bytes: &[u8], features: &mut Features<'_>) {
    let mut input = Input::new(bytes);
    let settings = input.byte();
    let mut stand = Stand::new(settings);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        let step = input.byte();
        let n = usize::from(step >> 6) % QPS;
        let qp = stand.ends[n].qp;
        match step % 16 {
            0 | 1 => stand.post_receive(&mut input, n),
            2..=4 => stand.post_send(&mut input, n),
            5 => stand.wait(),
            6 if input.byte().is_multiple_of(8) => stand.end(n, features),
            _ => {
                let datagram = stand.craft(&mut input, n);
                stand.arrive(&datagram);
            }
        }
        // Without this, several packets arrive before the endpoint sends.
        if step & 0x20 == 0 {
            stand.pump(features);
        }
        let state = stand.nic.query_qp(qp).expect("there").1;
        features.show((5, state as u8));
        if state == QpState::Error {
            // All work completes before the queue pair restarts.
            stand.end(n, features);
            stand.nic.reset(qp).expect("over");
            stand.connect(n, settings);
        }
    }
    stand.finish(features);
}
