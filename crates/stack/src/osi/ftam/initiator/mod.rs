//! The initiator: files of others, fetched, put and looked after, a job at a time (ISO 8571-3, the initiator's part).
//!
//! Goal      a job is a value, and so is what became of it; what an association cuts short can be gone on with.
//! Shape     `work` takes what the machine indicates and drives the job on. Local files are a [`Disk`]'s as well: what is
//!           fetched is seen when it is whole.
//! Jobs      each is one or two groups of primitives, as the transfer and management class has it, with a transfer between.
//! Recovery  where the association has it, a note of every transfer is kept with its last checkpoints. A job that is lost
//!           says the note's key; [`Initiator::recover`] goes on from there, over another association.
//! Limits    [`Config`] names them; one job at a time.
//! Left out  file access (LOCATE, ERASE); locks are the responder's usual ones.

mod bulk;
mod job;

use super::contents::{Inflow, Outflow};
use super::filestore::{Begun, Disk, Handle, Path, Stamp, Trouble, Way};
use super::responder::{Point, Points};
use super::{Indication, Initialize, Machine, Misuse, Request};
use crate::osi::Selectors;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use kiban_wire::ftam::{
    AccessRequest, Account, ActionResult, AttributeGroups, ChangeAttributes, ContentsTypeList,
    ContentsTypeName, Diagnostic, DiagnosticItem, DiagnosticType, Document, DocumentTypeName,
    EntityReference, ErrorIdentifier, FunctionalUnits, InitializeRequest, Pdu, QualityOfService,
    ReadAttributes, ServiceClass, TerminateRequest, UserAbort, UserIdentity, oids,
};

/// Who asks, for what, and how.
#[derive(Clone, Debug)]
pub struct Config {
    /// Who calls.
    pub calling: Selectors,
    /// Who is called.
    pub called: Selectors,
    /// The user.
    pub user: Option<String>,
    /// Who pays.
    pub account: Option<String>,
    /// The filestore's password.
    pub password: Option<String>,
    /// Service classes that are proposed.
    pub classes: ServiceClass,
    /// Functional units that are proposed.
    pub units: FunctionalUnits,
    /// Attribute groups beside the kernel group.
    pub groups: AttributeGroups,
    /// The quality of service that is proposed: with none, nothing can be recovered.
    pub quality: QualityOfService,
    /// Most checkpoints unanswered.
    pub window: i64,
    /// Octets of a data element.
    pub fdata_bytes: usize,
    /// Octets between checkpoints.
    pub checkpoint_bytes: u64,
    /// Most entries of a directory.
    pub entries_max: usize,
    /// The number of the first activity, unless [`Initiator::set_activity`] says another: no two that can be recovered may have
    /// one number.
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

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// Fetch a file; as what it is stored, if no document is given.
    Get {
        /// The name there.
        remote: String,
        /// The name here.
        local: Path,
        /// As what.
        document: Option<Document>,
    },
    /// Put a file, in the place of one that may be there.
    Put {
        /// The name here.
        local: Path,
        /// The name there.
        remote: String,
        /// As what.
        document: Document,
    },
    /// Put a file behind one that may be there.
    Append {
        /// The name here.
        local: Path,
        /// The name there.
        remote: String,
        /// As what.
        document: Document,
    },
    /// List a directory.
    List {
        /// Its name.
        remote: String,
    },
    /// Read attributes.
    Stat {
        /// The name.
        remote: String,
    },
    /// Delete.
    Remove {
        /// The name.
        remote: String,
    },
    /// Give another name.
    Rename {
        /// The name.
        remote: String,
        /// The new one.
        to: String,
    },
    /// Make a directory: F-CREATE of an NBS-9 file, as ISODE has it.
    MakeDirectory {
        /// Its name.
        remote: String,
    },
    /// Change attributes.
    Change {
        /// The name.
        remote: String,
        /// To what.
        attributes: Box<ChangeAttributes>,
    },
}

/// What a job brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// A file's attributes.
    Attributes(Box<ReadAttributes>),
    /// A directory's entries.
    Entries(Vec<ReadAttributes>),
}

/// Why a job failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// What the responder, or the machine, said.
    pub diagnostics: Vec<DiagnosticItem>,
    /// What the local disk said.
    pub local: Option<Trouble>,
    /// It was cancelled here.
    pub cancelled: bool,
    /// It could not be asked for: most often a functional unit that the responder does not offer.
    pub misuse: Option<Misuse>,
    /// By what it can be recovered.
    pub docket: Option<String>,
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The association is made.
    Connected,
    /// It is not.
    Refused(Failure),
    /// The job has ended.
    Ended(Result<Outcome, Failure>),
    /// The association has ended as was asked.
    Closed,
    /// The association is lost.
    Lost,
}

/// The key of an activity's note, on the initiator's disk.
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

/// A job under way.
struct Running {
    job: Job,
    phase: Phase,
    outcome: Outcome,
    failure: Option<Failure>,
    document: Option<Document>,
    /// The activity, if it can be recovered, and the key of its note.
    docket: Option<(i64, String)>,
    transfer: Option<Transfer>,
    resume: Option<Point>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The first group.
    Opening,
    /// F-RECOVER.
    Recovering,
    /// Data.
    Moving,
    /// F-TRANSFER-END or F-CANCEL has been asked for.
    Ending,
    /// The last group.
    Closing,
}

enum Transfer {
    Out { handle: Handle, stamp: Stamp, outflow: Box<Outflow>, points: Points, unchecked: u64, ended: bool },
    In { begun: Begun, inflow: Box<Inflow>, at: u64, points: Points },
    Entries,
}

impl Initiator {
    /// An initiator without an association.
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

    /// Asks for an association.
    ///
    /// # Errors
    /// The machine has one, or a value of the configuration is out of bounds.
    pub fn connect(&mut self, machine: &mut Machine) -> Result<(), super::Misuse> {
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

    /// Asks for the end of the association.
    ///
    /// # Errors
    /// A job is under way, or there is no association.
    pub fn terminate(&mut self, machine: &mut Machine) -> Result<(), super::Misuse> {
        if self.running.is_some() {
            return Err(super::Misuse::State);
        }
        let request = TerminateRequest { shared_ase_information: None };
        machine.request(Request::Pdu(Pdu::TerminateRequest(Box::new(request))))
    }

    /// Gives the next transfer's activity this number: it names the transfer's docket, at both ends.
    pub fn set_activity(&mut self, activity: i64) {
        self.activity = activity.saturating_sub(1);
    }

    /// The next thing that has happened.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether a job is under way.
    pub fn is_busy(&self) -> bool {
        self.running.is_some()
    }

    /// Octets of this job that have been moved, and of how many, if that is known.
    pub fn progress(&self) -> (u64, Option<u64>) {
        (self.done_bytes, self.total_bytes)
    }

    /// Does what there is to do; at most about `room_bytes` of contents are handed down. True if there is more to send.
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

    /// The association is gone, without a word.
    pub fn lost(&mut self, disk: &mut dyn Disk) {
        self.on_lost(None, disk);
    }

    fn say(&mut self, machine: &mut Machine, pdu: Pdu) {
        if machine.request(Request::Pdu(pdu)).is_err() {
            self.abort(machine);
        }
    }

    /// Nothing sensible can be said any more.
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
                let positive = response.state_result == kiban_wire::ftam::StateResult::SUCCESS;
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

    /// The job is over.
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
                // The cause first, then what it has led to.
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

/// What is asked for, and how it is written.
fn writing_of(job: &Job) -> Option<(AccessRequest, Way)> {
    match job {
        Job::Put { document: Document::SequentialText(_), .. } => Some((AccessRequest::INSERT, Way::Extend)),
        Job::Append { document: Document::SequentialText(_), .. } => {
            Some((AccessRequest::INSERT, Way::Extend))
        }
        Job::Put { .. } => Some((AccessRequest::REPLACE, Way::Replace)),
        Job::Append { .. } => Some((AccessRequest::EXTEND, Way::Extend)),
        _ => None,
    }
}
