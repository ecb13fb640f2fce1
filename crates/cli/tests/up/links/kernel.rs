//! The kernel's TCP as the peer, over TAP, TUN and a veth: bulk transfers checked by hashes, impairments on
//! the link, many connections, IP options and fragments.

use crate::common::{ECHO, LONG, TestDir, connect, counted, digest_of, enter, is_clean, lan, run, text};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Writes a file with this many bytes; returns its hash.
fn file(path: &Path, bytes: u64) -> [u8; 32] {
    let (mut source, mut hash) = (Bulk { left: bytes, next: bytes }, Sha256::new());
    let mut file = File::create(path).expect("there is room");
    let mut piece = vec![0; 1 << 20];
    while let count @ 1.. = source.read(&mut piece).expect("it is made here") {
        hash.update(&piece[..count]);
        file.write_all(&piece[..count]).expect("there is room");
    }
    hash.finalize().into()
}

/// A cheap source of bytes that do not repeat: consecutive numbers, each multiplied by a constant.
struct Bulk {
    left: u64,
    next: u64,
}

impl Read for Bulk {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        let count = self.left.min(room.len() as u64) as usize;
        for word in room[..count].chunks_mut(8) {
            self.next += 1;
            let mixed = self.next.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
            word.copy_from_slice(&mixed[..word.len()]);
        }
        self.left -= count as u64;
        Ok(count)
    }
}

/// Starts a listener on the kernel's TCP that receives `files` uploads. Returns its port, and a thread that
/// returns the hashes of the uploads.
fn takes(files: usize) -> (u16, std::thread::JoinHandle<Vec<[u8; 32]>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = listener.local_addr().expect("bound").port();
    let take = move || {
        let stream = listener.accept().expect("a client connects").0;
        stream.set_read_timeout(Some(LONG)).expect("a socket");
        let mut stream = BufReader::with_capacity(1 << 20, stream);
        let mut bytes = None;
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            stream.read_line(&mut line).expect("a line of HTTP");
            if let Some(length) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                bytes = length.trim().parse::<u64>().ok();
            }
        }
        let hash = digest_of(&mut (&mut stream).take(bytes.expect("it says how much")));
        stream
            .into_inner()
            .write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
            .expect("it hears");
        hash
    };
    (port, std::thread::spawn(move || (0..files).map(|_| take()).collect()))
}

/// Returns the configuration of the services: one serves the files of a directory; the other forwards uploads
/// to the kernel's listener.
fn services(root: &Path, to: u16) -> String {
    format!(
        "{ECHO}[[service]]\nkind = \"http\"\nlisten = \"10.9.0.2:80\"\nroot = \"{}\"\n\
         [[service]]\nkind = \"forward\"\nlisten = \"10.9.0.2:81\"\nto = \"kernel:127.0.0.1:{to}\"\n",
        root.display()
    )
}

/// Fetches a file from the board and returns its hash.
fn fetched(name: &str) -> [u8; 32] {
    let mut curl = Command::new("curl")
        .args(["-sSf", &format!("http://10.9.0.2/{name}")])
        .stdout(Stdio::piped())
        .spawn()
        .expect("curl is there: apt-get install curl, or run make test");
    let hash = digest_of(curl.stdout.as_mut().expect("piped"));
    assert!(curl.wait().expect("it is a child of this process").success(), "{name}");
    hash
}

fn put(path: &Path) {
    let output =
        run("curl", &["-sSf", "-H", "Expect:", "-T", &path.display().to_string(), "http://10.9.0.2:81/"]);
    assert!(output.status.success(), "{}", text(&output));
}

fn folder(dir: &TestDir) -> PathBuf {
    let root = dir.0.join("www");
    std::fs::create_dir_all(&root).expect("there is room");
    root
}

#[test]
fn a_gigabyte_is_transferred_intact_in_both_directions() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("gigabyte");
    let root = folder(&dir);
    let hash = file(&root.join("big.bin"), 1_000_000_000);
    let (to, hashes) = takes(1);
    let board = dir.up(&(lan("tap:kiban0", "", 1500) + &services(&root, to)));
    let idle = board.status();
    assert!(fetched("big.bin") == hash, "what was fetched is another");
    put(&root.join("big.bin"));
    assert!(hashes.join().expect("content") == [hash], "what was put is another");
    let status = is_clean(&board, &idle);
    assert!(counted(&status, "bytes_out") > 1_000_000_000 && counted(&status, "bytes_in") > 1_000_000_000);
    assert_eq!((counted(&status, "malformed"), counted(&status, "no_memory")), (0, 0), "{status}");
}

#[test]
fn files_are_transferred_over_every_link_and_mtu() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("mtu");
    let root = folder(&dir);
    let bytes = 32 << 20;
    let hash = file(&root.join("file.bin"), bytes);
    for link in ["tap:kiban0", "tun:kiban0", "packet:lab0"] {
        for (options, mtu) in [("", 1500), (",offload=off", 1500), ("", 9180), (",offload=off", 9180)] {
            let what = format!("{link}{options}, MTU {mtu}");
            let (to, hashes) = takes(1);
            let board = dir.up(&(lan(link, options, mtu) + &services(&root, to)));
            let idle = board.status();
            assert!(fetched("file.bin") == hash, "{what}: what was fetched is another");
            put(&root.join("file.bin"));
            assert!(hashes.join().expect("content") == [hash], "{what}: what was put is another");
            let status = is_clean(&board, &idle);
            let wrong = ["malformed", "no_memory", "wrong_sender"].map(|name| counted(&status, name));
            assert_eq!(wrong, [0; 3], "{what}: {status}");
            // Without offloads, the board sends packets as they appear on the wire; with offloads, it sends
            // large segments.
            let packets = bytes / mtu as u64;
            let out = counted(&status, "units_out");
            if options.is_empty() {
                assert!(out < packets, "{what}: {out} units of {packets} packets");
            } else {
                // At most every second received packet is acknowledged separately.
                assert!((packets..3 * packets).contains(&out), "{what}: {out} units of {packets} packets");
            }
        }
    }
}

#[test]
fn files_survive_packet_loss_and_reordering() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("loss");
    let root = folder(&dir);
    let hash = file(&root.join("file.bin"), 8 << 20);
    for link in ["tap:kiban0", "tun:kiban0", "packet:lab0"] {
        let (to, hashes) = takes(1);
        let board = dir.up(&(lan(link, ",loss=1%,reorder=1%", 1500) + &services(&root, to)));
        let idle = board.status();
        assert!(fetched("file.bin") == hash, "{link}: what was fetched is another");
        put(&root.join("file.bin"));
        assert!(hashes.join().expect("content") == [hash], "{link}: what was put is another");
        let status = is_clean(&board, &idle);
        // Of 5600 packets in each direction, 1 % were lost and 1 % reordered.
        let tcp = |name: &str| status["counters"]["tcp"][name].as_u64();
        assert!(tcp("retransmits") > Some(20) && tcp("out_of_order") > Some(20), "{link}: {status}");
    }
}

#[test]
fn a_thousand_concurrent_connections_echo_their_own_data() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("thousand");
    let board = dir.up(&(lan("tap:kiban0", "", 1500) + ECHO));
    let idle = board.status();
    let mut crowd: Vec<TcpStream> = (0..1000).map(|_| connect("10.9.0.2:7")).collect();
    for round in 0..3 {
        let words =
            |number: usize| format!("{number} says it for the {round}. time. ").repeat(1 + number % 40);
        for (number, stream) in crowd.iter_mut().enumerate() {
            stream.write_all(words(number).as_bytes()).expect("the peer reads it");
        }
        for (number, stream) in crowd.iter_mut().enumerate() {
            let mut heard = vec![0; words(number).len()];
            stream.read_exact(&mut heard).expect("it sends it back");
            assert!(heard == words(number).as_bytes(), "{number} hears others");
        }
        let status = board.status();
        assert_eq!(status["services"][0]["sessions"], 1000, "{status}");
        assert_eq!(status["sessions"]["established"], 1000, "{}", status["sessions"]);
    }
    drop(crowd);
    let status = is_clean(&board, &idle);
    let counters = &status["services"][0]["counters"];
    assert_eq!(
        ["accepted", "ended", "refused", "aborted"].map(|name| counters[name].as_u64()),
        [Some(1000), Some(1000), Some(0), Some(0)],
        "{status}"
    );
    assert_eq!(counters["bytes_in"], counters["bytes_out"]);
}

/// Sends one ping, and checks that the reply has the same contents.
fn ping(arguments: &[&str]) -> String {
    let output = run("ping", &[&["-n", "-c", "1", "-W", "20"], arguments, &["10.9.0.2"]].concat());
    let told = text(&output);
    assert!(output.status.success() && !told.contains("wrong data"), "{arguments:?}: {told}");
    told
}

#[test]
fn delayed_packets_arrive_on_time_without_other_traffic() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("sparse");
    let _board = dir.up(&(lan("tap:kiban0", ",delay=5ms", 1500) + ECHO));
    // If the board misses a wake-up, it does not wake until the next ping, half a second later.
    let output = run("ping", &["-n", "-c", "6", "-i", "0.5", "-W", "20", "10.9.0.2"]);
    let told = text(&output);
    let times: Vec<f64> =
        told.lines().filter_map(|line| line.split_once("time=")?.1.split_once(' ')?.0.parse().ok()).collect();
    // The time of the first ping includes address resolution.
    assert_eq!(times.len(), 6, "{told}");
    assert!(times[1..].iter().all(|time| (10.0..300.0).contains(time)), "{told}");
}

#[test]
fn pings_of_every_size_and_with_ip_options_are_answered() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("ping");
    for (link, mtu) in [("tap:kiban0", 1500), ("tun:kiban0", 9180), ("packet:lab0", 1500)] {
        let board = dir.up(&(lan(link, "", mtu) + ECHO));
        let whole = mtu - 28;
        let sizes = [0, 1, 7, 8, 15, 16, 17, 55, 56, 57, 1000, whole - 1, whole];
        // Packets in two or more fragments in each direction, and the longest possible packet.
        let more = [whole + 1, whole + 9, 2 * whole, 3 * whole + 5, 20_000, 65_507];
        for size in sizes {
            // With DF set: a single packet.
            ping(&["-M", "do", "-s", &size.to_string(), "-p", "5aa5f00f"]);
        }
        for size in more {
            ping(&["-M", "dont", "-s", &size.to_string(), "-p", "0123456789abcdef"]);
        }
        for options in [&["-R"][..], &["-T", "tsonly"], &["-T", "tsandaddr"]] {
            ping(options);
            // The option is present only in the first fragment, or in every fragment.
            ping(&[options, &["-s", "4000"]].concat());
        }
        let status = board.status();
        let asked = (sizes.len() + more.len() + 6) as u64;
        let ip = &status["counters"]["ip"];
        assert_eq!(status["counters"]["icmp"]["echoes_answered"].as_u64(), Some(asked), "{status}");
        for name in ["malformed", "checksum_errors", "truncated", "options_malformed"] {
            assert_eq!(ip[name], 0, "{name}: {ip}");
        }
    }
}

/// A Python program that connects with IP options in every packet, sends a megabyte to the echo service, and
/// reads it back.
const WITH_OPTIONS: &str = "
import socket, sys, threading
socket.setdefaulttimeout(60)
stream = socket.socket()
stream.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, bytes.fromhex(sys.argv[1]))
stream.connect(('10.9.0.2', 7))
words = bytes(place * place // 251 % 256 for place in range(1 << 20))
def say():
    stream.sendall(words)
    stream.shutdown(socket.SHUT_WR)
speaker = threading.Thread(target=say)
speaker.start()
heard = b''.join(iter(lambda: stream.recv(65536), b''))
speaker.join()
sys.exit(heard != words)
";

#[test]
fn wireshark_finds_nothing_malformed_between_kernel_and_board() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("wireshark");
    let root = folder(&dir);
    file(&root.join("file.bin"), 2 << 20);
    for link in ["tap:kiban0", "tun:kiban0", "packet:lab0"] {
        let record = dir.0.join("record.pcap").display().to_string();
        let (to, hashes) = takes(1);
        let options = format!(",offload=off,record={record}");
        let mut board = dir.up(&(lan(link, &options, 1500) + &services(&root, to)));
        fetched("file.bin");
        put(&root.join("file.bin"));
        hashes.join().expect("content");
        // Record route; timestamps; router alert between no-operation options.
        for options in [
            format!("010727{}{}", "04", "00".repeat(36)),
            format!("44240500{}", "00".repeat(32)),
            "0194040000000000".into(),
        ] {
            let output = run("python3", &["-c", WITH_OPTIONS, &options]);
            assert!(output.status.success(), "{link}, {options}: {}", text(&output));
        }
        for size in ["0", "1472", "1473", "30000"] {
            ping(&["-s", size]);
            ping(&["-s", size, "-R"]);
        }
        let status = board.status();
        let refused: u64 = ["tcp", "ip", "icmp"]
            .map(|name| status["counters"][name]["checksum_errors"].as_u64().expect("a counter"))
            .iter()
            .sum();
        // The capture file is complete once the board has exited.
        board.signal("-TERM");
        assert_eq!(board.wait(), Some(0));
        let packets = read(&record);
        let is_own = |packet: &&Packet| packet.of("ip.src") == "10.9.0.2";
        let wrong =
            packets.iter().find(|packet| packet.is_malformed() || is_own(packet) && packet.is_wrong());
        assert!(wrong.is_none(), "{link}: {:?}", wrong.map(|packet| &packet.0));
        // The board and Wireshark must agree on which packets from the kernel have errors. This cannot be
        // checked on a veth, where the kernel leaves checksums unfinished.
        if !link.starts_with("packet:") {
            let wrong: Vec<&Packet> =
                packets.iter().filter(|packet| packet.is_wrong() && !packet.has_negative_zero()).collect();
            let dumps: String = wrong.iter().map(|packet| dump(&record, packet.of("frame.number"))).collect();
            assert_eq!(wrong.len() as u64, refused, "{link}: {status}\n{dumps}");
        }
        // Verify the check itself: Wireshark must report the last echo reply after one of its bits is
        // changed.
        let mut bytes = std::fs::read(&record).expect("it was recorded");
        let frame = change_last_echo(&mut bytes, &packets);
        std::fs::write(&record, bytes).expect("there is room");
        assert!(read(&record)[frame].is_wrong(), "{link}: {frame}");
        // The capture must contain the packets that are to be checked.
        let count = |what: &str, least: usize, is_so: &dyn Fn(&Packet, bool) -> bool| {
            let found =
                packets.iter().filter(|packet| is_so(packet, packet.of("ip.src") == "10.9.0.2")).count();
            assert!(found >= least, "{link}: {found} of {what}");
        };
        let has_words = |packet: &Packet| packet.any("tcp.len", |bytes| bytes > 0);
        count("segments", 1400, &|packet, is_own| is_own && has_words(packet));
        count("segments with options", 50, &|packet, _| {
            has_words(packet) && packet.any("ip.hdr_len", |bytes| bytes > 20)
        });
        count("echoes", 8, &|packet, is_own| is_own && packet.any("icmp.type", |kind| kind == 0));
        count("fragments", 40, &|packet, is_own| is_own && packet.of("ip.flags.mf") == "1");
        count("recorded routes", 4, &|packet, _| {
            packet.any("ip.opt.type", |kind| kind == 7) && packet.any("ip.proto", |protocol| protocol == 1)
        });
    }
}

/// Changes the last byte of the last ICMP packet in a pcap file; returns the number of its frame, counted
/// from 0.
fn change_last_echo(bytes: &mut [u8], packets: &[Packet]) -> usize {
    let last = packets.iter().rposition(|packet| packet.any("icmp.type", |kind| kind == 0));
    let last = last.expect("the board has answered echoes");
    // The file header is 24 bytes long. Each frame has a header of 16 bytes, whose third word is the length
    // of the frame.
    let mut end = 24;
    for _ in 0..=last {
        let length = bytes[end + 8..end + 12].try_into().expect("four bytes");
        end += 16 + u32::from_le_bytes(length) as usize;
    }
    bytes[end - 1] ^= 1;
    last
}

/// Wireshark's severity level "error".
const ERROR: u64 = 0x0080_0000;
const SUMS: [&str; 3] = ["tcp.checksum.status", "ip.checksum.status", "icmp.checksum.status"];
const FIELDS: [&str; 14] = [
    "_ws.malformed",
    "_ws.expert.severity",
    SUMS[0],
    SUMS[1],
    SUMS[2],
    "ip.src",
    "ip.proto",
    "ip.hdr_len",
    "ip.flags.mf",
    "ip.opt.type",
    "tcp.len",
    "icmp.type",
    "frame.number",
    "tcp.checksum.ffff",
];

/// A packet as dissected by Wireshark: its fields, with comma-separated values.
struct Packet(Vec<String>);

impl Packet {
    fn is_malformed(&self) -> bool {
        !self.of("_ws.malformed").is_empty()
    }

    /// Returns whether Wireshark reports an error in the packet.
    fn is_wrong(&self) -> bool {
        self.any("_ws.expert.severity", |severity| severity >= ERROR)
            || SUMS.iter().any(|sum| self.any(sum, |status| status == 0))
    }

    /// Returns whether the TCP checksum is 0xffff, where 0 would be usual. In one's complement arithmetic
    /// both mean zero, and receivers accept either (RFC 1624 §3). The kernel sends 0xffff in about one of
    /// 65,536 segments; Wireshark reports it as bad.
    fn has_negative_zero(&self) -> bool {
        !self.of("tcp.checksum.ffff").is_empty()
    }

    fn of(&self, field: &str) -> &str {
        let dir = FIELDS.iter().position(|name| *name == field).expect("it is asked for");
        self.0.get(dir).map_or("", String::as_str)
    }

    /// Returns whether any value of a numeric field satisfies a condition.
    fn any(&self, field: &str, is_so: impl Fn(u64) -> bool) -> bool {
        self.of(field).split(',').filter_map(|value| value.parse().ok()).any(is_so)
    }
}

/// Returns one frame of a capture as dissected by Wireshark, together with its bytes.
fn dump(record: &str, frame: &str) -> String {
    let filter = format!("frame.number=={frame}");
    text(&run("tshark", &["-r", record, "-o", "tcp.check_checksum:TRUE", "-V", "-x", "-Y", &filter]))
}

fn read(record: &str) -> Vec<Packet> {
    let sums = ["tcp", "ip", "udp"].map(|protocol| format!("{protocol}.check_checksum:TRUE"));
    let sums = sums.iter().flat_map(|sum| ["-o", sum]);
    let fields = FIELDS.iter().flat_map(|field| ["-e", field]);
    let arguments: Vec<&str> = ["-r", record, "-T", "fields"].into_iter().chain(sums).chain(fields).collect();
    let output = run("tshark", &arguments);
    assert!(output.status.success(), "{}", text(&output));
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    lines.lines().map(|line| Packet(line.split('\t').map(str::to_owned).collect())).collect()
}
