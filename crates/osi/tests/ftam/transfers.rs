//! Tests of two connected FTAM machines: regimes, groups, transfers, and the reaction to a peer that violates
//! the protocol.

use crate::pair::*;
use kiban_osi::ftam::below::{Form, Indication as Below, Request as Down, Value};
use kiban_osi::ftam::{Indication, Request, RequestError, State};
use kiban_osi::wire::ber::Asn1;
use kiban_osi::wire::ftam::*;

const RECOVERABLE: FunctionalUnits =
    FunctionalUnits(FunctionalUnits::RECOVERY.0 | FunctionalUnits::RESTART_DATA_TRANSFER.0);

fn kinds(indications: &[Indication]) -> Vec<Kind> {
    indications
        .iter()
        .map(|indication| match indication {
            Indication::Pdu(pdu) => pdu.kind(),
            other => panic!("{other:?}"),
        })
        .collect()
}

/// Sends requests from the initiator; the responder answers each. Returns the indications.
fn ask(pair: &mut Pair, pdus: Vec<Pdu>, succeeds: bool) -> Vec<Indication> {
    pdus.into_iter().for_each(|pdu| pair.send_pdu(0, pdu));
    for indication in pair.indications(1) {
        let Indication::Pdu(request) = indication else { panic!("{indication:?}") };
        if let Some(answer) = answer(&request, succeeds) {
            pair.send_pdu(1, answer);
        }
    }
    pair.indications(0)
}

fn open_group() -> Vec<Pdu> {
    vec![begin(2), select(), open(Some(7)), end()]
}

pub(crate) fn opened(more: FunctionalUnits, window: i64) -> Pair {
    let mut pair = Pair::initialized(ServiceClass::TRANSFER, more, window);
    ask(&mut pair, open_group(), true);
    assert_eq!(states(&pair), [State::DataTransferIdle; 2]);
    pair
}

fn states(pair: &Pair) -> [State; 2] {
    [pair.machines[0].state(), pair.machines[1].state()]
}

#[test]
fn a_group_and_its_response_each_fill_one_p_data() {
    let mut pair = Pair::initialized(ServiceClass::TRANSFER, FunctionalUnits::NONE, 1);
    open_group().into_iter().for_each(|pdu| pair.send_pdu(0, pdu));
    let Some(Down::Data(values)) = pair.machines[0].poll_down() else { panic!() };
    assert_eq!(pair.machines[0].poll_down(), None);
    assert_eq!(values.len(), 4);
    // ISODE puts the FPDUs of a group into one octet-aligned value.
    let mut joined = kiban_base::Rope::new();
    for Value { context, form } in values {
        assert_eq!(context, 1);
        let Form::Single(rope) = form else { panic!() };
        joined.append(rope);
    }
    let value = Value { context: 1, form: Form::OctetAligned(joined) };
    pair.machines[1].arrive(Below::Data(vec![value]));
    use Kind::{BeginGroupRequest, EndGroupRequest, OpenRequest, SelectRequest};
    let indications = pair.indications(1);
    assert_eq!(kinds(&indications), [BeginGroupRequest, SelectRequest, OpenRequest, EndGroupRequest]);
    assert_eq!(states(&pair), [State::Initialized; 2], "nothing is selected before the answer");
    for indication in indications {
        let Indication::Pdu(request) = indication else { panic!() };
        assert_eq!(pair.machines[1].poll_down(), None);
        pair.send_pdu(1, answer(&request, true).unwrap());
    }
    assert_eq!(pair.indications(0).len(), 4);
    assert_eq!(states(&pair), [State::DataTransferIdle; 2]);
    assert_eq!(pair.machines[0].docket().unwrap().activity, Some(7));
}

#[test]
fn a_group_whose_selection_fails_leaves_no_file_selected() {
    let mut pair = Pair::initialized(ServiceClass::TRANSFER, FunctionalUnits::NONE, 1);
    let indications = ask(&mut pair, open_group(), false);
    assert_eq!(indications.len(), 4);
    assert_eq!(states(&pair), [State::Initialized; 2]);
    assert_eq!(pair.machines[0].docket(), None);
    // An F-OPEN response that succeeds although the selection failed is an error by the responder.
    open_group().into_iter().for_each(|pdu| pair.send_pdu(0, pdu));
    let indications = pair.indications(1);
    let answers = indications.iter().map(|indication| match indication {
        Indication::Pdu(pdu) => answer(pdu, !matches!(pdu, Pdu::SelectRequest(_))).unwrap(),
        other => panic!("{other:?}"),
    });
    let results: Vec<_> = answers.map(|pdu| pair.machines[1].request(Request::Pdu(pdu))).collect();
    assert_eq!(results, [Ok(()), Ok(()), Err(RequestError::Value), Err(RequestError::Group)]);
}

#[test]
fn groups_have_an_order_and_transfers_require_groups() {
    let check = |class, pdus: Vec<Pdu>, expected: Result<(), RequestError>| {
        let mut pair = Pair::initialized(class, FunctionalUnits::NONE, 1);
        let names: Vec<_> = pdus.iter().map(Pdu::kind).collect();
        let mut result = Ok(());
        for pdu in pdus {
            result = result.and_then(|()| pair.machines[0].request(Request::Pdu(pdu)));
        }
        assert_eq!(result, expected, "{class}: {names:?}");
    };
    let attributes = || {
        let (attribute_names, attribute_extension_names) = (AttributeNames::KERNEL, None);
        Pdu::ReadAttributesRequest(Box::new(ReadAttributesRequest {
            attribute_names,
            attribute_extension_names,
        }))
    };
    let (t, m, tm, u) = (
        ServiceClass::TRANSFER,
        ServiceClass::MANAGEMENT,
        ServiceClass::TRANSFER_AND_MANAGEMENT,
        ServiceClass::UNCONSTRAINED,
    );
    check(t, vec![begin(2), select(), open(None), end()], Ok(()));
    check(t, vec![begin(3), select(), attributes(), open(None), end()], Ok(()));
    check(t, vec![select()], Err(RequestError::Group));
    check(t, vec![begin(1), open(None)], Err(RequestError::State));
    check(t, vec![begin(1), select(), end()], Err(RequestError::Group));
    check(t, vec![begin(0), end()], Err(RequestError::Group));
    check(t, vec![begin(3), select(), attributes(), deselect(), end()], Err(RequestError::Group));
    check(tm, vec![begin(3), select(), attributes(), deselect(), end()], Ok(()));
    check(
        tm,
        vec![begin(3), select(), attributes(), attributes(), deselect(), end()],
        Err(RequestError::Group),
    );
    check(m, vec![begin(3), select(), attributes(), deselect(), end()], Ok(()));
    check(m, vec![begin(2), select(), open(None), end()], Err(RequestError::Group));
    check(m, vec![select()], Ok(()));
    check(u, vec![begin(1), select(), end()], Ok(()));
    check(u, vec![begin(1), begin(1)], Err(RequestError::Group));
    check(u, vec![begin(1), read()], Err(RequestError::Group));
    check(u, vec![end()], Err(RequestError::State));
    let long = [vec![begin(1), select()], (0..8).map(|_| attributes()).collect()].concat();
    check(u, long, Err(RequestError::Group));
}

#[test]
fn a_file_is_written_read_and_closed() {
    for more in [FunctionalUnits::NONE, RECOVERABLE] {
        let mut pair = opened(more, 1);
        pair.send_pdu(0, write());
        for bytes in [&b"one"[..], b"", b"two"] {
            pair.machines[0].request(data(bytes)).unwrap();
        }
        pair.send_pdu(0, data_end());
        pair.send_pdu(0, transfer_end());
        let indications = pair.indications(1);
        assert_eq!(indications.len(), 6);
        assert!(
            matches!(&indications[3], Indication::Data(element) if *element == DataElement::octets(b"two".to_vec().into()))
        );
        pair.send_pdu(1, answer(&transfer_end(), true).unwrap());
        assert_eq!(kinds(&pair.indications(0)), [Kind::TransferEndResponse]);

        pair.send_pdu(0, read());
        assert_eq!(kinds(&pair.indications(1)), [Kind::ReadRequest]);
        assert_eq!(
            pair.machines[0].request(data(b"no")),
            Err(RequestError::State),
            "who reads does not send"
        );
        pair.machines[1].request(data(b"one")).unwrap();
        pair.send_pdu(1, data_end());
        assert_eq!(pair.indications(0).len(), 2);
        assert_eq!(pair.machines[0].docket().unwrap().bulk_transfer_number, 2);
        assert_eq!(kinds(&ask(&mut pair, vec![transfer_end()], true)), [Kind::TransferEndResponse]);

        ask(&mut pair, vec![begin(2), close(), deselect(), end()], true);
        assert_eq!(states(&pair), [State::Initialized; 2]);
        let terminate = Pdu::TerminateRequest(Box::new(TerminateRequest { shared_ase_information: None }));
        assert_eq!(kinds(&ask(&mut pair, vec![terminate], true)), [Kind::TerminateResponse]);
        assert_eq!(states(&pair), [State::Closed; 2]);
        assert_eq!(pair.machines[0].docket(), None);
    }
}

#[test]
fn contents_are_not_copied_end_to_end() {
    let mut pair = opened(FunctionalUnits::NONE, 1);
    pair.send_pdu(0, write());
    let page = bytes_of(4096);
    let at = page.as_ptr();
    pair.machines[0].request(Request::Data(DataElement::octets(page.into()))).unwrap();
    let indications = pair.indications(1);
    let Indication::Data(DataElement::Value { contents, .. }) = &indications[1] else { panic!() };
    assert_eq!(contents.clone().into_bytes().as_ptr(), at);
}

fn bytes_of(count: usize) -> Vec<u8> {
    vec![7; count]
}

#[test]
fn either_end_cancels_in_every_state_of_a_transfer() {
    for more in [FunctionalUnits::NONE, RECOVERABLE] {
        for by in [0, 1] {
            for steps in 0..4 {
                let mut pair = opened(more, 1);
                pair.send_pdu(0, write());
                let mut all =
                    vec![data(b"one"), Request::Pdu(data_end()), Request::Pdu(transfer_end())].into_iter();
                for step in all.by_ref().take(steps) {
                    pair.machines[0].request(step).unwrap();
                }
                pair.indications(1);
                let cancel = || Pdu::CancelRequest(Cancel::new(ActionResult::TRANSIENT_ERROR, None).into());
                if by == 0 && steps == 3 {
                    // After F-TRANSFER-END is requested, F-CANCEL is not allowed until the response arrives.
                    assert_eq!(pair.machines[0].request(Request::Pdu(cancel())), Err(RequestError::State));
                    continue;
                }
                pair.send_pdu(by, cancel());
                assert_eq!(kinds(&pair.indications(1 - by)), [Kind::CancelRequest]);
                pair.send_pdu(1 - by, answer(&cancel(), true).unwrap());
                assert_eq!(kinds(&pair.indications(by)), [Kind::CancelResponse]);
                assert_eq!(states(&pair), [State::DataTransferIdle; 2]);
                assert_eq!(pair.machines[0].docket().unwrap().transfer, None);
                // In the next transfer, checkpoints are again numbered from 1, and the responder is the
                // sender.
                pair.send_pdu(0, read());
                pair.indications(1);
                if more == RECOVERABLE {
                    pair.machines[1].request(Request::Check).unwrap();
                    assert_eq!(pair.indications(0), [Indication::Check { checkpoint: 1 }]);
                }
            }
        }
    }
}

#[test]
fn crossing_cancels_end_one_transfer() {
    for more in [FunctionalUnits::NONE, RECOVERABLE] {
        let mut pair = opened(more, 1);
        pair.send_pdu(0, write());
        pair.indications(1);
        let cancel = || Pdu::CancelRequest(Cancel::new(ActionResult::TRANSIENT_ERROR, None).into());
        pair.send_pdu(0, cancel());
        pair.send_pdu(1, cancel());
        pair.carry_all();
        for side in [0, 1] {
            for indication in pair.indications(side) {
                if let Indication::Pdu(pdu @ Pdu::CancelRequest(_)) = indication {
                    pair.send_pdu(side, answer(&pdu, true).unwrap());
                }
            }
        }
        pair.indications(0);
        pair.indications(1);
        assert_eq!(states(&pair), [State::DataTransferIdle; 2]);
    }
}

#[test]
fn checkpoints_respect_the_window_and_are_numbered_from_the_start() {
    let mut pair = opened(RECOVERABLE, 2);
    for round in 0..2 {
        pair.send_pdu(0, write());
        for checkpoint in 1..=2 {
            pair.machines[0].request(Request::Check).unwrap();
            assert_eq!(pair.indications(1).last(), Some(&Indication::Check { checkpoint }), "round {round}");
        }
        assert_eq!(pair.machines[0].request(Request::Check), Err(RequestError::Checkpoint));
        assert_eq!(
            pair.machines[1].request(Request::CheckResponse { checkpoint: 3 }),
            Err(RequestError::Checkpoint)
        );
        pair.machines[1].request(Request::CheckResponse { checkpoint: 2 }).unwrap();
        assert_eq!(
            pair.machines[1].request(Request::CheckResponse { checkpoint: 2 }),
            Err(RequestError::Checkpoint)
        );
        assert_eq!(pair.indications(0), [Indication::CheckConfirm { checkpoint: 2 }]);
        pair.machines[0].request(Request::Check).unwrap();
        pair.send_pdu(0, data_end());
        pair.send_pdu(0, transfer_end());
        pair.indications(1);
        let end = || Request::Pdu(answer(&transfer_end(), true).unwrap());
        assert_eq!(pair.machines[1].request(end()), Err(RequestError::Checkpoint), "it is not secured yet");
        pair.machines[1].request(Request::CheckResponse { checkpoint: 3 }).unwrap();
        pair.machines[1].request(end()).unwrap();
        assert_eq!(pair.indications(0).len(), 2);
    }
}

#[test]
fn a_restart_acknowledges_the_checkpoint_it_returns_to() {
    for (is_answered, goes_on) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut pair = opened(RECOVERABLE, 1);
        pair.send_pdu(0, write());
        pair.machines[0].request(Request::Check).unwrap();
        pair.indications(1);
        let restart = Restart::new(1);
        pair.send_pdu(0, Pdu::RestartRequest(restart.clone().into()));
        pair.collect();
        let answers = Request::CheckResponse { checkpoint: 1 };
        if is_answered {
            // The answer crosses with the restart, so the restarting end gets no confirm for the checkpoint.
            pair.machines[1].request(answers).unwrap();
            pair.indications(1);
        } else {
            pair.indications(1);
            assert_eq!(pair.machines[1].request(answers), Err(RequestError::State));
        }
        pair.send_pdu(1, Pdu::RestartResponse(restart.into()));
        assert_eq!(kinds(&pair.indications(0)), [Kind::RestartResponse], "{is_answered}");
        if goes_on {
            // The checkpoint is acknowledged, so the checkpoint window is open again.
            pair.machines[0].request(Request::Check).unwrap();
            assert_eq!(pair.indications(1), [Indication::Check { checkpoint: 2 }]);
            pair.machines[1].request(Request::CheckResponse { checkpoint: 2 }).unwrap();
            assert_eq!(pair.indications(0), [Indication::CheckConfirm { checkpoint: 2 }]);
        }
        pair.send_pdu(0, data_end());
        pair.send_pdu(0, transfer_end());
        pair.indications(1);
        pair.send_pdu(1, answer(&transfer_end(), true).unwrap());
        assert_eq!(kinds(&pair.indications(0)), [Kind::TransferEndResponse]);
    }
}

#[test]
fn without_recovery_and_restart_there_are_no_checkpoints() {
    let mut pair = opened(FunctionalUnits::NONE, 1);
    pair.send_pdu(0, write());
    assert_eq!(pair.machines[0].request(Request::Check), Err(RequestError::Unit));
    let restart = Pdu::RestartRequest(Restart::new(0).into());
    assert_eq!(pair.machines[0].request(Request::Pdu(restart)), Err(RequestError::Unit));
    let recover = Pdu::RecoverRequest(RecoverRequest::new(7, 1, AccessRequest::READ, 0).into());
    assert_eq!(pair.machines[0].request(Request::Pdu(recover)), Err(RequestError::Unit));
}

#[test]
fn only_proposed_features_are_accepted() {
    let proposed = proposal(ServiceClass::TRANSFER | ServiceClass::MANAGEMENT, FunctionalUnits::NONE, 2);
    let fair = InitializeResponse::new(ServiceClass::TRANSFER, proposed.functional_units);
    for (response, expected) in [
        (fair.clone(), Ok(())),
        (
            InitializeResponse { service_class: ServiceClass::ACCESS, ..fair.clone() },
            Err(RequestError::Value),
        ),
        (
            InitializeResponse { service_class: proposed.service_class, ..fair.clone() },
            Err(RequestError::Value),
        ),
        (
            InitializeResponse { functional_units: FunctionalUnits(u64::MAX), ..fair.clone() },
            Err(RequestError::Value),
        ),
        (
            InitializeResponse { attribute_groups: AttributeGroups::STORAGE, ..fair.clone() },
            Err(RequestError::Value),
        ),
        (InitializeResponse { checkpoint_window: 3, ..fair.clone() }, Err(RequestError::Value)),
        (InitializeResponse { checkpoint_window: 0, ..fair }, Err(RequestError::Value)),
    ] {
        let mut pair = Pair::new();
        pair.initialize(proposed.clone()).unwrap();
        pair.indications(1);
        let said = format!("{response:?}");
        assert_eq!(
            pair.machines[1].request(Request::Pdu(Pdu::InitializeResponse(response.into()))),
            expected,
            "{said}"
        );
    }
}

#[test]
fn a_refusal_is_indicated_and_ends_the_association() {
    let mut pair = Pair::new();
    pair.initialize(proposal(ServiceClass::TRANSFER, FunctionalUnits::NONE, 1)).unwrap();
    pair.indications(1);
    let response = InitializeResponse {
        state_result: StateResult::FAILURE,
        action_result: ActionResult::PERMANENT_ERROR,
        ..InitializeResponse::new(ServiceClass::NONE, FunctionalUnits::NONE)
    };
    pair.send_pdu(1, Pdu::InitializeResponse(response.into()));
    assert_eq!(kinds(&pair.indications(0)), [Kind::InitializeResponse]);
    assert_eq!(states(&pair), [State::Closed; 2]);
}

#[test]
fn a_protocol_error_is_answered_with_its_diagnostic() {
    let single = |pdu: Pdu| Below::Data(vec![Value { context: 1, form: Form::Single(pdu.to_rope()) }]);
    let bytes = |context, bytes: &[u8]| {
        Below::Data(vec![Value { context, form: Form::OctetAligned(kiban_base::Rope::copied(bytes)) }])
    };
    for (below, error) in [
        (single(read()), ErrorIdentifier::PROCEDURE_ERROR),
        (single(data_end()), ErrorIdentifier::PROCEDURE_ERROR),
        (single(select()), ErrorIdentifier::GROUPING_SEQUENCE),
        (
            single(Pdu::UserAbort(Box::new(UserAbort {
                action_result: ActionResult::SUCCESS,
                diagnostic: None,
            }))),
            ErrorIdentifier::PROCEDURE_ERROR,
        ),
        (
            single(Pdu::RecoverRequest(RecoverRequest::new(1, 1, AccessRequest::READ, 0).into())),
            ErrorIdentifier::FUNCTIONAL_UNIT_ERROR,
        ),
        (bytes(1, b"\xb6\x03\x80\x01"), ErrorIdentifier::CORRUPTION_ERROR),
        (bytes(1, b"\x04\x01a"), ErrorIdentifier::CORRUPTION_ERROR),
        (bytes(3, b"\x04\x01a"), ErrorIdentifier::PROCEDURE_ERROR),
        (Below::SyncMinor { serial: 1 }, ErrorIdentifier::PROCEDURE_ERROR),
        (Below::Resynchronise { serial: 1, values: vec![] }, ErrorIdentifier::CORRUPTION_ERROR),
        (Below::Release(vec![]), ErrorIdentifier::CORRUPTION_ERROR),
    ] {
        let mut pair = Pair::initialized(ServiceClass::TRANSFER, FunctionalUnits::NONE, 1);
        let said = format!("{below:?}");
        pair.machines[1].arrive(below);
        let Some(Indication::Pdu(pdu @ Pdu::ProviderAbort(_))) = pair.machines[1].poll_up() else {
            panic!("{said}")
        };
        assert_eq!(pdu.diagnostic().unwrap().0[0].error(), error, "{said}");
        assert_eq!(pair.machines[1].state(), State::Closed);
        assert_eq!(pair.indications(0), [Indication::Pdu(pdu)], "the peer is told the same");
    }
}

#[test]
fn invalid_data_ends_the_association_when_polled() {
    let mut pair = opened(FunctionalUnits::NONE, 1);
    pair.send_pdu(0, write());
    pair.indications(1);
    let rope = kiban_base::Rope::copied(b"\x04\x01a\x04\x01b\x02\x01\x00");
    pair.machines[1].arrive(Below::Data(vec![Value { context: 3, form: Form::OctetAligned(rope) }]));
    let indications = pair.indications(1);
    assert!(matches!(&indications[..2], [Indication::Data(_), Indication::Data(_)]), "{indications:?}");
    assert_eq!(kinds(&indications[2..]), [Kind::ProviderAbort]);
    assert_eq!(pair.machines[1].counters().malformed_in, 1);
    assert_eq!(kinds(&pair.indications(0)), [Kind::ProviderAbort]);
}

#[test]
fn requests_of_the_other_role_are_rejected() {
    let mut pair = Pair::new();
    let request = proposal(ServiceClass::TRANSFER, FunctionalUnits::NONE, 1);
    let (calling, called) = Default::default();
    let initialize = kiban_osi::ftam::Initialize { calling, called, abstract_syntaxes: vec![], request };
    assert_eq!(pair.machines[1].request(Request::Initialize(Box::new(initialize))), Err(RequestError::State));
}
