//! Connections over a wire that loses, duplicates and reorders messages.

use super::pair::{DELAY, Pair, arrives, message_name, name, polite, text};
use kiban_base::SimRng;
use kiban_rdma::roce::cm::CmEvent;
use std::time::Duration;

/// Checks the events of one connection that both consumers wanted.
fn check(pair: &Pair, case: &str) {
    assert_eq!(pair.names(0), ["connected", "disconnected", "exit"], "{case}");
    let passive: Vec<_> = pair.events[1].iter().filter(|event| name(event) != "established").collect();
    // A DREQ may overtake the RTU.
    assert!(pair.events[1].len() <= 4, "{case}");
    assert_eq!(
        passive.iter().map(|event| name(event)).collect::<Vec<_>>(),
        ["request", "disconnected", "exit"],
        "{case}"
    );
    let CmEvent::ConnectRequest { request, .. } = passive[0] else { panic!("a request") };
    let CmEvent::Connected { reply, .. } = &pair.events[0][0] else { panic!("a reply") };
    assert_eq!((request.qpn, request.psn, text(&request.private_data)), (0x11, 0x111, "hello"), "{case}");
    assert_eq!((reply.qpn, reply.psn, text(&reply.private_data)), (0x22, 0x222, "welcome"), "{case}");
    pair.assert_empty();
}

#[test]
fn a_connection_begins_and_ends_once_whatever_the_wire_does() {
    for seed in 0..200 {
        let mut rng = SimRng::from_seed(seed);
        let (loss, doubling, lateness) = (rng.below(35), rng.below(30), rng.below(60_000));
        let mut pair = Pair::new(seed);
        pair.connect();
        let fate = |_: usize, _: &_| {
            let copies = if rng.below(100) < loss { 0 } else { 1 + u64::from(rng.below(100) < doubling) };
            (0..copies).map(|_| DELAY + Duration::from_micros(rng.below(lateness + 1))).collect()
        };
        match seed % 3 {
            2 => {
                let (mut one, mut two) = (polite(0), polite(1));
                pair.run(
                    fate,
                    |side, cm, event, now| {
                        if side == 0 { one(side, cm, event, now) } else { two(side, cm, event, now) }
                    },
                );
            }
            side => pair.run(fate, polite(side as usize)),
        }
        check(&pair, &format!("seed {seed}"));
    }
}

#[test]
fn each_message_may_be_lost_once() {
    for disconnecting in [0, 1] {
        for lost in ["REQ", "REP", "RTU", "DREQ", "DREP"] {
            let mut pair = Pair::new(7);
            pair.connect();
            let mut is_lost = false;
            pair.run(
                |side, message| {
                    if message_name(message) == lost && !std::mem::replace(&mut is_lost, true) {
                        return Vec::new();
                    }
                    arrives(side, message)
                },
                polite(disconnecting),
            );
            assert!(is_lost);
            check(&pair, &format!("{lost} is lost"));
            let retransmits: u64 = pair.sides.iter().map(|side| side.counters().retransmits).sum();
            let expected = match lost {
                // Either side's timer expires.
                "REP" => 2,
                // The DREQ that follows at once makes up for it.
                "RTU" if disconnecting == 0 => 0,
                _ => 1,
            };
            assert_eq!(retransmits, expected, "{lost}");
        }
    }
}
