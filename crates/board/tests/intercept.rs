//! A board that intercepts takes connections, datagrams and echo requests to other hosts, and answers in
//! their name.

mod common;

use common::{Pair, address, socket};
use kiban_base::Instant;
use kiban_board::{Completion, IcmpErrorKind, InterceptedKind, Reason};
use kiban_tcpip::ip::Route;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const ELSEWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 9)), 80);

/// Returns two boards: the first one's default gateway is the second one, which intercepts.
fn guest_and_proxy() -> (Pair, u32) {
    let mut pair = Pair::new();
    pair.boards[0].add_route(Route {
        prefix: "0.0.0.0/0".parse().unwrap(),
        port: 0,
        gateway: Some(address(1)),
        source: address(0),
        mtu_bytes: 1500,
    });
    let listener = pair.boards[1].host().intercept().unwrap();
    (pair, listener)
}

/// Returns the address of the guest that asks for a connection to `target`.
fn requested(pair: &mut Pair, listener: u32, target: SocketAddr) -> SocketAddr {
    let [Completion::Requested { listener: its, local, remote }] = pair.completions(1)[..] else {
        panic!("one request")
    };
    assert_eq!((its, local, remote.ip()), (listener, target, address(0)));
    remote
}

#[test]
fn a_connection_opens_only_when_it_is_admitted_and_carries_data_both_ways() {
    let (mut pair, listener) = guest_and_proxy();
    let near = pair.boards[0].host().open(ELSEWHERE).unwrap();
    // The SYN is repeated, and reported once.
    pair.run_until(Instant::ZERO + Duration::from_secs(4));
    assert_eq!(pair.completions(0), []);
    let remote = requested(&mut pair, listener, ELSEWHERE);
    pair.boards[1].host().admit(ELSEWHERE, remote).unwrap();
    pair.run();
    assert_eq!(pair.completions(0), [Completion::Opened { stream: near }]);
    let [Completion::Accepted { stream: far, remote: its, .. }] = pair.completions(1)[..] else {
        panic!("accepted")
    };
    assert_eq!(its, remote);
    assert_eq!(pair.boards[1].host().info(far).unwrap().local, ELSEWHERE);
    pair.boards[0].host().write(near, b"question").unwrap();
    pair.boards[1].host().write(far, b"answer").unwrap();
    pair.run();
    let mut read = [0; 20];
    assert_eq!(pair.boards[0].host().read(near, &mut read), Ok(6));
    assert_eq!(&read[..6], b"answer");
    assert_eq!(pair.boards[1].host().read(far, &mut read), Ok(8));
    assert_eq!(&read[..8], b"question");
}

#[test]
fn a_refused_connection_is_reset_and_an_ignored_one_may_ask_again() {
    let (mut pair, listener) = guest_and_proxy();
    let near = pair.boards[0].host().open(ELSEWHERE).unwrap();
    pair.run();
    let remote = requested(&mut pair, listener, ELSEWHERE);
    pair.boards[1].host().ignore(ELSEWHERE, remote);
    assert!(pair.boards[1].host().admit(ELSEWHERE, remote).is_err());
    pair.run_until(Instant::ZERO + Duration::from_secs(2));
    assert_eq!(requested(&mut pair, listener, ELSEWHERE), remote);
    pair.boards[1].host().refuse(ELSEWHERE, remote).unwrap();
    pair.run();
    assert_eq!(pair.completions(0), [Completion::Ended { stream: near, reason: Reason::Refused }]);
    assert!(pair.boards[1].host().refuse(ELSEWHERE, remote).is_err());
    assert_eq!(pair.boards[1].sessions(), 0);
}

#[test]
fn only_the_program_that_intercepts_opens_connections_from_any_address() {
    let (mut pair, _) = guest_and_proxy();
    pair.boards[0].host().listen(socket(0, 80)).unwrap();
    let far = pair.boards[1].host().open_from(ELSEWHERE, socket(0, 80)).unwrap();
    pair.run();
    assert_eq!(pair.completions(1), [Completion::Opened { stream: far }]);
    let [Completion::Accepted { stream: near, remote, .. }] = pair.completions(0)[..] else {
        panic!("accepted")
    };
    assert_eq!(remote, ELSEWHERE);
    pair.boards[0].host().write(near, b"answer").unwrap();
    pair.run();
    let mut read = [0; 20];
    assert_eq!(pair.boards[1].host().read(far, &mut read), Ok(6));
    // The connection exists already; and nobody else may take such an address.
    assert!(pair.boards[1].host().open_from(ELSEWHERE, socket(0, 80)).is_err());
    assert!(pair.boards[1].host().for_service(7).open_from(ELSEWHERE, socket(0, 81)).is_err());
    assert!(pair.boards[0].host().open_from(ELSEWHERE, socket(1, 80)).is_err());
}

#[test]
fn requests_are_bounded_and_forgotten_with_their_listener() {
    let (mut pair, listener) = guest_and_proxy();
    let backlog = kiban_tcpip::tcp::Config::default().backlog;
    for number in 0..backlog as u16 + 5 {
        pair.boards[0].host().open(SocketAddr::new(ELSEWHERE.ip(), 1000 + number)).unwrap();
        pair.run();
    }
    let requests = pair.completions(1);
    assert_eq!(requests.len(), backlog);
    let waiting = pair.boards[0].host().bind(socket(0, 9)).unwrap();
    pair.boards[0].host().send_to(waiting, ELSEWHERE, b"x").unwrap();
    pair.run();
    pair.boards[1].host().unlisten(listener).unwrap();
    for request in requests {
        let Completion::Requested { local, remote, .. } = request else { panic!("a request") };
        assert!(pair.boards[1].host().admit(local, remote).is_err());
    }
    // Without a listener, nothing is intercepted, and nothing of it is kept.
    assert!(pair.boards[1].host().intercepted().is_none());
    pair.boards[0].host().send_to(waiting, ELSEWHERE, b"x").unwrap();
    pair.run();
    assert_eq!(pair.completions(1), [Completion::Intercepted]);
    assert!(pair.boards[1].host().intercepted().is_none());
    pair.boards[1].host().intercept().unwrap();
    pair.boards[0].host().send_to(waiting, ELSEWHERE, b"x").unwrap();
    pair.run();
    assert!(pair.boards[1].host().intercepted().is_some());
}

#[test]
fn a_peer_that_gives_up_its_request_makes_room() {
    let (mut pair, listener) = guest_and_proxy();
    let near = pair.boards[0].host().open(ELSEWHERE).unwrap();
    pair.run();
    let remote = requested(&mut pair, listener, ELSEWHERE);
    // A board in SYN-SENT sends no RST when it gives up; a peer whose handshake is answered late does.
    pair.boards[0].host().abort(near).unwrap();
    pair.run();
    pair.boards[1].host().admit(ELSEWHERE, remote).unwrap();
    assert!(pair.boards[1].host().has_connection(ELSEWHERE, remote));
    pair.run();
    assert!(!pair.boards[1].host().has_connection(ELSEWHERE, remote));
    assert_eq!((pair.completions(1), pair.boards[1].sessions()), (vec![], 0));
}

#[test]
fn the_boards_own_listeners_and_sockets_have_precedence() {
    let (mut pair, listener) = guest_and_proxy();
    pair.boards[1].host().listen(socket(1, 80)).unwrap();
    let own = pair.boards[1].host().bind(socket(1, 53)).unwrap();
    pair.boards[0].host().open(socket(1, 80)).unwrap();
    pair.run();
    assert!(matches!(pair.completions(1)[..], [Completion::Accepted { .. }]));
    pair.boards[0].host().open(socket(1, 81)).unwrap();
    pair.run();
    requested(&mut pair, listener, socket(1, 81));
    let sender = pair.boards[0].host().bind(socket(0, 9)).unwrap();
    pair.boards[0].host().send_to(sender, socket(1, 53), b"own").unwrap();
    pair.boards[0].host().send_to(sender, socket(1, 54), b"other").unwrap();
    pair.run();
    assert_eq!(pair.completions(1), [Completion::Datagram { socket: own }, Completion::Intercepted]);
}

#[test]
fn a_datagram_is_answered_from_its_destination_or_refused() {
    let (mut pair, _) = guest_and_proxy();
    let sender = pair.boards[0].host().bind(socket(0, 9)).unwrap();
    pair.boards[0].host().send_to(sender, ELSEWHERE, &[7; 3000]).unwrap();
    pair.boards[0].host().send_to(sender, ELSEWHERE, b"").unwrap();
    pair.run();
    assert_eq!(pair.completions(1), [Completion::Intercepted]);
    let mut host = pair.boards[1].host();
    let mut payload = vec![1];
    let packet = host.intercepted().unwrap();
    assert_eq!(packet.kind(), InterceptedKind::Datagram { local: ELSEWHERE, remote: socket(0, 9) });
    packet.copy_payload(&mut payload);
    assert_eq!(payload, [7; 3000]);
    host.send_from(ELSEWHERE, socket(0, 9), b"reply").unwrap();
    let packet = host.intercepted().unwrap();
    packet.copy_payload(&mut payload);
    assert_eq!(payload, []);
    host.refuse_datagram(ELSEWHERE, socket(0, 9)).unwrap();
    assert!(host.intercepted().is_none());
    pair.run();
    let unreachable = IcmpErrorKind::Unreachable { code: 3 };
    assert_eq!(
        pair.completions(0),
        [
            Completion::DatagramError {
                socket: sender,
                remote: ELSEWHERE,
                reporter: ELSEWHERE.ip(),
                kind: unreachable
            },
            Completion::Datagram { socket: sender }
        ]
    );
    let mut read = [0; 20];
    assert_eq!(pair.boards[0].host().receive_from(sender, &mut read), Ok(Some((ELSEWHERE, 5))));
}

#[test]
fn an_echo_request_to_another_host_waits_for_the_proxy_and_one_to_the_board_does_not() {
    let (mut pair, _) = guest_and_proxy();
    pair.boards[0].host().ping(ELSEWHERE.ip(), 5, 6, b"payload").unwrap();
    pair.boards[0].host().ping(address(1), 5, 7, b"").unwrap();
    pair.run();
    let reply = |source, sequence, bytes| Completion::EchoReply { source, identifier: 5, sequence, bytes };
    assert_eq!(pair.completions(0), [reply(address(1), 7, 0)]);
    let mut host = pair.boards[1].host();
    let packet = host.intercepted().unwrap();
    let InterceptedKind::Echo { local, remote, identifier: 5, sequence: 6 } = packet.kind() else {
        panic!("an echo request")
    };
    let mut payload = Vec::new();
    packet.copy_payload(&mut payload);
    assert_eq!((local, remote, &payload[..]), (ELSEWHERE.ip(), address(0), &b"payload"[..]));
    host.reply_to_echo((local, remote), 5, 6, &payload).unwrap();
    pair.run();
    assert_eq!(pair.completions(0), [reply(ELSEWHERE.ip(), 6, 7)]);
}

#[test]
fn packets_to_loopback_link_local_and_group_addresses_are_not_intercepted() {
    let (mut pair, _) = guest_and_proxy();
    let sender = pair.boards[0].host().bind(socket(0, 9)).unwrap();
    for target in ["127.0.0.1:5", "169.254.1.1:5", "224.0.0.5:5", "255.255.255.255:5"] {
        // The guest's own stack may refuse to send it.
        let _ = pair.boards[0].host().send_to(sender, target.parse().unwrap(), b"x");
    }
    pair.run();
    assert_eq!(pair.completions(1), []);
}
