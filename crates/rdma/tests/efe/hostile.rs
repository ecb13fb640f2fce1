//! Invalid frames: each is counted, changes nothing, and never causes a panic.

use crate::pair::{A_WHILE, DELAY, Pair, SERVICE, peer};
use crate::setup::request;
use kiban_base::ethernet::Mac;
use kiban_base::{Instant, RngKey, SimRng};
use kiban_rdma::efe::{Config, EfeCounters, Endpoint, Event, FlowNumber, Peer, ethernet};
use kiban_rdma::wire::efe::{HEADER_BYTES, Header, Kind};
use std::time::Duration;

/// The state of a flow as seen by its host.
fn state(pair: &Pair, flows: [FlowNumber; 2]) -> Vec<(usize, usize, usize)> {
    let one = |side: usize| {
        let (end, flow) = (&pair.ends[side], flows[side]);
        (end.readable(flow), end.unacknowledged(flow), end.room(flow))
    };
    vec![one(0), one(1)]
}

fn blamed(counters: &EfeCounters) -> u64 {
    let EfeCounters {
        malformed,
        no_flow,
        wrong_sender: strangers,
        acks_invalid: impossible,
        unexpected,
        duplicates: doubled,
        sent_beyond_credit: beyond_credit,
        ..
    } = counters;
    malformed + no_flow + strangers + impossible + unexpected + doubled + beyond_credit
}

/// Creates a connected pair with one segment that was lost and not yet retransmitted, and one that was
/// received but not read.
fn busy() -> (Pair, [FlowNumber; 2]) {
    let (mut pair, flows) = Pair::connected(&Config::default());
    pair.send(0, flows[0], b"waits to be read");
    pair.run(A_WHILE);
    pair.loses = Box::new(|_, _| true);
    pair.send(1, flows[1], b"is lost");
    pair.run(DELAY);
    pair.events(0);
    pair.events(1);
    (pair, flows)
}

/// Returns the header and the bytes of a frame that side 1 received from side 0.
fn genuine(pair: &Pair, kind: Kind) -> (Header, Vec<u8>) {
    let (_, header, frame) = pair
        .log
        .iter()
        .rev()
        .find(|(from, header, _)| (*from, header.kind) == (0, kind))
        .expect("there was such a frame");
    (*header, frame.clone())
}

#[test]
fn forged_frames_are_counted_by_kind_and_have_no_effect() {
    type Forge = fn(&mut Header);
    type Count = fn(&EfeCounters) -> u64;
    let strangers: Count = |counters| counters.wrong_sender;
    let impossible: Count = |counters| counters.acks_invalid;
    let beyond: Count = |counters| counters.sent_beyond_credit;
    let rows: [(&str, Kind, Forge, Count); 15] = [
        ("a key that is one off", Kind::Data, |h| h.key ^= 1, strangers),
        ("an acknowledgement with a wrong key", Kind::Ack, |h| h.key = 0, strangers),
        ("a number that nobody has", Kind::Data, |h| h.flow = 0, |c| c.no_flow),
        ("the number of an earlier flow", Kind::Data, |h| h.flow ^= 1 << 20, |c| c.no_flow),
        ("an acknowledgement of what never left", Kind::Ack, |h| h.acknowledged += 100, impossible),
        ("of half the circle away", Kind::Ack, |h| h.acknowledged ^= 1 << 31, impossible),
        ("the same with a segment", Kind::Data, |h| h.acknowledged += 2, impossible),
        ("more credit than there can be", Kind::Ack, |h| h.credit = 255, impossible),
        ("one more than there can be", Kind::Data, |h| h.credit = 65, impossible),
        ("a segment beyond the credit", Kind::Data, |h| h.sequence = h.sequence.wrapping_add(64), beyond),
        ("a segment far away", Kind::Data, |h| h.sequence = h.sequence.wrapping_add(1 << 30), beyond),
        (
            "a segment from long ago",
            Kind::Data,
            |h| h.sequence = h.sequence.wrapping_sub(1 << 30),
            |c| c.duplicates,
        ),
        ("a segment once more", Kind::Data, |_| {}, |c| c.duplicates),
        (
            "a refusal in the middle",
            Kind::Data,
            |h| (h.kind, h.payload_bytes) = (Kind::Reject, 0),
            |c| c.unexpected,
        ),
        (
            "an abort with a wrong key",
            Kind::Data,
            |h| {
                (h.kind, h.payload_bytes, h.key) = (Kind::Abort, 0, h.key.wrapping_add(1));
            },
            strangers,
        ),
    ];
    for (name, kind, forge, count) in rows {
        let (mut pair, flows) = busy();
        let (mut header, mut frame) = genuine(&pair, kind);
        forge(&mut header);
        header.write(&mut frame);
        let (before, counted) = (state(&pair, flows), count(pair.ends[1].counters()));
        let window = pair.ends[1].window(flows[1]);
        pair.ends[1].arrive(peer(0), &frame, pair.now);
        assert_eq!(count(pair.ends[1].counters()), counted + 1, "{name}");
        assert_eq!(state(&pair, flows), before, "{name}");
        assert_eq!(pair.ends[1].window(flows[1]), window, "{name}");
        assert_eq!(pair.events(1), [], "{name}");
        // The flow continues.
        pair.loses = Box::new(|_, _| false);
        pair.run(A_WHILE);
        assert_eq!(pair.read_all(0, flows[0]), [b"is lost".to_vec()], "{name}");
        assert_eq!(pair.read_all(1, flows[1]).len(), 1, "{name}");
        pair.transfer(flows, 100);
    }
}

#[test]
fn a_map_that_acknowledges_unsent_segments_is_rejected() {
    let (mut pair, flows) = busy();
    let (header, mut frame) = genuine(&pair, Kind::Ack);
    header.write(&mut frame);
    frame[HEADER_BYTES..].fill(0xff);
    let before = state(&pair, flows);
    pair.ends[1].arrive(peer(0), &frame, pair.now);
    assert_eq!((pair.ends[1].counters().acks_invalid, state(&pair, flows)), (1, before));
}

#[test]
fn a_frame_from_another_address_matches_no_flow() {
    let (mut pair, flows) = busy();
    let before = state(&pair, flows);
    let frames: Vec<_> =
        pair.log.iter().filter(|(from, ..)| *from == 0).map(|entry| entry.2.clone()).collect();
    let requests = pair.sent(0, Kind::Ask) as u64;
    for frame in &frames {
        pair.ends[1].arrive(Peer(666), frame, pair.now);
    }
    assert_eq!(pair.ends[1].counters().wrong_sender, frames.len() as u64 - requests);
    assert_eq!(state(&pair, flows), before);
    assert!(
        matches!(pair.events(1)[..], [Event::ConnectRequest { peer: Peer(666), .. }]),
        "its own request at most"
    );
}

#[test]
fn duplicates_of_all_frames_change_nothing() {
    let (mut pair, flows) = Pair::connected(&Config::default());
    pair.transfer(flows, 300);
    pair.run(A_WHILE);
    let _ = (pair.events(0), pair.events(1));
    let mut rng = SimRng::from_seed(1);
    let log = pair.log.clone();
    let before = state(&pair, flows);
    for _ in 0..2000 {
        let (from, _, frame) = &log[rng.below(log.len() as u64) as usize];
        pair.ends[1 - from].arrive(peer(*from), frame, pair.now);
    }
    assert_eq!(state(&pair, flows), before);
    assert_eq!((pair.events(0), pair.events(1)), (vec![], vec![]));
    pair.run(A_WHILE);
    pair.transfer(flows, 300);
    // After the end, there is no flow.
    for (end, flow) in pair.ends.iter_mut().zip(flows) {
        end.finish(flow).expect("open");
    }
    pair.run(Duration::from_secs(2));
    let _ = (pair.events(0), pair.events(1));
    for (from, header, frame) in log.iter().filter(|(_, header, _)| header.kind != Kind::Ask) {
        let before = pair.ends[1 - from].counters().no_flow;
        pair.ends[1 - from].arrive(peer(*from), frame, pair.now);
        assert_eq!(pair.ends[1 - from].counters().no_flow, before + 1, "{header:?}");
    }
    assert_eq!((pair.events(0), pair.events(1)), (vec![], vec![]));
}

#[test]
fn an_old_frame_is_not_accepted_by_a_later_flow() {
    let (mut pair, old) = Pair::connected(&Config::default());
    pair.transfer(old, 20);
    for (end, flow) in pair.ends.iter_mut().zip(old) {
        end.abort(flow, pair.now).expect("open");
    }
    pair.run(Duration::from_secs(2));
    let log = std::mem::take(&mut pair.log);
    let _ = (pair.events(0), pair.events(1));
    let new = pair.connect();
    let before = state(&pair, new);
    for (from, _, frame) in log.iter().filter(|(_, header, _)| header.kind != Kind::Ask) {
        pair.ends[1 - from].arrive(peer(*from), frame, pair.now);
    }
    assert_eq!(state(&pair, new), before);
    assert_eq!((pair.events(0), pair.events(1)), (vec![], vec![]));
}

#[test]
fn garbage_truncation_and_flipped_bits_are_survived() {
    for (seed, checked) in [(1, false), (2, true), (3, false), (4, true)] {
        let (mut pair, flows) = Pair::connected(&Config { checked, ..Config::default() });
        pair.transfer(flows, 50);
        pair.run(A_WHILE);
        let mut rng = SimRng::from_seed(seed);
        let log = pair.log.clone();
        let before = (blamed(pair.ends[0].counters()), blamed(pair.ends[1].counters()));
        for _ in 0..20_000 {
            let (from, _, frame) = &log[rng.below(log.len() as u64) as usize];
            let mut frame = frame.clone();
            match rng.below(3) {
                0 => frame.truncate(rng.below(frame.len() as u64) as usize),
                1 => frame.iter_mut().for_each(|byte| *byte = rng.draw() as u8),
                _ => {
                    for _ in 0..=rng.below(3) {
                        let bit = rng.below(frame.len() as u64 * 8) as usize;
                        frame[bit / 8] ^= 1 << (bit % 8);
                    }
                }
            }
            pair.ends[1 - from].arrive(peer(*from), &frame, pair.now);
        }
        assert!(blamed(pair.ends[0].counters()) > before.0 && blamed(pair.ends[1].counters()) > before.1);
        assert!(pair.ends[1].flows() <= 1 + pair.ends[1].config().asked_max);
        if checked {
            // No modified frame was accepted, so the flow is unchanged.
            pair.run(A_WHILE);
            pair.transfer(flows, 100);
        } else {
            pair.run(Duration::from_secs(10));
        }
    }
}

#[test]
fn a_lying_peer_harms_only_its_own_flow() {
    // A peer with the right key sends arbitrary frames.
    let mut rng = SimRng::from_seed(9);
    for _ in 0..20 {
        let (mut pair, honest) = Pair::connected(&Config::default());
        let lying = pair.connect();
        let template = genuine(&pair, Kind::Ack).0;
        for _ in 0..3000 {
            let kind = [Kind::Data, Kind::End, Kind::Ack, Kind::Accept, Kind::Reject][rng.below(5) as usize];
            let near = |rng: &mut SimRng, middle: u32| match rng.below(3) {
                0 => rng.draw() as u32,
                _ => middle.wrapping_add(rng.below(80) as u32).wrapping_sub(10),
            };
            let payload_bytes = match kind {
                Kind::Ack => 8,
                Kind::Data => rng.below(1473) as u16,
                Kind::Accept => 12,
                _ => 0,
            };
            let header = Header {
                kind,
                flags: rng.below(8) as u8,
                credit: rng.draw() as u8,
                payload_bytes,
                sequence: near(&mut rng, template.sequence),
                acknowledged: near(&mut rng, template.acknowledged),
                transmission: rng.below(1 << 24) as u32,
                echo: rng.below(64) as u32,
                held: rng.draw() as u16,
                ..template
            };
            let mut frame = vec![0; HEADER_BYTES + usize::from(payload_bytes)];
            header.write(&mut frame);
            frame[HEADER_BYTES..].iter_mut().for_each(|byte| *byte = rng.draw() as u8);
            pair.ends[1].arrive(peer(0), &frame, pair.now);
            let _ = pair.ends[1].send(lying[1], b"to a liar", pair.now);
            if rng.happens(0.1) {
                pair.read_all(1, lying[1]);
                pair.run(DELAY);
            }
        }
        pair.run(A_WHILE);
        pair.transfer(honest, 100);
    }
}

#[test]
fn requests_to_an_address_without_services_cost_nothing() {
    let mut end = Endpoint::new(Config::default(), RngKey::for_simulation(1));
    for n in 0..10_000 {
        end.arrive(Peer(n), &request(n as u32, 1, SERVICE), Instant::ZERO);
    }
    assert_eq!((end.flows(), end.deadline()), (0, Instant::NEVER));
    let mut room = vec![0; end.frame_bytes_max()];
    let refusals = std::iter::from_fn(|| end.fetch(&mut room, Instant::ZERO)).count();
    assert_eq!(refusals, 64, "answers have a bound");
}

#[test]
fn ethernet_frames_are_padded_and_frames_for_others_are_ignored() {
    let [own, other] = [1, 2].map(|last| Mac([2, 0, 0, 0, 0, last]));
    let now = Instant::ZERO;
    let mut ends = [1, 2].map(|seed| Endpoint::new(Config::default(), RngKey::for_simulation(seed)));
    ends[1].listen(SERVICE);
    ends[0].connect(other.into(), SERVICE, b"", now).expect("room for a flow");
    let mut room = vec![0xaa; 14 + ends[0].frame_bytes_max()];
    let length = ethernet::fetch(&mut ends[0], own, &mut room, now).expect("a request");
    assert_eq!(length, ethernet::FRAME_BYTES_MIN);
    assert_eq!(room[..14], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    assert!(room[14 + 28 + 12..60].iter().all(|byte| *byte == 0), "nothing of earlier frames leaks");
    assert!(!ethernet::arrive(&mut ends[1], own, &room[..length], now), "it is not for that address");
    assert!(ethernet::arrive(&mut ends[1], other, &room[..length], now));
    let asked = ends[1].poll();
    assert!(matches!(asked, Some(Event::ConnectRequest { peer, .. }) if peer == own.into()), "{asked:?}");
    room[12] = 8;
    assert!(!ethernet::arrive(&mut ends[1], other, &room[..length], now), "another protocol");
    assert!(!ethernet::arrive(&mut ends[1], other, &room[..13], now));
    assert_eq!(ends[1].counters().frames_in, 1);
}
