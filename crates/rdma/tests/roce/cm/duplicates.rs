//! Duplicates are answered from the state of the connection, as the tables of IBTA volume 1 §12.9.7 say.

use super::messages::message;
use super::pair::{Pair, accept};
use kiban_base::Instant;
use kiban_rdma::roce::cm::{CmEvent, ConnectionId};
use kiban_rdma::wire::roce::MAD_BYTES;
use kiban_rdma::wire::roce::cm::{Message, RejectReason};

type Mad = [u8; MAD_BYTES];

/// A pair of which the test carries each message by hand.
struct ByHand {
    pair: Pair,
    active: ConnectionId,
}

impl ByHand {
    /// Requests a connection. Returns the REQ as well.
    fn new() -> (ByHand, Mad) {
        let mut pair = Pair::new(5);
        let active = pair.connect();
        let mut hand = ByHand { pair, active };
        let req = hand.sent(0).expect("a REQ");
        (hand, req)
    }

    /// Returns the only MAD that a side sends, if there is one.
    fn sent(&mut self, side: usize) -> Option<Mad> {
        let mad = self.pair.sides[side].poll_transmit().map(|transmit| transmit.mad);
        assert_eq!(self.pair.sides[side].poll_transmit(), None);
        mad
    }

    /// Lets a MAD arrive. Returns the answer.
    fn deliver(&mut self, side: usize, mad: &Mad) -> Option<Mad> {
        self.pair.deliver(side, mad);
        self.sent(side)
    }

    fn passive(&mut self) -> ConnectionId {
        match self.pair.sides[1].poll_event() {
            Some(CmEvent::ConnectRequest { connection, .. }) => connection,
            other => panic!("{other:?}"),
        }
    }

    /// Lets the REQ arrive and accepts it. Returns the passive side's id and the REP.
    fn accepted(&mut self, req: &Mad) -> (ConnectionId, Mad) {
        assert_eq!(self.deliver(1, req), None);
        let passive = self.passive();
        self.pair.sides[1].accept(passive, &accept(), self.pair.now).expect("requested");
        (passive, self.sent(1).expect("a REP"))
    }

    /// Lets the REP arrive and confirms it. Returns the RTU.
    fn confirmed(&mut self, rep: &Mad) -> Mad {
        assert_eq!(self.deliver(0, rep), None);
        self.pair.sides[0].confirm(self.active, b"").expect("connected");
        self.sent(0).expect("an RTU")
    }
}

fn reason(mad: Option<Mad>) -> RejectReason {
    match message(&mad.expect("an answer")) {
        Message::Rej(rej) => rej.reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_last_message_answers_duplicates_while_a_connection_is_set_up() {
    let (mut hand, req) = ByHand::new();
    let (_, rep) = hand.accepted(&req);
    assert_eq!(hand.deliver(1, &req), Some(rep), "RepSent: the REP is lost");
    let rtu = hand.confirmed(&rep);
    assert_eq!(hand.deliver(0, &rep), Some(rtu), "Established: the RTU is lost");
    for (mad, what) in [(&rtu, "the RTU"), (&rtu, "its duplicate"), (&req, "a late REQ")] {
        assert_eq!(hand.deliver(1, mad), None, "{what}");
    }
    assert!(matches!(hand.pair.sides[1].poll_event(), Some(CmEvent::Established { .. })));
    assert_eq!(hand.pair.sides[1].poll_event(), None);
    let counters = hand.pair.sides.each_ref().map(|side| side.counters().duplicates);
    assert_eq!(counters, [1, 3]);
}

#[test]
fn an_ended_connection_answers_with_its_end() {
    let (mut hand, req) = ByHand::new();
    let (passive, rep) = hand.accepted(&req);
    let rtu = hand.confirmed(&rep);
    assert_eq!(hand.deliver(1, &rtu), None);
    hand.pair.sides[1].disconnect(passive, b"", hand.pair.now).expect("established");
    let dreq = hand.sent(1).expect("a DREQ");
    let drep = hand.deliver(0, &dreq);
    assert_eq!(hand.deliver(0, &dreq), drep, "the DREP is lost");
    assert_eq!(hand.deliver(0, &rep), None);
    assert_eq!(hand.deliver(1, &drep.expect("a DREP")), None);
    assert_eq!(hand.deliver(1, &drep.expect("a DREP")), None);
    assert_eq!(reason(hand.deliver(1, &req)), RejectReason::STALE_CONNECTION);
    assert_eq!(hand.deliver(1, &rtu), None);
}

#[test]
fn a_rejection_answers_what_it_rejects() {
    let (mut hand, req) = ByHand::new();
    let (_, rep) = hand.accepted(&req);
    assert_eq!(hand.deliver(0, &rep), None);
    hand.pair.sides[0].reject(hand.active, RejectReason::NO_QP, b"", hand.pair.now).expect("connected");
    let rej = hand.sent(0);
    assert_eq!(hand.deliver(0, &rep), rej, "the REJ is lost");
    assert_eq!(reason(rej), RejectReason::NO_QP);

    let (mut hand, req) = ByHand::new();
    assert_eq!(hand.deliver(1, &req), None);
    let passive = hand.passive();
    hand.pair.sides[1].reject(passive, RejectReason::NO_QP, b"", hand.pair.now).expect("requested");
    let rej = hand.sent(1);
    assert_eq!(hand.deliver(1, &req), rej, "the REJ is lost");
}

#[test]
fn an_rtu_after_the_timeout_is_rejected() {
    let (mut hand, req) = ByHand::new();
    let (_, rep) = hand.accepted(&req);
    let rtu = hand.confirmed(&rep);
    let side = &mut hand.pair.sides[1];
    let mut now = Instant::ZERO;
    while !matches!(side.poll_event(), Some(CmEvent::TimedOut { .. })) {
        now = side.deadline().expect("a timer");
        side.advance(now);
        while let Some(transmit) = side.poll_transmit() {
            let name = super::pair::message_name(&message(&transmit.mad));
            assert!(["REP", "REJ"].contains(&name));
        }
    }
    hand.pair.now = now;
    let rej = hand.deliver(1, &rtu);
    assert_eq!(reason(rej), RejectReason::TIMEOUT);
    assert_eq!(hand.deliver(0, &rej.expect("a REJ")), None);
    let events: Vec<_> = std::iter::from_fn(|| hand.pair.sides[0].poll_event()).collect();
    assert!(matches!(events[..], [CmEvent::Connected { .. }, CmEvent::Disconnected { .. }]), "{events:?}");
}

#[test]
fn answers_have_the_transaction_id_of_the_request() {
    let transaction = |mad: &Mad| mad[8..16].to_vec();
    let (mut hand, req) = ByHand::new();
    let (passive, rep) = hand.accepted(&req);
    let rtu = hand.confirmed(&rep);
    hand.deliver(1, &rtu);
    hand.pair.sides[1].disconnect(passive, b"", hand.pair.now).expect("established");
    let dreq = hand.sent(1).expect("a DREQ");
    let drep = hand.deliver(0, &dreq).expect("a DREP");
    assert_eq!([&rep, &rtu].map(transaction), [&req, &req].map(transaction));
    assert_eq!(transaction(&drep), transaction(&dreq));
    assert_ne!(transaction(&dreq), transaction(&req));
}
