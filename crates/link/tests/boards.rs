//! Boards in real time on links transfer a megabyte in each direction over TCP, compared byte by byte. Other
//! tests have the kernel, or a capture, as the peer.

mod net;

use kiban_atm::TimedCell;
use kiban_atm::wire::atm::Vc;
use kiban_base::ethernet::Mac;
use kiban_base::{Instant, Pdu, Wait};
use kiban_board::{
    AtmPortConfig, Board, BoardConfig, CircuitConfig, Completion, EthernetPortConfig, Host, IpPortConfig,
    PortConfig, Program, StreamId,
};
use kiban_capture as capture;
use kiban_capture::Erf;
use kiban_link::Driver;
use kiban_link::pcap::UnitKind;
use kiban_link::{Address, AnyLink, Link, LinkContext, LinkCounters, LinkTraits};
use kiban_os::Clock;
use kiban_os::interface;
use kiban_os::random;
use kiban_tcpip::ethernet::LinkConfig;
use kiban_tcpip::ip::Prefix;
use kiban_tcpip::tcp;
use net::ip;
use std::any::Any;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const BYTES: u64 = 1 << 20;
const PORT: u16 = 9;
const OWN: [IpAddr; 2] =
    [IpAddr::V4(std::net::Ipv4Addr::new(10, 9, 0, 2)), IpAddr::V4(std::net::Ipv4Addr::new(10, 9, 0, 1))];

fn net() -> Prefix {
    "10.9.0.0/24".parse().expect("a prefix")
}

/// Returns the byte of a stream at an offset.
fn byte(offset: u64, seed: u8) -> u8 {
    (offset * 7 + offset / 253) as u8 ^ seed
}

fn open(address: &str) -> AnyLink {
    let address: Address = address.parse().unwrap_or_else(|error| panic!("{error}"));
    address.open().unwrap_or_else(|error| panic!("{error}"))
}

/// A program with one side of a stream that carries a fixed number of bytes in each direction.
struct Exchange {
    own: IpAddr,
    remote: Option<SocketAddr>,
    /// Seeds of the sent and of the received bytes.
    seeds: [u8; 2],
    bytes: u64,
    stream: Option<StreamId>,
    sent: u64,
    received: u64,
    finished: bool,
    buffer: Vec<u8>,
}

impl Exchange {
    fn new(own: IpAddr, remote: Option<IpAddr>, bytes: u64) -> Exchange {
        let seeds = if remote.is_some() { [0x55, 0xaa] } else { [0xaa, 0x55] };
        Exchange {
            own,
            remote: remote.map(|remote| SocketAddr::new(remote, PORT)),
            seeds,
            bytes,
            stream: None,
            sent: 0,
            received: 0,
            finished: false,
            buffer: vec![0; 64 << 10],
        }
    }

    fn pump(&mut self, host: &mut Host<'_>) {
        let Some(stream) = self.stream else { return };
        while self.sent < self.bytes {
            let count = (self.bytes - self.sent).min(self.buffer.len() as u64) as usize;
            for (place, room) in self.buffer[..count].iter_mut().enumerate() {
                *room = byte(self.sent + place as u64, self.seeds[0]);
            }
            let taken = host.write(stream, &self.buffer[..count]).unwrap_or(0);
            self.sent += taken as u64;
            if taken == 0 {
                return;
            }
        }
        let _ = host.finish(stream);
    }
}

impl Program for Exchange {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        match self.remote {
            Some(remote) => drop(host.open(remote).expect("a route exists")),
            None => drop(host.listen(SocketAddr::new(self.own, PORT)).expect("the port is free")),
        }
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, _: Instant) {
        match completion {
            Completion::Opened { stream } | Completion::Accepted { stream, .. } => {
                self.stream = Some(stream);
                self.pump(host);
            }
            Completion::Writable { .. } => self.pump(host),
            Completion::Readable { stream } => {
                while let Ok(count @ 1..) = host.read(stream, &mut self.buffer) {
                    for (place, came) in self.buffer[..count].iter().enumerate() {
                        let offset = self.received + place as u64;
                        assert_eq!(*came, byte(offset, self.seeds[1]), "at {offset}");
                    }
                    self.received += count as u64;
                }
            }
            Completion::PeerFinished { .. } => self.finished = true,
            Completion::Ended { stream, .. } => {
                let _ = host.close(stream);
            }
            _ => {}
        }
    }

    fn is_done(&self) -> bool {
        self.finished && self.sent == self.bytes && self.received == self.bytes
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Creates a board for a link: `side` 0 or 1 of a pair; the other side is its peer.
fn board(link: &AnyLink, side: usize, mac: Mac) -> Board {
    let (own, peer) = (OWN[side], OWN[1 - side]);
    let traits = link.traits();
    let (port, mss, whole) = match link.unit_kind() {
        UnitKind::Cells => {
            let mut atm = AtmPortConfig::oc3c(own, net());
            atm.circuits.push(CircuitConfig::to(Vc::new(0, 100), peer));
            (PortConfig::Atm(atm), 9140, false)
        }
        UnitKind::Frames => {
            let mut on = LinkConfig::new(mac);
            on.addresses.push((own, net()));
            on.mtu_bytes = traits.mtu_bytes;
            let whole = traits.whole_segments;
            let port =
                EthernetPortConfig { merges: !whole, believe_sums: true, ..EthernetPortConfig::on(on) };
            (PortConfig::Ethernet(port), traits.mtu_bytes - 40, whole)
        }
        UnitKind::Packets => {
            let port = IpPortConfig {
                address: own,
                prefix: net(),
                mtu_bytes: traits.mtu_bytes,
                packets_max: 256,
                cuts: false,
                merges: true,
                believe_sums: true,
            };
            (PortConfig::Ip(port), traits.mtu_bytes - 40, false)
        }
    };
    let tcp = tcp::Config {
        mss: mss as u16,
        segment_bytes_max: if whole { 65_000 } else { mss as u32 },
        ..tcp::Config::default()
    };
    Board::new(
        &BoardConfig { tcp, ports: vec![port], ..BoardConfig::default() },
        random::key().expect("a key"),
    )
}

#[test]
fn two_boards_move_a_megabyte_each_way() {
    if !net::enter() {
        return;
    }
    let folder = folder("boards");
    let recorded = |name: &str| folder.join(name).display().to_string();
    let wire = "pseudowire:127.0.0.1-127.0.0.2,label=1000";
    let wire_back = "pseudowire:127.0.0.2-127.0.0.1,label=1000";
    ip("link add lab0 type veth peer name lab1");
    ip("link set lab0 up");
    ip("link set lab1 up");
    let records = [recorded("cells.pcap"), recorded("frames.pcap"), recorded("packets.pcap")];
    for (name, one, other) in [
        (
            "cells",
            format!("udp-cells:127.0.0.1:7000-127.0.0.1:7001,record={}", records[0]),
            "udp-cells:127.0.0.1:7001-127.0.0.1:7000".to_owned(),
        ),
        (
            "packed cells",
            "udp-cells:127.0.0.1:7000-127.0.0.1:7001,packed".to_owned(),
            "udp-cells:127.0.0.1:7001-127.0.0.1:7000,packed".to_owned(),
        ),
        (
            "cells, one in five thousand lost each way, 1 ms",
            "udp-cells:127.0.0.1:7000-127.0.0.1:7001,loss=0.02%,delay=1ms".to_owned(),
            "udp-cells:127.0.0.1:7001-127.0.0.1:7000".to_owned(),
        ),
        ("atmtcp", "atmtcp:listen:127.0.0.1:7002".to_owned(), "atmtcp:127.0.0.1:7002".to_owned()),
        ("a pseudowire", wire.to_owned(), wire_back.to_owned()),
        (
            "a pseudowire with control words",
            format!("{wire},control-word"),
            format!("{wire_back},control-word"),
        ),
        (
            "interfaces",
            format!("packet:lab0,offload=off,record={}", records[1]),
            "packet:lab1,offload=off".to_owned(),
        ),
        ("queues of interfaces", "xdp:lab0".to_owned(), "xdp:lab1,loss=0.05%".to_owned()),
        ("interfaces, whole segments", "packet:lab0".to_owned(), "packet:lab1".to_owned()),
        (
            "frames over a Unix socket",
            format!("unix-frames:listen:{}", recorded("c.sock")),
            format!("unix-frames:{}", recorded("c.sock")),
        ),
        (
            "frames in datagrams of Unix sockets",
            format!("unix-datagrams:{}:{}", recorded("a.sock"), recorded("b.sock")),
            format!("unix-datagrams:{}:{}", recorded("b.sock"), recorded("a.sock")),
        ),
        (
            "packets over TCP, 5 ms, 20 Mbit/s, 0.2 % lost, doubled, flipped and reordered",
            format!(
                "tcp-packets:listen:127.0.0.1:7003,delay=5ms,rate=20Mbit,loss=0.2%,duplicate=0.2%,corrupt=0.2%,reorder=0.2%,\
                 record={}",
                records[2]
            ),
            "tcp-packets:127.0.0.1:7003".to_owned(),
        ),
    ] {
        let macs = [(1, &one), (2, &other)].map(|(side, text)| {
            let address: Address = text.parse().expect("it was opened");
            address.mac().expect("the interface exists").unwrap_or(Mac([2, 0, 0, 0, 0, side]))
        });
        let links = [open(&one), open(&other)];
        let done = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for (side, link) in links.into_iter().enumerate() {
                let (done, macs) = (&done, &macs);
                scope.spawn(move || {
                    let clock = Clock::new();
                    let mut driver = Driver::new(board(&link, side, macs[side]), clock).expect("files");
                    driver.attach(0, link);
                    let remote = (side == 1).then_some(OWN[0]);
                    driver.add(Box::new(Exchange::new(OWN[side], remote, BYTES)));
                    let mut waiting = driver.waiting(Wait::Interrupt);
                    let until = clock.now() + Duration::from_secs(60);
                    // Read the counters as soon as everything has arrived, because the other side may close
                    // its link before this one does.
                    let mut counted = None;
                    while done.load(Ordering::Relaxed) < 2 {
                        let soon = clock.now() + Duration::from_millis(5);
                        driver.run(&mut waiting, soon, |driver| {
                            let exchange = driver.program::<Exchange>(0).expect("the program was added");
                            if exchange.is_done() && counted.is_none() {
                                counted = driver.link_counters(0);
                                done.fetch_add(1, Ordering::Relaxed);
                            }
                            done.load(Ordering::Relaxed) == 2
                        });
                        let gone = driver.take_lost_links();
                        let exchange = driver.program::<Exchange>(0).expect("the program was added");
                        assert!(
                            clock.now() < until,
                            "{name}, {side}: {} sent, {} received; {:?}; gone {gone:?}",
                            exchange.sent,
                            exchange.received,
                            driver.link_counters(0)
                        );
                    }
                    let counters = counted.expect("the link was there");
                    assert_eq!(
                        (counters.malformed, counters.wrong_sender, counters.no_memory),
                        (0, 0, 0),
                        "{name}"
                    );
                    let packets = BYTES / 1500;
                    if name == "interfaces, whole segments" {
                        assert!(counters.units_out < packets && counters.units_in < packets, "{counters:?}");
                    }
                    if !name.contains("lost") {
                        assert_eq!(driver.board().counter("reassembly", "frames_crc_wrong"), 0, "{name}");
                    }
                });
            }
        });
    }
    for record in records {
        let tshark = |more: &[&str]| {
            let output = Command::new("tshark")
                .args(["-r", &record, "-o", "erf.aal5_type:llc multiplexed"])
                .args(["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"])
                .args(more)
                .output()
                .expect("tshark reads the captures: apt-get install tshark, or run make test");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let read = |filter: &str| tshark(&["-Y", filter]);
        let segments = read("tcp.len > 0").len();
        assert!(segments > 200, "{segments} segments in {record}");
        // In the last record, received packets were impaired deliberately, so only the board's own packets
        // are checked.
        let own = if record.ends_with("packets.pcap") { " && ip.src == 10.9.0.2" } else { "" };
        let wrong = format!("(_ws.malformed || tcp.checksum.status == 0 || ip.checksum.status == 0){own}");
        assert_eq!(read(&wrong), Vec::<String>::new(), "{record}");
        if record.ends_with("cells.pcap") {
            assert_eq!(read("!(ip.src == 10.9.0.1 || ip.src == 10.9.0.2)"), Vec::<String>::new());
            let trailers = tshark(&["-V"]).into_iter().filter(|line| line.contains("AAL5 CRC:"));
            let (right, wrong): (Vec<_>, Vec<_>) = trailers.partition(|line| line.ends_with("(correct)"));
            assert_eq!(wrong, Vec::<String>::new());
            assert!(right.len() > segments, "{} trailers", right.len());
        }
    }
    std::fs::remove_dir_all(folder).expect("it was made");
}

/// Returns a directory for captures.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("tests have a folder");
    folder
}

#[test]
fn a_board_on_an_interface_exchanges_whole_segments_with_the_kernel() {
    if !net::enter() {
        return;
    }
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    ip("link add lab0 type veth peer name lab1");
    interface::set_address("lab1", OWN[1], net().bits()).expect("an address");
    interface::set_up("lab0").expect("up");
    interface::set_up("lab1").expect("up");
    let bytes: u64 = 16 << 20;
    for (address, whole) in [("packet:lab0", true), ("packet:lab0,offload=off", false), ("xdp:lab0", false)] {
        let link = open(address);
        assert_eq!(link.traits().whole_segments, whole);
        let mac = address
            .parse::<Address>()
            .expect("it was opened")
            .mac()
            .expect("it is there")
            .expect("it has one");
        let mut driver = Driver::new(board(&link, 0, mac), Clock::new()).expect("files");
        driver.attach(0, link);
        driver.add(Box::new(Exchange::new(OWN[0], None, bytes)));
        let mut waiting = driver.waiting(Wait::Adaptive);
        std::thread::scope(|scope| {
            let peer = scope.spawn(move || {
                let mut stream =
                    TcpStream::connect(SocketAddr::new(OWN[0], PORT)).expect("the board listens");
                let mut writer = stream.try_clone().expect("a second handle");
                std::thread::scope(|scope| {
                    scope.spawn(move || {
                        let data: Vec<u8> = (0..bytes).map(|offset| byte(offset, 0x55)).collect();
                        writer.write_all(&data).expect("sent");
                        writer.shutdown(std::net::Shutdown::Write).expect("it is open");
                    });
                    let mut data = Vec::new();
                    stream.read_to_end(&mut data).expect("read");
                    assert_eq!(data.len() as u64, bytes);
                    assert!(data.iter().enumerate().all(|(place, came)| *came == byte(place as u64, 0xaa)));
                });
            });
            let is_done =
                |driver: &Driver| driver.program::<Exchange>(0).expect("the program was added").is_done();
            driver.run(&mut waiting, Instant::NEVER, |driver| peer.is_finished() && is_done(driver));
            peer.join().expect("the peer is content");
        });
        let counters = driver.link_counters(0).expect("the link is there");
        assert_eq!((counters.no_memory, counters.malformed, counters.send_errors), (0, 0, 0), "{address}");
        let packets = bytes / 1500;
        assert_eq!(counters.units_out < packets / 4, whole, "{} units of {packets}", counters.units_out);
        // Without offload, the link cuts the kernel's segments; with an XDP program at the receiving
        // interface, the kernel splits them itself.
        assert_eq!(
            counters.units_in < packets / 4,
            whole,
            "{address}: {} units of {packets}",
            counters.units_in
        );
        // The link has filled in the checksums that the kernel left to the NIC.
        assert_eq!(driver.board().counter("tcp", "checksum_errors"), 0, "{address}");
    }
}

/// Returns the ICMP messages in a capture of AAL5 frames, either those sent or the others.
fn messages(bytes: &[u8], sent: bool) -> Vec<Vec<u8>> {
    let (file, _) = capture::FileHeader::read(bytes).expect("a capture");
    let records = file.records(bytes).map(|record| record.expect("whole").1);
    let frames = records.filter_map(|record| match file.link_type {
        capture::LINK_TYPE_SUNATM => {
            let (its, length) = capture::SunAtm::read(record).expect("a header");
            (its.is_sent == sent).then(|| record[length..].to_vec())
        }
        _ => {
            let (its, length) = Erf::read(record).expect("a header");
            let (_, payload) = kiban_atm::wire::aal5::open(&record[length..]).expect("a whole frame");
            ((its.interface == 1) == sent).then(|| payload.to_vec())
        }
    });
    // Skip 8 bytes of LLC/SNAP and 20 bytes of IPv4.
    frames.filter(|frame| frame[6..8] == [8, 0] && frame[17] == 1).map(|frame| frame[28..].to_vec()).collect()
}

#[test]
fn a_board_answers_a_recorded_linux_as_the_recorded_peer_did() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/linux-clip-ping.pcap");
    let capture = std::fs::read(&path).expect("it is in the repository");
    let folder = folder("replay");
    let (linux, own) = (IpAddr::from([192, 168, 99, 1]), IpAddr::from([192, 168, 99, 2]));
    for speed in ["fast", "times"] {
        let record = folder.join(format!("{speed}.pcap"));
        let link = open(&format!("pcap:{},speed={speed},record={}", path.display(), record.display()));
        let mut atm = AtmPortConfig::oc3c(own, "192.168.99.0/24".parse().expect("a prefix"));
        atm.circuits.push(CircuitConfig::to(Vc::new(0, 100), linux));
        let board = Board::new(
            &BoardConfig { ports: vec![PortConfig::Atm(atm)], ..BoardConfig::default() },
            random::key().expect("a key"),
        );
        let clock = Clock::new();
        let mut driver = Driver::new(board, clock).expect("files");
        driver.attach(0, link);
        let mut waiting = driver.waiting(Wait::Interrupt);
        let until = clock.now() + Duration::from_secs(20);
        let asked = messages(&capture, false);
        // Each reply has as many cells as its request.
        let cells: u64 =
            asked.iter().map(|message| kiban_atm::wire::aal5::cells(8 + 20 + message.len()) as u64).sum();
        let before = clock.now();
        driver.run(&mut waiting, until, |driver| {
            driver.link_counters(0).is_some_and(|counters| counters.units_out >= cells)
        });
        let took = clock.now().since(before);
        let counters = driver.link_counters(0).expect("the link is there");
        assert_eq!((counters.units_in, counters.units_out, counters.malformed), (cells, cells, 0), "{speed}");
        // The file is flushed when the link is closed.
        driver.detach(0);
        let recorded = std::fs::read(&record).expect("it was recorded");
        assert_eq!(messages(&recorded, false), asked, "{speed}");
        assert_eq!(messages(&recorded, true), messages(&capture, true), "{speed}");
        assert_eq!(asked.len(), 9);
        // The capture covers four seconds, so a replay at its recorded times takes four seconds.
        assert_eq!(took >= Duration::from_millis(3900), speed == "times", "{took:?}");
    }
    std::fs::remove_dir_all(folder).expect("it was made");
}

/// A cell link that accepts only the first cell of each burst.
#[derive(Default)]
struct Narrow(LinkCounters);

impl Link<TimedCell> for Narrow {
    fn traits(&self) -> LinkTraits {
        LinkTraits { mtu_bytes: 0, whole_segments: false }
    }

    fn receive(&mut self, _: &mut LinkContext<'_>, _: &mut VecDeque<TimedCell>) -> std::io::Result<()> {
        Ok(())
    }

    fn send(&mut self, units: &mut VecDeque<TimedCell>, _: &mut LinkContext<'_>) -> std::io::Result<()> {
        self.0.units_out += u64::from(units.pop_front().is_some());
        Ok(())
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self) -> LinkCounters {
        self.0
    }
}

/// A link of packets that has failed.
struct Failed;

impl Link<Pdu> for Failed {
    fn traits(&self) -> LinkTraits {
        LinkTraits { mtu_bytes: 1500, whole_segments: false }
    }

    fn receive(&mut self, _: &mut LinkContext<'_>, _: &mut VecDeque<Pdu>) -> std::io::Result<()> {
        Err(std::io::ErrorKind::NotConnected.into())
    }

    fn send(&mut self, _: &mut VecDeque<Pdu>, _: &mut LinkContext<'_>) -> std::io::Result<()> {
        Err(std::io::ErrorKind::NotConnected.into())
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self) -> LinkCounters {
        LinkCounters::default()
    }
}

#[test]
fn the_loss_of_a_detached_link_is_not_reported_of_its_successor() {
    let failed = || AnyLink::Packets(Box::new(Failed));
    let board = board(&failed(), 1, Mac([2, 0, 0, 0, 0, 1]));
    let mut driver = Driver::new(board, Clock::new()).expect("files");
    driver.attach(0, failed());
    driver.turn();
    assert!(driver.has_lost_links(), "a loss that nobody has taken");
    driver.detach(0);
    assert!(!driver.has_lost_links());
    // A link that is lost later is reported.
    driver.attach(0, failed());
    driver.turn();
    assert_eq!(driver.take_lost_links().len(), 1);
}

#[test]
fn cells_for_which_a_link_has_no_room_are_counted() {
    let link = AnyLink::Cells(Box::new(Narrow::default()));
    let clock = Clock::new();
    let mut driver = Driver::new(board(&link, 1, Mac([2, 0, 0, 0, 0, 1])), clock).expect("files");
    driver.attach(0, link);
    // A SYN needs two cells, but this link accepts one.
    driver.add(Box::new(Exchange::new(OWN[1], Some(OWN[0]), BYTES)));
    let mut waiting = driver.waiting(Wait::Interrupt);
    let until = clock.now() + Duration::from_secs(10);
    driver.run(&mut waiting, until, |driver| driver.board().counter("segmentation", "frames_out") >= 2);
    driver.turn();
    let counters = driver.link_counters(0).expect("the link is there");
    let cells = driver.board().counter("segmentation", "cells_out");
    assert_eq!(counters.units_out + counters.send_errors, cells, "{counters:?}");
    assert!(counters.send_errors > 0, "{counters:?}");
}
