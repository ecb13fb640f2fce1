//! Failures: links that go down during a transfer, garbage, peers that do not read, and more connections than
//! session slots.

use crate::common::{
    ECHO, LONG, PORT, TestDir, connect, counted, echo, enter, ip, is_clean, lan, run, spawn, text,
};
use crate::links::iperf::rate;
use kiban_base::SimRng;
use kiban_os::packet::PacketLink;
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

const SOURCE: &str = "[[service]]\nkind = \"source\"\nlisten = \"10.9.0.2:19\"\n";

/// Returns a counter of a service.
fn served(status: &Value, service: usize, name: &str) -> u64 {
    status["services"][service]["counters"][name].as_u64().unwrap_or_else(|| panic!("no {name}: {status}"))
}

#[test]
fn a_transfer_survives_a_link_that_goes_down_and_up() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("down");
    let source = format!("{SOURCE}bytes = \"20MB\"\n");
    for (link, name) in [("tap:kiban0", "kiban0"), ("tun:kiban0", "kiban0"), ("packet:lab0", "lab0")] {
        let board = dir.up(&(lan(link, "", 1500) + &source));
        let idle = board.status();
        let mut session = connect("10.9.0.2:19");
        let mut piece = vec![0; 1 << 20];
        session.read_exact(&mut piece).expect("it sends");
        let heard = std::cell::Cell::new(piece.len());
        for _ in 0..2 {
            ip(&format!("link set {name} down"));
            let refused = counted(&board.status(), "send_errors");
            // Drain the kernel's receive buffer, so that the board has data to send while the peer sends no
            // acknowledgements.
            session.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket");
            board.until("something was refused", |status| {
                while let Ok(count @ 1..) = (&session).read(&mut [0; 1 << 16]) {
                    heard.set(heard.get() + count);
                }
                counted(status, "send_errors") > refused
            });
            ip(&format!("link set {name} up"));
        }
        session.set_read_timeout(Some(LONG)).expect("a socket");
        while let count @ 1.. = session.read(&mut piece).expect("it goes on") {
            heard.set(heard.get() + count);
        }
        assert_eq!(heard.get(), 20_000_000, "{link}");
        drop(session);
        let status = is_clean(&board, &idle);
        assert_eq!(status["ports"][0]["losses"], 0, "{link}: {status}");
    }
}

/// Returns random bytes. Some of them begin like a packet, for example with a header that has a wrong length.
fn garbage(rng: &mut SimRng, number: usize, forms: &[&[u8]]) -> Vec<u8> {
    let length = 1 + rng.below(if number.is_multiple_of(10) { 9000 } else { 300 }) as usize;
    let mut bytes: Vec<u8> = (0..length).map(|_| rng.below(256) as u8).collect();
    if let Some(form) = forms.get(number % (forms.len() + 1)) {
        let count = form.len().min(bytes.len());
        bytes[..count].copy_from_slice(&form[..count]);
        // In every third packet, flip a bit of this beginning.
        if number.is_multiple_of(3) {
            let place = rng.below(count as u64) as usize;
            bytes[place] ^= 1 << rng.below(8);
        }
    }
    bytes
}

/// Returns an IPv4 header with a valid checksum, addressed to the board, with the given total length,
/// fragment field and protocol.
fn header(target: [u8; 4], total: u16, fragment: u16, protocol: u8) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 0, 0, 7, 0, 0, 64, protocol, 0, 0, target[0], target[1], target[2], 9];
    bytes.extend(target);
    bytes[2..4].copy_from_slice(&total.to_be_bytes());
    bytes[6..8].copy_from_slice(&fragment.to_be_bytes());
    let sum = kiban_base::Sum::of(&bytes).checksum();
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// A Python script that writes packets from its standard input to a TUN device; each packet is preceded by a
/// 2-byte length.
const TO_TUN: &str = "
import socket, sys
raw = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
bytes = sys.stdin.buffer.read()
while bytes:
    length = int.from_bytes(bytes[:2], 'big')
    raw.sendto(bytes[2:2 + length], (sys.argv[1], 0x0800))
    bytes = bytes[2 + length:]
";

#[test]
fn garbage_on_every_link_is_counted_and_the_board_continues() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("garbage");
    // Use a larger MTU than the board's, so that the board also receives frames that are longer than its MTU.
    ip("link add lab0 mtu 9180 type veth peer name lab1 mtu 9180");
    ip("link set lab0 up");
    ip("link set lab1 up");
    let pvc = "[[port.pvc]]\nvc = \"0.100\"\npeer = \"10.{net}.0.9\"\n";
    let links = [
        ("interface", "packet:lab0", ""),
        ("tun", "tun:kiban1", ""),
        ("packets", "udp-packets:127.0.0.1:7001-127.0.0.1:7101", ""),
        ("frames", "udp-frames:127.0.0.1:7002-127.0.0.1:7102", ""),
        ("cells", "udp-cells:127.0.0.1:7003-127.0.0.1:7103", pvc),
        ("wire", "pseudowire:127.0.0.1:7004-127.0.0.1:7104,label=1000", pvc),
        ("stream", "tcp-frames:listen:127.0.0.1:7005", ""),
        ("atmtcp", "atmtcp:listen:127.0.0.1:7006", pvc),
    ];
    let mut config = PORT.to_owned();
    for (number, (name, link, more)) in links.iter().enumerate() {
        let net = (11 + number).to_string();
        config += &format!(
            "[[port]]\nname = \"{name}\"\nlink = \"{link}\"\naddress = \"10.{net}.0.2/24\"\nmtu = 1400\n"
        );
        config += &more.replace("{net}", &net);
    }
    let board = dir.up(&(config + ECHO));
    let mut session = connect("10.9.0.2:7");
    let mut rng = SimRng::from_seed(7);
    let forms = |number: usize| {
        let target = [10, 11 + number as u8, 0, 2];
        [
            header(target, 60, 0, 6),
            header(target, 9000, 0x2000, 17),
            header(target, 20, 0x3fff, 1),
            header(target, 19, 0, 6),
        ]
    };
    let count = 2000;
    // Ethernet: broadcast frames with either a random EtherType or the EtherType of IP, from runts to jumbo
    // frames.
    let raw = PacketLink::open("lab1", 0x88b5).expect("the test has the right");
    let ethernet = |kind: [u8; 2], rest: &[u8]| [&[0xff; 6][..], &[2, 0, 0, 0, 0, 9], &kind, rest].concat();
    for number in 0..count {
        let plain = forms(0);
        let inside = garbage(&mut rng, number, &plain.each_ref().map(Vec::as_slice));
        let kind = [[8, 0], [8, 6], [0x86, 0xdd], [0, 20], [0x81, 0]][number % 5];
        raw.send(&ethernet(kind, if number.is_multiple_of(50) { &[] } else { &inside }));
    }
    let plain = forms(1);
    let mut packets = Vec::new();
    for number in 0..count {
        let packet = garbage(&mut rng, number, &plain.each_ref().map(Vec::as_slice));
        let packet = &packet[..packet.len().min(1400)];
        packets.extend((packet.len() as u16).to_be_bytes());
        packets.extend(packet);
    }
    let mut tun = Command::new("python3");
    let mut tun = tun
        .args(["-c", TO_TUN, "kiban1"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .expect("python3 is there");
    tun.stdin.take().expect("piped").write_all(&packets).expect("it reads");
    assert!(tun.wait().expect("it is a child of this process").success());
    let cell = [0, 0, 6, 0x42, 0];
    for (place, port) in [(2, 7001), (3, 7002), (4, 7003), (5, 7004)] {
        let peer = UdpSocket::bind(("127.0.0.1", port + 100)).expect("a port");
        let plain = forms(place);
        let inside = ethernet([8, 0], &plain[0]);
        let label = [&[0, 0x3e, 0x81, 0xff][..], &cell[..4]].concat();
        let forms: [&[u8]; 4] = match place {
            2 => plain.each_ref().map(Vec::as_slice),
            3 => [&inside, &inside[..14], &inside[..20], &inside[..33]],
            4 => [&cell, &cell[..4], &[0; 5], &[0xff; 5]],
            _ => [&label, &label[..4], &label[..3], &[0; 4]],
        };
        for number in 0..count {
            // Ignore datagrams that the system drops.
            let _ = peer.send_to(&garbage(&mut rng, number, &forms), ("127.0.0.1", port));
        }
    }
    // TCP links: if the board receives garbage, it closes the connection and listens again.
    for port in [7005, 7006] {
        let mut peer = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        let _ = peer.write_all(&garbage(&mut rng, 10, &[&[0xff; 8]]));
        peer.set_read_timeout(Some(LONG)).expect("a socket");
        // The board closes the connection with a FIN or a reset.
        assert!(matches!(peer.read(&mut [0; 16]), Ok(0) | Err(_)));
    }
    let status = board.until("streams listen again", |status| {
        [7, 8]
            .iter()
            .all(|port| status["ports"][*port]["losses"] == 1 && status["ports"][*port]["state"] == "up")
    });
    for (number, port) in status["ports"].as_array().expect("ports").iter().enumerate() {
        assert_eq!(port["state"], "up", "{port}");
        assert_eq!(port["losses"], if number < 7 { 0 } else { 1 }, "{port}");
    }
    let port = |number: usize| &status["ports"][number];
    // Each layer counts its own errors: the link counts malformed units, and the port and IP count the
    // others.
    for number in [5, 6] {
        assert!(port(number)["link_counters"]["malformed"].as_u64() > Some(100), "{}", port(number));
    }
    let ip = |name: &str| status["counters"]["ip"][name].as_u64();
    assert!(
        ip("malformed") > Some(100) && ip("truncated") > Some(100) && ip("checksum_errors") > Some(100),
        "{status}"
    );
    echo(&mut session, b"as if nothing were");
    echo(&mut connect("10.9.0.2:7"), b"who comes now");
    // The board has survived; it must also shut down normally.
    assert!(!dir.log().contains("panicked"), "{}", dir.log());
}

#[test]
fn a_program_that_does_not_read_holds_at_most_its_share_of_memory() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("readers");
    let board = dir.up(&format!("{PORT}{SOURCE}[memory]\ntransmit = \"16MiB\"\nreceive = \"16MiB\"\n"));
    let idle = board.status();
    // Taken together, the connections request more data than the packet memory holds.
    let crowd: Vec<TcpStream> = (0..300).map(|_| connect("10.9.0.2:19")).collect();
    let before = std::cell::Cell::new(0);
    let status = board.until("it stands still", |status| {
        let out = served(status, 0, "bytes_out");
        out > 0 && status["services"][0]["sessions"] == 300 && out == before.replace(out)
    });
    // Transmit memory is not checked: each session may use its floor, so all sessions together may exhaust
    // the pool. Received data does not stay in memory, so the other pools must not be exhausted.
    for pool in ["receive_bytes", "pdus"] {
        let memory = &status["memory"][pool];
        assert!(memory["used"].as_u64() < memory["capacity"].as_u64(), "{pool}: {memory}");
    }
    // Meanwhile, a peer that reads is served. If no page is free, it is served once the board has given up
    // peers that have not read for a long time.
    let mut reader = connect("10.9.0.2:19");
    let mut piece = vec![0; 1 << 20];
    for _ in 0..10 {
        reader.read_exact(&mut piece).expect("it sends");
    }
    let status = board.status();
    assert_eq!(status["counters"]["tcp"]["persist_sessions_aborted"], served(&status, 0, "aborted"));
    drop((crowd, reader));
    is_clean(&board, &idle);
}

/// Returns a listener on this host, and its address. The kernel completes the handshake of each connection
/// even if the test does not accept it.
fn keeps(address: &str) -> (TcpListener, String) {
    let listener = TcpListener::bind(address).expect("it is this host's");
    let address = listener.local_addr().expect("bound").to_string();
    (listener, address)
}

#[test]
fn excess_connections_are_refused_and_slots_are_reused() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("places");
    let out = "[[service]]\nkind = \"forward\"\nlisten = \"kernel:127.0.0.1:8080\"\nto = \"10.9.0.1:7000\"\n";
    let board = dir.up(&format!("{PORT}{out}[tcp]\nsessions_max = 100\n"));
    let idle = board.status();
    let (far, _) = keeps("10.9.0.1:7000");
    for round in 1..=3_u64 {
        // The kernel accepts all connections. The board has a hundred sessions, some of which may be in
        // TIME-WAIT.
        let mut crowd: Vec<_> = (0..130).map(|_| TcpStream::connect("127.0.0.1:8080")).collect();
        let status = board.until("all have been seen", |status| {
            let seen = served(status, 0, "accepted") + served(status, 0, "errors");
            seen == 130 * round && status["sessions"]["syn_sent"].is_null()
        });
        let resting = status["sessions"]["time_wait"].as_u64().unwrap_or(0);
        assert!(resting <= if round == 1 { 0 } else { 25 }, "{}", status["sessions"]);
        let places = 100 - resting;
        assert_eq!(status["services"][0]["sessions"].as_u64(), Some(places), "{}", status["sessions"]);
        let mut there: Vec<TcpStream> =
            (0..places).map(|_| far.accept().expect("the board connects").0).collect();
        // The clients that got a session are served; the others receive a reset.
        let mut heard = 0;
        for (number, stream) in crowd.iter_mut().enumerate() {
            // A refused client gets the error from connect or from read.
            let said = stream.as_mut().map_err(|error| error.kind());
            let said =
                said.and_then(|stream| stream.write_all(&[number as u8]).map_err(|error| error.kind()));
            assert!(matches!(said, Ok(()) | Err(ErrorKind::ConnectionReset)), "{number}: {said:?}");
        }
        for stream in &mut there {
            stream.set_read_timeout(Some(LONG)).expect("a socket");
            let mut word = [0];
            stream.read_exact(&mut word).expect("it is carried");
            stream.write_all(&word).expect("it is taken");
        }
        for (number, stream) in crowd.iter_mut().enumerate() {
            let Ok(stream) = stream else { continue };
            stream.set_read_timeout(Some(LONG)).expect("a socket");
            let mut word = [0];
            match stream.read_exact(&mut word) {
                Ok(()) => {
                    assert_eq!(word, [number as u8]);
                    heard += 1;
                }
                // The client had already received the reset.
                Err(error) => assert!(
                    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof),
                    "{number}: {error}"
                ),
            }
        }
        assert_eq!(heard, places);
        drop((crowd, there));
        board.until("they have gone", |status| status["services"][0]["sessions"] == 0);
    }
    is_clean(&board, &idle);
}

#[test]
fn a_board_without_file_descriptors_refuses_and_survives() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("files");
    let (far, to) = keeps("127.0.0.1:0");
    let forward =
        format!("[[service]]\nkind = \"forward\"\nlisten = \"10.9.0.2:80\"\nto = \"kernel:{to}\"\n");
    let board = dir.up(&format!("{PORT}{forward}"));
    let limit = run("prlimit", &["--pid", &board.child.id().to_string(), "--nofile=40:40"]);
    assert!(limit.status.success(), "{}", text(&limit));
    let mut crowd: Vec<_> = (0..60).map(|_| TcpStream::connect("10.9.0.2:80")).collect();
    // No descriptor was left for the last client. It may have been refused before its connect returned.
    let heard = match &mut crowd[59] {
        Ok(last) => last.read(&mut [0]).map_err(|error| error.kind()),
        Err(error) => Err(error.kind()),
    };
    assert_eq!(heard, Err(ErrorKind::ConnectionReset));
    drop(crowd);
    drop(far);
    let status = board.until("it can be asked again", |status| status["services"][0]["sessions"] == 0);
    assert!(served(&status, 0, "errors") >= 20, "{status}");
}

#[test]
fn iperf3_passes_a_forward_in_both_directions() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("iperf");
    let forward =
        "[[service]]\nkind = \"forward\"\nlisten = \"10.9.0.2:5201\"\nto = \"kernel:127.0.0.1:5201\"\n";
    let board = dir.up(&format!("{PORT}{forward}"));
    let idle = board.status();
    for way in [&[][..], &["-R"], &["-P", "8"]] {
        let rate = rate(&[&["-c", "10.9.0.2"], way].concat(), 100e6, spawn);
        assert!(rate > 100e6, "{way:?}: {rate} bit/s");
    }
    let status = is_clean(&board, &idle);
    assert_eq!(status["ports"][0]["losses"], 0, "{status}");
}

/// Returns the response to a metrics request.
fn figures(address: &str) -> String {
    let mut stream = connect(address);
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: lab\r\n\r\n").expect("the peer reads it");
    let mut told = String::new();
    stream.read_to_string(&mut told).expect("text");
    assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
    told
}

#[test]
fn drops_by_impairments_and_queues_are_counted_by_cause() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("lost");
    // At this rate a hundred bytes take 12.5 ms, so most packets of a burst are dropped because the queue is
    // full; half of the others are lost.
    let port = "name = \"lab\"\n[[port]]\nname = \"wan\"\naddress = \"10.8.0.2/24\"\n\
        link = \"udp-packets:127.0.0.1:7000-127.0.0.1:7001,loss=50%,rate=64kbit,queue=30\"\n\
        [metrics]\nlisten = \"127.0.0.1:9100\"\n";
    let board = dir.up(port);
    let near = UdpSocket::bind("127.0.0.1:7001").expect("loopback");
    let count = 100;
    for _ in 0..count {
        near.send_to(&[0x45; 100], "127.0.0.1:7000").expect("loopback");
    }
    let status = board.until("all have come or are lost", |status| {
        let all = status["ports"][0]["lost"].as_object().expect("by cause").values();
        counted(status, "units_in") + all.filter_map(Value::as_u64).sum::<u64>() == count
    });
    let lost = &status["ports"][0]["lost"];
    for (cause, counter) in
        [("link_impair_lost", "impair_lost"), ("link_impair_queue_full", "impair_queue_full")]
    {
        let of_cause = lost[cause].as_u64().expect("a cause");
        assert!(of_cause > 0 && of_cause == counted(&status, counter), "{cause}: {status}");
        let line =
            format!("kiban_port_lost_total{{board=\"lab\",port=\"wan\",cause=\"{cause}\"}} {of_cause}\n");
        assert!(figures("127.0.0.1:9100").contains(&line), "{line}");
    }
    // The table shows the sum of all causes.
    let sum: u64 = lost.as_object().expect("by cause").values().filter_map(Value::as_u64).sum();
    let table = text(&dir.kiban(&["status", "lab"]));
    let row = table.lines().find(|line| line.starts_with("wan ")).unwrap_or_else(|| panic!("{table}"));
    let numbers: Vec<&str> = row.split_whitespace().rev().take(2).collect();
    assert_eq!(numbers, ["0", &sum.to_string()], "{table}");
    let status = board.until("rates are known", |status| {
        near.send_to(&[0x45; 100], "127.0.0.1:7000").expect("loopback");
        status["ports"][0]["rates"]["bits_in"].as_f64() > Some(0.0)
    });
    let rates = status["ports"][0]["rates"].as_object().expect("rates");
    for value in rates.values().chain([&status["uptime_seconds"]]) {
        let value = value.as_f64().expect("a number");
        assert_eq!((value * 1e3).round() / 1e3, value, "no more than thousandths: {status}");
    }
}

#[test]
fn silent_clients_do_not_keep_others_out() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("silent");
    let board = dir.up(&format!("{PORT}[metrics]\nlisten = \"127.0.0.1:9100\"\n"));
    let socket = dir.0.join("kiban/lab.sock");
    for _ in 0..5 {
        let silent: Vec<_> = (0..20)
            .map(|_| {
                let caller = std::os::unix::net::UnixStream::connect(&socket).expect("it listens");
                (caller, connect("127.0.0.1:9100"))
            })
            .collect();
        assert_eq!(board.status()["name"], "lab");
        assert!(figures("127.0.0.1:9100").contains("kiban_info"));
        drop(silent);
    }
    // A client that sends nothing also loses its slot after a while.
    let clock = kiban_os::Clock::new();
    let mut silent = std::os::unix::net::UnixStream::connect(&socket).expect("it listens");
    silent.set_read_timeout(Some(LONG)).expect("a socket");
    assert_eq!(silent.read(&mut [0; 1]).expect("it is disconnected"), 0);
    assert!(clock.now().as_secs_f64() < 20.0);
}
