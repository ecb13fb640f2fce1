//! Tests of NICs in real time, in one process and in two.

use super::*;
use kiban_base::SharedBytes;
use kiban_vi::wire::fault;
use kiban_vi::{AddressSegment, Reliability, Status};
use std::process::{Child, Command};

const PATIENCE: Duration = Duration::from_secs(60);
const BASE: u64 = 0x1000;
const MEMORY_BYTES: usize = 1 << 20;

/// A NIC with memory and a VI.
struct End {
    nic: Nic,
    memory: Region,
    handle: u32,
    vi: u32,
}

fn open(device: &str) -> Nic {
    Nic::open(&device.parse().expect("a device")).expect("the device opens")
}

fn end(nic: &Nic, reliability: Reliability) -> End {
    let tag = nic.create_tag().expect("room");
    let memory = Region::new(BASE, MEMORY_BYTES);
    let all = MemoryAttributes { tag, rdma_write: true, rdma_read: true };
    let handle = nic.register(memory.clone(), all).expect("room");
    let rdma_read = reliability != Reliability::Unreliable;
    let attributes =
        ViAttributes { reliability, transfer_bytes_max: 1 << 20, qos: 0, tag, rdma_write: true, rdma_read };
    let vi = nic.create_vi(attributes, None, None).expect("room");
    End { nic: nic.clone(), memory, handle, vi }
}

impl End {
    fn at(&self, offset: u64, length: u32) -> DataSegment {
        DataSegment { address: BASE + offset, handle: self.handle, length }
    }

    fn receive(&self, cookie: u64, offset: u64, length: u32) {
        self.nic.post_receive(self.vi, cookie, &[self.at(offset, length)]).expect("room");
    }

    fn send(&self, cookie: u64, offset: u64, length: u32) {
        self.nic.post_send(self.vi, Work::send(cookie, &[self.at(offset, length)])).expect("connected");
    }

    fn fill(&self, offset: u64, bytes: &[u8]) {
        self.memory.write(BASE + offset, SharedBytes::from(bytes)).expect("within");
    }

    fn received(&self) -> Completion {
        self.nic.receive_wait(self.vi, PATIENCE).expect("something arrives")
    }

    fn sent(&self) -> Completion {
        self.nic.send_wait(self.vi, PATIENCE).expect("it leaves")
    }

    /// Waits for a request and accepts it.
    fn serve(&self) -> Request {
        let request = self.nic.connect_wait(b"port", PATIENCE).expect("somebody asks");
        self.nic.accept(&request, self.vi).expect("the ends are alike");
        request
    }

    fn connect(&self, host: HostAddress) -> Result<PeerAttributes, Failure> {
        self.nic.connect(self.vi, b"mine", &Address { host, discriminator: b"port".to_vec() }, PATIENCE)
    }
}

/// Both ends of a connection over one kind of device, in one process.
fn pair(devices: [&str; 2], reliability: Reliability) -> [End; 2] {
    let server = open(devices[0]);
    let client = if devices[0] == "loopback" { server.clone() } else { open(devices[1]) };
    let (server, client) = (end(&server, reliability), end(&client, reliability));
    server.nic.listen(b"port").expect("room");
    std::thread::scope(|threads| {
        threads.spawn(|| server.serve());
        client.connect(server.nic.address()).expect("there is a listener");
    });
    [server, client]
}

/// Returns pairs of devices of each kind, for a test.
fn kinds(story: &str) -> [[String; 2]; 3] {
    let name = format!("shm:{story}-{}", std::process::id());
    [
        ["loopback".into(), "loopback".into()],
        [name, "shm".into()],
        ["udp:127.0.0.1:0".into(), "udp:127.0.0.1:0".into()],
    ]
}

fn each_kind(story: &str, mut tell: impl FnMut([End; 2], Reliability)) {
    for [server, client] in kinds(story) {
        for reliability in [Reliability::Unreliable, Reliability::Delivery, Reliability::Reception] {
            tell(pair([&server, &client], reliability), reliability);
        }
    }
}

#[test]
fn messages_cross_every_kind_of_device_under_every_policy() {
    each_kind("cross", |[server, client], reliability| {
        let waits =
            [Wait::Poll, Wait::Interrupt, Wait::Hybrid { spin: Duration::from_micros(50) }, Wait::Adaptive];
        for (n, wait) in waits.into_iter().enumerate() {
            for end in [&server, &client] {
                end.nic.set_wait(wait);
            }
            let bytes: Vec<u8> = (0..50_000u32).map(|i| (i * 7 + n as u32) as u8).collect();
            client.fill(0, &bytes);
            server.receive(1, 100_000, 50_000);
            client.send(2, 0, 50_000);
            let done = server.received();
            assert_eq!(
                (done.cookie, done.status, done.length),
                (1, Status::OK, 50_000),
                "{reliability:?} {wait}"
            );
            assert!(server.memory.read(BASE + 100_000, 50_000).expect("within") == bytes);
            assert_eq!(client.sent().status, Status::OK);
        }
    });
}

#[test]
fn rdma_moves_memory_while_the_target_does_something_else() {
    each_kind("rdma", |[server, client], reliability| {
        if reliability == Reliability::Unreliable {
            return;
        }
        server.fill(0, &[7; 9000]);
        let there = AddressSegment { address: BASE, handle: server.handle };
        // The server side makes no calls: its helper thread answers.
        client.nic.post_send(client.vi, Work::read(1, &[client.at(0, 9000)], there)).expect("connected");
        assert_eq!(client.sent().status, Status::OK);
        assert!(client.memory.read(BASE, 9000).expect("within") == [7; 9000]);
        let there = AddressSegment { address: BASE + 20_000, ..there };
        client.nic.post_send(client.vi, Work::write(2, &[client.at(0, 9000)], there)).expect("connected");
        client.nic.post_send(client.vi, Work::read(3, &[client.at(0, 1)], there)).expect("connected");
        assert_eq!([client.sent().status, client.sent().status], [Status::OK; 2]);
        assert!(server.memory.read(BASE + 20_000, 9000).expect("within") == [7; 9000]);
    });
}

#[test]
fn threads_waiting_for_different_queues_of_one_nic_all_make_progress() {
    const MESSAGES: u64 = 300;
    let nic = open("loopback");
    let ends: Vec<[End; 2]> = (0..4)
        .map(|_| {
            let pair = [end(&nic, Reliability::Reception), end(&nic, Reliability::Reception)];
            std::thread::scope(|threads| {
                threads.spawn(|| pair[0].serve());
                nic.listen(b"port").expect("room");
                pair[1].connect(HostAddress::Loopback).expect("there is a listener");
            });
            pair
        })
        .collect();
    std::thread::scope(|threads| {
        for [server, client] in &ends {
            threads.spawn(|| {
                for n in 0..MESSAGES {
                    client.receive(n, 0, 8);
                    client.send(n, 8, 8);
                    assert_eq!((client.sent().status, client.received().cookie), (Status::OK, n));
                }
            });
            threads.spawn(|| {
                server.receive(0, 0, 8);
                for n in 0..MESSAGES {
                    assert_eq!(server.received().cookie, n);
                    server.receive(n + 1, 0, 8);
                    server.send(n, 8, 8);
                    assert_eq!(server.sent().status, Status::OK);
                }
            });
        }
    });
}

#[test]
fn a_connect_without_a_listener_fails_in_time() {
    let name = format!("shm:nobody-{}", std::process::id());
    for [device, host] in [["loopback", "loopback"], ["shm", &name], ["udp:127.0.0.1:0", "udp:127.0.0.1:9"]] {
        let one = end(&open(device), Reliability::Delivery);
        let host: HostAddress = host.parse().expect("an address");
        let to = Address { host, discriminator: b"port".to_vec() };
        let failure =
            one.nic.connect(one.vi, b"mine", &to, Duration::from_millis(50)).expect_err("nobody is there");
        let expected = if device.starts_with("udp") {
            Failure::Timeout
        } else {
            Failure::Connect(ConnectError::NoMatch)
        };
        assert_eq!(failure, expected, "{device}");
        assert_eq!(one.nic.vi(one.vi).expect("there").0, ViState::Idle);
        assert_eq!(one.nic.connect_wait(b"port", Duration::from_millis(5)), Err(Failure::Timeout));
        assert_eq!(one.nic.receive_wait(one.vi, Duration::from_millis(5)), Err(Failure::Timeout));
        let other = HostAddress::Udp(([192, 0, 2, 1], 1).into());
        if device != "udp:127.0.0.1:0" {
            assert_eq!(one.connect(other), Err(Failure::Refused(RequestError::BadAddress)));
        }
    }
}

#[test]
fn a_queue_with_a_completion_queue_is_waited_on_there() {
    let nic = open("loopback");
    let [server, client] = [end(&nic, Reliability::Delivery), end(&nic, Reliability::Delivery)];
    let queue = nic.create_queue(8).expect("room");
    let attributes = nic.vi(server.vi).expect("there").1;
    let vi = nic.create_vi(attributes, Some(queue), Some(queue)).expect("room");
    let server = End { vi, ..server };
    assert_eq!(nic.receive_wait(vi, PATIENCE), Err(Failure::OnCompletionQueue));
    assert_eq!(nic.send_wait(vi, PATIENCE), Err(Failure::OnCompletionQueue));
    nic.listen(b"port").expect("room");
    std::thread::scope(|threads| {
        threads.spawn(|| server.serve());
        client.connect(HostAddress::Loopback).expect("there is a listener");
    });
    server.receive(9, 0, 8);
    std::thread::scope(|threads| {
        let waiter = threads.spawn(|| nic.queue_wait(queue, PATIENCE));
        client.send(1, 0, 8);
        assert_eq!(waiter.join().expect("no panic"), Ok((vi, true)));
    });
    assert_eq!(nic.receive_done(vi).expect("there").map(|done| done.cookie), Some(9));
    assert_eq!(nic.queue_wait(queue, Duration::from_millis(1)), Err(Failure::Timeout));
}

/// A child process that is killed when the test ends.
struct Peer(Child);

impl Peer {
    /// Kills the process, and waits until the system has closed its files.
    fn kill(&mut self) {
        self.0.kill().expect("it lives");
        self.0.wait().expect("it was started");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs this test again in a process of its own, which plays the given role.
fn spawn(story: &str, role: &str) -> Peer {
    let own = std::env::current_exe().expect("a test is a program");
    let mut child = Command::new(own);
    child.args([&format!("tests::{story}"), "--exact", "--nocapture", "--test-threads=1"]);
    child.env("KIBAN_TEST_ROLE", role).stdout(std::process::Stdio::null());
    Peer(child.spawn().expect("a test can be started"))
}

/// Kills a peer; returns the time until the survivor got an error.
fn time_until_a_killed_peer_is_reported(story: &str, busy: bool, round: usize) -> Duration {
    let name = format!("shm:killed-{busy}-{round}-{}", std::process::id());
    let server = end(&open(&name), Reliability::Delivery);
    server.nic.listen(b"port").expect("room");
    (0..1000).for_each(|n| server.receive(n, 0, 64));
    let before = server.nic.counters().connections_broken;
    let mut peer = spawn(story, &name);
    server.serve();
    server.received();
    peer.kill();
    let (clock, killed_at) = (server.nic.clone(), server.nic.now());
    // Messages sent before the kill are still received. Then all remaining descriptors are flushed, and
    // the connection is lost.
    let mut done = server.received();
    while done.status.is_ok() {
        done = if busy {
            std::iter::from_fn(|| Some(server.nic.receive_done(server.vi).expect("there"))).flatten().next()
        } else {
            Some(server.received())
        }
        .expect("something arrives");
    }
    let survived = clock.now().since(killed_at);
    assert_eq!(done.status, Status::FLUSHED);
    assert_eq!(server.nic.vi(server.vi).expect("there").0, ViState::Error);
    assert_eq!(server.nic.counters().connections_broken, before + 1);
    let lost = std::iter::from_fn(|| server.nic.event()).last();
    let vi = server.vi;
    assert!(
        matches!(lost, Some(Event::ConnectionLost { vi: its, fault: fault::TRANSPORT | fault::NO_RECEIVE_DESCRIPTOR }) if its == vi)
    );
    // The VI can be used again.
    server.nic.disconnect(vi).expect("in error");
    while server.nic.receive_done(vi).expect("there").is_some() {}
    let next = end(&open("shm"), Reliability::Delivery);
    server.receive(7, 0, 64);
    std::thread::scope(|threads| {
        threads.spawn(|| server.serve());
        next.connect(server.nic.address()).expect("there is a listener");
    });
    next.send(1, 0, 64);
    assert_eq!(server.received().cookie, 7);
    survived
}

#[test]
fn a_killed_peer_is_reported_within_a_second_whatever_the_survivor_does() {
    let story = "a_killed_peer_is_reported_within_a_second_whatever_the_survivor_does";
    if let Ok(name) = std::env::var("KIBAN_TEST_ROLE") {
        // The peer's role: connects, sends one message, and then keeps sending until it is killed.
        let one = end(&open("shm"), Reliability::Delivery);
        one.connect(name.parse().expect("an address")).expect("there is a listener");
        loop {
            one.send(1, 0, 64);
            one.sent();
        }
    }
    for busy in [false, true] {
        // A busy machine may delay a report, so one of several must be in time.
        let mut times = (0..5).map(|round| time_until_a_killed_peer_is_reported(story, busy, round));
        assert!(times.any(|time| time < Duration::from_secs(1)), "busy: {busy}");
    }
}

#[test]
fn two_processes_communicate_through_shared_memory() {
    let story = "two_processes_communicate_through_shared_memory";
    if let Ok(name) = std::env::var("KIBAN_TEST_ROLE") {
        let one = end(&open("shm"), Reliability::Reception);
        one.receive(0, 0, 100_000);
        one.connect(name.parse().expect("an address")).expect("there is a listener");
        // Everything is echoed.
        loop {
            let done = one.received();
            if !done.status.is_ok() {
                return;
            }
            one.send(1, 0, done.length);
            one.sent();
            one.receive(0, 0, 100_000);
        }
    }
    let name = format!("shm:two-{}", std::process::id());
    let server = end(&open(&name), Reliability::Reception);
    server.nic.listen(b"port").expect("room");
    let mut peer = spawn(story, &name);
    server.serve();
    for length in [1u32, 64, 8216, 8217, 100_000] {
        let bytes: Vec<u8> = (0..length).map(|i| (i * 13 + length) as u8).collect();
        server.fill(0, &bytes);
        server.receive(1, 200_000, length);
        server.send(2, 0, length);
        assert_eq!((server.received().length, server.sent().status), (length, Status::OK));
        assert!(server.memory.read(BASE + 200_000, length as usize).expect("within") == bytes);
    }
    server.nic.disconnect(server.vi).expect("connected");
    assert!(peer.0.wait().expect("it ran").success());
}

#[test]
fn closing_a_nic_ends_all_waits() {
    each_kind("closing", |[server, client], _| {
        std::thread::scope(|scope| {
            let nic = &server.nic;
            let vi = server.vi;
            let threads = [
                scope.spawn(move || nic.receive_wait(vi, Duration::MAX).expect_err("nothing comes")),
                scope.spawn(move || nic.event_wait(Duration::MAX).expect_err("nothing happens")),
                scope.spawn(move || nic.connect_wait(b"late", Duration::MAX).expect_err("nobody asks")),
            ];
            nic.close();
            for thread in threads {
                assert_eq!(thread.join().expect("no panic"), Failure::Closed);
            }
        });
        assert_eq!(server.nic.receive_wait(server.vi, Duration::MAX), Err(Failure::Closed));
        match client.nic.event_wait(PATIENCE) {
            Ok(Event::ConnectionLost { .. }) => {}
            // On a loopback device, both ends use the same NIC.
            Err(Failure::Closed) if client.nic.address() == HostAddress::Loopback => {}
            other => panic!("{other:?}: the connection has ended"),
        }
    });
}

#[test]
fn a_call_can_use_its_own_wait_policy() {
    each_kind("by", |[server, client], _| {
        for (round, wait) in [Wait::Poll, Wait::Hybrid { spin: Duration::from_micros(50) }, Wait::Adaptive]
            .into_iter()
            .enumerate()
        {
            let timeout = Duration::from_millis(1);
            assert_eq!(server.nic.receive_wait_by(server.vi, wait, timeout), Err(Failure::Timeout));
            server.receive(round as u64, 0, 100);
            client.send(round as u64, 0, 100);
            let done = server.nic.receive_wait_by(server.vi, wait, PATIENCE).expect("a message");
            assert_eq!(done.cookie, round as u64);
            client.sent();
        }
        assert_eq!(server.nic.wait_policy(Queue::Receive(server.vi)), Wait::Adaptive);
        assert_eq!(
            server.nic.wait_report(Queue::Receive(server.vi)),
            None,
            "the queue itself was never waited for"
        );
    });
}

#[test]
fn waiting_without_a_pending_request_is_an_error() {
    each_kind("nothing", |[server, client], _| {
        let refused = |state| Err(Failure::Refused(RequestError::BadState(state)));
        // The result of the set-up request has been fetched. The server never made a request.
        assert_eq!(client.nic.peer_wait(client.vi, Duration::MAX), refused(ViState::Connected));
        server.nic.disconnect(server.vi).expect("there");
        assert_eq!(server.nic.peer_wait(server.vi, Duration::MAX), refused(ViState::Idle));
        let nowhere = Address { host: server.nic.address(), discriminator: b"nobody".to_vec() };
        server.nic.connect_peer(server.vi, b"somebody", &nowhere, Duration::MAX).expect("idle");
        std::thread::scope(|scope| {
            let (nic, vi) = (&server.nic, server.vi);
            let waits = scope.spawn(move || nic.peer_wait(vi, Duration::MAX));
            nic.disconnect(vi).expect("there");
            assert_eq!(waits.join().expect("no panic"), refused(ViState::Idle));
        });
    });
}

#[test]
fn peers_that_call_each_other_at_once_are_connected_once() {
    for [one, two] in kinds("peers") {
        for round in 0..20 {
            // With shared memory, each side calls the other by name, so both sides have names. Each round
            // uses new names, because a process that another test is starting may briefly hold a copy of a
            // closed listener.
            let is_named = one.starts_with("shm:");
            let one = if is_named { format!("{one}-{round}") } else { one.clone() };
            let two = if is_named { format!("{one}-too") } else { two.clone() };
            let first = open(&one);
            let second = if one == "loopback" { first.clone() } else { open(&two) };
            let ends = [end(&first, Reliability::Delivery), end(&second, Reliability::Delivery)];
            let ask = |own: usize| {
                let host = ends[1 - own].nic.address();
                let (local, remote) = if own == 0 { (b"one", b"two") } else { (b"two", b"one") };
                let remote = Address { host, discriminator: remote.to_vec() };
                ends[own].nic.connect_peer(ends[own].vi, local, &remote, PATIENCE).expect("idle");
                ends[own].nic.peer_wait(ends[own].vi, PATIENCE).expect("the other side requests as well");
            };
            std::thread::scope(|scope| {
                let other = scope.spawn(|| ask(1));
                ask(0);
                other.join().expect("no panic");
            });
            for (from, to) in [(0, 1), (1, 0)] {
                ends[to].receive(round, 0, 100);
                ends[from].send(round, 0, 100);
                assert_eq!(ends[from].sent().status, Status::OK);
                assert_eq!(ends[to].received().length, 100, "{one} {round}");
            }
        }
    }
}
