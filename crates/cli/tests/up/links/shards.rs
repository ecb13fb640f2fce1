//! Boards of several shards, each with a queue of a TUN or TAP device or of a veth, or on an ATM line, and
//! the kernel's TCP as the peer.

use crate::common::{ECHO, LONG, TestDir, connect, counted, echo, enter, is_clean, lan, run, text};
use crate::programs::run::{SOCKETS, Server, on_board};
use kiban_os::packet::PacketLink;
use serde_json::Value;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;

/// Connections enough that each of two shards gets some, except with a probability of 2^-63.
pub(super) const CONNECTIONS: usize = 64;

/// Opens connections to the board's echo service, and echoes on all of them several times.
fn echoing() -> Vec<TcpStream> {
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect("10.9.0.2:7")).collect();
    let piece: Vec<u8> = (0..20_000u32).map(|n| n as u8).collect();
    for round in 0..3 {
        streams.iter_mut().for_each(|stream| echo(stream, &piece[round..]));
    }
    streams
}

pub(super) fn board(link: &str, shards: usize) -> String {
    format!("shards = {shards}\n{}{ECHO}", lan(link, "", 1500))
}

/// Returns a number of each shard.
pub(super) fn of_shards(status: &Value, what: impl Fn(&Value) -> &Value) -> Vec<u64> {
    let shards = status["shards"].as_array().unwrap_or_else(|| panic!("no shards: {status}"));
    shards.iter().map(|shard| what(shard).as_u64().expect("a number")).collect()
}

#[test]
fn the_kernel_reaches_every_shard_of_a_board() {
    if !enter() {
        return;
    }
    for link in ["tun:kiban0", "tap:kiban0", "packet:lab0", "xdp:lab0"] {
        let dir = TestDir::new("shards");
        let mut board = dir.up(&board(link, 2));
        let idle = board.status();
        let streams = echoing();
        // One status, one set of counters.
        let status = board.status();
        let service = &status["services"][0];
        assert_eq!(service["sessions"], CONNECTIONS, "{status}");
        assert_eq!(service["counters"]["accepted"], CONNECTIONS, "{status}");
        assert_eq!(status["sessions"]["established"], CONNECTIONS, "{status}");
        assert_eq!(status["counters"]["tcp"]["syns_in"], CONNECTIONS, "{status}");
        assert_eq!(status["counters"]["tcp"]["resets_out"], 0, "{status}");
        let sessions = of_shards(&status, |shard| &shard["sessions"]);
        assert_eq!(sessions.iter().sum::<u64>(), CONNECTIONS as u64);
        assert!(sessions.len() == 2 && sessions.iter().all(|count| *count > 0), "{link}: {sessions:?}");
        let arrived = of_shards(&status, |shard| &shard["units_in"]);
        assert!(arrived.iter().all(|count| *count > 0), "{link}: each queue is used: {arrived:?}");
        assert_eq!(counted(&status, "units_in"), arrived.iter().sum::<u64>());
        let handed_on: u64 = of_shards(&status, |shard| &shard["counters"]["handed_on"]).iter().sum();
        if link.ends_with("kiban0") {
            // After its first packets, the kernel uses the queue of the flow's shard.
            assert!(handed_on < arrived.iter().sum::<u64>() / 2, "{handed_on} of {arrived:?} handed on");
        } else {
            // The kernel chooses the queue by its own hash.
            assert!(handed_on > 0, "{link}: {arrived:?} arrived");
        }
        // What has no flow, whole or in fragments, is answered by shard 0, whatever its queue.
        for size in ["56", "4000"] {
            let ping = run("ping", &["-c", "2", "-W", "60", "-s", size, "10.9.0.2"]);
            assert!(ping.status.success(), "{}", text(&ping));
        }
        // A port where nothing listens is refused.
        let refused = TcpStream::connect_timeout(&SocketAddr::from(([10, 9, 0, 2], 9)), LONG);
        assert_eq!(refused.expect_err("nothing listens").kind(), ErrorKind::ConnectionRefused);
        drop(streams);
        is_clean(&board, &idle);
        let down = dir.kiban(&["down", "lab"]);
        assert!(down.status.success(), "{}", text(&down));
        assert_eq!(board.wait(), Some(0), "{}", dir.log());
    }
}

/// Returns how many frames the kernel has sent on the other end of the veth.
fn sent_by_the_kernel() -> u64 {
    let shown = run("ip", &["-j", "-s", "link", "show", "lab1"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    shown[0]["stats64"]["tx"]["packets"].as_u64().unwrap_or_else(|| panic!("no packets: {shown}"))
}

/// Waits until the kernel has noticed that the veth has a carrier; before, it drops what is sent.
fn wait_for_carrier() {
    let clock = kiban_os::Clock::new();
    loop {
        let shown = run("ip", &["-j", "link", "show", "lab1"]);
        let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
        if shown[0]["operstate"] == "UP" {
            return;
        }
        assert!(clock.now().since(kiban_base::Instant::ZERO) < LONG, "{shown}");
        std::thread::yield_now();
    }
}

/// Sends 64 frames to all stations, each from another station: requests for the board's MAC address. Returns
/// the stations that are answered.
fn ask_for_the_mac(kernel: &PacketLink) -> Vec<u8> {
    let station = |n: u8| [2, 0, 0, 0, 1, n];
    for n in 0..STATIONS {
        let mut frame = [0; 60];
        frame[..6].fill(0xff);
        frame[6..12].copy_from_slice(&station(n));
        // Ethernet, IPv4, lengths, request: RFC 826.
        frame[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        frame[22..28].copy_from_slice(&station(n));
        frame[28..32].copy_from_slice(&[10, 9, 0, 100 + n]);
        frame[38..42].copy_from_slice(&[10, 9, 0, 2]);
        assert!(kernel.send(&frame));
    }
    let mut answered = Vec::new();
    let mut frame = [0; 1514];
    let clock = kiban_os::Clock::new();
    while answered.len() < usize::from(STATIONS) {
        assert!(clock.now().since(kiban_base::Instant::ZERO) < LONG, "{answered:?} answered");
        answered.extend(stations_answered(kernel, &mut frame));
        std::thread::yield_now();
    }
    answered
}

/// Number of stations that ask for the board's MAC address.
const STATIONS: u8 = 64;

/// Returns the stations to which answers have arrived.
fn stations_answered(kernel: &PacketLink, frame: &mut [u8]) -> Vec<u8> {
    let mut answered = Vec::new();
    while let Some(length) = kernel.receive(frame) {
        if length >= 42 && frame[20..22] == [0, 2] && frame[..5] == [2, 0, 0, 0, 1] {
            answered.push(frame[5]);
        }
    }
    answered
}

#[test]
fn each_frame_arrives_at_one_shard() {
    if !enter() {
        return;
    }
    for link in ["packet:lab0", "xdp:lab0"] {
        let dir = TestDir::new("shards-once");
        let board = dir.up(&board(link, 2));
        let kernel = PacketLink::open("lab1", 0x0806).expect("a privileged process");
        wait_for_carrier();
        let mut answered = ask_for_the_mac(&kernel);
        // These packets arrive after the requests, at both queues.
        let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect("10.9.0.2:7")).collect();
        streams.iter_mut().for_each(|stream| echo(stream, b"after the requests"));
        let ping = run("ping", &["-c", "4", "-i", "0.01", "-W", "60", "10.9.0.2"]);
        let shown = text(&ping);
        assert!(ping.status.success() && !shown.contains("DUP!"), "{shown}");
        answered.extend(stations_answered(&kernel, &mut [0; 1514]));
        answered.sort_unstable();
        assert_eq!(answered, (0..STATIONS).collect::<Vec<u8>>(), "{link}: each is answered once");
        // A copy would be counted here. Nor do frames arrive that the kernel sends on the board's interface.
        let status = board.status();
        let arrived = of_shards(&status, |shard| &shard["units_in"]);
        let sent = sent_by_the_kernel();
        assert!(arrived.iter().sum::<u64>() <= sent, "{link}: {arrived:?} of {sent} arrived");
        assert!(arrived.iter().all(|count| *count > 0), "{link}: each queue is used: {arrived:?}");
    }
}

#[test]
fn a_reload_reaches_every_shard() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("shards-reload");
    let config = board("tun:kiban0", 2);
    let board = dir.up(&config);
    let mut kept = connect("10.9.0.2:7");
    echo(&mut kept, b"before");
    let more = "[[service]]\nkind = \"echo\"\nname = \"more\"\nlisten = \"10.9.0.2:8\"\n";
    let without: String = config.replace(ECHO, "");
    dir.write("board.toml", &format!("{without}{more}[[route]]\nto = \"10.1.0.0/16\"\nvia = \"10.9.0.1\"\n"));
    let reload = dir.kiban(&["reload", "lab"]);
    assert!(reload.status.success(), "{}{}", text(&reload), dir.log());
    // The new service listens on every shard, and the old one on none.
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect("10.9.0.2:8")).collect();
    streams.iter_mut().for_each(|stream| echo(stream, b"after"));
    for _ in 0..CONNECTIONS {
        let refused = TcpStream::connect_timeout(&SocketAddr::from(([10, 9, 0, 2], 7)), LONG);
        assert_eq!(refused.expect_err("it is closed").kind(), ErrorKind::ConnectionRefused);
    }
    echo(&mut kept, b"the old session continues");
    let status = board.status();
    let sessions = of_shards(&status, |shard| &shard["sessions"]);
    assert!(sessions.iter().all(|count| *count > 0), "{sessions:?}");
    assert_eq!(status["counters"]["tcp"]["syns_in"], 1 + CONNECTIONS, "{status}");
    // A limit of 3 sessions is 2 for each shard, and so is a limit of 4.
    for (limit, what) in [(3, "0 kept, 1 new, 1 closed"), (4, "1 kept, 0 new, 0 closed")] {
        dir.write("board.toml", &format!("{without}{more}sessions = {limit}\n"));
        let reload = dir.kiban(&["reload", "lab"]);
        assert!(reload.status.success() && text(&reload).contains(what), "{}{}", text(&reload), dir.log());
    }
    // The number of shards is fixed when the board starts.
    dir.write("board.toml", &config.replace("shards = 2", "shards = 3"));
    let reload = dir.kiban(&["reload", "lab"]);
    assert!(text(&reload).contains("shards has changed, which requires a restart"), "{}", text(&reload));
}

#[test]
fn a_lost_device_is_opened_again_for_every_shard() {
    if !enter() {
        return;
    }
    for link in ["tun:kiban0", "packet:lab0", "xdp:lab0"] {
        is_opened_again(link);
    }
}

fn is_opened_again(link: &str) {
    let dir = TestDir::new("shards-lost");
    let board = dir.up(&board(link, 2));
    echo(&mut connect("10.9.0.2:7"), b"before");
    let gone = run("ip", &["link", "del", link.split_once(':').expect("it has a kind").1]);
    assert!(gone.status.success(), "{}", text(&gone));
    if !link.starts_with("tun:") {
        // The board does not create this interface.
        lan(link, "", 1500);
    }
    board.until("the link is lost and opened again", |status| {
        let port = &status["ports"][0];
        port["losses"] == 1 && port["state"] == "up"
    });
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect("10.9.0.2:7")).collect();
    streams.iter_mut().for_each(|stream| echo(stream, b"after"));
    let status = board.status();
    let arrived = of_shards(&status, |shard| &shard["units_in"]);
    assert!(arrived.iter().all(|count| *count > 0), "each queue is used: {arrived:?}");
}

/// Serves 64 connections, whose options and statistics must be their own. Prints its process ID.
const SERVER: &str = "import os, socket, sys
TCP = socket.IPPROTO_TCP
server = socket.create_server(('10.9.0.2', 8000), backlog=128)
server.setsockopt(TCP, socket.TCP_NODELAY, 1)
print(os.getpid(), flush=True)
streams = [server.accept()[0] for n in range(64)]
for n, stream in enumerate(streams):
    stream.setsockopt(TCP, socket.TCP_KEEPIDLE, 100 + n)
for n, stream in enumerate(streams):
    assert stream.getsockopt(TCP, socket.TCP_KEEPIDLE) == 100 + n and stream.getsockopt(TCP, socket.TCP_NODELAY)
    first = stream.recv(1)
    stream.sendall(first + stream.recv(4 + first[0], socket.MSG_WAITALL))
    info = stream.getsockopt(TCP, socket.TCP_INFO, 236)
    assert int.from_bytes(info[128:136], sys.byteorder) == 5 + first[0], 'bytes received'
streams[0].recv(1)";

/// A server on a board, with its process ID.
fn serving(dir: &TestDir) -> (Server, String) {
    let mut server = on_board(dir, &["python3", "-c", SERVER]);
    let mut server = Server(server.stdout(Stdio::piped()).spawn().expect("python3 is there"));
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().expect("piped")).read_line(&mut line).expect("it says so");
    assert!(!line.is_empty(), "{}", dir.log());
    (server, line.trim_end().into())
}

#[test]
fn a_programs_listener_is_on_every_shard_until_the_program_dies() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("shards-listen");
    let board = dir.up(&format!("{}{SOCKETS}", board("tun:kiban0", 2)));
    let idle = board.status();
    let (mut server, process) = serving(&dir);
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect("10.9.0.2:8000")).collect();
    for (n, stream) in streams.iter_mut().enumerate() {
        stream.write_all(&vec![n as u8; 5 + n]).expect("it is open");
    }
    for (n, stream) in streams.iter_mut().enumerate() {
        let mut heard = vec![0; 5 + n];
        stream.read_exact(&mut heard).expect("it sends it back");
        assert_eq!(heard, vec![n as u8; 5 + n]);
    }
    let status = board.status();
    let service = &status["services"][1];
    assert_eq!(service["sessions"], CONNECTIONS, "{status}");
    assert_eq!(service["counters"]["accepted"], CONNECTIONS, "{status}");
    let sessions = of_shards(&status, |shard| &shard["sessions"]);
    assert!(sessions.iter().all(|count| *count > 0), "{sessions:?}");
    let unexpected = of_shards(&status, |shard| &shard["counters"]["unexpected"]);
    assert_eq!(unexpected, [0, 0], "every shard expects its flows: {status}");
    assert!(run("kill", &["-KILL", &process]).status.success());
    server.0.wait().expect("it is a child of this process");
    for stream in &mut streams {
        assert_eq!(stream.read(&mut [0; 8]).expect("the program has read everything"), 0);
    }
    // No shard listens any more.
    let clock = kiban_os::Clock::new();
    let mut refused = 0;
    while refused < CONNECTIONS {
        assert!(clock.now().since(kiban_base::Instant::ZERO) < LONG, "{refused} refused in a row");
        let peer = SocketAddr::from(([10, 9, 0, 2], 8000));
        let result = TcpStream::connect_timeout(&peer, LONG).map_err(|error| error.kind());
        refused =
            if result.is_err_and(|kind| kind == ErrorKind::ConnectionRefused) { refused + 1 } else { 0 };
    }
    drop(streams);
    is_clean(&board, &idle);
    // The address is free on every shard.
    serving(&dir);
}

#[test]
fn a_program_opens_connections_on_every_shard() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("shards-connect");
    let board = dir.up(&format!("{}{SOCKETS}", board("tun:kiban0", 2)));
    let idle = board.status();
    let listener = TcpListener::bind("10.9.0.1:0").expect("the kernel has the address");
    let port = listener.local_addr().expect("bound").port();
    let peer = std::thread::spawn(move || {
        let accept = |_| {
            let mut stream = listener.accept().expect("the program connects").0;
            stream.write_all(b"hello").expect("it reads");
            stream
        };
        let streams: Vec<TcpStream> = (0..2 * CONNECTIONS).map(accept).collect();
        // Until the program has gone.
        streams.into_iter().for_each(|mut stream| while stream.read(&mut [0; 8]).unwrap_or(0) > 0 {});
    });
    // To the kernel, also from chosen ports, and to a service of the board on all shards.
    let client = format!(
        "import socket
TCP, streams = socket.IPPROTO_TCP, []
for n in range(64):
    for source in None, ('10.9.0.2', 20000 + n):
        stream = socket.create_connection(('10.9.0.1', {port}), source_address=source)
        assert stream.recv(5, socket.MSG_WAITALL) == b'hello'
        stream.setsockopt(TCP, socket.TCP_KEEPIDLE, 100 + len(streams))
        streams.append(stream)
    own = socket.create_connection(('10.9.0.2', 7))
    own.sendall(b'to itself')
    assert own.recv(9, socket.MSG_WAITALL) == b'to itself'
for n, stream in enumerate(streams):
    assert stream.getsockopt(TCP, socket.TCP_KEEPIDLE) == 100 + n
    info = stream.getsockopt(TCP, socket.TCP_INFO, 236)
    assert info[0] == 1 and info[128] == 5, 'established, five bytes received'
print('open', flush=True)
input()"
    );
    let mut client = on_board(&dir, &["python3", "-c", &client]);
    let client = client.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = Server(client.spawn().expect("python3 is there"));
    let mut line = String::new();
    BufReader::new(client.0.stdout.take().expect("piped")).read_line(&mut line).expect("it says so");
    assert_eq!(line, "open\n", "{}", dir.log());
    let status = board.status();
    let sessions = of_shards(&status, |shard| &shard["sessions"]);
    assert!(sessions.iter().all(|count| *count >= CONNECTIONS as u64 / 2), "{sessions:?}");
    let unexpected = of_shards(&status, |shard| &shard["counters"]["unexpected"]);
    assert_eq!(unexpected, [0, 0], "each stream is on the shard of its flow: {status}");
    drop(client);
    peer.join().expect("all have connected");
    is_clean(&board, &idle);
}

/// Echoes datagrams on two sockets until it gets an empty one.
const DATAGRAMS: &str = "import select, socket
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for n in range(2)]
for n, s in enumerate(sockets):
    s.bind(('10.9.0.2', 6000 + n))
# A closed socket has sent its datagrams, and its port is free, whichever shard has taken them.
for n in range(40):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(('10.9.0.2', 7000))
        s.sendto(bytes([n]), ('10.9.0.1', 7000))
print('bound', flush=True)
while True:
    for s in select.select(sockets, [], [])[0]:
        data, peer = s.recvfrom(100)
        if not data:
            exit()
        s.sendto(data, peer)";

#[test]
fn the_datagram_sockets_of_programs_are_on_every_shard() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("shards-datagrams");
    let board = dir.up(&format!("{}{SOCKETS}", board("tun:kiban0", 2)));
    let counter = UdpSocket::bind("10.9.0.1:7000").expect("the kernel has the address");
    counter.set_read_timeout(Some(LONG)).expect("a socket");
    let mut program = on_board(&dir, &["python3", "-c", DATAGRAMS]);
    let mut program = Server(program.stdout(Stdio::piped()).spawn().expect("python3 is there"));
    let mut line = String::new();
    BufReader::new(program.0.stdout.take().expect("piped")).read_line(&mut line).expect("it says so");
    assert_eq!(line, "bound\n", "{}", dir.log());
    let mut room = [0; 8];
    let mut counted: Vec<u8> = (0..40)
        .map(|_| {
            counter.recv(&mut room).expect("it arrives");
            room[0]
        })
        .collect();
    counted.sort_unstable();
    assert_eq!(counted, (0..40).collect::<Vec<u8>>());
    let mut flows: Vec<UdpSocket> = Vec::new();
    let mut echo = |port: u16| {
        let flow = UdpSocket::bind("10.9.0.1:0").expect("the kernel has the address");
        flow.set_read_timeout(Some(LONG)).expect("a socket");
        flow.connect(("10.9.0.2", port)).expect("there is a route");
        flow.send(&port.to_be_bytes()).expect("room");
        assert_eq!(flow.recv(&mut room).expect("it comes back"), 2);
        assert_eq!(room[..2], port.to_be_bytes());
        flows.push(flow);
    };
    let unexpected = || of_shards(&board.status(), |shard| &shard["counters"]["unexpected"]);
    let before = unexpected();
    for _ in 0..CONNECTIONS {
        [6000, 6001].into_iter().for_each(&mut echo);
    }
    assert_eq!(unexpected(), before, "each shard passes on the datagrams of its flows");
    let status = board.status();
    let service = &status["services"][1];
    assert_eq!(service["counters"]["datagrams_in"], 2 * CONNECTIONS, "{status}");
    assert_eq!(service["counters"]["datagrams_out"], 40 + 2 * CONNECTIONS, "{status}");
    assert_eq!(service["sessions"], 2, "{status}");
    flows[0].send(&[]).expect("room");
    assert!(program.0.wait().expect("it is a child of this process").success(), "{}", dir.log());
    board.until("the sockets have gone", |status| status["services"][1]["sessions"] == 0);
    let gone = UdpSocket::bind("10.9.0.1:0").expect("the kernel has the address");
    gone.set_read_timeout(Some(LONG)).expect("a socket");
    gone.connect("10.9.0.2:6000").expect("there is a route");
    gone.send(b"x").expect("room");
    assert_eq!(gone.recv(&mut room).expect_err("nothing is bound").kind(), ErrorKind::ConnectionRefused);
}

/// Returns the ATM port of a board, with two circuits. The addresses of the boards end in 1 and 2, and those
/// for the second circuit in 11 and 12.
fn atm(own: u8, more: &str, pvc: [&str; 2]) -> String {
    let other = 3 - own;
    let [first, second] = pvc;
    format!(
        "[[port]]\nname = \"atm\"\nlink = \"udp-cells:127.0.0.1:700{own}-127.0.0.1:700{other}\"\n{more}\
         [[port.pvc]]\nvc = \"0.100\"\n{first}[[port.pvc]]\nvc = \"0.101\"\n{second}"
    )
}

const BOTH_ADDRESSES: &str = "address = [\"10.9.0.2/24\", \"10.9.0.12/24\"]\n";

/// Returns echo services on both addresses.
fn two_echoes() -> String {
    format!("{ECHO}{}", ECHO.replace("\"echo\"\n", "\"echo\"\nname = \"second\"\n").replace("0.2:", "0.12:"))
}

/// Returns the shards' numbers of a counter of cells or packets.
fn counter_of_shards(status: &Value, name: &str) -> Vec<u64> {
    of_shards(status, |shard| &shard["counters"][name])
}

/// Checks that no cell was lost or reordered since an earlier status.
fn has_whole_frames(before: &Value, status: &Value) {
    let [then, port] = [before, status].map(|status| &status["ports"][0]);
    for name in ["frames_crc_wrong", "frames_length_wrong", "cells_unknown_circuit"] {
        let count = |port: &Value| port["counters"]["reassembly"][name].clone();
        assert_eq!(count(port), count(then), "{name}: {status}");
    }
    assert_eq!(port["link_counters"]["wrong_sender"], 0, "{status}");
    assert_eq!(status["counters"]["tcp"]["resets_out"], 0, "{status}");
}

#[test]
fn every_shard_uses_the_circuits_of_an_undivided_peer() {
    if !enter() {
        return;
    }
    let (near_dir, far_dir) = (TestDir::new("shards-atm"), TestDir::new("shards-atm-far"));
    // The kernel has the address of the other board, which mixes the cells of both circuits.
    let far = "address = \"10.9.0.1/24\"\nhost = \"tun:khost\"\n";
    let _far = far_dir.up(&format!("name = \"lab\"\n{}", atm(1, far, ["", "peer = \"10.9.0.12\"\n"])));
    let near = atm(2, BOTH_ADDRESSES, [""; 2]);
    let board = near_dir.up(&format!("name = \"lab\"\nshards = 2\n{near}{}", two_echoes()));
    for circuit in 0..2 {
        board.until("the peer is known", |status| status["circuits"][circuit]["peer"] == "10.9.0.1");
    }
    let idle = board.status();
    let streams = echoing();
    let mut others: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect("10.9.0.12:7")).collect();
    // Cells of both circuits are under way at once.
    let mut exchange = || {
        let (sent, mut echoed) = ([7; 20_000], [0; 20_000]);
        for (mut one, other) in streams.iter().zip(&mut others) {
            one.write_all(&sent).expect("the board reads it");
            echo(other, &sent);
            one.read_exact(&mut echoed).expect("the board echoes it");
            assert_eq!(echoed, sent);
        }
        board.status()
    };
    // Until a datagram has mixed circuits, each shard receives; frames under way at the change may be lost.
    let mut before = loop {
        let status = exchange();
        if counter_of_shards(&status, "cells_handed_on")[0] > 0 {
            break status;
        }
    };
    // A shard that the system does not run in time misses bursts, which are counted.
    let status = loop {
        let status = exchange();
        if counter_of_shards(&status, "cells_dropped") == counter_of_shards(&before, "cells_dropped") {
            break status;
        }
        before = status;
    };
    has_whole_frames(&before, &status);
    let sessions = of_shards(&status, |shard| &shard["sessions"]);
    assert!(sessions.iter().all(|count| *count > 0), "{sessions:?}");
    // The circuits have no peak rate, so shard 0 schedules their cells, and shard 1 sends through it.
    let to_line = counter_of_shards(&status, "to_line");
    assert!(to_line[0] == 0 && to_line[1] > 0, "{to_line:?}");
    // Once the peer has mixed circuits, shard 0 receives all cells, and hands on those of shard 1's circuit.
    let handed_on = counter_of_shards(&status, "cells_handed_on");
    assert!(handed_on[0] > 0 && counter_of_shards(&status, "cells_handed_in")[1] > 0, "{status}");
    for (size, address) in [("56", "10.9.0.2"), ("4000", "10.9.0.2"), ("4000", "10.9.0.12")] {
        let ping = run("ping", &["-c", "2", "-W", "60", "-s", size, address]);
        assert!(ping.status.success() && !text(&ping).contains("DUP!"), "{}", text(&ping));
    }
    for vc in ["0.100", "0.101"] {
        let ping = near_dir.kiban(&["atm", "ping", "--board", "lab", "--port", "atm", "--count", "2", vc]);
        assert!(ping.status.success(), "{vc}: {}", text(&ping));
    }
    drop((streams, others));
    is_clean(&board, &idle);
}

/// Echoes on connections between both pairs of addresses.
const TWO_CIRCUITS: &str = "import socket
streams = [
    socket.create_connection(('10.9.0.%d' % (n + 2), 7), source_address=('10.9.0.%d' % (n + 1), 0))
    for _ in range(32)
    for n in (0, 10)
]
piece = bytes(range(250)) * 40
for _ in range(3):
    for s in streams:
        s.sendall(piece)
    for s in streams:
        assert s.recv(len(piece), socket.MSG_WAITALL) == piece
print('echoed', flush=True)
input()";

#[test]
fn every_shard_has_circuits_of_its_own() {
    if !enter() {
        return;
    }
    let (near_dir, far_dir) = (TestDir::new("shards-circuits"), TestDir::new("shards-circuits-far"));
    let port = |own: u8, addresses: &str| {
        let pvc = |peer: u8| format!("peer = \"10.9.0.{peer}\"\npcr = 170000\n");
        format!("name = \"lab\"\nshards = 2\n{}", atm(own, addresses, [&pvc(3 - own), &pvc(13 - own)]))
    };
    let near = near_dir.up(&format!("{}{}", port(2, BOTH_ADDRESSES), two_echoes()));
    let addresses = "address = [\"10.9.0.1/24\", \"10.9.0.11/24\"]\n";
    let far = far_dir.up(&format!("{}{SOCKETS}", port(1, addresses)));
    let idle = [&near, &far].map(|board| board.status());
    let mut client = on_board(&far_dir, &["python3", "-c", TWO_CIRCUITS]);
    let client = client.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = Server(client.spawn().expect("python3 is there"));
    let mut line = String::new();
    BufReader::new(client.0.stdout.take().expect("piped")).read_line(&mut line).expect("it says so");
    assert_eq!(line, "echoed\n", "{}", far_dir.log());
    for (board, idle) in [&near, &far].into_iter().zip(&idle) {
        let status = board.status();
        has_whole_frames(idle, &status);
        for what in ["units_in", "units_out"] {
            let units = of_shards(&status, |shard| &shard[what]);
            assert!(units.iter().all(|count| *count > 1000), "each socket is used: {units:?}");
        }
        // Each shard has flows on both circuits, but all cells arrive at the shard of their circuit.
        assert!(counter_of_shards(&status, "to_line").iter().all(|count| *count > 0), "{status}");
        assert_eq!(counter_of_shards(&status, "cells_handed_on"), [0, 0], "{status}");
    }
    for vc in ["0.100", "0.101"] {
        let ping = near_dir.kiban(&["atm", "ping", "--board", "lab", "--port", "atm", "--count", "2", vc]);
        assert!(ping.status.success(), "{vc}: {}", text(&ping));
    }
}
