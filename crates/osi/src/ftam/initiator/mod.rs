//! The initiator: fetches, stores and manages remote files, one job at a time (ISO 8571-3, the initiator's
//! side).
//!
//! Purpose    a job and its outcome are plain values; a job that is cut short by the loss of its association
//!            can be resumed.
//! Operation  `work` handles the machine's indications and advances the job. Local files are on a [`Disk`],
//!            as the responder's are; a fetched file appears when it is complete.
//! Jobs       each consists of one or two groups of primitives, as in the transfer and management class, with
//!            a transfer between them if needed.
//! Recovery   if the association has recovery, a docket with the last checkpoints is stored for every
//!            transfer. The failure of a job that was cut short contains the docket's key;
//!            [`Initiator::recover`] resumes the job over another association.
//! Limits     one job at a time; see [`Config`].
//! Not implemented  file access (LOCATE, ERASE); the initiator never requests locks, so the responder's
//!                  defaults
//!            apply.

mod bulk;
mod job;

use super::contents::{Inflow, Outflow};
use super::filestore::{Disk, DiskError, Handle, OpenedContents, Path, Stamp, WriteMode};
use super::responder::{Point, Points};
use super::{Indication, Initialize, Machine, Request, RequestError};
use crate::Selectors;
use crate::wire::ftam::{
    AccessRequest, Account, ActionResult, AttributeGroups, ChangeAttributes, ContentsTypeList,
    ContentsTypeName, Diagnostic, DiagnosticItem, DiagnosticType, Document, DocumentTypeName,
    EntityReference, ErrorIdentifier, FunctionalUnits, InitializeRequest, Pdu, QualityOfService,
    ReadAttributes, ServiceClass, TerminateRequest, UserAbort, UserIdentity, oids,
};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// Configuration of an initiator.
#[derive(Clone, Debug)]
pub struct Config {
    /// The calling selectors.
    pub calling: Selectors,
    /// The called selectors.
    pub called: Selectors,
    /// The initiator identity.
    pub user: Option<String>,
    /// The account to charge.
    pub account: Option<String>,
    /// The filestore password.
    pub password: Option<String>,
    /// The service classes to propose.
    pub classes: ServiceClass,
    /// The functional units to propose.
    pub units: FunctionalUnits,
    /// The attribute groups to propose in addition to the kernel group.
    pub groups: AttributeGroups,
    /// The FTAM quality of service to propose; with 0, no transfer can be recovered.
    pub quality: QualityOfService,
    /// Maximum number of unanswered checkpoints.
    pub window: i64,
    /// Length of a data element in octets.
    pub fdata_bytes: usize,
    /// Octets between checkpoints.
    pub checkpoint_bytes: u64,
    /// Maximum number of entries in a directory listing.
    pub entries_max: usize,
    /// The identifier of the first activity; [`Initiator::set_activity`] can change it. Recoverable
    /// activities must have different identifiers.
    pub activity: i64,
}

impl Default for Config {
    fn default() -> Config {
        use FunctionalUnits as U;
        Config {
            calling: Selectors::default(),
            called: Selectors::default(),
            user: None,
            account: None,
            password: None,
            classes: ServiceClass::TRANSFER
                | ServiceClass::MANAGEMENT
                | ServiceClass::TRANSFER_AND_MANAGEMENT,
            units: U::READ
                | U::WRITE
                | U::LIMITED_FILE_MANAGEMENT
                | U::ENHANCED_FILE_MANAGEMENT
                | U::GROUPING
                | U::RECOVERY
                | U::RESTART_DATA_TRANSFER,
            groups: AttributeGroups::STORAGE | AttributeGroups::SECURITY,
            quality: QualityOfService::CLASS_1_RECOVERY,
            window: 3,
            fdata_bytes: 16 * 1024,
            checkpoint_bytes: 4 * 1024 * 1024,
            entries_max: 65_536,
            activity: 1,
        }
    }
}

/// A job for the initiator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// Fetch a file. If no document type is given, the stored one is used.
    Get {
        /// The remote name.
        remote: String,
        /// The local path.
        local: Path,
        /// The document type.
        document: Option<Document>,
    },
    /// Store a file, replacing an existing one.
    Put {
        /// The local path.
        local: Path,
        /// The remote name.
        remote: String,
        /// The document type.
        document: Document,
    },
    /// Append to a file; the file is created if it does not exist.
    Append {
        /// The local path.
        local: Path,
        /// The remote name.
        remote: String,
        /// The document type.
        document: Document,
    },
    /// List a directory.
    List {
        /// The remote name.
        remote: String,
    },
    /// Read attributes.
    Stat {
        /// The remote name.
        remote: String,
    },
    /// Delete a file or directory.
    Remove {
        /// The remote name.
        remote: String,
    },
    /// Rename a file or directory.
    Rename {
        /// The remote name.
        remote: String,
        /// The new name.
        to: String,
    },
    /// Create a directory: F-CREATE of an NBS-9 file, as ISODE does.
    MakeDirectory {
        /// The remote name.
        remote: String,
    },
    /// Change attributes.
    Change {
        /// The remote name.
        remote: String,
        /// The new attribute values.
        attributes: Box<ChangeAttributes>,
    },
}

/// The outcome of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success, without further results.
    Done,
    /// A file's attributes.
    Attributes(Box<ReadAttributes>),
    /// A directory's entries.
    Entries(Vec<ReadAttributes>),
}

/// Why a job failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// Diagnostics from the responder or from the local machine.
    pub diagnostics: Vec<DiagnosticItem>,
    /// The error of the local disk.
    pub local: Option<DiskError>,
    /// Whether this end cancelled the job.
    pub cancelled: bool,
    /// The request was not possible, most often because the responder does not offer a functional unit.
    pub misuse: Option<RequestError>,
    /// The key of the docket with which the job can be recovered.
    pub docket: Option<String>,
}

/// An event of the initiator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The association is established.
    Connected,
    /// The association was refused.
    Refused(Failure),
    /// The job has ended.
    Ended(Result<Outcome, Failure>),
    /// The association has been terminated as requested.
    Closed,
    /// The association is lost.
    Lost,
}

/// Returns the key of an activity's docket on the initiator's disk.
pub fn docket_of(activity: i64) -> String {
    alloc::format!("i-{:016x}", activity as u64)
}

/// The initiator of one association.
pub struct Initiator {
    config: Config,
    running: Option<Running>,
    events: VecDeque<Event>,
    activity: i64,
    done_bytes: u64,
    total_bytes: Option<u64>,
}

/// A job in progress.
struct Running {
    job: Job,
    phase: Phase,
    outcome: Outcome,
    failure: Option<Failure>,
    document: Option<Document>,
    /// The activity identifier, if the transfer can be recovered, and the key of its docket.
    docket: Option<(i64, String)>,
    transfer: Option<Transfer>,
    resume: Option<Point>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The first group has been requested.
    Opening,
    /// F-RECOVER has been requested.
    Recovering,
    /// Data is being transferred.
    Moving,
    /// F-TRANSFER-END or F-CANCEL is pending.
    Ending,
    /// The last group has been requested.
    Closing,
}

enum Transfer {
    Out { handle: Handle, stamp: Stamp, outflow: Box<Outflow>, points: Points, unchecked: u64, ended: bool },
    In { begun: OpenedContents, inflow: Box<Inflow>, at: u64, points: Points },
    Entries,
}

impl Initiator {
    /// Creates an initiator without an association.
    pub fn new(config: Config) -> Initiator {
        let activity = config.activity;
        Initiator {
            config,
            running: None,
            events: VecDeque::new(),
            activity,
            done_bytes: 0,
            total_bytes: None,
        }
    }

    /// Requests an association.
    ///
    /// # Errors
    /// The machine has an association already, or a configured value is out of range.
    pub fn connect(&mut self, machine: &mut Machine) -> Result<(), super::RequestError> {
        let config = &self.config;
        let mut request = InitializeRequest::new(config.classes, config.units);
        request.attribute_groups = config.groups;
        request.ftam_quality_of_service = config.quality;
        request.initiator_identity = config.user.as_deref().map(|user| UserIdentity(user.into()));
        request.account = config.account.as_deref().map(|account| Account(account.into()));
        request.filestore_password = config.password.as_deref().map(Into::into);
        request.checkpoint_window = config.window;
        let names = [oids::FTAM_1, oids::FTAM_2, oids::FTAM_3, oids::NBS_9];
        let names = names.map(|name| ContentsTypeName::Document(DocumentTypeName(name)));
        request.contents_type_list = Some(ContentsTypeList(names.to_vec()));
        let initialize = Initialize {
            calling: config.calling.clone(),
            called: config.called.clone(),
            abstract_syntaxes: vec![oids::FADU],
            request,
        };
        machine.request(Request::Initialize(Box::new(initialize)))
    }

    /// Requests termination of the association.
    ///
    /// # Errors
    /// A job is in progress, or there is no association.
    pub fn terminate(&mut self, machine: &mut Machine) -> Result<(), super::RequestError> {
        if self.running.is_some() {
            return Err(super::RequestError::State);
        }
        let request = TerminateRequest { shared_ase_information: None };
        machine.request(Request::Pdu(Pdu::TerminateRequest(Box::new(request))))
    }

    /// Sets the activity identifier of the next transfer. It is part of the docket's key on both sides.
    pub fn set_activity(&mut self, activity: i64) {
        self.activity = activity.saturating_sub(1);
    }

    /// Returns the next event.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns whether a job is in progress.
    pub fn is_busy(&self) -> bool {
        self.running.is_some()
    }

    /// Returns how many octets of contents this job has transferred, and the total if known.
    pub fn progress(&self) -> (u64, Option<u64>) {
        (self.done_bytes, self.total_bytes)
    }

    /// Does pending work; passes down at most about `room_bytes` of contents. Returns true if there is more
    /// to send.
    pub fn work(&mut self, machine: &mut Machine, disk: &mut dyn Disk, room_bytes: usize) -> bool {
        while let Some(indication) = machine.poll_up() {
            match indication {
                Indication::Initialize(_) | Indication::CheckConfirm { .. } => {}
                Indication::Pdu(pdu) => self.on_pdu(pdu, machine, disk),
                Indication::Data(element) => self.on_data(element, machine, disk),
                Indication::Check { checkpoint } => self.on_check(checkpoint, machine, disk),
            }
        }
        self.send_contents(machine, disk, room_bytes)
    }

    /// Handles the loss of the association.
    pub fn lost(&mut self, disk: &mut dyn Disk) {
        self.on_lost(None, disk);
    }

    fn send(&mut self, machine: &mut Machine, pdu: Pdu) {
        if machine.request(Request::Pdu(pdu)).is_err() {
            self.abort(machine);
        }
    }

    /// Aborts the association after an error from which the protocol cannot recover.
    fn abort(&mut self, machine: &mut Machine) {
        let item = own(ErrorIdentifier::INITIATOR_ERROR);
        if let Some(running) = &mut self.running {
            running.failure.get_or_insert_default().diagnostics.push(item.clone());
        }
        let abort = UserAbort { action_result: ActionResult::PERMANENT_ERROR, diagnostic: Some(item.into()) };
        let _ = machine.request(Request::Pdu(Pdu::UserAbort(Box::new(abort))));
    }

    fn on_pdu(&mut self, pdu: Pdu, machine: &mut Machine, disk: &mut dyn Disk) {
        match pdu {
            Pdu::InitializeResponse(response) => {
                let positive = response.state_result == crate::wire::ftam::StateResult::SUCCESS;
                self.events.push_back(match positive {
                    true => Event::Connected,
                    false => Event::Refused(Failure {
                        diagnostics: response.diagnostic.map_or_else(Vec::new, |said| said.0),
                        ..Failure::default()
                    }),
                });
            }
            Pdu::TerminateResponse(_) => self.events.push_back(Event::Closed),
            Pdu::UserAbort(abort) => self.on_lost(abort.diagnostic, disk),
            Pdu::ProviderAbort(abort) => self.on_lost(abort.diagnostic, disk),
            pdu => self.on_answer(pdu, machine, disk),
        }
        if self.running.is_some() && machine.state() == super::State::Closed {
            self.on_lost(None, disk);
        }
    }

    fn on_lost(&mut self, said: Option<Diagnostic>, disk: &mut dyn Disk) {
        if let Some(mut running) = self.running.take() {
            let recovers = running.docket.as_ref().filter(|_| running.failure.is_none());
            let recovers = recovers.filter(|(_, key)| disk.fetch(key).is_ok()).map(|(_, key)| key.clone());
            match running.transfer.take() {
                Some(Transfer::Out { handle, .. }) => disk.leave(handle),
                Some(Transfer::In { begun, .. }) if recovers.is_some() => disk.leave(begun.handle),
                Some(Transfer::In { begun, .. }) => disk.abandon(begun.handle),
                _ => {}
            }
            let mut failure = running.failure.unwrap_or_default();
            failure.diagnostics.extend(said.map_or_else(Vec::new, |said| said.0));
            failure.docket = recovers;
            if let (None, Some((_, key))) = (&failure.docket, &running.docket) {
                disk.forget(key);
            }
            self.events.push_back(Event::Ended(Err(failure)));
        }
        self.events.push_back(Event::Lost);
    }

    /// Ends the job, and reports its outcome.
    fn end(&mut self, disk: &mut dyn Disk) {
        let Some(mut running) = self.running.take() else { return };
        match running.transfer.take() {
            Some(Transfer::Out { handle, .. }) => disk.leave(handle),
            Some(Transfer::In { begun, .. }) => disk.abandon(begun.handle),
            _ => {}
        }
        if let Some((_, key)) = &running.docket {
            disk.forget(key);
        }
        self.events.push_back(Event::Ended(match running.failure {
            None => Ok(running.outcome),
            Some(mut failure) => {
                // List the cause first, then its consequences.
                failure.diagnostics.sort_by_key(|item| {
                    matches!(
                        item.error(),
                        ErrorIdentifier::GROUPING_THRESHOLD | ErrorIdentifier::SUBSEQUENT_ERROR
                    )
                });
                Err(failure)
            }
        }));
    }
}

impl Running {
    fn fail(&mut self, said: Option<Diagnostic>) {
        self.failure.get_or_insert_default().diagnostics.extend(said.map_or_else(Vec::new, |said| said.0));
    }
}

fn own(error: ErrorIdentifier) -> DiagnosticItem {
    let here = EntityReference::INITIATING_FILE_SERVICE_USER;
    DiagnosticItem::new(DiagnosticType::PERMANENT, error, here, here)
}

/// Returns the access to request for a job that writes, and the mode in which the contents are written.
fn writing_of(job: &Job) -> Option<(AccessRequest, WriteMode)> {
    match job {
        Job::Put { document: Document::SequentialText(_), .. } => {
            Some((AccessRequest::INSERT, WriteMode::Extend))
        }
        Job::Append { document: Document::SequentialText(_), .. } => {
            Some((AccessRequest::INSERT, WriteMode::Extend))
        }
        Job::Put { .. } => Some((AccessRequest::REPLACE, WriteMode::Replace)),
        Job::Append { .. } => Some((AccessRequest::EXTEND, WriteMode::Extend)),
        _ => None,
    }
}
