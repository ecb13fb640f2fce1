//! Tests in which a peer sends arbitrary FPDUs.

use super::*;
use crate::ftam::State;
use crate::ftam::below::{Associate, Context, Form, Value};
use crate::wire::ber::Asn1;
use crate::wire::ftam::*;
use crate::wire::presentation::BER;

fn value(context: i64, rope: kiban_base::Rope) -> Value {
    Value { context, form: Form::Single(rope) }
}

fn pick<T: Clone>(chance: &mut SimRng, of: &[T]) -> T {
    of[chance.below(of.len() as u64) as usize].clone()
}

/// Returns a random FPDU that an initiator could send; its parameters are sometimes valid.
fn any(chance: &mut SimRng) -> Pdu {
    let name = pick(chance, &["f", "f", "f", "f", "new", "d", "d/g", "..", "", "a//b"]);
    let access = AccessRequest(pick(chance, &[0xff, 0xff, 0xff, 1, 4, 8, 0x20, 0xffff, 0]));
    let document = pick(
        chance,
        &[
            BINARY.contents_type(),
            BINARY.contents_type(),
            BINARY.contents_type(),
            BINARY.contents_type(),
            text(27).contents_type(),
            records().contents_type(),
            Document::Directory(DirectoryParameters(AttributeNames(u64::MAX))).contents_type(),
            ContentsType::document(oids::FTAM_3, Some(b"\x02\x01\x00".to_vec())),
            ContentsType::document(BER, None),
        ],
    );
    let item = DiagnosticItem::new(
        DiagnosticType::PERMANENT,
        ErrorIdentifier(chance.below(7000) as i64),
        EntityReference::INITIATING_FILE_SERVICE_USER,
        EntityReference::INITIATING_FILE_SERVICE_USER,
    );
    let result = ActionResult(chance.below(3) as i64);
    let (shared_ase_information, diagnostic) = (None, Some(Diagnostic::from(item)));
    let checkpoint = pick(chance, &[0, 1, 2, 3, -1, i64::MAX]);
    match chance.below(20) {
        0 => Pdu::SelectRequest(Box::new(SelectRequest::new(name.into(), access))),
        1 => {
            let attributes = CreateAttributes::new(name.into(), PermittedActions(0), document);
            let how = Override(chance.below(5) as i64);
            Pdu::CreateRequest(Box::new(CreateRequest::new(how, attributes, access)))
        }
        2 => Pdu::DeselectRequest(Box::new(DeselectRequest { shared_ase_information })),
        3 => Pdu::DeleteRequest(Box::new(DeleteRequest { shared_ase_information })),
        4 => Pdu::ReadAttributesRequest(Box::new(ReadAttributesRequest {
            attribute_names: AttributeNames(chance.draw()),
            attribute_extension_names: None,
        })),
        5 => {
            let attributes = ChangeAttributes { pathname: Some(name.into()), ..ChangeAttributes::NONE };
            Pdu::ChangeAttributesRequest(Box::new(ChangeAttributesRequest { attributes }))
        }
        6..=8 => {
            let mode = ProcessingMode(pick(chance, &[1, 1, 4, 13, 8, 2, 31]));
            let mut open = OpenRequest::new(mode, OpenContentsType::Proposed(document));
            open.activity_identifier = Some(ActivityIdentifier(checkpoint));
            open.recovery_mode = RecoveryMode::AT_ANY_ACTIVE_CHECKPOINT;
            Pdu::OpenRequest(Box::new(open))
        }
        9 => Pdu::CloseRequest(Box::new(CloseRequest {
            action_result: result,
            shared_ase_information,
            diagnostic,
        })),
        10 => Pdu::RecoverRequest(Box::new(RecoverRequest::new(checkpoint, 1, access, checkpoint))),
        11 | 12 => {
            let context = AccessContext::of(AccessContextKind(pick(chance, &[5, 5, 5, 2, 0, 9])));
            Pdu::ReadRequest(Box::new(ReadRequest::new(FaduIdentity::FIRST, context)))
        }
        13 | 14 => {
            let operation = WriteOperation(chance.below(4) as i64);
            Pdu::WriteRequest(Box::new(WriteRequest::new(operation, FaduIdentity::END)))
        }
        15 => Pdu::DataEndRequest(Box::new(DataEndRequest { action_result: result, diagnostic })),
        16 => Pdu::TransferEndRequest(Box::new(TransferEndRequest::PLAIN)),
        17 => Pdu::CancelRequest(Box::new(Cancel::new(result, diagnostic))),
        18 => Pdu::RestartRequest(Box::new(Restart::new(checkpoint))),
        _ => Pdu::BeginGroupRequest(Box::new(BeginGroupRequest { threshold: checkpoint })),
    }
}

fn fits(state: State, pdu: &Pdu) -> bool {
    use Pdu as P;
    match state {
        State::Initialized => matches!(pdu, P::SelectRequest(_) | P::CreateRequest(_) | P::RecoverRequest(_)),
        State::Selected => matches!(
            pdu,
            P::OpenRequest(_)
                | P::ReadAttributesRequest(_)
                | P::ChangeAttributesRequest(_)
                | P::DeselectRequest(_)
                | P::DeleteRequest(_)
        ),
        State::DataTransferIdle => matches!(pdu, P::ReadRequest(_) | P::WriteRequest(_) | P::CloseRequest(_)),
        State::Writing => matches!(pdu, P::DataEndRequest(_)),
        State::WriteEnded | State::ReadEnded => matches!(pdu, P::TransferEndRequest(_)),
        _ => false,
    }
}

/// Gives the responder an association of the unconstrained service class, which allows requests in more
/// orders.
fn called(pair: &mut Pair, fixture: &mut Fixture) {
    let mut request = InitializeRequest::new(
        ServiceClass::UNCONSTRAINED,
        FunctionalUnits(responder::Config::default().units.0),
    );
    request.ftam_quality_of_service = QualityOfService::CLASS_3_RECOVERY;
    request.initiator_identity = Some(UserIdentity("ann".into()));
    request.filestore_password = Some("ann".into());
    request.checkpoint_window = 3;
    let syntaxes = [
        oids::PCI,
        oids::FADU,
        oids::UNSTRUCTURED_TEXT,
        oids::UNSTRUCTURED_BINARY,
        oids::NBS_DIRECTORY_ENTRY,
    ];
    let contexts = (1..).step_by(2).zip(syntaxes);
    pair.called.arrive(Up::Associate(Associate {
        calling: Default::default(),
        called: Default::default(),
        contexts: contexts.map(|(id, abstract_syntax)| Context { id, abstract_syntax }).collect(),
        synchronise: true,
        initial_serial: 1,
        user_information: vec![value(1, Pdu::InitializeRequest(Box::new(request)).to_rope())],
    }));
    work(pair, fixture);
}

fn work(pair: &mut Pair, fixture: &mut Fixture) {
    let mut store = Store {
        disk: &mut fixture.there,
        locks: &mut fixture.locks,
        authenticator: &mut fixture.authenticator,
    };
    pair.responder.work(&mut pair.called, &mut store, 2000);
    while pair.called.poll_down().is_some() {}
}

#[test]
fn a_responder_survives_any_initiator_and_releases_everything() {
    let mut transfers = 0;
    for seed in 0..300 {
        let mut chance = SimRng::from_seed(seed);
        let mut fixture = Fixture::new();
        crate::ftam::filestore::Disk::make_directory(&mut fixture.there, &path("d")).unwrap();
        fixture.there.put(&path("f"), &[7; 5000]);
        let mut pair = Pair::new(small(), responder_small());
        called(&mut pair, &mut fixture);
        assert_eq!(pair.called.state(), State::Initialized);
        for _ in 0..120 {
            let writes = pair.called.state() == State::Writing || chance.below(200) == 0;
            let up = match chance.below(8) {
                0..=2 if !writes => continue,
                0 => Up::SyncMinor { serial: chance.below(4) as u32 },
                1 | 2 => {
                    let contents = vec![b'\n'; chance.below(50) as usize].into();
                    let tag = pick(
                        &mut chance,
                        &[crate::wire::ber::Tag::OCTET_STRING, crate::wire::ber::Tag::universal(27)],
                    );
                    let context = 1 + 2 * chance.below(6) as i64;
                    Up::Data(vec![value(context, DataElement::Value { tag, contents }.into_rope())])
                }
                _ => {
                    // An FPDU that is invalid in the current state ends the association, so most are chosen
                    // from those that are valid.
                    let tries = if chance.below(200) == 0 { 1 } else { 30 };
                    let pdu = (0..tries)
                        .map(|_| any(&mut chance))
                        .find(|pdu| tries == 1 || fits(pair.called.state(), pdu));
                    let Some(pdu) = pdu else {
                        // The initiator waits for a response.
                        work(&mut pair, &mut fixture);
                        continue;
                    };
                    let values = vec![value(1, pdu.to_rope())];
                    match &pdu {
                        Pdu::CancelRequest(_) | Pdu::RestartRequest(_) => {
                            Up::Resynchronise { serial: 1, values }
                        }
                        _ => Up::Data(values),
                    }
                }
            };
            pair.called.arrive(up);
            if chance.below(3) > 0 {
                work(&mut pair, &mut fixture);
            }
        }
        work(&mut pair, &mut fixture);
        assert_eq!(pair.responder.counters().internal_errors, 0, "seed {seed}");
        transfers += pair.responder.counters().transfers;
        pair.called.arrive(Up::ProviderAbort);
        work(&mut pair, &mut fixture);
        let mut store = Store {
            disk: &mut fixture.there,
            locks: &mut fixture.locks,
            authenticator: &mut fixture.authenticator,
        };
        pair.responder.end(&mut store);
        assert_eq!((fixture.there.loose_ends().0, fixture.locks.holders()), (0, 0), "seed {seed}");
    }
    assert!(transfers > 20, "only {transfers} transfers ended well: the peer is too hostile to be of use");
}

#[test]
fn an_initiator_survives_any_responder() {
    for seed in 0..2000 {
        let mut chance = SimRng::from_seed(seed);
        let mut fixture = Fixture::new();
        fixture.here.put(&path("mine"), &[7; 5000]);
        fixture.there.put(&path("f"), &[7; 5000]);
        let mut pair = Pair::connected(&mut fixture);
        let job = match chance.below(4) {
            0 => get("f", "x"),
            1 => put("mine", "x", BINARY),
            2 => Job::List { remote: ".".into() },
            _ => Job::Stat { remote: "f".into() },
        };
        pair.initiator.start(job, &mut pair.caller, &mut fixture.here).unwrap();
        for _ in 0..chance.below(40) {
            pair.round(&mut fixture);
        }
        for _ in 0..10 {
            let values = vec![value(1, any(&mut chance).to_rope())];
            pair.caller.arrive(match chance.below(4) {
                0 => Up::Resynchronise { serial: chance.below(9) as u32, values },
                1 => Up::SyncMinorConfirm { serial: chance.below(9) as u32 },
                2 => Up::SyncMinor { serial: chance.below(9) as u32 },
                _ => Up::Data(values),
            });
            pair.initiator.work(&mut pair.caller, &mut fixture.here, 2000);
            while pair.caller.poll_down().is_some() {}
        }
        pair.initiator.lost(&mut fixture.here);
        assert!(!pair.initiator.is_busy());
        assert_eq!(fixture.here.loose_ends().0, 0, "seed {seed}");
    }
}
