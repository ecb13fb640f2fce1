//! FTAM: its FPDUs and data elements, and the file protocol machine with an arbitrary peer.

use crate::features::Features;
use crate::input::Input;
use kiban_base::Rope;
use kiban_osi::Selectors;
use kiban_osi::ftam::below::{
    Associate, AssociateResponse, Context, Form, Indication as Below, Request as Down, Value,
};
use kiban_osi::ftam::{Config, Indication, Initialize, Machine, Request, Role, State};
use kiban_osi::wire::ber::Asn1;
use kiban_osi::wire::ftam::{
    ContentsTypeList, ContentsTypeName, DataElement, DocumentTypeName, FunctionalUnits, InitializeRequest,
    InitializeResponse, Kind, Pdu, ServiceClass, oids,
};
use std::sync::OnceLock;

/// A recorded session of ISODE, value by value.
const SESSION: &str = include_str!("../../../osi/tests/data/isode-ftam-session.fpdus.txt");

/// FPDUs that do not occur in the recorded session.
const OTHERS: &[&[u8]] = &[
    b"\xa2\x00",
    b"\xa3\x00",
    b"\xa4\x00",
    b"\xa5\x00",
    b"\xac\x00",
    b"\xad\x00",
    b"\xba\x0a\x46\x01\x07\x80\x01\x01\x43\x02\x07\x80",
    b"\xbb\x0b\xa1\x09\xa0\x07\x4e\x05\x28\xc2\x7b\x05\x03",
    b"\xbc\x05\x6f\x03\x80\x01\x00",
    b"\xbd\x00",
    b"\xbe\x05\x6f\x03\x80\x01\x00",
    b"\xbf\x1f\x00",
    b"\xbf\x25\x00",
    b"\xbf\x26\x00",
    b"\xbf\x27\x03\x80\x01\x00",
    b"\xbf\x27\x03\x80\x01\x01",
    b"\xbf\x28\x03\x80\x01\x00",
    b"\xbf\x28\x03\x80\x01\x01",
];

fn values() -> Vec<Vec<u8>> {
    let of_session = SESSION.lines().filter_map(|line| {
        let hex = line.split_once(" ctx ")?.1.split(' ').nth(2)?;
        (hex.len() < 1200).then(|| {
            (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex"))
                .collect()
        })
    });
    let mut all: Vec<Vec<u8>> = of_session.chain(OTHERS.iter().map(|bytes| bytes.to_vec())).collect();
    all.sort();
    all.dedup();
    all
}

/// Returns FPDUs, at most one of each length and kind.
pub(super) fn fpdus() -> &'static [Pdu] {
    static ALL: OnceLock<Vec<Pdu>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut all = Vec::new();
        for value in values() {
            let _ = Pdu::read_all(&value, 8, &mut |pdu| all.push(pdu));
        }
        all.sort_by_key(|pdu| (pdu.kind(), pdu.to_vec().len()));
        all.dedup_by_key(|pdu| (pdu.kind(), pdu.to_vec().len()));
        all
    })
}

pub(crate) fn decoder(bytes: &[u8], features: &mut Features<'_>) {
    match Pdu::read(bytes) {
        Ok((pdu, used)) => {
            assert!(used <= bytes.len());
            let again = pdu.to_vec();
            features.show((pdu.kind(), again.len().ilog2()));
            features.show((
                pdu.kind(),
                pdu.action_result(),
                pdu.diagnostic().map(|diagnostic| diagnostic.0.len().min(3)),
            ));
            assert_eq!(Pdu::read(&again), Ok((pdu, again.len())));
        }
        Err(rule) => features.show(rule.name()),
    }
    let mut rope = Rope::copied(bytes);
    while !rope.is_empty() {
        let before = rope.len();
        match DataElement::read(&mut rope) {
            Ok(element) => {
                assert!(rope.len() < before && element.len() < before);
                features.show(("element", element.is_structure(), element.len().min(2)));
                let mut again = element.clone().into_rope();
                assert_eq!(DataElement::read(&mut again), Ok(element));
                assert!(again.is_empty());
            }
            Err(rule) => {
                features.show(("element", rule.name()));
                break;
            }
        }
    }
}

pub(crate) fn decoder_seeds() -> Vec<Vec<u8>> {
    values()
}

/// Returns a machine with an association that has every functional unit.
fn associated(role: Role, window: i64, class: ServiceClass) -> Machine {
    let mut machine = Machine::new(Config {
        role,
        abstract_syntaxes: vec![
            oids::UNSTRUCTURED_BINARY,
            oids::UNSTRUCTURED_TEXT,
            oids::NBS_DIRECTORY_ENTRY,
        ],
    });
    let units = FunctionalUnits(0xffff_ffff & !0x3);
    let documents = [oids::FTAM_3, oids::FTAM_1, oids::NBS_9];
    let list = documents.map(|name| ContentsTypeName::Document(DocumentTypeName(name))).to_vec();
    let request = InitializeRequest {
        checkpoint_window: window,
        contents_type_list: Some(ContentsTypeList(list)),
        ..InitializeRequest::new(class, units)
    };
    let response = InitializeResponse { checkpoint_window: window, ..InitializeResponse::new(class, units) };
    let value = |pdu: &Pdu| vec![Value { context: 1, form: Form::Single(pdu.to_rope()) }];
    let (calling, called) = (Selectors::default(), Selectors::default());
    match role {
        Role::Initiator => {
            let initialize = Initialize { calling, called, abstract_syntaxes: vec![], request };
            machine.request(Request::Initialize(Box::new(initialize))).expect("it is fair");
            let response = Pdu::InitializeResponse(response.into());
            machine.arrive(Below::AssociateConfirm(AssociateResponse {
                accepted: true,
                contexts: vec![1, 3, 5, 7],
                synchronise: true,
                user_information: value(&response),
            }));
        }
        Role::Responder => {
            let syntaxes =
                [oids::PCI, oids::UNSTRUCTURED_BINARY, oids::UNSTRUCTURED_TEXT, oids::NBS_DIRECTORY_ENTRY];
            let contexts = syntaxes
                .iter()
                .zip([1, 3, 5, 7])
                .map(|(syntax, id)| Context { id, abstract_syntax: *syntax });
            machine.arrive(Below::Associate(Associate {
                calling,
                called,
                contexts: contexts.collect(),
                synchronise: true,
                initial_serial: 1,
                user_information: value(&Pdu::InitializeRequest(request.into())),
            }));
            machine.request(Request::Pdu(Pdu::InitializeResponse(response.into()))).expect("it is fair");
        }
    }
    assert_eq!(machine.state(), State::Initialized);
    machine
}

/// Returns the next indication of the services below.
fn below(input: &mut Input<'_>, fpdus: &[Pdu]) -> Below {
    let context = i64::from(input.byte() % 9);
    let pdu = |input: &mut Input<'_>| fpdus[usize::from(input.byte()) % fpdus.len()].to_rope();
    let one = |form| vec![Value { context: 1, form }];
    let serial = u32::from(input.byte() % 8);
    match input.byte() % 12 {
        0..=2 => Below::Data(one(Form::Single(pdu(input)))),
        3 => {
            let mut rope = pdu(input);
            for _ in 0..input.byte() % 5 {
                rope.append(pdu(input));
            }
            Below::Data(one(Form::OctetAligned(rope)))
        }
        4 => {
            let count = usize::from(input.byte() % 32);
            Below::Data(vec![Value { context, form: Form::OctetAligned(Rope::copied(input.take(count))) }])
        }
        5 => Below::Data(vec![Value { context: 3, form: Form::Single(Rope::copied(b"\x04\x03abc")) }]),
        6 => Below::SyncMinor { serial },
        7 => Below::SyncMinorConfirm { serial },
        8 => Below::Resynchronise { serial, values: one(Form::Single(pdu(input))) },
        9 => Below::ResynchroniseConfirm { serial, values: one(Form::Single(pdu(input))) },
        10 => match input.byte() % 4 {
            0 => Below::Release(one(Form::Single(pdu(input)))),
            1 => Below::ReleaseConfirm(one(Form::Single(pdu(input)))),
            2 => Below::Abort(one(Form::Single(pdu(input)))),
            _ => Below::ProviderAbort,
        },
        _ => Below::AssociateConfirm(AssociateResponse {
            accepted: context > 4,
            contexts: vec![1],
            synchronise: true,
            user_information: one(Form::Single(pdu(input))),
        }),
    }
}

pub(crate) fn machine(bytes: &[u8], features: &mut Features<'_>) {
    let fpdus = fpdus();
    let mut input = Input::new(bytes);
    let first = input.byte();
    let role = if first.is_multiple_of(2) { Role::Initiator } else { Role::Responder };
    let class = if first & 2 == 0 { ServiceClass::UNCONSTRAINED } else { ServiceClass::TRANSFER };
    let mut machine = associated(role, 1 + i64::from(first >> 2 & 3), class);
    let mut steps = 0;
    while !input.is_empty() && steps < 200 {
        steps += 1;
        let before = machine.state();
        let act = input.byte();
        if act & 1 == 0 {
            machine.arrive(below(&mut input, fpdus));
        } else {
            let request = match act >> 1 & 7 {
                0 => Request::Check,
                1 => Request::CheckResponse { checkpoint: i64::from(input.byte() % 8) },
                2 => Request::Data(DataElement::octets(Rope::copied(b"data"))),
                _ => Request::Pdu(fpdus[usize::from(input.byte()) % fpdus.len()].clone()),
            };
            if machine.request(request).is_err() {
                assert_eq!(machine.state(), before, "an invalid request changes nothing");
            }
        }
        while let Some(indication) = machine.poll_up() {
            if let Indication::Pdu(pdu) = &indication {
                features.show((pdu.kind(), machine.state()));
                let is_end =
                    matches!(pdu.kind(), Kind::ProviderAbort | Kind::UserAbort | Kind::TerminateResponse);
                assert!(!is_end || machine.state() == State::Closed, "{indication:?}");
            }
        }
        while let Some(request) = machine.poll_down() {
            if let Down::Data(values) = &request {
                assert!(!values.is_empty() && values.len() <= kiban_osi::ftam::GROUP_MAX + 2);
            }
        }
        features.show((role, before, machine.state()));
        if let Some(transfer) = machine.docket().and_then(|docket| docket.transfer.as_ref()) {
            assert!(
                transfer.checkpoint_answered <= transfer.checkpoint_last && transfer.checkpoint_answered >= 0
            );
            assert!(transfer.checkpoint_last - transfer.checkpoint_answered <= machine.window().max(1));
        }
        if machine.state() == State::Closed {
            return;
        }
    }
}

pub(crate) fn machine_seeds() -> Vec<Vec<u8>> {
    let kinds: Vec<_> = fpdus().iter().map(Pdu::kind).collect();
    let number = |kind| kinds.iter().position(|known| *known == kind).expect("it is among them") as u8;
    let hears = |kind| [0, 0, 0, 0, number(kind)];
    let says = |kind| [7, number(kind)];
    // In the unconstrained service class, without grouping, select and open a file, then read or write it; do
    // so once as initiator and once as responder.
    let initiator = [
        &[0][..],
        &says(Kind::SelectRequest),
        &hears(Kind::SelectResponse),
        &says(Kind::OpenRequest),
        &hears(Kind::OpenResponse),
    ]
    .concat();
    let responder = [
        &[1][..],
        &hears(Kind::SelectRequest),
        &says(Kind::SelectResponse),
        &hears(Kind::OpenRequest),
        &says(Kind::OpenResponse),
    ]
    .concat();
    let with = |front: &[u8], more: &[&[u8]]| [front, &more.concat()].concat();
    vec![
        with(
            &initiator,
            &[
                &says(Kind::ReadRequest),
                &hears(Kind::DataEndRequest),
                &says(Kind::TransferEndRequest),
                &hears(Kind::TransferEndResponse),
            ],
        ),
        with(
            &initiator,
            &[
                &says(Kind::WriteRequest),
                &[5],
                &[1],
                &says(Kind::DataEndRequest),
                &says(Kind::TransferEndRequest),
            ],
        ),
        with(
            &responder,
            &[
                &hears(Kind::WriteRequest),
                &[0, 0, 0, 5],
                &[0, 0, 1, 6],
                &[3, 1],
                &hears(Kind::DataEndRequest),
                &hears(Kind::TransferEndRequest),
            ],
        ),
        with(
            &responder,
            &[
                &hears(Kind::ReadRequest),
                &[5],
                &[1],
                &says(Kind::CancelRequest),
                &[0, 0, 1, 9, number(Kind::CancelResponse)],
            ],
        ),
        with(
            &responder,
            &[
                &hears(Kind::ReadRequest),
                &[5],
                &[1],
                &says(Kind::RestartRequest),
                &[0, 0, 1, 9, number(Kind::RestartResponse)],
            ],
        ),
    ]
}
