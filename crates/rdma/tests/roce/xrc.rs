//! Extended reliable connections: each request names a shared receive queue of the responder.

use crate::pair::{BASE, BYTES, Host, Pair, RoceTraits, arrives, is_lost, pattern, traits};
use kiban_base::Region;
use kiban_rdma::rnic::{
    Access, Data, Kind, Operation, ReceiveWork, RequestError, Rnic, SendWork, Sge, Status, TaggedAddress,
};
use kiban_rdma::wire::rdmap::Atomic;
use kiban_rdma::wire::roce::{NakCode, Opcode, Operation as Op, Service, Syndrome};

/// A shared receive queue of host 1, with a completion queue and a protection domain of its own.
struct Queue {
    pd: u32,
    cq: u32,
    srq: u32,
    /// Memory in the queue's protection domain.
    stag: u32,
}

/// A pair whose host 0 has an initiator, and host 1 a target with two queues in its domain.
struct World {
    pair: Pair,
    domain: u32,
    queues: [Queue; 2],
}

/// Creates a queue in a domain of host 1, with memory at its own place in the host's region.
fn queue(host: &mut Host, domain: u32) -> Queue {
    let pd = host.nic.create_pd().expect("room");
    let cq = host.nic.create_cq(64).expect("room");
    let srq = host.nic.create_xrc_srq(pd, (domain, cq), 64, 0).expect("room");
    let stag = host.nic.register(pd, host.memory.clone(), Access::ALL).expect("room");
    Queue { pd, cq, srq, stag }
}

impl World {
    fn new(traits: RoceTraits) -> World {
        let mut hosts = [Host::new(1, Access::ALL), Host::new(2, Access::ALL)];
        let host = &mut hosts[1];
        let domain = host.nic.open_xrc_domain().expect("room");
        let queues = [queue(host, domain), queue(host, domain)];
        host.nic.destroy_qp(host.qp).expect("an idle queue pair");
        host.qp = host.nic.create_xrc_target(domain).expect("room");
        let pair = Pair::of(hosts, RoceTraits { service: Service::Xrc, ..traits });
        World { pair, domain, queues }
    }

    /// Posts work of the initiator that names a queue.
    fn post(&mut self, id: u64, srq: u32, operation: Operation, sge: Sge) {
        let work =
            SendWork { xrc_srq: Rnic::xrc_srq_number(srq), ..SendWork::new(id, operation, Data::one(sge)) };
        let host = &mut self.pair.hosts[0];
        host.nic.post_send(host.qp, work).expect("room");
    }

    /// Posts a receive of a queue.
    fn receive(&mut self, queue: usize, id: u64, offset: u64, length: u32) {
        let Queue { srq, stag, .. } = self.queues[queue];
        let sge = Sge { stag, address: BASE + offset, length };
        let work = ReceiveWork { id, sges: [sge].into_iter().collect() };
        self.pair.hosts[1].nic.post_srq_receive(srq, work).expect("room");
    }

    /// Returns what has completed on a queue: id, status, kind, bytes.
    fn received(&mut self, queue: usize) -> Vec<(u64, Status, Kind, u32)> {
        let (nic, cq) = (&mut self.pair.hosts[1].nic, self.queues[queue].cq);
        std::iter::from_fn(|| nic.poll(cq).expect("a queue"))
            .map(|done| (done.id, done.status, done.kind, done.bytes))
            .collect()
    }

    fn remote(&self, queue: usize, offset: u64) -> TaggedAddress {
        TaggedAddress { stag: self.queues[queue].stag, offset: BASE + offset }
    }

    fn element(&self, offset: u64, length: u32) -> Sge {
        self.pair.hosts[0].element(offset, length)
    }

    /// Asserts that host 1 has answered with this NAK and that both queue pairs have failed.
    fn assert_refused(&mut self, code: NakCode, status: Status) {
        let refused = |(sender, packet, _): &(usize, kiban_rdma::wire::roce::Packet, _)| {
            *sender == 1 && packet.aeth.is_some_and(|aeth| aeth.syndrome == Syndrome::Nak(code))
        };
        assert!(self.pair.sent.iter().any(refused), "no NAK {code:?}");
        assert_eq!(self.pair.hosts[0].results().first().map(|(_, status)| *status), Some(status));
    }
}

#[test]
fn a_message_goes_to_the_queue_that_it_names() {
    let mut world = World::new(traits());
    world.pair.hosts[0].fill(0, &pattern(1, 9000));
    for (queue, id, offset) in [(0, 10, 0x1_0000), (0, 11, 0x1_4000), (1, 20, 0x2_0000)] {
        world.receive(queue, id, offset, 8192);
    }
    let srqs = [world.queues[0].srq, world.queues[1].srq];
    let sge = world.element(0, 5000);
    world.post(1, srqs[1], Operation::SEND, sge);
    let sge = world.element(5000, 3000);
    world.post(2, srqs[0], Operation::SendImmediate { data: 7 }, sge);
    let (sge, remote) = (world.element(0, 4000), world.remote(0, 0x3_0000));
    world.post(3, srqs[0], Operation::Write { remote, immediate: Some(9 << 32) }, sge);
    world.pair.run_cleanly();
    assert_eq!(
        world.pair.hosts[0].results(),
        [(1, Status::Success), (2, Status::Success), (3, Status::Success)]
    );
    assert_eq!(world.received(1), [(20, Status::Success, Kind::Receive, 5000)]);
    let expected =
        [(10, Status::Success, Kind::Receive, 3000), (11, Status::Success, Kind::ReceiveImmediate, 4000)];
    assert_eq!(world.received(0), expected);
    let host = &world.pair.hosts[1];
    assert_eq!(host.bytes(0x2_0000, 5000), pattern(1, 9000)[..5000]);
    assert_eq!(host.bytes(0x1_0000, 3000), pattern(1, 9000)[5000..8000]);
    assert_eq!(host.bytes(0x3_0000, 4000), pattern(1, 9000)[..4000]);
    let is_xrc = |(sender, packet, _): &(usize, kiban_rdma::wire::roce::Packet, _)| match packet.bth.opcode {
        Opcode::Transport(Service::Xrc, _) => packet.xrc_srq.is_some() == (*sender == 0),
        _ => false,
    };
    assert!(world.pair.sent.iter().all(is_xrc));
}

#[test]
fn keys_count_in_the_protection_domain_of_the_queue() {
    for (named, key, is_allowed) in [(0, 0, true), (1, 1, true), (0, 1, false), (1, 0, false)] {
        let fetch_add = |remote| Operation::Atomic { remote, atomic: Atomic::FetchAdd { add: 1, mask: 0 } };
        for operation in [Operation::write, Operation::read, fetch_add] {
            let mut world = World::new(traits());
            let (sge, remote, srq) =
                (world.element(0, 8), world.remote(key, 0x1000), world.queues[named].srq);
            world.post(1, srq, operation(remote), sge);
            world.pair.run_cleanly();
            if is_allowed {
                assert_eq!(world.pair.hosts[0].results(), [(1, Status::Success)]);
            } else {
                world.assert_refused(NakCode::RemoteAccess, Status::RemoteAccess);
            }
        }
    }
}

/// Two reads are outstanding at a time, with keys of different protection domains.
#[test]
fn responses_use_the_domain_of_their_own_request() {
    let mut world = World::new(traits());
    world.pair.hosts[1].fill(0, &pattern(2, 20_000));
    for (id, queue) in [(1, 0), (2, 1)] {
        let offset = 10_000 * queue as u64;
        let (sge, remote) = (world.element(offset, 10_000), world.remote(queue, offset));
        let srq = world.queues[queue].srq;
        world.post(id, srq, Operation::read(remote), sge);
    }
    world.pair.run_cleanly();
    assert_eq!(world.pair.hosts[0].results(), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(world.pair.hosts[0].bytes(0, 20_000), pattern(2, 20_000));
}

#[test]
fn a_queue_outside_the_domain_is_refused() {
    let setups: [fn(&mut World) -> u32; 4] = [
        |_| 0,
        |world| world.queues[0].srq ^ 1 << 21,
        |world| {
            let host = &mut world.pair.hosts[1];
            host.nic.create_srq(host.pd, 16, 0).expect("room")
        },
        |world| {
            let host = &mut world.pair.hosts[1];
            let other = host.nic.open_xrc_domain().expect("room");
            queue(host, other).srq
        },
    ];
    for choose in setups {
        let mut world = World::new(traits());
        world.receive(0, 10, 0, 4096);
        let srq = choose(&mut world);
        let sge = world.element(0, 100);
        world.post(1, srq, Operation::SEND, sge);
        world.pair.run_cleanly();
        world.assert_refused(NakCode::InvalidRequest, Status::RemoteRequest);
        assert_eq!(world.received(0), []);
    }
}

#[test]
fn a_message_cannot_change_its_queue() {
    let mut world = World::new(traits());
    world.receive(0, 10, 0x1_0000, 8192);
    world.receive(1, 20, 0x2_0000, 8192);
    let (sge, srqs) = (world.element(0, 3000), [world.queues[0].srq, world.queues[1].srq]);
    world.post(1, srqs[0], Operation::SEND, sge);
    world.pair.send(&mut |_, _| is_lost());
    for (sender, mut packet, payload) in std::mem::take(&mut world.pair.sent) {
        if packet.bth.opcode == Opcode::Transport(Service::Xrc, Op::SendLast) {
            packet.xrc_srq = Some(Rnic::xrc_srq_number(srqs[1]));
        }
        assert_eq!(sender, 0);
        world.pair.deliver(1, &packet, &payload);
    }
    world.pair.run_cleanly();
    world.assert_refused(NakCode::InvalidRequest, Status::RemoteRequest);
    assert_eq!(world.received(1), []);
    assert_eq!(world.received(0), [(10, Status::Flushed, Kind::Receive, 0)]);
}

#[test]
fn an_initiator_executes_no_requests() {
    let mut world = World::new(traits());
    let (sge, srq, remote) = (world.element(0, 100), world.queues[0].srq, world.pair.at(0, 0));
    world.post(1, srq, Operation::write(remote), sge);
    world.pair.send(&mut |_, _| is_lost());
    let (_, packet, _) = world.pair.sent[0].clone();
    world.pair.hosts[0].fill(0, &[0x55; 100]);
    world.pair.deliver(0, &packet, &[0xaa; 100]);
    assert_eq!(world.pair.hosts[0].bytes(0, 100), [0x55; 100]);
    assert_eq!(world.pair.hosts[0].nic.counters().packets_malformed, 1);
}

#[test]
fn a_request_waits_for_a_receive_of_its_queue() {
    let mut world = World::new(traits());
    world.receive(1, 20, 0x2_0000, 100);
    let (sge, srq) = (world.element(0, 100), world.queues[0].srq);
    world.post(1, srq, Operation::SEND, sge);
    let mut naks = 0;
    while naks == 0 {
        world.pair.send(&mut |_, _| arrives());
        let is_rnr = |aeth: &kiban_rdma::wire::roce::Aeth| matches!(aeth.syndrome, Syndrome::RnrNak(_));
        naks =
            world.pair.sent.iter().filter(|(_, packet, _)| packet.aeth.as_ref().is_some_and(is_rnr)).count();
        assert!(world.pair.step(), "no RNR NAK");
    }
    world.receive(0, 10, 0x1_0000, 100);
    world.pair.run_cleanly();
    assert_eq!(world.pair.hosts[0].results(), [(1, Status::Success)]);
    assert_eq!(world.received(0), [(10, Status::Success, Kind::Receive, 100)]);
    assert_eq!(world.received(1), []);
}

/// Losses on both ways, repaired by going back and selectively.
#[test]
fn messages_survive_losses() {
    for reorder_max in [0, 64] {
        for every in [5, 7, 11] {
            let mut world = World::new(RoceTraits { reorder_max: [reorder_max; 2], ..traits() });
            let data = pattern(every, 0x8000);
            world.pair.hosts[0].fill(0, &data);
            let srqs = [world.queues[0].srq, world.queues[1].srq];
            for n in 0..8u64 {
                let (queue, offset) = ((n % 2) as usize, n * 0x1000);
                world.receive(queue, n, 0x1_0000 + offset, 0x1000);
                let sge = world.element(offset, 0x1000);
                world.post(n, srqs[queue], Operation::SEND, sge);
            }
            let mut count = 0;
            world.pair.run(|_, _| {
                count += 1;
                if count % every == 0 { is_lost() } else { arrives() }
            });
            let context = format!("{reorder_max} kept, every {every}th lost");
            let succeeded = (0..8).map(|n| (n, Status::Success)).collect::<Vec<_>>();
            assert_eq!(world.pair.hosts[0].results(), succeeded, "{context}");
            for queue in 0..2 {
                let expected = (queue..8).step_by(2).map(|n| (n, Status::Success, Kind::Receive, 0x1000));
                assert_eq!(world.received(queue as usize), expected.collect::<Vec<_>>(), "{context}");
            }
            assert_eq!(world.pair.hosts[1].bytes(0x1_0000, 0x8000), data, "{context}");
        }
    }
}

#[test]
fn objects_that_others_use_cannot_be_destroyed() {
    let mut world = World::new(traits());
    let (domain, Queue { pd, cq, srq, .. }) = (world.domain, &world.queues[0]);
    let host = &mut world.pair.hosts[1];
    let ordinary = crate::pair::attributes(*pd, *cq);
    let with_srq = kiban_rdma::rnic::QpAttributes { srq: Some(*srq), ..ordinary };
    assert_eq!(host.nic.create_qp(with_srq), Err(RequestError::OtherKind));
    assert_eq!(host.nic.destroy_cq(*cq), Err(RequestError::InUse));
    assert_eq!(host.nic.close_xrc_domain(domain), Err(RequestError::InUse));
    for queue in &world.queues {
        host.nic.destroy_srq(queue.srq).expect("a target does not hold it");
        host.nic.destroy_cq(queue.cq).expect("unused");
    }
    assert_eq!(host.nic.close_xrc_domain(domain), Err(RequestError::InUse));
    host.nic.destroy_qp(host.qp).expect("a target");
    host.nic.close_xrc_domain(domain).expect("unused");
    assert_eq!(host.nic.create_xrc_target(domain), Err(RequestError::UnknownXrcDomain));
    for queue in &world.queues {
        let _: Vec<Region> = host.nic.deregister(queue.stag).expect("registered above");
        host.nic.destroy_pd(queue.pd).expect("unused");
    }
}

#[test]
fn a_queue_that_is_gone_is_refused_in_the_middle_of_a_message() {
    let mut world = World::new(traits());
    world.receive(0, 10, 0, BYTES as u32);
    let (sge, srq) = (world.element(0, 3000), world.queues[0].srq);
    world.post(1, srq, Operation::SEND, sge);
    world.pair.send(&mut |_, packet| match packet.bth.opcode {
        Opcode::Transport(_, Op::SendFirst) => arrives(),
        _ => is_lost(),
    });
    assert!(world.pair.step());
    world.pair.hosts[1].nic.destroy_srq(srq).expect("a target does not hold it");
    world.pair.run_cleanly();
    world.assert_refused(NakCode::InvalidRequest, Status::RemoteRequest);
}
