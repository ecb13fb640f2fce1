use super::config::{Config, OFFERED};
use super::machine::Session;
use super::primitives::{AbortReason, Accept, Answer, Connect, ConnectionId, Indication, Refuse, Request};
use super::state::State;
use crate::wire::session::{RefuseReason, Resynchronisation, TokenSettings, Tokens, Units, Versions};
use crate::{AcceptedSelectors, RequestError, Selector, transport};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use kiban_base::{Instant, Rope};
use proptest::prelude::*;

const NOW: Instant = Instant::from_nanos(1_000_000_000);
/// A time by which every timer has expired.
const LATER: Instant = Instant::from_nanos(86_400_000_000_000);
const ALL: Units = OFFERED;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).expect("a digit") as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn data(text: &str) -> transport::Indication {
    transport::Indication::Data(hex(text).into())
}

fn tsdu(text: &str) -> transport::Request {
    transport::Request::Data(hex(text).into())
}

fn bytes(length: usize) -> Rope {
    (0..length).map(|at| at as u8).collect::<Vec<u8>>().into()
}

fn sent(machine: &mut Session) -> Vec<transport::Request> {
    core::iter::from_fn(|| machine.poll_down()).collect()
}

fn indications(machine: &mut Session) -> Vec<Indication> {
    core::iter::from_fn(|| machine.poll_up()).collect()
}

fn ended() -> transport::Request {
    transport::Request::Disconnect { reason: transport::DisconnectReason::Normal, additional: vec![] }
}

fn carry(request: transport::Request, target: &mut Session) {
    target.arrive(
        match request {
            transport::Request::Connect { calling, called } => {
                transport::Indication::Connect { calling, called }
            }
            transport::Request::Respond { responding } => transport::Indication::Confirm { responding },
            transport::Request::Data(tsdu) => transport::Indication::Data(tsdu),
            transport::Request::Disconnect { reason, additional } => {
                transport::Indication::Disconnect { origin: transport::Origin::User, reason, additional }
            }
        },
        NOW,
    );
}

/// Exchanges TSDUs until neither side has anything to send; returns the number of TSDUs sent by each.
fn settle(one: &mut Session, other: &mut Session) -> [usize; 2] {
    let mut counts = [0; 2];
    loop {
        let requests = [sent(one), sent(other)];
        if requests.iter().all(Vec::is_empty) {
            return counts;
        }
        let [from_one, from_other] = requests;
        counts[0] += from_one.len();
        counts[1] += from_other.len();
        from_one.into_iter().for_each(|request| carry(request, other));
        from_other.into_iter().for_each(|request| carry(request, one));
    }
}

fn called(config: Config) -> Session {
    let mut machine = Session::new(config);
    let (calling, called) = (Selector::NONE, Selector::NONE);
    machine.arrive(transport::Indication::Connect { calling, called }, NOW);
    assert_eq!(sent(&mut machine), [transport::Request::Respond { responding: Selector::NONE }]);
    machine
}

fn connect(units: Units) -> Connect {
    Connect { units, initial_serial: Some(10), ..Connect::default() }
}

/// Returns two connected machines, of which the first initiated the connection and holds the token.
fn pair_of(configs: [Config; 2], units: Units) -> [Session; 2] {
    let mut ends = configs.map(Session::new);
    let [one, other] = &mut ends;
    one.request(Request::Connect(connect(units).into()), NOW).expect("a connect");
    settle(one, other);
    assert!(matches!(indications(other)[..], [Indication::Connect(_)]));
    let accept = Accept { units: ALL, ..Accept::default() };
    other.request(Request::ConnectResponse(Answer::Accepted(accept.into())), NOW).expect("an answer");
    settle(one, other);
    assert!(matches!(indications(one)[..], [Indication::ConnectConfirm(Answer::Accepted(_))]));
    assert!(one.is_open() && other.is_open());
    ends
}

fn pair() -> [Session; 2] {
    pair_of([Config::default(), Config::default()], ALL)
}

fn resync(kind: Resynchronisation, serial: u32, tokens: TokenSettings) -> Request {
    Request::Resynchronise { kind, serial: Some(serial), tokens, user_data: Rope::new() }
}

fn respond() -> Request {
    Request::ResynchroniseResponse { serial: None, tokens: TokenSettings::default(), user_data: Rope::new() }
}

#[test]
fn isode_connects_and_releases() {
    let mut machine = called(Config::default());
    let head = "0118 0a04 1402766d 0b10 170e 313236313132303130303333305a";
    machine.arrive(data(&alloc::format!("0d 29 {head} 0506 130100 160102 1402 0002 c101 aa")), NOW);
    let [Indication::Connect(seen)] = &indications(&mut machine)[..] else { panic!("a CONNECT") };
    assert_eq!((seen.units, seen.user_data.to_vec()), (Units::DUPLEX, vec![0xaa]));
    let accept =
        Accept { id: seen.id.clone(), units: Units::DUPLEX, user_data: bytes(1), ..Accept::default() };
    machine.request(Request::ConnectResponse(Answer::Accepted(accept.into())), NOW).expect("an answer");
    let answer =
        alloc::format!("0e 29 {} 0506 130100 160102 1402 0002 c101 00", head.replacen("0a04", "0904", 1));
    assert_eq!(sent(&mut machine), [tsdu(&answer)]);
    machine.arrive(data("0100 0100 6101"), NOW);
    assert_eq!(indications(&mut machine), [Indication::Data(hex("6101").into())]);
    machine.request(Request::Data(hex("6102").into()), NOW).expect("data");
    assert_eq!(sent(&mut machine), [tsdu("0100 0100 6102")]);
    machine.arrive(data("09 06 1101 01 c1 01 61"), NOW);
    assert_eq!(indications(&mut machine), [Indication::Release { user_data: hex("61").into() }]);
    let response = Request::ReleaseResponse { accepted: false, user_data: Rope::new() };
    assert_eq!(machine.request(response, NOW), Err(RequestError::State), "nothing was negotiated");
    machine
        .request(Request::ReleaseResponse { accepted: true, user_data: Rope::new() }, NOW)
        .expect("released");
    assert_eq!(sent(&mut machine), [tsdu("0a 00")]);
    // The peer must end the transport connection within TIM.
    let deadline = machine.deadline();
    assert_ne!(deadline, Instant::NEVER, "TIM runs");
    assert_eq!(deadline, NOW + Config::default().abort_timeout);
    machine.settle(deadline);
    assert_eq!((sent(&mut machine), machine.is_idle()), (vec![ended()], true));
}

#[test]
fn connects_are_refused_as_the_standard_says() {
    let attached = AcceptedSelectors::Only(vec![Selector::from("ab")]);
    for (who, versions, bytes, answer) in [
        (
            "an unknown selector",
            Versions::V2,
            "0d 0f 0503 160102 1402 0002 3404 61626364",
            "0c 09 110101 160102 320181",
        ),
        (
            "another version",
            Versions::V1,
            "0d 0d 0503 160102 1402 0002 3402 6162",
            "0c 09 110101 160101 320184",
        ),
        ("half-duplex", Versions::V2, "0d 0d 0503 160102 1402 0001 3402 6162", "0c 09 110101 160102 320186"),
        (
            "a TSDU too small",
            Versions::V2,
            "0d 13 0509 1504 00100000 160102 1402 0002 3402 6162",
            "0c 09 110101 160102 320186",
        ),
    ] {
        let mut machine = called(Config { attached: attached.clone(), versions, ..Config::default() });
        machine.arrive(data(bytes), NOW);
        assert_eq!(sent(&mut machine), [tsdu(answer)], "{who}");
        assert_eq!((indications(&mut machine), machine.counters().connects_refused), (vec![], 1), "{who}");
        assert!(machine.deadline() != Instant::NEVER);
    }
}

#[test]
fn a_user_refusal_reaches_the_peer() {
    let mut one = Session::new(Config::default());
    let mut other = Session::new(Config::default());
    one.request(Request::Connect(connect(Units::DUPLEX).into()), NOW).expect("a connect");
    settle(&mut one, &mut other);
    indications(&mut other);
    let refuse =
        Refuse { id: ConnectionId::default(), reason: RefuseReason::UserData, user_data: bytes(70_000) };
    other.request(Request::ConnectResponse(Answer::Refused(refuse.clone().into())), NOW).expect("a refusal");
    assert_eq!(sent(&mut one), []);
    settle(&mut one, &mut other);
    assert_eq!(indications(&mut one), [Indication::ConnectConfirm(Answer::Refused(refuse.into()))]);
    assert!(one.is_idle() && other.is_idle(), "the transport connection is gone");
}

#[test]
fn every_spdu_carries_user_data_of_any_length() {
    let limited = Config { tsdu_in_bytes_max: 1500, tsdu_out_bytes_max: 1200, ..Config::default() };
    for configs in [
        [Config::default(), Config::default()],
        [limited.clone(), Config::default()],
        [Config::default(), limited.clone()],
        [limited.clone(), limited],
    ] {
        for length in [0, 1, 100, 512, 513, 10240, 10241, 65_519, 200_000] {
            let mut ends = configs.clone().map(Session::new);
            let [one, other] = &mut ends;
            let user_data = bytes(length);
            let request = Connect { user_data: user_data.clone(), ..connect(ALL) };
            one.request(Request::Connect(request.into()), NOW).expect("a connect");
            settle(one, other);
            let [Indication::Connect(seen)] = &indications(other)[..] else {
                panic!("a CONNECT of {length}")
            };
            assert_eq!(seen.user_data, user_data);
            let accept = Accept { units: ALL, user_data: user_data.clone(), ..Accept::default() };
            other.request(Request::ConnectResponse(Answer::Accepted(accept.into())), NOW).expect("an answer");
            settle(one, other);
            let [Indication::ConnectConfirm(Answer::Accepted(seen))] = &indications(one)[..] else {
                panic!("{length}")
            };
            assert_eq!((&seen.user_data, seen.units), (&user_data, ALL));
            if length > 0 {
                one.request(Request::Data(user_data.clone()), NOW).expect("data");
                one.request(Request::TypedData(user_data.clone()), NOW).expect("typed data");
            }
            one.request(Request::SyncMinor { explicit: true, user_data: user_data.clone() }, NOW)
                .expect("a point");
            settle(one, other);
            let seen = indications(other);
            if length > 0 {
                assert_eq!(seen[0], Indication::Data(user_data.clone()));
                assert_eq!(seen[1], Indication::TypedData(user_data.clone()));
            }
            let point = Indication::SyncMinor { explicit: true, serial: 10, user_data: user_data.clone() };
            assert_eq!(seen.last(), Some(&point));
            one.request(Request::Release { user_data: user_data.clone() }, NOW).expect("a release");
            settle(one, other);
            assert_eq!(indications(other), [Indication::Release { user_data: user_data.clone() }]);
            let response = Request::ReleaseResponse { accepted: true, user_data: user_data.clone() };
            other.request(response, NOW).expect("a response");
            settle(one, other);
            assert_eq!(indications(one), [Indication::ReleaseConfirm { accepted: true, user_data }]);
            assert!(one.is_idle() && other.is_idle());
        }
    }
}

#[test]
fn segments_respect_the_negotiated_size() {
    let [mut one, mut other] =
        pair_of([Config::default(), Config { tsdu_in_bytes_max: 1024, ..Config::default() }], ALL);
    one.request(Request::Data(bytes(5000)), NOW).expect("data");
    let parts = sent(&mut one);
    let lengths: Vec<usize> = parts
        .iter()
        .map(|part| if let transport::Request::Data(tsdu) = part { tsdu.len() } else { 0 })
        .collect();
    assert_eq!(lengths, [1024, 1024, 1024, 1024, 5000 - 4 * 1017 + 7]);
    parts.into_iter().for_each(|part| carry(part, &mut other));
    assert_eq!(indications(&mut other), [Indication::Data(bytes(5000))]);
    other.request(Request::Data(bytes(5000)), NOW).expect("data");
    assert_eq!(sent(&mut other).len(), 1, "the other way there is no bound");
}

#[test]
fn version_1_has_its_limits() {
    let v1 = Config { versions: Versions::V1, ..Config::default() };
    let [mut one, mut other] = pair_of([Config::default(), v1.clone()], ALL);
    let release = |length| Request::Release { user_data: bytes(length) };
    assert_eq!(one.request(release(513), NOW), Err(RequestError::Length));
    assert_eq!(one.request(Request::Abort { user_data: bytes(10) }, NOW), Err(RequestError::Length));
    one.request(Request::Abort { user_data: bytes(9) }, NOW).expect("an abort");
    settle(&mut one, &mut other);
    assert_eq!(indications(&mut other), [Indication::UAbort { user_data: bytes(9) }]);
    let mut one = Session::new(v1);
    let request = Connect { user_data: bytes(513), ..connect(ALL) };
    assert_eq!(one.request(Request::Connect(request.into()), NOW), Err(RequestError::Length));
}

#[test]
fn the_token_holder_sets_points_and_the_peer_confirms_them() {
    let [mut one, mut other] = pair();
    let point = |explicit| Request::SyncMinor { explicit, user_data: Rope::new() };
    assert_eq!(other.request(point(true), NOW), Err(RequestError::Token));
    assert_eq!(one.serial_next(), 10);
    one.request(point(true), NOW).expect("point 10");
    one.request(point(false), NOW).expect("point 11");
    assert_eq!(sent(&mut one)[..], [tsdu("0100 31 04 2a02 3130"), tsdu("0100 31 07 0f0101 2a02 3131")]);
    let [mut one, mut other] = pair();
    (0..4).for_each(|_| one.request(point(true), NOW).expect("a point"));
    settle(&mut one, &mut other);
    assert_eq!(indications(&mut other).len(), 4);
    let confirm = |serial| Request::SyncMinorResponse { serial, user_data: Rope::new() };
    assert_eq!(other.request(confirm(14), NOW), Err(RequestError::Serial));
    assert_eq!(one.request(confirm(10), NOW), Err(RequestError::Serial), "not by whom set it");
    other.request(confirm(12), NOW).expect("10 to 12");
    assert_eq!(other.request(confirm(11), NOW), Err(RequestError::Serial), "it has been");
    settle(&mut one, &mut other);
    assert_eq!(indications(&mut one), [Indication::SyncMinorConfirm { serial: 12, user_data: Rope::new() }]);
    // The second side asks for the token, and the first gives it.
    let tokens = Tokens::MINOR;
    other.request(Request::PleaseTokens { tokens, user_data: bytes(3) }, NOW).expect("please");
    settle(&mut one, &mut other);
    assert_eq!(indications(&mut one), [Indication::PleaseTokens { tokens, user_data: bytes(3) }]);
    one.request(Request::GiveTokens { tokens, user_data: Rope::new() }, NOW).expect("here");
    assert_eq!(one.request(Request::Release { user_data: Rope::new() }, NOW), Err(RequestError::Token));
    settle(&mut one, &mut other);
    assert_eq!(indications(&mut other), [Indication::GiveTokens { tokens, user_data: Rope::new() }]);
    other.request(point(true), NOW).expect("point 14");
    settle(&mut one, &mut other);
    assert_eq!(
        indications(&mut one),
        [Indication::SyncMinor { explicit: true, serial: 14, user_data: Rope::new() }]
    );
}

#[test]
fn a_resynchronisation_discards_data_in_flight() {
    let [mut one, mut other] = pair();
    for _ in 0..3 {
        one.request(Request::SyncMinor { explicit: true, user_data: Rope::new() }, NOW).expect("a point");
    }
    settle(&mut one, &mut other);
    indications(&mut other);
    other.request(resync(Resynchronisation::Restart, 11, TokenSettings::default()), NOW).expect("back to 11");
    one.request(Request::Data(bytes(5)), NOW).expect("data that cross");
    settle(&mut one, &mut other);
    assert_eq!(indications(&mut other), [], "discarded");
    let tokens = TokenSettings::default();
    let (kind, serial) = (Resynchronisation::Restart, 11);
    assert_eq!(
        indications(&mut one),
        [Indication::Resynchronise { kind, serial, tokens, user_data: Rope::new() }]
    );
    assert_eq!(one.request(Request::Data(bytes(5)), NOW), Err(RequestError::State));
    one.request(respond(), NOW).expect("yes");
    settle(&mut one, &mut other);
    assert_eq!(
        indications(&mut other),
        [Indication::ResynchroniseConfirm { serial, tokens, user_data: Rope::new() }]
    );
    assert_eq!((one.serial_next(), other.serial_next()), (11, 11));
    assert!(other.holds_minor() && !one.holds_minor(), "the requester holds the token");
}

#[test]
fn collisions_are_resolved_alike_at_both_ends() {
    use Resynchronisation::{Abandon, Restart, Set};
    // Each row contains the simultaneous requests of both ends, and says whether the initiator prevails
    // (X.225 §A.5.4.6.1).
    for (own, others, initiator_wins) in [
        ((Abandon, 0), (Restart, 10), true),
        ((Restart, 10), (Abandon, 0), false),
        ((Set, 5), (Restart, 10), true),
        ((Restart, 10), (Set, 5), false),
        ((Abandon, 0), (Set, 5), true),
        ((Set, 5), (Abandon, 0), false),
        ((Restart, 10), (Restart, 11), true),
        ((Restart, 11), (Restart, 10), false),
        ((Restart, 10), (Restart, 10), true),
        ((Abandon, 0), (Abandon, 0), true),
        ((Set, 9), (Set, 5), true),
    ] {
        let [mut one, mut other] = pair();
        for _ in 0..3 {
            one.request(Request::SyncMinor { explicit: true, user_data: Rope::new() }, NOW).expect("a point");
        }
        settle(&mut one, &mut other);
        indications(&mut other);
        let tokens = TokenSettings::default();
        one.request(resync(own.0, own.1, tokens), NOW).expect("a request");
        other.request(resync(others.0, others.1, tokens), NOW).expect("a request");
        settle(&mut one, &mut other);
        let (winner, loser, kind) =
            if initiator_wins { (&mut one, &mut other, own.0) } else { (&mut other, &mut one, others.0) };
        assert_eq!(indications(winner), [], "{own:?} {others:?}");
        let seen = indications(loser);
        assert!(
            matches!(seen[..], [Indication::Resynchronise { kind: seen, .. }] if seen == kind),
            "{seen:?}"
        );
        loser.request(respond(), NOW).expect("yes");
        settle(winner, loser);
        assert!(matches!(indications(winner)[..], [Indication::ResynchroniseConfirm { .. }]));
        assert!(winner.is_open() && loser.is_open() && winner.holds_minor() && !loser.holds_minor());
        assert_eq!(winner.serial_next(), loser.serial_next());
    }
}

#[test]
fn both_ends_release_at_once() {
    let [mut one, mut other] = pair_of([Config::default(), Config::default()], Units::DUPLEX);
    let release = || Request::Release { user_data: Rope::new() };
    let response = || Request::ReleaseResponse { accepted: true, user_data: Rope::new() };
    one.request(release(), NOW).expect("a release");
    other.request(release(), NOW).expect("a release");
    settle(&mut one, &mut other);
    assert_eq!(indications(&mut one), [Indication::Release { user_data: Rope::new() }]);
    assert_eq!(indications(&mut other), [Indication::Release { user_data: Rope::new() }]);
    assert_eq!(other.request(response(), NOW), Err(RequestError::State), "the initiator is first");
    one.request(response(), NOW).expect("a response");
    settle(&mut one, &mut other);
    let confirmed = || Indication::ReleaseConfirm { accepted: true, user_data: Rope::new() };
    assert_eq!(indications(&mut other), [confirmed()]);
    other.request(response(), NOW).expect("a response");
    settle(&mut one, &mut other);
    assert_eq!(indications(&mut one), [confirmed()]);
    assert!(one.is_idle() && other.is_idle());
}

#[test]
fn protocol_errors_are_answered_with_an_abort() {
    let units = Units::DUPLEX | Units::MINOR_SYNCHRONISE;
    for (who, bytes) in [
        ("no SPDU", "ff"),
        ("a CONNECT", "0d 00"),
        ("a point without the token", "0100 31 04 2a02 3130"),
        ("a confirmation of nothing", "0100 32 04 2a02 3130"),
        ("a resynchronisation that was not selected", "0100 35 07 1b0101 2a02 3130"),
        ("typed data that were not selected", "21 00 aa"),
        ("an activity", "0100 2d 00"),
        ("expedited data", "05 00 aa"),
        ("a release without the token", "09 00"),
        ("the end of data that never began", "0100 01 03 190102 aa"),
    ] {
        let [mut one, _] = pair_of([Config::default(), Config::default()], units);
        one.arrive(data(bytes), NOW);
        let reason = AbortReason::ProtocolError;
        assert_eq!(indications(&mut one), [Indication::PAbort { reason }], "{who}");
        assert_eq!(sent(&mut one), [tsdu("19 03 110105")], "{who}");
        one.arrive(data(bytes), NOW);
        one.arrive(data("0100 0100 aa"), NOW);
        let over = (indications(&mut one), sent(&mut one));
        // A second CONNECT ends the transport connection at once (Table A.8); other SPDUs are ignored.
        assert_eq!(over, (vec![], if bytes == "0d 00" { vec![ended()] } else { vec![] }), "{who}");
    }
}

#[test]
fn oversized_parameters_are_rejected() {
    let small = Config { ssdu_bytes_max: 10, user_data_bytes_max: 10, ..Config::default() };
    for request in [
        Request::Data(bytes(11)),
        Request::Release { user_data: bytes(11) },
        Request::Abort { user_data: bytes(11) },
    ] {
        let [mut one, mut other] = pair_of([Config::default(), small.clone()], ALL);
        one.request(request, NOW).expect("a request");
        sent(&mut one).into_iter().for_each(|request| carry(request, &mut other));
        assert_eq!(indications(&mut other), [Indication::PAbort { reason: AbortReason::Restriction }]);
        assert_eq!(other.counters().ssdus_oversized, 1);
    }
}

#[test]
fn half_open_connections_time_out() {
    let mut machine = called(Config::default());
    machine.settle(NOW + Duration::from_secs(120));
    assert_eq!((sent(&mut machine), indications(&mut machine)), (vec![ended()], vec![]));
    let mut one = Session::new(Config::default());
    one.request(Request::Connect(connect(ALL).into()), NOW).expect("a connect");
    one.arrive(transport::Indication::Confirm { responding: Selector::NONE }, NOW);
    sent(&mut one);
    one.settle(NOW + Duration::from_secs(120));
    assert_eq!(indications(&mut one), [Indication::PAbort { reason: AbortReason::Undefined }]);
    assert_eq!(sent(&mut one), [tsdu("19 03 110109")]);
    one.arrive(data("1a 00"), NOW);
    assert_eq!((sent(&mut one), one.is_idle()), (vec![ended()], true));
}

#[derive(Clone, Debug)]
enum Act {
    Request(bool, u8, u32, usize, u8),
    Carry(bool),
    Corrupt(bool, Vec<u8>),
    Time(bool),
}

fn act(impaired: bool) -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (any::<bool>(), 0..30u8, 0..20u32, 0..3000usize, any::<u8>())
            .prop_map(|(side, kind, serial, length, tokens)| Act::Request(side, kind, serial, length, tokens)),
        8 => any::<bool>().prop_map(Act::Carry),
        u32::from(impaired) => (any::<bool>(), proptest::collection::vec(any::<u8>(), 0..12))
            .prop_map(|(side, bytes)| Act::Corrupt(side, bytes)),
        u32::from(impaired) => any::<bool>().prop_map(Act::Time),
    ]
}

fn request(kind: u8, serial: u32, length: usize, tokens: u8) -> Request {
    let user_data = bytes(length);
    let resynchronisation = [Resynchronisation::Restart, Resynchronisation::Set, Resynchronisation::Abandon];
    let settings = TokenSettings::of_octet(tokens);
    match kind {
        0..6 => Request::Data(bytes(length + 1)),
        6..8 => Request::TypedData(bytes(length + 1)),
        8..10 => Request::GiveTokens { tokens: Tokens::MINOR, user_data },
        10 => Request::PleaseTokens { tokens: Tokens::MINOR, user_data },
        11..15 => Request::SyncMinor { explicit: length < 1500, user_data },
        15..18 => Request::SyncMinorResponse { serial, user_data },
        18..22 => {
            let kind = resynchronisation[length % 3];
            Request::Resynchronise { kind, serial: Some(serial), tokens: settings, user_data }
        }
        22..27 => Request::ResynchroniseResponse { serial: None, tokens: settings, user_data },
        27 if length < 500 => Request::Release { user_data },
        28 => Request::ReleaseResponse { accepted: true, user_data },
        29 if length < 100 => Request::Abort { user_data },
        _ => Request::ResynchroniseResponse { serial: None, tokens: TokenSettings::default(), user_data },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn two_machines_agree_for_any_requests(
        acts in proptest::collection::vec(any::<bool>().prop_flat_map(act), 0..120),
        limited in any::<[bool; 2]>(),
        units in 0..4u16,
        is_clean in any::<bool>(),
    ) {
        let configs = limited.map(|limited| Config {
            tsdu_in_bytes_max: if limited { 1024 } else { 0 },
            ..Config::default()
        });
        let units = [Units::DUPLEX, ALL, ALL, Units::DUPLEX | Units::MINOR_SYNCHRONISE][usize::from(units)];
        let mut ends = pair_of(configs, units);
        let mut queues: [VecDeque<transport::Request>; 2] = Default::default();
        // The data that each side has sent and received. When one side resynchronises, data may be lost.
        let (mut requested, mut received) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        let (mut is_impaired, mut whole) = (false, true);
        let told_of = |ends: &mut [Session; 2], received: &mut [Vec<Vec<u8>>; 2]| {
            for side in 0..2 {
                for indication in indications(&mut ends[side]) {
                    if let Indication::Data(data) = indication {
                        received[side].push(data.to_vec());
                    }
                }
            }
        };
        for act in acts {
            match act {
                Act::Request(side, kind, serial, length, tokens) => {
                    let side = usize::from(side);
                    let request = request(kind, serial, length, tokens);
                    let data = if let Request::Data(data) = &request { Some(data.to_vec()) } else { None };
                    let loses = matches!(request, Request::Resynchronise { .. });
                    let before = ends[side].state;
                    match ends[side].request(request, NOW) {
                        Ok(()) => {
                            requested[side].extend(data);
                            whole &= !loses;
                        }
                        Err(_) => prop_assert_eq!(ends[side].state, before),
                    }
                }
                Act::Carry(side) => {
                    if let Some(request) = queues[usize::from(side)].pop_front() {
                        carry(request, &mut ends[1 - usize::from(side)]);
                    }
                }
                Act::Corrupt(..) | Act::Time(_) if is_clean => {}
                Act::Corrupt(side, bytes) => {
                    is_impaired = true;
                    ends[usize::from(side)].arrive(transport::Indication::Data(bytes.into()), NOW);
                }
                Act::Time(side) => {
                    is_impaired = true;
                    ends[usize::from(side)].settle(LATER);
                }
            }
            for side in 0..2 {
                queues[side].extend(sent(&mut ends[side]));
            }
            told_of(&mut ends, &mut received);
        }
        // Delivers everything that is in transit.
        while queues.iter().any(|queue| !queue.is_empty()) {
            for side in 0..2 {
                if let Some(request) = queues[side].pop_front() {
                    carry(request, &mut ends[1 - side]);
                }
                for side in 0..2 {
                    queues[side].extend(sent(&mut ends[side]));
                }
            }
            told_of(&mut ends, &mut received);
        }
        if !is_impaired {
            for end in &ends {
                prop_assert_eq!(end.counters().spdus_unexpected, 0, "no protocol error");
                prop_assert_eq!(end.counters().tsdus_malformed, 0);
            }
            let states = (ends[0].state, ends[1].state);
            use State::{Sta01, Sta03, Sta05A, Sta09, Sta11A, Sta713};
            let fits = |one, other| matches!(
                (one, other),
                (Sta713, Sta713) | (Sta05A, Sta11A) | (Sta03, Sta09) | (Sta09, Sta09) | (Sta01, Sta01)
            );
            prop_assert!(fits(states.0, states.1) || fits(states.1, states.0), "{:?}", states);
            if states == (Sta713, Sta713) {
                prop_assert_eq!(ends[0].serial_next(), ends[1].serial_next());
                if units.has(Units::MINOR_SYNCHRONISE) {
                    prop_assert!(ends[0].holds_minor() != ends[1].holds_minor(), "one holds the token");
                }
                if whole {
                    prop_assert_eq!(&requested[0], &received[1]);
                    prop_assert_eq!(&requested[1], &received[0]);
                }
            }
        }
        // The machines never get stuck: any connection that remains can be aborted, and then both sides are
        // idle.
        let [one, other] = &mut ends;
        let _ = one.request(Request::Abort { user_data: Rope::new() }, NOW);
        settle(one, other);
        one.settle(LATER);
        settle(one, other);
        other.settle(LATER);
        settle(one, other);
        prop_assert!(one.is_idle() && other.is_idle());
    }
}
