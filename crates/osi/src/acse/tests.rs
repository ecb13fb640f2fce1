//! Tests every cell of the table in X.227 Annex A, and runs two machines over an ideal presentation service.

use super::machine::Acse;
use super::primitives::{Abort, Associate, AssociateAnswer, Authentication, EntityName, Indication, Request};
use super::state::{Cell, Event, State, cell};
use crate::presentation::{self, Accept, Answer, Connect, PAbort, Refuse, Refuser};
use crate::wire::acse as wire;
use crate::wire::acse::{
    ABSTRACT_SYNTAX, AbortDiagnostic, AbortSource, Apdu, AssociateDiagnostic, AssociateResult,
    AuthenticationValue, PASSWORD_MECHANISM, ProviderDiagnostic, ReleaseResponseReason, UserDiagnostic,
};
use crate::wire::ber::{Asn1, Oid};
use crate::wire::presentation::{BER, ContextDefinition, ContextResult, Pdv, ProviderReason};
use crate::{RequestError, session};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{format, vec};
use proptest::prelude::*;

/// Table A.5, columns STA0 to STA7. `-` is a blank cell; `p1` and `p2` are cells that depend on that
/// predicate.
const TABLE: &[(&str, [&str; 8])] = &[
    ("A-ASCreq", ["STA1", "-", "-", "-", "-", "-", "-", "-"]),
    ("A-ASCrsp+", ["-", "-", "STA5", "-", "-", "-", "-", "-"]),
    ("A-ASCrsp-", ["-", "-", "STA0", "-", "-", "-", "-", "-"]),
    ("AARQ", ["p1", "-", "-", "-", "-", "-", "-", "-"]),
    ("AARE+", ["-", "STA5", "-", "-", "-", "-", "-", "-"]),
    ("AARE-", ["-", "STA0", "-", "-", "-", "-", "-", "-"]),
    ("P-CONcnf-", ["-", "STA0", "-", "-", "-", "-", "-", "-"]),
    ("A-RLSreq", ["-", "-", "-", "-", "-", "STA3", "-", "-"]),
    ("A-RLSrsp+", ["-", "-", "-", "-", "STA0", "-", "STA3", "-"]),
    ("A-RLSrsp-", ["-", "-", "-", "-", "STA5", "-", "-", "-"]),
    ("RLRQ", ["-", "-", "-", "p2", "-", "STA4", "-", "-"]),
    ("RLRE+", ["-", "-", "-", "STA0", "-", "-", "-", "STA4"]),
    ("RLRE-", ["-", "-", "-", "STA5", "-", "-", "-", "-"]),
    ("A-ABRreq", ["-", "STA0", "STA0", "STA0", "STA0", "STA0", "STA0", "STA0"]),
    ("ABRT", ["-", "STA0", "STA0", "STA0", "STA0", "STA0", "STA0", "STA0"]),
    ("P-PABind", ["-", "STA0", "STA0", "STA0", "STA0", "STA0", "STA0", "STA0"]),
    ("EXTRN-1", ["-", "-", "-", "STA5", "-", "STA5", "-", "-"]),
    ("EXTRN-2", ["-", "-", "-", "-", "STA5", "STA5", "-", "-"]),
];

const STATES: [State; 8] =
    [State::Sta0, State::Sta1, State::Sta2, State::Sta3, State::Sta4, State::Sta5, State::Sta6, State::Sta7];

fn shown(cell: Cell) -> String {
    match cell {
        Cell::Invalid => "-".to_string(),
        Cell::Validate => "p1".to_string(),
        Cell::Collision => "p2".to_string(),
        Cell::Go(next) => format!("STA{}", next as usize),
    }
}

const FTAM: i64 = 3;

fn contexts() -> Vec<ContextDefinition> {
    let of = |id, abstract_syntax| ContextDefinition { id, abstract_syntax, transfer_syntaxes: vec![BER] };
    vec![of(FTAM, Oid::of("1.0.8571.2.1")), of(11, ABSTRACT_SYNTAX)]
}

fn information() -> Vec<Pdv> {
    vec![Pdv::single(FTAM, vec![0xa0, 0])]
}

fn associate() -> Associate {
    Associate {
        presentation: Connect { contexts: contexts(), ..Connect::default() },
        application_context: Oid::of("1.0.8571.1.1"),
        called: EntityName::default(),
        calling: EntityName { ae_invocation: Some(7), ..EntityName::default() },
        authentication: None,
        implementation: Some("kiban".into()),
        user_information: information(),
    }
}

fn password(text: &str) -> Authentication {
    let value = Some(AuthenticationValue::Charstring(text.into()));
    Authentication { mechanism: Some(PASSWORD_MECHANISM), value }
}

fn answer(is_accepted: bool) -> AssociateAnswer {
    let accept = Accept { results: vec![ContextResult::accepted(BER); 2], ..Accept::default() };
    let (id, responding, results, user_data) = Default::default();
    let refuse = Refuse { id, by: Refuser::User, responding, results, user_data };
    AssociateAnswer {
        presentation: if is_accepted {
            Answer::Accepted(accept.into())
        } else {
            Answer::Refused(refuse.into())
        },
        application_context: Some(Oid::of("1.0.8571.1.1")),
        result: if is_accepted { AssociateResult::ACCEPTED } else { AssociateResult::REJECTED_PERMANENT },
        diagnostic: Some(AssociateDiagnostic::ServiceUser(UserDiagnostic::NULL)),
        responding: EntityName::default(),
        authentication: None,
        implementation: None,
        user_information: information(),
    }
}

fn abort() -> Abort {
    Abort { source: AbortSource::SERVICE_USER, diagnostic: None, user_information: information() }
}

fn release() -> Request {
    Request::Release { reason: None, user_information: information() }
}

fn release_response(accepted: bool) -> Request {
    let reason = Some(ReleaseResponseReason::NORMAL);
    Request::ReleaseResponse { accepted, reason, user_information: vec![] }
}

/// Converts a request to the indication at the other end of an ideal presentation service.
fn carried(request: presentation::Request) -> presentation::Indication {
    use presentation::{Indication as I, Request as R};
    match request {
        R::Connect(connect) => I::Connect(connect),
        R::ConnectResponse(answer) => I::ConnectConfirm(answer),
        R::Release { user_data } => I::Release { user_data },
        R::ReleaseResponse { accepted, user_data } => I::ReleaseConfirm { accepted, user_data },
        R::Abort { user_data } => I::UAbort { user_data },
        other => panic!("unexpected request of ACSE: {other:?}"),
    }
}

#[derive(Default)]
struct Pair {
    here: Acse,
    there: Acse,
}

impl Pair {
    /// Makes one request at this end, delivers it to the other end, and returns the indication there.
    fn here(&mut self, request: Request) -> Indication {
        self.here.request(request).unwrap();
        self.there.arrive(carried(self.here.poll_down().unwrap()));
        self.there.poll_up().unwrap()
    }

    fn there(&mut self, request: Request) -> Indication {
        self.there.request(request).unwrap();
        self.here.arrive(carried(self.there.poll_down().unwrap()));
        self.here.poll_up().unwrap()
    }

    fn associated() -> Pair {
        let mut pair = Pair::default();
        pair.here(Request::Associate(associate()));
        pair.there(Request::AssociateResponse(answer(true)));
        pair
    }

    /// Returns a pair in a release collision.
    fn collided() -> Pair {
        let mut pair = Pair::associated();
        pair.here.request(release()).unwrap();
        pair.there.request(release()).unwrap();
        pair.there.arrive(carried(pair.here.poll_down().unwrap()));
        pair.here.arrive(carried(pair.there.poll_down().unwrap()));
        assert!(pair.here.poll_up().is_some() && pair.there.poll_up().is_some());
        pair
    }
}

fn machine_in(state: State) -> Acse {
    let mut pair = Pair::default();
    let machine = match state {
        State::Sta0 => pair.here,
        State::Sta1 => {
            pair.here.request(Request::Associate(associate())).unwrap();
            pair.here.poll_down();
            pair.here
        }
        State::Sta2 => {
            pair.here(Request::Associate(associate()));
            pair.there
        }
        State::Sta3 | State::Sta4 => {
            pair = Pair::associated();
            pair.here(release());
            if state == State::Sta3 { pair.here } else { pair.there }
        }
        State::Sta5 => Pair::associated().here,
        State::Sta6 => Pair::collided().here,
        State::Sta7 => Pair::collided().there,
    };
    assert_eq!(machine.state(), state);
    machine
}

#[allow(clippy::large_enum_variant)]
enum Given {
    Above(Request),
    Below(presentation::Indication),
    Beside(bool),
}

fn given(event: Event) -> Given {
    use Given::{Above, Below, Beside};
    let from = |state: State, request: Request| {
        let mut machine = machine_in(state);
        machine.request(request).unwrap();
        Below(carried(machine.poll_down().unwrap()))
    };
    match event {
        Event::AAscReq => Above(Request::Associate(associate())),
        Event::AAscRspAccept => Above(Request::AssociateResponse(answer(true))),
        Event::AAscRspReject => Above(Request::AssociateResponse(answer(false))),
        Event::Aarq => from(State::Sta0, Request::Associate(associate())),
        Event::AareAccept => from(State::Sta2, Request::AssociateResponse(answer(true))),
        Event::AareReject => from(State::Sta2, Request::AssociateResponse(answer(false))),
        Event::PConCnfReject => {
            let (id, responding, results, user_data) = Default::default();
            let by = Refuser::Provider(ProviderReason::CALLED_ADDRESS_UNKNOWN);
            let refuse = Refuse { id, by, responding, results, user_data };
            Below(presentation::Indication::ConnectConfirm(Answer::Refused(refuse.into())))
        }
        Event::ARlsReq => Above(release()),
        Event::ARlsRspAccept => Above(release_response(true)),
        Event::ARlsRspReject => Above(release_response(false)),
        Event::Rlrq => from(State::Sta5, release()),
        Event::RlreAccept => from(State::Sta4, release_response(true)),
        Event::RlreReject => from(State::Sta4, release_response(false)),
        Event::AAbrReq => Above(Request::Abort(abort())),
        Event::Abrt => from(State::Sta5, Request::Abort(abort())),
        Event::PPabInd => Below(presentation::Indication::PAbort(PAbort::Session(
            session::AbortReason::TransportDisconnect,
        ))),
        Event::Extern1 => Beside(false),
        Event::Extern2 => Beside(true),
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
            let next = match *expected {
                // `machine_in` reaches STA3 as the end that originated the association.
                "p2" => State::Sta6,
                "p1" => State::Sta2,
                "-" => state,
                name => STATES.into_iter().find(|state| format!("STA{}", *state as usize) == name).unwrap(),
            };
            let at = format!("{name} in {state:?}");
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
                    assert_eq!(machine.state(), State::Sta0, "{at}");
                    let is_end = [Event::Abrt, Event::PPabInd].contains(&event);
                    assert_eq!(machine.poll_down().is_some(), !is_end, "{at}");
                    match machine.poll_up() {
                        None => assert_eq!(state, State::Sta0, "{at}"),
                        Some(Indication::Abort(abort)) => {
                            assert_eq!(abort.source, AbortSource::SERVICE_PROVIDER)
                        }
                        up => panic!("{up:?} {at}"),
                    }
                }
                Given::Below(below) => {
                    machine.arrive(below);
                    assert_eq!(machine.state(), next, "{at}");
                    assert!(machine.poll_up().is_some() && machine.poll_up().is_none(), "{at}");
                    assert_eq!(machine.poll_down(), None, "{at}");
                }
                Given::Beside(is_own) => {
                    machine.on_resynchronise(is_own);
                    assert_eq!(
                        (machine.state(), machine.poll_up(), machine.poll_down()),
                        (next, None, None),
                        "{at}"
                    );
                }
            }
        }
    }
}

#[test]
fn both_ends_report_the_request_and_the_response() {
    let mut pair = Pair::default();
    let request = Associate { authentication: Some(password("secret")), ..associate() };
    assert_eq!(pair.here(Request::Associate(request.clone())), Indication::Associate(request));
    let answered = AssociateAnswer { authentication: Some(password("known")), ..answer(true) };
    let confirm = pair.there(Request::AssociateResponse(answered.clone()));
    assert_eq!(confirm, Indication::AssociateConfirm(answered));
    let why = Abort { diagnostic: Some(AbortDiagnostic::AUTHENTICATION_FAILURE), ..abort() };
    assert_eq!(pair.here(Request::Abort(why.clone())), Indication::Abort(why));
}

#[test]
fn authentication_requires_its_functional_unit() {
    let mut pair = Pair::default();
    pair.here(Request::Associate(associate()));
    let proof = AssociateAnswer { authentication: Some(password("x")), ..answer(true) };
    assert_eq!(pair.there.request(Request::AssociateResponse(proof)), Err(RequestError::Unit));
    pair.there(Request::AssociateResponse(answer(true)));
    let why = Abort { diagnostic: Some(AbortDiagnostic::NO_REASON_GIVEN), ..abort() };
    assert_eq!(pair.here.request(Request::Abort(why)), Err(RequestError::Unit));
    assert_eq!((pair.here.state(), pair.there.state()), (State::Sta5, State::Sta5));
}

#[test]
fn colliding_releases_are_answered_in_turn() {
    let mut pair = Pair::collided();
    assert_eq!((pair.here.state(), pair.there.state()), (State::Sta6, State::Sta7));
    assert_eq!(pair.there.request(release_response(true)), Err(RequestError::State));
    pair.here(release_response(true));
    assert_eq!((pair.here.state(), pair.there.state()), (State::Sta3, State::Sta4));
    pair.there(release_response(true));
    assert_eq!((pair.here.state(), pair.there.state()), (State::Sta0, State::Sta0));
}

#[test]
fn without_a_common_version_the_user_sees_no_request() {
    let mut pair = Pair::default();
    pair.here.request(Request::Associate(associate())).unwrap();
    let Some(presentation::Request::Connect(mut connect)) = pair.here.poll_down() else {
        panic!("no P-CONNECT")
    };
    let bytes = connect.user_data[0].octets().to_vec();
    let Ok((Apdu::Aarq(mut aarq), _)) = Apdu::read(&bytes) else { panic!("no AARQ") };
    aarq.version = wire::Version(1 << 1);
    connect.user_data = vec![Pdv::single(11, Apdu::Aarq(aarq).to_rope())];
    pair.there.arrive(presentation::Indication::Connect(connect));
    assert_eq!((pair.there.poll_up(), pair.there.state()), (None, State::Sta0));
    pair.here.arrive(carried(pair.there.poll_down().unwrap()));
    let Some(Indication::AssociateConfirm(confirm)) = pair.here.poll_up() else { panic!("no confirm") };
    assert_eq!(confirm.result, AssociateResult::REJECTED_PERMANENT);
    let none = AssociateDiagnostic::ServiceProvider(ProviderDiagnostic::NO_COMMON_ACSE_VERSION);
    assert_eq!(confirm.diagnostic, Some(none));
}

#[test]
fn presentation_refusals_map_to_permanent_and_transient_rejections() {
    for (by, expected) in [
        (Refuser::Provider(ProviderReason::CALLED_ADDRESS_UNKNOWN), AssociateResult::REJECTED_PERMANENT),
        (Refuser::Provider(ProviderReason::TEMPORARY_CONGESTION), AssociateResult::REJECTED_TRANSIENT),
        (Refuser::Session(session::RefuseReason::SelectorUnknown), AssociateResult::REJECTED_PERMANENT),
    ] {
        let mut machine = machine_in(State::Sta1);
        let (id, responding, results, user_data) = Default::default();
        let refuse = Refuse { id, by, responding, results, user_data };
        machine.arrive(presentation::Indication::ConnectConfirm(Answer::Refused(refuse.into())));
        let Some(Indication::AssociateConfirm(confirm)) = machine.poll_up() else { panic!("no confirm") };
        assert_eq!((confirm.result, confirm.diagnostic, machine.state()), (expected, None, State::Sta0));
    }
}

#[test]
fn an_abort_without_a_data_unit_comes_from_the_user() {
    let mut machine = machine_in(State::Sta5);
    machine.arrive(presentation::Indication::UAbort { user_data: vec![] });
    let expected = Abort { source: AbortSource::SERVICE_USER, diagnostic: None, user_information: vec![] };
    assert_eq!(machine.poll_up(), Some(Indication::Abort(expected)));
}

#[test]
fn without_acses_context_the_association_is_refused() {
    let mut request = associate();
    request.presentation.contexts.pop();
    let mut machine = Acse::new();
    assert_eq!(machine.request(Request::Associate(request.clone())), Err(RequestError::Value));
    machine.arrive(presentation::Indication::Connect(request.presentation.into()));
    assert_eq!(machine.poll_up(), None);
    assert_eq!(machine.poll_down(), Some(presentation::Request::Abort { user_data: vec![] }));
}

proptest! {
    #[test]
    fn any_input_is_accepted_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..40), tag in 0x5f..0x66u8, which in 0..5usize) {
        let bytes = [&[tag, bytes.len() as u8][..], &bytes].concat();
        for state in STATES {
            let mut machine = machine_in(state);
            let user_data = vec![Pdv::single(11, bytes.clone())];
            machine.arrive(match which {
                0 => presentation::Indication::Connect(Box::new(Connect { contexts: contexts(), user_data, ..Connect::default() })),
                1 => presentation::Indication::ConnectConfirm(Answer::Accepted(Box::new(Accept { user_data, ..Accept::default() }))),
                2 => presentation::Indication::Release { user_data },
                3 => presentation::Indication::ReleaseConfirm { accepted: true, user_data },
                _ => presentation::Indication::UAbort { user_data },
            });
            while machine.poll_up().is_some() {}
            while machine.poll_down().is_some() {}
        }
    }
}
