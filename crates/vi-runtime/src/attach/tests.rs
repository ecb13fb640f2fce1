//! Hosts attached to a board: well-behaved hosts, hosts that die, and hostile hosts.

use super::*;
use crate::{Device, HostAddress, Nic};
use kiban_base::Wait;
use kiban_base::{SharedBytes, SimRng};
use kiban_vi::queues::{Control, ControlError, Indication, PostError};
use kiban_vi::{AddressSegment, Completion, CompletionKind, Reliability, Status};
use kiban_vi::{DataSegment, Work};
use std::process::{Child, Command};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn board(story: &str) -> (Nic, String) {
    let name = format!("{story}-{}", std::process::id());
    let nic = Nic::open(&Device::Loopback).expect("a loopback opens");
    nic.serve(&name).expect("the name is free");
    (nic, name)
}

fn host(name: &str) -> BoardHost {
    BoardHost::attach(name, 1 << 20, Wait::Adaptive).expect("the board serves")
}

fn create(host: &mut BoardHost) -> (u32, u32) {
    let vi = Control::CreateVi {
        reliability: Reliability::Reception,
        transfer_bytes_max: 1 << 16,
        rdma_write: true,
        rdma_read: true,
    };
    let memory = Control::Register { address: 0, length: 1 << 20, rdma_write: true, rdma_read: true };
    (host.control(&vi, PATIENCE).expect("room"), host.control(&memory, PATIENCE).expect("within the arena"))
}

/// Returns the next completed descriptor and ignores other indications.
fn done(host: &mut BoardHost) -> Completion {
    loop {
        if let Indication::Done { done, .. } = host.next_indication(PATIENCE).expect("something is done") {
            return done;
        }
    }
}

/// Two attached hosts, connected through the board.
fn connected(name: &str) -> [(BoardHost, u32, u32); 2] {
    let (mut server, mut client) = (host(name), host(name));
    let (s, c) = (create(&mut server), create(&mut client));
    server.control(&Control::Listen(b"port".to_vec()), PATIENCE).expect("nobody listens there");
    let connect = Control::Connect {
        vi: c.0,
        host: HostAddress::Loopback.to_bytes(),
        discriminator: b"port".to_vec(),
        patience_ms: 10_000,
    };
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let Ok(Indication::Request { request }) = server.next_indication(PATIENCE) else {
                panic!("a request arrives")
            };
            server.control(&Control::Accept { request, vi: s.0 }, PATIENCE).expect("alike");
        });
        client.control(&connect, PATIENCE).expect("there is a listener");
    });
    [(server, s.0, s.1), (client, c.0, c.1)]
}

#[test]
fn two_hosts_communicate_through_the_board_of_a_third_process() {
    let (_board, name) = board("speak");
    let [(mut server, s_vi, s_memory), (mut client, c_vi, c_memory)] = connected(&name);
    for n in 0..1000u64 {
        let bytes = n.to_ne_bytes();
        client.arena().write(64, SharedBytes::from(&bytes[..])).expect("within");
        server.receive(s_vi, n, &[DataSegment { address: 128, handle: s_memory, length: 8 }]).expect("room");
        let from = [DataSegment { address: 64, handle: c_memory, length: 8 }];
        client.send(c_vi, &Work::send(n, &from).with_immediate(n as u32)).expect("room");
        let Ok(Indication::Done { vi, done }) = server.next_indication(PATIENCE) else {
            panic!("a message comes")
        };
        assert_eq!((vi, done.cookie, done.kind, done.status), (s_vi, n, CompletionKind::Receive, Status::OK));
        assert_eq!((done.length, done.immediate), (8, Some(n as u32)));
        assert_eq!(server.arena().read(128, 8).expect("within"), bytes);
        let Ok(Indication::Done { done, .. }) = client.next_indication(PATIENCE) else { panic!("it leaves") };
        assert_eq!((done.cookie, done.status), (n, Status::OK));
    }
    // RDMA works without calls by the server's program.
    server.arena().write(0, SharedBytes::from(&[7; 32][..])).expect("within");
    let there = AddressSegment { address: 0, handle: s_memory };
    let to = [DataSegment { address: 4096, handle: c_memory, length: 32 }];
    client.send(c_vi, &Work::read(1, &to, there)).expect("room");
    assert!(
        matches!(client.next_indication(PATIENCE), Ok(Indication::Done { done, .. }) if done.status.is_ok())
    );
    assert_eq!(client.arena().read(4096, 32).expect("within"), [7; 32]);
}

#[test]
fn a_host_cannot_use_the_objects_of_another() {
    let (board, name) = board("confined");
    let [(_server, s_vi, s_memory), (mut client, c_vi, _)] = connected(&name);
    let denied = |result| assert_eq!(result, Err(HostError::Denied(ControlError::NotYours)));
    denied(client.control(&Control::DestroyVi(s_vi), PATIENCE));
    denied(client.control(&Control::Disconnect(s_vi), PATIENCE));
    denied(client.control(&Control::Deregister(s_memory), PATIENCE));
    denied(client.control(&Control::Accept { request: 1, vi: c_vi }, PATIENCE));
    client.receive(s_vi, 5, &[]).expect("room");
    let indication = client.next_indication(PATIENCE);
    assert_eq!(indication, Ok(Indication::Reply { cookie: 5, result: Err(ControlError::NotYours) }));
    // If a descriptor on the host's own VI refers to the other host's memory, it completes with an error, and
    // no bytes are moved.
    let theirs = [DataSegment { address: 0, handle: s_memory, length: 8 }];
    client.send(c_vi, &Work::send(6, &theirs)).expect("room");
    let done = done(&mut client);
    assert_eq!((done.cookie, done.status), (6, Status::PROTECTION));
    let beyond = Control::Register { address: 1 << 20, length: 1, rdma_write: false, rdma_read: false };
    assert_eq!(client.control(&beyond, PATIENCE), Err(HostError::Denied(ControlError::OutOfRange)));
    let listen = Control::Listen(b"port".to_vec());
    assert_eq!(
        client.control(&listen, PATIENCE),
        Err(HostError::Denied(ControlError::BadState)),
        "somebody listens there"
    );
    assert_eq!(client.receive(c_vi, 1, &[DataSegment::default(); 13]), Err(PostError::TooLong));
    drop(board);
}

#[test]
fn a_full_ring_reports_it_and_recovers() {
    let (_board, name) = board("full");
    let [(mut server, s_vi, s_memory), _client] = connected(&name);
    let segment = [DataSegment { address: 0, handle: s_memory, length: 8 }];
    let mut posted = 0u64;
    // Post more entries than the ring has slots. The ring is full only until the board has taken some
    // entries.
    while posted < 3000 {
        match server.receive(s_vi, posted, &segment) {
            Ok(()) => posted += 1,
            Err(PostError::Full) => std::thread::yield_now(),
            Err(other) => panic!("{other}"),
        }
    }
    server.control(&Control::Disconnect(s_vi), PATIENCE).expect("connected");
    for n in 0..posted {
        let done = done(&mut server);
        assert_eq!((done.cookie, done.status), (n, Status::FLUSHED));
    }
}

#[test]
fn the_end_of_the_board_is_reported() {
    let (board, name) = board("end");
    let mut one = host(&name);
    create(&mut one);
    drop(board);
    assert_eq!(one.next_indication(PATIENCE), Err(HostError::Gone));
    assert!(BoardHost::attach(&name, 4096, Wait::Poll).is_err());
}

struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_killed_host_leaves_nothing_behind() {
    let story = "a_killed_host_leaves_nothing_behind";
    if let Ok(name) = std::env::var("KIBAN_TEST_ROLE") {
        let mut one = host(&name);
        let (vi, memory) = create(&mut one);
        one.control(&Control::Listen(b"dying".to_vec()), PATIENCE).expect("nobody listens there");
        (0..100).for_each(|n| {
            one.receive(vi, n, &[DataSegment { address: 0, handle: memory, length: 8 }]).expect("room");
        });
        let Ok(Indication::Request { request }) = one.next_indication(PATIENCE) else {
            panic!("a request arrives")
        };
        one.control(&Control::Accept { request, vi }, PATIENCE).expect("alike");
        // Until it is killed.
        let _ = one.next_indication(Duration::MAX);
        return;
    }
    let (board, name) = board("killed");
    // A busy machine may delay some of the reports.
    let mut shortest = Duration::MAX;
    for _ in 0..5 {
        let own = std::env::current_exe().expect("a test is a program");
        let mut child = Command::new(own);
        child.args([&format!("attach::tests::{story}"), "--exact", "--nocapture", "--test-threads=1"]);
        child.env("KIBAN_TEST_ROLE", &name).stdout(std::process::Stdio::null());
        let mut peer = Peer(child.spawn().expect("a test can be started"));
        let mut client = host(&name);
        let (vi, _) = create(&mut client);
        let connect =
            Control::Connect { vi, host: Vec::new(), discriminator: b"dying".to_vec(), patience_ms: 10_000 };
        // The child starts to listen once it is running.
        while client.control(&connect, PATIENCE) == Err(HostError::Denied(ControlError::NoMatch)) {
            std::thread::yield_now();
        }
        peer.0.kill().expect("it lives");
        // The system closes the process's files before it is gone.
        peer.0.wait().expect("it was started");
        let before = board.now();
        let indication = client.next_indication(PATIENCE);
        assert!(matches!(indication, Ok(Indication::Lost { vi: its, .. }) if its == vi), "{indication:?}");
        shortest = shortest.min(board.now().since(before));
    }
    assert!(shortest < Duration::from_secs(1), "{shortest:?}");
    // Everything that the departed hosts owned was released. Tag, VIs, memory and name are available.
    let (vis, memories, hosts) = board.in_use();
    assert!(vis <= 1 && memories <= 1 && hosts <= 1, "{vis} VIs, {memories} memories, {hosts} hosts");
}

#[test]
fn a_host_that_corrupts_its_rings_harms_only_itself() {
    let (board, name) = board("garbage");
    let [(mut server, s_vi, s_memory), (mut client, c_vi, c_memory)] = connected(&name);
    let mut rng = SimRng::from_seed(3);
    for round in 0..100u64 {
        let mut hostile = host(&name);
        if round % 3 > 0 {
            create(&mut hostile);
        }
        let memory = hostile.channel.region().clone();
        let (_, _, arena, _) = layout();
        for _ in 0..rng.below(200) {
            // Overwrite bells, ring indices, lengths, entries or numbers with random words.
            let at = memory.address() + (rng.below(arena as u64) & !3);
            let word = match rng.below(4) {
                0 => rng.draw() as u32,
                1 => u32::MAX,
                2 => rng.below(300) as u32,
                _ => s_vi,
            };
            memory.write(at, SharedBytes::from(&word.to_ne_bytes()[..])).expect("within");
        }
        // Publish a garbage entry as if it were valid.
        let noise: Vec<u8> = (0..rng.below(224)).map(|_| rng.draw() as u8).collect();
        let mut entry = noise;
        if let Some(first) = entry.first_mut() {
            *first = rng.below(26) as u8;
        }
        let (work, ..) = layout();
        let slot = memory.address() + work as u64 + 64 + (round % 4) * 256;
        memory.write(slot + 8, SharedBytes::from(&entry[..])).expect("within");
        memory.write(slot + 4, SharedBytes::from(&(entry.len() as u32).to_ne_bytes()[..])).expect("within");
        memory.write(slot, SharedBytes::from(&(round as u32 % 4 + 1).to_ne_bytes()[..])).expect("within");
        hostile.channel.ring(|| 0);
        // The other hosts are not affected.
        server
            .receive(s_vi, round, &[DataSegment { address: 128, handle: s_memory, length: 8 }])
            .expect("room");
        client
            .send(c_vi, &Work::send(round, &[DataSegment { address: 0, handle: c_memory, length: 8 }]))
            .expect("room");
        let indication = server.next_indication(PATIENCE);
        assert!(
            matches!(indication, Ok(Indication::Done { done, .. }) if done.cookie == round && done.status.is_ok()),
            "{indication:?}"
        );
        assert!(
            matches!(client.next_indication(PATIENCE), Ok(Indication::Done { done, .. }) if done.status.is_ok())
        );
    }
    drop(board);
}
