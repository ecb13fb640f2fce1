//! Scenarios in real time: every operation in both directions over sockets, all kinds of closes, and peers
//! that vanish or never send anything.

use super::*;
use kiban_base::{Region, SharedBytes};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};

const LONG: Duration = Duration::from_secs(60);

/// Returns a loopback address that no other test of this process uses.
fn own_address() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(2);
    Ipv4Addr::new(127, 77, (std::process::id() % 250) as u8, NEXT.fetch_add(1, Ordering::Relaxed))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Over {
    Tcp,
    TcpCrc,
    Efe,
}

const ALL: [Over; 3] = [Over::Tcp, Over::TcpCrc, Over::Efe];

/// One side of a connected pair.
struct Side {
    context: Context,
    pd: Pd,
    cq: Cq,
    qp: Qp,
}

impl Side {
    fn new(context: Context) -> Side {
        let pd = context.alloc_pd().expect("room");
        let cq = context.create_cq(512).expect("room");
        let qp = pd.create_qp(&cq, &cq, QpOptions::default()).expect("room");
        Side { context, pd, cq, qp }
    }

    /// Returns the next completion, which must be a success.
    fn done(&self) -> Completion {
        let done = self.cq.wait(LONG).expect("a completion");
        assert_eq!(done.status, Status::Success, "{done:?}");
        done
    }

    fn pattern(&self, bytes: usize, access: Access) -> Mr {
        let mr = self.pd.reg_mr(bytes, access).expect("room");
        mr.write(0, &(0..bytes).map(|at| (at * 13 + at / 255) as u8).collect::<Vec<u8>>());
        mr
    }
}

fn contexts(over: Over) -> (Context, Context, Address) {
    match over {
        Over::Tcp | Over::TcpCrc => {
            let open = || Context::open(&Lower::Tcp { from: None }).expect("sockets");
            (open(), open(), Address::Ip(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)))
        }
        Over::Efe => {
            let (one, two) = (own_address(), own_address());
            let open = |at: Ipv4Addr| {
                Context::open(&Lower::EfeUdp { at: SocketAddr::new(at.into(), 0) }).expect("a socket")
            };
            (open(one), open(two), Address::Ip(SocketAddr::new(two.into(), 0)))
        }
    }
}

fn options(over: Over) -> Connect {
    let crc = if over == Over::TcpCrc { CrcUse::Wanted } else { CrcUse::Off };
    Connect { crc, extensions: true, private_data: b"greetings".to_vec(), ..Connect::default() }
}

/// Returns two connected sides.
fn pair(over: Over) -> (Side, Side, Connection, Connection) {
    let (one, two, at) = contexts(over);
    let (one, two) = (Side::new(one), Side::new(two));
    let options = options(over);
    let listener = two.context.listen(at, &options).expect("an address");
    let (connected, accepted) = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let request = listener.request(LONG).expect("a request");
            assert_eq!(request.private_data(), b"greetings");
            request.accept(&two.qp, &options).expect("it waits")
        });
        let connected = one.qp.connect(listener.address(), &options, LONG).expect("connected");
        assert_eq!(connected.private_data(), b"greetings");
        (connected, accepting.join().expect("accepted"))
    });
    (one, two, connected, accepted)
}

#[test]
fn every_operation_goes_both_ways_over_every_lower_layer() {
    for over in ALL {
        let (one, two, _connected, _accepted) = pair(over);
        for (from, to) in [(&one, &two), (&two, &one)] {
            for length in [1usize, 100, 5_000, 70_000, 1_000_000] {
                let source = from.pattern(length, Access::ALL);
                let target = to.pd.reg_mr(length, Access::ALL).expect("room");
                to.qp.post_recv(7, &[]).expect("room");
                from.qp
                    .post_send(Wr::write_with_immediate(1, source.all(), target.remote(), 42))
                    .expect("room");
                assert_eq!(to.done().immediate, Some(42), "{over:?}");
                assert!(
                    target.to_vec(0, length) == source.to_vec(0, length),
                    "{over:?}: a write of {length}"
                );
                assert_eq!(from.done().id, 1);
                let back = from.pd.reg_mr(length, Access::LOCAL).expect("room");
                from.qp.post_send(Wr::read(2, back.all(), target.remote())).expect("room");
                assert_eq!(
                    (from.done().bytes as usize, back.to_vec(0, length)),
                    (length, source.to_vec(0, length))
                );
                let landing = to.pd.reg_mr(length, Access::LOCAL).expect("room");
                to.qp.post_recv(8, &[landing.all()]).expect("room");
                from.qp.post_send(Wr::send(3, source.all()).solicited()).expect("room");
                let received = to.done();
                assert_eq!((received.id, received.bytes as usize), (8, length));
                assert!(
                    landing.to_vec(0, length) == source.to_vec(0, length),
                    "{over:?}: a send of {length}"
                );
                assert_eq!(from.done().id, 3);
            }
            let word = to.pd.reg_mr(8, Access::ALL).expect("room");
            let was = from.pd.reg_mr(16, Access::LOCAL).expect("room");
            from.qp.post_send(Wr::fetch_add(1, was.slice(0, 8), word.remote(), 5)).expect("room");
            from.qp.post_send(Wr::compare_swap(2, was.slice(8, 8), word.remote(), 5, 9)).expect("room");
            from.done();
            from.done();
            assert_eq!(was.to_vec(0, 16), [0u64.to_ne_bytes(), 5u64.to_ne_bytes()].concat());
            assert_eq!(word.to_vec(0, 8), 9u64.to_ne_bytes());
            // Invalidated memory must no longer be written to.
            to.qp.post_recv(9, &[]).expect("room");
            from.qp.post_send(Wr::send_with_invalidate(4, was.slice(0, 0), word.rkey())).expect("room");
            assert_eq!(to.done().invalidated, Some(word.rkey()));
            from.done();
        }
    }
}

#[test]
fn long_payloads_are_read_directly_into_memory_unless_a_crc_must_be_checked() {
    for over in ALL {
        let (one, two, _connected, _accepted) = pair(over);
        let source = one.pattern(8 << 20, Access::NONE);
        let target = two.pd.reg_mr(8 << 20, Access::ALL).expect("room");
        for round in 0..4 {
            one.qp.post_send(Wr::write(round, source.all(), target.remote())).expect("room");
            one.done();
        }
        let probe = one.pd.reg_mr(1, Access::LOCAL).expect("room");
        one.qp.post_send(Wr::read(9, probe.all(), target.remote())).expect("room");
        one.done();
        let counters = two.context.counters();
        let (landed, placed) = (counters.direct_bytes, counters.placed_bytes);
        assert_eq!(landed + placed, 4 * (8 << 20), "{over:?}");
        match over {
            Over::Tcp => assert!(landed > 8 * placed, "{landed} landed, {placed} were copied"),
            Over::TcpCrc | Over::Efe => assert_eq!(landed, 0, "{over:?}"),
        }
    }
}

#[test]
fn a_busy_program_still_serves_its_peer() {
    for over in ALL {
        let (one, two, _connected, _accepted) = pair(over);
        // No thread calls into the second context any more, so its helper thread responds.
        let target = two.pattern(100_000, Access::ALL);
        let back = one.pd.reg_mr(100_000, Access::LOCAL).expect("room");
        for _ in 0..3 {
            one.qp.post_send(Wr::read(1, back.all(), target.remote())).expect("room");
            one.done();
        }
        assert_eq!(back.to_vec(0, 100_000), target.to_vec(0, 100_000));
    }
}

#[test]
fn denied_access_changes_nothing_and_fails_at_both_ends() {
    for over in ALL {
        let (one, two, connection, _accepted) = pair(over);
        let target = two.pd.reg_mr(100, Access::LOCAL).expect("room");
        let source = one.pattern(100, Access::NONE);
        two.qp.post_recv(5, &[]).expect("room");
        one.qp.post_send(Wr::write(1, source.all(), target.remote()).unsignalled()).expect("room");
        let flushed = two.cq.wait(LONG).expect("flushed");
        assert_eq!((flushed.id, flushed.status), (5, Status::Flushed), "{over:?}");
        assert_eq!(target.to_vec(0, 100), [0; 100]);
        connection.wait_disconnected(LONG).expect("over");
        assert_eq!(two.context.counters().bad_access, 1);
        assert_eq!(one.context.counters().terminates_in, 1, "{over:?}");
        one.qp.post_send(Wr::write(2, source.all(), target.remote())).expect("it ends as flushed");
        assert_eq!(one.cq.wait(LONG).expect("told").status, Status::Flushed);
    }
}

#[test]
fn posted_work_completes_before_an_orderly_close() {
    for over in ALL {
        let (one, two, connected, accepted) = pair(over);
        let source = one.pattern(300_000, Access::NONE);
        let target = two.pd.reg_mr(300_000, Access::ALL).expect("room");
        one.qp.post_send(Wr::write(1, source.all(), target.remote())).expect("room");
        connected.disconnect();
        assert_eq!(one.done().id, 1);
        accepted.wait_disconnected(LONG).expect("over");
        connected.wait_disconnected(LONG).expect("over");
        assert!(target.to_vec(0, 300_000) == source.to_vec(0, 300_000), "{over:?}");
        for side in [&one, &two] {
            assert_eq!(side.qp.state(), QpState::Error);
            side.qp.reset().expect("over");
        }
        // The same queue pairs can connect again.
        drop((connected, accepted));
        assert_eq!(one.qp.state(), QpState::Idle);
    }
}

#[test]
fn posted_work_is_sent_after_disconnecting_and_dropping_the_connection() {
    for over in ALL {
        let (one, two, connected, accepted) = pair(over);
        let source = one.pattern(3_000_000, Access::NONE);
        let target = two.pd.reg_mr(3_000_000, Access::ALL).expect("room");
        one.qp.post_send(Wr::write(1, source.all(), target.remote())).expect("room");
        connected.disconnect();
        drop(connected);
        assert_eq!(one.done().id, 1);
        accepted.wait_disconnected(LONG).expect("over");
        assert!(target.to_vec(0, 3_000_000) == source.to_vec(0, 3_000_000), "{over:?}");
    }
}

#[test]
fn rejected_and_unreachable_are_distinguished() {
    for over in ALL {
        let (one, two, at) = contexts(over);
        let side = Side::new(one);
        let options = options(over);
        let listener = two.listen(at, &options).expect("an address");
        let refused = std::thread::scope(|scope| {
            scope.spawn(|| listener.request(LONG).expect("a request").reject(b"no").expect("it waits"));
            side.qp.connect(listener.address(), &options, LONG)
        });
        assert!(
            matches!(&refused, Err(Error::Connect(ConnectError::Rejected(private_data))) if private_data == b"no"),
            "{over:?}: {refused:?}"
        );
        let nobody = listener.address();
        drop(listener);
        let error = side.qp.connect(nobody, &options, LONG).expect_err("there is no listener");
        assert!(
            matches!(error, Error::Connect(ConnectError::Unreachable | ConnectError::Lost)),
            "{over:?}: {error:?}"
        );
        assert_eq!(side.qp.state(), QpState::Idle);
    }
}

#[test]
fn silent_and_invalid_callers_leave_nothing_behind() {
    let context = Context::open(&Lower::Tcp { from: None }).expect("sockets");
    let options = Connect::default();
    let at = Address::Ip(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0));
    let listener = context.listen(at, &options).expect("an address");
    let Address::Ip(address) = listener.address() else { panic!("an IP address") };
    let mut silent: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(address).expect("taken")).collect();
    for (at, stream) in silent.iter_mut().enumerate().take(100) {
        use std::io::Write;
        // These peers send an incomplete request, speak another protocol, or use the wrong key.
        let private_data: &[u8] =
            [&b"MPA ID Req"[..], b"GET / HTTP/1.1\r\n\r\n0123456789", b"MPA ID Rep Frame\x10\x02\x00\x00"]
                [at % 3];
        stream.write_all(private_data).expect("room");
    }
    // A well-behaved peer still gets through.
    let (one, two) =
        (Side::new(Context::open(&Lower::Tcp { from: None }).expect("sockets")), Side::new(context.clone()));
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.request(LONG).expect("a request").accept(&two.qp, &options));
        one.qp.connect(listener.address(), &options, LONG).expect("connected");
        accepting.join().expect("accepted").expect("it waits");
    });
    drop(silent);
    let waited = listener.request(Duration::from_millis(300));
    assert!(matches!(waited, Err(Error::Timeout)));
    drop((one, two));
    let (_, _, ends, lines) = context.in_use();
    assert_eq!((ends, lines), (0, 0), "everything of theirs is gone");
}

#[test]
fn an_armed_queue_gives_one_event() {
    let (one, two, _connected, _accepted) = pair(Over::Tcp);
    two.qp.post_recv(1, &[]).expect("room");
    two.qp.post_recv(2, &[]).expect("room");
    two.cq.notify(Notify::Solicited);
    one.qp.post_send(Wr::send_inline(1, b"")).expect("room");
    assert!(matches!(two.context.cq_event(Duration::from_millis(50)), Err(Error::Timeout)));
    one.qp.post_send(Wr::send_inline(2, b"").solicited()).expect("room");
    assert_eq!(two.context.cq_event(LONG).expect("told"), two.cq.number());
    assert!(matches!(two.context.cq_event(Duration::from_millis(50)), Err(Error::Timeout)));
    assert_eq!(two.cq.poll_into(&mut Vec::new(), 10), 2);
}

#[test]
fn dropped_memory_is_invalidated_at_once() {
    let (one, two, _connected, _accepted) = pair(Over::Tcp);
    let target = two.pd.reg_mr(1000, Access::ALL).expect("room");
    let to = target.remote();
    drop(target);
    let source = one.pattern(1000, Access::NONE);
    one.qp.post_send(Wr::write(1, source.all(), to)).expect("room");
    two.qp.post_recv(3, &[]).expect("room");
    assert_eq!(two.cq.wait(LONG).expect("flushed").status, Status::Flushed);
    assert_eq!(two.context.counters().bad_stag, 1);
}

#[test]
fn a_remote_address_is_encoded_in_twelve_bytes() {
    let place = Remote { rkey: 0x0102_0304, address: 0x0506_0708_090a_0b0c };
    let encoded = place.to_bytes();
    assert_eq!(encoded, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    assert_eq!(Remote::from_bytes(&[&encoded[..], b"more"].concat()), Some(place));
    assert_eq!(Remote::from_bytes(&encoded[..11]), None);
    assert_eq!(place.at(4).address, 0x0506_0708_090a_0b10);
}

#[test]
fn a_queue_pair_has_one_connection_at_a_time_and_can_be_reset() {
    for over in ALL {
        let (one, two, connected, accepted) = pair(over);
        let options = options(over);
        let address = match contexts(over).2 {
            Address::Ip(at) if over != Over::Efe => Address::Ip(SocketAddr::new(at.ip(), 1)),
            other => other,
        };
        let twice = one.qp.connect(address, &options, LONG);
        assert!(matches!(twice, Err(Error::Open(_))), "{over:?}: {twice:?}");
        // The old connection is still held when the queue pair connects again.
        one.qp.abort();
        accepted.wait_disconnected(LONG).expect("over");
        one.qp.reset().expect("over");
        two.qp.reset().expect("over");
        let at = match contexts(over).2 {
            Address::Ip(at) if over != Over::Efe => Address::Ip(at),
            _ => {
                // EFE contexts listen at addresses of their own.
                drop((connected, accepted));
                continue;
            }
        };
        let listener = two.context.listen(at, &options).expect("an address");
        let again = std::thread::scope(|scope| {
            let accepting =
                scope.spawn(|| listener.request(LONG).expect("a request").accept(&two.qp, &options));
            let again = one.qp.connect(listener.address(), &options, LONG).expect("connected");
            (again, accepting.join().expect("accepted").expect("it waits"))
        });
        drop((connected, accepted));
        let source = one.pattern(1000, Access::NONE);
        let target = two.pd.reg_mr(1000, Access::ALL).expect("room");
        one.qp.post_send(Wr::write(1, source.all(), target.remote())).expect("room");
        let back = one.pd.reg_mr(1000, Access::LOCAL).expect("room");
        one.qp.post_send(Wr::read(2, back.all(), target.remote()).fenced()).expect("room");
        one.done();
        one.done();
        assert_eq!(back.to_vec(0, 1000), source.to_vec(0, 1000));
        drop(again);
    }
}

/// soft-iWARP's reply to a request without private data from the program: revision 2, depths of one.
const REPLY: &[u8] = b"MPA ID Rep Frame\x10\x02\x00\x04\x00\x01\x00\x01";
/// A zero-length Send, without CRC: DDP untagged and last, RDMAP's Send, queue 0, message 1, offset 0.
const EMPTY_SEND: [u8; 24] = [0, 18, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
/// A zero-length Write: DDP tagged and last, RDMAP's Write, tag 1, offset 0.
const EMPTY_WRITE: [u8; 20] = [0, 14, 0xc1, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn a_peer_that_misses_the_first_message_is_nudged() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("an address");
    let at = Address::Ip(listener.local_addr().expect("bound"));
    let one = Side::new(Context::open(&Lower::Tcp { from: None }).expect("sockets"));
    one.qp.post_recv(7, &[]).expect("room");
    std::thread::scope(|scope| {
        let sleeping = scope.spawn(|| {
            let (mut line, _) = listener.accept().expect("a connection arrives");
            line.set_read_timeout(Some(LONG)).expect("a time");
            line.read_exact(&mut [0; 24]).expect("a request");
            line.write_all(REPLY).expect("room");
            let (mut sent, mut woken) = ([0; 24], [0; 20]);
            line.read_exact(&mut sent).expect("the program's output");
            assert_eq!(sent, EMPTY_SEND);
            for _ in 0..2 {
                line.read_exact(&mut woken).expect("a wake-up");
                assert_eq!(woken, EMPTY_WRITE);
            }
            line.write_all(&EMPTY_SEND).expect("room");
            line
        });
        let connected = one.qp.connect(at, &Connect::default(), LONG).expect("connected");
        one.qp.post_send(Wr::send_inline(1, b"")).expect("room");
        // The nudging Writes belong to no work request and cause no completion.
        assert_eq!([one.done().id, one.done().id], [1, 7]);
        let mut line = sleeping.join().expect("it woke");
        // From now on only the program's data is sent.
        connected.disconnect();
        let mut rest = Vec::new();
        line.read_to_end(&mut rest).expect("the end");
        assert!(rest.chunks(20).all(|write| write == EMPTY_WRITE) && rest.len() <= 20, "{rest:?}");
    });
}

/// A registration takes its turn in the send queue, and a peer's invalidation ends it.
#[test]
fn a_work_request_registers_memory_of_several_blocks() {
    for over in ALL {
        let (one, two, _here, _there) = pair(over);
        let mut key = two.pd.alloc_mr(3).expect("room");
        let blocks: Vec<Region> = [100, 1, 4000].map(|bytes| Region::new(0, bytes)).into();
        let access = Access { local_write: true, remote_write: true, ..Access::NONE };
        let source = one.pattern(4101, Access::LOCAL);
        let word = two.pd.reg_mr(8, Access::LOCAL).expect("room");
        let landing = one.pd.reg_mr(8, Access::LOCAL).expect("room");
        for round in 0..2u64 {
            one.qp.post_recv(round, &[landing.all()]).expect("room");
            two.qp.post_recv(round, &[word.all()]).expect("room");
            // The Send behind it says that the peer may write.
            let register = Wr::register(1, &key, 0x7000, blocks.clone(), access);
            let work = [register, Wr::send(2, word.all())];
            assert_eq!(two.qp.post_send_all(work).expect("room"), 2);
            assert_eq!([two.done().kind, two.done().kind], [Kind::Register, Kind::Send], "{over:?}");
            assert_eq!(one.done().kind, Kind::Receive);
            let write = Wr::write(3, source.all(), key.remote(0x7000)).unsignalled();
            let release = Wr::send_with_invalidate(4, landing.all(), key.key());
            assert_eq!(one.qp.post_send_all([write, release]).expect("room"), 2);
            let released = two.done();
            assert_eq!((released.kind, released.invalidated), (Kind::Receive, Some(key.key())));
            assert_eq!(one.done().id, 4);
            let parts = blocks.iter().flat_map(|block| block.read(block.address(), block.len()).expect("it"));
            assert_eq!(parts.collect::<Vec<u8>>(), source.to_vec(0, 4101), "{over:?}");
            blocks.iter().for_each(|block| {
                let zeros = vec![0; block.len()];
                block.write(block.address(), SharedBytes::from(&zeros[..])).expect("it");
            });
            key.renew_key();
        }
        // Four blocks are more than the key allows.
        let blocks = (0..4).map(|_| Region::new(0, 8)).collect();
        two.qp.post_send(Wr::register(5, &key, 0, blocks, access)).expect("room");
        let refused = two.cq.wait(LONG).expect("a completion");
        assert_eq!((refused.id, refused.status), (5, Status::LocalProtection), "{over:?}");
    }
}
