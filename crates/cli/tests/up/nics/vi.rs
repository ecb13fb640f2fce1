//! VI NICs on running boards: two boards that exchange ATM cells, unauthenticated clients that connect to a
//! NIC's TCP port, and a board that is killed.

use crate::common::{LONG, PORT, TestDir, enter, text};
use kiban_base::{Region, SharedBytes, Wait};
use kiban_os::clock::process_cpu_nanos;
use kiban_vi::{
    AddressSegment, Completion, DataSegment, Event, MemoryAttributes, Reliability, Status, ViAttributes,
    ViState, Work,
};
use kiban_vi_runtime::{Address, Device, Failure, Nic};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const ATTACH: &str = "[[service]]\nkind = \"attach\"\nsessions = 512\n";
const MEMORY_BYTES: usize = 4 << 20;

/// Returns the configuration of one of two connected boards. The board has the address 10.1.0.`own`, and a
/// circuit whose cells are carried over UDP on the loopback interface.
fn joined(name: &str, own: u8, other: u8) -> String {
    format!(
        "name = \"{name}\"\n[[port]]\nname = \"atm\"\nlink = \"udp-cells:127.0.0.1:700{own}-127.0.0.1:700{other}\"\n\
         address = \"10.1.0.{own}/24\"\n[[port.pvc]]\nvc = \"0.100\"\n{ATTACH}"
    )
}

/// Runs this test in another process, whose clients find the boards in this test's directory; `role` selects
/// the part of the test that the process executes.
fn in_a_process_of_its_own(test: &str, dir: &TestDir, role: &str) {
    let mut child = Command::new(std::env::current_exe().expect("a test is a program"));
    child.args([&format!("nics::vi::{test}"), "--exact", "--nocapture", "--test-threads=1"]);
    let output = child.env("KIBAN_TEST_ROLE", role).env("XDG_RUNTIME_DIR", &dir.0).output();
    let output = output.expect("a test can be started");
    let told = text(&output);
    assert!(output.status.success() && told.contains("1 passed"), "{told}\n{}", dir.log());
}

/// Starts two boards, then runs `tell` in another process and passes it the process ID of the near board.
fn over_two_boards(test: &str, tell: impl FnOnce(u32)) {
    if let Ok(role) = std::env::var("KIBAN_TEST_ROLE") {
        return tell(role.parse().expect("the process of a board"));
    }
    if !enter() {
        return;
    }
    let dir = TestDir::new(test.split('_').next().expect("a word"));
    let _far = dir.up(&joined("far", 2, 1));
    let near = dir.up(&joined("near", 1, 2));
    in_a_process_of_its_own(test, &dir, &near.child.id().to_string());
}

/// A VI and its registered memory.
struct End {
    nic: Nic,
    memory: Region,
    handle: u32,
    vi: u32,
}

fn open(device: &str) -> Nic {
    Nic::open(&device.parse::<Device>().expect("a device"))
        .unwrap_or_else(|error| panic!("{device}: {error}"))
}

fn end(nic: &Nic, reliability: Reliability) -> End {
    let tag = nic.create_tag().expect("room");
    let memory = Region::new(0, MEMORY_BYTES);
    let all = MemoryAttributes { tag, rdma_write: true, rdma_read: true };
    let handle = nic.register(memory.clone(), all).expect("room");
    let rdma_read = reliability != Reliability::Unreliable;
    let transfer_bytes_max = MEMORY_BYTES as u32;
    let attributes =
        ViAttributes { reliability, transfer_bytes_max, qos: 0, tag, rdma_write: true, rdma_read };
    let vi = nic.create_vi(attributes, None, None).expect("room");
    End { nic: nic.clone(), memory, handle, vi }
}

impl End {
    fn at(&self, address: u64, length: u32) -> [DataSegment; 1] {
        [DataSegment { address, handle: self.handle, length }]
    }

    fn receive(&self, cookie: u64, at: u64, length: u32) {
        self.nic.post_receive(self.vi, cookie, &self.at(at, length)).expect("room");
    }

    fn send(&self, cookie: u64, at: u64, length: u32) {
        self.nic.post_send(self.vi, Work::send(cookie, &self.at(at, length))).expect("connected");
    }

    fn fill(&self, at: u64, bytes: &[u8]) {
        self.memory.write(at, SharedBytes::from(bytes)).expect("within");
    }

    fn holds(&self, at: u64, bytes: &[u8]) -> bool {
        self.memory.read(at, bytes.len()).expect("within") == bytes
    }

    fn received(&self) -> Completion {
        self.nic.receive_wait(self.vi, LONG).expect("a message arrives")
    }

    fn sent(&self) -> Completion {
        self.nic.send_wait(self.vi, LONG).expect("it leaves")
    }

    fn address(&self, discriminator: &[u8]) -> Address {
        Address { host: self.nic.address(), discriminator: discriminator.to_vec() }
    }
}

/// Connects two VIs; `client` initiates.
fn join(server: &End, client: &End) {
    server.nic.listen(b"port").expect("room");
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let request = server.nic.connect_wait(b"port", LONG).expect("a request arrives");
            assert_eq!(request.from.host, client.nic.address(), "who calls is known by where it is called");
            server.nic.accept(&request, server.vi).expect("the ends are alike");
        });
        client.nic.connect(client.vi, b"mine", &server.address(b"port"), LONG).expect("the receiver waits");
    });
}

fn noise(length: u32, seed: u32) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}

/// Sends a message of each length in both directions, from the start of one memory region to the middle of
/// the other.
fn exchange(ends: [&End; 2], lengths: &[u32]) {
    let middle = MEMORY_BYTES as u64 / 2;
    for (round, &length) in lengths.iter().enumerate() {
        for (from, to) in [(ends[0], ends[1]), (ends[1], ends[0])] {
            let bytes = noise(length, from.vi + round as u32);
            from.fill(0, &bytes);
            to.receive(1, middle, length);
            from.send(2, 0, length);
            let done = to.received();
            assert_eq!((done.cookie, done.status, done.length), (1, Status::OK, length));
            assert!(to.holds(middle, &bytes), "{length}");
            assert_eq!(from.sent().status, Status::OK);
        }
    }
}

#[test]
fn vi_works_between_two_boards_and_sleeps_when_idle() {
    let test = "vi_works_between_two_boards_and_sleeps_when_idle";
    over_two_boards(test, |_| {
        let [near, far] = ["board:near@10.1.0.1", "board:far@10.1.0.2"].map(open);
        assert_eq!(near.address().to_string(), "board@10.1.0.1:4808");
        let longest = near.packet_bytes() as u32 - 32;
        for reliability in [Reliability::Unreliable, Reliability::Delivery, Reliability::Reception] {
            let ends = [end(&far, reliability), end(&near, reliability)];
            join(&ends[0], &ends[1]);
            exchange([&ends[0], &ends[1]], &[1, 31, 8192, longest, longest + 1, 2 * longest + 7]);
            if reliability == Reliability::Delivery {
                exchange([&ends[0], &ends[1]], &[MEMORY_BYTES as u32 / 2]);
            }
        }
        // RDMA Write and RDMA Read access the far memory while its owner is idle.
        let [server, client] = [end(&far, Reliability::Reception), end(&near, Reliability::Reception)];
        join(&server, &client);
        let bytes = noise(300_000, 9);
        client.fill(0, &bytes);
        let there = AddressSegment { address: 1000, handle: server.handle };
        near.post_send(client.vi, Work::write(1, &client.at(0, 300_000), there)).expect("connected");
        near.post_send(client.vi, Work::read(2, &client.at(1 << 20, 300_000), there)).expect("connected");
        assert_eq!([client.sent().status, client.sent().status], [Status::OK; 2]);
        assert!(server.holds(1000, &bytes) && client.holds(1 << 20, &bytes));
        // Connect many VIs at the same time; they all share one path.
        let pairs: Vec<_> = (0..40)
            .map(|_| {
                let pair = [end(&far, Reliability::Reception), end(&near, Reliability::Reception)];
                join(&pair[0], &pair[1]);
                pair
            })
            .collect();
        for (seed, [server, client]) in pairs.iter().enumerate() {
            server.receive(0, 0, 20_000);
            client.fill(0, &noise(20_000, seed as u32));
            client.send(0, 0, 20_000);
        }
        for (seed, [server, client]) in pairs.iter().enumerate() {
            assert_eq!((server.received().length, client.sent().status), (20_000, Status::OK));
            assert!(server.holds(0, &noise(20_000, seed as u32)), "{seed}");
        }
        // All VIs shared one path; nothing was lost or retransmitted.
        let counters = [near.counters(), far.counters()];
        assert!(
            counters
                .iter()
                .all(|it| (it.malformed, it.gaps, it.retransmits, it.connections_broken) == (0, 0, 0, 0))
        );
        // Both NICs are idle: they must use hardly any CPU time.
        near.set_wait(Wait::Interrupt);
        far.set_wait(Wait::Interrupt);
        let before = process_cpu_nanos();
        std::thread::scope(|threads| {
            for nic in [&near, &far] {
                threads.spawn(|| assert_eq!(nic.event_wait(Duration::from_secs(1)), Err(Failure::Timeout)));
            }
        });
        let busy = Duration::from_nanos(process_cpu_nanos() - before);
        assert!(busy < Duration::from_millis(100), "two idle NICs took {busy:?} of a second");
        // A completion wakes a sleeping thread.
        std::thread::scope(|threads| {
            server.receive(5, 0, 8);
            let waits = threads.spawn(|| server.received());
            client.send(6, 0, 8);
            assert_eq!((waits.join().expect("no panic").cookie, client.sent().status), (5, Status::OK));
        });
    });
}

#[test]
fn nics_that_connect_simultaneously_share_one_path() {
    let test = "nics_that_connect_simultaneously_share_one_path";
    over_two_boards(test, |_| {
        for port in 5000..5008 {
            let nics =
                [open(&format!("board:near@10.1.0.1:{port}")), open(&format!("board:far@10.1.0.2:{port}"))];
            let ends = [end(&nics[0], Reliability::Delivery), end(&nics[1], Reliability::Delivery)];
            let names: [&[u8]; 2] = [b"one", b"two"];
            let ask = |own: usize| {
                let remote = ends[1 - own].address(names[1 - own]);
                nics[own].connect_peer(ends[own].vi, names[own], &remote, LONG).expect("idle");
                nics[own].peer_wait(ends[own].vi, LONG).expect("the other asks as well");
            };
            std::thread::scope(|scope| {
                let other = scope.spawn(|| ask(1));
                ask(0);
                other.join().expect("no panic");
            });
            exchange([&ends[0], &ends[1]], &[1, 100_000]);
            // Further VIs share the existing path, no matter which side connects.
            for [server, client] in [[0, 1], [1, 0]] {
                let pair =
                    [end(&nics[server], Reliability::Reception), end(&nics[client], Reliability::Reception)];
                join(&pair[0], &pair[1]);
                exchange([&pair[0], &pair[1]], &[1000]);
            }
        }
        // A NIC that reconnects keeps its name, but its peer treats it as a different NIC.
        let far = open("board:far@10.1.0.2");
        for round in 0..3 {
            let near = open("board:near@10.1.0.1");
            let ends = [end(&far, Reliability::Delivery), end(&near, Reliability::Delivery)];
            join(&ends[0], &ends[1]);
            exchange([&ends[0], &ends[1]], &[round + 1]);
            drop(near);
            drop(ends);
        }
    });
}

#[test]
fn waiting_on_a_killed_board_returns_an_error() {
    let test = "waiting_on_a_killed_board_returns_an_error";
    over_two_boards(test, |board| {
        let [near, far] = ["board:near@10.1.0.1", "board:far@10.1.0.2"].map(open);
        let [server, client] = [end(&near, Reliability::Delivery), end(&far, Reliability::Delivery)];
        join(&server, &client);
        exchange([&server, &client], &[1000]);
        server.receive(1, 0, 8);
        let broken = near.counters().connections_broken;
        std::thread::scope(|threads| {
            let receives = threads.spawn(|| server.received());
            let waits = threads.spawn(|| near.connect_wait(b"late", Duration::MAX));
            let status = Command::new("kill").args(["-KILL", &board.to_string()]).status().expect("kill");
            assert!(status.success());
            let done = receives.join().expect("no panic");
            assert_eq!((done.cookie, done.status), (1, Status::FLUSHED));
            assert_eq!(waits.join().expect("no panic"), Err(Failure::Gone));
        });
        assert_eq!(near.vi(server.vi).expect("there").0, ViState::Error);
        assert_eq!(near.counters().connections_broken, broken + 1);
        let lost = near.event().expect("it is told");
        assert!(matches!(lost, Event::ConnectionLost { vi, .. } if vi == server.vi), "{lost:?}");
        // A VI whose board has exited cannot connect again.
        near.disconnect(server.vi).expect("in error");
        let again = near.connect(server.vi, b"mine", &client.address(b"port"), LONG);
        assert!(matches!(again, Err(Failure::Connect(_))), "{again:?}");
        let before = process_cpu_nanos();
        assert_eq!(far.event_wait(Duration::from_millis(300)), Err(Failure::Timeout), "the far board runs");
        let busy = Duration::from_nanos(process_cpu_nanos() - before);
        assert!(busy < Duration::from_millis(150), "a NIC without a board took {busy:?}");
        let none = Nic::open(&"board:near@10.1.0.1".parse::<Device>().expect("a device"))
            .expect_err("the process is dead");
        assert!(none.to_string().contains("no board near accepts clients"), "{none}");
    });
}

/// A `kiban vi serve` process that is killed at the end of the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(dir: &TestDir, device: &str) -> Server {
    let mut server = dir
        .command(&["vi", "serve", "--device", device])
        .stderr(Stdio::piped())
        .spawn()
        .expect("it was built");
    let mut line = String::new();
    BufReader::new(server.stderr.take().expect("piped")).read_line(&mut line).expect("it says so");
    assert!(line.starts_with("serving at board@10.9.0.2:4808"), "{line}");
    Server(server)
}

fn measures(dir: &TestDir, what: &[&str]) {
    let output = dir.kiban(&[&["vi"], what, &["--count", "200", "--quiet", "--json"]].concat());
    assert!(output.status.success(), "{what:?}: {}", text(&output));
}

/// Returns whether the NIC closes an unauthenticated connection without sending any more data.
fn is_closed(client: &mut TcpStream) -> bool {
    client.set_read_timeout(Some(LONG)).expect("a socket");
    match client.read(&mut [0; 64]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn an_unknown_client_is_disconnected_and_affects_no_other() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("vi-strangers");
    let _board = dir.up(&format!("shards = 2\n{PORT}{ATTACH}"));
    let _server = serve(&dir, "board:lab@10.9.0.2");
    let pingpong = ["pingpong", "board@10.9.0.2"];
    measures(&dir, &pingpong);
    let call = || TcpStream::connect("10.9.0.2:4808").expect("it listens");
    let hello = |version: u16, ip: [u8; 4]| {
        let mapped = std::net::Ipv4Addr::from(ip).to_ipv6_mapped().octets();
        [b"kiban-vi", &version.to_be_bytes()[..], &[0, 0], &mapped].concat()
    };
    let kernel = [10, 9, 0, 1];
    let decent = hello(1, kernel);
    for words in [
        b"GET / HTTP/1.1\r\nHost: lab\r\n\r\n".to_vec(),
        vec![0; 28],
        hello(2, kernel),
        // A hello from a host with a different address.
        hello(1, [10, 9, 0, 7]),
        // An empty packet, a packet that is too long, and a malformed packet.
        [&decent[..], &[0; 4]].concat(),
        [&decent[..], &[0xff; 4]].concat(),
        [&decent[..], &40u32.to_be_bytes(), &[7; 40]].concat(),
    ] {
        let mut client = call();
        client.write_all(&words).expect("it is taken");
        assert!(is_closed(&mut client), "{words:?}");
    }
    // Disconnect in the middle of a message.
    call().write_all(&decent[..20]).expect("it is taken");
    measures(&dir, &pingpong);
    // Open more silent connections than the limit. After they time out, new clients are accepted again.
    let clock = kiban_os::Clock::new();
    let mut silent: Vec<_> = (0..20).map(|_| call()).collect();
    assert!(silent.iter_mut().all(is_closed));
    assert!(clock.now().as_secs_f64() < 20.0, "each has some seconds");
    measures(&dir, &["stream", "board@10.9.0.2:4808", "--level", "reception", "--bytes", "100000"]);
    // Both VIs are on the same board, in one process.
    measures(&dir, &["pingpong", "--device", "board:lab@10.9.0.2:5000"]);
    let unknown = dir.kiban(&["vi", "pingpong", "board:lab"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown).contains("board:NAME@ADDRESS"), "{}", text(&unknown));
    let taken = dir.kiban(&["vi", "serve", "--device", "board@10.9.0.2"]);
    assert_eq!(taken.status.code(), Some(1), "{}", text(&taken));
    assert!(!dir.log().contains("panicked"), "{}", dir.log());
    // A board with fewer streams than a NIC requests.
    let _small = dir.up(&joined("small", 3, 4).replace("512", "31"));
    let full = dir.kiban(&["vi", "serve", "--device", "board:small@10.1.0.3"]);
    assert_eq!(full.status.code(), Some(1));
    assert!(
        text(&full).contains("too many streams: 32 requested, 31 free: raise `sessions`"),
        "{}",
        text(&full)
    );
}
