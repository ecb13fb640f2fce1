//! Hostile peers, at a port and after they have been accepted.

use super::*;
use crate::shared;
use crate::tcp::TcpLink;
use crate::verbs::ports::port_of;
use kiban_os::clock::Clock;
use kiban_rdma::iwarp::mpa::{self, Answer, Initiator};
use kiban_rdma::iwarp::stream::Chunk;
use kiban_rdma::wire::ddp::{Header, Placing, queue};
use kiban_rdma::wire::oob_setup::OobSetup;
use kiban_rdma::wire::rdmap::{AtomicRequest, Opcode};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

/// The peer's queue pair number, which the victim's program knows. It is greater than the victim's, so the
/// peer is the side that connects.
const CALLER: u32 = 0xff_fffe;

/// Returns an initiator for a connection request.
fn request(setup: OobSetup) -> Initiator {
    let config = mpa::Config { extensions: true, peer_to_peer: true, ..mpa::Config::default() };
    Initiator::new(&config, 16, 16, &setup.bytes()).expect("it fits")
}

/// Returns the setup message that a peer sends if it knows all numbers.
fn right(qpn: u32) -> OobSetup {
    OobSetup { destination: qpn, source: CALLER, expects: 11, begins: Some(22), refusal: None }
}

fn listening_address(qpn: u32) -> SocketAddr {
    SocketAddr::new(HOME, port_of(qpn))
}

/// Creates a queue pair that waits for its peer to connect.
fn victim(side: &Side) -> (u32, u32) {
    let (qp, qpn) = side.qp();
    side.engine.modify_to_rtr(qp, peer(CALLER, 22)).expect("a port").expect("it is ready");
    side.engine.modify_to_rts(qp, sending(11, 16, None)).expect("it is ready to receive");
    (qp, qpn)
}

/// Connects and sends an MPA request. Returns the connection if it was accepted. The engine's own thread
/// drives the engine.
fn come(setup: OobSetup) -> Option<TcpStream> {
    agreed(TcpStream::connect(listening_address(setup.destination)).expect("it listens"), setup)
}

/// Sends an MPA request on an existing connection. Returns the connection if it was accepted.
fn agreed(mut socket: TcpStream, setup: OobSetup) -> Option<TcpStream> {
    let mut asks = request(setup);
    socket.set_read_timeout(Some(SOON)).expect("an option");
    socket.write_all(asks.request()).expect("it listens");
    let mut byte = [0];
    loop {
        if socket.read(&mut byte).expect("in time") == 0 {
            return None;
        }
        match asks.take(&byte).expect("a reply") {
            Answer::NeedMore => {}
            Answer::Agreed(_) => return Some(socket),
            Answer::Rejected(_) => return None,
        }
    }
}

/// Returns a segment in its FPDU.
fn frame(opcode: Opcode, last: bool, placing: Placing, payload: &[u8]) -> Vec<u8> {
    let mut segment = [0; 18];
    let ulp = 0x40 | opcode as u8;
    let header = Header { last, ulp, placing }.write(&mut segment);
    let mut bytes = Vec::new();
    let start = mpa::begin(&mut bytes, header + payload.len());
    bytes.extend_from_slice(&segment[..header]);
    bytes.extend_from_slice(payload);
    mpa::end(&mut bytes, start, false);
    bytes
}

fn ready_to_receive() -> Vec<u8> {
    frame(Opcode::Write, true, Placing::Tagged { stag: 0, offset: 0 }, &[])
}

#[test]
fn a_closed_caller_is_rejected_whatever_it_sent() {
    let engine = open(true);
    let side = Side::new(&engine);
    let (qp, qpn) = victim(&side);
    // Hold the engine's lock, so that the caller closes before the engine accepts the connection.
    engine.turn.read(|_| {
        let mut socket = TcpStream::connect(listening_address(qpn)).expect("it listens");
        socket.write_all(request(right(qpn)).request()).expect("it listens");
    });
    let caller = come(right(qpn));
    assert!(caller.is_some(), "the place was not taken");
    assert_eq!(engine.state(qp), Ok(State::Rts));
}

/// The peer knows all numbers, and connects from the address that the program specified.
#[test]
fn a_caller_reset_while_waiting_is_rejected() {
    for from in [HOME, IpAddr::from([127, 0, 0, 2])] {
        let engine = open(true);
        let side = Side::new(&engine);
        // The port already listens for another queue pair before this one is ready.
        let (listens, _) = victim(&side);
        let (qp, qpn) = side.qp();
        let call = || {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
            let socket = socket.expect("file descriptors are available");
            socket.bind(&SocketAddr::new(from, 0).into()).expect("a loopback address");
            socket.connect(&listening_address(qpn).into()).expect("it listens");
            TcpStream::from(socket)
        };
        let mut caller = call();
        caller.write_all(request(right(qpn)).request()).expect("it listens");
        let end = engine.turn.now() + SOON;
        while engine.turn.read(|board| board.qps.held.is_empty()) {
            assert!(engine.turn.now() < end, "nobody waits");
        }
        let named =
            Peer { address: from, qpn: CALLER, initial_psn: 22, reads: 16, path_mtu: 1024, rnr_timer: 12 };
        engine.turn.work(|board, now| {
            // The caller resets the connection before the engine accepts it.
            rustix::net::sockopt::set_socket_linger(&caller, Some(Duration::ZERO)).expect("an option");
            drop(caller);
            board.ready_to_receive(qp, Some(named), now).expect("a port").expect("it is ready");
            board.ready_to_send(qp, sending(11, 16, None), now).expect("it is ready to receive");
        });
        let met = agreed(call(), right(qpn));
        assert!(met.is_some(), "{from}: the place was taken");
        assert_eq!([engine.state(qp), engine.state(listens)], [Ok(State::Rts); 2]);
    }
}

#[test]
fn unknown_callers_are_rejected_and_block_no_others() {
    // Both ends of every connection are file descriptors of this process.
    let was = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: was.maximum, maximum: was.maximum });
    let engine = open(true);
    let side = Side::new(&engine);
    let (_, qpn) = victim(&side);
    let silent: Vec<_> =
        (0..1500).map(|_| TcpStream::connect(listening_address(qpn)).expect("it listens")).collect();
    let wrong = [
        OobSetup { destination: qpn ^ 1, ..right(qpn) },
        OobSetup { source: CALLER - 1, ..right(qpn) },
        OobSetup { expects: 12, ..right(qpn) },
        OobSetup { begins: Some(23), ..right(qpn) },
    ];
    for number in 0..1000 {
        assert!(come(wrong[number % wrong.len()]).is_none());
        let asks = request(right(qpn));
        let half = asks.request().len() * (number % 10) / 10;
        let mut socket = TcpStream::connect(listening_address(qpn)).expect("it listens");
        socket.write_all(&asks.request()[..half]).expect("it listens");
    }
    let clock = Clock::new();
    let before = clock.now();
    let first = come(right(qpn)).expect("the good one is let in");
    let took = clock.now().since(before);
    // Behind a silent caller, it would wait for that caller's time limit.
    assert!(took < Config::default().start_timeout / 2, "{took:?}");
    // No other connection is accepted with the same message.
    for _ in 0..100 {
        assert!(come(right(qpn)).is_none());
    }
    drop((first, silent));
}

#[test]
fn a_protocol_violation_changes_nothing_and_ends_the_connection() {
    let engine = open(true);
    let side = Side::new(&engine);
    let base = side.memory.as_ptr() as u64;
    let atomic = |stag, offset| {
        let atomic = Atomic::FetchAdd { add: 1, mask: 0 };
        let request = AtomicRequest { identifier: 1, target: TaggedAddress { stag, offset }, atomic };
        let placing = Placing::Untagged { ulp: 0, queue: queue::READ_REQUEST, sequence: 1, offset: 0 };
        frame(Opcode::AtomicRequest, true, placing, &request.bytes())
    };
    let tagged = |stag, offset| Placing::Tagged { stag, offset };
    let sent = |sequence, offset| Placing::Untagged { ulp: 7, queue: queue::SEND, sequence, offset };
    let aligned = base.next_multiple_of(8) + 64;
    let attacks = [
        ("atomic, wrong key", atomic(side.key ^ 1, aligned)),
        ("atomic, not aligned", atomic(side.key, aligned + 4)),
        ("atomic, behind the end", atomic(side.key, (base + (1 << 16)).next_multiple_of(8))),
        ("atomic, at the end of all", atomic(side.key, u64::MAX - 7)),
        ("write, wrong key", frame(Opcode::Write, true, tagged(side.key ^ 0x100, base), b"bad")),
        ("write, over the end", frame(Opcode::Write, true, tagged(side.key, base + (1 << 16) - 2), b"bad")),
        ("write, around", frame(Opcode::Write, true, tagged(side.key, u64::MAX - 1), b"bad")),
        ("acknowledges nothing", frame(Opcode::Acknowledge, true, tagged(0, 1), &[])),
        ("acknowledges all", frame(Opcode::Acknowledge, true, tagged(0, u64::MAX), &[])),
        ("acknowledges with bytes", frame(Opcode::Acknowledge, true, tagged(side.key, base), b"bad")),
        ("send, out of order", frame(Opcode::SendImmediate, true, sent(2, 0), b"bad")),
        ("send, too far", frame(Opcode::SendImmediate, true, sent(1, 4000), b"bad")),
        ("send, too long", frame(Opcode::SendImmediate, true, sent(1, 0), &[0xbb; 5000])),
        ("answers nothing", frame(Opcode::ReadResponse, true, tagged(side.key, base), b"bad")),
    ];
    for (what, attack) in attacks {
        let (qp, qpn) = victim(&side);
        side.receive(qp, 9);
        let mut socket = come(right(qpn)).expect(what);
        socket.write_all(&ready_to_receive()).expect(what);
        socket.write_all(&attack).expect(what);
        let ended = side.next();
        assert!(matches!(ended.status, Status::Flushed | Status::LocalLength), "{what}: {ended:?}");
        assert_eq!(engine.state(qp), Ok(State::Error), "{what}");
        assert!(side.memory[..4096].iter().all(|byte| *byte == 0), "{what}");
        assert!(side.memory[8192..].iter().all(|byte| *byte == 0), "{what}");
        engine.destroy_qp(qp).expect("it is there");
    }
}

#[test]
fn a_peer_that_corrupts_shared_memory_ends_only_its_own_connection() {
    for round in 0..8u64 {
        let engine = open(true);
        let side = Side::new(&engine);
        let (qp, qpn) = victim(&side);
        side.receive(qp, 9);
        let mut offered = None;
        let to = listening_address(qpn);
        let link = TcpLink::connect_after(to, Some(HOME), |own| offered = shared::listen(own, to).ok());
        let (link, offered) = (link.expect("it listens"), offered.expect("the name is free"));
        let mut asks = request(right(qpn));
        while !link.is_connected().expect("it listens") {}
        let burst = asks.request().to_vec();
        assert_eq!(link.send([Chunk::Own(&burst)].into_iter()).expect("it listens"), burst.len());
        let mut half = loop {
            if let Some(half) = offered.try_accept() {
                break half;
            }
        };
        let channel = loop {
            if let Some(channel) = half.complete(1..=usize::MAX).expect("it is kiban's") {
                break channel;
            }
        };
        let mut room = [0; 512];
        loop {
            if let Some(read) = link.receive(&[], &mut room).expect("it is let in") {
                match asks.take(&room[..read]).expect("a reply") {
                    Answer::NeedMore => {}
                    Answer::Agreed(_) => break,
                    Answer::Rejected(_) => panic!("it knows everything"),
                }
            }
        }
        // The peer first writes random bytes that may look like frames, and then counters that are
        // impossible or change while they are read.
        let memory = channel.region().clone();
        let start = memory.address();
        let mut state = 0x9e37_79b9_7f4a_7c15u64 ^ round;
        // The victim reads from the second pipe.
        let its = kiban_base::pipe::bytes(1 << 20);
        let mut scribbled = vec![0u8; memory.len() - 128];
        let clock = Clock::new();
        let (began, mut ended) = (clock.now(), None);
        while engine.state(qp) == Ok(State::Rts) {
            assert!(clock.now().since(began) < SOON, "it notices");
            for byte in &mut scribbled[its..its + 4096] {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *byte = (state >> 56) as u8;
            }
            // Write a count that is sometimes plausible, but never the end mark, which would be an orderly
            // close.
            let count = ((state >> 40) as u32 & 0xffff).to_ne_bytes();
            scribbled[its..its + 4].copy_from_slice(&count);
            scribbled[its + 4..its + 8].fill(0);
            memory.write(start + 128, scribbled[..].into()).expect("it is there");
            channel.ring(|| u64::MAX);
            if ended.is_none() {
                engine
                    .poll_cq(side.cq, 1, false, |completion| ended = Some(completion))
                    .expect("it is there");
            }
        }
        let ended = ended.unwrap_or_else(|| side.next());
        assert!(ended.status != Status::Success, "{ended:?}");
        assert!(side.memory[..4096].iter().chain(&side.memory[8192..]).all(|byte| *byte == 0));
    }
}

#[test]
fn forged_datagrams_are_not_delivered() {
    use kiban_rdma::wire::datagram;
    let engine = open(true);
    let side = Side::new(&engine);
    let (qp, qpn) = side.qp_for(Service::Datagrams);
    let connected = victim(&side);
    side.receive(qp, 100);
    side.receive(connected.0, 101);
    engine.modify_to_rtr(qp, None).expect("a port").expect("it is ready");
    let socket = std::net::UdpSocket::bind(SocketAddr::new(HOME, 0)).expect("a port");
    let source = u32::from(socket.local_addr().expect("it is bound").port()) << 8;
    let good = datagram::Header { destination: qpn, source, qkey: QKEY, solicited: false, immediate: None };
    let forged = |header: datagram::Header, bytes: usize| {
        let mut packet = vec![0xbb; datagram::HEADER_BYTES + bytes];
        header.write(&mut packet);
        packet
    };
    let mut packets = vec![
        forged(datagram::Header { qkey: QKEY + 1, ..good }, 4),
        forged(datagram::Header { source: source ^ 0x100, ..good }, 4),
        forged(datagram::Header { destination: qpn ^ 1 << 7, ..good }, 4),
        forged(datagram::Header { destination: connected.1, ..good }, 4),
        forged(good, 4096 - 39),
        forged(good, 4097),
        forged(good, 8172),
        forged(good, 60_000),
    ];
    packets.extend((0..datagram::HEADER_BYTES).map(|cut| forged(good, 0)[..cut].to_vec()));
    packets.push(forged(good, 4096 - 40));
    for packet in &packets {
        socket.send_to(packet, listening_address(qpn)).expect("the loopback takes it");
    }
    let got = side.next();
    assert_eq!((got.status, got.id, got.bytes), (Status::Success, 100, 4096), "the last alone is good");
    assert!(side.memory[..4096].iter().chain(&side.memory[8192..]).all(|byte| *byte == 0));
}

/// RFC 5040 §4.8: the Terminate is the last message of a stream.
#[test]
fn a_terminate_names_the_error_although_more_segments_follow_it() {
    let engine = open(true);
    let side = Side::new(&engine);
    let base = side.memory.as_ptr() as u64;
    let wrong = Placing::Tagged { stag: side.key ^ 0x100, offset: base };
    for following in [0, 1, 5, 200] {
        let (qp, qpn) = victim(&side);
        side.receive(qp, 9);
        let mut socket = come(right(qpn)).expect("the place is free");
        let mut bytes = ready_to_receive();
        for _ in 0..=following {
            bytes.extend(frame(Opcode::Write, true, wrong, &[0xbb; 1000]));
        }
        socket.write_all(&bytes).expect("it reads everything");
        let ended = side.next();
        assert_eq!(ended.status, Status::Flushed);
        engine.destroy_qp(qp).expect("it is there");
        let mut heard = Vec::new();
        socket.read_to_end(&mut heard).expect("an orderly end");
        assert_eq!(last_opcode(&heard), Some(Opcode::Terminate as u8), "{following} segments follow");
    }
}

/// Returns the opcode of the last FPDU.
fn last_opcode(mut stream: &[u8]) -> Option<u8> {
    let mut opcode = None;
    while let Some((length, rest)) = stream.split_first_chunk::<2>() {
        let segment_bytes = usize::from(u16::from_be_bytes(*length));
        let (header, _) = Header::read(rest.get(..segment_bytes)?).ok()?;
        opcode = Some(header.ulp & 0xf);
        stream = stream.get(mpa::fpdu_bytes(segment_bytes)..)?;
    }
    opcode
}
