//! Tests every cell of the tables in X.226 Annex A, and runs two machines over an ideal session service.

use super::config::Config;
use super::machine::Presentation;
use super::primitives::{Accept, Answer, Connect, Indication, PAbort, Refuse, Refuser, Request};
use super::state::{Cell, Contexts, Event, State, cell};
use crate::session::{self, ConnectionId, Resynchronisation, TokenSettings, Tokens};
use crate::wire::ber::{Asn1, Oid};
use crate::wire::presentation as wire;
use crate::wire::presentation::{
    AbortReason, Arp, BER, ContextDefinition, ContextResult, Pdv, ProviderReason,
};
use crate::{AcceptedSelectors, RequestError};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{format, vec};
use kiban_base::Rope;
use proptest::prelude::*;

/// Tables A.21 to A.29 without context management: columns STAI0, STAI1, STAI2, STAt0. `-` is a blank cell;
/// `p08` in the last column means that the cell has two lists of actions, one for ^p08 and one for p08.
const TABLE: &[(&str, [&str; 4])] = &[
    ("P-CONreq", ["p03 STAI1", "-", "-", "-"]),
    ("CP", ["p01 STAI2", "-", "-", "-"]),
    ("P-CONrsp+", ["-", "-", "p04 STAt0", "-"]),
    ("CPA", ["-", "p04 STAt0", "-", "-"]),
    ("P-CONrsp-", ["-", "-", "p04 STAI0", "-"]),
    ("CPR", ["-", "p04 STAI0", "-", "-"]),
    ("S-CONcnf-", ["-", "STAI0", "-", "-"]),
    ("P-RELreq", ["-", "-", "-", "p05 STAt0"]),
    ("S-RELind", ["-", "-", "-", "p05 STAt0"]),
    ("P-RELrsp+", ["-", "-", "-", "p08"]),
    ("S-RELcnf+", ["-", "-", "-", "p08"]),
    ("P-RELrsp-", ["-", "-", "-", "p05 STAt0"]),
    ("S-RELcnf-", ["-", "-", "-", "p05 STAt0"]),
    ("P-UABreq", ["-", "p03 STAI0", "p03 STAI0", "p05 STAI0"]),
    ("ARU", ["-", "p03 STAI0", "p03 STAI0", "p05 STAI0"]),
    ("ARP", ["-", "STAI0", "STAI0", "STAI0"]),
    ("S-PABind", ["-", "STAI0", "STAI0", "STAI0"]),
    ("AC", ["-", "-", "-", "-"]),
    ("ACA", ["-", "-", "-", "-"]),
    ("P-DTreq", ["-", "-", "-", "p05 STAt0"]),
    ("TD", ["-", "-", "-", "p05 STAt0"]),
    ("P-TDreq", ["-", "-", "-", "p05 STAt0"]),
    ("TTD", ["-", "-", "-", "p05 STAt0"]),
    ("P-GTreq", ["-", "-", "-", "p05 STAt0"]),
    ("S-GTind", ["-", "-", "-", "p05 STAt0"]),
    ("P-PTreq", ["-", "-", "-", "p05 STAt0"]),
    ("S-PTind", ["-", "-", "-", "p05 STAt0"]),
    ("P-SYNmreq", ["-", "-", "-", "p05 STAt0"]),
    ("S-SYNmind", ["-", "-", "-", "p05 STAt0"]),
    ("P-SYNmrsp", ["-", "-", "-", "p05 STAt0"]),
    ("S-SYNmcnf", ["-", "-", "-", "p05 STAt0"]),
    ("P-RSYNreq", ["-", "-", "-", "p05 STAt0"]),
    ("RS", ["-", "-", "-", "p05 STAt0"]),
    ("P-RSYNrsp", ["-", "-", "-", "p05 STAt0"]),
    ("RSA", ["-", "-", "-", "p05 STAt0"]),
];

const STATES: [State; 4] = [State::I0, State::I1, State::I2, State::T0];

fn state_name(state: State) -> &'static str {
    ["STAI0", "STAI1", "STAI2", "STAt0"][state as usize]
}

fn shown(cell: Cell) -> String {
    let predicate = |contexts| match contexts {
        Contexts::Unasked => "",
        Contexts::Proposed => "p03 ",
        Contexts::Accepted => "p04 ",
        Contexts::Defined => "p05 ",
    };
    match cell {
        Cell::Invalid => "-".to_string(),
        Cell::Validate => "p01 STAI2".to_string(),
        Cell::Released => "p08".to_string(),
        Cell::Go(contexts, next) => format!("{}{}", predicate(contexts), state_name(next)),
    }
}

const A: i64 = 1;
const B: i64 = 3;

fn contexts() -> Vec<ContextDefinition> {
    let of = |id, abstract_syntax| ContextDefinition { id, abstract_syntax, transfer_syntaxes: vec![BER] };
    vec![of(A, Oid::of("2.2.1.0.1")), of(B, Oid::of("1.0.8571.2.1"))]
}

fn value(context: i64) -> Vec<Pdv> {
    vec![Pdv::single(context, 7i64.to_vec())]
}

fn connect() -> Connect {
    Connect { contexts: contexts(), user_data: value(A), called: "there".into(), ..Connect::default() }
}

fn accept() -> Accept {
    let results = vec![ContextResult::accepted(BER); 2];
    Accept { results, user_data: value(A), ..Accept::default() }
}

fn refuse() -> Refuse {
    let (id, responding, results) = Default::default();
    Refuse { id, by: Refuser::User, responding, results, user_data: value(B) }
}

/// Converts a request to the indication at the other end of an ideal session service.
fn carried(request: session::Request) -> session::Indication {
    use session::{Indication as I, Request as R};
    match request {
        R::Connect(connect) => I::Connect(connect),
        R::ConnectResponse(answer) => I::ConnectConfirm(answer),
        R::Data(rope) => I::Data(rope),
        R::TypedData(rope) => I::TypedData(rope),
        R::GiveTokens { tokens, user_data } => I::GiveTokens { tokens, user_data },
        R::PleaseTokens { tokens, user_data } => I::PleaseTokens { tokens, user_data },
        R::SyncMinor { explicit, user_data } => I::SyncMinor { explicit, serial: 1, user_data },
        R::SyncMinorResponse { serial, user_data } => I::SyncMinorConfirm { serial, user_data },
        R::Resynchronise { kind, serial, tokens, user_data } => {
            I::Resynchronise { kind, serial: serial.unwrap_or(1), tokens, user_data }
        }
        R::ResynchroniseResponse { serial, tokens, user_data } => {
            I::ResynchroniseConfirm { serial: serial.unwrap_or(1), tokens, user_data }
        }
        R::Release { user_data } => I::Release { user_data },
        R::ReleaseResponse { accepted, user_data } => I::ReleaseConfirm { accepted, user_data },
        R::Abort { user_data } => I::UAbort { user_data },
    }
}

struct Pair {
    here: Presentation,
    there: Presentation,
}

impl Pair {
    fn new() -> Pair {
        Pair { here: Presentation::new(Config::default()), there: Presentation::new(Config::default()) }
    }

    fn connected() -> Pair {
        let mut pair = Pair::new();
        pair.here.request(Request::Connect(connect().into())).unwrap();
        pair.carry();
        assert!(matches!(pair.there.poll_up(), Some(Indication::Connect(_))));
        pair.there.request(Request::ConnectResponse(Answer::Accepted(accept().into()))).unwrap();
        pair.carry();
        assert!(matches!(pair.here.poll_up(), Some(Indication::ConnectConfirm(Answer::Accepted(_)))));
        pair
    }

    /// Carries primitives both ways until no more are left.
    fn carry(&mut self) {
        loop {
            if let Some(down) = self.here.poll_down() {
                self.there.arrive(carried(down));
            } else if let Some(down) = self.there.poll_down() {
                self.here.arrive(carried(down));
            } else {
                break;
            }
        }
    }
}

fn machine_in(state: State) -> Presentation {
    let mut pair = Pair::new();
    match state {
        State::I0 => return pair.here,
        State::I1 => pair.here.request(Request::Connect(connect().into())).unwrap(),
        State::I2 => {
            pair.there.request(Request::Connect(connect().into())).unwrap();
            pair.carry();
            pair.here.poll_up();
        }
        State::T0 => pair = Pair::connected(),
    }
    pair.here.poll_down();
    assert_eq!(pair.here.state(), state);
    pair.here
}

#[allow(clippy::large_enum_variant)]
enum Given {
    Above(Request),
    Below(session::Indication),
}

/// Returns a request or an indication that causes this event in the table.
fn given(event: Event) -> Given {
    use Given::{Above, Below};
    let id = ConnectionId::default();
    let (tokens, settings) = (Tokens::default(), TokenSettings::default());
    let kind = Resynchronisation::Abandon;
    let user_data = Vec::new();
    // Returns the indication that the other end's request would cause.
    let from = |machine: State, request: Request| {
        let mut machine = machine_in(machine);
        machine.request(request).unwrap();
        Below(carried(machine.poll_down().unwrap()))
    };
    let arp = wire::Abort::Provider(Arp { reason: None, event: None }).to_rope();
    match event {
        Event::PConReq => Above(Request::Connect(connect().into())),
        Event::Cp => from(State::I0, Request::Connect(connect().into())),
        Event::PConRspAccept => Above(Request::ConnectResponse(Answer::Accepted(accept().into()))),
        Event::Cpa => from(State::I2, Request::ConnectResponse(Answer::Accepted(accept().into()))),
        Event::PConRspReject => Above(Request::ConnectResponse(Answer::Refused(refuse().into()))),
        Event::Cpr => from(State::I2, Request::ConnectResponse(Answer::Refused(refuse().into()))),
        Event::SConCnfReject => {
            let refuse =
                session::Refuse { id, reason: session::RefuseReason::Provider, user_data: Rope::new() };
            Below(session::Indication::ConnectConfirm(session::Answer::Refused(refuse.into())))
        }
        Event::PRelReq => Above(Request::Release { user_data: value(A) }),
        Event::SRelInd => from(State::T0, Request::Release { user_data: value(A) }),
        Event::PRelRspAccept => Above(Request::ReleaseResponse { accepted: true, user_data: value(A) }),
        Event::SRelCnfAccept => {
            from(State::T0, Request::ReleaseResponse { accepted: true, user_data: value(A) })
        }
        Event::PRelRspReject => Above(Request::ReleaseResponse { accepted: false, user_data: value(A) }),
        Event::SRelCnfReject => {
            from(State::T0, Request::ReleaseResponse { accepted: false, user_data: value(A) })
        }
        Event::PUabReq => Above(Request::Abort { user_data: value(A) }),
        Event::Aru => from(State::T0, Request::Abort { user_data: value(A) }),
        Event::Arp => Below(session::Indication::UAbort { user_data: arp }),
        Event::SPabInd => Below(session::Indication::PAbort { reason: session::AbortReason::Undefined }),
        Event::Ac => Below(session::Indication::TypedData(vec![0xa0, 0].into())),
        Event::Aca => Below(session::Indication::TypedData(vec![0xa1, 0].into())),
        Event::PDtReq => Above(Request::Data(value(B))),
        Event::Td => from(State::T0, Request::Data(value(B))),
        Event::PTdReq => Above(Request::TypedData(value(B))),
        Event::Ttd => from(State::T0, Request::TypedData(value(B))),
        Event::PGtReq => Above(Request::GiveTokens { tokens, user_data }),
        Event::SGtInd => from(State::T0, Request::GiveTokens { tokens, user_data }),
        Event::PPtReq => Above(Request::PleaseTokens { tokens, user_data }),
        Event::SPtInd => from(State::T0, Request::PleaseTokens { tokens, user_data }),
        Event::PSynMinorReq => Above(Request::SyncMinor { explicit: true, user_data }),
        Event::SSynMinorInd => from(State::T0, Request::SyncMinor { explicit: true, user_data }),
        Event::PSynMinorRsp => Above(Request::SyncMinorResponse { serial: 1, user_data }),
        Event::SSynMinorCnf => from(State::T0, Request::SyncMinorResponse { serial: 1, user_data }),
        Event::PRsynReq => Above(Request::Resynchronise { kind, serial: None, tokens: settings, user_data }),
        Event::Rs => {
            from(State::T0, Request::Resynchronise { kind, serial: None, tokens: settings, user_data })
        }
        Event::PRsynRsp => {
            Above(Request::ResynchroniseResponse { serial: None, tokens: settings, user_data })
        }
        Event::Rsa => {
            from(State::T0, Request::ResynchroniseResponse { serial: None, tokens: settings, user_data })
        }
    }
}

#[test]
fn the_table_matches_the_standard() {
    assert_eq!(TABLE.len(), Event::ALL.len());
    for (event, (name, row)) in Event::ALL.iter().zip(TABLE) {
        assert_eq!(event.name(), *name);
        assert_eq!(STATES.map(|state| shown(cell(state, *event))), row.map(String::from), "{name}");
    }
}

#[test]
fn the_machine_follows_every_cell_of_the_table() {
    for (&event, (name, row)) in Event::ALL.iter().zip(TABLE) {
        for (state, expected) in STATES.into_iter().zip(row) {
            let mut machine = machine_in(state);
            let next = expected.rsplit(' ').next().unwrap();
            let next = STATES.into_iter().find(|&state| state_name(state) == next).unwrap_or(State::I0);
            let at = format!("{name} in {}", state_name(state));
            match given(event) {
                Given::Above(request) if *expected == "-" => {
                    assert_eq!(machine.request(request), Err(RequestError::State), "{at}");
                    assert_eq!(
                        (machine.state(), machine.poll_up(), machine.poll_down()),
                        (state, None, None),
                        "{at}"
                    );
                }
                Given::Above(request) => {
                    assert_eq!(machine.request(request), Ok(()), "{at}");
                    assert!(machine.poll_down().is_some() && machine.poll_down().is_none(), "{at}");
                    assert_eq!((machine.state(), machine.poll_up()), (next, None), "{at}");
                }
                Given::Below(below) if *expected == "-" => {
                    machine.arrive(below);
                    assert_eq!(machine.state(), State::I0, "{at}");
                    assert_eq!(machine.counters.unexpected_in, 1, "{at}");
                    let up = machine.poll_up();
                    match state {
                        State::I0 => assert_eq!(up, None, "{at}"),
                        _ => assert!(matches!(up, Some(Indication::PAbort(PAbort::Here { .. }))), "{at}"),
                    }
                }
                Given::Below(below) => {
                    machine.arrive(below);
                    assert_eq!(machine.state(), next, "{at}");
                    assert!(machine.poll_up().is_some() && machine.poll_up().is_none(), "{at}");
                    assert_eq!(machine.poll_down(), None, "{at}");
                }
            }
        }
    }
}

#[test]
fn colliding_releases_end_the_connection() {
    let mut pair = Pair::connected();
    pair.here.request(Request::Release { user_data: value(A) }).unwrap();
    pair.there.request(Request::Release { user_data: value(A) }).unwrap();
    pair.carry();
    assert!(matches!(pair.here.poll_up(), Some(Indication::Release { .. })));
    assert!(matches!(pair.there.poll_up(), Some(Indication::Release { .. })));
    let response = || Request::ReleaseResponse { accepted: true, user_data: value(A) };
    pair.here.request(response()).unwrap();
    assert_eq!(pair.here.state(), State::T0);
    pair.carry();
    assert_eq!(pair.there.state(), State::T0);
    pair.there.request(response()).unwrap();
    assert_eq!(pair.there.state(), State::I0);
    pair.carry();
    assert_eq!(pair.here.state(), State::I0);
}

#[test]
fn data_is_carried_only_in_accepted_contexts() {
    let mut pair = Pair::connected();
    let values = vec![Pdv::single(A, 1i64.to_vec()), Pdv::octet_aligned(B, vec![0; 100])];
    pair.here.request(Request::Data(values.clone())).unwrap();
    pair.carry();
    assert_eq!(pair.there.poll_up(), Some(Indication::Data(values)));
    assert_eq!(pair.here.request(Request::Data(value(5))), Err(RequestError::Value));
    assert_eq!(pair.here.request(Request::Data(vec![])), Err(RequestError::Value));
    // If a peer sends such a value all the same, it is answered with an abort for this reason.
    let stray = wire::UserData::Full(value(5)).into_rope();
    pair.there.arrive(session::Indication::Data(stray));
    let (reason, event) = (AbortReason::INVALID_PARAMETER, Some(wire::Event::TD));
    assert_eq!(pair.there.poll_up(), Some(Indication::PAbort(PAbort::Here { reason, event })));
    pair.carry();
    let reason = Some(reason);
    assert_eq!(pair.here.poll_up(), Some(Indication::PAbort(PAbort::Peer { reason, event })));
    assert_eq!((pair.here.state(), pair.there.state()), (State::I0, State::I0));
}

#[test]
fn with_one_context_data_is_simply_encoded() {
    let mut pair = Pair::new();
    pair.here.request(Request::Connect(connect().into())).unwrap();
    pair.carry();
    pair.there.poll_up();
    let results = vec![ContextResult::accepted(BER), ContextResult::USER_REJECTION];
    let accept = Accept { results, ..accept() };
    pair.there.request(Request::ConnectResponse(Answer::Accepted(accept.into()))).unwrap();
    pair.carry();
    assert_eq!(pair.here.contexts().len(), 1);
    assert!(matches!(pair.here.poll_up(), Some(Indication::ConnectConfirm(Answer::Accepted(_)))));
    pair.here.request(Request::Data(value(A))).unwrap();
    let Some(session::Request::Data(rope)) = pair.here.poll_down() else { panic!("no data") };
    assert_eq!(rope.to_vec(), 7i64.to_vec());
    pair.there.arrive(session::Indication::Data(rope));
    let Some(Indication::Data(values)) = pair.there.poll_up() else { panic!("no data") };
    assert_eq!((values[0].context, values[0].octets().to_vec()), (A, 7i64.to_vec()));
    // The same value is also accepted if it is fully encoded.
    pair.there.arrive(session::Indication::Data(wire::UserData::Full(value(A)).into_rope()));
    assert_eq!(pair.there.poll_up(), Some(Indication::Data(value(A))));
}

#[test]
fn unsupported_requests_are_refused_with_a_reason() {
    let none = Config { transfer_syntaxes: vec![], ..Config::default() };
    let elsewhere =
        Config { attached: AcceptedSelectors::Only(vec!["elsewhere".into()]), ..Config::default() };
    let narrow = Config { contexts_max: 1, ..Config::default() };
    for (config, reason) in [
        (none, ProviderReason::USER_DATA_NOT_READABLE),
        (elsewhere, ProviderReason::CALLED_ADDRESS_UNKNOWN),
        (narrow, ProviderReason::LOCAL_LIMIT_EXCEEDED),
    ] {
        let mut pair = Pair { there: Presentation::new(config), ..Pair::new() };
        pair.here.request(Request::Connect(connect().into())).unwrap();
        pair.carry();
        assert_eq!((pair.there.poll_up(), pair.there.state()), (None, State::I0));
        let up = pair.here.poll_up();
        let Some(Indication::ConnectConfirm(Answer::Refused(refuse))) = up else { panic!("{up:?}") };
        assert_eq!((refuse.by, pair.here.state()), (Refuser::Provider(reason), State::I0));
    }
}

#[test]
fn answers_must_match_the_request() {
    let mut machine = machine_in(State::I2);
    let answer =
        |results| Request::ConnectResponse(Answer::Accepted(Box::new(Accept { results, ..accept() })));
    assert_eq!(machine.request(answer(vec![])), Err(RequestError::Value));
    let odd = ContextResult::provider_rejection(wire::ContextReason::LOCAL_LIMIT);
    assert_eq!(machine.request(answer(vec![ContextResult::accepted(BER), odd])), Err(RequestError::Value));
    assert_eq!(machine.request(answer(vec![ContextResult::USER_REJECTION; 2])), Err(RequestError::Value));
    assert_eq!(machine.state(), State::I2);
    // The peer's answer is checked in the same way: this CPA has one result for two contexts.
    let mut machine = machine_in(State::I1);
    let parameters = wire::CpaParameters {
        version: wire::Version::VERSION_1,
        responding_selector: None,
        results: Some(vec![ContextResult::accepted(BER)]),
        requirements: None,
        session_requirements: None,
        user_data: None,
    };
    let cpa = wire::Cpa { mode: wire::ModeSelector::NORMAL, parameters: Some(parameters) };
    let accept = session::Accept { user_data: cpa.to_rope(), ..session::Accept::default() };
    machine.arrive(session::Indication::ConnectConfirm(session::Answer::Accepted(accept.into())));
    assert!(matches!(machine.poll_up(), Some(Indication::PAbort(PAbort::Here { .. }))));
}

#[test]
fn over_session_version_1_an_abort_carries_little() {
    let mut pair = Pair::connected();
    pair.here.on_session_version(1);
    pair.here.request(Request::Abort { user_data: value(A) }).unwrap();
    let Some(session::Request::Abort { user_data }) = pair.here.poll_down() else { panic!("no abort") };
    assert!(user_data.len() <= 9);
    pair.there.arrive(session::Indication::UAbort { user_data });
    assert_eq!(pair.there.poll_up(), Some(Indication::UAbort { user_data: vec![] }));
    assert_eq!(pair.here.counters.abort_data_dropped, 1);
}

proptest! {
    #[test]
    fn any_input_is_accepted_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..60), start in 0..4usize, which in 0..9usize) {
        let first: [&[u8]; 4] = [&[], &[0x31], &[0x61], &[0xa0]];
        let bytes = [first[start], &bytes].concat();
        for state in STATES {
            let mut machine = machine_in(state);
            let user_data = Rope::from(bytes.clone());
            machine.arrive(match which {
                0 => session::Indication::Connect(Box::new(session::Connect { user_data, ..Default::default() })),
                1 => session::Indication::ConnectConfirm(session::Answer::Accepted(Box::new(session::Accept { user_data, ..Default::default() }))),
                2 => session::Indication::ConnectConfirm(session::Answer::Refused(Box::new(session::Refuse {
                    id: ConnectionId::default(), reason: session::RefuseReason::UserData, user_data,
                }))),
                3 => session::Indication::Data(user_data),
                4 => session::Indication::TypedData(user_data),
                5 => session::Indication::Release { user_data },
                6 => session::Indication::UAbort { user_data },
                7 => session::Indication::Resynchronise {
                    kind: Resynchronisation::Abandon, serial: 0, tokens: TokenSettings::default(), user_data,
                },
                _ => session::Indication::SyncMinor { explicit: false, serial: 0, user_data },
            });
            while machine.poll_up().is_some() {}
            while machine.poll_down().is_some() {}
        }
    }
}
