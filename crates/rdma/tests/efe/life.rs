//! The life cycle of flows: end, abort, a silent peer, a peer without credit.

use crate::pair::{A_WHILE, DELAY, Pair};
use kiban_rdma::efe::{Config, EndReason, Event, RequestError};
use kiban_rdma::wire::efe::{Kind, flag};
use std::time::Duration;

#[test]
fn a_finish_follows_all_segments_and_leaves_the_other_direction_open() {
    for lost in 0..12 {
        let (mut pair, flows) = Pair::connected(&Config::default());
        let mut frames = 0;
        // Lose exactly one frame; the loop tries each frame in turn.
        pair.loses = Box::new(move |_, _| {
            frames += 1;
            frames == lost + 1
        });
        for n in 0..3u32 {
            pair.send(0, flows[0], &n.to_be_bytes());
        }
        pair.ends[0].finish(flows[0]).expect("open");
        pair.run(A_WHILE);
        assert_eq!(pair.events(1), [Event::Readable { flow: flows[1] }], "the end waits behind segments");
        assert_eq!(pair.read_all(1, flows[1]).len(), 3);
        assert_eq!(pair.events(1), [Event::Finished { flow: flows[1] }]);
        pair.send(1, flows[1], b"last words");
        pair.ends[1].finish(flows[1]).expect("open");
        pair.run(A_WHILE);
        assert_eq!(pair.read_all(0, flows[0]), [b"last words".to_vec()]);
        pair.run(A_WHILE);
        let finished = |flow| vec![Event::Finished { flow }, Event::Ended { flow, why: EndReason::Finished }];
        assert_eq!(pair.events(0)[1..], finished(flows[0]), "without frame {lost}");
        assert_eq!(pair.events(1), finished(flows[1])[1..], "without frame {lost}");
        pair.run(Duration::from_secs(1));
        assert_eq!([pair.ends[0].flows(), pair.ends[1].flows()], [0, 0]);
    }
}

#[test]
fn a_finish_waits_for_a_slot_if_the_ring_is_full() {
    let (mut pair, flows) = Pair::connected(&Config::default());
    while pair.ends[0].room(flows[0]) > 0 {
        pair.send(0, flows[0], &[1; 100]);
    }
    pair.ends[0].finish(flows[0]).expect("open");
    pair.run(A_WHILE);
    assert_eq!(pair.read_all(1, flows[1]).len(), 64);
    pair.run(A_WHILE);
    assert!(pair.events(1).contains(&Event::Finished { flow: flows[1] }));
}

#[test]
fn an_abort_is_sent_at_once_and_repeated_if_it_was_lost() {
    for lost in [false, true] {
        let (mut pair, flows) = Pair::connected(&Config::default());
        let mut first = lost;
        pair.loses = Box::new(move |from, header| {
            from == 0 && header.kind == Kind::Abort && core::mem::take(&mut first)
        });
        pair.ends[0].abort(flows[0], pair.now).expect("open");
        assert_eq!(pair.ends[0].send(flows[0], b"x", pair.now), Err(RequestError::UnknownFlow));
        assert_eq!(pair.ends[0].abort(flows[0], pair.now), Err(RequestError::UnknownFlow));
        pair.run(DELAY * 2);
        if lost {
            assert_eq!(pair.events(1), [], "it has not heard");
            pair.send(1, flows[1], b"are you there?");
            pair.run(A_WHILE);
        }
        assert_eq!(pair.events(1), [Event::Ended { flow: flows[1], why: EndReason::PeerAborted }]);
        assert_eq!(pair.events(0), []);
        pair.run(Duration::from_secs(1));
        assert_eq!([pair.ends[0].flows(), pair.ends[1].flows()], [0, 0]);
    }
}

#[test]
fn a_report_that_nobody_receives_ends_the_flow_whose_keys_it_quotes() {
    // Rows: whether the flow is connected, and the offset of a flipped byte in the quoted frame.
    for (is_connected, flipped, ends) in [
        (false, None, true),
        (false, Some(35), false), // the asker's key
        (true, None, true),
        (true, Some(5), false),  // the receiver's flow number
        (true, Some(11), false), // its key
    ] {
        let mut pair = Pair::strangers(&Config::default());
        let flow = if is_connected { pair.connect()[0] } else { pair.ask() };
        if is_connected {
            pair.send(0, flow, b"is anybody there?");
        }
        let mut room = vec![0; pair.ends[0].frame_bytes_max()];
        let (to, length) = pair.ends[0].fetch(&mut room, pair.now).expect("it has something to send");
        if let Some(at) = flipped {
            room[at] ^= 1;
        }
        // A host quotes only the beginning.
        pair.ends[0].on_unreachable(to, &room[..length.min(36)], pair.now);
        let ended = Event::Ended { flow, why: EndReason::Unreachable };
        assert_eq!(pair.events(0), if ends { vec![ended] } else { vec![] }, "{is_connected} {flipped:?}");
    }
}

#[test]
fn a_vanished_peer_is_detected() {
    // Rows: `probe_after`, whether data is in flight, and the maximum time to detection.
    let second = Duration::from_secs(1);
    let rows = [
        (second, false, Some(second * 4)),
        (second, true, Some(second * 4)),
        (Duration::from_millis(10), false, Some(Duration::from_millis(40))),
        (Duration::ZERO, false, None),
        (Duration::ZERO, true, Some(second * 4)),
    ];
    for (probe_after, busy, noticed) in rows {
        let (mut pair, flows) = Pair::connected(&Config { probe_after, ..Config::default() });
        pair.run(second * 5);
        assert_eq!(pair.events(0), [], "silence is no reason");
        pair.loses = Box::new(|_, _| true);
        if busy {
            pair.send(0, flows[0], b"hello?");
        }
        let frames = pair.log.len();
        pair.run(noticed.unwrap_or(second * 100));
        let expected: Vec<_> =
            noticed.iter().map(|_| Event::Ended { flow: flows[0], why: EndReason::PeerTimeout }).collect();
        assert_eq!(pair.events(0), expected, "{probe_after:?} {busy}");
        assert!(pair.log.len() - frames <= 40, "{} frames to nobody", pair.log.len() - frames);
    }
}

#[test]
fn a_receiver_without_credit_is_probed_and_never_given_up() {
    // Without keep-alive probes.
    let (mut pair, flows) = Pair::connected(&Config { probe_after: Duration::ZERO, ..Config::default() });
    let mut sent = 0u32;
    for _ in 0..50 {
        while pair.ends[0].room(flows[0]) > 0 {
            pair.send(0, flows[0], &sent.to_be_bytes());
            sent += 1;
        }
        pair.run(DELAY * 4);
    }
    assert_eq!(sent, 128, "64 wait there, and 64 here");
    assert_eq!(pair.ends[1].readable(flows[1]), 64);
    assert_eq!(pair.ends[0].unacknowledged(flows[0]), 64);
    assert_eq!(pair.ends[0].send(flows[0], b"x", pair.now), Err(RequestError::Full));
    let _ = (pair.events(0), pair.events(1));

    let before = pair.log.len();
    pair.run(Duration::from_secs(10));
    let asked = pair.log.len() - before;
    assert!((20..400).contains(&asked), "{asked} frames in ten seconds");
    assert_eq!(pair.ends.each_ref().map(|end| end.counters().peers_lost), [0, 0]);

    // The first free slot is advertised at once.
    let mut first = Vec::new();
    assert!(pair.ends[1].receive(flows[1], &mut first, pair.now));
    pair.run(DELAY * 2 + Duration::from_nanos(1));
    assert_eq!((first, pair.ends[1].readable(flows[1])), (0u32.to_be_bytes().to_vec(), 64));

    // The frames that advertise the credit are lost; the sender's credit probe recovers.
    let mut lose = 3;
    pair.loses = Box::new(move |from, _| {
        let loses = from == 1 && lose > 0;
        lose -= i32::from(loses);
        loses
    });
    let mut read = pair.read_all(1, flows[1]);
    pair.run(Duration::from_secs(2));
    assert!(pair.events(0).contains(&Event::Writable { flow: flows[0] }));
    read.append(&mut pair.read_all(1, flows[1]));
    assert!(read.iter().cloned().eq((1..128u32).map(|n| n.to_be_bytes().to_vec())), "{}", read.len());
    assert_eq!(pair.ends[1].counters().sent_beyond_credit, 0);
    pair.transfer(flows, 500);
}

#[test]
fn segments_can_be_written_and_read_in_place() {
    let (mut pair, flows) = Pair::connected(&Config::default());
    for n in 0..200u8 {
        let now = pair.now;
        let sent = pair.ends[0].send_with(flows[0], usize::from(n), now, |room| {
            assert_eq!(room.len(), usize::from(n));
            room.fill(n);
        });
        sent.expect("room for a segment");
        pair.run(DELAY * 3);
        assert_eq!(pair.ends[1].peek(flows[1]), Some(&vec![n; usize::from(n)][..]));
        assert!(pair.ends[1].skip(flows[1], pair.now));
        assert!(!pair.ends[1].skip(flows[1], pair.now));
    }
    let refused = pair.ends[0].send_with(flows[0], 1473, pair.now, |_| panic!("there is no place"));
    assert_eq!(refused, Err(RequestError::TooLong));
}

#[test]
fn an_event_is_repeated_only_after_the_host_has_polled() {
    let (mut pair, flows) = Pair::connected(&Config::default());
    for _ in 0..5 {
        pair.send(0, flows[0], b"one");
        pair.run(A_WHILE);
    }
    assert_eq!(pair.events(1), [Event::Readable { flow: flows[1] }]);
    assert_eq!(pair.ends[1].peek(flows[1]), Some(&b"one"[..]));
    assert_eq!(pair.read_all(1, flows[1]).len(), 5);
    pair.send(0, flows[0], b"more");
    pair.run(A_WHILE);
    assert_eq!(pair.events(1), [Event::Readable { flow: flows[1] }]);
}

#[test]
fn data_carries_the_acknowledgement_and_a_lone_frame_is_acknowledged_soon() {
    let (mut pair, flows) = Pair::connected(&Config::default());
    let before = pair.log.len();
    pair.send(0, flows[0], b"question");
    pair.run(DELAY);
    // The segment has just arrived, and the host answers before the burst is settled.
    let mut out = Vec::new();
    while !pair.ends[1].receive(flows[1], &mut out, pair.now) {
        pair.run(Duration::from_nanos(100));
    }
    pair.send(1, flows[1], b"answer");
    pair.run(A_WHILE);
    assert_eq!(pair.read_all(0, flows[0]), [b"answer".to_vec()]);
    assert_eq!(pair.ends.each_ref().map(|end| end.counters().retransmits), [0, 0]);
    assert_eq!([pair.ends[0].unacknowledged(flows[0]), pair.ends[1].unacknowledged(flows[1])], [0, 0]);
    assert!(pair.log.len() - before <= 5, "{} frames", pair.log.len() - before);
}

#[test]
fn a_lost_frame_is_retransmitted_once() {
    let (mut pair, flows) = Pair::connected(&Config::default());
    pair.transfer(flows, 200);
    let mut lose = true;
    pair.loses = Box::new(move |_, header| header.kind == Kind::Data && core::mem::take(&mut lose));
    pair.transfer(flows, 200);
    let counters = pair.ends[0].counters();
    assert_eq!(
        (counters.retransmits, counters.lost, counters.timeouts),
        (1, 1, 0),
        "its followers tell of it"
    );
    assert_eq!(pair.ends[1].counters().duplicates, 0);
}

#[test]
fn a_hole_is_reported_even_if_every_returning_frame_carries_a_segment() {
    let (mut pair, flows) = Pair::connected(&Config::default());
    pair.transfer(flows, 100);
    let mut lose = true;
    pair.loses =
        Box::new(move |from, header| from == 0 && header.kind == Kind::Data && core::mem::take(&mut lose));
    for n in 0..200u32 {
        for (end, flow) in pair.ends.iter_mut().zip(flows) {
            // Either direction may be full.
            let _ = end.send(flow, &n.to_be_bytes(), pair.now);
        }
        pair.run(Duration::from_micros(1));
        pair.read_all(0, flows[0]);
        pair.read_all(1, flows[1]);
    }
    let counters = pair.ends[0].counters();
    assert_eq!((counters.lost, counters.timeouts), (1, 0), "the map tells of it, not the timer");
}

#[test]
fn a_lost_last_frame_is_retransmitted_by_the_timer() {
    let (mut pair, flows) = Pair::connected(&Config::default());
    pair.transfer(flows, 100);
    let mut lose = 2;
    pair.loses = Box::new(move |_, header| {
        let loses = header.kind == Kind::Data && lose > 0;
        lose -= i32::from(loses);
        loses
    });
    pair.send(0, flows[0], b"the last");
    let began = pair.now;
    while pair.ends[1].readable(flows[1]) == 0 {
        pair.run(DELAY);
        assert!(pair.now.since(began) < Duration::from_millis(2), "twice the timer, doubled");
    }
    assert_eq!(pair.ends[0].counters().timeouts, 2);
}

#[test]
fn an_idle_flow_sends_only_keep_alive_probes() {
    let (mut pair, flows) = Pair::connected(&Config::default());
    pair.transfer(flows, 10);
    pair.run(A_WHILE);
    let before = pair.log.len();
    pair.run(Duration::from_secs(60));
    let idle = &pair.log[before..];
    assert!(idle.iter().all(|(_, header, _)| header.kind == Kind::Ack));
    let asked = idle.iter().filter(|(_, header, _)| header.has(flag::ACK_REQUEST)).count();
    assert!((55..=120).contains(&asked) && idle.len() <= 2 * asked, "{asked} of {}", idle.len());
    pair.transfer(flows, 10);
}

#[test]
fn a_lossy_path_delivers_everything_once_and_in_order() {
    for seed in 0..20 {
        let config = Config { checked: seed % 2 == 0, segment_bytes: 1400, ..Config::default() };
        let (mut pair, flows) = Pair::connected(&config);
        let mut rng = kiban_base::SimRng::from_seed(seed);
        let loss = [0.01, 0.1, 0.3, 0.5][seed as usize % 4];
        pair.loses = Box::new(move |_, _| rng.happens(loss));
        pair.transfer(flows, 500);
        assert_eq!(pair.ends[1].counters().sent_beyond_credit, 0);
    }
}
