//! The initiator of one association, and the phases that it goes through.

use super::config::Config;
use super::primitives::{Event, Failure, Job, Outcome};
use crate::ftam::contents::{Inflow, Outflow};
use crate::ftam::filestore::{Disk, Handle, OpenedContents, Stamp, WriteMode};
use crate::ftam::responder::{Point, Points};
use crate::ftam::{Indication, Initialize, Machine, Request};
use crate::wire::ftam::{
    AccessRequest, Account, ActionResult, ContentsTypeList, ContentsTypeName, Diagnostic, DiagnosticItem,
    DiagnosticType, Document, DocumentTypeName, EntityReference, ErrorIdentifier, InitializeRequest, Pdu,
    TerminateRequest, UserAbort, UserIdentity, oids,
};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// Returns the key of an activity's docket on the initiator's disk.
pub fn docket_of(activity: i64) -> String {
    alloc::format!("i-{:016x}", activity as u64)
}

/// The initiator of one association.
pub struct Initiator {
    pub(super) config: Config,
    pub(super) running: Option<Running>,
    events: VecDeque<Event>,
    pub(super) activity: i64,
    pub(super) done_bytes: u64,
    pub(super) total_bytes: Option<u64>,
}

/// A job in progress.
pub(super) struct Running {
    pub(super) job: Job,
    pub(super) phase: Phase,
    pub(super) outcome: Outcome,
    pub(super) failure: Option<Failure>,
    pub(super) document: Option<Document>,
    /// The activity identifier and the docket's key, if the transfer can be recovered.
    pub(super) docket: Option<(i64, String)>,
    pub(super) transfer: Option<Transfer>,
    pub(super) resume: Option<Point>,
    /// Whether the responder has secured a checkpoint of this transfer.
    pub(super) is_checked: bool,
    /// Whether the docket is kept although the job failed, because the responder keeps its docket, too.
    pub(super) keeps_docket: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The first group has been requested; its response is pending.
    Opening,
    /// F-RECOVER has been requested.
    Recovering,
    /// Data is being transferred.
    Moving,
    /// F-TRANSFER-END or F-CANCEL is pending.
    Ending,
    /// The last group has been requested; its response is pending.
    Closing,
}

pub(super) enum Transfer {
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
    /// The machine already has an association, or a configured value is out of range.
    pub fn connect(&mut self, machine: &mut Machine) -> Result<(), crate::ftam::RequestError> {
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
    pub fn terminate(&mut self, machine: &mut Machine) -> Result<(), crate::ftam::RequestError> {
        if self.running.is_some() {
            return Err(crate::ftam::RequestError::State);
        }
        let request = TerminateRequest { shared_ase_information: None };
        machine.request(Request::Pdu(Pdu::TerminateRequest(Box::new(request))))
    }

    /// Sets the activity identifier of the next transfer. Both sides use it in the key of their docket.
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

    /// Returns how many octets of contents this job has transferred, and the total number if it is known.
    pub fn progress(&self) -> (u64, Option<u64>) {
        (self.done_bytes, self.total_bytes)
    }

    /// Does pending work, and passes down about `room_bytes` of contents at most. Returns true if there is
    /// more to send.
    pub fn work(&mut self, machine: &mut Machine, disk: &mut dyn Disk, room_bytes: usize) -> bool {
        while let Some(indication) = machine.poll_up() {
            match indication {
                Indication::Initialize(_) => {}
                Indication::CheckConfirm { .. } => {
                    if let Some(running) = &mut self.running {
                        running.is_checked = true;
                    }
                }
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

    pub(super) fn send(&mut self, machine: &mut Machine, pdu: Pdu) {
        if machine.request(Request::Pdu(pdu)).is_err() {
            self.abort(machine);
        }
    }

    /// Aborts the association after an error from which the protocol cannot recover.
    pub(super) fn abort(&mut self, machine: &mut Machine) {
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
        if self.running.is_some() && machine.state() == crate::ftam::State::Closed {
            self.on_lost(None, disk);
        }
    }

    pub(super) fn on_lost(&mut self, said: Option<Diagnostic>, disk: &mut dyn Disk) {
        if let Some(mut running) = self.running.take() {
            // After a cancel for lack of space, the failure is known but the transfer can be recovered.
            let may_recover = running.failure.is_none() || running.keeps_docket;
            let recovers = running.docket.as_ref().filter(|_| may_recover);
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
    pub(super) fn end(&mut self, disk: &mut dyn Disk) {
        self.drop_transfer(disk);
        let Some(running) = self.running.take() else { return };
        self.events.push_back(Event::Ended(match running.failure {
            None => Ok(running.outcome),
            Some(mut failure) => {
                failure.docket = running.docket.filter(|_| running.keeps_docket).map(|(_, key)| key);
                // Lists the cause once and first, then its consequences. A responder may repeat the cause in
                // each response of a group.
                let mut seen = Vec::new();
                failure.diagnostics.retain(|item| {
                    !seen.contains(item) && {
                        seen.push(item.clone());
                        true
                    }
                });
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
    pub(super) fn fail(&mut self, said: Option<Diagnostic>) {
        self.failure.get_or_insert_default().diagnostics.extend(said.map_or_else(Vec::new, |said| said.0));
    }
}

pub(super) fn own(error: ErrorIdentifier) -> DiagnosticItem {
    let here = EntityReference::INITIATING_FILE_SERVICE_USER;
    DiagnosticItem::new(DiagnosticType::PERMANENT, error, here, here)
}

/// Returns the access to request for a job that writes, and how its contents are to be written.
pub(super) fn writing_of(job: &Job) -> Option<(AccessRequest, WriteMode)> {
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
