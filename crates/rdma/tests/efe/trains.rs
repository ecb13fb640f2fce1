//! Trains of frames for links that send several with one call, and windows of more than 64 frames.

use crate::pair::{A_WHILE, DELAY, Pair, SERVICE, peer};
use kiban_base::{Instant, RngKey};
use kiban_rdma::efe::{Config, Endpoint, FlowNumber, Padding, TrainLimits};
use kiban_rdma::wire::efe::{Header, Kind};
use std::time::Duration;

const LIMITS: TrainLimits = TrainLimits { frames: 32, bytes: 40_000, waits_for: 0, padding: Padding::Local };

/// Fixed windows of 128 frames, so that only credit and trains decide.
fn wide() -> Config {
    let queue_delay_max = Duration::from_secs(3600);
    Config { window_frames: 128, backlog_frames: 1000, queue_delay_max, ..Config::default() }
}

/// Returns what an endpoint sends now, as trains of headers with the lengths of their frames.
fn trains(end: &mut Endpoint, limits: &TrainLimits, now: Instant) -> Vec<Vec<(Header, Vec<u8>)>> {
    let mut room = vec![0; end.frame_bytes_max()];
    let mut all = Vec::new();
    while let Some(train) = end.fetch_train(&mut room, limits, now) {
        assert_eq!(train.peer, peer(1));
        assert!(train.bytes.len() <= limits.bytes);
        let parse = |frame: &[u8]| (Header::read(frame).expect("well formed").0, frame.to_vec());
        let frames: Vec<_> = train.bytes.chunks(train.each).map(parse).collect();
        assert!(frames.len() <= limits.frames);
        all.push(frames);
    }
    all
}

/// Connects two endpoints, and opens the congestion window of the first.
fn opened(config: &Config) -> (Pair, [FlowNumber; 2]) {
    let (mut pair, flows) = Pair::connected(config);
    pair.transfer(flows, 2000);
    let window = pair.ends[0].window(flows[0]).expect("connected").0;
    assert!(window > 100.0, "{window}");
    pair.run(A_WHILE);
    for side in 0..2 {
        let _ = pair.events(side);
    }
    (pair, flows)
}

#[test]
fn full_frames_form_trains_and_arrive_without_a_copy() {
    for checked in [false, true] {
        for padding in [Padding::Local, Padding::Always] {
            let (mut pair, flows) = opened(&Config { checked, segment_bytes: 1000, ..wide() });
            // The ring has 128 slots, of which the next is number 2000 % 128 = 80 (from a random start).
            let lengths: Vec<usize> =
                (0..100).map(|number| if number % 10 == 9 { 300 } else { 1000 }).collect();
            for (number, length) in lengths.iter().enumerate() {
                pair.send(0, flows[0], &vec![number as u8; *length]);
            }
            let sent = trains(&mut pair.ends[0], &TrainLimits { padding, ..LIMITS }, pair.now);
            let count: usize = sent.iter().map(Vec::len).sum();
            assert_eq!(count, 100);
            // A short frame ends a train unless it may be padded. The ring's end divides one more.
            let fewest = if padding == Padding::Always { 4 } else { 10 };
            assert!((fewest..=fewest + 1).contains(&sent.len()), "{} trains", sent.len());
            let mut taken = Vec::new();
            for (_, frame) in sent.iter().flatten() {
                pair.ends[1].arrive_with(peer(0), frame, pair.now, |flow, segment| {
                    assert_eq!(flow, flows[1]);
                    taken.push(segment.to_vec());
                    true
                });
            }
            let expected: Vec<_> =
                lengths.iter().enumerate().map(|(n, length)| vec![n as u8; *length]).collect();
            assert_eq!(taken, expected, "{checked} {padding:?}");
            assert_eq!((pair.ends[1].readable(flows[1]), pair.events(1)), (0, Vec::new()));
            pair.run(A_WHILE);
            assert_eq!(pair.ends[0].unacknowledged(flows[0]), 0);
            pair.transfer(flows, 500);
        }
    }
}

#[test]
fn a_segment_is_offered_only_if_it_is_the_next_one_for_the_host() {
    let (mut pair, flows) = opened(&wide());
    (0..6u8).for_each(|number| pair.send(0, flows[0], &[number]));
    let sent: Vec<_> = trains(&mut pair.ends[0], &LIMITS, pair.now).into_iter().flatten().collect();
    // Rows: the frame that arrives, whether the host takes it, and what it was offered.
    let rows = [
        (0, true, Some(0)),
        (2, true, None), // 1 is missing
        (1, true, None), // and now 2 waits
        (3, true, None),
    ];
    let arrive = |pair: &mut Pair, at: usize, takes: bool| {
        let mut offered = None;
        let frame: &(Header, Vec<u8>) = &sent[at];
        pair.ends[1].arrive_with(peer(0), &frame.1, pair.now, |_, segment| {
            offered = Some(segment[0]);
            takes
        });
        offered
    };
    for (at, takes, expected) in rows {
        assert_eq!(arrive(&mut pair, at, takes), expected, "frame {at}");
    }
    assert_eq!(pair.read_all(1, flows[1]), [[1], [2], [3]]);
    // What the host does not take waits, and so does everything behind it.
    assert_eq!(arrive(&mut pair, 4, false), Some(4));
    assert_eq!(arrive(&mut pair, 5, true), None);
    assert_eq!(pair.read_all(1, flows[1]), [[4], [5]]);
}

#[test]
fn a_train_waits_only_while_acknowledgements_are_due_and_the_ring_is_full() {
    let limits = TrainLimits { waits_for: 32, padding: Padding::Always, ..LIMITS };
    let (mut pair, flows) = opened(&wide());
    let fill = |pair: &mut Pair| {
        while pair.ends[0].room(flows[0]) > 0 {
            pair.send(0, flows[0], &[1]);
        }
    };
    let acknowledge_one = |pair: &mut Pair, sent: &mut Vec<(Header, Vec<u8>)>| {
        let (_, frame) = sent.remove(0);
        pair.ends[1].arrive_with(peer(0), &frame, pair.now, |_, _| true);
        // The receiver waits for a second frame before it acknowledges.
        pair.now += Duration::from_micros(20);
        pair.ends[1].settle(pair.now);
        let mut room = vec![0; 2048];
        while let Some((_, length)) = pair.ends[1].fetch(&mut room, pair.now) {
            pair.ends[0].arrive(peer(1), &room[..length], pair.now);
        }
    };
    fill(&mut pair);
    let mut sent: Vec<_> = trains(&mut pair.ends[0], &limits, pair.now).into_iter().flatten().collect();
    assert!((97..=128).contains(&sent.len()), "at most 31 wait: {}", sent.len());
    for _ in 0..100 {
        let waiting = 128 - sent.len();
        fill(&mut pair);
        let more: Vec<_> = trains(&mut pair.ends[0], &limits, pair.now).into_iter().flatten().collect();
        assert_eq!(more.is_empty(), waiting < 32, "{waiting} wait");
        sent.extend(more);
        acknowledge_one(&mut pair, &mut sent);
    }
    // With room in the ring, the host has nothing more to send, so all that waits is sent.
    fill(&mut pair);
    acknowledge_one(&mut pair, &mut sent);
    fill(&mut pair);
    acknowledge_one(&mut pair, &mut sent);
    let rest: usize = trains(&mut pair.ends[0], &limits, pair.now).iter().map(Vec::len).sum();
    assert_eq!(sent.len() + rest, pair.ends[0].unacknowledged(flows[0]));
    assert!(rest > 0);
}

#[test]
fn the_smaller_window_counts_and_a_map_covers_a_window_of_128() {
    for (windows, expected) in [([128, 64], 64), ([16, 128], 16), ([128, 128], 128)] {
        let mut pair = Pair::strangers(&Config::default());
        pair.ends = [0, 1].map(|side: usize| {
            let config = Config { window_frames: windows[side], ..wide() };
            Endpoint::new(config, RngKey::for_simulation(side as u64))
        });
        pair.ends[1].listen(SERVICE);
        let flows = pair.connect();
        assert_eq!(pair.ends[0].room(flows[0]), expected);
        assert_eq!(pair.ends[1].room(flows[1]), expected);
        pair.transfer(flows, 2000);
        pair.run(A_WHILE);
        // The first of a whole window is lost: all others are acknowledged by the map.
        let mut first = true;
        pair.loses = Box::new(move |from, header| {
            from == 0 && header.kind == Kind::Data && std::mem::take(&mut first)
        });
        let before = pair.ends[0].counters().retransmits;
        for _ in 0..expected {
            pair.send(0, flows[0], b"x");
        }
        pair.run(DELAY * 200);
        assert_eq!(pair.read_all(1, flows[1]).len(), expected);
        assert_eq!(pair.ends[0].counters().retransmits - before, 1, "{windows:?}");
        assert_eq!(pair.ends[0].counters().acks_invalid + pair.ends[1].counters().sent_beyond_credit, 0);
    }
}
