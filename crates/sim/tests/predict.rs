//! Numbers on the wire that must not be predictable: thousands of each kind are collected from the machine
//! that produces them, and every attack in [`kiban_sim::predict`] is tried. The seeds are small on purpose,
//! so that a number from the simulator's generator would be predicted at once.

use kiban_atm::wire::atm::Vc;
use kiban_base::{Instant, Region, RngKey, SharedBytes, SharedRoom, Sum};
use kiban_base::{checksum, numbers::protocol};
use kiban_board::{
    AtmPortConfig, Board, BoardConfig, CircuitConfig, Input, IpPortConfig, Output, Owner, PortConfig,
};
use kiban_rdma::efe::{self, Endpoint, Peer};
use kiban_rdma::rnic::{Access, Config as RnicConfig, QpAttributes, Rnic};
use kiban_sim::predict::{predicted, splitmix_draws, splitmix_of_small_seed};
use kiban_tcpip::tcp::SynCookies;
use kiban_tcpip::wire::ipv4;
use kiban_tcpip::wire::tcp::{Flags, Header as Segment, Options, Sequence};
use kiban_vi as vi;
use kiban_vi::wire::{HEADER_BYTES, Setup};
use kiban_vi::{PathTraits, Reliability, ViAttributes};
use siphasher::sip::SipHasher24;
use std::collections::VecDeque;
use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const COUNT: usize = 2000;

fn address(host: u16) -> IpAddr {
    IpAddr::from([10, 0, (host >> 8) as u8, host as u8])
}

fn address6(host: u16) -> IpAddr {
    IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, host])
}

/// A board with one packet port; the test collects the packets that it sends.
struct Bench {
    board: Board,
    now: Instant,
}

impl Bench {
    fn new(change: impl FnOnce(&mut BoardConfig)) -> Bench {
        let port = IpPortConfig {
            address: address(1),
            prefix: "10.0.0.0/16".parse().unwrap(),
            mtu_bytes: 1500,
            packets_max: 64,
            cuts: false,
            merges: false,
            believe_sums: false,
        };
        let port6 = IpPortConfig { address: address6(1), prefix: "fd00::/64".parse().unwrap(), ..port };
        let ports = vec![PortConfig::Ip(port), PortConfig::Ip(port6)];
        let mut config = BoardConfig { ports, ..BoardConfig::default() };
        change(&mut config);
        Bench { board: board(&config), now: Instant::from_nanos(1) }
    }

    /// Returns the packets that are sent now.
    fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        loop {
            match self.board.poll() {
                Output::Transmit { pdu, .. } => {
                    sent.push(pdu.runs().flatten().copied().collect());
                }
                Output::Completions => while self.board.host().completion().is_some() {},
                Output::Idle { .. } => return sent,
            }
        }
    }

    /// Returns the SYN with which the board opens a connection.
    fn opens(&mut self, remote: SocketAddr) -> Segment {
        let stream = self.board.host().open(remote).expect("room for a session");
        let packet = self.sent().swap_remove(0);
        self.board.host().abort(stream).expect("it is there");
        self.sent();
        segment(&packet)
    }

    /// Returns the segment with which the board answers another host's SYN.
    fn answers(&mut self, from: SocketAddr, to: u16) -> Segment {
        let syn = Segment {
            source_port: from.port(),
            target_port: to,
            sequence: Sequence(0),
            acknowledgment: Sequence(0),
            flags: Flags::SYN,
            window: 8192,
            urgent: 0,
            options: Options { mss: Some(1460), ..Options::NONE },
        };
        let (IpAddr::V4(source), IpAddr::V4(target)) = (from.ip(), address(1)) else { panic!("IPv4") };
        let mut packet = [0; 64];
        let length = syn.length();
        let header = ipv4::Header {
            traffic_class: 0,
            total_bytes: (ipv4::HEADER_BYTES + length) as u16,
            identification: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset_bytes: 0,
            time_to_live: 64,
            protocol: protocol::TCP,
            source,
            target,
            options: &[],
        };
        header.write(&mut packet);
        syn.write(&mut packet[ipv4::HEADER_BYTES..]);
        let bytes = &mut packet[..ipv4::HEADER_BYTES + length];
        let segment_bytes = &bytes[ipv4::HEADER_BYTES..];
        let pseudo = checksum::pseudo_ipv4(source, target, protocol::TCP, segment_bytes.len());
        let sum = pseudo.plus(Sum::of(segment_bytes)).checksum();
        bytes[ipv4::HEADER_BYTES + 16..][..2].copy_from_slice(&sum.to_be_bytes());
        let mut pdu = self.board.memory_mut().pdus.take().expect("room");
        pdu.extend_head(bytes);
        self.board.handle(Input::Packets { port: 0, packets: &mut VecDeque::from([pdu]) }, self.now);
        segment(&self.sent().swap_remove(0))
    }
}

fn board(config: &BoardConfig) -> Board {
    Board::new(config, RngKey::for_simulation(1))
}

fn segment(packet: &[u8]) -> Segment {
    Segment::read(&packet[ipv4::HEADER_BYTES..]).expect("what leaves is well formed").0
}

/// Returns identifications of fragmented IPv6 datagrams.
fn fragments6(bench: &mut Bench) -> Vec<u64> {
    let socket = bench.board.host().bind(SocketAddr::new(address6(1), 9)).expect("a socket");
    let identification = |packet: &[u8]| u64::from(u32::from_be_bytes(packet[44..48].try_into().unwrap()));
    (0..COUNT)
        .map(|_| {
            let to = SocketAddr::new(address6(2), 9);
            bench.board.host().send_to(socket, to, &[0; 2000]).expect("room for a datagram");
            let sent = bench.sent();
            assert_eq!(
                (sent.len(), sent[0][6], identification(&sent[0])),
                (2, protocol::FRAGMENT, identification(&sent[1]))
            );
            identification(&sent[0])
        })
        .collect()
}

/// Returns identifications of IPv4 datagrams, each to a different host.
fn datagrams4() -> Vec<u64> {
    let mut bench = Bench::new(|_| {});
    let socket = bench.board.host().bind(SocketAddr::new(address(1), 9)).expect("a socket");
    (0..COUNT as u16)
        .map(|host| {
            let to = SocketAddr::new(address(2 + host), 9);
            bench.board.host().send_to(socket, to, b"x").expect("room for a datagram");
            let sent = bench.sent();
            let header = ipv4::Header::read_quoted(&sent[0]).expect("well formed").0;
            assert!(!header.dont_fragment);
            header.identification.into()
        })
        .collect()
}

/// Returns segments that open connections to one server.
fn openings() -> Vec<Segment> {
    let mut bench = Bench::new(|_| {});
    (0..COUNT).map(|_| bench.opens(SocketAddr::new(address(2), 80))).collect()
}

/// Returns ports that the board chose for listeners on port 0.
fn listening_ports() -> Vec<u64> {
    let mut bench = Bench::new(|_| {});
    let any = SocketAddr::new(address(1), 0);
    let chosen = (0..COUNT).map(|_| {
        let mut host = bench.board.host();
        let (number, local) =
            kiban_board::streams::listen(&mut host, Owner::BOARD, any, false).expect("a free port");
        host.unlisten(number).expect("it listens");
        u64::from(local.port()) & 0x3fff
    });
    chosen.collect()
}

/// Returns sequence numbers of SYN-ACKs to SYNs from many ports.
fn answers(cookies: SynCookies) -> Vec<u64> {
    let mut bench = Bench::new(|config| (config.tcp.syn_cookies, config.tcp.backlog) = (cookies, COUNT));
    bench.board.host().listen(SocketAddr::new(address(1), 80)).expect("a listener");
    (0..COUNT as u16)
        .map(|port| bench.answers(SocketAddr::new(address(2), 1024 + port), 80).sequence.0.into())
        .collect()
}

/// Returns the keys in connection requests of VIs, and those in the answers.
fn vi_keys() -> [Vec<u64>; 2] {
    let traits = PathTraits { packet_bytes: 1024, lossless: true, checked: false };
    let mut sides = [1, 2].map(|seed| {
        let mut nic = vi_nic(seed);
        let (path, tag) = (nic.open_path(traits).expect("room"), nic.create_tag().expect("room"));
        let like = ViAttributes {
            reliability: Reliability::Delivery,
            transfer_bytes_max: 1000,
            qos: 0,
            tag,
            rdma_write: false,
            rdma_read: false,
        };
        let vi = nic.create_vi(like, None, None).expect("room");
        (nic, path, vi)
    });
    sides[1].0.listen(b"port").expect("room for a listener");
    let now = Instant::ZERO;
    let pass = |sides: &mut [(vi::Nic, u32, u32); 2], from: usize| -> Vec<u64> {
        let mut room = [0; 1024];
        let mut keys = Vec::new();
        sides[from].0.settle(now);
        while let Some(length) = {
            let (nic, path, _) = &mut sides[from];
            nic.fetch(*path, &mut SharedRoom::from(&mut room[..]), now)
        } {
            let packet = &room[..length];
            keys.extend(Setup::read(&packet[HEADER_BYTES..]).ok().map(|(setup, _)| u64::from(setup.key)));
            let (nic, path, _) = &mut sides[1 - from];
            nic.arrive(*path, SharedBytes::from(packet), now);
        }
        keys
    };
    let mut keys: [Vec<u64>; 2] = Default::default();
    for _ in 0..COUNT {
        let (nic, path, vi) = &mut sides[0];
        nic.request(*vi, *path, (b"mine", b"port"), false, now, now + Duration::from_secs(1)).expect("idle");
        keys[0].extend(pass(&mut sides, 0));
        let (nic, _, vi) = &mut sides[1];
        let request = nic.request_at(b"port").expect("it arrived");
        nic.accept(request.number, *vi, now).expect("the ends are alike");
        keys[1].extend(pass(&mut sides, 1));
        for from in 0..2 {
            let vi = sides[from].2;
            pass(&mut sides, from);
            let _ = sides[from].0.disconnect(vi);
            pass(&mut sides, from);
        }
        for side in &mut sides {
            let _ = side.0.disconnect(side.2);
            while side.0.event().is_some() {}
        }
    }
    keys
}

/// Returns correlation tags of loopback cells.
fn loopback_tags() -> Vec<u64> {
    let mut port = AtmPortConfig::oc3c(address(1), "10.0.0.0/16".parse().unwrap());
    port.circuits.push(CircuitConfig::to(Vc::new(0, 100), address(2)));
    let mut board = board(&BoardConfig { ports: vec![PortConfig::Atm(port)], ..BoardConfig::default() });
    let mut now = Instant::from_nanos(1);
    (0..COUNT)
        .map(|_| {
            let tag = board.host().cell_loopback(0, 0).expect("a circuit without a ping");
            for _ in 0..3 {
                board.handle(Input::Timeout, now);
                while !matches!(board.poll(), Output::Idle { .. }) {
                    assert!(board.host().completion().is_none(), "nobody answers");
                }
                board.cells(0, now, &mut Vec::new());
                now += Duration::from_secs(3);
            }
            tag.into()
        })
        .collect()
}

/// Returns keys of EFE flows, and the flows' first sequence numbers.
fn flows() -> [Vec<u64>; 2] {
    let mut end = endpoint(1);
    let mut room = vec![0; end.frame_bytes_max()];
    let mut numbers: [Vec<u64>; 2] = Default::default();
    let mut now = Instant::ZERO;
    for _ in 0..COUNT {
        let flow = end.connect(Peer(7), 1, b"", now).expect("room for a flow");
        let (_, length) = end.fetch(&mut room, now).expect("it asks");
        let (header, front) = kiban_rdma::wire::efe::Header::read(&room[..length]).expect("well formed");
        numbers[0].push(u32::from_be_bytes(room[front + 4..front + 8].try_into().unwrap()).into());
        numbers[1].push(header.sequence.into());
        let _ = end.abort(flow, now);
        while end.fetch(&mut room, now).is_some() {}
        now += Duration::from_secs(100);
        end.settle(now);
        while end.poll().is_some() {}
    }
    numbers
}

fn tags() -> Vec<u64> {
    let mut nic = rnic(1);
    let pd = nic.create_pd().expect("room");
    let region = Region::new(0, 1);
    (0..COUNT).map(|_| nic.register(pd, region.clone(), Access::ALL).expect("room").into()).collect()
}

/// Returns the generation of the first queue pair on each of many NICs. The generation is the only random
/// part of a queue pair number.
fn queue_pair_generations() -> Vec<u64> {
    let first = |seed| {
        let mut nic = rnic(seed);
        let (pd, cq) = (nic.create_pd().expect("room"), nic.create_cq(8).expect("room"));
        let attributes = QpAttributes {
            pd,
            send_cq: cq,
            receive_cq: cq,
            srq: None,
            send_work_max: 1,
            receive_work_max: 1,
            send_sges_max: 1,
            receive_sges_max: 1,
            inline_bytes_max: 0,
            signal_all: false,
            waits_for_receives: false,
        };
        let qp = nic.create_qp(attributes).expect("room");
        u64::from(qp >> 20)
    };
    (0..COUNT as u64).map(first).collect()
}

fn vi_nic(seed: u64) -> vi::Nic {
    vi::Nic::new(vi::Config::default(), RngKey::for_simulation(seed))
}

fn endpoint(seed: u64) -> Endpoint {
    Endpoint::new(efe::Config::default(), RngKey::for_simulation(seed))
}

fn rnic(seed: u64) -> Rnic {
    Rnic::new(RnicConfig::default(), RngKey::for_simulation(seed))
}

#[test]
fn numbers_of_the_wire_are_not_predicted() {
    let openings = openings();
    let of = |part: fn(&Segment) -> u64| openings.iter().map(part).collect::<Vec<u64>>();
    let [asked, accepted] = vi_keys();
    let [keys, sequences] = flows();
    let rows: Vec<(&str, u32, Vec<u64>)> = vec![
        ("IPv6: identifications of fragments", 32, fragments6(&mut Bench::new(|_| {}))),
        ("IPv4: identifications towards many hosts", 16, datagrams4()),
        ("TCP: ephemeral ports", 14, of(|syn| u64::from(syn.source_port) & 0x3fff)),
        ("TCP: ports of listeners that name none", 14, listening_ports()),
        ("TCP: initial sequence numbers of who opens", 32, of(|syn| syn.sequence.0.into())),
        (
            "TCP: beginnings of the timestamps' clock",
            32,
            of(|syn| syn.options.timestamps.expect("sent").value.into()),
        ),
        ("TCP: initial sequence numbers of who answers", 32, answers(SynCookies::Off)),
        ("TCP: SYN cookies", 32, answers(SynCookies::Always)),
        ("VI: keys of requests", 32, asked),
        ("VI: keys of answers", 32, accepted),
        ("ATM: correlation tags of loopback cells", 32, loopback_tags()),
        ("EFE: keys of flows", 32, keys),
        ("EFE: first sequence numbers", 32, sequences),
        ("iWARP: steering tags", 32, tags()),
        ("RDMA: generations of queue pair numbers", 12, queue_pair_generations()),
    ];
    let mut found = Vec::new();
    for (name, bits, outputs) in rows {
        assert_eq!(outputs.len(), COUNT, "{name}");
        found.extend(predicted(&outputs, bits).map(|generator| format!("{name}: {generator}")));
    }
    assert!(found.is_empty(), "predicted: {found:#?}");
}

/// An attack that must fail: fragment identifications reveal the generator's state, from which the attacker
/// computes TCP's key, drawn earlier, and with it the next initial sequence number.
#[test]
fn fragments_do_not_tell_the_key_of_tcp() {
    let mut bench = Bench::new(|_| {});
    let seen = fragments6(&mut bench);
    let remote = SocketAddr::new(address(2), 80);
    let syn = bench.opens(remote);
    let Some((seed, first)) = splitmix_of_small_seed(&seen, 32) else { return };
    let draws: Vec<u64> = splitmix_draws(seed).take(first).collect();
    let names = [SocketAddr::new(address(1), syn.source_port), remote];
    let key = draws.windows(2).position(|key| {
        // The initial sequence number of RFC 6528 §3, with a clock near zero.
        let mut hasher = SipHasher24::new_with_keys(key[0], key[1]);
        hasher.write_u8(b'i');
        for name in names {
            let IpAddr::V4(address) = name.ip() else { panic!("IPv4") };
            hasher.write(&address.octets());
            hasher.write(&name.port().to_be_bytes());
        }
        hasher.finish() as u32 == syn.sequence.0
    });
    panic!(
        "the generator began at {seed}; draw {key:?} is the key with which the next connection was predicted"
    );
}
