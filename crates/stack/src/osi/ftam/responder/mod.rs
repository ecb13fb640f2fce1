//! The responder: a filestore, served to one association (ISO 8571-3, the responder's part; ISO 8571-2, what a filestore is).
//!
//! Goal      every confirmed service is answered, with the standard's diagnostic where it fails; contents are read and
//!           written in pieces, never faster than the association takes them.
//! Shape     `work` takes what the machine indicates, asks the disk, the locks and the doorkeeper that it is lent, and answers
//!           through the machine. It waits for nobody: what is to be waited for is said in [`Progress`].
//! Files     `select` selection and attributes, `open` the open regime and recovery, `transfer` bulk data, `answer` diagnostics.
//! Creation  a file that is created becomes visible when its first transfer ends, or when it is deselected: until then
//!           whatever was there is there.
//! Groups    are taken whole. When fewer succeed than the threshold asks for, selections and opens of the group are undone
//!           and answered as failed; what cannot be undone is not done once the threshold is out of reach.
//! Recovery  with an activity identifier and a recovery mode, what was received is settled and noted before a checkpoint is
//!           answered; the note is a record of the disk's, by user and activity.
//! Told      whatever is refused or fails is told to whoever keeps a log ([`Responder::setback`]).
//! Limits    [`Config`] names them.
//! Left out  access control lists are kept and told, not enforced: rights are the doorkeeper's; passwords of single
//!           files; FADU locking; LOCATE and ERASE (no file access unit is offered).

mod answer;
mod open;
mod select;
mod transfer;

use super::filestore::{
    Actions, Admission, Begun, Concurrency, Disk, Doorkeeper, Entry, Hold, Judgement, Kind, Mark, Path,
    Refusal, Trouble, Visitor, Way,
};
use super::{Indication, Initialize, Machine, Request, State};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use answer::{failed, succeeded};
pub(super) use answer::{item_of, kind_of_failure};
use kiban_wire::ftam::{
    ActionResult, AttributeGroups, BeginGroupResponse, BinaryParameters, ContentsTypeList, ContentsTypeName,
    DiagnosticItem, DiagnosticType, Document, EndGroupResponse, EntityReference, ErrorIdentifier,
    FunctionalUnits, InitializeResponse, Kind as FpduKind, Pdu, QualityOfService, ServiceClass, StateResult,
    TerminateResponse, UserAbort, documents,
};
pub(super) use open::{points_of, stamp_of};
use transfer::Transfer;
pub(super) use transfer::{Point, Points};

kiban_ground::counters! {
    /// What a responder did.
    pub struct Counters {
        /// Files that were selected or created.
        selected,
        /// Transfers that ended well.
        transfers,
        /// Transfers that did not.
        transfers_failed,
        /// Octets of contents that were sent.
        bytes_out,
        /// Octets of contents that came.
        bytes_in,
        /// Transfers that were recovered.
        recovered,
        /// Refusals and failures that nobody fetched in time.
        setbacks_untold,
        /// Answers that the machine did not take: an error of this responder's.
        misuses,
    }
}

/// Setbacks that wait for whoever keeps a log.
pub const SETBACKS_MAX: usize = 16;
/// So much of a name is told.
const FILE_CHARACTERS_MAX: usize = 256;

/// What a responder offers, and its bounds.
#[derive(Clone, Debug)]
pub struct Config {
    /// Functional units.
    pub units: FunctionalUnits,
    /// Attribute groups beside the kernel group.
    pub groups: AttributeGroups,
    /// The best quality of service.
    pub quality: QualityOfService,
    /// What a file is of which nothing is said.
    pub document: Document,
    /// Most checkpoints unanswered.
    pub window: i64,
    /// Octets of a data element.
    pub fdata_bytes: usize,
    /// Octets between checkpoints.
    pub checkpoint_bytes: u64,
    /// Octets of the longest file that is taken.
    pub file_bytes_max: u64,
    /// Most names of a directory that is listed.
    pub names_max: usize,
    /// Most dockets: transfers that are under way or cut, and can be gone on with.
    pub dockets_max: usize,
    /// Most of them of one user.
    pub user_dockets_max: usize,
    /// For how long an interrupted transfer can be recovered.
    pub docket_seconds_max: i64,
}

impl Default for Config {
    fn default() -> Config {
        use FunctionalUnits as U;
        Config {
            units: U::READ
                | U::WRITE
                | U::LIMITED_FILE_MANAGEMENT
                | U::ENHANCED_FILE_MANAGEMENT
                | U::GROUPING
                | U::RECOVERY
                | U::RESTART_DATA_TRANSFER,
            groups: AttributeGroups::STORAGE | AttributeGroups::SECURITY | AttributeGroups::PRIVATE,
            quality: QualityOfService::CLASS_3_RECOVERY,
            document: Document::UnstructuredBinary(BinaryParameters::NONE),
            window: 3,
            fdata_bytes: 16 * 1024,
            checkpoint_bytes: 4 * 1024 * 1024,
            file_bytes_max: 1 << 40,
            names_max: 65_536,
            dockets_max: 8000,
            user_dockets_max: 4096,
            docket_seconds_max: 7 * 24 * 3600,
        }
    }
}

/// What a responder is lent.
pub struct Store<'a> {
    /// The files.
    pub disk: &'a mut dyn Disk,
    /// Who may do what beside whom.
    pub locks: &'a mut dyn Concurrency,
    /// Who is let in.
    pub door: &'a mut dyn Doorkeeper,
}

/// Something that was refused, or that failed: for a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setback {
    /// What said so.
    pub kind: FpduKind,
    /// What the peer called the file that it asked for last, or the first letters of it.
    pub file: String,
    /// What was said.
    pub item: DiagnosticItem,
}

/// What a responder waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// For the peer.
    Peer,
    /// For room below: there is more to send.
    Room,
    /// For the doorkeeper.
    Door,
}

/// The responder of one association.
pub struct Responder {
    config: Config,
    address: String,
    groups: AttributeGroups,
    pending: Option<Box<Initialize>>,
    admission: Option<Admission>,
    group: Option<(i64, Vec<Pdu>)>,
    selected: Option<Selected>,
    transfer: Option<Transfer>,
    /// What the peer called the file that it asked for last.
    file: String,
    setbacks: VecDeque<Setback>,
    counters: Counters,
}

/// Contents that are not in their place yet, and the marks that they will have there. A docket keeps them, so that a transfer
/// that is gone on with ends as it would have ended.
struct Unfinished {
    begun: Begun,
    way: Way,
    marks: Vec<(Mark, Vec<u8>)>,
}

/// The file selection regime.
struct Selected {
    path: Path,
    kind: Kind,
    access: Actions,
    hold: Hold,
    /// What it is stored as, if that is known.
    document: Option<Document>,
    /// What was created and is not seen yet.
    fresh: Option<Unfinished>,
    /// What was known when it was selected; nothing of a new file.
    entry: Option<Entry>,
    open: Option<Open>,
}

/// The file open regime.
struct Open {
    document: Document,
    mode: Actions,
    /// Under what the docket is kept, if the regime can be recovered.
    docket: Option<String>,
    bulk: i64,
    resume: Option<open::Resume>,
}

impl Responder {
    /// A responder for an association with whoever is at `address`.
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
            setbacks: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Who was let in.
    pub fn user(&self) -> Option<&str> {
        self.admission.as_ref().map(|admission| admission.user.as_str())
    }

    /// What the peer called the file that it asked for last, or the first letters of it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// What was refused or has failed, the oldest first. Of what nobody fetches the last [`SETBACKS_MAX`] are kept.
    pub fn setback(&mut self) -> Option<Setback> {
        self.setbacks.pop_front()
    }

    /// What it did.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Does what there is to do; at most about `room_bytes` of contents are handed down.
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
            return Progress::Door;
        }
        self.send_contents(machine, store, room_bytes)
    }

    /// The association is gone, without a word: what can be recovered is left, the rest undone.
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

    fn say(&mut self, machine: &mut Machine, pdu: Pdu) {
        // What ended the association behind the request is still to be polled for.
        if machine.state() == State::Closed {
            return;
        }
        self.note_setback(&pdu);
        if machine.request(Request::Pdu(pdu)).is_err() {
            self.counters.misuses += 1;
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

    fn note_setback(&mut self, pdu: &Pdu) {
        let items = pdu.diagnostic().map_or(&[][..], |diagnostic| &diagnostic.0);
        // What only followed from another failure says nothing.
        let followed = [ErrorIdentifier::SUBSEQUENT_ERROR, ErrorIdentifier::GROUPING_THRESHOLD];
        let item = items.iter().find(|item| {
            item.diagnostic_type != DiagnosticType::INFORMATIVE
                && !followed.contains(&item.error())
                // The end of a transfer whose trouble was said at the end of its data.
                && !(pdu.kind() == FpduKind::TransferEndResponse && item.error() == ErrorIdentifier::BAD_READ)
        });
        let Some(item) = item else { return };
        if item.error() == ErrorIdentifier::LOWER_LAYER_FAILURE && self.selected.is_none() {
            // Nothing was cut short.
            return;
        }
        if self.setbacks.len() == SETBACKS_MAX {
            self.setbacks.pop_front();
            self.counters.setbacks_untold += 1;
        }
        let (kind, file, item) = (pdu.kind(), self.file.clone(), item.clone());
        self.setbacks.push_back(Setback { kind, file, item });
    }

    fn on_initialize(&mut self, initialize: Box<Initialize>, machine: &mut Machine, store: &mut Store<'_>) {
        let request = &initialize.request;
        let visitor = Visitor {
            user: request.initiator_identity.as_ref().map(|user| user.0.text().into_owned()),
            account: request.account.as_ref().map(|account| account.0.text().into_owned()),
            password: request.filestore_password.as_ref().map(|password| password.bytes().to_vec()),
            address: self.address.clone(),
        };
        let error = match store.door.judge(&visitor) {
            Judgement::Wait => {
                self.pending = Some(initialize);
                return;
            }
            Judgement::Admitted(admission) => {
                self.admission = Some(admission);
                None
            }
            Judgement::Refused(Refusal::Password) => Some(ErrorIdentifier::FILESTORE_PASSWORD),
            Judgement::Refused(Refusal::Account) => Some(ErrorIdentifier::ASSOCIATION_BAD_ACCOUNT),
            Judgement::Refused(Refusal::Later) => Some(ErrorIdentifier::USER_NOT_ALLOWED),
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
        self.say(machine, Pdu::InitializeResponse(Box::new(response)));
    }

    /// What is agreed on: the richest service class, and of the rest what both have.
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
            // In the order in which they were proposed: some initiators count on it.
            let known = |name: &&ContentsTypeName| match name {
                ContentsTypeName::Document(name) => documents::abstract_syntax_of(name.0)
                    .is_some_and(|syntax| initialize.abstract_syntaxes.contains(&syntax)),
                ContentsTypeName::AbstractSyntax(name) => initialize.abstract_syntaxes.contains(&name.0),
            };
            let kept: Vec<ContentsTypeName> = list.0.iter().filter(known).cloned().collect();
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
                self.say(machine, Pdu::TerminateResponse(Box::new(response)));
            }
            Pdu::UserAbort(_) | Pdu::ProviderAbort(_) => {
                // What broke the protocol, or what the peer gave up for.
                self.note_setback(&pdu);
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
                self.say(machine, answer);
            }
            Pdu::CancelResponse(_) => self.stop_transfer(store, false),
            other => match &mut self.group {
                Some((_, requests)) => requests.push(other),
                None => {
                    let answer = self.perform(&other, machine, store);
                    self.say(machine, answer);
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
                failed(request, item_of(ErrorIdentifier::SUBSEQUENT_ERROR, DiagnosticType::PERMANENT))
            } else {
                self.perform(request, machine, store)
            };
            failures += i64::from(!succeeded(&answer));
            answers.push(answer);
        }
        if selects && count - failures < needed {
            self.undo(store);
            for (request, answer) in requests.iter().zip(&mut answers) {
                if succeeded(answer) {
                    let item = item_of(ErrorIdentifier::GROUPING_THRESHOLD, DiagnosticType::PERMANENT);
                    *answer = failed(request, item);
                }
            }
        }
        self.say(machine, Pdu::BeginGroupResponse(Box::new(BeginGroupResponse {})));
        for answer in answers {
            self.say(machine, answer);
        }
        self.say(machine, Pdu::EndGroupResponse(Box::new(EndGroupResponse {})));
    }

    /// The selection of a group that failed: as if it had not been.
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
        answer.unwrap_or_else(|item| failed(request, item))
    }

    fn admission(&self) -> Result<&Admission, DiagnosticItem> {
        self.admission
            .as_ref()
            .ok_or_else(|| item_of(ErrorIdentifier::USER_NOT_ALLOWED, DiagnosticType::PERMANENT))
    }

    fn selected(&mut self) -> Result<&mut Selected, DiagnosticItem> {
        let none = || item_of(ErrorIdentifier::SUBSEQUENT_ERROR, DiagnosticType::PERMANENT);
        self.selected.as_mut().ok_or_else(none)
    }
}

fn trouble(trouble: Trouble) -> DiagnosticItem {
    let (error, kind) = kind_of_failure(trouble);
    item_of(error, kind)
}
