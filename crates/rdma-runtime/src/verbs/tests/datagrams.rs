//! Datagrams to multicast groups over RoCEv2.

use super::*;
use kiban_rdma::wire::roce::MULTICAST_QPN;
use std::io;
use std::net::Ipv6Addr;

/// Addresses and groups that no other test uses.
const SENDER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 78));
const RECEIVER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 79));
const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 77, 2, 1));
const OTHER_GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 77, 2, 2));

fn open() -> Engine {
    Engine::open(Features { extensions: true, shared_memory: false, wire: Wire::Roce }).expect("a NIC")
}

/// Returns a datagram queue pair that sends and receives.
fn ready(side: &Side, address: IpAddr, receives: u64) -> (u32, u32) {
    let made = side.qp_at(address, Service::Datagrams);
    (0..receives).for_each(|number| side.receive(made.0, 100 + number));
    side.engine.modify_to_rtr(made.0, None).expect("a port").expect("it is ready");
    side.engine.modify_to_rts(made.0, sending(0, 0, None)).expect("it is ready to receive");
    made
}

fn to(group: IpAddr, qpn: u32) -> Operation {
    Operation::Datagram { gid: gid(group), qp: qpn, qkey: QKEY, immediate: Some(7) }
}

#[test]
fn every_attached_queue_pair_of_every_process_receives_a_copy() {
    let (sender, near, far) = (Side::new(&open()), Side::new(&open()), Side::new(&open()));
    let (ours, own_qpn) = ready(&sender, SENDER, 1);
    // Two at one address, and one of another process at the sender's address.
    let theirs = [(&near, RECEIVER), (&near, RECEIVER), (&far, SENDER)]
        .map(|(side, address)| (side, ready(side, address, 2).0));
    let (idle, _) = ready(&near, RECEIVER, 1);
    near.engine.attach(idle, gid(OTHER_GROUP)).expect("it can join");
    for (side, qp) in theirs {
        side.engine.attach(qp, gid(GROUP)).expect("it can join");
        side.engine.attach(qp, gid(GROUP)).expect("it is attached");
    }
    sender.engine.attach(ours, gid(GROUP)).expect("it can join");
    sender.memory[..5].copy_from_slice(b"hello");
    // Only the number of all groups is received.
    sender.send(ours, 1, to(GROUP, own_qpn), 4);
    sender.send(ours, 2, to(GROUP, MULTICAST_QPN), 5);
    let mut sent = [(); 3].map(|()| sender.next()).map(|done| (done.id, done.status, done.bytes));
    sent.sort_unstable_by_key(|done| done.0);
    // As with rdma_rxe, the sender is a member like the others.
    assert_eq!([sent[0].0, sent[1].0], [1, 2]);
    assert_eq!(sent[2], (100, Status::Success, 45));
    for (side, copies) in [(&near, 2), (&far, 1)] {
        for _ in 0..copies {
            let got = side.next();
            assert_eq!((got.status, got.bytes, got.immediate), (Status::Success, 45, Some(7)));
            assert_eq!(got.source, Some(own_qpn));
        }
        assert_eq!(side.memory[4096 + 8..][..16], gid(SENDER));
        assert_eq!(side.memory[4096 + 24..][..16], gid(GROUP));
        assert_eq!(&side.memory[4096 + 40..][..5], b"hello");
    }
    // One that has left receives nothing more, and the others do.
    let (_, left) = theirs[0];
    near.engine.detach(left, gid(GROUP)).expect("it was attached");
    sender.send(ours, 3, to(GROUP, MULTICAST_QPN), 5);
    far.next();
    let stayed = near.next();
    assert_eq!((stayed.id, near.engine.poll_cq(near.cq, 1, false, |_| {})), (101, Ok(0)));
}

#[test]
fn only_datagram_queue_pairs_join_groups_of_their_family() {
    let side = Side::new(&open());
    let (datagrams, _) = ready(&side, SENDER, 0);
    let (connected, _) = side.qp_at(SENDER, Service::Connected);
    let kind = |joined: io::Result<()>| joined.map_err(|error| error.kind());
    let invalid = Err(io::ErrorKind::InvalidInput);
    let other_family = "ff15::77".parse::<Ipv6Addr>().expect("an address");
    for (qp, gid) in [
        (connected, gid(GROUP)),
        (datagrams, gid(SENDER)),
        (datagrams, gid(other_family.into())),
        (1 << 20, gid(GROUP)),
    ] {
        assert_eq!(kind(side.engine.attach(qp, gid)), invalid);
        assert_eq!(kind(side.engine.detach(qp, gid)), invalid);
    }
    side.engine.attach(datagrams, gid(GROUP)).expect("it can join");
    assert_eq!(side.engine.destroy_qp(datagrams), Err(RequestError::InUse));
    assert_eq!(kind(side.engine.detach(datagrams, gid(OTHER_GROUP))), invalid);
    side.engine.detach(datagrams, gid(GROUP)).expect("it was attached");
    assert_eq!(kind(side.engine.detach(datagrams, gid(GROUP))), invalid);
    side.engine.destroy_qp(datagrams).expect("it is in no group");
    let without =
        Engine::open(Features { extensions: true, shared_memory: false, wire: Wire::Tcp }).expect("a NIC");
    assert_eq!(kind(without.attach(0, gid(GROUP))), Err(io::ErrorKind::Unsupported));
}
