//! Datagram sockets of programs on a board: the library, `kiban lab rtp --board`, and `kiban run`.
//!
//! Requires  a C compiler for the preloaded library, dig, python3.

use super::run::{LIBRARY, on_board, told};
use crate::common::{KIBAN, LONG, PORT, TestDir, enter, ip, is_clean, run, text};
use crate::nics::rdma::{at, two_boards};
use kiban_os::Clock;
use kiban_streams::datagrams::{DatagramSocket, Received};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketType};
use serde_json::Value;
use std::io::{self, BufRead as _, BufReader};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(super) const SOCKETS: &str = "[[service]]\nkind = \"sockets\"\n";

fn bind(dir: &TestDir, address: &str, port: u16) -> io::Result<DatagramSocket> {
    DatagramSocket::bind_at(&dir.0.join("kiban/lab.sockets"), at(address, port))
}

/// Waits for the next datagram or error.
fn receive(socket: &DatagramSocket, room: &mut [u8]) -> io::Result<Received> {
    let clock = Clock::new();
    loop {
        match socket.receive(room) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            received => return received,
        }
        assert!(clock.now().as_secs_f64() < LONG.as_secs_f64(), "no datagram");
        let mut files = [PollFd::new(socket, PollFlags::IN)];
        let _ = poll(&mut files, Some(&Timespec { tv_sec: 1, tv_nsec: 0 }));
    }
}

/// Returns a counter of the service.
fn counted_service(status: &Value, name: &str) -> u64 {
    status["services"][0]["counters"][name].as_u64().unwrap_or_else(|| panic!("no {name}: {status}"))
}

/// Returns a socket of the kernel.
fn kernel() -> UdpSocket {
    let socket = UdpSocket::bind("10.9.0.1:0").expect("its address");
    socket.set_read_timeout(Some(LONG)).expect("a socket");
    socket
}

#[test]
fn datagrams_go_between_a_program_on_a_board_and_the_kernel() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("datagrams");
    let board = dir.up(&format!("{PORT}{SOCKETS}"));
    let idle = board.status();
    {
        let (far, mut room) = (kernel(), vec![0; 70_000]);
        let far_at = far.local_addr().expect("bound");
        let near = bind(&dir, "10.9.0.2", 0).expect("its address");
        assert!(near.local_addr().port() >= 49152, "a dynamic port");
        assert!(matches!(near.receive(&mut room), Err(error) if error.kind() == io::ErrorKind::WouldBlock));
        // Lengths, with fragments.
        for length in [0, 1, 1472, 1473, 60_000, 65_507] {
            let said: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            near.send_to(&said, far_at).expect("room");
            let (count, from) = far.recv_from(&mut room).expect("it arrives");
            assert!(from == near.local_addr() && room[..count] == said, "{length}: {count}");
            far.send_to(&said, from).expect("room");
            let came = receive(&near, &mut room).expect("it arrives");
            assert!(
                (came.bytes, came.from) == (length, far_at) && room[..length] == said,
                "{length}: {came:?}"
            );
        }
        // A short buffer: the rest is lost.
        far.send_to(&[7; 100], near.local_addr()).expect("room");
        assert_eq!(receive(&near, &mut room[..10]).expect("it arrives").bytes, 10);
        // All addresses, and a port of one's choice.
        let any = bind(&dir, "0.0.0.0", 5353).expect("it is free");
        far.send_to(b"any", "10.9.0.2:5353").expect("room");
        assert_eq!(receive(&any, &mut room).expect("it arrives").from, far_at);
        assert_eq!(any.connect(far_at).expect("a route"), at("10.9.0.2", 5353));
        // Now it receives only from there.
        kernel().send_to(b"stranger", "10.9.0.2:5353").expect("room");
        far.send_to(b"friend", "10.9.0.2:5353").expect("room");
        let came = receive(&any, &mut room).expect("it arrives");
        assert_eq!((came.from, &room[..came.bytes]), (far_at, &b"friend"[..]));
        // Errors.
        let error = |error: io::Error| error.kind();
        let taken = bind(&dir, "0.0.0.0", 5353).map(drop).map_err(error);
        assert_eq!(taken, Err(io::ErrorKind::AddrInUse));
        let covered = bind(&dir, "10.9.0.2", 5353).map(drop).map_err(error);
        assert_eq!(covered, Err(io::ErrorKind::AddrInUse), "the socket at all addresses has the port");
        let covers = bind(&dir, "0.0.0.0", near.local_addr().port()).map(drop).map_err(error);
        assert_eq!(covers, Err(io::ErrorKind::AddrInUse), "the other socket would keep its datagrams");
        let foreign = bind(&dir, "192.0.2.1", 0).map(drop).map_err(error);
        assert_eq!(foreign, Err(io::ErrorKind::AddrNotAvailable));
        near.send_to(b"lost", at("192.0.2.1", 9)).expect("room");
        let lost = receive(&near, &mut room).map(drop).map_err(error);
        assert_eq!(lost, Err(io::ErrorKind::NetworkUnreachable));
        assert_eq!(
            near.connect(at("192.0.2.1", 9)).map(drop).map_err(error),
            Err(io::ErrorKind::NetworkUnreachable)
        );
        let long = near.send_to(&[0; 65_528], far_at).map_err(error);
        assert_eq!(long, Err(io::ErrorKind::InvalidInput));
        // An ICMP error is reported only for the connected address.
        let closed = kernel().local_addr().expect("bound");
        near.connect(closed).expect("a route");
        near.send_to(b"anybody?", closed).expect("room");
        let refused = receive(&near, &mut room).map(drop).map_err(error);
        assert_eq!(refused, Err(io::ErrorKind::ConnectionRefused));
        // Between two sockets of the board.
        let beside = bind(&dir, "10.9.0.2", 6000).expect("it is free");
        near.send_to(b"there", beside.local_addr()).expect("room");
        assert_eq!(receive(&beside, &mut room).expect("it arrives").from, near.local_addr());
        let status = board.status();
        assert_eq!(status["services"][0]["sessions"], 3, "{status}");
        assert!(counted_service(&status, "datagrams_in") >= 10, "{status}");
        assert!(counted_service(&status, "datagrams_out") >= 8, "{status}");
        assert_eq!(counted_service(&status, "datagrams_refused"), 1, "{status}");
    }
    is_clean(&board, &idle);
    // Once the board has exited, calls say so.
    let near = bind(&dir, "10.9.0.2", 0).expect("its address");
    board.signal("-KILL");
    let gone = receive(&near, &mut [0; 10]).expect_err("the board is gone");
    assert!(gone.to_string().contains("the board has exited"), "{gone}");
    assert!(!dir.log().contains("panicked"), "{}", dir.log());
}

#[test]
fn a_program_that_reads_no_datagrams_or_sends_garbage_harms_no_other() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("datagrams-hostile");
    let board = dir.up(&format!("{PORT}{SOCKETS}sessions = 4\n"));
    let idle = board.status();
    {
        let (far, mut room) = (kernel(), vec![0; 70_000]);
        let deaf = bind(&dir, "10.9.0.2", 7000).expect("it is free");
        let good = bind(&dir, "10.9.0.2", 7001).expect("it is free");
        // The kernel may lose many of them before they reach the board.
        let send = || {
            for _ in 0..500 {
                far.send_to(&[1; 1000], "10.9.0.2:7000").expect("room");
            }
        };
        send();
        far.send_to(b"well", "10.9.0.2:7001").expect("room");
        assert_eq!(receive(&good, &mut room).expect("it arrives").bytes, 4);
        board.until("datagrams are dropped", |status| {
            send();
            status["counters"]["host"]["datagrams_dropped"].as_u64() > Some(100)
        });
        let heard = std::iter::from_fn(|| deaf.receive(&mut room).ok()).count();
        assert!((65..1000).contains(&heard), "those in the socket and on the board: {heard}");
        // Packets that are not valid. The program is disconnected, and the port is free again.
        let path = SocketAddrUnix::new(dir.0.join("kiban/lab.sockets")).expect("a short path");
        // A request to bind 10.9.0.2:7002 (`kiban_attach::Request`).
        let mut request = [0; 48];
        (request[0], request[8]) = (14, 4);
        request[12..14].copy_from_slice(&7002u16.to_ne_bytes());
        request[16..20].copy_from_slice(&[10, 9, 0, 2]);
        for packet in [&[][..], &[1; 31], &[0xff; 32], &[2; 100], &[1; 70_000]] {
            let rude =
                rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
            rustix::net::connect(&rude, &path).expect("it listens");
            rustix::net::send(&rude, &request, SendFlags::NOSIGNAL).expect("room");
            let mut entry = [0; 48];
            let (count, _) =
                rustix::net::recv(&rude, &mut entry[..], rustix::net::RecvFlags::empty()).expect("a reply");
            assert_eq!((count, entry[1]), (48, 0), "it is bound");
            rustix::net::send(&rude, packet, SendFlags::NOSIGNAL).expect("room");
            let (count, _) =
                rustix::net::recv(&rude, &mut entry[..], rustix::net::RecvFlags::empty()).unwrap_or((0, 0));
            assert_eq!(count, 0, "it is disconnected");
        }
        // The limit of sockets.
        let more: Vec<_> = (0..3).map(|port| bind(&dir, "10.9.0.2", 8000 + port)).collect();
        let granted: Vec<bool> = more.iter().map(Result::is_ok).collect();
        assert_eq!(granted, [true, true, false], "sessions = 4");
        good.send_to(b"still", far.local_addr().expect("bound")).expect("room");
        assert_eq!(far.recv_from(&mut room).expect("it arrives").0, 5);
        drop((deaf, good));
    }
    is_clean(&board, &idle);
    assert!(!dir.log().contains("panicked"), "{}", dir.log());
}

#[test]
fn rtp_streams_go_from_one_board_to_another() {
    if !enter() {
        return;
    }
    let (near, far) = (TestDir::new("rtp-near"), TestDir::new("rtp-far"));
    let [near_board, far_board] = two_boards(&near, &far, SOCKETS);
    let command = |dir: &TestDir, arguments: &[&str]| {
        let mut command = Command::new(KIBAN);
        command.args(["lab", "rtp"]).args(arguments).env("XDG_RUNTIME_DIR", &dir.0);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let receiving = ["receive", "--board", "lab", "--listen", "10.1.0.2:5004", "--time", "1min", "--json"];
    let receiver = command(&far, &receiving).spawn().expect("the program was built");
    far_board.until("it listens", |status| status["services"][0]["sessions"] == 2);
    let sending = [
        "send",
        "10.1.0.2",
        "--board",
        "lab",
        "--streams",
        "2",
        "--interval",
        "10ms",
        "--time",
        "5s",
        "--json",
    ];
    let sent = command(&near, &sending).output().expect("the program was built");
    let received = receiver.wait_with_output().expect("it ends after the goodbyes");
    assert!(sent.status.success() && received.status.success(), "{} {}", text(&sent), text(&received));
    let [sent, received] = [sent, received].map(|output| {
        serde_json::from_slice::<Value>(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    });
    let streams = received["streams"].as_array().expect("a list");
    assert_eq!(streams.len(), 2, "{received:#}");
    for stream in streams {
        let (packets, lost) = (stream["packets"].as_u64().expect("a count"), stream["lost"].as_i64());
        assert_eq!(packets as i64 + lost.expect("a count"), 499, "{received:#}");
        assert!(stream["has_left"] == true && stream["jitter_ms"].is_number(), "{received:#}");
    }
    for stream in sent["streams"].as_array().expect("a list") {
        assert_eq!(stream["packets"], 500, "{sent:#}");
        assert!(stream["lost"].is_i64(), "the receiver has reported: {sent:#}");
    }
    for board in [&near_board, &far_board] {
        board.until("the sockets are closed", |status| status["services"][0]["sessions"] == 0);
    }
    let output = command(&near, &["receive", "--board", "moon"]).output().expect("the program was built");
    let words = text(&output);
    assert!(words.contains("no board moon offers datagram sockets"), "{words}");
}

/// Echoes datagrams with the kernel's UDP until the end of the test.
fn echo(socket: &UdpSocket, ends: &AtomicBool) {
    let mut room = vec![0; 70_000];
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a socket");
    while !ends.load(Ordering::Relaxed) {
        if let Ok((count, from)) = socket.recv_from(&mut room) {
            // The peer may be gone already.
            let _ = socket.send_to(&room[..count], from);
        }
    }
}

#[test]
fn an_unmodified_program_uses_the_boards_udp_like_the_systems() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("run-udp");
    let board = dir.up(&format!("{PORT}{SOCKETS}"));
    let idle = board.status();
    run("ip", &["link", "set", "lo", "up"]);
    let (socket, closed, ends) = (kernel(), kernel().local_addr().expect("bound"), AtomicBool::new(false));
    let port = socket.local_addr().expect("bound").port().to_string();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/up/programs/python/datagrams.py");
    let output = std::thread::scope(|scope| {
        scope.spawn(|| echo(&socket, &ends));
        let output = told(on_board(&dir, &["python3", script, &port, &closed.port().to_string()]));
        ends.store(true, Ordering::Relaxed);
        output
    });
    assert!(output.status.success(), "{}\n{}", text(&output), dir.log());
    assert_eq!(text(&output), "all as with the system's UDP\n");
    is_clean(&board, &idle);
    assert!(!dir.log().contains("panicked"), "{}", dir.log());
}

#[test]
fn options_and_ancillary_data_of_datagrams_are_those_of_the_system() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("run-ancillary");
    let addresses = "[\"10.9.0.2/24\", \"10.9.0.3/24\", \"fd00:9::2/64\"]";
    let board = dir.up(&format!("{}{SOCKETS}", PORT.replace("\"10.9.0.2/24\"", addresses)));
    ip("-6 addr add fd00:9::1/64 dev kiban0 nodad");
    // The board first makes sure that no other host has its address.
    let clock = Clock::new();
    while !dir.kiban(&["ping", "fd00:9::1", "-c", "1"]).status.success() {
        assert!(clock.now().as_secs_f64() < LONG.as_secs_f64(), "{}", dir.log());
    }
    let idle = board.status();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/up/programs/python/ancillary.py");
    let output = told(on_board(&dir, &["python3", script]));
    assert_eq!(text(&output), "all as with the system's UDP\n", "{}", dir.log());
    is_clean(&board, &idle);
}

/// Returns a command that runs a program with the `resolv.conf` of the test's directory.
fn with_names(dir: &TestDir, program: &Command) -> Command {
    let mut command = Command::new("unshare");
    let mount = "mount --bind resolv.conf \"$(realpath /etc/resolv.conf)\" && exec \"$@\"";
    command.args(["--mount", "sh", "-c", mount, "sh"]).arg(program.get_program()).args(program.get_args());
    command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(&dir.0);
    command
}

#[test]
fn names_are_looked_up_over_the_board() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("run-names");
    let mut board = dir.up(&format!("{PORT}{SOCKETS}"));
    let idle = board.status();
    run("ip", &["link", "set", "lo", "up"]);
    let python = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/up/programs/python/");
    let script = |name: &str| format!("{python}{name}.py");
    let mut server = Command::new("python3");
    server.args([&script("dns"), "10.9.0.1", "53"]).stdout(Stdio::piped());
    let mut server = server.spawn().expect("python3 is installed");
    let mut lines = BufReader::new(server.stdout.take().expect("piped")).lines().map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("ready"));
    dir.write("resolv.conf", "nameserver 10.9.0.1\nsearch lab.example\noptions timeout:5\n");
    // dig uses libuv, whose older versions call syscall(2).
    for name in ["www.lab.example", "long.lab.example"] {
        let output = told(on_board(&dir, &["dig", "@10.9.0.1", name, "+short"]));
        assert_eq!(text(&output), "192.0.2.77\n192.0.2.78\n");
    }
    let closed = told(on_board(&dir, &["dig", "@10.9.0.1", "-p", "54", "www.lab.example", "+tries=1"]));
    assert!(text(&closed).contains("connection refused"), "{}", text(&closed));
    let output = told(with_names(&dir, &on_board(&dir, &["python3", &script("names")])));
    assert_eq!(text(&output), "all names found\n", "{}", dir.log());
    // All of this went over the board.
    let status = is_clean(&board, &idle);
    assert!(counted_service(&status, "datagrams_in") >= 10, "{status}");
    // When the board has stopped, no name is looked up over the host's network.
    board.signal("-KILL");
    board.wait();
    let mut late = Command::new("python3");
    late.args(["-c", "import socket; socket.getaddrinfo('late.lab.example', 80)"]);
    late.env("LD_PRELOAD", LIBRARY.join("libkiban_sockets.so"))
        .env("KIBAN_SOCKETS", dir.0.join("kiban/lab.sockets"));
    let output = told(with_names(&dir, &late));
    assert!(text(&output).contains("Temporary failure in name resolution"), "{}", text(&output));
    server.kill().expect("it is a child of this process");
    server.wait().expect("it is a child of this process");
    assert!(!lines.any(|line| line.contains("late")), "the host's network was not used");
}

#[test]
fn a_socket_for_all_addresses_has_both_families() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("datagrams-v6");
    let port = PORT.replace("\"10.9.0.2/24\"", "[\"10.9.0.2/24\", \"fd00:9::2/64\"]");
    let board = dir.up(&format!("{port}{SOCKETS}"));
    ip("-6 addr add fd00:9::1/64 dev kiban0 nodad");
    // The board first makes sure that nobody else has its address.
    let clock = Clock::new();
    while !dir.kiban(&["ping", "fd00:9::1", "-c", "1"]).status.success() {
        assert!(clock.now().as_secs_f64() < LONG.as_secs_f64(), "{}", dir.log());
    }
    let idle = board.status();
    {
        let mut room = vec![0; 70_000];
        let any = bind(&dir, "::", 5353).expect("it is free");
        let six = UdpSocket::bind("[fd00:9::1]:0").expect("its address");
        six.set_read_timeout(Some(LONG)).expect("a socket");
        for (far, near) in [(&six, "[fd00:9::2]:5353"), (&kernel(), "10.9.0.2:5353")] {
            for length in [1, 60_000] {
                far.send_to(&vec![7; length], near).expect("room");
                let came = receive(&any, &mut room).expect("it arrives");
                assert_eq!((came.bytes, came.from), (length, far.local_addr().expect("bound")));
                any.send_to(&room[..length], came.from).expect("room");
                let (count, from) = far.recv_from(&mut room).expect("it arrives");
                assert_eq!((count, from), (length, near.parse().expect("an address")));
            }
        }
        let local = any.connect(six.local_addr().expect("bound")).expect("a route");
        assert_eq!(local, at("fd00:9::2", 5353));
        // The same for an unmodified program.
        let ends = AtomicBool::new(false);
        let six_port = six.local_addr().expect("bound").port().to_string();
        let script = "import socket, sys\n\
            one = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n\
            one.settimeout(30)\n\
            target = ('fd00:9::1', int(sys.argv[1]), 0, 0)\n\
            one.sendto(b'six', target)\n\
            assert one.recvfrom(100) == (b'six', target)\n\
            one.connect(target)\n\
            assert one.getsockname()[0] == 'fd00:9::2' and one.getpeername() == target\n\
            one.send(b'six again')\n\
            assert one.recv(100) == b'six again'\n";
        let output = std::thread::scope(|scope| {
            scope.spawn(|| echo(&six, &ends));
            let output = told(on_board(&dir, &["python3", "-c", script, &six_port]));
            ends.store(true, Ordering::Relaxed);
            output
        });
        assert!(output.status.success(), "{}\n{}", text(&output), dir.log());
    }
    is_clean(&board, &idle);
}
