//! The responder of one association: dispatches each indication to the regime that handles it.

use super::answer::{failed, item_of, kind_of_failure, succeeded};
use super::config::Config;
use super::counters::Counters;
use super::regimes::{Selected, Transfer};
use super::report::{FailureReport, Progress};
use super::store::Store;
use crate::ftam::filestore::{Admission, AuthRefusal, AuthResult, Credentials, DiskError};
use crate::ftam::{Indication, Initialize, Machine, Request, State};
use crate::wire::ftam::{
    ActionResult, AttributeGroups, BeginGroupResponse, ContentsTypeList, ContentsTypeName, Diagnostic,
    DiagnosticItem, DiagnosticType, EndGroupResponse, EntityReference, ErrorIdentifier, FunctionalUnits,
    InitializeResponse, Kind as FpduKind, Pdu, QualityOfService, ServiceClass, StateResult,
    TerminateResponse, UserAbort, documents, oids,
};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

/// Maximum number of failure reports kept for the log.
pub const FAILURE_REPORTS_MAX: usize = 16;
/// Maximum number of characters of a file name in a failure report.
const FILE_CHARACTERS_MAX: usize = 256;

/// Errors of a request that only follow from the failure of another request in its group.
const FOLLOWING: [ErrorIdentifier; 2] =
    [ErrorIdentifier::SUBSEQUENT_ERROR, ErrorIdentifier::GROUPING_THRESHOLD];

/// The responder of one association.
pub struct Responder {
    pub(super) config: Config,
    address: String,
    pub(super) groups: AttributeGroups,
    pending: Option<Box<Initialize>>,
    admission: Option<Admission>,
    group: Option<(i64, Vec<Pdu>)>,
    pub(super) selected: Option<Selected>,
    pub(super) transfer: Option<Transfer>,
    /// The name that the peer used for the last requested file.
    pub(super) file: String,
    failure_reports: VecDeque<FailureReport>,
    pub(super) counters: Counters,
}

impl Responder {
    /// Creates a responder for an association with the peer at `address`.
    pub fn new(config: Config, address: &str) -> Responder {
        Responder {
            config,
            address: address.into(),
            groups: AttributeGroups::NONE,
            pending: None,
            admission: None,
            group: None,
            selected: None,
            transfer: None,
            file: String::new(),
            failure_reports: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Returns the admitted user.
    pub fn user(&self) -> Option<&str> {
        self.admission.as_ref().map(|admission| admission.user.as_str())
    }

    /// Returns the name that the peer used for the last requested file, truncated if it was too long.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the oldest refusal or failure that has not been fetched. Only the last [`FAILURE_REPORTS_MAX`]
    /// are kept.
    pub fn next_failure(&mut self) -> Option<FailureReport> {
        self.failure_reports.pop_front()
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Does pending work, and passes down about `room_bytes` of contents at most.
    pub fn work(&mut self, machine: &mut Machine, store: &mut Store<'_>, room_bytes: usize) -> Progress {
        if let Some(initialize) = self.pending.take() {
            self.on_initialize(initialize, machine, store);
        }
        while let Some(indication) = machine.poll_up() {
            match indication {
                Indication::Initialize(initialize) => self.on_initialize(initialize, machine, store),
                Indication::Pdu(pdu) => self.on_pdu(pdu, machine, store),
                Indication::Data(element) => self.on_data(element, machine, store),
                Indication::Check { checkpoint } => self.on_check(checkpoint, machine, store),
                Indication::CheckConfirm { .. } => {}
            }
        }
        if self.pending.is_some() {
            return Progress::Authentication;
        }
        self.send_contents(machine, store, room_bytes)
    }

    /// Handles the loss of the association: keeps transfers that can be recovered, and undoes all other work.
    pub fn end(&mut self, store: &mut Store<'_>) {
        self.pending = None;
        self.group = None;
        self.stop_transfer(store, true);
        if let Some(selected) = self.selected.take() {
            if let Some(fresh) = selected.fresh {
                store.disk.abandon(fresh.begun.handle);
            }
            store.locks.give(selected.hold);
        }
        self.admission = None;
    }

    pub(super) fn send(&mut self, machine: &mut Machine, pdu: Pdu) {
        // The association has ended, but that indication has not been polled yet.
        if machine.state() == State::Closed {
            return;
        }
        self.report_failure(&pdu);
        if machine.request(Request::Pdu(pdu)).is_err() {
            self.counters.internal_errors += 1;
            let item = DiagnosticItem::new(
                DiagnosticType::PERMANENT,
                ErrorIdentifier::RESPONDER_ERROR,
                EntityReference::RESPONDING_FILE_SERVICE_USER,
                EntityReference::RESPONDING_FILE_SERVICE_USER,
            );
            let abort =
                UserAbort { action_result: ActionResult::PERMANENT_ERROR, diagnostic: Some(item.into()) };
            let _ = machine.request(Request::Pdu(Pdu::UserAbort(Box::new(abort))));
        }
    }

    fn report_failure(&mut self, pdu: &Pdu) {
        let items = pdu.diagnostic().map_or(&[][..], |diagnostic| &diagnostic.0);
        // An error that merely follows from another failure is not reported.
        let follows = items.iter().any(|item| FOLLOWING.contains(&item.error()));
        let item = items.iter().find(|item| {
            item.diagnostic_type != DiagnosticType::INFORMATIVE
                && !follows
                // This error was already reported with the end of the transfer's data.
                && !(pdu.kind() == FpduKind::TransferEndResponse && item.error() == ErrorIdentifier::BAD_READ)
        });
        let Some(item) = item else { return };
        if item.error() == ErrorIdentifier::LOWER_LAYER_FAILURE && self.selected.is_none() {
            // The association was lost while no file was selected, so nothing was interrupted.
            return;
        }
        if self.failure_reports.len() == FAILURE_REPORTS_MAX {
            self.failure_reports.pop_front();
            self.counters.failure_reports_dropped += 1;
        }
        let (kind, file, item) = (pdu.kind(), self.file.clone(), item.clone());
        self.failure_reports.push_back(FailureReport { kind, file, item });
    }

    fn on_initialize(&mut self, initialize: Box<Initialize>, machine: &mut Machine, store: &mut Store<'_>) {
        let request = &initialize.request;
        let credentials = Credentials {
            user: request.initiator_identity.as_ref().map(|user| user.0.text().into_owned()),
            account: request.account.as_ref().map(|account| account.0.text().into_owned()),
            password: request.filestore_password.as_ref().map(|password| password.bytes().to_vec()),
            address: self.address.clone(),
        };
        let error = match store.authenticator.authenticate(&credentials) {
            AuthResult::Wait => {
                self.pending = Some(initialize);
                return;
            }
            AuthResult::Admitted(admission) => {
                self.admission = Some(admission);
                None
            }
            AuthResult::Refused(AuthRefusal::Password) => Some(ErrorIdentifier::FILESTORE_PASSWORD),
            AuthResult::Refused(AuthRefusal::Account) => Some(ErrorIdentifier::ASSOCIATION_BAD_ACCOUNT),
            AuthResult::Refused(AuthRefusal::Later) => Some(ErrorIdentifier::USER_NOT_ALLOWED),
        };
        let response = match error {
            None => self.accept(&initialize),
            Some(error) => Err(error),
        };
        let response = response.unwrap_or_else(|error| {
            self.admission = None;
            let kind = match error {
                ErrorIdentifier::USER_NOT_ALLOWED => DiagnosticType::TRANSIENT,
                _ => DiagnosticType::PERMANENT,
            };
            let mut response = InitializeResponse::new(request.service_class, FunctionalUnits::NONE);
            response.state_result = StateResult::FAILURE;
            response.action_result = ActionResult(kind.0);
            response.diagnostic = Some(item_of(error, kind).into());
            response
        });
        if self.admission.is_some() {
            self.sweep(store);
        }
        self.send(machine, Pdu::InitializeResponse(Box::new(response)));
    }

    /// Negotiates the service class with the most functions that both sides support, and every other feature
    /// that both support.
    fn accept(&mut self, initialize: &Initialize) -> Result<InitializeResponse, ErrorIdentifier> {
        use ServiceClass as C;
        let (request, config) = (&initialize.request, &self.config);
        let mut units = FunctionalUnits(request.functional_units.0 & config.units.0);
        let moves = units.0 & (FunctionalUnits::READ | FunctionalUnits::WRITE).0 != 0;
        let can = |class: C| match class {
            C::TRANSFER_AND_MANAGEMENT => {
                moves && units.contains(FunctionalUnits::GROUPING | FunctionalUnits::LIMITED_FILE_MANAGEMENT)
            }
            C::TRANSFER => moves && units.contains(FunctionalUnits::GROUPING),
            C::MANAGEMENT => {
                units.contains(FunctionalUnits::GROUPING | FunctionalUnits::LIMITED_FILE_MANAGEMENT)
            }
            _ => moves,
        };
        let classes = [C::TRANSFER_AND_MANAGEMENT, C::TRANSFER, C::MANAGEMENT, C::UNCONSTRAINED];
        let class = classes.into_iter().find(|class| request.service_class.contains(*class) && can(*class));
        let class = class.ok_or(ErrorIdentifier::SERVICE_CLASS_UNSUPPORTED)?;
        let quality = request.ftam_quality_of_service.0.clamp(0, config.quality.0);
        if quality == 0 {
            units = units.without(FunctionalUnits::RECOVERY);
        }
        let mut response = InitializeResponse::new(class, units);
        self.groups = AttributeGroups(request.attribute_groups.0 & config.groups.0);
        response.attribute_groups = self.groups;
        response.ftam_quality_of_service = QualityOfService(quality);
        response.checkpoint_window = request.checkpoint_window.clamp(1, config.window);
        if let Some(list) = &request.contents_type_list {
            // The list keeps the order of the proposal, on which some initiators rely.
            let known = |name: &&ContentsTypeName| match name {
                ContentsTypeName::Document(name) => documents::abstract_syntax_of(name.0)
                    .is_some_and(|syntax| initialize.abstract_syntaxes.contains(&syntax)),
                ContentsTypeName::AbstractSyntax(name) => initialize.abstract_syntaxes.contains(&name.0),
            };
            // Attributes carry NBS-9's new identifier, so the old one is not accepted beside it.
            let names = |name: &ContentsTypeName, oid| match name {
                ContentsTypeName::Document(document) => document.0 == oid,
                ContentsTypeName::AbstractSyntax(_) => false,
            };
            let has_new = list.0.iter().filter(known).any(|name| names(name, oids::NBS_9));
            let is_old = |name: &&ContentsTypeName| has_new && names(name, oids::NBS_9_OLD);
            let kept = list.0.iter().filter(known).filter(|name| !is_old(name));
            let kept: Vec<ContentsTypeName> = kept.cloned().collect();
            if kept.len() < list.0.len() {
                let cut = ErrorIdentifier::CONTENTS_TYPES_CUT_BY_RESPONDER;
                response.diagnostic = Some(item_of(cut, DiagnosticType::INFORMATIVE).into());
            }
            response.contents_type_list = Some(ContentsTypeList(kept));
        }
        Ok(response)
    }

    fn on_pdu(&mut self, pdu: Pdu, machine: &mut Machine, store: &mut Store<'_>) {
        match pdu {
            Pdu::BeginGroupRequest(begin) => self.group = Some((begin.threshold, Vec::new())),
            Pdu::EndGroupRequest(_) => self.on_group(machine, store),
            Pdu::TerminateRequest(_) => {
                self.end(store);
                let response = TerminateResponse { shared_ase_information: None, charging: None };
                self.send(machine, Pdu::TerminateResponse(Box::new(response)));
            }
            Pdu::UserAbort(_) | Pdu::ProviderAbort(_) => {
                // The peer violated the protocol, or aborted; its diagnostic says why.
                self.report_failure(&pdu);
                self.end(store);
            }
            Pdu::ReadRequest(request) => self.on_read(&request, machine, store),
            Pdu::WriteRequest(request) => self.on_write(&request, machine, store),
            Pdu::DataEndRequest(end) => self.on_data_end(&end, machine, store),
            Pdu::TransferEndRequest(_) => self.on_transfer_end(machine, store),
            Pdu::CancelRequest(_) => self.on_cancel(machine, store),
            Pdu::RestartRequest(restart) => self.on_restart(&restart, machine, store),
            Pdu::RecoverRequest(request) => {
                let answer = self.recover(&request, machine, store);
                self.send(machine, answer);
            }
            Pdu::CancelResponse(_) => self.stop_transfer(store, false),
            other => match &mut self.group {
                Some((_, requests)) => requests.push(other),
                None => {
                    let answer = self.perform(&other, machine, store);
                    self.send(machine, answer);
                }
            },
        }
    }

    fn on_group(&mut self, machine: &mut Machine, store: &mut Store<'_>) {
        let Some((threshold, requests)) = self.group.take() else { return };
        let count = requests.len() as i64;
        let needed = threshold.min(count);
        let selects = matches!(requests.first(), Some(Pdu::SelectRequest(_) | Pdu::CreateRequest(_)));
        let mut failures = 0;
        let mut answers = Vec::with_capacity(requests.len());
        for request in &requests {
            let answer = if selects && count - failures < needed {
                failed(request, item_of(ErrorIdentifier::SUBSEQUENT_ERROR, DiagnosticType::PERMANENT).into())
            } else {
                self.perform(request, machine, store)
            };
            failures += i64::from(!succeeded(&answer));
            answers.push(answer);
        }
        if selects && count - failures < needed {
            self.undo(store);
            // Some initiators show only the first diagnostic of the first failed response, so that one says
            // why the group failed.
            let cause = answers.iter().filter_map(Pdu::diagnostic).flat_map(|said| &said.0).find(|item| {
                !FOLLOWING.contains(&item.error()) && item.diagnostic_type != DiagnosticType::INFORMATIVE
            });
            let threshold = item_of(ErrorIdentifier::GROUPING_THRESHOLD, DiagnosticType::PERMANENT);
            let items: Vec<DiagnosticItem> = cause.cloned().into_iter().chain([threshold]).collect();
            for (request, answer) in requests.iter().zip(&mut answers) {
                if succeeded(answer) {
                    *answer = failed(request, Diagnostic(items.clone()));
                }
            }
        }
        self.send(machine, Pdu::BeginGroupResponse(Box::new(BeginGroupResponse {})));
        for answer in answers {
            self.send(machine, answer);
        }
        self.send(machine, Pdu::EndGroupResponse(Box::new(EndGroupResponse {})));
    }

    /// Undoes the selection made by a failed group.
    fn undo(&mut self, store: &mut Store<'_>) {
        if let Some(selected) = self.selected.take() {
            if let Some(fresh) = selected.fresh {
                store.disk.abandon(fresh.begun.handle);
            }
            store.locks.give(selected.hold);
        }
    }

    fn note_name(&mut self, request: &Pdu) {
        let name = match request {
            Pdu::SelectRequest(request) => &request.attributes.pathname,
            Pdu::CreateRequest(request) => &request.initial_attributes.pathname,
            _ => return,
        };
        self.file.clear();
        for (at, string) in name.components().iter().enumerate() {
            let room = FILE_CHARACTERS_MAX.saturating_sub(self.file.chars().count());
            if room == 0 {
                break;
            }
            self.file.extend((at > 0).then_some('/'));
            self.file.extend(string.text().chars().take(room));
        }
    }

    fn perform(&mut self, request: &Pdu, machine: &Machine, store: &mut Store<'_>) -> Pdu {
        self.note_name(request);
        let answer = match request {
            Pdu::SelectRequest(request) => self.select(request, store),
            Pdu::CreateRequest(request) => self.create(request, store),
            Pdu::ReadAttributesRequest(request) => self.read_attributes(request, store),
            Pdu::ChangeAttributesRequest(request) => self.change_attributes(request, store),
            Pdu::OpenRequest(request) => self.open(request, machine, store),
            Pdu::CloseRequest(_) => self.close(store),
            Pdu::DeselectRequest(_) => self.deselect(store),
            Pdu::DeleteRequest(_) => self.delete(store),
            _ => Err(item_of(ErrorIdentifier::FUNCTIONAL_UNIT_ERROR, DiagnosticType::PERMANENT)),
        };
        answer.unwrap_or_else(|item| failed(request, item.into()))
    }

    pub(super) fn admission(&self) -> Result<&Admission, DiagnosticItem> {
        self.admission
            .as_ref()
            .ok_or_else(|| item_of(ErrorIdentifier::USER_NOT_ALLOWED, DiagnosticType::PERMANENT))
    }

    pub(super) fn selected(&mut self) -> Result<&mut Selected, DiagnosticItem> {
        let none = || item_of(ErrorIdentifier::SUBSEQUENT_ERROR, DiagnosticType::PERMANENT);
        self.selected.as_mut().ok_or_else(none)
    }
}

pub(super) fn disk_error(disk_error: DiskError) -> DiagnosticItem {
    let (error, kind) = kind_of_failure(disk_error);
    let item = item_of(error, kind);
    match disk_error {
        DiskError::NotEmpty => item.with_details("the directory is not empty"),
        _ => item,
    }
}
