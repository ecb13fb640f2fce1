use super::config::Config;
use super::machine::{ADDITIONAL_BYTES_MAX, Transport};
use super::primitives::{DisconnectReason, Indication, Origin, Request};
use crate::{AcceptedSelectors, RequestError, Selector, network};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use kiban_base::{Bytes, Instant, Rope};
use proptest::prelude::*;

const NOW: Instant = Instant::from_nanos(1_000_000_000);
/// A time by which every timer has expired.
const LATER: Instant = Instant::from_nanos(86_400_000_000_000);

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).expect("a digit") as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn data(text: &str) -> network::Indication {
    network::Indication::Data(hex(text).into())
}

fn sent(machine: &mut Transport) -> Vec<network::Request> {
    core::iter::from_fn(|| machine.poll_down()).collect()
}

fn indications(machine: &mut Transport) -> Vec<Indication> {
    core::iter::from_fn(|| machine.poll_up()).collect()
}

fn tpdu(text: &str) -> network::Request {
    network::Request::Data(hex(text).into())
}

fn ended(reason: network::Reason) -> network::Request {
    network::Request::Disconnect { reason }
}

fn called(config: Config) -> Transport {
    let mut machine = Transport::new(config);
    machine.arrive(network::Indication::Connected, NOW);
    assert_eq!(sent(&mut machine), [network::Request::Accept]);
    machine
}

fn calling(config: Config) -> Transport {
    let mut machine = Transport::new(config);
    let request = Request::Connect { calling: Selector::NONE, called: Selector::from(&[1, 3][..]) };
    machine.request(request, NOW).expect("a call");
    assert_eq!(sent(&mut machine), [network::Request::Connect]);
    machine.arrive(network::Indication::Connected, NOW);
    machine
}

fn open(config: Config) -> Transport {
    let mut machine = called(config);
    machine.arrive(data("09 e0 0000 7a21 00 c0 01 0b"), NOW);
    machine.request(Request::Respond { responding: Selector::NONE }, NOW).expect("a response");
    sent(&mut machine);
    indications(&mut machine);
    assert!(machine.is_open());
    machine
}

/// Exchanges TPDUs until neither side has anything to send.
fn settle(one: &mut Transport, other: &mut Transport) {
    loop {
        let (from_one, from_other) = (sent(one), sent(other));
        if from_one.is_empty() && from_other.is_empty() {
            return;
        }
        for (requests, target) in [(from_one, &mut *other), (from_other, &mut *one)] {
            for request in requests {
                carry(request, target);
            }
        }
    }
}

fn carry(request: network::Request, target: &mut Transport) {
    target.arrive(
        match request {
            network::Request::Connect | network::Request::Accept => network::Indication::Connected,
            network::Request::Data(nsdu) => network::Indication::Data(nsdu),
            network::Request::Disconnect { reason } => {
                network::Indication::Disconnected { origin: network::Origin::User, reason }
            }
        },
        NOW,
    );
}

#[test]
fn isode_connects_and_receives_the_answer_that_it_would_send() {
    let mut machine = called(Config { reference: 0x7a22, tpdu_bytes_max: 2048, ..Config::default() });
    machine.arrive(data("0d e0 0000 7a21 00 c2 02 0103 c0 01 0b"), NOW);
    let called = Selector::from(&[1, 3][..]);
    assert_eq!(indications(&mut machine), [Indication::Connect { calling: Selector::NONE, called }]);
    machine.request(Request::Respond { responding: Selector::NONE }, NOW).expect("a response");
    assert_eq!(sent(&mut machine), [tpdu("0d d0 7a21 7a22 00 c2 02 0103 c0 01 0b")]);
    assert_eq!(
        (machine.is_open(), machine.tpdu_bytes_max(), machine.deadline()),
        (true, 2048, Instant::NEVER)
    );
    // Like ISODE, the peer ends the connection with a DR, which class 0 does not allow.
    machine.arrive(data("06 80 7a22 7a21 80"), NOW);
    let (origin, reason) = (Origin::User, DisconnectReason::Normal);
    assert_eq!(indications(&mut machine), [Indication::Disconnect { origin, reason, additional: vec![] }]);
    assert_eq!(sent(&mut machine), [ended(network::Reason::Normal)]);
}

#[test]
fn a_connection_is_confirmed() {
    let mut machine = calling(Config { reference: 0x7a21, tpdu_bytes_max: 2048, ..Config::default() });
    assert_eq!(sent(&mut machine), [tpdu("0d e0 0000 7a21 00 c2 02 0103 c0 01 0b")]);
    machine.arrive(data("09 d0 7a21 7a22 00 c0 01 0a"), NOW);
    assert_eq!(indications(&mut machine), [Indication::Confirm { responding: Selector::NONE }]);
    assert_eq!(machine.tpdu_bytes_max(), 1024);
}

#[test]
fn connects_are_refused_as_the_standard_says() {
    let attached = AcceptedSelectors::Only(vec![Selector::from("ftam")]);
    let config = Config { accepted_selectors: attached, ..Config::default() };
    for (who, request, answer) in [
        ("an unknown selector", "0b e0 0000 0007 00 c2 03 666f6f", "06 80 0007 0000 03"),
        ("no selector", "06 e0 0000 0007 00", "06 80 0007 0000 03"),
        ("class 4", "06 e0 0000 0007 40", "06 80 0007 0000 82"),
        ("class 2 and no other", "0a e0 0000 0007 20 c7 02 2030", "06 80 0007 0000 82"),
        ("a size that is none", "0f e0 0000 0007 00 c2 04 6674616d c0 01 02", "04 70 0007 03"),
    ] {
        let mut machine = called(config.clone());
        machine.arrive(data(request), NOW);
        assert_eq!(indications(&mut machine), [], "{who}");
        assert_eq!(sent(&mut machine), [tpdu(answer)], "{who}");
        assert_eq!(machine.counters().connects_refused, 1);
        // The peer may retry on the same network connection.
        machine.arrive(data("0f e0 0000 0007 40 c7 01 00 c2 04 6674616d"), NOW);
        assert_eq!(indications(&mut machine).len(), 1, "class 0 is an alternative");
    }
}

#[test]
fn a_user_refusal_reaches_the_peer() {
    let mut machine = called(Config::default());
    machine.arrive(data("06 e0 0000 0007 00"), NOW);
    indications(&mut machine);
    let additional = vec![7; ADDITIONAL_BYTES_MAX + 1];
    let reason = DisconnectReason::Congestion;
    assert_eq!(machine.request(Request::Disconnect { reason, additional }, NOW), Err(RequestError::Length));
    machine.request(Request::Disconnect { reason, additional: b"no".to_vec() }, NOW).expect("a refusal");
    assert_eq!(sent(&mut machine), [tpdu("0a 80 0007 0000 01 e0 02 6e6f")]);
    assert!(machine.deadline() != Instant::NEVER, "the peer is to end the network connection");
    machine.settle(NOW + Duration::from_secs(61));
    assert_eq!(sent(&mut machine), [ended(network::Reason::Abnormal)]);
    assert_eq!(indications(&mut machine), []);
}

#[test]
fn half_open_connections_time_out() {
    let later = NOW + Duration::from_secs(60);
    let mut machine = called(Config::default());
    machine.settle(later.max(NOW) - Duration::from_nanos(1));
    assert_eq!(sent(&mut machine), [], "not yet");
    machine.settle(later);
    assert_eq!(
        (sent(&mut machine), indications(&mut machine)),
        (vec![ended(network::Reason::Abnormal)], vec![])
    );

    let mut machine = calling(Config::default());
    sent(&mut machine);
    machine.settle(later);
    assert_eq!(sent(&mut machine), [ended(network::Reason::Abnormal)]);
    let reason = DisconnectReason::Timeout;
    assert_eq!(
        indications(&mut machine),
        [Indication::Disconnect { origin: Origin::Provider, reason, additional: vec![] }]
    );
}

#[test]
fn an_invalid_tpdu_ends_the_connection() {
    for (who, bytes, answer) in [
        ("no TPDU", "00", "07 70 7a21 00 c1 01 00"),
        ("an unknown kind", "02 3000", "09 70 7a21 02 c1 03 023000"),
        ("expedited data of another class", "04 10 0000 80", "0b 70 7a21 02 c1 05 0410000080"),
        ("a second request", "06 e0 0000 0007 00", "0d 70 7a21 02 c1 07 06e00000000700"),
    ] {
        let mut machine = open(Config::default());
        machine.arrive(data(bytes), NOW);
        assert_eq!(sent(&mut machine), [tpdu(answer), ended(network::Reason::Protocol)], "{who}");
        let reason = DisconnectReason::ProtocolError;
        let origin = Origin::Provider;
        assert_eq!(
            indications(&mut machine),
            [Indication::Disconnect { origin, reason, additional: vec![] }],
            "{who}"
        );
        machine.arrive(data("02 f0 80 aa"), NOW);
        assert_eq!((sent(&mut machine), indications(&mut machine)), (vec![], vec![]), "{who}: it is over");
    }
}

#[test]
fn data_is_segmented_and_reassembled_without_copying() {
    let page = Bytes::from(vec![7u8; 5000]);
    let mut one = calling(Config { tpdu_bytes_max: 1024, ..Config::default() });
    let mut other = Transport::new(Config::default());
    other.arrive(network::Indication::Connected, NOW);
    settle(&mut one, &mut other);
    other.request(Request::Respond { responding: Selector::from("x") }, NOW).expect("a response");
    settle(&mut one, &mut other);
    assert_eq!(indications(&mut one), [Indication::Confirm { responding: Selector::from("x") }]);
    indications(&mut other);
    one.request(Request::Data(page.clone().into()), NOW).expect("data");
    let parts = sent(&mut one);
    let lengths: Vec<usize> = parts
        .iter()
        .map(|part| match part {
            network::Request::Data(nsdu) => nsdu.len(),
            _ => 0,
        })
        .collect();
    assert_eq!(lengths, [1024, 1024, 1024, 1024, 5000 - 4 * 1021 + 3]);
    parts.into_iter().for_each(|part| carry(part, &mut other));
    let [Indication::Data(tsdu)] = &indications(&mut other)[..] else { panic!("one TSDU") };
    assert_eq!(tsdu.runs().next().map(|run| run.as_ptr()), Some(page.as_ptr()));
    assert_eq!(tsdu.to_vec(), page.to_vec());
    assert_eq!(one.request(Request::Data(Rope::new()), NOW), Err(RequestError::Length));
}

#[test]
fn the_length_of_a_tsdu_is_limited() {
    let mut machine = open(Config { tsdu_bytes_max: 10, ..Config::default() });
    machine.arrive(data("02 f0 00 0102030405"), NOW);
    machine.arrive(data("02 f0 80 0102030405"), NOW);
    assert_eq!(indications(&mut machine), [Indication::Data(hex("01020304050102030405").into())]);
    machine.arrive(data("02 f0 00 0102030405"), NOW);
    machine.arrive(data("02 f0 00 010203040506"), NOW);
    let reason = DisconnectReason::Oversized;
    let origin = Origin::Provider;
    assert_eq!(indications(&mut machine), [Indication::Disconnect { origin, reason, additional: vec![] }]);
    assert_eq!(sent(&mut machine), [ended(network::Reason::Abnormal)]);
}

#[test]
fn single_bytes_are_reassembled() {
    let mut machine = open(Config::default());
    for byte in 0..200u8 {
        machine.arrive(network::Indication::Data(vec![2, 0xf0, 0, byte].into()), NOW);
    }
    machine.arrive(data("02 f0 80"), NOW);
    let [Indication::Data(tsdu)] = &indications(&mut machine)[..] else { panic!("one TSDU") };
    assert_eq!((tsdu.runs().count(), tsdu.to_vec()), (1, (0..200).collect()));
}

#[derive(Clone, Debug)]
enum Act {
    Request(bool, u8, usize),
    Carry(bool),
    Corrupt(bool, Vec<u8>),
    Time(bool),
}

fn act(impaired: bool) -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (any::<bool>(), 0..5u8, 1..2000usize).prop_map(|(side, kind, length)| Act::Request(side, kind, length)),
        8 => any::<bool>().prop_map(Act::Carry),
        u32::from(impaired) => (any::<bool>(), proptest::collection::vec(any::<u8>(), 0..12)).prop_map(|(side, bytes)| Act::Corrupt(side, bytes)),
        u32::from(impaired) => any::<bool>().prop_map(Act::Time),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn two_machines_agree_for_any_requests(
        acts in proptest::collection::vec(any::<bool>().prop_flat_map(act), 0..60),
        sizes in (128..3000usize, 128..3000usize),
    ) {
        let config = |tpdu_bytes_max| Config { tpdu_bytes_max, ..Config::default() };
        let mut ends = [Transport::new(config(sizes.0)), Transport::new(config(sizes.1))];
        let mut queues: [VecDeque<network::Request>; 2] = Default::default();
        let (mut requested, mut received) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        let mut is_impaired = false;
        for act in acts {
            match act {
                Act::Request(side, kind, length) => {
                    let side = usize::from(side);
                    let selector = Selector::from("t");
                    let request = match kind {
                        // Only side 0 calls, because calls from both sides would need two network
                        // connections.
                        0 if side == 0 => Request::Connect { calling: selector.clone(), called: selector },
                        0 | 1 => Request::Respond { responding: Selector::NONE },
                        2 if length > 1900 => Request::Disconnect { reason: DisconnectReason::Normal, additional: vec![] },
                        _ => Request::Data(vec![length as u8; length].into()),
                    };
                    let tsdu = if let Request::Data(tsdu) = &request { Some(tsdu.to_vec()) } else { None };
                    if ends[side].request(request, NOW).is_ok() {
                        requested[side].extend(tsdu);
                    }
                }
                Act::Carry(side) => {
                    let side = usize::from(side);
                    if let Some(request) = queues[side].pop_front() {
                        carry(request, &mut ends[1 - side]);
                    }
                }
                Act::Corrupt(side, bytes) => {
                    is_impaired = true;
                    ends[usize::from(side)].arrive(network::Indication::Data(bytes.into()), NOW);
                }
                Act::Time(side) => {
                    is_impaired = true;
                    ends[usize::from(side)].settle(LATER);
                }
            }
            for side in 0..2 {
                queues[side].extend(sent(&mut ends[side]));
                for indication in indications(&mut ends[side]) {
                    if let Indication::Data(tsdu) = indication {
                        received[side].push(tsdu.to_vec());
                    }
                }
            }
        }
        // Delivers everything that is in transit; then either both sides are open or neither is.
        for _ in 0..2000 {
            for side in 0..2 {
                if let Some(request) = queues[side].pop_front() {
                    carry(request, &mut ends[1 - side]);
                }
                for side in 0..2 {
                    queues[side].extend(sent(&mut ends[side]));
                    for indication in indications(&mut ends[side]) {
                        if let Indication::Data(tsdu) = indication {
                            received[side].push(tsdu.to_vec());
                        }
                    }
                }
            }
        }
        prop_assert!(queues.iter().all(VecDeque::is_empty));
        if !is_impaired {
            prop_assert_eq!(ends[0].is_open(), ends[1].is_open());
            for side in 0..2 {
                // Data arrives in order and without duplicates; data in transit at the end may be lost.
                prop_assert!(requested[1 - side].starts_with(&received[side]));
                prop_assert!(!ends[side].is_open() || requested[1 - side] == received[side]);
            }
        }
    }
}

#[test]
fn a_peer_that_sends_only_empty_tpdus_is_disconnected() {
    for empty in ["02 f0 00", "02 f0 80"] {
        let mut machine = open(Config::default());
        let count = (0..100_000).take_while(|_| {
            machine.arrive(data(empty), NOW);
            machine.is_open()
        });
        assert_eq!(count.count(), 1024, "{empty}");
        assert_eq!(sent(&mut machine), [ended(network::Reason::Protocol)]);
        // Data between them shows progress, and an empty last TPDU of a TSDU is valid.
        let mut machine = open(Config::default());
        for _ in 0..2000 {
            machine.arrive(data(empty), NOW);
            machine.arrive(data("02 f0 00 01"), NOW);
            machine.arrive(data("02 f0 80"), NOW);
        }
        assert!(machine.is_open());
    }
}
