//! Two FTAM machines, joined by two queues that stand in for the lower layers. The queues handle
//! resynchronisation and tokens as the session layer does.

use kiban_base::Rope;
use kiban_osi::Selectors;
use kiban_osi::ftam::below::{AssociateResponse, Indication as Up, Request as Down, Resynchronise};
use kiban_osi::ftam::{Config, Indication, Initialize, Machine, Request, RequestError, Role};
use kiban_osi::wire::ber::Null;
use kiban_osi::wire::ftam::*;
use std::collections::VecDeque;

/// Side 0 is the initiator, side 1 the responder.
pub(crate) struct Pair {
    pub(crate) machines: [Machine; 2],
    /// The messages from each side that are not yet delivered.
    pub(crate) under_way: [VecDeque<Message>; 2],
    /// The resynchronisation that each side has requested, while it waits for the peer's response.
    asked: [Option<Resynchronise>; 2],
    serials: [u32; 2],
    /// Whether each side believes that it holds the token.
    token: [bool; 2],
    pub(crate) carried: usize,
}

#[derive(Debug)]
pub(crate) enum Message {
    Plain(Up),
    Check(u32),
    Resynchronise(Resynchronise, u32, Up),
    Response(Up),
    Token,
}

pub(crate) const DOCUMENT: Document = Document::UnstructuredBinary(BinaryParameters::NONE);

pub(crate) fn proposal(class: ServiceClass, more: FunctionalUnits, window: i64) -> InitializeRequest {
    use FunctionalUnits as U;
    let units = U::READ | U::WRITE | U::GROUPING | U::LIMITED_FILE_MANAGEMENT | more;
    InitializeRequest {
        contents_type_list: Some(ContentsTypeList(vec![ContentsTypeName::Document(DocumentTypeName(
            oids::FTAM_3,
        ))])),
        checkpoint_window: window,
        ..InitializeRequest::new(class, units)
    }
}

impl Pair {
    pub(crate) fn new() -> Pair {
        let machine = |role| {
            Machine::new(Config {
                role,
                abstract_syntaxes: vec![oids::UNSTRUCTURED_BINARY, oids::UNSTRUCTURED_TEXT, oids::FADU],
            })
        };
        Pair {
            machines: [machine(Role::Initiator), machine(Role::Responder)],
            under_way: Default::default(),
            asked: [None, None],
            serials: [1, 1],
            token: [true, false],
            carried: 0,
        }
    }

    /// Creates a pair with an established FTAM regime, in which everything proposed was accepted.
    pub(crate) fn initialized(class: ServiceClass, more: FunctionalUnits, window: i64) -> Pair {
        let mut pair = Pair::new();
        let request = proposal(class, more, window);
        let response = InitializeResponse {
            checkpoint_window: window,
            ..InitializeResponse::new(request.service_class, request.functional_units)
        };
        pair.initialize(request).expect("it can be asked for");
        let indications = pair.indications(1);
        assert!(matches!(&indications[..], [Indication::Initialize(_)]), "{indications:?}");
        pair.send_pdu(1, Pdu::InitializeResponse(response.into()));
        assert!(matches!(&pair.indications(0)[..], [Indication::Pdu(Pdu::InitializeResponse(_))]));
        pair
    }

    pub(crate) fn initialize(&mut self, request: InitializeRequest) -> Result<(), RequestError> {
        let (calling, called) = (Selectors::default(), Selectors::default());
        self.machines[0].request(Request::Initialize(Box::new(Initialize {
            calling,
            called,
            abstract_syntaxes: vec![],
            request,
        })))
    }

    /// Makes a request. The machine must accept it.
    pub(crate) fn send_pdu(&mut self, side: usize, pdu: Pdu) {
        let kind = pdu.kind();
        let state = self.machines[side].state();
        self.machines[side]
            .request(Request::Pdu(pdu))
            .unwrap_or_else(|misuse| panic!("{kind} in {state:?}: {misuse}"));
    }

    /// Delivers all messages, and returns the indications at one side.
    pub(crate) fn indications(&mut self, side: usize) -> Vec<Indication> {
        self.carry_all();
        std::iter::from_fn(|| self.machines[side].poll_up()).collect()
    }

    pub(crate) fn carry_all(&mut self) {
        loop {
            self.collect();
            if !(self.deliver(0) | self.deliver(1)) {
                return;
            }
        }
    }

    /// Collects the machines' requests to the lower layers.
    pub(crate) fn collect(&mut self) {
        for side in 0..2 {
            while let Some(request) = self.machines[side].poll_down() {
                let message = self.send(side, request);
                self.under_way[side].push_back(message);
            }
        }
    }

    fn send(&mut self, side: usize, request: Down) -> Message {
        Message::Plain(match request {
            Down::Associate(associate) => Up::Associate(associate),
            Down::AssociateResponse(response) => {
                // ACSE's own context must be among the accepted contexts.
                let AssociateResponse { contexts, .. } = &response;
                assert!(contexts.contains(&1));
                Up::AssociateConfirm(response)
            }
            Down::Release(value) => {
                assert!(self.token[side], "a release requires the tokens");
                Up::Release(vec![value])
            }
            Down::ReleaseResponse(value) => Up::ReleaseConfirm(vec![value]),
            Down::Abort(value) => Up::Abort(vec![value]),
            Down::Data(values) => Up::Data(values),
            Down::SyncMinor => {
                assert!(self.token[side], "a synchronisation point requires the token");
                let serial = self.serials[side];
                self.serials[side] += 1;
                return Message::Check(serial);
            }
            Down::SyncMinorResponse { serial } => Up::SyncMinorConfirm { serial },
            Down::Resynchronise(how, value) => {
                let serial = match how {
                    Resynchronise::Abandon => self.serials[side],
                    Resynchronise::Restart { serial, .. } => serial,
                };
                self.asked[side] = Some(how);
                self.serials[side] = serial;
                self.token[side] = holder(how) == side;
                return Message::Resynchronise(
                    how,
                    serial,
                    Up::Resynchronise { serial, values: vec![value] },
                );
            }
            Down::ResynchroniseResponse(value) => {
                return Message::Response(Up::ResynchroniseConfirm {
                    serial: self.serials[side],
                    values: vec![value],
                });
            }
            Down::GiveToken => {
                assert!(self.token[side], "only the holder gives the token");
                self.token[side] = false;
                return Message::Token;
            }
        })
    }

    /// Delivers the oldest message from one side; returns whether there was one.
    pub(crate) fn deliver(&mut self, side: usize) -> bool {
        let Some(message) = self.under_way[side].pop_front() else { return false };
        let peer = 1 - side;
        self.carried += 1;
        match message {
            Message::Plain(up @ (Up::Abort(_) | Up::ProviderAbort)) => self.machines[peer].arrive(up),
            Message::Resynchronise(how, serial, up) => {
                // X.225: abandon prevails over restart, and a lower serial number over a higher one. If they
                // are equal, the connection's initiator prevails.
                let rank = |how, side| match how {
                    Resynchronise::Abandon => (0, 0, side),
                    Resynchronise::Restart { serial, .. } => (1, serial, side),
                };
                if self.asked[peer].is_some_and(|own| rank(own, peer) < rank(how, side)) {
                    return true;
                }
                self.asked[peer] = None;
                self.serials[peer] = serial;
                self.token[peer] = holder(how) == peer;
                self.machines[peer].arrive(up);
            }
            Message::Response(up) => {
                let Some(how) = self.asked[peer].take() else { panic!("unrequested confirm: {up:?}") };
                self.token[peer] = holder(how) == peer;
                self.machines[peer].arrive(up);
            }
            // A side that waits for the response to its resynchronisation discards everything else.
            _ if self.asked[peer].is_some() => {}
            Message::Plain(up) => self.machines[peer].arrive(up),
            Message::Check(serial) => {
                self.serials[peer] = serial + 1;
                self.machines[peer].arrive(Up::SyncMinor { serial });
            }
            Message::Token => self.token[peer] = true,
        }
        true
    }

    /// Loses the association.
    pub(crate) fn lose(&mut self) {
        self.under_way = Default::default();
        for machine in &mut self.machines {
            machine.arrive(Up::ProviderAbort);
        }
    }
}

/// Returns the holder of the token after a resynchronisation.
fn holder(how: Resynchronise) -> usize {
    match how {
        Resynchronise::Abandon | Resynchronise::Restart { token: Role::Initiator, .. } => 0,
        Resynchronise::Restart { token: Role::Responder, .. } => 1,
    }
}

pub(crate) fn select() -> Pdu {
    Pdu::SelectRequest(SelectRequest::new("file".into(), AccessRequest::READ | AccessRequest::REPLACE).into())
}

pub(crate) fn open(activity: Option<i64>) -> Pdu {
    Pdu::OpenRequest(Box::new(OpenRequest {
        activity_identifier: activity.map(ActivityIdentifier),
        recovery_mode: RecoveryMode::AT_ANY_ACTIVE_CHECKPOINT,
        ..OpenRequest::new(ProcessingMode::READ | ProcessingMode::REPLACE, OpenContentsType::Unknown(Null))
    }))
}

pub(crate) fn begin(threshold: i64) -> Pdu {
    Pdu::BeginGroupRequest(Box::new(BeginGroupRequest { threshold }))
}

pub(crate) fn end() -> Pdu {
    Pdu::EndGroupRequest(Box::new(EndGroupRequest {}))
}

pub(crate) fn close() -> Pdu {
    let (action_result, shared_ase_information, diagnostic) = (ActionResult::SUCCESS, None, None);
    Pdu::CloseRequest(Box::new(CloseRequest { action_result, shared_ase_information, diagnostic }))
}

pub(crate) fn deselect() -> Pdu {
    Pdu::DeselectRequest(Box::new(DeselectRequest { shared_ase_information: None }))
}

pub(crate) fn read() -> Pdu {
    let all = AccessContext::of(AccessContextKind::UNSTRUCTURED_ALL_DATA_UNITS);
    Pdu::ReadRequest(ReadRequest::new(FaduIdentity::FIRST, all).into())
}

pub(crate) fn write() -> Pdu {
    Pdu::WriteRequest(WriteRequest::new(WriteOperation::REPLACE, FaduIdentity::FIRST).into())
}

pub(crate) fn data_end() -> Pdu {
    Pdu::DataEndRequest(Box::new(DataEndRequest { action_result: ActionResult::SUCCESS, diagnostic: None }))
}

pub(crate) fn transfer_end() -> Pdu {
    Pdu::TransferEndRequest(Box::new(TransferEndRequest::PLAIN))
}

pub(crate) fn data(bytes: &[u8]) -> Request {
    Request::Data(DataElement::octets(Rope::copied(bytes)))
}

/// Returns the response to a request, or `None` if the request is unconfirmed.
pub(crate) fn answer(request: &Pdu, succeeds: bool) -> Option<Pdu> {
    let state_result = if succeeds { StateResult::SUCCESS } else { StateResult::FAILURE };
    let action_result = if succeeds { ActionResult::SUCCESS } else { ActionResult::PERMANENT_ERROR };
    Some(match request {
        Pdu::TerminateRequest(_) => Pdu::TerminateResponse(Box::new(TerminateResponse {
            shared_ase_information: None,
            charging: None,
        })),
        Pdu::SelectRequest(request) => Pdu::SelectResponse(Box::new(SelectResponse {
            state_result,
            action_result,
            ..SelectResponse::new(request.attributes.clone())
        })),
        Pdu::CreateRequest(request) => Pdu::CreateResponse(Box::new(CreateResponse {
            state_result,
            action_result,
            ..CreateResponse::new(request.initial_attributes.clone())
        })),
        Pdu::OpenRequest(_) => Pdu::OpenResponse(Box::new(OpenResponse {
            state_result,
            action_result,
            recovery_mode: RecoveryMode::AT_ANY_ACTIVE_CHECKPOINT,
            ..OpenResponse::new(DOCUMENT.contents_type())
        })),
        Pdu::CloseRequest(_) => Pdu::CloseResponse(Box::new(CloseResponse {
            action_result,
            shared_ase_information: None,
            diagnostic: None,
        })),
        Pdu::DeselectRequest(_) => Pdu::DeselectResponse(Box::new(DeselectResponse {
            action_result,
            charging: None,
            shared_ase_information: None,
            diagnostic: None,
        })),
        Pdu::DeleteRequest(_) => Pdu::DeleteResponse(Box::new(DeleteResponse {
            action_result,
            shared_ase_information: None,
            charging: None,
            diagnostic: None,
        })),
        Pdu::ReadAttributesRequest(_) => Pdu::ReadAttributesResponse(Box::new(ReadAttributesResponse {
            action_result,
            attributes: None,
            diagnostic: None,
        })),
        Pdu::BeginGroupRequest(_) => Pdu::BeginGroupResponse(Box::new(BeginGroupResponse {})),
        Pdu::EndGroupRequest(_) => Pdu::EndGroupResponse(Box::new(EndGroupResponse {})),
        Pdu::TransferEndRequest(_) => {
            Pdu::TransferEndResponse(TransferEndResponse::new(action_result, None).into())
        }
        Pdu::CancelRequest(_) => Pdu::CancelResponse(Cancel::new(ActionResult::SUCCESS, None).into()),
        Pdu::RestartRequest(restart) => Pdu::RestartResponse(restart.clone()),
        _ => return None,
    })
}
