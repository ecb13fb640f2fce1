//! Out-of-band connections between queue pairs of one process: matching pairs connect, others do not.

mod datagrams;
mod efe;
mod hostile;
mod manager;
mod roce;
mod roce_shared;

use super::engine::config;
use super::*;
use kiban_base::Region;
use kiban_rdma::rnic::Config;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const QKEY: u32 = 0x1111;
/// How long to wait for what will happen, even on a busy machine.
const SOON: Duration = Duration::from_secs(60);

fn open(shared_memory: bool) -> Engine {
    Engine::open(Features { extensions: true, shared_memory, wire: Wire::Tcp }).expect("a NIC")
}

fn open_over(wire: Wire) -> Engine {
    Engine::open(Features { extensions: true, shared_memory: false, wire }).expect("a NIC")
}

/// The ways to open a NIC whose queue pairs share the semantics of this file: over shared memory, TCP, EFE.
const WAYS: [fn() -> Engine; 3] = [|| open(true), || open(false), || open_over(Wire::Efe)];

struct Side {
    engine: Engine,
    pd: u32,
    cq: u32,
    completions: Arc<Channel<u64>>,
    memory: &'static mut [u8],
    key: u32,
}

impl Side {
    fn new(engine: &Engine) -> Side {
        let engine = engine.clone();
        let completions = Arc::new(Channel::new().expect("file descriptors are available"));
        let async_events = Arc::new(Channel::new().expect("file descriptors are available"));
        let tells = CqChannels { completions: Some(completions.clone()), async_events, cookie: 7 };
        let cq = engine.create_cq(64, tells).expect("there is room");
        let pd = engine.alloc_pd().expect("there is room");
        let memory = Box::leak(vec![0u8; 1 << 16].into_boxed_slice());
        // SAFETY: the memory is leaked, so it outlives the region; tests access it only when the NIC is done
        // with it.
        let region =
            unsafe { Region::foreign(NonNull::new(memory.as_mut_ptr()).expect("memory"), 1 << 16, None) };
        let key = engine.reg_mr(pd, region, memory.as_ptr() as u64, Access::ALL).expect("there is room");
        Side { engine, pd, cq, completions, memory, key }
    }

    fn qp(&self) -> (u32, u32) {
        self.qp_for(Service::Connected)
    }

    fn qp_for(&self, service: Service) -> (u32, u32) {
        self.qp_at(HOME, service)
    }

    fn qp_at(&self, address: IpAddr, service: Service) -> (u32, u32) {
        let attributes = QpAttributes {
            pd: self.pd,
            send_cq: self.cq,
            receive_cq: self.cq,
            srq: None,
            send_work_max: 16,
            receive_work_max: 16,
            send_sges_max: 4,
            receive_sges_max: 4,
            inline_bytes_max: 64,
            signal_all: true,
            waits_for_receives: true,
        };
        let async_events = Arc::new(Channel::new().expect("file descriptors are available"));
        let made = QueuePair { address, service, attributes, async_events, cookie: 1 };
        let made = self.engine.create_qp(made).expect("the loopback is there").expect("there is room");
        self.engine.modify_to_init(made.0, QKEY).expect("it is new");
        made
    }

    fn sges(&self, at: usize, length: u32) -> Sges {
        let address = self.memory.as_ptr() as u64 + at as u64;
        [Sge { stag: self.key, address, length }].into_iter().collect()
    }

    /// Returns the next completion, sleeping like an event-driven program.
    fn next(&self) -> Completion {
        loop {
            let mut found = None;
            self.engine
                .poll_cq(self.cq, 1, false, |completion| found = Some(completion))
                .expect("it is there");
            if let Some(found) = found {
                return found;
            }
            self.engine.arm_cq(self.cq, Notify::Any).expect("it is there");
            self.engine
                .poll_cq(self.cq, 1, false, |completion| found = Some(completion))
                .expect("it is there");
            if let Some(found) = found {
                return found;
            }
            assert_eq!(self.engine.next_event(&self.completions, SOON).expect("in time"), 7);
        }
    }

    fn send(&self, qp: u32, id: u64, operation: Operation, length: u32) {
        let work = SendWork::new(id, operation, Data::Elements(self.sges(0, length)));
        self.engine.post_sends(qp, [work]).expect("it takes sends");
    }

    fn receive(&self, qp: u32, id: u64) {
        let work = ReceiveWork { id, sges: self.sges(4096, 4096) };
        self.engine.post_receives(qp, [work]).expect("it takes receives");
    }
}

fn peer(qpn: u32, begins: u32) -> Option<Peer> {
    Some(Peer { address: HOME, qpn, initial_psn: begins, reads: 16, path_mtu: 1024, rnr_timer: 12 })
}

fn sending(initial_psn: u32, reads: u16, connect_timeout: Option<Duration>) -> Sending {
    let ack_timeout = Some(Duration::from_millis(50));
    Sending { initial_psn, reads, connect_timeout, ack_timeout, retries: 7, rnr_retries: 7 }
}

/// The time to wait for a queue pair that will connect even on a busy machine, and for one that will not.
const PATIENCE: Option<Duration> = Some(SOON);
const IMPATIENCE: Option<Duration> = Some(Duration::from_millis(300));

/// Creates two queue pairs and connects them, unless `psn_given_to_b` is wrong.
fn meet(a: &Side, b: &Side, psn_given_to_b: u32) -> ((u32, u32), (u32, u32)) {
    let patience = if psn_given_to_b == 11 { PATIENCE } else { IMPATIENCE };
    let (ours, theirs) = (a.qp(), b.qp());
    for id in 0..4 {
        a.receive(ours.0, 100 + id);
        b.receive(theirs.0, 100 + id);
    }
    a.engine.modify_to_rtr(ours.0, peer(theirs.1, 22)).expect("a port").expect("it is ready");
    a.engine.modify_to_rts(ours.0, sending(11, 16, patience)).expect("it is ready to receive");
    b.engine.modify_to_rtr(theirs.0, peer(ours.1, psn_given_to_b)).expect("a port").expect("it is ready");
    b.engine.modify_to_rts(theirs.0, sending(22, 16, patience)).expect("it is ready to receive");
    (ours, theirs)
}

#[test]
fn unidentified_callers_use_at_most_a_quarter_of_the_descriptors() {
    let default = Config::default().waiting_max;
    for (files, waiting) in [(1024, 256), (usize::MAX, default), (0, 0)] {
        assert_eq!(config(files).waiting_max, waiting);
    }
}

#[test]
fn a_quiet_connection_is_served_beside_a_busy_one() {
    let (engine, other) = (open(false), open(false));
    let (a, b) = (Side::new(&engine), Side::new(&other));
    let (busy, quiet) = (meet(&a, &b, 11), meet(&a, &b, 11));
    // Both sides poll, so no thread sleeps and no helper thread has to drive.
    let looked = |side: &Side| {
        let mut found = None;
        let end = side.engine.turn.now() + SOON;
        while found.is_none() {
            side.engine
                .poll_cq(side.cq, 1, false, |completion| found = Some(completion))
                .expect("it is there");
            assert!(side.engine.turn.now() < end, "nothing came");
        }
        found
    };
    for (first, second) in [(busy, quiet), (quiet, busy)] {
        for id in 0..100 {
            a.send(first.0.0, id, Operation::SEND, 8);
            assert_eq!(looked(&a).map(|sent| sent.id), Some(id));
            assert_eq!(looked(&b).map(|got| got.qp), Some(first.1.1));
            b.receive(first.1.0, id);
        }
        a.send(second.0.0, 7, Operation::SEND, 8);
        assert_eq!(looked(&a).map(|sent| sent.qp), Some(second.0.1));
        assert_eq!(looked(&b).map(|got| got.qp), Some(second.1.1));
    }
}

#[test]
fn queue_pairs_connect_out_of_band() {
    // Let either side be the one that connects.
    for swap in [false, true] {
        let engine = open(true);
        let other = if swap { engine.clone() } else { open(true) };
        let (a, b) = (Side::new(&engine), Side::new(&other));
        a.memory[..5].copy_from_slice(b"hello");
        let (ours, theirs) = meet(&a, &b, 11);
        a.send(ours.0, 1, Operation::SendImmediate { data: 0xfeed }, 5);
        let got = b.next();
        assert!(other.in_use().shared > 0, "one host, one user: no TCP");
        assert_eq!((got.status, got.id, got.bytes, got.qp), (Status::Success, 100, 5, theirs.1));
        assert_eq!(got.immediate, Some(0xfeed));
        assert_eq!(&b.memory[4096..4101], b"hello");
        let sent = a.next();
        assert_eq!((sent.status, sent.id, sent.qp), (Status::Success, 1, ours.1));
        b.memory[..3].copy_from_slice(b"yes");
        let remote = TaggedAddress { stag: a.key, offset: a.memory.as_ptr() as u64 + 9000 };
        b.send(theirs.0, 2, Operation::write(remote), 3);
        b.send(theirs.0, 3, Operation::SEND, 0);
        while a.next().bytes != 0 {}
        assert_eq!(&a.memory[9000..9003], b"yes");
    }
}

/// A host usually has an IPv4 and an IPv6 address. Programs that use all devices connect each with each.
#[test]
fn queue_pairs_at_addresses_of_two_families_connect() {
    for shared_memory in [true, false] {
        let (a, b) = (Side::new(&open(shared_memory)), Side::new(&open(shared_memory)));
        let other = IpAddr::from(Ipv6Addr::LOCALHOST);
        let (ours, theirs) = (a.qp_at(other, Service::Connected), b.qp());
        b.receive(theirs.0, 100);
        let at = |address, found: Option<Peer>| found.map(|found| Peer { address, ..found });
        for (side, qp, peer, initial_psn) in
            [(&a, ours.0, peer(theirs.1, 22), 11), (&b, theirs.0, at(other, peer(ours.1, 11)), 22)]
        {
            side.engine.modify_to_rtr(qp, peer).expect("a port").expect("it is ready");
            side.engine
                .modify_to_rts(qp, sending(initial_psn, 16, PATIENCE))
                .expect("it is ready to receive");
        }
        a.send(ours.0, 1, Operation::SEND, 5);
        assert_eq!((b.next().status, a.next().status), (Status::Success, Status::Success));
    }
}

#[test]
fn a_queue_pair_can_connect_to_itself() {
    for open in WAYS {
        let engine = open();
        let side = Side::new(&engine);
        side.memory[..5].copy_from_slice(b"hello");
        let (qp, qpn) = side.qp();
        side.receive(qp, 100);
        side.receive(qp, 101);
        engine.modify_to_rtr(qp, peer(qpn, 11)).expect("a port").expect("it is ready");
        engine.modify_to_rts(qp, sending(11, 16, PATIENCE)).expect("it is ready to receive");
        side.send(qp, 1, Operation::SEND, 5);
        let mut completions = [side.next(), side.next()].map(|one| (one.id, one.status, one.qp));
        completions.sort_unstable_by_key(|one| one.0);
        assert_eq!(completions, [(1, Status::Success, qpn), (100, Status::Success, qpn)]);
        assert_eq!(&side.memory[4096..4101], b"hello");
        let remote = TaggedAddress { stag: side.key, offset: side.memory.as_ptr() as u64 + 9000 };
        side.send(qp, 2, Operation::write(remote), 5);
        assert_eq!((side.next().id, engine.state(qp)), (2, Ok(State::Rts)));
        engine.modify_to_error(qp).expect("it is there");
        // A receive and a send are flushed.
        side.send(qp, 3, Operation::SEND, 5);
        let mut flushed = [side.next(), side.next()].map(|one| (one.id, one.status));
        flushed.sort_unstable_by_key(|one| one.0);
        assert_eq!(flushed, [(3, Status::Flushed), (101, Status::Flushed)]);
        engine.destroy_qp(qp).expect("it is there");
        assert_eq!(engine.in_use().queue_pairs, 0);
    }
}

/// Fills a completion queue with two completions of work that succeeded and three of flushed work, and passes
/// it to `poll`.
fn with_flushed_work(poll: impl FnOnce(&Engine, u32)) {
    let engine = open(true);
    let (side, other) = (Side::new(&engine), Side::new(&engine));
    let [(qp, _), (busy, _)] = [&side, &other].map(|side| {
        let (qp, qpn) = side.qp();
        (0..4).for_each(|id| side.receive(qp, 100 + id));
        engine.modify_to_rtr(qp, peer(qpn, 11)).expect("a port").expect("it is ready");
        engine.modify_to_rts(qp, sending(11, 16, PATIENCE)).expect("it is ready to receive");
        (qp, qpn)
    });
    side.send(qp, 1, Operation::SEND, 5);
    // While another queue pair is polled, both completions arrive.
    for id in 0..4 {
        other.send(busy, id, Operation::SEND, 5);
        assert_eq!([other.next().status, other.next().status], [Status::Success; 2]);
    }
    engine.modify_to_error(qp).expect("it is there");
    poll(&engine, side.cq);
}

#[test]
fn flushed_work_is_not_polled_together_with_what_completed_before() {
    with_flushed_work(|engine, cq| {
        let mut batches = Vec::new();
        while batches.iter().map(Vec::len).sum::<usize>() < 5 {
            let mut batch = Vec::new();
            engine.poll_cq(cq, 8, false, |one| batch.push(one.status)).expect("it is there");
            batches.push(batch);
        }
        batches.retain(|batch| !batch.is_empty());
        assert_eq!(batches, [vec![Status::Success; 2], vec![Status::Flushed; 3]]);
    });
}

#[test]
fn flushed_work_does_not_follow_what_was_polled_before_in_a_batch() {
    with_flushed_work(|engine, cq| {
        let next = |follows| {
            let mut status = None;
            engine.poll_cq(cq, 1, follows, |one| status = Some(one.status)).expect("it is there");
            status
        };
        let first = std::iter::repeat_with(|| next(false)).find_map(|status| status);
        assert_eq!([first, next(true), next(true)], [Some(Status::Success), Some(Status::Success), None]);
        assert_eq!([next(false), next(false)], [Some(Status::Flushed); 2]);
    });
}

#[test]
fn a_wrong_number_ends_in_an_error() {
    for open in WAYS {
        let engine = open();
        let (a, b) = (Side::new(&engine), Side::new(&engine));
        let (ours, _) = meet(&a, &b, 12);
        a.send(ours.0, 1, Operation::SEND, 5);
        let lost = a.next();
        assert_eq!((lost.id, lost.status), (1, Status::Lost));
        assert_eq!(a.next().status, Status::Flushed);
        assert_eq!(engine.state(ours.0), Ok(State::Error));
    }
}

#[test]
fn a_message_arrives_even_if_its_queue_pair_is_destroyed_at_once() {
    for open in WAYS {
        let engine = open();
        let (a, b) = (Side::new(&engine), Side::new(&engine));
        a.memory[..5].copy_from_slice(b"hello");
        let (ours, theirs) = meet(&a, &b, 11);
        a.send(ours.0, 1, Operation::SEND, 5);
        assert_eq!(a.next().status, Status::Success);
        engine.destroy_qp(ours.0).expect("it is there");
        let got = b.next();
        assert_eq!((got.status, got.bytes), (Status::Success, 5));
        // The queue pair does not notice the close until it sends.
        while engine.in_use().streams > 0 {
            assert_eq!(engine.poll_cq(b.cq, 1, false, |_| {}), Ok(0));
        }
        assert_eq!(engine.state(theirs.0), Ok(State::Rts));
        assert_eq!(engine.poll_cq(b.cq, 1, false, |_| {}), Ok(0));
        b.send(theirs.0, 2, Operation::SEND, 1);
        let lost = b.next();
        assert_eq!((lost.id, lost.status), (2, Status::Lost));
        engine.destroy_qp(theirs.0).expect("it is there");
    }
}

#[test]
fn work_for_a_vanished_peer_fails_after_other_completions() {
    for open in WAYS {
        let (engine, other) = (open(), open());
        let (a, b) = (Side::new(&engine), Side::new(&other));
        let [(gone, left), (goes_on, receiver)] = [(); 2].map(|()| meet(&a, &b, 11));
        // The peer accepts four messages, and leaves before it posts a receive for the fifth.
        (0..5).for_each(|id| b.send(left.0, id, Operation::SEND, 1));
        (0..4).for_each(|id| assert_eq!((b.next().id, a.next().status), (id, Status::Success)));
        engine.destroy_qp(gone.0).expect("it is there");
        while other.in_use().streams > 1 {
            assert_eq!(other.poll_cq(b.cq, 1, false, |_| {}), Ok(0));
        }
        b.send(left.0, 5, Operation::SEND, 1);
        a.send(goes_on.0, 6, Operation::SEND, 1);
        let done = b.next();
        assert_eq!((done.qp, done.id, done.status), (receiver.1, 100, Status::Success));
        let ends: Vec<_> = (0..2).map(|_| b.next()).map(|end| (end.id, end.status)).collect();
        assert_eq!(ends, [(4, Status::Lost), (5, Status::Flushed)]);
        assert_eq!(other.state(left.0), Ok(State::Error));
    }
}

#[test]
fn a_waiting_receiver_learns_that_its_peer_was_killed() {
    for open in WAYS {
        let (engine, other) = (open(), open());
        let (a, b) = (Side::new(&engine), Side::new(&other));
        let (ours, _) = meet(&a, &b, 11);
        a.send(ours.0, 1, Operation::SEND, 5);
        assert_eq!((a.next().status, b.next().status), (Status::Success, Status::Success));
        // Close everything without sending a message, as the system does for a killed program.
        drop((b, other));
        assert_eq!((a.next().status, engine.state(ours.0)), (Status::Flushed, Ok(State::Error)));
        engine.destroy_qp(ours.0).expect("it is there");
    }
}

#[test]
fn datagrams_are_addressed_by_gid_qpn_and_qkey() {
    let engine = open(true);
    let (a, b) = (Side::new(&engine), Side::new(&open(true)));
    let (ours, theirs) = (a.qp_for(Service::Datagrams), b.qp_for(Service::Datagrams));
    for (side, qp) in [(&a, ours.0), (&b, theirs.0)] {
        side.receive(qp, 100);
        side.engine.modify_to_rtr(qp, None).expect("a port").expect("it is ready");
        side.engine.modify_to_rts(qp, sending(0, 0, None)).expect("it is ready to receive");
    }
    a.memory[..5].copy_from_slice(b"hello");
    let gid = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
    let to = |qkey, immediate| Operation::Datagram { gid, qp: theirs.1, qkey, immediate };
    a.send(ours.0, 1, to(QKEY + 1, None), 4);
    a.send(ours.0, 2, to(QKEY, Some(9)), 5);
    assert_eq!((a.next().id, a.next().id), (1, 2));
    let got = b.next();
    assert_eq!((got.status, got.bytes, got.immediate), (Status::Success, 45, Some(9)));
    assert_eq!((got.qp, got.source), (theirs.1, Some(ours.1)));
    assert_eq!(&b.memory[4096 + 40..4096 + 45], b"hello");
    assert_eq!(b.memory[4096 + 8..4096 + 24], gid);
    for (side, qp) in [(&a, ours.0), (&b, theirs.0)] {
        side.engine.destroy_qp(qp).expect("it is there");
    }
}

/// Connects two queue pairs of a service.
fn meet_as(a: &Side, b: &Side, service: Service) -> (u32, u32) {
    let (ours, theirs) = (a.qp_for(service), b.qp_for(service));
    for (side, qp, other, begins, expects) in [(a, ours.0, theirs.1, 11, 22), (b, theirs.0, ours.1, 22, 11)] {
        side.engine.modify_to_rtr(qp, peer(other, expects)).expect("a port").expect("it is ready");
        side.engine.modify_to_rts(qp, sending(begins, 16, PATIENCE)).expect("it is ready to receive");
    }
    (ours.0, theirs.0)
}

#[test]
fn a_completed_write_is_visible_in_the_targets_memory() {
    for open in WAYS {
        let other = open();
        let (a, b) = (Side::new(&open()), Side::new(&other));
        let (ours, _) = meet_as(&a, &b, Service::Connected);
        let remote = TaggedAddress { stag: b.key, offset: b.memory.as_ptr() as u64 + 1000 };
        for round in 1..=100 {
            a.memory[..4096].fill(round);
            a.send(ours, round.into(), Operation::write(remote), 4096);
            let done = a.next();
            assert_eq!((done.id, done.status), (round.into(), Status::Success));
            assert!(b.memory[1000..5096].iter().all(|byte| *byte == round), "round {round}");
        }
    }
}

#[test]
fn a_send_completes_when_a_receive_has_consumed_it() {
    for open in WAYS {
        let engine = open();
        let (a, b) = (Side::new(&engine), Side::new(&engine));
        let (ours, theirs) = meet_as(&a, &b, Service::Connected);
        let remote = TaggedAddress { stag: b.key, offset: b.memory.as_ptr() as u64 };
        a.send(ours, 1, Operation::write(remote), 8);
        a.send(ours, 2, Operation::SEND, 8);
        assert_eq!(a.next().id, 1);
        let none = |side: &Side| side.engine.poll_cq(side.cq, 1, false, |_| ()).expect("it is there") == 0;
        assert!(none(&a) && none(&b), "no receive is posted");
        b.receive(theirs, 3);
        assert_eq!((a.next().id, b.next().id), (2, 3));
    }
}

#[test]
fn a_request_the_peer_denies_completes_with_a_remote_error() {
    let allowed = |open: fn() -> Engine, access: Access| {
        let engine = open();
        let (a, b) = (Side::new(&engine), Side::new(&engine));
        let (ours, theirs) = meet_as(&a, &b, Service::Connected);
        b.engine.set_remote_access(theirs, access).expect("it is there");
        let remote = TaggedAddress { stag: b.key, offset: b.memory.as_ptr() as u64 };
        a.send(ours, 1, Operation::write(remote), 8);
        let done = a.next();
        assert_eq!(done.id, 1);
        // No flushed completion may be left for a later queue pair.
        engine.reset(ours).expect("it is there");
        assert_eq!(engine.poll_cq(a.cq, 1, false, |_| ()), Ok(0));
        done.status
    };
    for open in WAYS {
        assert_eq!(allowed(open, Access { remote_write: true, ..Access::default() }), Status::Success);
        assert_eq!(allowed(open, Access { remote_read: true, ..Access::default() }), Status::RemoteAccess);
    }
}

#[test]
fn destroying_a_queue_pair_discards_its_completions() {
    let engine = open(true);
    let side = Side::new(&engine);
    for destroys in [false, true] {
        let (gone, stays) = (side.qp().0, side.qp().0);
        for qp in [gone, stays] {
            side.receive(qp, u64::from(qp == stays));
            engine.modify_to_error(qp).expect("it is there");
        }
        if destroys {
            engine.destroy_qp(gone).expect("it is there");
        } else {
            engine.reset(gone).expect("it is there");
        }
        let mut found = Vec::new();
        engine
            .poll_cq(side.cq, 4, false, |completions| found.push((completions.id, completions.status)))
            .expect("it is there");
        assert_eq!(found, [(1, Status::Flushed)]);
    }
}

#[test]
fn unreliable_queue_pairs_send_and_write() {
    for open in WAYS {
        let engine = open();
        let (a, b) = (Side::new(&engine), Side::new(&engine));
        let (ours, theirs) = meet_as(&a, &b, Service::Unreliable);
        a.memory[..2].copy_from_slice(b"uc");
        let remote = TaggedAddress { stag: b.key, offset: b.memory.as_ptr() as u64 + 9000 };
        a.send(ours, 1, Operation::write(remote), 2);
        // An unreliable send completes when it has been sent, whether or not a receive is posted.
        a.send(ours, 2, Operation::SEND, 2);
        assert_eq!((a.next().id, a.next().id), (1, 2));
        b.receive(theirs, 3);
        assert_eq!(b.next().id, 3);
        assert_eq!((&b.memory[4096..4098], &b.memory[9000..9002]), (&b"uc"[..], &b"uc"[..]));
    }
}

#[test]
fn reregistering_a_region_changes_what_its_key_names() {
    let engine = open(true);
    let (a, b) = (Side::new(&engine), Side::new(&engine));
    let (ours, _) = meet_as(&a, &b, Service::Connected);
    let keys = engine.in_use().keys;
    let start = NonNull::new(b.memory.as_mut_ptr()).expect("memory");
    // SAFETY: the memory is leaked, so it outlives the region; the test accesses it only when the NIC is done
    // with it.
    let region = unsafe { Region::foreign(start, 64, None) }.with_address(5000);
    let only_read = Access { remote_read: true, ..Access::default() };
    engine.rereg_mr(b.key, b.pd, region.clone(), 5000, only_read).expect("no window refers to it");
    assert_eq!(engine.in_use().keys, keys);
    b.memory[..4].copy_from_slice(b"read");
    a.send(ours, 1, Operation::read(TaggedAddress { stag: b.key, offset: 5000 }), 4);
    assert_eq!((a.next().status, &a.memory[..4]), (Status::Success, &b"read"[..]));
    a.send(ours, 2, Operation::write(TaggedAddress { stag: b.key, offset: 5000 }), 4);
    assert_eq!(a.next().status, Status::RemoteAccess);
    assert_eq!(engine.rereg_mr(b.key ^ 1, b.pd, region, 5000, only_read), Err(RequestError::UnknownStag));
    assert_eq!(engine.in_use().keys, keys);
}
