//! From F-INITIALIZE to F-TERMINATE through all layers.

use super::loopback::{Join, Pair};
use kiban_osi::Selectors;
use kiban_osi::ftam::{Indication, Initialize, Request, State};
use kiban_osi::wire::ftam::*;

const ALL: FunctionalUnits = FunctionalUnits::READ
    .with(FunctionalUnits::WRITE)
    .with(FunctionalUnits::GROUPING)
    .with(FunctionalUnits::RECOVERY)
    .with(FunctionalUnits::RESTART_DATA_TRANSFER);

fn initialize(units: FunctionalUnits) -> InitializeRequest {
    InitializeRequest {
        contents_type_list: Some(ContentsTypeList(vec![ContentsTypeName::Document(DocumentTypeName(
            oids::FTAM_3,
        ))])),
        ..InitializeRequest::new(ServiceClass::TRANSFER, units)
    }
}

fn associated(join: Join, units: FunctionalUnits) -> Pair {
    let mut pair = Pair::new(join);
    let called = Selectors { presentation: "ftam".into(), session: "s".into(), ..Selectors::default() };
    pair.ask(
        0,
        Request::Initialize(Box::new(Initialize {
            calling: Selectors::default(),
            called: called.clone(),
            abstract_syntaxes: vec![],
            request: initialize(units),
        })),
    );
    let heard = pair.hear(1);
    let [Indication::Initialize(asked)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(asked.called.presentation, called.presentation);
    assert_eq!(asked.called.session, called.session);
    assert_eq!(asked.request.functional_units, units);
    let response = InitializeResponse::new(ServiceClass::TRANSFER, units);
    pair.ask(1, Request::Pdu(Pdu::InitializeResponse(response.into())));
    let heard = pair.hear(0);
    assert!(matches!(&heard[..], [Indication::Pdu(Pdu::InitializeResponse(_))]), "{heard:?}");
    pair
}

#[test]
fn an_association_is_established_and_released_over_every_lower_layer() {
    for join in [Join::Bytes(1), Join::Bytes(7), Join::Bytes(65536), Join::Loopback] {
        for units in [FunctionalUnits::READ.with(FunctionalUnits::GROUPING), ALL] {
            let mut pair = associated(join, units);
            pair.ask(
                0,
                Request::Pdu(Pdu::TerminateRequest(TerminateRequest { shared_ase_information: None }.into())),
            );
            assert!(matches!(&pair.hear(1)[..], [Indication::Pdu(Pdu::TerminateRequest(_))]));
            pair.ask(
                1,
                Request::Pdu(Pdu::TerminateResponse(
                    TerminateResponse { shared_ase_information: None, charging: None }.into(),
                )),
            );
            assert!(matches!(&pair.hear(0)[..], [Indication::Pdu(Pdu::TerminateResponse(_))]));
            assert!(pair.closes(0) || pair.closes(1), "nobody closes the connection");
            assert_eq!(pair.files[0].machine().state(), State::Closed);
            assert_eq!(pair.files[0].crossed() + pair.files[1].crossed(), 0);
        }
    }
}
