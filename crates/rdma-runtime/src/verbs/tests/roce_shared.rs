//! RoCEv2 through shared memory between two engines, each of which stands for a process.

use super::*;

/// An address that no other test uses: port 4791 of an address is shared.
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 78));
/// So long that a peer on a busy machine acknowledges before the retries are exhausted.
const ACK_TIMEOUT: Duration = Duration::from_millis(500);
const RETRIES: u8 = 2;

fn open(shared_memory: bool) -> Engine {
    Engine::open(Features { extensions: true, shared_memory, wire: Wire::Roce }).expect("a NIC")
}

/// Connects a queue pair of each side.
fn connect(a: &Side, b: &Side, service: Service) -> ((u32, u32), (u32, u32)) {
    let (ours, theirs) = (a.qp_at(HERE, service), b.qp_at(HERE, service));
    for (side, own, other) in [(a, ours, theirs), (b, theirs, ours)] {
        let peer = Peer { address: HERE, ..peer(other.1, 7).expect("a peer") };
        side.engine.modify_to_rtr(own.0, Some(peer)).expect("a port").expect("it is ready");
        let sending = Sending { ack_timeout: Some(ACK_TIMEOUT), retries: RETRIES, ..sending(7, 16, None) };
        side.engine.modify_to_rts(own.0, sending).expect("it is ready to receive");
    }
    (ours, theirs)
}

/// Sends a message and returns it after it has arrived and completed.
fn pass(from: (&Side, u32), to: (&Side, u32), id: u64) {
    to.0.receive(to.1, id);
    from.0.send(from.1, id, Operation::SEND, 8);
    let (got, sent) = (to.0.next(), from.0.next());
    assert_eq!((got.id, got.status), (id, Status::Success));
    assert_eq!((sent.id, sent.status), (id, Status::Success));
}

/// Passes messages until both engines have the memory.
fn share(a: (&Side, u32), b: (&Side, u32)) {
    let end = a.0.engine.turn.now() + SOON;
    while a.0.engine.in_use().shared == 0 || b.0.engine.in_use().shared == 0 {
        pass(a, b, 1);
        pass(b, a, 2);
        assert!(a.0.engine.turn.now() < end, "the two engines share memory");
    }
}

#[test]
fn two_processes_of_one_user_share_memory() {
    let (a, b) = (Side::new(&open(true)), Side::new(&open(true)));
    let (ours, theirs) = connect(&a, &b, Service::Connected);
    share((&a, ours.0), (&b, theirs.0));
    let length = 16 << 10;
    let pattern: Vec<u8> = (0..length).map(|at| (at * 7 / 3) as u8).collect();
    a.memory[..length].copy_from_slice(&pattern);
    let remote = TaggedAddress { stag: b.key, offset: b.memory.as_ptr() as u64 + (1 << 15) };
    a.send(ours.0, 3, Operation::write(remote), length as u32);
    assert_eq!((a.next().status, a.engine.state(ours.0)), (Status::Success, Ok(State::Rts)));
    assert_eq!(&b.memory[1 << 15..][..length], pattern);
    let work = SendWork::new(4, Operation::read(remote), Data::Elements(a.sges(1 << 15, length as u32)));
    a.engine.post_sends(ours.0, [work]).expect("it takes sends");
    assert_eq!(a.next().status, Status::Success);
    assert_eq!(&a.memory[1 << 15..][..length], pattern);
    // A second queue pair between the same ports uses the same link.
    let (second, other) = connect(&a, &b, Service::Connected);
    pass((&a, second.0), (&b, other.0), 5);
    assert_eq!((a.engine.in_use().shared, b.engine.in_use().shared), (1, 1));
    // The link ends with the last queue pair of the port.
    for qp in [ours.0, second.0] {
        assert_eq!(a.engine.in_use().shared, 1);
        a.engine.destroy_qp(qp).expect("it is there");
    }
    assert_eq!(a.engine.in_use().shared, 0);
}

#[test]
fn a_process_that_does_not_share_is_reached_over_udp() {
    for (one, other) in [(true, false), (false, true)] {
        let (a, b) = (Side::new(&open(one)), Side::new(&open(other)));
        let (ours, theirs) = connect(&a, &b, Service::Connected);
        for id in 0..100 {
            pass((&a, ours.0), (&b, theirs.0), id);
            pass((&b, theirs.0), (&a, ours.0), id);
        }
        assert_eq!((a.engine.in_use().shared, b.engine.in_use().shared), (0, 0));
    }
}

#[test]
fn work_for_a_process_that_has_ended_fails_when_its_retries_are_exhausted() {
    let engine = open(true);
    let a = Side::new(&engine);
    let ours = {
        let b = Side::new(&open(true));
        let (ours, theirs) = connect(&a, &b, Service::Connected);
        share((&a, ours.0), (&b, theirs.0));
        ours
    };
    assert_eq!(engine.state(ours.0), Ok(State::Rts), "nothing is lost yet");
    let begin = engine.turn.now();
    a.send(ours.0, 3, Operation::SEND, 8);
    a.send(ours.0, 4, Operation::SEND, 8);
    assert_eq!(
        [a.next(), a.next()].map(|done| (done.id, done.status)),
        [(3, Status::Lost), (4, Status::Flushed)]
    );
    assert!(engine.turn.now().since(begin) >= ACK_TIMEOUT * (u32::from(RETRIES) + 1));
    assert_eq!(engine.state(ours.0), Ok(State::Error));
    assert_eq!(engine.in_use().shared, 0);
}

#[test]
fn what_a_process_has_sent_before_it_ended_arrives() {
    const PAIRS: u64 = 6;
    // The peer may acknowledge them at once, and the sender's completion queue has 64 places.
    const WRITES: u64 = 10;
    let engine = open(true);
    let b = Side::new(&engine);
    {
        let a = Side::new(&open(true));
        a.memory[..8].fill(1);
        let (ours, theirs) = connect(&a, &b, Service::Connected);
        share((&a, ours.0), (&b, theirs.0));
        let pairs: Vec<u32> = (0..PAIRS).map(|_| connect(&a, &b, Service::Connected).0.0).collect();
        for at in 0..PAIRS * WRITES {
            let offset = b.memory.as_ptr() as u64 + at * 8;
            let remote = TaggedAddress { stag: b.key, offset };
            a.send(pairs[(at % PAIRS) as usize], at, Operation::write(remote), 8);
        }
    }
    // After each sleep, it acknowledges what it has read to a peer that is gone, and has not read all.
    b.engine.arm_cq(b.cq, Notify::Any).expect("it is there");
    let end = engine.turn.now() + SOON;
    while engine.in_use().shared > 0 {
        let _ = engine.next_event(&b.completions, Duration::from_millis(1));
        assert!(engine.turn.now() < end, "the link ends with the peer");
    }
    assert_eq!(b.memory[..(PAIRS * WRITES * 8) as usize], [1; (PAIRS * WRITES * 8) as usize]);
}

/// An unreliable queue pair does not repeat what arrives out of order, so the change from UDP to shared
/// memory must keep the order.
#[test]
fn an_unreliable_queue_pair_loses_nothing_when_the_memory_comes() {
    let (a, b) = (Side::new(&open(true)), Side::new(&open(true)));
    let (ours, theirs) = connect(&a, &b, Service::Unreliable);
    let end = a.engine.turn.now() + SOON;
    let mut id: u64 = 0;
    while a.engine.in_use().shared == 0 || b.engine.in_use().shared == 0 || !id.is_multiple_of(8) {
        b.receive(theirs.0, id);
        a.send(ours.0, id, Operation::SEND, 8);
        id += 1;
        if id.is_multiple_of(8) {
            (id - 8..id).for_each(|id| assert_eq!(b.next().id, id));
            (0..8).for_each(|_| assert_eq!(a.next().status, Status::Success));
        }
        assert!(a.engine.turn.now() < end, "the two engines share memory");
    }
}
