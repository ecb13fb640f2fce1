//! One test suite for all links: the contract that every link must keep, whatever its transport.
//!
//! A *pair* is two connected links. Units sent at one end arrive at the other, whole and in order; no call
//! blocks; units that do not belong to the link are counted; a lost peer is reported as an error. On links of
//! packets or frames, an item is one of them; on links of cells it is an AAL5 frame, which the test segments
//! and reassembles with code that the links do not use.

mod net;

use kiban_atm::TimedCell;
use kiban_atm::wire::aal5;
use kiban_atm::wire::atm::{CELL_PAYLOAD_BYTES, Header, Interface, Vc};
use kiban_base::crc::Crc32Aal5;
use kiban_base::{Instant, Memory, PagePool, Pdu, PduPool, Slice};
use kiban_link::pcap::UnitKind;
use kiban_link::{Address, AnyLink, LinkContext, LinkCounters};
use kiban_os::Clock;
use kiban_os::interface;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

/// EtherType for local experiments (IEEE Std 802).
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];
const CIRCUIT: Vc = Vc::new(0, 100);

/// A link, and the packet memory that a board would provide.
struct End {
    link: AnyLink,
    memory: Memory,
    clock: Clock,
    packets: VecDeque<Pdu>,
    cells: VecDeque<TimedCell>,
    /// The frame in reassembly.
    frame: Vec<u8>,
    /// Number of frames that were incomplete.
    torn: usize,
    came: Vec<Vec<u8>>,
}

impl End {
    fn open(address: &str) -> io::Result<End> {
        let address: Address = address.parse().unwrap_or_else(|error| panic!("{error}"));
        let memory = Memory {
            transmit: PagePool::new(2048, 4096),
            receive: PagePool::new(2048, 4096),
            pdus: PduPool::new(4096),
        };
        Ok(End {
            link: address.open()?,
            memory,
            clock: Clock::new(),
            packets: VecDeque::new(),
            cells: VecDeque::new(),
            frame: Vec::new(),
            torn: 0,
            came: Vec::new(),
        })
    }

    fn with(address: &str) -> End {
        let clock = Clock::new();
        loop {
            match End::open(address) {
                // While another test starts a program, the child holds copies of all files until its exec, so
                // an address that was freed may be in use for a moment.
                Err(error)
                    if error.kind() == io::ErrorKind::AddrInUse
                        && clock.now() < Instant::ZERO + Duration::from_secs(10) => {}
                result => return result.unwrap_or_else(|error| panic!("{address}: {error}")),
            }
        }
    }

    /// Queues an item, and sends as much as the link accepts.
    fn send(&mut self, item: &[u8]) -> io::Result<()> {
        match self.link.unit_kind() {
            UnitKind::Cells => cut(item, &mut self.cells),
            _ => {
                let mut pdu = self.memory.pdus.take().expect("there are blocks");
                let (head, mut rest) = item.split_at(item.len().min(40));
                pdu.push_head(head.len()).copy_from_slice(head);
                while !rest.is_empty() {
                    let mut page = self.memory.transmit.take().expect("there are pages");
                    let slice: Slice = page.append(rest).expect("it is empty");
                    rest = &rest[slice.len()..];
                    pdu.push_body(slice).expect("there is a place");
                }
                self.packets.push_back(pdu);
            }
        }
        self.push()
    }

    fn push(&mut self) -> io::Result<()> {
        let lent = &mut LinkContext { now: self.clock.now(), memory: &mut self.memory };
        match &mut self.link {
            AnyLink::Packets(link) | AnyLink::Frames(link) => link.send(&mut self.packets, lent),
            AnyLink::Cells(link) => link.send(&mut self.cells, lent),
        }
    }

    /// Calls the link once and appends received units to `came`.
    fn pull(&mut self) -> io::Result<()> {
        let lent = &mut LinkContext { now: self.clock.now(), memory: &mut self.memory };
        match &mut self.link {
            AnyLink::Packets(link) | AnyLink::Frames(link) => {
                let mut into = VecDeque::new();
                let result = link.receive(lent, &mut into);
                for pdu in into {
                    // The sums match the bytes, unless the PDU is marked as verified.
                    let sums = pdu
                        .body()
                        .iter()
                        .all(|slice| slice.sum().checksum() == kiban_base::Sum::of(slice.bytes()).checksum());
                    assert!(sums || pdu.is_verified());
                    self.came.push(pdu.runs().flatten().copied().collect());
                }
                result
            }
            AnyLink::Cells(link) => {
                let mut into = VecDeque::new();
                let result = link.receive(lent, &mut into);
                for cell in into {
                    assert_eq!(cell, TimedCell::new(cell.at, cell.header, cell.payload), "its HEC fits");
                    let header = Header::from_word(Interface::Uni, cell.header);
                    assert_eq!(header.vc, CIRCUIT);
                    self.frame.extend_from_slice(&cell.payload);
                    if header.is_last() {
                        let frame = std::mem::take(&mut self.frame);
                        match aal5::open(&frame) {
                            Ok((_, payload)) => self.came.push(payload.to_vec()),
                            Err(_) => self.torn += 1,
                        }
                    }
                }
                result
            }
        }
    }

    /// Returns whether a received unit is an item: not one of the kernel's own frames, and not a late probe.
    fn is_item(&self, came: &[u8]) -> bool {
        self.link.unit_kind() != UnitKind::Frames || came.get(12..14) == Some(&ETHER_TYPE)
    }

    /// Removes and returns the items received.
    fn items(&mut self) -> Vec<Vec<u8>> {
        let came = std::mem::take(&mut self.came);
        came.into_iter().filter(|came| self.is_item(came)).collect()
    }

    fn counters(&self) -> LinkCounters {
        match &self.link {
            AnyLink::Packets(link) | AnyLink::Frames(link) => link.counters(),
            AnyLink::Cells(link) => link.counters(),
        }
    }

    fn deadline(&self) -> Instant {
        match &self.link {
            AnyLink::Packets(link) | AnyLink::Frames(link) => link.deadline(),
            AnyLink::Cells(link) => link.deadline(),
        }
    }

    /// Sleeps until the link's file is readable or its deadline passes.
    fn wait(&self) {
        let file = match &self.link {
            AnyLink::Packets(link) | AnyLink::Frames(link) => link.file(),
            AnyLink::Cells(link) => link.file(),
        };
        let most = self.deadline().since(self.clock.now()).min(Duration::from_millis(20));
        let timeout = Timespec { tv_sec: 0, tv_nsec: most.as_nanos() as _ };
        let mut files: Vec<PollFd<'_>> = file.iter().map(|file| PollFd::new(file, PollFlags::IN)).collect();
        let _ = poll(&mut files, Some(&timeout));
    }

    /// Receives until `done` returns true, for at most ten seconds.
    fn take_until(&mut self, mut done: impl FnMut(&End) -> bool) -> io::Result<()> {
        let until = self.clock.now() + Duration::from_secs(10);
        loop {
            self.pull()?;
            if done(self) {
                return Ok(());
            }
            assert!(self.clock.now() < until, "it did not come; {:?}", self.counters());
            self.wait();
        }
    }

    /// Returns the error that ends the link.
    fn end(&mut self) -> String {
        let mut error = None;
        let until = self.clock.now() + Duration::from_secs(10);
        while error.is_none() {
            error = self.pull().err().or_else(|| self.push().err());
            assert!(self.clock.now() < until, "it did not end; {:?}", self.counters());
            self.wait();
        }
        error.map(|error| error.to_string()).unwrap_or_default()
    }
}

fn cut(frame: &[u8], into: &mut VecDeque<TimedCell>) {
    let mut crc = Crc32Aal5::new();
    crc.update(frame);
    let mut tail = [0; aal5::TAIL_BYTES_MAX];
    let length = aal5::write_tail(frame.len(), 0, crc, &mut tail);
    let whole = [frame, &tail[..length]].concat();
    let (payloads, []) = whole.as_chunks::<CELL_PAYLOAD_BYTES>() else { panic!("cells are whole") };
    for (number, payload) in payloads.iter().enumerate() {
        let word = Header::user(CIRCUIT, number + 1 == payloads.len()).to_word(Interface::Uni);
        into.push_back(TimedCell::new(Instant::ZERO, word, *payload));
    }
}

/// Builds an item of a given length; a frame begins with MAC addresses and an EtherType.
fn item(end: &End, length: usize, seed: usize) -> Vec<u8> {
    let mut item: Vec<u8> = (0..length).map(|place| (place * 7 + place / 251 + seed * 31) as u8).collect();
    if end.link.unit_kind() == UnitKind::Frames {
        item[..6].copy_from_slice(&[0xff; 6]);
        item[6..12].copy_from_slice(&[2, 0, 0, 0, 0, (seed & 1) as u8]);
        item[12..14].copy_from_slice(&ETHER_TYPE);
    }
    item
}

fn ip(command: &str) {
    let output = Command::new("ip").args(command.split(' ')).output().expect("iproute2 is there");
    assert!(output.status.success(), "ip {command}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Stops the kernel from sending its own packets on new interfaces.
fn hush() {
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
}

/// Returns the number of packets that this machine has dropped so far, in all namespaces: on a loopback or a
/// veth, packets wait in a CPU's backlog of 1000 (net.core.netdev_max_backlog), which overflows when other
/// work keeps the CPU busy.
fn thrown_away() -> u64 {
    let told = std::fs::read_to_string("/proc/net/softnet_stat").expect("the kernel tells");
    let second = |line: &str| u64::from_str_radix(line.split(' ').nth(1)?, 16).ok();
    told.lines().map(|line| second(line).expect("columns of numbers")).sum()
}

/// Returns every pair: its name, the addresses of both ends, the listening one first, and the longest item.
fn pairs() -> Vec<(&'static str, String, String, usize)> {
    let cells = "udp-cells:127.0.0.1:7000-127.0.0.1:7001";
    let back = "udp-cells:127.0.0.1:7001-127.0.0.1:7000";
    let wire = "pseudowire:127.0.0.1-127.0.0.2,label=1000,label-in=1001";
    let wire_back = "pseudowire:127.0.0.2-127.0.0.1,label=1001,label-in=1000";
    let own = |one: &str, other: &str| (one.to_owned(), other.to_owned());
    let rows = [
        ("cells a datagram each", own(cells, back), 65_535),
        ("packed cells", (format!("{cells},packed"), format!("{back},packed=100")), 65_535),
        ("packed cells to who sends one each", (format!("{cells},packed"), back.to_owned()), 65_535),
        ("a pseudowire", own(wire, wire_back), 65_535),
        (
            "a pseudowire with control words",
            (format!("{wire},control-word"), format!("{wire_back},control-word,cells=1")),
            65_535,
        ),
        ("atmtcp", own("atmtcp:listen:127.0.0.1:7010", "atmtcp:127.0.0.1:7010"), 65_535),
        ("cells over TCP", own("tcp-cells:listen:127.0.0.1:7011", "tcp-cells:127.0.0.1:7011"), 65_535),
        ("packets over TCP", own("tcp-packets:listen:[::1]:7012", "tcp-packets:[::1]:7012"), 65_535),
        ("frames over TCP", own("tcp-frames:listen:127.0.0.1:7013", "tcp-frames:127.0.0.1:7013"), 65_549),
        (
            "packets over UDP",
            own("udp-packets:[::1]:7014-[::1]:7015", "udp-packets:[::1]:7015-[::1]:7014"),
            65_000,
        ),
        (
            "frames over UDP",
            own("udp-frames:127.0.0.1:7016-127.0.0.1:7017", "udp-frames:127.0.0.1:7017-127.0.0.1:7016"),
            65_507,
        ),
        ("interfaces", own("packet:lab0", "packet:lab1,offload=off"), 1514),
        ("queues of interfaces", own("xdp:lab0", "xdp:lab1,queue=0"), 1514),
        ("a queue and an interface", own("xdp:lab0", "packet:lab1,offload=off"), 1514),
        ("TAP devices on a bridge", own("tap:tap0", "tap:tap1,offload=off"), 1514),
        (
            "packets that take their time",
            (
                "udp-packets:127.0.0.1:7018-127.0.0.1:7019,delay=2ms,jitter=1ms,rate=1Gbit".to_owned(),
                "udp-packets:127.0.0.1:7019-127.0.0.1:7018,delay=1ms".to_owned(),
            ),
            65_000,
        ),
        (
            "cells that take their time",
            (
                "udp-cells:127.0.0.1:7020-127.0.0.1:7021,delay=2ms,jitter=1ms,rate=600Mbit,queue=100000"
                    .to_owned(),
                "udp-cells:127.0.0.1:7021-127.0.0.1:7020,packed".to_owned(),
            ),
            65_535,
        ),
    ];
    rows.into_iter().map(|(name, (one, other), longest)| (name, one, other, longest)).collect()
}

/// Waits until an interface works. The kernel checks the carrier asynchronously, and until then drops the
/// frames that it accepts.
fn until_up(name: &str) {
    let clock = Clock::new();
    while {
        let output = Command::new("ip").args(["link", "show", name]).output().expect("iproute2 is there");
        !String::from_utf8_lossy(&output.stdout).contains(" state UP ")
    } {
        assert!(clock.now() < Instant::ZERO + Duration::from_secs(10), "{name} does not come up");
    }
}

/// Returns whether a pair is the two ends of a veth pair.
fn is_veth(one: &str) -> bool {
    one.starts_with("packet:") || one.starts_with("xdp:")
}

/// Opens both ends of a pair.
fn open(one: &str, other: &str) -> (End, End) {
    if is_veth(one) {
        ip("link add lab0 type veth peer name lab1");
        interface::set_up("lab0").expect("up");
        interface::set_up("lab1").expect("up");
        ["lab0", "lab1"].into_iter().for_each(until_up);
    }
    let (mut first, second) = (End::with(one), End::with(other));
    if one.starts_with("tap:") {
        ip("link add bridge0 type bridge");
        for name in ["tap0", "tap1"] {
            ip(&format!("link set {name} master bridge0"));
            interface::set_up(name).expect("up");
        }
        interface::set_up("bridge0").expect("up");
    }
    // The listening link accepts its peer in this call.
    first.pull().expect("the link is up");
    (first, second)
}

fn close(one: &str, ends: (End, End)) {
    drop(ends);
    if is_veth(one) {
        ip("link del lab0");
    }
    if one.starts_with("tap:") {
        ip("link del bridge0");
    }
}

/// Waits until the bridge between the ends forwards. The probes have a different EtherType from items, since
/// some may arrive late.
fn is_through(first: &mut End, second: &mut End) {
    let mut probe = item(first, 64, 0);
    probe[12..14].copy_from_slice(&[0x88, 0xb6]);
    let until = first.clock.now() + Duration::from_secs(10);
    while !second.came.contains(&probe) {
        first.send(&probe).expect("the link is up");
        second.wait();
        second.pull().expect("the link is up");
        assert!(first.clock.now() < until, "nothing goes through");
    }
}

#[test]
fn units_arrive_complete_and_in_order_both_ways() {
    if !net::enter() {
        return;
    }
    hush();
    for (name, one, other, longest) in pairs() {
        let (mut first, mut second) = open(&one, &other);
        if one.starts_with("tap:") {
            is_through(&mut first, &mut second);
            is_through(&mut second, &mut first);
        }
        let least = if first.link.unit_kind() == UnitKind::Frames { 14 } else { 1 };
        let lengths =
            [1, 2, 13, 14, 39, 40, 41, 48, 53, 60, 95, 96, 1500, 1514, 4096, 9180, 9188, 20_000, longest];
        let lengths = lengths.into_iter().filter(|length| (least..=longest).contains(length));
        let single: Vec<usize> = lengths.collect();
        for reversed in [false, true] {
            let (from, to) = if reversed { (&mut second, &mut first) } else { (&mut first, &mut second) };
            let mut torn = 0;
            // If nothing has arrived, the call returns at once without units.
            to.pull().expect("the link is up");
            assert_eq!(to.items(), Vec::<Vec<u8>>::new(), "{name}");
            // Send the items one by one, then in a burst that fits every queue on the path.
            for lengths in single.chunks(1).chain([&[100; 200][..], &[1400; 100]]) {
                let sent: Vec<Vec<u8>> = lengths
                    .iter()
                    .enumerate()
                    .map(|(number, length)| item(from, *length, number + usize::from(reversed)))
                    .collect();
                let mut came = Vec::new();
                for run in 1.. {
                    let thrown = thrown_away();
                    sent.iter().for_each(|item| from.send(item).expect("the link is up"));
                    let until = to.clock.now() + Duration::from_secs(10);
                    while came.len() < sent.len() && to.clock.now() < until {
                        from.push().expect("the link is up");
                        from.pull().expect("the link is up");
                        to.pull().expect("the link is up");
                        came.append(&mut to.items());
                        if came.len() < sent.len() {
                            if from.deadline() < to.deadline() { from.wait() } else { to.wait() }
                        }
                    }
                    if came.len() == sent.len() {
                        break;
                    }
                    let thrown = thrown_away() - thrown;
                    let what = format!("{name}: {} of {lengths:?} came; {:?}", came.len(), to.counters());
                    // Only the kernel's backlog may have lost items; then its drop counter has increased, and
                    // the test tries again.
                    assert!(thrown > 0 && run < 4, "{what}; the machine has thrown away {thrown} packets");
                    println!("once more: {what}; the machine has thrown away {thrown} packets");
                    came.clear();
                    to.frame.clear();
                    torn = to.torn;
                }
                assert!(came == sent, "{name}: {lengths:?}");
                assert_eq!(to.torn, torn, "{name}: {lengths:?}");
            }
        }
        for end in [&first, &second] {
            let LinkCounters {
                no_memory: starved,
                malformed,
                wrong_sender: strangers,
                send_errors: refused,
                units_in,
                units_out,
                ..
            } = end.counters();
            assert_eq!((starved, malformed, strangers, refused), (0, 0, 0, 0), "{name}");
            assert!(units_in > 300 && units_out > 300, "{name}: {:?}", end.counters());
        }
        close(&one, (first, second));
    }
}

/// Builds an IPv4 packet with a UDP datagram without a checksum.
fn datagram(payload: &[u8]) -> Vec<u8> {
    let total = (28 + payload.len()) as u16;
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 9, 0, 2, 10, 9, 0, 1];
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    let sum = kiban_base::Sum::of(&packet).checksum();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend([0, 7, 0, 9]);
    packet.extend((total - 20).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}

#[test]
fn packets_travel_through_a_tun_device_to_the_kernel_and_back() {
    if !net::enter() {
        return;
    }
    hush();
    for address in ["tun:kiban0", "tun:kiban0,offload=off", "tun:kiban0,delay=1ms"] {
        let mut end = End::with(address);
        interface::set_mtu("kiban0", 9000).expect("an MTU");
        interface::set_address("kiban0", [10, 9, 0, 1].into(), 24).expect("an address");
        interface::set_up("kiban0").expect("up");
        let socket = UdpSocket::bind("10.9.0.1:9").expect("the kernel has the address");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        for length in [1, 2, 12, 13, 500, 1472, 8972] {
            let payload: Vec<u8> = (0..length).map(|place| (place * 3 + length) as u8).collect();
            end.send(&datagram(&payload)).expect("the link is up");
            let sent = end.counters().units_out;
            end.take_until(|end| end.deadline() == Instant::NEVER).expect("the link is up");
            let mut room = vec![0; 10_000];
            let (count, from) = socket.recv_from(&mut room).expect("it comes");
            assert_eq!(
                (&room[..count], from),
                (&payload[..], SocketAddr::from(([10, 9, 0, 2], 7))),
                "{address}"
            );
            assert!(sent > 0);
            socket.send_to(&payload, "10.9.0.2:7").expect("there is a route");
            end.take_until(|end| !end.came.is_empty()).expect("the link is up");
            let packet = end.came.remove(0);
            assert_eq!((&packet[28..], packet.len()), (&payload[..], 28 + length), "{address}");
        }
        // Invalid packets are refused and counted; those that follow are sent.
        let before = end.counters();
        end.send(&[0xff; 60]).expect("the link is up");
        end.send(&datagram(b"after")).expect("the link is up");
        end.take_until(|end| end.deadline() == Instant::NEVER).expect("the link is up");
        let mut room = [0; 16];
        assert_eq!(socket.recv(&mut room).expect("it comes"), 5, "{address}");
        assert_eq!(end.counters().send_errors - before.send_errors, 1, "{address}");
    }
}

#[test]
fn checksums_left_to_the_card_are_computed_for_single_packets() {
    if !net::enter() {
        return;
    }
    hush();
    ip("link add lab0 type veth peer name lab1");
    interface::set_up("lab0").expect("up");
    interface::set_up("lab1").expect("up");
    interface::set_address("lab1", [10, 9, 0, 1].into(), 24).expect("an address");
    let mac = interface::mac("lab0").expect("the interface exists");
    ip(&format!("neigh add 10.9.0.2 lladdr {mac} dev lab1"));
    for address in ["packet:lab0,offload=off", "xdp:lab0"] {
        let mut end = End::with(address);
        let socket = UdpSocket::bind("10.9.0.1:9").expect("the kernel has the address");
        for length in [0, 1, 2, 3, 18, 19, 500, 1471, 1472] {
            let payload: Vec<u8> = (0..length).map(|place| (place * 3 + length) as u8).collect();
            socket.send_to(&payload, "10.9.0.2:7").expect("a route exists");
            let is_it = |frame: &Vec<u8>| frame.get(12..14) == Some(&[8, 0]) && frame[23] == 17;
            end.take_until(|end| end.came.iter().any(is_it)).expect("the link is up");
            let frame = end.came.iter().find(|frame| is_it(frame)).expect("it has come").clone();
            end.came.clear();
            let datagram = &frame[34..42 + length];
            assert_eq!(datagram[8..], payload, "{address}");
            let of = |from: usize| std::net::Ipv4Addr::from(*frame[from..].first_chunk::<4>().expect("four"));
            let pseudo = kiban_base::checksum::pseudo_ipv4(of(26), of(30), 17, datagram.len());
            let sum = pseudo.plus(kiban_base::Sum::of(datagram));
            assert!(datagram[6..8] != [0, 0] && sum.is_intact(), "{address}, {length} bytes");
        }
    }
}

#[test]
fn an_af_xdp_link_takes_a_queue_from_the_kernel_and_returns_it() {
    if !net::enter() {
        return;
    }
    hush();
    let (mut first, mut second) = open("xdp:lab0", "xdp:lab1");
    // A packet socket on the same interface receives only what the AF_XDP socket does not take.
    let mut kernel = End::with("packet:lab0");
    let frame = item(&second, 200, 1);
    second.send(&frame).expect("the link is up");
    first.take_until(|end| !end.came.is_empty()).expect("the link is up");
    kernel.pull().expect("the link is up");
    assert_eq!((first.items(), kernel.items()), (vec![frame.clone()], vec![]));
    let error = End::open("xdp:lab0").err().expect("the queue is taken").to_string();
    assert!(error.contains("a queue takes one AF_XDP socket"), "{error}");
    drop(first);
    second.send(&frame).expect("the link is up");
    kernel.take_until(|end| !end.came.is_empty()).expect("the link is up");
    assert_eq!(kernel.items(), vec![frame]);
    // Another link can be opened once the kernel has released the queue.
    let until = second.clock.now() + Duration::from_secs(10);
    while let Err(error) = End::open("xdp:lab0") {
        assert!(second.clock.now() < until && error.to_string().contains("busy"), "{error}");
    }
    for (address, says) in [("xdp:lab9", "no such interface"), ("xdp:lab0,queue=7", "ethtool -l lab0")] {
        let error = End::open(address).err().expect(address).to_string();
        assert!(error.contains(says), "{error}");
    }
    // Close the link at the other interface, because its XDP program limits this interface's MTU too.
    drop((second, kernel));
    ip("link set lab0 mtu 9000");
    let error = End::open("xdp:lab0").err().expect("too long").to_string();
    assert!(error.contains("ip link set lab0 mtu 3822"), "{error}");
}

#[test]
fn an_interface_goes_down_up_and_is_removed() {
    if !net::enter() {
        return;
    }
    hush();
    for (one, name) in
        [("packet:lab0", "lab0"), ("xdp:lab0", "lab0"), ("tap:tap0", "tap0"), ("tun:tun0", "tun0")]
    {
        let mut end = if is_veth(one) {
            open(one, "packet:lab1").0
        } else {
            let end = End::with(one);
            interface::set_up(name).expect("up");
            end
        };
        let bytes = if one.starts_with("tun:") { datagram(b"here") } else { item(&end, 64, 1) };
        end.send(&bytes).expect("the link is up");
        let up = end.counters();
        assert_eq!((up.units_out, up.send_errors), (1, 0), "{one}");
        for _ in 0..2 {
            interface::set_down(name).expect("down");
            let before = end.counters();
            end.send(&bytes).expect("it is down, not gone");
            end.pull().expect("it is down, not gone");
            let after = end.counters();
            assert_eq!(
                (after.units_out, after.send_errors),
                (before.units_out, before.send_errors + 1),
                "{one}"
            );
            interface::set_up(name).expect("up");
            end.pull().expect("it is up");
            end.send(&bytes).expect("it is up");
            assert_eq!(end.counters().units_out, before.units_out + 1, "{one}");
        }
        ip(&format!("link del {name}"));
        let error = end.end();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn datagrams_of_other_senders_and_malformed_ones_are_counted() {
    if !net::enter() {
        return;
    }
    let loopback = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let cell = TimedCell::new(Instant::ZERO, Header::user(CIRCUIT, true).to_word(Interface::Uni), [0; 48])
        .to_bytes();
    let wire = [&[0, 0x3e, 0x81, 0xff][..], &cell[..4], &cell[5..]].concat();
    for (address, good, bad) in [
        ("udp-cells:127.0.0.1:7000-127.0.0.1:7001", cell.to_vec(), vec![1, 52, 54, 107, 9000]),
        ("pseudowire:127.0.0.1:7000-127.0.0.1:7001,label=1000", wire, vec![3, 4, 55, 57, 9001]),
        ("udp-frames:127.0.0.1:7000-127.0.0.1:7001", vec![7; 60], vec![0]),
    ] {
        let mut end = End::with(address);
        let peer = UdpSocket::bind(loopback(7001)).expect("a port");
        let is_wire = address.starts_with("pseudowire");
        let stranger =
            UdpSocket::bind(if is_wire { "127.0.0.2:7001" } else { "127.0.0.1:7002" }).expect("a port");
        for length in &bad {
            let mut bytes = good.clone();
            bytes.resize(*length, 0);
            peer.send_to(&bytes, loopback(7000)).expect("sent");
        }
        stranger.send_to(&good, loopback(7000)).expect("sent");
        peer.send_to(&good, loopback(7000)).expect("sent");
        let all = bad.len() as u64 + 2;
        let seen = |its: LinkCounters| its.malformed + its.wrong_sender + its.units_in;
        let into = &mut VecDeque::new();
        let mut lent = LinkContext { now: Instant::ZERO, memory: &mut end.memory };
        match &mut end.link {
            AnyLink::Cells(link) => link.receive(&mut lent, into).expect("the link is up"),
            AnyLink::Packets(link) | AnyLink::Frames(link) => {
                link.receive(&mut lent, &mut VecDeque::new()).expect("the link is up");
            }
        }
        let counters = end.counters();
        assert_eq!(seen(counters), all, "{address}: {counters:?}");
        assert_eq!((counters.wrong_sender, counters.units_in), (1, 1), "{address}");
    }
}

#[test]
fn another_protocol_or_a_close_ends_the_link() {
    if !net::enter() {
        return;
    }
    let frame = |vpi: u16, length: u32| {
        [&vpi.to_be_bytes()[..], &100u16.to_be_bytes(), &length.to_be_bytes(), &[9; 40]].concat()
    };
    let unit = |length: u32| [&length.to_be_bytes()[..], &[9; 40]].concat();
    for (address, says, expected, came) in [
        ("atmtcp", frame(0, 40), "the peer closed the connection", 1),
        ("atmtcp", frame(0, 41), "the peer closed the connection within a message", 0),
        ("atmtcp", frame(0, 65_536), "the peer does not speak atmtcp", 0),
        ("atmtcp", frame(256, 40), "the peer does not speak atmtcp", 0),
        ("atmtcp", b"GET / HTTP/1.1\r\n\r\n".to_vec(), "the peer does not speak atmtcp", 0),
        ("tcp-packets", unit(40), "the peer closed the connection", 1),
        ("tcp-packets", unit(41), "within a message", 0),
        ("tcp-frames", unit(0), "not a stream of packets, frames or cells", 0),
        ("tcp-frames", unit(70_000), "not a stream of packets, frames or cells", 0),
    ] {
        // The peer sends one byte at a time; a message is processed once it is complete.
        let mut end = End::with(&format!("{address}:listen:127.0.0.1:7030"));
        let mut peer = TcpStream::connect("127.0.0.1:7030").expect("it listens");
        peer.set_nodelay(true).expect("no delay");
        let mut error = None;
        for byte in says {
            if error.is_some() || peer.write_all(&[byte]).is_err() {
                break;
            }
            error = end.pull().err();
        }
        drop(peer);
        let error = error.map_or_else(|| end.end(), |error| error.to_string());
        assert!(error.contains(expected), "{error}");
        assert!(error.contains(&format!("{address}:listen:127.0.0.1:7030")), "{error}");
        assert_eq!(end.came.len(), came, "{error}");
    }
    let listener = TcpListener::bind("127.0.0.1:7031").expect("a port");
    let mut end = End::with("atmtcp:127.0.0.1:7031");
    drop(listener.accept().expect("it calls"));
    assert!(end.end().contains("the peer closed the connection"));
    drop(listener);
    let error = End::open("atmtcp:127.0.0.1:7031").err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("start the other end first"), "{error}");
}

#[test]
fn a_peer_that_reads_nothing_blocks_no_other() {
    if !net::enter() {
        return;
    }
    for address in ["atmtcp", "tcp-frames"] {
        let mut end = End::with(&format!("{address}:listen:127.0.0.1:7040"));
        let mut peer = TcpStream::connect("127.0.0.1:7040").expect("it listens");
        end.pull().expect("the link is up");
        let frame = item(&end, 9000, 3);
        let count = 2000;
        for _ in 0..count {
            end.send(&frame).expect("the link is up");
            // Packets that the link does not accept stay with the caller.
            if !end.packets.is_empty() {
                break;
            }
        }
        let counters = end.counters();
        let cells = address == "atmtcp";
        assert_eq!(counters.send_errors > 0, cells, "{counters:?}");
        assert_eq!(end.packets.is_empty(), cells, "{counters:?}");
        // Once the peer reads, the link sends the rest, in complete messages only.
        let each = if cells { 8 + 9000 } else { 4 + 9000 };
        let waiting = end.packets.len() as u64;
        let wanted = if cells { counters.bytes_out } else { (counters.units_out + waiting) * each };
        let reader = std::thread::spawn(move || {
            let mut room = vec![0; wanted as usize];
            peer.read_exact(&mut room).expect("it comes");
            (room, peer)
        });
        while !reader.is_finished() {
            end.push().expect("the link is up");
            end.pull().expect("the link is up");
            end.wait();
        }
        let (room, _peer) = reader.join().expect("it has read");
        for message in room.chunks(each as usize) {
            assert_eq!(&message[each as usize - 9000..], frame);
        }
    }
}

#[test]
fn a_missing_privilege_is_named_with_an_alternative() {
    if !net::enter() {
        return;
    }
    ip("link add lab0 type veth peer name lab1");
    // Only this thread loses its capabilities, and it ends with the test.
    let none = rustix::thread::CapabilitySet::empty();
    let sets = rustix::thread::CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).expect("less is always allowed");
    for (address, says) in [
        ("tun:kiban0", "CAP_NET_ADMIN"),
        ("tap:kiban0", "CAP_NET_ADMIN"),
        ("packet:lab0", "CAP_NET_RAW"),
        ("packet:lab7", "no such interface"),
    ] {
        let error = End::open(address).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(says), "{error}");
        assert!(error.contains("udp-packets:") || says.contains("no such"), "{error}");
    }
    let open = End::open("udp-cells:127.0.0.1:0-127.0.0.1:7000");
    assert!(open.is_ok(), "{:?}", open.err());
}

#[test]
fn impairments_are_applied_as_configured_and_repeatable() {
    if !net::enter() {
        return;
    }
    let run = |options: &str| {
        let mut from = End::with(&format!("udp-packets:127.0.0.1:7000-127.0.0.1:7001{options}"));
        let mut to = End::with("udp-packets:127.0.0.1:7001-127.0.0.1:7000");
        for number in 0..1000u32 {
            from.send(&[&number.to_be_bytes()[..], &[7; 100]].concat()).expect("the link is up");
            to.pull().expect("the link is up");
        }
        from.take_until(|from| from.deadline() == Instant::NEVER).expect("the link is up");
        // Loopback delivers immediately, so read until nothing is left.
        while {
            let before = to.counters().units_in;
            to.pull().expect("the link is up");
            to.counters().units_in > before
        } {}
        to.items()
    };
    let number = |item: &Vec<u8>| u32::from_be_bytes(*item.first_chunk().expect("four bytes"));
    let plain = run("");
    assert_eq!(plain.iter().map(number).collect::<Vec<_>>(), (0..1000).collect::<Vec<_>>());
    let lossy = run(",loss=10%,seed=5");
    assert!((850..950).contains(&lossy.len()), "{}", lossy.len());
    assert!(lossy.iter().map(number).is_sorted());
    assert!(lossy == run(",loss=10%,seed=5") && lossy != run(",loss=10%,seed=6"));
    let doubled = run(",duplicate=10%");
    assert!((1050..1150).contains(&doubled.len()), "{}", doubled.len());
    let flipped = run(",corrupt=10%");
    let wrong = flipped.iter().zip(&plain).filter(|(one, other)| one != other).count();
    assert!(flipped.len() == 1000 && (50..150).contains(&wrong), "{wrong}");
    let reordered = run(",reorder=10%,hold=5ms");
    let mut order: Vec<u32> = reordered.iter().map(number).collect();
    assert!(!order.is_sorted());
    order.sort_unstable();
    assert_eq!(order, (0..1000).collect::<Vec<_>>());
    // 1000 packets of 104 bytes at 8.32 Mbit/s take 100 ms; the queue is bounded.
    let clock = Clock::new();
    let before = clock.now();
    let slow = run(",rate=8.32Mbit");
    let took = clock.now().since(before);
    assert!(slow.len() == 1000 && took >= Duration::from_millis(95), "{} in {took:?}", slow.len());
    let short = run(",rate=1Mbit,queue=20");
    assert!((21..500).contains(&short.len()), "{}", short.len());
    assert!(run(",jitter=2ms").iter().map(number).is_sorted());
}

#[test]
fn a_second_of_an_oc3c_both_ways_costs_less_than_a_second_of_one_core() {
    if !net::enter() {
        return;
    }
    for (name, packed) in [("a datagram each", ""), ("packed", ",packed")] {
        let mut first = End::with(&format!("udp-cells:127.0.0.1:7000-127.0.0.1:7001{packed}"));
        let mut second = End::with(&format!("udp-cells:127.0.0.1:7001-127.0.0.1:7000{packed}"));
        let cell = TimedCell::new(Instant::ZERO, 0x640, [7; 48]);
        let before = kiban_os::clock::thread_cpu_nanos();
        // Each round transfers the cells of one millisecond, as for a driver that polls every millisecond.
        for _ in 0..1000 {
            for end in [&mut first, &mut second] {
                end.cells.extend([cell; 353]);
                end.push().expect("the link is up");
            }
            for end in [&mut first, &mut second] {
                let goal = end.counters().units_out;
                let mut came = VecDeque::new();
                while end.counters().units_in < goal {
                    let lent = &mut LinkContext { now: Instant::ZERO, memory: &mut end.memory };
                    let AnyLink::Cells(link) = &mut end.link else { panic!("it carries cells") };
                    link.receive(lent, &mut came).expect("the link is up");
                }
                assert!(came.len() == 353 && came.iter().all(|came| *came == cell));
            }
        }
        // This thread ran both ends, so each end used half of its CPU time.
        let nanos = (kiban_os::clock::thread_cpu_nanos() - before) / 2;
        println!("353,000 cells each way, {name}: {:.3} s of a core at each end", nanos as f64 * 1e-9);
        assert!(nanos < 1_000_000_000, "{name}: {nanos} ns");
    }
}

#[test]
fn atmtcp_carries_cells_of_circuits_without_frames() {
    if !net::enter() {
        return;
    }
    let mut end = End::with("atmtcp:listen:127.0.0.1:7060");
    let mut peer = TcpStream::connect("127.0.0.1:7060").expect("it listens");
    peer.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    let message = |vpi: u8, vci: u16, data: &[u8]| {
        let mut bytes = vec![0, vpi];
        bytes.extend(vci.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        bytes
    };
    let cells = |end: &mut End, count: usize| {
        let mut into = VecDeque::new();
        let until = end.clock.now() + Duration::from_secs(10);
        while into.len() < count {
            let lent = &mut LinkContext { now: Instant::ZERO, memory: &mut end.memory };
            let AnyLink::Cells(link) = &mut end.link else { panic!("it carries cells") };
            link.receive(lent, &mut into).expect("the link is up");
            assert!(end.clock.now() < until, "{into:?}");
        }
        into
    };
    // An AAL0 cell as sent by Linux on x86 (VCI 42, PTI 3), a cell that is too short, unknown text, an empty
    // frame, and a frame.
    let raw = [&[0xa6, 0x02, 0, 0][..], &[5; 48]].concat();
    let says = [
        message(0, 0, b"O 0.42 0.0.42 ubr,aal0:max_sdu=52"),
        message(0, 42, &raw),
        message(0, 42, &raw[..51]),
        message(0, 0, b"what?"),
        message(0, 100, &[]),
        message(0, 100, &[8; 40]),
    ];
    peer.write_all(&says.concat()).expect("sent");
    let came = cells(&mut end, 2);
    assert_eq!(came[0], TimedCell::new(Instant::ZERO, 0x2a6, [5; 48]));
    assert_eq!((came[1].header, &came[1].payload[..40]), (0x642, &[8; 40][..]));
    assert_eq!((end.counters().malformed, came.len()), (2, 2));
    // In the other direction: the AAL0 circuit sends the cell itself, in this machine's byte order; the other
    // circuit sends a frame. A management cell cannot be carried.
    end.cells.push_back(TimedCell::new(Instant::ZERO, 0x2a6, [6; 48]));
    end.cells.push_back(TimedCell::new(Instant::ZERO, 0x64a, [7; 48]));
    end.send(&[9; 33]).expect("the link is up");
    let wanted =
        [message(0, 42, &[&0x2a6u32.to_ne_bytes()[..], &[6; 48]].concat()), message(0, 100, &[9; 33])]
            .concat();
    let mut room = vec![0; wanted.len()];
    peer.read_exact(&mut room).expect("it comes");
    assert_eq!(room, wanted);
    assert_eq!(end.counters().send_errors, 1);
    // The circuit is opened again with AAL5: 52 bytes are now a frame.
    peer.write_all(&[message(0, 0, b"O 0.42 0.0.42 ubr,aal5:max_sdu=9188"), message(0, 42, &raw)].concat())
        .expect("sent");
    assert_eq!(cells(&mut end, 2).len(), 2);
}

/// A process that is killed when the test ends.
struct Ends(std::process::Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn wireshark_reads_a_pseudowire() {
    if !net::enter() {
        return;
    }
    for (options, dissector, words) in [("", "mplspwatmn1nocw", 0), (",control-word", "mplspwatmn1cw", 4)] {
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("wire-{}.pcap", std::process::id()));
        // A packet socket on the loopback sees the traffic.
        let mut tap = End::with(&format!("packet:lo,record={}", path.display()));
        let mut first = End::with(&format!("pseudowire:127.0.0.1-127.0.0.2,label=1000,cells=9{options}"));
        let mut second = End::with(&format!("pseudowire:127.0.0.2-127.0.0.1,label=1000,cells=9{options}"));
        // The first frame has one cell; the second has ten, which go in packets of nine and one.
        for frame in [&[7; 40][..], &[8; 472]] {
            first.send(frame).expect("the link is up");
            second.take_until(|end| !end.came.is_empty()).expect("the link is up");
            assert_eq!(second.came.remove(0), frame);
        }
        tap.take_until(|end| end.came.len() == 3).expect("the link is up");
        let lengths: Vec<usize> = tap.came.iter().map(Vec::len).collect();
        assert_eq!(lengths, [1, 9, 1].map(|cells| 14 + 20 + 8 + 4 + words + cells * 52));
        drop(tap);
        let read = |more: &[&str]| {
            let output = Command::new("tshark")
                .args(["-r", &path.display().to_string(), "-d", &format!("mpls.label==1000,{dissector}")])
                .args(more)
                .output()
                .expect("tshark reads the captures: apt-get install tshark, or run make test");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        assert_eq!(read(&["-Y", "_ws.malformed || _ws.expert.severity >= 6291456"]), "");
        let told = read(&["-V"]);
        let lines = |what: &str| told.lines().filter(|line| line.contains(what)).count();
        assert_eq!(lines("MPLS PW ATM Cell Header"), 11, "{told}");
        assert_eq!(
            (lines("VPI:0000  VCI:00100  PTI:0"), lines("VPI:0000  VCI:00100  PTI:1")),
            (9, 2),
            "{told}"
        );
        assert_eq!(lines("Sequence number: "), if words > 0 { 3 } else { 0 }, "{told}");
        std::fs::remove_file(path).expect("it was recorded");
    }
}

#[test]
fn qemu_relays_frames_between_tcp_and_udp() {
    if !net::enter() {
        return;
    }
    // Start QEMU with two network backends on one hub, and without a virtual machine.
    let emulator = Command::new("qemu-system-x86_64")
        .args(["-machine", "none", "-display", "none", "-monitor", "none", "-serial", "none"])
        .args([
            "-netdev",
            "socket,id=one,listen=127.0.0.1:7070",
            "-netdev",
            "hubport,id=first,hubid=0,netdev=one",
        ])
        .args(["-netdev", "socket,id=two,udp=127.0.0.1:7071,localaddr=127.0.0.1:7072"])
        .args(["-netdev", "hubport,id=second,hubid=0,netdev=two"])
        .stdin(std::process::Stdio::null())
        .spawn();
    let Ok(emulator) = emulator else {
        println!("skipped: qemu-system-x86_64 is not there");
        return;
    };
    let mut emulator = Ends(emulator);
    let until = Clock::new();
    let mut first = loop {
        if let Ok(end) = End::open("tcp-frames:127.0.0.1:7070") {
            break end;
        }
        let ended = emulator.0.try_wait().expect("it was started");
        assert!(
            ended.is_none() && until.now() < Instant::ZERO + Duration::from_secs(20),
            "it does not listen: {ended:?}"
        );
        std::thread::yield_now();
    };
    let mut second = End::with("udp-frames:127.0.0.1:7071-127.0.0.1:7072");
    is_through(&mut first, &mut second);
    for (number, length) in [60, 61, 1000, 1514, 9014].into_iter().enumerate() {
        for reversed in [false, true] {
            let (from, to) = if reversed { (&mut second, &mut first) } else { (&mut first, &mut second) };
            let sent = item(from, length, number);
            from.send(&sent).expect("the link is up");
            to.take_until(|to| to.came.iter().any(|came| to.is_item(came))).expect("the link is up");
            assert!(to.items() == [sent], "{length} bytes");
        }
    }
    drop(emulator);
    assert!(first.end().contains("the peer closed the connection"));
}

/// Adds a token bucket to an interface. Prints a line and returns false if the kernel does not support it.
fn bucket(name: &str, rate: &str, bytes: &str) -> bool {
    let arguments =
        ["qdisc", "add", "dev", name, "root", "tbf", "rate", rate, "burst", "4kb", "limit", bytes];
    let made = Command::new("tc").args(arguments).output().is_ok_and(|output| output.status.success());
    if !made {
        println!("skipped: this kernel has no token buckets (CONFIG_NET_SCH_TBF)");
    }
    made
}

#[test]
fn packets_beyond_the_interfaces_queue_are_refused_and_counted() {
    if !net::enter() {
        return;
    }
    hush();
    let (mut first, mut second) = open("packet:lab0,offload=off", "packet:lab1,offload=off");
    // The bucket's queue holds six frames; the kernel drops the rest (ENOBUFS).
    if !bucket("lab0", "8mbit", "6kb") {
        return;
    }
    let frame = item(&first, 1000, 1);
    for _ in 0..200 {
        first.send(&frame).expect("the queue is full, and the link is there");
    }
    let counters = first.counters();
    assert_eq!(counters.units_out + counters.send_errors, 200, "{counters:?}");
    assert!(counters.send_errors > 150 && counters.units_out > 0, "{counters:?}");
    let wanted = counters.units_out as usize;
    let is_it = |came: &&Vec<u8>| **came == frame;
    second.take_until(|end| end.came.iter().filter(is_it).count() == wanted).expect("the link is up");
}

#[test]
fn a_slow_reader_stops_the_sender_and_loses_nothing() {
    if !net::enter() {
        return;
    }
    hush();
    let (mut first, mut second) = open("packet:lab0,offload=off", "packet:lab1,offload=off");
    // The queue is longer than the socket's send buffer, which therefore fills first (EAGAIN).
    if !bucket("lab0", "1mbit", "256mb") {
        return;
    }
    let frames: Vec<Vec<u8>> = (0..256).map(|seed| item(&first, 1400, seed)).collect();
    let mut sent = 0;
    while first.packets.is_empty() {
        first.send(&frames[sent % 256]).expect("the link is up");
        sent += 1;
        assert!(sent < 50_000, "nothing has to wait");
    }
    // Frames that are not accepted stay with the caller, and are sent when there is room.
    assert_eq!(first.counters().units_out + 1, sent as u64);
    first.push().expect("the link is up");
    assert_eq!(first.packets.len(), 1);
    let faster = [
        "qdisc", "change", "dev", "lab0", "root", "tbf", "rate", "100mbit", "burst", "100kb", "limit",
        "256mb",
    ];
    assert!(Command::new("tc").args(faster).status().expect("iproute2 is there").success());
    let mut came = 0;
    let until = first.clock.now() + Duration::from_secs(30);
    while came < sent {
        first.push().expect("the link is up");
        second.pull().expect("the link is up");
        for item in second.items() {
            assert!(item == frames[came % 256], "{came} is another");
            came += 1;
        }
        assert!(
            first.clock.now() < until,
            "{came} of {sent}: {:?} {:?}",
            first.counters(),
            second.counters()
        );
        if came < sent {
            second.wait();
        }
    }
    let counters = first.counters();
    assert_eq!((counters.units_out, counters.send_errors), (sent as u64, 0), "{counters:?}");
}

#[test]
fn receive_queue_overruns_are_counted() {
    if !net::enter() {
        return;
    }
    hush();
    for (one, other, bytes) in [
        ("packet:lab0,offload=off", "packet:lab1,offload=off", 1514),
        ("udp-packets:127.0.0.1:7000-127.0.0.1:7001", "udp-packets:127.0.0.1:7001-127.0.0.1:7000", 60_000),
    ] {
        let (mut first, mut second) = open(one, other);
        let frame = item(&first, bytes, 1);
        // Send more than the socket's receive queue holds.
        let count = 100_000_000 / bytes as u64;
        let thrown = thrown_away();
        let mut pages = 0;
        while first.counters().units_out + first.counters().send_errors < count {
            first.send(&frame).expect("the link is up");
            pages += 1;
        }
        assert!(pages >= count);
        let whole = |end: &mut End| end.items().iter().filter(|came| **came == frame).count() as u64;
        let mut came = 0;
        while {
            second.pull().expect("the link is up");
            let more = whole(&mut second);
            came += more;
            more > 0
        } {}
        assert!((1..count).contains(&came), "{one}: {came} of {count}");
        // The system reports the losses with the next datagram.
        first.send(&frame).expect("the link is up");
        second.take_until(|end| end.came.contains(&frame)).expect("the link is up");
        let (sent, counters) = (first.counters(), second.counters());
        let lost = sent.units_out - 1 - came - counters.overrun;
        assert!(lost <= thrown_away() - thrown, "{one}: {lost} of {sent:?} {counters:?}");
        assert!(counters.overrun > lost, "{one}: {lost} of {sent:?} {counters:?}");
        close(one, (first, second));
    }
}
