//! Queue pairs over EFE: what differs from TCP.

use super::manager::{HERE, Node, error, free_port};
use super::*;
use crate::verbs::ports::port_of;
use std::net::SocketAddr;

/// Connects two nodes through the connection manager. Returns their queue pairs.
fn connected(server: &Node, client: &Node) -> (u32, u32) {
    let (ours, theirs) =
        (client.side.qp_at(HERE, Service::Connected).0, server.side.qp_at(HERE, Service::Connected).0);
    let at = server.listen(false);
    client.connect(ours, at);
    let request = server.request();
    assert_eq!((request.local, request.peer.ip(), request.depths), (at, HERE, (1, 1)));
    assert_eq!(request.private_data, b"hello");
    server.side.engine.accept(request.end, theirs, (1, 1), b"me").expect("it is asked");
    let CmEvent::Connected { private_data, depths, .. } = client.next() else { panic!("it connects") };
    assert_eq!((&private_data[..], depths), (&b"me"[..], (1, 1)));
    assert!(matches!(server.next(), CmEvent::Connected { .. }));
    (ours, theirs)
}

#[test]
fn the_connection_manager_connects_and_disconnects() {
    let (server, client) = (Node::over(Wire::Efe), Node::over(Wire::Efe));
    let (ours, theirs) = connected(&server, &client);
    for (side, qp) in [(&server.side, theirs), (&client.side, ours)] {
        side.receive(qp, 100);
    }
    client.side.memory[..5].copy_from_slice(b"hello");
    client.side.send(ours, 1, Operation::SendImmediate { data: 0xfeed }, 5);
    let got = server.side.next();
    assert_eq!((got.status, got.bytes, got.immediate), (Status::Success, 5, Some(0xfeed)));
    assert_eq!(&server.side.memory[4096..4101], b"hello");
    assert_eq!(client.side.next().id, 1);
    let remote = TaggedAddress { stag: client.side.key, offset: client.side.memory.as_ptr() as u64 };
    server.side.send(theirs, 2, Operation::read(remote), 5);
    assert_eq!((server.side.next().id, &server.side.memory[..5]), (2, &b"hello"[..]));
    // Both ends have a UDP port each, and neither shares memory.
    assert_eq!(client.side.engine.in_use(), InUse { queue_pairs: 1, keys: 1, streams: 1, shared: 0 });
    let end = client.side.engine.turn.read(|board| board.core.nic.end_of(ours)).expect("connected");
    client.side.engine.disconnect(end);
    for node in [&client, &server] {
        assert!(matches!(node.next(), CmEvent::Disconnected { .. }));
    }
}

#[test]
fn a_port_that_nobody_serves_refuses_without_a_timeout() {
    let client = Node::over(Wire::Efe);
    let (qp, _) = client.side.qp_at(HERE, Service::Connected);
    client.connect(qp, free_port());
    let events = std::iter::from_fn(|| Some(client.next()));
    let last = events.into_iter().find(|event| !matches!(event, CmEvent::Retried { .. }));
    assert_eq!(error(last.expect("the iterator does not end")), ConnectError::Unreachable);
}

#[test]
fn a_refusal_carries_private_data_and_leaves_nothing_behind() {
    let (server, client) = (Node::over(Wire::Efe), Node::over(Wire::Efe));
    let at = server.listen(false);
    let (qp, _) = client.side.qp_at(HERE, Service::Connected);
    client.connect(qp, at);
    server.side.engine.reject(server.request().end, b"no").expect("it is asked");
    assert_eq!(error(client.next()), ConnectError::Rejected(b"no".to_vec()));
    assert_eq!(server.side.engine.in_use().streams, 0);
}

#[test]
fn a_closed_listener_can_be_opened_again_while_its_connections_last() {
    let (server, client) = (Node::over(Wire::Efe), Node::over(Wire::Efe));
    let (ours, theirs) = connected(&server, &client);
    let engine = &server.side.engine;
    let open = || engine.turn.read(|board| board.core.efe_ports());
    let before = open();
    let (listener, at) = engine.turn.read(|board| {
        let (&listener, (_, port)) = board.listeners.of.iter().next().expect("it listens");
        (listener, SocketAddr::new(HERE, *port))
    });
    engine.unlisten(listener);
    assert_eq!(open(), before, "the connection uses the port");
    server.listen_at(at);
    assert_eq!(open(), before, "and now both");
    server.side.receive(theirs, 100);
    client.side.send(ours, 1, Operation::SEND, 5);
    assert_eq!((server.side.next().status, client.side.next().status), (Status::Success, Status::Success));
}

#[test]
fn a_queue_pairs_port_closes_with_its_last_queue_pair() {
    let engine = open_over(Wire::Efe);
    let side = Side::new(&engine);
    let pairs = [side.qp(), side.qp()];
    assert_eq!(port_of(pairs[0].1), port_of(pairs[1].1));
    let open = || engine.turn.read(|board| board.core.efe_ports());
    assert_eq!(open(), 1);
    engine.destroy_qp(pairs[0].0).expect("it is there");
    assert_eq!(open(), 1);
    engine.destroy_qp(pairs[1].0).expect("it is there");
    assert_eq!(open(), 0);
}
