//! Scripted FTAM peers of both roles, on the association layer alone: they can send what kiban's own file
//! protocol machine never would.

use kiban_osi::session::Units;
use kiban_osi::stack::layers::StackConfig;
use kiban_osi::wire::ber::{Asn1, Oid};
use kiban_osi::wire::ftam::{contents::DirectoryEntry, *};
use kiban_osi::wire::presentation::{Pdv, PdvValue};
use kiban_osi_runtime::association::{Acceptance, Association, Event, Listener, Parameters};
use std::time::Duration;
use tokio::runtime::Runtime;

const PATIENCE: Duration = Duration::from_secs(60);

/// A value that a responder sends.
pub(crate) enum Said {
    Pdu(Pdu),
    Entry(Box<ReadAttributes>),
}

/// A responder that answers each P-DATA by a script.
pub(crate) struct Responder {
    pub(crate) port: u16,
    _runtime: Runtime,
}

impl Responder {
    /// Starts a responder. The script returns the values that answer the FPDUs of one P-DATA.
    pub(crate) fn start(script: impl FnMut(&[Pdu]) -> Vec<Said> + Send + 'static) -> Responder {
        let runtime = Runtime::new().expect("threads");
        let guard = runtime.enter();
        let at = "127.0.0.1:0".parse().expect("an address");
        let listener = Listener::bind(at, StackConfig::default(), None, PATIENCE).expect("a free port");
        let port = listener.address().expect("bound").port();
        runtime.spawn(serve(listener, script));
        drop(guard);
        Responder { port, _runtime: runtime }
    }
}

async fn serve(listener: Listener, mut script: impl FnMut(&[Pdu]) -> Vec<Said>) {
    loop {
        let Ok(connection) = listener.accept().await else { return };
        let Ok(request) = connection.request().await else { continue };
        let pci = request.associate().user_information[0].context;
        let units = FunctionalUnits::READ
            | FunctionalUnits::WRITE
            | FunctionalUnits::LIMITED_FILE_MANAGEMENT
            | FunctionalUnits::ENHANCED_FILE_MANAGEMENT
            | FunctionalUnits::GROUPING;
        let mut answer = InitializeResponse::new(ServiceClass::TRANSFER_AND_MANAGEMENT, units);
        answer.attribute_groups = AttributeGroups::STORAGE;
        let answer = Pdu::InitializeResponse(Box::new(answer)).to_vec();
        let acceptance = Acceptance {
            units: Units::DUPLEX,
            user_information: vec![Pdv::single(pci, answer)],
            ..Acceptance::default()
        };
        let Ok(association) = request.accept(acceptance) else { continue };
        while let Ok(event) = association.receive().await {
            match event {
                Event::Data(values) => {
                    let context = |syntax| association.context(syntax).expect("it was proposed");
                    let value = |said| match said {
                        Said::Pdu(pdu) => Pdv::single(pci, pdu.to_vec()),
                        Said::Entry(entry) => {
                            let entry = DirectoryEntry(*entry).to_vec();
                            Pdv::single(context(oids::NBS_DIRECTORY_ENTRY), entry)
                        }
                    };
                    let answers: Vec<Pdv> = script(&fpdus(&values, pci)).into_iter().map(value).collect();
                    if !answers.is_empty() && association.send(answers).await.is_err() {
                        break;
                    }
                }
                Event::ReleaseRequested { .. } => {
                    let response = TerminateResponse { shared_ase_information: None, charging: None };
                    let response = Pdu::TerminateResponse(Box::new(response)).to_vec();
                    let _ = association.answer_release(vec![Pdv::single(pci, response)]);
                    association.closed().await;
                    break;
                }
                _ => break,
            }
        }
    }
}

/// Returns the FPDUs in the values of the presentation context "FTAM PCI".
fn fpdus(values: &[Pdv], pci: i64) -> Vec<Pdu> {
    let mut all = Vec::new();
    for value in values.iter().filter(|value| value.context == pci) {
        let (PdvValue::Single(rope) | PdvValue::OctetAligned(rope)) = &value.value else { continue };
        Pdu::read_all(&rope.to_vec(), 64, &mut |pdu| all.push(pdu)).expect("FPDUs");
    }
    all
}

/// Returns the response that grants a request, or `None` if the request needs no response of this kind.
pub(crate) fn granted(request: &Pdu) -> Option<Pdu> {
    let (diagnostic, shared_ase_information, charging) = (None, None, None);
    let action_result = ActionResult::SUCCESS;
    Some(match request {
        Pdu::BeginGroupRequest(_) => Pdu::BeginGroupResponse(Box::new(BeginGroupResponse {})),
        Pdu::EndGroupRequest(_) => Pdu::EndGroupResponse(Box::new(EndGroupResponse {})),
        Pdu::SelectRequest(request) => {
            Pdu::SelectResponse(Box::new(SelectResponse::new(request.attributes.clone())))
        }
        Pdu::CreateRequest(request) => {
            Pdu::CreateResponse(Box::new(CreateResponse::new(request.initial_attributes.clone())))
        }
        Pdu::ReadAttributesRequest(_) => Pdu::ReadAttributesResponse(Box::new(ReadAttributesResponse {
            action_result,
            attributes: Some(entry("name", false)),
            diagnostic,
        })),
        Pdu::OpenRequest(request) => {
            Pdu::OpenResponse(Box::new(OpenResponse::new(match &request.contents_type {
                OpenContentsType::Proposed(contents) => contents.clone(),
                OpenContentsType::Unknown(_) => ContentsType::document(oids::FTAM_3, None),
            })))
        }
        Pdu::CloseRequest(_) => {
            Pdu::CloseResponse(Box::new(CloseResponse { action_result, shared_ase_information, diagnostic }))
        }
        Pdu::DeselectRequest(_) => Pdu::DeselectResponse(Box::new(DeselectResponse {
            action_result,
            charging,
            shared_ase_information,
            diagnostic,
        })),
        Pdu::TransferEndRequest(_) => {
            Pdu::TransferEndResponse(Box::new(TransferEndResponse::new(action_result, None)))
        }
        _ => return None,
    })
}

/// Returns an entry of a directory.
pub(crate) fn entry(name: &str, is_directory: bool) -> ReadAttributes {
    let contents = if is_directory { oids::NBS_9 } else { oids::FTAM_3 };
    ReadAttributes {
        pathname: Some(name.into()),
        contents_type: Some(ContentsType::document(contents, None)),
        ..ReadAttributes::NONE
    }
}

/// Returns the F-DATA-END request that ends contents.
pub(crate) fn data_end() -> Said {
    let end = DataEndRequest { action_result: ActionResult::SUCCESS, diagnostic: None };
    Said::Pdu(Pdu::DataEndRequest(Box::new(end)))
}

/// An initiator's association.
pub(crate) struct Initiator {
    association: Association,
    runtime: Runtime,
    pci: i64,
    /// F-INITIALIZE response.
    pub(crate) accepted: InitializeResponse,
}

impl Initiator {
    /// Connects as `eve`, and proposes these document types and abstract syntaxes in this order.
    pub(crate) fn connect(port: u16, documents: &[Oid], syntaxes: &[Oid]) -> Initiator {
        let runtime = Runtime::new().expect("threads");
        let syntaxes: Vec<Oid> = std::iter::once(oids::PCI).chain(syntaxes.iter().copied()).collect();
        let mut parameters = Parameters::new(oids::APPLICATION_CONTEXT, &syntaxes);
        let units = FunctionalUnits::READ
            | FunctionalUnits::WRITE
            | FunctionalUnits::LIMITED_FILE_MANAGEMENT
            | FunctionalUnits::ENHANCED_FILE_MANAGEMENT
            | FunctionalUnits::GROUPING;
        let classes =
            ServiceClass::TRANSFER_AND_MANAGEMENT | ServiceClass::TRANSFER | ServiceClass::MANAGEMENT;
        let mut initialize = InitializeRequest::new(classes, units);
        initialize.attribute_groups = AttributeGroups::STORAGE;
        initialize.initiator_identity = Some(UserIdentity("eve".into()));
        initialize.filestore_password = Some("secret".into());
        let names = documents.iter().map(|name| ContentsTypeName::Document(DocumentTypeName(*name)));
        initialize.contents_type_list = Some(ContentsTypeList(names.collect()));
        let pci = parameters.context(oids::PCI).expect("proposed");
        let initialize = Pdu::InitializeRequest(Box::new(initialize)).to_vec();
        parameters.user_information = vec![Pdv::single(pci, initialize)];
        parameters.timeout = PATIENCE;
        let association = runtime.block_on(Association::connect("127.0.0.1", port, parameters));
        let association = association.expect("the server accepts");
        let answer = association.answer().expect("this end has initiated");
        let Some(Pdu::InitializeResponse(accepted)) = fpdus(&answer.user_information, pci).pop() else {
            panic!("no F-INITIALIZE response: {answer:?}");
        };
        Initiator { association, runtime, pci, accepted: *accepted }
    }

    /// Sends a group, and returns the responses between F-BEGIN-GROUP and F-END-GROUP.
    pub(crate) fn group(&self, requests: Vec<Pdu>) -> Vec<Pdu> {
        let begin = BeginGroupRequest { threshold: requests.len() as i64 };
        let end = Pdu::EndGroupRequest(Box::new(EndGroupRequest {}));
        let all = std::iter::once(Pdu::BeginGroupRequest(Box::new(begin))).chain(requests).chain([end]);
        self.say(all.collect());
        let (mut said, _) = self.hear(|pdu| matches!(pdu, Pdu::EndGroupResponse(_)));
        said.pop();
        said.remove(0);
        said
    }

    /// Sends FPDUs in one P-DATA.
    pub(crate) fn say(&self, pdus: Vec<Pdu>) {
        let values = pdus.into_iter().map(|pdu| Pdv::single(self.pci, pdu.to_vec())).collect();
        self.runtime.block_on(self.association.send(values)).expect("the association lasts");
    }

    /// Receives until an FPDU is the last one; returns the FPDUs, and the values of other contexts.
    pub(crate) fn hear(&self, is_last: impl Fn(&Pdu) -> bool) -> (Vec<Pdu>, Vec<Vec<u8>>) {
        let (mut pdus, mut contents) = (Vec::new(), Vec::new());
        while !pdus.last().is_some_and(&is_last) {
            let next = async { tokio::time::timeout(PATIENCE, self.association.receive()).await };
            let event = self.runtime.block_on(next).expect("an answer").expect("the association lasts");
            let Event::Data(values) = event else { panic!("not a P-DATA: {event:?}") };
            pdus.extend(fpdus(&values, self.pci));
            for value in values.iter().filter(|value| value.context != self.pci) {
                let (PdvValue::Single(rope) | PdvValue::OctetAligned(rope)) = &value.value else { continue };
                contents.push(rope.to_vec());
            }
        }
        (pdus, contents)
    }

    /// Reads an open file; returns the values of its contents.
    pub(crate) fn read(&self) -> Vec<Vec<u8>> {
        let context = AccessContext::of(AccessContextKind::UNSTRUCTURED_ALL_DATA_UNITS);
        self.say(vec![Pdu::ReadRequest(Box::new(ReadRequest::new(FaduIdentity::FIRST, context)))]);
        let (_, contents) = self.hear(|pdu| matches!(pdu, Pdu::DataEndRequest(_)));
        self.say(vec![Pdu::TransferEndRequest(Box::new(TransferEndRequest::PLAIN))]);
        self.hear(|pdu| matches!(pdu, Pdu::TransferEndResponse(_)));
        contents
    }
}

pub(crate) fn select(name: &str, access: AccessRequest) -> Pdu {
    Pdu::SelectRequest(Box::new(SelectRequest::new(name.into(), access)))
}

pub(crate) fn open(contents: ContentsType) -> Pdu {
    Pdu::OpenRequest(Box::new(OpenRequest::new(ProcessingMode::READ, OpenContentsType::Proposed(contents))))
}

pub(crate) fn deselect() -> Pdu {
    Pdu::DeselectRequest(Box::new(DeselectRequest { shared_ase_information: None }))
}

pub(crate) fn close() -> Pdu {
    let (action_result, shared_ase_information, diagnostic) = (ActionResult::SUCCESS, None, None);
    Pdu::CloseRequest(Box::new(CloseRequest { action_result, shared_ase_information, diagnostic }))
}
