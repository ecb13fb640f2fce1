//! One test suite for all links: the contract that every link must keep, whatever its transport.
//!
//! A *pair* is two connected links. Units sent at one end arrive at the other, whole and in order, and no
//! call blocks. Units that do not belong to the link are counted, and a lost peer is reported as an error. On
//! links of packets or frames, an *item* is one packet or frame. On links of cells it is an AAL5 frame, which
//! the test segments and reassembles with code that the links do not use.

mod kernel;
#[path = "../net/mod.rs"]
mod net;
mod pressure;
mod programs;
mod unix;

use kiban_atm::TimedCell;
use kiban_atm::wire::aal5;
use kiban_atm::wire::atm::{CELL_PAYLOAD_BYTES, Header, Interface, Vc};
use kiban_base::crc::Crc32Aal5;
use kiban_base::{Instant, Memory, PagePool, Pdu, PduPool, Slice};
use kiban_link::pcap::UnitKind;
use kiban_link::{Address, AnyLink, LinkContext, LinkCounters};
use kiban_os::Clock;
use kiban_os::interface;
use net::ip;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

/// EtherType for local experiments (IEEE Std 802).
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];
const CIRCUIT: Vc = Vc::new(0, 100);

/// Returns the path of a Unix socket of this process's tests.
fn path(name: &str) -> String {
    format!("{}/links-{}-{name}.sock", env!("CARGO_TARGET_TMPDIR"), std::process::id())
}

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
        Ok(End::of(address.open()?))
    }

    fn of(link: AnyLink) -> End {
        let memory = Memory {
            transmit: PagePool::new(2048, 4096),
            receive: PagePool::new(2048, 4096),
            pdus: PduPool::new(4096),
        };
        End {
            link,
            memory,
            clock: Clock::new(),
            packets: VecDeque::new(),
            cells: VecDeque::new(),
            frame: Vec::new(),
            torn: 0,
            came: Vec::new(),
        }
    }

    fn with(address: &str) -> End {
        let clock = Clock::new();
        loop {
            match End::open(address) {
                // While another test starts a program, the child holds copies of all files until its exec. So
                // an address that was freed may remain in use for a moment.
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

/// Builds an item of a given length. If it is a frame, it begins with MAC addresses and an EtherType.
fn item(end: &End, length: usize, seed: usize) -> Vec<u8> {
    let mut item: Vec<u8> = (0..length).map(|place| (place * 7 + place / 251 + seed * 31) as u8).collect();
    if end.link.unit_kind() == UnitKind::Frames {
        item[..6].copy_from_slice(&[0xff; 6]);
        item[6..12].copy_from_slice(&[2, 0, 0, 0, 0, (seed & 1) as u8]);
        item[12..14].copy_from_slice(&ETHER_TYPE);
    }
    item
}

/// Stops the kernel from sending its own packets on new interfaces.
fn hush() {
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
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

/// Returns the number of packets that this machine has dropped so far, in all namespaces. On a loopback or a
/// veth, packets wait in a CPU's backlog of 1000 (net.core.netdev_max_backlog), which overflows when other
/// work keeps the CPU busy.
fn thrown_away() -> u64 {
    let told = std::fs::read_to_string("/proc/net/softnet_stat").expect("the kernel tells");
    let second = |line: &str| u64::from_str_radix(line.split(' ').nth(1)?, 16).ok();
    told.lines().map(|line| second(line).expect("columns of numbers")).sum()
}

/// Returns every pair: its name, the addresses of its two ends (the listening one first), and the length of
/// the longest item.
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
        (
            "frames over a Unix socket",
            own(&format!("unix-frames:listen:{}", path("c")), &format!("unix-frames:{}", path("c"))),
            65_549,
        ),
        (
            "frames in datagrams of Unix sockets",
            own(
                &format!("unix-datagrams:{}:{}", path("a"), path("b")),
                &format!("unix-datagrams:{}:{}", path("b"), path("a")),
            ),
            65_549,
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

/// Returns whether the links of a pair are the two ends of a veth pair.
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

/// Waits until the bridge between the ends forwards frames. The probes have a different EtherType from items,
/// since some probes may arrive late.
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
            // Send the items one by one, and then in a burst that fits every queue on the path.
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
                    // Only the kernel's backlog may have lost items. If so, its drop counter has increased,
                    // and the test tries again.
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

#[test]
fn units_sent_before_a_peer_has_connected_are_not_counted_as_errors() {
    if !net::enter() {
        return;
    }
    for kind in ["tcp-packets", "tcp-frames", "tcp-cells", "atmtcp"] {
        for more in ["", ",duplicate=1%"] {
            let address = format!("{kind}:listen:127.0.0.1:7061{more}");
            let mut end = End::with(&address);
            let item = item(&end, 40, 1);
            end.send(&item).expect("the link is up");
            let counters = end.counters();
            assert!(counters.no_peer > 0 && counters.send_errors == 0, "{address}: {counters:?}");
        }
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
        // The peer sends one byte at a time. A message is processed once it is complete.
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
    // At 8.32 Mbit/s, 1000 packets of 104 bytes take 100 ms. The queue is bounded.
    let clock = Clock::new();
    let before = clock.now();
    let slow = run(",rate=8.32Mbit");
    let took = clock.now().since(before);
    assert!(slow.len() == 1000 && took >= Duration::from_millis(95), "{} in {took:?}", slow.len());
    let short = run(",rate=1Mbit,queue=20");
    assert!((21..500).contains(&short.len()), "{}", short.len());
    assert!(run(",jitter=2ms").iter().map(number).is_sorted());
}
