//! Tests connections with peers that are plain TCP sockets, on which the test itself sends and receives MPA.

use super::*;

/// Connects, and returns the connecting side: its events, identifier and queues.
fn calls(to: SocketAddr, words: &[u8]) -> (Events, Ident, Queues) {
    let events = Events::new();
    let active = Ident::towards(to, &events);
    let queues = Queues::new(active.device());
    assert_eq!(active.connect(&mut param(&queues, words)), 0);
    (events, active, queues)
}

/// Accepts a TCP connection, acting as a peer other than kiban. Returns the connection and the MPA request.
fn next_request(listener: &TcpListener) -> (TcpStream, Vec<u8>) {
    let (mut stream, _) = listener.accept().expect("a peer connects");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time");
    let mut request = vec![0; 20];
    stream.read_exact(&mut request).expect("a request");
    request.resize(20 + usize::from(u16::from_be_bytes([request[18], request[19]])), 0);
    stream.read_exact(&mut request[20..]).expect("its private data");
    assert!(request.starts_with(b"MPA ID Req Frame"), "{request:x?}");
    (stream, request)
}

/// Returns the reply that siw sends: the request with its key replaced by that of a reply.
fn repeated(request: &[u8]) -> Vec<u8> {
    [b"MPA ID Rep Frame", &request[16..]].concat()
}

/// Returns the flags of a request: S and, with the transport `ib`, the bit that offers kiban's own
/// operations.
fn offer() -> u8 {
    if below::is_ib() { 0x11 } else { 0x10 }
}

#[test]
fn a_peer_that_echoes_the_offer_is_treated_as_a_plain_iwarp_peer() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = listener.local_addr().expect("an address");
    let peer = thread::spawn(move || {
        let (mut stream, request) = next_request(&listener);
        assert_eq!(request[16], offer());
        stream.write_all(&repeated(&request)).expect("the peer is connected");
        // The first Send, and an empty Write that wakes a receiver that missed it.
        let mut words = [0; 24 + 20];
        stream.read_exact(&mut words).expect("a Send and a Write");
        let (send, write) = words.split_at(24);
        (send[..4].to_vec(), write[..4].to_vec())
    });
    let (events, _active, queues) = calls(to, b"hello");
    events.expect(answered(), 0);
    let engine = below::engine().expect("an engine");
    let own = SendWork::new(1, Operation::SendImmediate { data: 7 }, Data::none());
    assert_eq!(engine.post_sends(queues.qp, [own]), Err((0, RequestError::NotAgreed)));
    engine.post_sends(queues.qp, [SendWork::new(2, Operation::SEND, Data::none())]).expect("there is room");
    // The length, then the control octets of DDP and RDMAP: last segment, version 1; a Send, and a tagged
    // Write.
    let expected = (vec![0, 18, 0x41, 0x43], vec![0, 14, 0xc1, 0x40]);
    assert_eq!(peer.join().expect("no panic"), expected);
    expect_over(&events);
}

#[test]
fn a_peer_that_closes_on_the_extension_offer_gets_a_retry_without_it() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = listener.local_addr().expect("an address");
    // Close with FIN and with RST, several times each, because events may arrive before or after the call
    // returns.
    let rounds = [false, true].repeat(4);
    let peer = thread::spawn({
        let rounds = rounds.clone();
        move || {
            for resets in rounds {
                let (mut stream, mut request) = next_request(&listener);
                // Close the first attempt, and each retry that makes the offer; with iWARP, no offer is
                // made.
                for _ in 0..if below::is_ib() { 5 } else { 0 } {
                    assert_eq!(request[16], 0x11);
                    if resets {
                        reset(&stream);
                    }
                    drop(stream);
                    (stream, request) = next_request(&listener);
                }
                assert_eq!((request[16], &request[24..]), (0x10, &b"hello"[..]));
                stream.write_all(&repeated(&request)).expect("the peer is connected");
                // The program disconnects this connection.
                assert_eq!(stream.read(&mut [0; 1]).expect("an end in order"), 0);
            }
        }
    });
    for _ in rounds {
        let (events, active, _queues) = calls(to, b"hello");
        assert_eq!(events.expect(answered(), 0).private_data(), b"hello");
        assert_eq!(active.disconnect(), 0);
        expect_over(&events);
        events.expect_nothing();
    }
    peer.join().expect("no panic");
}

#[test]
fn a_connect_through_a_forwarder_that_closes_at_first_succeeds() {
    let forwarder = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = forwarder.local_addr().expect("an address");
    let peer = thread::spawn(move || {
        // Close the first connections either at once or after data has arrived.
        for at_once in [true, false, true] {
            let (mut stream, _) = forwarder.accept().expect("a peer connects");
            if !at_once {
                stream.read_exact(&mut [0; 20]).expect("a request");
            }
        }
        let (mut stream, request) = next_request(&forwarder);
        assert_eq!(request[16], offer(), "the offer is repeated");
        stream.write_all(&repeated(&request)).expect("the peer is connected");
        assert_eq!(stream.read(&mut [0; 1]).expect("an end in order"), 0);
    });
    let (events, active, _queues) = calls(to, b"hello");
    events.expect(answered(), 0);
    assert_eq!(active.disconnect(), 0);
    expect_over(&events);
    peer.join().expect("no panic");
}

#[test]
fn the_reported_port_is_the_one_that_the_peer_sees() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = listener.local_addr().expect("an address");
    let peer = thread::spawn(move || {
        let (first, _) = next_request(&listener);
        let before = first.peer_addr().expect("it is connected").port();
        // The first socket stays open, so that the retry uses another port.
        let (mut stream, request) = {
            first.shutdown(std::net::Shutdown::Write).expect("it is connected");
            next_request(&listener)
        };
        let now = stream.peer_addr().expect("it is connected").port();
        stream.write_all(&repeated(&request)).expect("the peer is connected");
        assert_eq!(stream.read(&mut [0; 1]).expect("an end in order"), 0);
        (before, now)
    });
    let (events, active, _queues) = calls(to, b"hello");
    events.expect(answered(), 0);
    let result = active.port();
    assert_eq!(active.disconnect(), 0);
    let (before, now) = peer.join().expect("no panic");
    assert_ne!(before, now);
    assert_eq!(result, now);
    expect_over(&events);
}

#[test]
fn a_port_is_known_before_the_peer_has_answered() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = listener.local_addr().expect("an address");
    // The first connection takes the only slot in the backlog, so the system does not answer the next one.
    // SAFETY: `listener` is a listening socket.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let _first = TcpStream::connect(to).expect("there is room");
    let (events, active, _queues) = calls(to, b"hello");
    assert_ne!(active.port(), 0);
    events.expect_nothing();
}

#[test]
fn a_peer_that_closes_every_attempt_is_reported_as_rejected() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = listener.local_addr().expect("an address");
    let peer = thread::spawn(move || {
        let times = if below::is_ib() { 6 } else { 5 };
        for _ in 0..times {
            drop(next_request(&listener));
        }
        listener.set_nonblocking(true).expect("it does not wait");
        listener
    });
    let (events, _active, _queues) = calls(to, b"");
    events.expect(RDMA_CM_EVENT_REJECTED, -libc::ECONNRESET);
    events.expect_nothing();
    assert!(peer.join().expect("no panic").accept().is_err(), "there are no more attempts");
}

/// Makes closing the socket send RST.
fn reset(stream: &TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let bytes = size_of_val(&linger) as libc::socklen_t;
    let value = (&raw const linger).cast();
    // SAFETY: the descriptor is that of `stream`, and `value` points to a `linger` of `bytes` bytes.
    let code =
        unsafe { libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, value, bytes) };
    assert_eq!(code, 0);
}

#[test]
fn unreachable_addresses_are_reported() {
    let events = Events::new();
    let id = Ident::new(Some(&events));
    assert_eq!((id.bind(at("192.0.2.1:7")), errno()), (-1, Some(libc::EADDRNOTAVAIL)));
    // The failed bind changes nothing: the wildcard address leads to this host.
    assert_eq!(id.resolve_addr(at("0.0.0.0:9")), 0);
    events.expect(RDMA_CM_EVENT_ADDR_RESOLVED, 0);
    let first = crate::device::Device::for_loopback(at("127.0.0.1:0").ip()).expect("a device");
    assert_eq!(id.device(), first.address);
    assert_eq!((id.resolve_addr(at("127.0.0.1:9")), errno()), (-1, Some(libc::EINVAL)));
    // SAFETY: `id` is live, and each call fails before it accesses anything that the identifier lacks.
    unsafe {
        assert_eq!((rdma_connect(id.0, null_mut()), errno()), (-1, Some(libc::EINVAL)));
        assert_eq!((rdma_listen(id.0, 1), errno()), (-1, Some(libc::EINVAL)));
        assert_eq!((rdma_accept(id.0, null_mut()), errno()), (-1, Some(libc::EINVAL)));
        assert_eq!((rdma_disconnect(id.0), errno()), (-1, Some(libc::EINVAL)));
        assert_eq!((rdma_establish(id.0), errno()), (-1, Some(libc::EINVAL)));
    }
    // Loopback addresses have no route to other hosts.
    let out = Ident::new(Some(&events));
    assert_eq!(out.bind(at("127.0.0.1:0")), 0);
    assert_eq!(out.resolve_addr(at("192.0.2.1:9")), 0);
    let event = events.next();
    assert_eq!(event.get().event, RDMA_CM_EVENT_ADDR_ERROR);
    assert!(event.get().status < 0);
    drop(event);
    // On a synchronous `rdma_cm_id`, the call itself returns the result.
    let waits = Ident::new(None);
    assert_eq!(waits.bind(at("127.0.0.1:0")), 0);
    assert_eq!(waits.resolve_addr(at("192.0.2.1:9")), -1);
    assert_eq!(waits.resolve_addr(at("127.0.0.1:9")), 0);
}

/// DAPL and librpma bind an address to find its device.
#[test]
fn an_identifier_bound_to_a_loopback_address_has_the_device_that_it_uses_later() {
    let events = Events::new();
    for loopback in ["127.0.0.1:0", "127.0.0.9:0", "[::1]:0"].map(at) {
        let id = Ident::new(Some(&events));
        assert_eq!(id.bind(loopback), 0);
        let bound = id.device();
        // SAFETY: `id` is live.
        assert!(unsafe { !(*id.0).pd.is_null() && (*id.0).port_num == 1 });
        assert_eq!(id.resolve_addr(loopback.ip().into_port(9)), 0);
        events.expect(RDMA_CM_EVENT_ADDR_RESOLVED, 0);
        assert_eq!(id.device(), bound, "{loopback}");
    }
    let (any, synchronous) = (Ident::new(Some(&events)), Ident::new(None));
    assert_eq!(any.bind(at("0.0.0.0:0")), 0);
    // libfabric expects no device here.
    assert_eq!(synchronous.bind(at("127.0.0.1:0")), 0);
    // SAFETY: both identifiers are live.
    unsafe { assert!((*any.0).verbs.is_null() && (*synchronous.0).verbs.is_null()) };
}

#[test]
fn ports_are_bound_once_unless_shared() {
    let events = Events::new();
    let first = Ident::new(Some(&events));
    assert_eq!(first.bind(at("127.0.0.1:0")), 0);
    let port = first.port();
    assert_ne!(port, 0);
    let same = SocketAddr::new(at("127.0.0.1:0").ip(), port);
    let second = Ident::new(Some(&events));
    assert_eq!((second.bind(same), errno()), (-1, Some(libc::EADDRINUSE)));
    assert_eq!((second.bind(at("0.0.0.0:0").ip().into_port(port)), errno()), (-1, Some(libc::EADDRINUSE)));
    let mut yes: c_int = 1;
    for id in [&first, &second] {
        let yes = (&raw mut yes).cast();
        // SAFETY: `id` is live, and the option points to an `int`.
        let set = unsafe { rdma_set_option(id.0, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, yes, 4) };
        assert_eq!(set, 0);
    }
    assert_eq!(second.bind(same), 0);
    // SAFETY: `second` is live, and the option is null, or points to an `int` of which at most four bytes are
    // read.
    unsafe {
        let value = (&raw mut yes).cast();
        assert_eq!((rdma_set_option(second.0, 9, 0, value, 4), errno()), (-1, Some(libc::ENOSYS)));
        assert_eq!((rdma_set_option(second.0, 0, 1, value, 1), errno()), (-1, Some(libc::EINVAL)));
        assert_eq!((rdma_set_option(second.0, 0, 1, null_mut(), 4), errno()), (-1, Some(libc::EINVAL)));
    }
    // SAFETY: both identifiers are live.
    unsafe {
        assert_eq!(rdma_listen(first.0, 1), 0);
        assert_eq!((rdma_listen(second.0, 1), errno()), (-1, Some(libc::EADDRINUSE)));
    }
    drop((first, second));
    let third = Ident::new(Some(&events));
    assert_eq!(third.bind(same), 0);
}

/// Valkey listens for TCP and RDMA at one port.
#[test]
fn a_listener_may_have_the_port_of_a_tcp_socket() {
    let (theirs, ours) = (Events::new(), Events::new());
    for (tcp, rdma) in [("127.0.0.1:0", "127.0.0.1:0"), ("0.0.0.0:0", "127.0.0.1:0"), ("[::]:0", "[::]:0")] {
        let tcp = TcpListener::bind(tcp).expect("a port");
        let port = tcp.local_addr().expect("it is bound").port();
        let rdma = at(rdma).ip().into_port(port);
        let listener = Ident::listen(rdma, Some(&theirs), 5);
        assert_eq!(listener.port(), port);
        let again = Ident::new(Some(&theirs));
        assert_eq!((again.bind(rdma), errno()), (-1, Some(libc::EADDRINUSE)));
        let to = at("127.0.0.1:0").ip().into_port(port);
        let ((passive, ..), (active, ..)) = &connect_to(&listener, &theirs, &ours);
        // SAFETY: both identifiers are live.
        unsafe {
            assert_eq!(address::read((&raw const (*passive.0).route.addr.src).cast()), Ok(to));
            assert_eq!(address::read((&raw const (*active.0).route.addr.dst).cast()), Ok(to));
        }
        assert_eq!(active.disconnect(), 0);
        expect_over(&ours);
        expect_over(&theirs);
        // TCP still reaches its own listener.
        let caller = TcpStream::connect(to).expect("it listens");
        let (_, from) = tcp.accept().expect("it called");
        assert_eq!(from.port(), caller.local_addr().expect("it is connected").port());
        drop(listener);
        assert_eq!(again.bind(rdma), 0);
    }
}

/// tgtd listens on the same port for each family (`--iser port=3262`).
#[test]
fn both_families_listen_on_one_port_if_each_is_restricted_to_its_own() {
    let listens = |first: &str, second: &str, only: c_int| {
        let events = Events::new();
        let one = Ident::listen(at(first), Some(&events), 1);
        let other = Ident::new(Some(&events));
        let mut only = only;
        // SAFETY: `other` is live, and the option points to an `int`.
        let set = unsafe {
            rdma_set_option(other.0, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, (&raw mut only).cast(), 4)
        };
        assert_eq!(set, 0);
        let bound = other.bind(at(second).ip().into_port(one.port()));
        // SAFETY: `other` is live.
        bound == 0 && unsafe { rdma_listen(other.0, 1) } == 0
    };
    assert!(listens("0.0.0.0:0", "[::]:0", 1));
    assert!(!listens("0.0.0.0:0", "[::]:0", 0), "an unrestricted [::] stands for IPv4 addresses too");
}

trait IntoPort {
    fn into_port(self, port: u16) -> SocketAddr;
}

impl IntoPort for std::net::IpAddr {
    fn into_port(self, port: u16) -> SocketAddr {
        SocketAddr::new(self, port)
    }
}

#[test]
fn connection_calls_fail_for_datagram_identifiers() {
    let events = Events::new();
    let mut id = null_mut();
    // SAFETY: `events` is a live channel, and `id` is a local variable.
    assert_eq!(unsafe { rdma_create_id(events.0, &mut id, null_mut(), RDMA_PS_UDP) }, 0);
    let id = Ident(id);
    assert_eq!(id.resolve_addr(at("127.0.0.1:9")), 0);
    events.expect(RDMA_CM_EVENT_ADDR_RESOLVED, 0);
    // SAFETY: `id` is an identifier that the test has not destroyed.
    unsafe {
        assert_eq!((*id.0).qp_type, IBV_QPT_UD);
        for code in [rdma_connect(id.0, null_mut()), rdma_listen(id.0, 1), rdma_accept(id.0, null_mut())] {
            assert_eq!((code, errno()), (-1, Some(libc::EOPNOTSUPP)));
        }
    }
}

#[test]
fn calls_on_invalid_identifiers_fail_with_einval() {
    let gone = Ident::new(None).0;
    // SAFETY: none of these pointers is in a list, so none is dereferenced.
    unsafe {
        for id in [null_mut(), gone, core::ptr::dangling_mut()] {
            assert_eq!((rdma_destroy_id(id), errno()), (-1, Some(libc::EINVAL)));
            assert_eq!((rdma_disconnect(id), errno()), (-1, Some(libc::EINVAL)));
            assert_eq!((rdma_migrate_id(id, null_mut()), errno()), (-1, Some(libc::EINVAL)));
            assert_eq!(rdma_get_src_port(id), 0);
        }
        let mut id = null_mut();
        assert_eq!((rdma_create_id(null_mut(), &mut id, null_mut(), 5), errno()), (-1, Some(libc::EINVAL)));
        assert_eq!(
            (rdma_create_id(null_mut(), null_mut(), null_mut(), RDMA_PS_TCP), errno()),
            (-1, Some(libc::EINVAL))
        );
        assert_eq!((rdma_ack_cm_event(null_mut()), errno()), (-1, Some(libc::EINVAL)));
        assert_eq!((rdma_get_cm_event(null_mut(), null_mut()), errno()), (-1, Some(libc::EINVAL)));
        rdma_destroy_event_channel(null_mut());
    }
}

#[test]
fn rdma_migrate_id_moves_pending_events() {
    let (first, second) = (Events::new(), Events::new());
    let (moves, stays) = (Ident::new(Some(&first)), Ident::new(Some(&first)));
    for id in [&stays, &moves] {
        assert_eq!(id.resolve_addr(at("127.0.0.1:9")), 0);
    }
    // SAFETY: the identifier and the channel are live.
    assert_eq!(unsafe { rdma_migrate_id(moves.0, second.0) }, 0);
    assert_eq!(first.expect(RDMA_CM_EVENT_ADDR_RESOLVED, 0).get().id, stays.0);
    assert_eq!(second.expect(RDMA_CM_EVENT_ADDR_RESOLVED, 0).get().id, moves.0);
    first.expect_nothing();
    // SAFETY: the identifier, its channels and its event are live.
    unsafe {
        assert_eq!((*moves.0).channel, second.0);
        // From now on its calls are synchronous.
        assert_eq!(rdma_migrate_id(moves.0, null_mut()), 0);
        assert_eq!(rdma_resolve_route(moves.0, 100), 0);
        assert_eq!((*(*moves.0).event).event, RDMA_CM_EVENT_ROUTE_RESOLVED);
        assert_eq!(rdma_migrate_id(moves.0, first.0), 0);
        assert!((*moves.0).event.is_null());
    }
    drop(moves);
}

#[test]
fn destroying_an_identifier_waits_until_its_events_are_acknowledged() {
    let events = Events::new();
    let id = Ident::new(Some(&events));
    assert_eq!(id.resolve_addr(at("127.0.0.1:9")), 0);
    let event = events.next();
    let (place, held) = (id.0 as usize, event.0 as usize);
    std::mem::forget((id, event));
    let (sender, result) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        // SAFETY: the identifier was leaked by `forget`, and no other thread uses it.
        let code = unsafe { rdma_destroy_id(place as *mut rdma_cm_id) };
        sender.send(code).expect("the receiver exists");
    });
    // Once the identifier is no longer found, its destruction has begun.
    while crate::cm::id::find(place as *const rdma_cm_id).is_ok() {
        std::thread::yield_now();
    }
    assert!(result.try_recv().is_err());
    drop(Event(held as *mut rdma_cm_event));
    assert_eq!(result.recv(), Ok(0));
    thread.join().expect("no panic");
}

#[test]
fn waiting_on_a_destroyed_event_channel_never_returns() {
    let events = Events::new();
    let place = events.0 as usize;
    let (sender, result) = std::sync::mpsc::channel();
    let wait = || {
        let sender = sender.clone();
        let (begins, began) = std::sync::mpsc::channel();
        // This thread stays blocked until the process ends.
        std::thread::spawn(move || {
            let mut event = null_mut();
            begins.send(()).expect("the receiver exists");
            // SAFETY: the channel is live or was destroyed recently, and `event` is a local variable.
            let code = unsafe { rdma_get_cm_event(place as *mut rdma_event_channel, &mut event) };
            let _ = sender.send((code, errno()));
        });
        began.recv().expect("it begins");
    };
    wait();
    drop(events);
    wait();
    let result = result.recv_timeout(Duration::from_millis(300));
    assert_eq!(result, Err(std::sync::mpsc::RecvTimeoutError::Timeout), "the call must not return");
}

/// Returns the number of open descriptors and the resident memory in KiB.
fn held() -> (usize, usize) {
    let files = std::fs::read_dir("/proc/self/fd").expect("a list").count();
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find(|line| line.starts_with("VmRSS")).expect("a line");
    (files, line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number"))
}

/// `connects_and_closes_leave_nothing_behind` runs this test in a process of its own, because it counts all
/// objects in the process.
#[test]
#[ignore = "counts what the process holds, so it must be alone in it"]
fn connects_and_closes() {
    let rounds = std::env::var("KIBAN_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(10_000);
    // Ports stay in TIME-WAIT after a connection has ended, so use several listeners.
    let connect_and_close = |rounds: usize| {
        for left in (1..=rounds.div_ceil(100)).rev() {
            let (theirs, ours) = (Events::new(), Events::new());
            let listener = Ident::listen(at("127.0.0.1:0"), Some(&theirs), 5);
            for _ in 0..if left == 1 { (rounds - 1) % 100 + 1 } else { 100 } {
                let (_passive, active) = connect_to(&listener, &theirs, &ours);
                assert_eq!(active.0.disconnect(), 0);
                expect_over(&ours);
                expect_over(&theirs);
            }
        }
    };
    let threads = || std::fs::read_dir("/proc/self/task").expect("a list").count();
    // Threads that close connections with unread data end on their own.
    let closes = || {
        let threads = std::fs::read_dir("/proc/self/task").expect("a list");
        let names =
            threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
        names.into_iter().any(|name| name.trim_end() == "kiban-closing")
    };
    let settle = || {
        let patience = std::iter::repeat_n((), 1_000_000);
        assert!(patience.map(|()| std::thread::yield_now()).any(|()| !closes()), "closing does not end");
    };
    connect_and_close(rounds / 10);
    settle();
    let (before, before_threads) = (held(), threads());
    connect_and_close(rounds);
    settle();
    let after = held();
    let engine = below::engine().expect("an engine");
    let left = engine.in_use();
    assert_eq!((left.queue_pairs, left.keys, left.streams), (0, 0, 0));
    assert_eq!((after.0, threads()), (before.0, before_threads));
    assert!(after.1 < before.1 + 2048, "from {} KiB to {} KiB in {rounds} rounds", before.1, after.1);
}

#[test]
fn connects_and_closes_leave_nothing_behind() {
    let own = std::env::current_exe().expect("a path");
    let ran = std::process::Command::new(own)
        .args(["--ignored", "--exact", "cm::tests::plain_peers::connects_and_closes"])
        .output()
        .expect("it runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    assert!(String::from_utf8_lossy(&ran.stdout).contains("1 passed"));
}
