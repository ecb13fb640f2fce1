//! Jobs: the groups of FTAM primitives that they send, and how they handle the responses.

use super::machine::{Initiator, Phase, Running, docket_of, own, writing_of};
use super::primitives::{Failure, Job, Outcome};
use crate::ftam::filestore::Disk;
use crate::ftam::{Machine, RequestError, State};
use crate::wire::ftam::{
    AccessRequest, ActionResult, ActivityIdentifier, AttributeNames, BeginGroupRequest, ChangeAttributes,
    ChangeAttributesRequest, CloseRequest, ContentsType, CreateAttributes, CreateRequest, DeleteRequest,
    DeselectRequest, DirectoryParameters, Document, EndGroupRequest, ErrorIdentifier, FunctionalUnits,
    ObjectType, OpenContentsType, OpenRequest, Override, Pdu, PermittedActions, ProcessingMode,
    ReadAttributesRequest, RecoveryMode, SelectRequest, StateResult,
};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// Returns the names of the attributes requested for a directory listing.
fn listed() -> AttributeNames {
    AttributeNames::KERNEL
        | AttributeNames::DATE_AND_TIME_OF_CREATION
        | AttributeNames::DATE_AND_TIME_OF_LAST_MODIFICATION
        | AttributeNames::DATE_AND_TIME_OF_LAST_READ_ACCESS
        | AttributeNames::IDENTITY_OF_CREATOR
        | AttributeNames::IDENTITY_OF_LAST_MODIFIER
        | AttributeNames::OBJECT_SIZE
        | AttributeNames::OBJECT_TYPE
}

fn permitted() -> PermittedActions {
    PermittedActions(0xff) | PermittedActions::TRAVERSAL
}

fn deselect() -> Pdu {
    Pdu::DeselectRequest(Box::new(DeselectRequest { shared_ase_information: None }))
}

fn select(name: &str, access: AccessRequest) -> Pdu {
    Pdu::SelectRequest(Box::new(SelectRequest::new(name.into(), access)))
}

fn open(mode: ProcessingMode, document: Option<&Document>) -> OpenRequest {
    let contents_type = match document {
        None => OpenContentsType::Unknown(crate::wire::ber::Null),
        Some(document) => OpenContentsType::Proposed(document.contents_type()),
    };
    OpenRequest::new(mode, contents_type)
}

impl Initiator {
    /// Starts a job.
    ///
    /// # Errors
    /// There is no association, another job is in progress, or the job needs functional units that were not
    /// negotiated.
    pub fn start(
        &mut self,
        job: Job,
        machine: &mut Machine,
        disk: &mut dyn Disk,
    ) -> Result<(), RequestError> {
        self.start_job(job, true, machine, disk)
    }

    /// Starts a job like [`Initiator::start`], but keeps no docket at either end, so that a transfer cannot
    /// be recovered.
    ///
    /// # Errors
    /// As [`Initiator::start`].
    pub fn start_unrecorded(
        &mut self,
        job: Job,
        machine: &mut Machine,
        disk: &mut dyn Disk,
    ) -> Result<(), RequestError> {
        self.start_job(job, false, machine, disk)
    }

    fn start_job(
        &mut self,
        job: Job,
        is_recorded: bool,
        machine: &mut Machine,
        disk: &mut dyn Disk,
    ) -> Result<(), RequestError> {
        if self.running.is_some() || machine.state() != State::Initialized {
            return Err(RequestError::State);
        }
        let needs = match &job {
            Job::Get { .. } | Job::List { .. } => FunctionalUnits::READ,
            Job::Put { .. } | Job::Append { .. } => {
                FunctionalUnits::WRITE | FunctionalUnits::LIMITED_FILE_MANAGEMENT
            }
            Job::Rename { .. } | Job::Change { .. } => {
                FunctionalUnits::LIMITED_FILE_MANAGEMENT | FunctionalUnits::ENHANCED_FILE_MANAGEMENT
            }
            _ => FunctionalUnits::LIMITED_FILE_MANAGEMENT,
        };
        if !machine.units().contains(needs) {
            return Err(RequestError::Unit);
        }
        let moves = matches!(job, Job::Get { .. } | Job::Put { .. } | Job::Append { .. });
        let recovers = is_recorded && moves && machine.units().contains(FunctionalUnits::RECOVERY);
        let docket = recovers.then(|| {
            self.activity += 1;
            (self.activity, docket_of(self.activity))
        });
        let group = self.group_of(&job, docket.as_ref().map(|(activity, _)| *activity));
        (self.done_bytes, self.total_bytes) = (0, None);
        let mut running = Running {
            job,
            phase: Phase::Opening,
            outcome: Outcome::Done,
            failure: None,
            document: None,
            docket,
            transfer: None,
            resume: None,
            is_checked: false,
            keeps_docket: false,
        };
        // A missing local file is reported before the responder is asked to create anything.
        if let Job::Put { local, .. } | Job::Append { local, .. } = &running.job {
            match disk.stat(local) {
                Ok(entry) => self.total_bytes = Some(entry.bytes),
                Err(disk_error) => {
                    running.docket = None;
                    running.failure = Some(Failure { local: Some(disk_error), ..Failure::default() });
                    self.running = Some(running);
                    self.end(disk);
                    return Ok(());
                }
            }
        }
        self.running = Some(running);
        self.say_group(group, machine);
        Ok(())
    }

    fn group_of(&self, job: &Job, activity: Option<i64>) -> Vec<Pdu> {
        let recovering = |mut request: OpenRequest| {
            if let Some(activity) = activity {
                request.activity_identifier = Some(ActivityIdentifier(activity));
                request.recovery_mode = RecoveryMode::AT_ANY_ACTIVE_CHECKPOINT;
            }
            Pdu::OpenRequest(Box::new(request))
        };
        let create = |name: &str, document: &Document, how: Override, access: AccessRequest| {
            let contents: ContentsType = document.contents_type();
            let attributes = CreateAttributes::new(name.into(), permitted(), contents);
            Pdu::CreateRequest(Box::new(CreateRequest::new(how, attributes, access)))
        };
        match job {
            Job::Get { remote, document, .. } => {
                let open = open(ProcessingMode::READ, document.as_ref());
                vec![select(remote, AccessRequest::READ), recovering(open)]
            }
            Job::Put { remote, document, .. } | Job::Append { remote, document, .. } => {
                let (access, _) = writing_of(job).expect("these write");
                let how = match job {
                    Job::Put { .. } => Override::DELETE_AND_CREATE_WITH_OLD_ATTRIBUTES,
                    _ => Override::SELECT_OLD_OBJECT,
                };
                let open = open(ProcessingMode(access.0), Some(document));
                vec![create(remote, document, how, access), recovering(open)]
            }
            Job::List { remote } => {
                let document = Document::Directory(DirectoryParameters(listed()));
                let open = open(ProcessingMode::READ, Some(&document));
                vec![select(remote, AccessRequest::READ), Pdu::OpenRequest(Box::new(open))]
            }
            Job::Stat { remote } => {
                let names = crate::ftam::attributes::names_of(self.config.groups);
                let read = ReadAttributesRequest { attribute_names: names, attribute_extension_names: None };
                let read = Pdu::ReadAttributesRequest(Box::new(read));
                vec![select(remote, AccessRequest::READ_ATTRIBUTE), read, deselect()]
            }
            Job::Remove { remote } => {
                let delete = Pdu::DeleteRequest(Box::new(DeleteRequest { shared_ase_information: None }));
                vec![select(remote, AccessRequest::DELETE_OBJECT), delete]
            }
            Job::Rename { remote, to } => {
                let attributes =
                    ChangeAttributes { pathname: Some(to.as_str().into()), ..ChangeAttributes::NONE };
                change(remote, attributes)
            }
            Job::Change { remote, attributes } => change(remote, (**attributes).clone()),
            Job::MakeDirectory { remote } => {
                let document = Document::Directory(DirectoryParameters(AttributeNames::KERNEL));
                let mut attributes =
                    CreateAttributes::new(remote.as_str().into(), permitted(), document.contents_type());
                attributes.object_type = ObjectType::FILE;
                let request =
                    CreateRequest::new(Override::CREATE_FAILURE, attributes, AccessRequest::READ_ATTRIBUTE);
                vec![Pdu::CreateRequest(Box::new(request)), deselect()]
            }
        }
    }

    fn say_group(&mut self, group: Vec<Pdu>, machine: &mut Machine) {
        let begin = BeginGroupRequest { threshold: group.len() as i64 };
        self.send(machine, Pdu::BeginGroupRequest(Box::new(begin)));
        for pdu in group {
            self.send(machine, pdu);
        }
        self.send(machine, Pdu::EndGroupRequest(Box::new(EndGroupRequest {})));
    }

    /// Closes the file and deselects it.
    pub(super) fn close(&mut self, machine: &mut Machine) {
        self.close_and(deselect(), machine);
    }

    /// Closes a file that could not be written at all, and deletes it if it was created for this job.
    pub(super) fn close_unwritten(&mut self, machine: &mut Machine) {
        let created = matches!(&self.running, Some(Running { job: Job::Put { .. }, .. }));
        let delete = || Pdu::DeleteRequest(Box::new(DeleteRequest { shared_ase_information: None }));
        self.close_and(if created { delete() } else { deselect() }, machine);
    }

    fn close_and(&mut self, last: Pdu, machine: &mut Machine) {
        if let Some(running) = &mut self.running {
            running.phase = Phase::Closing;
        }
        let close = CloseRequest {
            action_result: ActionResult::SUCCESS,
            shared_ase_information: None,
            diagnostic: None,
        };
        self.say_group(vec![Pdu::CloseRequest(Box::new(close)), last], machine);
    }

    pub(super) fn on_answer(&mut self, pdu: Pdu, machine: &mut Machine, disk: &mut dyn Disk) {
        let Some(running) = &mut self.running else { return };
        let failed = pdu.state_result().is_some_and(|result| result != StateResult::SUCCESS)
            || pdu.action_result().is_some_and(|result| result != ActionResult::SUCCESS);
        match pdu {
            Pdu::EndGroupResponse(_) if running.phase == Phase::Closing => self.end(disk),
            Pdu::EndGroupResponse(_) => self.on_opened(machine, disk),
            Pdu::BeginGroupResponse(_) => {}
            Pdu::ReadAttributesResponse(response) if !failed => {
                if let Some(attributes) = response.attributes {
                    running.outcome = Outcome::Attributes(Box::new(attributes));
                }
            }
            Pdu::OpenResponse(response) if !failed => {
                running.document = Document::of(&response.contents_type);
                if response.recovery_mode == RecoveryMode::NONE {
                    running.docket = None;
                }
            }
            Pdu::RecoverResponse(response) => self.on_recovered(&response, machine, disk),
            Pdu::DataEndRequest(end) => self.on_data_end(&end, machine, disk),
            Pdu::TransferEndResponse(response) => self.on_transfer_end(&response, machine, disk),
            Pdu::CancelRequest(cancel) => self.on_cancel(&cancel, machine, disk),
            Pdu::CancelResponse(_) => self.on_cancelled(machine, disk),
            Pdu::RestartRequest(restart) => self.on_restart(&restart, machine, disk),
            Pdu::RestartResponse(restart) => self.on_restarted(&restart, machine, disk),
            other if failed => running.fail(other.diagnostic().cloned()),
            _ => {}
        }
    }

    /// Handles the response to the first group, which selects and opens the file.
    fn on_opened(&mut self, machine: &mut Machine, disk: &mut dyn Disk) {
        let Some(running) = &mut self.running else { return };
        match machine.state() {
            State::DataTransferIdle if running.failure.is_none() => self.begin_transfer(machine, disk),
            State::DataTransferIdle => self.close(machine),
            State::Initialized => self.end(disk),
            // The responder selected the file but did not open it, which violates the group's threshold. No
            // other group may follow in that state.
            _ => {
                running.fail(Some(own(ErrorIdentifier::GROUPING_THRESHOLD).into()));
                self.abort(machine);
                self.on_lost(None, disk);
            }
        }
    }
}

fn change(remote: &str, attributes: ChangeAttributes) -> Vec<Pdu> {
    let change = Pdu::ChangeAttributesRequest(Box::new(ChangeAttributesRequest { attributes }));
    vec![select(remote, AccessRequest::CHANGE_ATTRIBUTE), change, deselect()]
}
