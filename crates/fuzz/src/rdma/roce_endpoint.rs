//! A RoCEv2 endpoint with hostile peers. An input is a sequence of packets, the host's calls, and
//! expiries of timers.
//!
//! Set-up    one NIC has five connected queue pairs: two reliable, of which one is on a shared receive queue,
//!           one unreliable, and the target and the initiator of two extended reliable connections. Another
//!           XRC domain has a queue with receives, which no peer may use. There is memory open to peers,
//!           memory only for the host, and *canary* memory: the gaps between these, a region without access
//!           rights, and a region in a protection domain without queue pairs.
//! Peer      the peer knows all keys and numbers and sees every packet. It sends requests, responses,
//!           selective acknowledgements and congestion notifications, whose PSNs are usually right, from the
//!           right address and usually with the right ICRC.
//! Checks    no byte of the canary memory is written, and no run of it is sent. Every packet sent can be
//!           parsed, is addressed to the peer, and has the right ICRC; the endpoint comes to rest, and timers
//!           need not run again at the same time. Each work request completes at most once, in queue order,
//!           and by the end exactly once, unless it was unsignalled and succeeded. At the end, everything can
//!           be destroyed, and no state is left.

use crate::features::Features;
use crate::input::Input;
use crate::rdma::host::{self, Host, SHARED};
use kiban_base::Instant;
use kiban_rdma::rnic::{Access, Data, Operation, QpState, Rnic, RoceSending, RoceTraits, Sge, TaggedAddress};
use kiban_rdma::roce::{Endpoint, Path};
use kiban_rdma::wire::rdmap::Atomic;
use kiban_rdma::wire::roce::icrc::Icrc;
use kiban_rdma::wire::roce::{
    Aeth, AtomicAckEth, AtomicEth, Bth, ICRC_BYTES, NakCode, Opcode, PORT, PSN_MASK, Packet, Reth,
    SelectiveAck, Service, Syndrome,
};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The services of the connected queue pairs.
const SERVICES: [Service; QPS] = [Service::Rc, Service::Rc, Service::Uc, Service::Xrc, Service::Xrc];
const QPS: usize = 5;
const TARGET: usize = 3;
const INITIATOR: usize = 4;
/// The target in another XRC domain, which is not connected.
const FOREIGN: usize = 5;
const AREA_BYTES: u64 = 0x800;
const OPEN: usize = 0;
const HOST: usize = 1;
const CLOSED: usize = 2;
const PRIVATE: usize = 3;
const STEPS_MAX: usize = 250;
const PATH_MTU: usize = 256;
const READS_MAX: u16 = 3;
const WINDOW: u32 = 16;
/// Packets that are kept behind a missing one.
const REORDER_MAX: u32 = 12;
/// Maximum number of packets after one step: all responses that may wait, twice, and the window of each queue
/// pair. A read has at most a whole area's packets.
const PACKETS_MAX: usize = 2 * QPS * (READS_MAX as usize + 1) * (AREA_BYTES as usize / PATH_MTU + 1) + 200;
/// The number of the first queue pair; the peer's numbers are behind it.
const QPN: u32 = 0x12_0000;

const fn address(area: usize) -> u64 {
    host::address(AREA_BYTES, area)
}

fn path() -> Path {
    let end = |octet| SocketAddr::from((Ipv4Addr::new(192, 0, 2, octet), PORT));
    Path { local: end(1), remote: end(2) }
}

/// The state of one connection's peer.
#[derive(Default)]
struct End {
    /// The peer's next PSN.
    psn: u32,
    /// What the peer has heard and may respond to: PSN, and the length of the data that is asked for.
    heard: VecDeque<(u32, u32)>,
}

struct Stand {
    host: Host,
    endpoint: Endpoint,
    now: Instant,
    ends: Vec<End>,
    train: Vec<u8>,
}

impl Stand {
    fn new(settings: u8) -> Stand {
        let areas = [(0, Access::ALL), (0, Access::LOCAL), (0, Access::NONE), (1, Access::ALL)];
        let mut host = Host::new(AREA_BYTES, &areas, CLOSED);
        let mut ends = Vec::new();
        for n in 0..=FOREIGN {
            let queues = match n {
                TARGET | FOREIGN => host.create_xrc_target(0),
                _ => host.create_queues(0, false),
            };
            queues.qpn = QPN + n as u32;
            let (qp, qpn) = (queues.qp, queues.qpn);
            host.nic.set_qpn(qp, qpn).expect("there");
            ends.push(End::default());
        }
        for _ in 0..4 {
            let sge = host.sge(OPEN, 0, 64);
            host.post_receive(&mut Input::new(&[1]), FOREIGN, vec![sge]);
        }
        host.xrc_srq = 0x12_3456;
        let mut stand =
            Stand { host, endpoint: Endpoint::default(), now: Instant::ZERO, ends, train: Vec::new() };
        (0..QPS).for_each(|n| stand.connect(n, settings));
        stand
    }

    fn connect(&mut self, n: usize, settings: u8) {
        let (end, queues) = (&mut self.ends[n], &self.host.queues[n]);
        // Both PSNs wrap soon.
        (end.psn, end.heard) = (0xff_fff0, VecDeque::new());
        let traits = RoceTraits {
            service: SERVICES[n],
            peer: queues.qpn + QPS as u32,
            pkey: 0xffff,
            path_mtu: PATH_MTU,
            first_psn: end.psn,
            ird: READS_MAX,
            rnr_timer: 1,
            reorder_max: REORDER_MAX,
        };
        let sending = RoceSending {
            first_psn: 0xff_fff8,
            ord: READS_MAX,
            ack_timeout: (settings & 1 == 0).then_some(Duration::from_millis(1)),
            retries: settings >> 1 & 7,
            rnr_retries: settings >> 4 & 7,
            window: WINDOW,
        };
        self.host.nic.connect_roce(queues.qp, traits).expect("idle");
        if settings & 0x80 == 0 {
            self.host.nic.start_roce(queues.qp, sending).expect("connected");
        }
        self.endpoint.attach(queues.qp, path());
    }

    /// Returns a key that usually exists, and an address that is usually near its memory.
    fn place(&self, input: &mut Input<'_>) -> (u32, u64) {
        let choice = usize::from(input.byte());
        let area = if choice % 8 < 4 { choice % 4 } else { OPEN };
        let stag = if choice < 8 { input.long() } else { self.host.stags[area] };
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
        self.host.sge(area, offset, Stand::length(input))
    }

    fn post_receive(&mut self, input: &mut Input<'_>, n: usize) {
        let count = usize::from(input.byte() % 4);
        let sges = (0..count).map(|_| self.sge(input)).collect();
        // An initiator receives nothing.
        if n == INITIATOR {
            return;
        }
        self.host.post_receive(input, n, sges);
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
                data = Data::one(self.host.sge(HOST, 0, 8));
                Operation::Atomic { remote, atomic: Atomic::FetchAdd { add: 1, mask: 0 } }
            }
            6 => Operation::LocalInvalidate { stag: self.place(input).0 ^ 1 },
            _ => Operation::SEND,
        };
        self.host.post_send(n, operation, data, flags);
    }

    /// Returns a packet chosen by the input, with its ICRC.
    fn craft(&mut self, input: &mut Input<'_>, n: usize) -> Vec<u8> {
        let (rkey, at) = self.place(input);
        let length = Stand::length(input);
        let end = &mut self.ends[n];
        let service = (SERVICES[n] as u8) << 5;
        // 21 is reserved: it stands for the packets that belong to no service.
        let opcode = match input.byte() % 24 {
            21 => Ok(if n == 2 { Opcode::Cnp } else { Opcode::SelectiveAck }),
            operation => Opcode::read(service | operation).or_else(|_| Opcode::read(service | 4)),
        };
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
        let flags = input.byte();
        let mut packet = Packet::new(Bth {
            opcode,
            solicited: payload_bytes & 1 != 0,
            migrated: true,
            pad: (payload_bytes.wrapping_neg() % 4) as u8,
            pkey: 0x7fff,
            fecn: false,
            becn: false,
            destination: self.host.queues[n].qpn,
            ack_request: !flags.is_multiple_of(4),
            selective: flags >= 0x80,
            psn: psn & PSN_MASK,
        });
        packet.xrc_srq = headers.xrc.then(|| {
            let named = match input.byte() {
                0..16 => self.host.queues[FOREIGN].srq,
                16..32 => self.host.queues[SHARED].srq,
                32..40 => Some(input.long()),
                _ => self.host.queues[TARGET].srq,
            };
            Rnic::xrc_srq_number(named.expect("it has one"))
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
        packet.selective_ack = headers.selective_ack.then(|| {
            let (shape, span) = (input.long(), input.byte().into());
            SelectiveAck::new(psn, span, |psn| shape >> (psn % 32) & 1 != 0)
        });
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
        host::avoid_canary(&mut whole);
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
        let Stand { host: Host { nic, queues, .. }, endpoint, now, .. } = self;
        let find = |qpn| queues.iter().find(|queues| queues.qpn == qpn).map(|queues| queues.qp);
        endpoint.take(nic, find, path(), datagram, datagram.len().is_multiple_of(8), *now);
    }

    /// Lets time pass until the next timer.
    fn wait(&mut self) {
        let next = self.endpoint.deadline();
        if next != Instant::NEVER {
            self.now = self.now.max(next);
            self.endpoint.advance(&mut self.host.nic, self.now);
            assert!(self.endpoint.deadline() > self.now, "a timer runs again at the same time");
        }
    }

    /// Takes everything that can be sent, and checks it.
    fn pump(&mut self, features: &mut Features<'_>) {
        let mut made = 0;
        let mut train = std::mem::take(&mut self.train);
        while let Some(departure) =
            self.endpoint.next_train(&mut self.host.nic, self.now, (8, 4000), &mut train)
        {
            assert_eq!(departure.path, path());
            assert!(train.len() <= 4000, "a train is too long");
            for (number, datagram) in train.chunks(departure.each).enumerate() {
                made += 1;
                assert!(made < PACKETS_MAX, "an endpoint sends without end");
                self.hear(datagram, number as u16, features);
            }
        }
        self.train = train;
        self.host.check(features);
    }

    /// Lets the peer receive a packet.
    fn hear(&mut self, datagram: &[u8], number: u16, features: &mut Features<'_>) {
        let (packet, payload) = Packet::read(datagram).expect("sent packets can be parsed");
        let (covered, received) = datagram.split_last_chunk::<ICRC_BYTES>().expect("it has an ICRC");
        assert_eq!(icrc(&path(), covered, number), Some(*received));
        let payload = &datagram[payload];
        assert!(payload.len() <= PATH_MTU, "a packet is too long");
        host::check_leak(payload);
        let peer = packet.bth.destination - QPS as u32;
        let n = self.host.queues.iter().position(|queues| queues.qpn == peer).expect("it goes to a peer");
        let end = &mut self.ends[n];
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

    /// Ends a queue pair, and checks that all posted work has completed.
    fn end(&mut self, n: usize, features: &mut Features<'_>) {
        let qp = self.host.queues[n].qp;
        self.host.nic.abort(qp).expect("there");
        self.pump(features);
        self.endpoint.detach(qp);
        self.host.check_ended(n);
    }

    /// Ends everything.
    fn finish(mut self, features: &mut Features<'_>) {
        (0..QPS).for_each(|n| self.end(n, features));
        self.host.destroy_queues();
        self.endpoint.advance(&mut self.host.nic, Instant::NEVER);
        assert_eq!(self.endpoint.deadline(), Instant::NEVER, "a timer is left");
        self.host.destroy(features);
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
    let counted = |factor: u8| (0..250u8).map(|n| n.wrapping_mul(factor)).collect();
    // A peer's Send, Read and Write to the target; the initiator's Send and its acknowledgement; a Send that
    // names a queue of another XRC domain, and one to the initiator.
    let to_target = vec![
        0, 192, 1, 2, 0, 3, 64, 1, 201, 8, 3, 8, 3, 64, 4, 8, 0, 40, 1, 40, 40, 40, 201, 8, 3, 8, 3, 64, 12,
        8, 0, 40, 1, 40, 40, 40, 201, 8, 3, 8, 3, 64, 10, 8, 0, 40, 1, 40, 40, 40,
    ];
    let from_initiator =
        vec![0, 210, 0, 0, 0, 0, 0, 0, 1, 8, 217, 8, 3, 8, 3, 64, 17, 200, 8, 0, 40, 1, 7, 40, 40];
    let refused = vec![
        0, 201, 8, 3, 8, 3, 64, 4, 8, 0, 40, 1, 0, 40, 40, 217, 8, 3, 8, 3, 64, 4, 8, 0, 40, 1, 40, 40, 40,
    ];
    vec![vec![0; 60], vec![9; 80], counted(1), counted(7), to_target, from_initiator, refused]
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
        let n = match step >> 6 {
            3 if step & 0x10 == 0 => TARGET,
            3 => INITIATOR,
            n => usize::from(n),
        };
        let qp = stand.host.queues[n].qp;
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
        let state = stand.host.nic.query_qp(qp).expect("there").1;
        features.show((5, state as u8));
        if state == QpState::Error {
            // All work completes before the queue pair restarts.
            stand.end(n, features);
            stand.host.nic.reset(qp).expect("over");
            stand.connect(n, settings);
        }
    }
    stand.finish(features);
}
