//! The initiator's transfers, and their recovery.

use super::machine::{Initiator, Phase, Running, Transfer, own, writing_of};
use super::primitives::{Failure, Job, Outcome};
use crate::ftam::contents::{Failure as Stopped, Inflow, Outflow};
use crate::ftam::filestore::{Disk, DiskError, Path, WriteMode};
use crate::ftam::record::Record;
use crate::ftam::responder::{Point, Points, kind_of_failure, points_of, stamp_of};
use crate::ftam::{Machine, Request, RequestError, State};
use crate::wire::ber::Asn1;
use crate::wire::ftam::{
    AccessContext, AccessContextKind, AccessRequest, ActionResult, Cancel, ContentsType, DataElement,
    DataEndRequest, Diagnostic, DiagnosticItem, Document, EntityReference, ErrorIdentifier, FaduIdentity,
    FunctionalUnits, Pdu, ReadRequest, RecoverRequest, RecoverResponse, Restart, TransferEndRequest,
    TransferEndResponse, WriteOperation, WriteRequest,
};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

const START: Point = Point { checkpoint: 0, at: 0, held: false };

impl Initiator {
    /// Starts the transfer after the file has been opened.
    pub(super) fn begin_transfer(&mut self, machine: &mut Machine, disk: &mut dyn Disk) {
        let fdata_bytes = self.config.fdata_bytes;
        let Some(running) = &mut self.running else { return };
        let point = running.resume.take().unwrap_or(START);
        let begun = match (&running.job, &running.document, running.transfer.take()) {
            // In a recovered transfer, the local file is already open.
            (_, _, Some(transfer)) => Ok(transfer),
            (Job::List { .. }, ..) => {
                running.outcome = Outcome::Entries(Vec::new());
                Ok(Transfer::Entries)
            }
            (Job::Get { .. }, Some(Document::Directory(_) | Document::DirectoryOld(_)), None) => {
                Err(DiskError::NotAFile)
            }
            (Job::Get { local, .. }, Some(document), None) => {
                disk.begin(local, WriteMode::Replace).map(|begun| {
                    let inflow = Box::new(Inflow::new(document, false));
                    Transfer::In { begun, inflow, at: 0, points: Points::new(START) }
                })
            }
            (Job::Put { local, .. } | Job::Append { local, .. }, Some(document), None) => {
                disk.open(local).map(|(handle, entry)| {
                    let outflow = Box::new(Outflow::new(document, fdata_bytes, false, entry.bytes, 0));
                    let points = Points::new(START);
                    Transfer::Out { handle, stamp: entry.stamp, outflow, points, unchecked: 0, ended: false }
                })
            }
            _ => Err(DiskError::Unable),
        };
        match begun {
            Ok(transfer) => running.transfer = Some(transfer),
            Err(disk_error) => {
                running.failure = Some(Failure { local: Some(disk_error), ..Failure::default() });
                return self.close_unwritten(machine);
            }
        }
        running.phase = Phase::Moving;
        let pdu = match writing_of(&running.job) {
            None => {
                let context = AccessContext::of(AccessContextKind::UNSTRUCTURED_ALL_DATA_UNITS);
                Pdu::ReadRequest(Box::new(ReadRequest::new(FaduIdentity::FIRST, context)))
            }
            Some((access, _)) => {
                let (operation, identity) = match access {
                    AccessRequest::INSERT => (WriteOperation::INSERT, FaduIdentity::END),
                    AccessRequest::EXTEND => (WriteOperation::EXTEND, FaduIdentity::FIRST),
                    _ => (WriteOperation::REPLACE, FaduIdentity::FIRST),
                };
                Pdu::WriteRequest(Box::new(WriteRequest::new(operation, identity)))
            }
        };
        self.done_bytes = point.at;
        // If no docket can be stored, perhaps because the directory is read-only, the transfer starts anyway,
        // but cannot be recovered.
        if self.note(disk).is_err()
            && let Some(running) = &mut self.running
        {
            running.docket = None;
        }
        self.send(machine, pdu);
    }

    pub(super) fn send_contents(
        &mut self,
        machine: &mut Machine,
        disk: &mut dyn Disk,
        room_bytes: usize,
    ) -> bool {
        let checks = FunctionalUnits::RECOVERY.0 | FunctionalUnits::RESTART_DATA_TRANSFER.0;
        let mut room = room_bytes;
        loop {
            let due = self.config.checkpoint_bytes;
            let Some(Running { transfer: Some(transfer), .. }) = &mut self.running else { return false };
            let Transfer::Out { handle, outflow, points, unchecked, ended, .. } = transfer else {
                return false;
            };
            if machine.state() != State::Writing || *ended {
                return false;
            }
            if room == 0 {
                return true;
            }
            let check = machine.units().0 & checks != 0 && *unchecked >= due;
            if check && outflow.is_at_border() && !outflow.is_at_end() {
                match machine.request(Request::Check) {
                    Ok(()) => {
                        *unchecked = 0;
                        let checkpoint = points.newest().checkpoint + 1;
                        points.push(Point { checkpoint, at: outflow.at(), held: false });
                        if let Err(disk_error) = self.note(disk) {
                            self.give_up(Some(disk_error), machine, disk);
                        }
                        continue;
                    }
                    Err(RequestError::Checkpoint) => return false,
                    Err(_) => {
                        self.abort(machine);
                        return false;
                    }
                }
            }
            let handle = *handle;
            match outflow.next(&mut |at, most| disk.read(handle, at, most)) {
                Ok(Some(element)) => {
                    let bytes = element.len() as u64;
                    *unchecked += bytes;
                    self.done_bytes = outflow.at();
                    room = room.saturating_sub(bytes.max(1) as usize);
                    if machine.request(Request::Data(element)).is_err() {
                        self.abort(machine);
                        return false;
                    }
                }
                Ok(None) => {
                    *ended = true;
                    if let Some(running) = &mut self.running {
                        running.phase = Phase::Ending;
                    }
                    let end = DataEndRequest { action_result: ActionResult::SUCCESS, diagnostic: None };
                    self.send(machine, Pdu::DataEndRequest(Box::new(end)));
                    self.send(machine, Pdu::TransferEndRequest(Box::new(TransferEndRequest::PLAIN)));
                }
                Err(Stopped::Disk(disk_error)) => self.give_up(Some(disk_error), machine, disk),
                Err(Stopped::Text) => {
                    if let Some(running) = &mut self.running {
                        running.fail(Some(own(ErrorIdentifier::LOCAL_FAILURE_DATA).into()));
                    }
                    self.give_up(None, machine, disk);
                }
            }
        }
    }

    pub(super) fn on_data(&mut self, element: DataElement, machine: &mut Machine, disk: &mut dyn Disk) {
        let entries_max = self.config.entries_max;
        let Some(running) = &mut self.running else { return };
        match (&mut running.transfer, element) {
            (Some(Transfer::Entries), DataElement::DirectoryEntry(entry)) => {
                let Outcome::Entries(entries) = &mut running.outcome else { return };
                if entries.len() < entries_max {
                    entries.push(*entry);
                } else {
                    self.give_up(Some(DiskError::TooMany), machine, disk);
                }
            }
            (Some(Transfer::In { begun, inflow, at, .. }), element) => match inflow.take(element) {
                Ok(bytes) => {
                    let behind = *at + bytes.len() as u64;
                    match disk.write(begun.handle, *at, bytes) {
                        Ok(()) => {
                            *at = behind;
                            self.done_bytes = behind;
                        }
                        Err(disk_error) => self.give_up(Some(disk_error), machine, disk),
                    }
                }
                Err(error) => {
                    running.fail(Some(own(error).into()));
                    self.give_up(None, machine, disk);
                }
            },
            // Data that arrives after a cancel is ignored.
            _ => {}
        }
    }

    pub(super) fn on_check(&mut self, checkpoint: i64, machine: &mut Machine, disk: &mut dyn Disk) {
        let Some(running) = &mut self.running else { return };
        let settled = match &mut running.transfer {
            Some(Transfer::In { begun, inflow, at, points }) => {
                points.push(Point { checkpoint, at: *at, held: inflow.is_holding() });
                disk.sync(begun.handle)
            }
            _ => Ok(()),
        };
        match settled.and_then(|()| self.note(disk)) {
            Ok(()) => {
                // The request fails if a cancel or a restart has arrived in the meantime; the checkpoint is
                // then void.
                let _ = machine.request(Request::CheckResponse { checkpoint });
            }
            Err(disk_error) => self.give_up(Some(disk_error), machine, disk),
        }
    }

    pub(super) fn on_data_end(&mut self, end: &DataEndRequest, machine: &mut Machine, disk: &mut dyn Disk) {
        let Some(running) = &mut self.running else { return };
        if end.action_result != ActionResult::SUCCESS {
            running.fail(end.diagnostic.clone());
        } else if let Some(Transfer::In { begun, inflow, at, .. }) = &mut running.transfer
            && let Err(disk_error) = disk.write(begun.handle, *at, inflow.end())
        {
            return self.give_up(Some(disk_error), machine, disk);
        }
        running.phase = Phase::Ending;
        if machine.state() != State::ReadEnded {
            // A cancel has arrived in the meantime.
            return;
        }
        self.send(machine, Pdu::TransferEndRequest(Box::new(TransferEndRequest::PLAIN)));
    }

    pub(super) fn on_transfer_end(
        &mut self,
        response: &TransferEndResponse,
        machine: &mut Machine,
        disk: &mut dyn Disk,
    ) {
        let Some(running) = &mut self.running else { return };
        if response.action_result != ActionResult::SUCCESS {
            running.fail(response.diagnostic.clone());
        }
        match running.transfer.take() {
            Some(Transfer::Out { handle, .. }) => disk.leave(handle),
            Some(Transfer::In { begun, .. }) if running.failure.is_some() => disk.abandon(begun.handle),
            Some(Transfer::In { begun, .. }) => {
                if let Err(disk_error) = disk.finish(begun.handle, &[]) {
                    self.local_failure(disk_error);
                }
            }
            _ => {}
        }
        self.forget(disk);
        self.close(machine);
    }

    /// Cancels the job.
    ///
    /// # Errors
    /// There is no job that can be cancelled in its current state.
    pub fn cancel(&mut self, machine: &mut Machine, disk: &mut dyn Disk) -> Result<(), RequestError> {
        match &mut self.running {
            Some(running) if running.phase == Phase::Moving && running.transfer.is_some() => {
                running.failure.get_or_insert_default().cancelled = true;
                self.give_up(None, machine, disk);
                Ok(())
            }
            _ => Err(RequestError::State),
        }
    }

    /// Restarts the transfer from the last acknowledged checkpoint.
    ///
    /// # Errors
    /// There is no transfer that can be restarted in its current state.
    pub fn restart(&mut self, machine: &mut Machine) -> Result<(), RequestError> {
        let moving = matches!(
            &self.running,
            Some(Running {
                phase: Phase::Moving,
                transfer: Some(Transfer::Out { .. } | Transfer::In { .. }),
                ..
            })
        );
        // The last checkpoint that both sides know to be secured.
        let answered = machine.docket().and_then(|docket| docket.transfer.as_ref());
        let Some(answered) = answered.filter(|_| moving).map(|transfer| transfer.checkpoint_answered) else {
            return Err(RequestError::State);
        };
        let restart = Restart::new(answered);
        machine.request(Request::Pdu(Pdu::RestartRequest(Box::new(restart))))
    }

    pub(super) fn on_restart(&mut self, restart: &Restart, machine: &mut Machine, disk: &mut dyn Disk) {
        // This end has already cancelled the transfer.
        if !matches!(machine.state(), State::ReadRestartIndicated | State::WriteRestartIndicated) {
            return;
        }
        let checkpoint = restart.checkpoint_identifier;
        let back = self.go_back(checkpoint, disk);
        self.send(machine, Pdu::RestartResponse(Box::new(Restart::new(checkpoint))));
        if let Err(disk_error) = back {
            self.give_up(Some(disk_error), machine, disk);
        }
    }

    pub(super) fn on_restarted(&mut self, restart: &Restart, machine: &mut Machine, disk: &mut dyn Disk) {
        if let Err(disk_error) = self.go_back(restart.checkpoint_identifier, disk) {
            self.give_up(Some(disk_error), machine, disk);
        }
    }

    fn go_back(&mut self, checkpoint: i64, disk: &mut dyn Disk) -> Result<(), DiskError> {
        let Some(running) = &mut self.running else { return Ok(()) };
        running.phase = Phase::Moving;
        match (&mut running.transfer, &running.job) {
            (Some(Transfer::Out { outflow, points, unchecked, ended, .. }), _) => {
                let point = points.back_to(checkpoint).ok_or(DiskError::Unable)?;
                outflow.go_back(point.at);
                (*unchecked, *ended) = (0, false);
            }
            (Some(Transfer::In { begun, inflow, at, points }), Job::Get { local, .. }) => {
                let point = points.back_to(checkpoint).ok_or(DiskError::Unable)?;
                disk.leave(begun.handle);
                *begun = disk.resume(local, WriteMode::Replace, &begun.token, point.at)?;
                inflow.go_back(point.held);
                *at = point.at;
            }
            _ => return Err(DiskError::Unable),
        }
        Ok(())
    }

    /// Handles the peer's cancel.
    pub(super) fn on_cancel(&mut self, cancel: &Cancel, machine: &mut Machine, disk: &mut dyn Disk) {
        if let Some(running) = &mut self.running {
            // The responder's disk is full. Once it has room again, the transfer may be recovered; if the
            // responder has not kept it, it refuses the recovery.
            let mut said = cancel.diagnostic.iter().flat_map(|said| &said.0);
            let is_full = said.any(|item| item.error() == ErrorIdentifier::LOCAL_FAILURE_SPACE);
            running.keeps_docket = is_full && running.is_checked;
            running.fail(cancel.diagnostic.clone());
        }
        self.drop_transfer(disk);
        self.send(machine, Pdu::CancelResponse(Box::new(Cancel::new(ActionResult::SUCCESS, None))));
        if machine.state() == State::DataTransferIdle {
            self.close(machine);
        }
    }

    pub(super) fn on_cancelled(&mut self, machine: &mut Machine, disk: &mut dyn Disk) {
        self.drop_transfer(disk);
        if machine.state() == State::DataTransferIdle {
            self.close(machine);
        }
    }

    /// Cancels the transfer after a local error.
    fn give_up(&mut self, disk_error: Option<DiskError>, machine: &mut Machine, disk: &mut dyn Disk) {
        if let Some(disk_error) = disk_error {
            self.local_failure(disk_error);
        }
        self.drop_transfer(disk);
        let Some(running) = &mut self.running else { return };
        running.phase = Phase::Ending;
        let here = EntityReference::INITIATING_FILE_SERVICE_USER;
        let item = disk_error.map(|disk_error| {
            let (error, kind) = kind_of_failure(disk_error);
            DiagnosticItem::new(kind, error, here, here)
        });
        let diagnostic: Option<Diagnostic> = item.map(Into::into);
        // The peer may have cancelled already; that indication has not been polled yet.
        if !matches!(machine.state(), State::Reading | State::ReadEnded | State::Writing | State::WriteEnded)
        {
            return;
        }
        self.send(
            machine,
            Pdu::CancelRequest(Box::new(Cancel::new(ActionResult::PERMANENT_ERROR, diagnostic))),
        );
    }

    fn local_failure(&mut self, disk_error: DiskError) {
        if let Some(running) = &mut self.running {
            running.failure.get_or_insert_default().local = Some(disk_error);
        }
    }

    /// Ends the local side of the transfer, and forgets its docket unless that is kept.
    pub(super) fn drop_transfer(&mut self, disk: &mut dyn Disk) {
        let Some(running) = &mut self.running else { return };
        match running.transfer.take() {
            Some(Transfer::Out { handle, .. }) => disk.leave(handle),
            Some(Transfer::In { begun, .. }) => disk.abandon(begun.handle),
            _ => {}
        }
        self.forget(disk);
    }

    fn forget(&mut self, disk: &mut dyn Disk) {
        let running = self.running.as_ref().filter(|running| !running.keeps_docket);
        if let Some((_, key)) = running.and_then(|running| running.docket.as_ref()) {
            disk.forget(key);
        }
    }

    /// Stores the transfer's docket, if the transfer can be recovered.
    fn note(&mut self, disk: &mut dyn Disk) -> Result<(), DiskError> {
        let Some(running) = &self.running else { return Ok(()) };
        let (Some((activity, key)), Some(document)) = (&running.docket, &running.document) else {
            return Ok(());
        };
        let mut record = Record::default();
        record.put_number("activity", *activity);
        record.put("contents-type", &document.contents_type().to_vec());
        let (word, local, remote) = match &running.job {
            Job::Get { local, remote, .. } => ("get", local, remote),
            Job::Put { local, remote, .. } => ("put", local, remote),
            Job::Append { local, remote, .. } => ("append", local, remote),
            _ => return Ok(()),
        };
        record.put("job", word.as_bytes());
        record.put("local", local.as_str().as_bytes());
        record.put("remote", remote.as_bytes());
        let points = match &running.transfer {
            Some(Transfer::Out { stamp, points, .. }) => {
                stamp.0.iter().for_each(|part| record.put("stamp", &part.to_be_bytes()));
                points
            }
            Some(Transfer::In { begun, points, .. }) => {
                record.put("token", begun.token.as_bytes());
                points
            }
            _ => return Ok(()),
        };
        for point in points.last() {
            let text = format!("{} {} {}", point.checkpoint, point.at, u8::from(point.held));
            record.put("point", text.as_bytes());
        }
        record.put_number("date", disk.date().0);
        disk.keep(key, &record.to_vec())
    }

    /// Resumes a job that was cut short, given the docket key from its [`Failure`].
    ///
    /// # Errors
    /// No association with recovery exists, a job is in progress, or the docket is invalid.
    pub fn recover(
        &mut self,
        key: &str,
        machine: &mut Machine,
        disk: &mut dyn Disk,
    ) -> Result<(), RequestError> {
        if self.running.is_some() || machine.state() != State::Initialized {
            return Err(RequestError::State);
        }
        if !machine.units().contains(FunctionalUnits::RECOVERY) {
            return Err(RequestError::Unit);
        }
        let record =
            disk.fetch(key).ok().and_then(|bytes| Record::read(&bytes)).ok_or(RequestError::Value)?;
        let (job, document, activity) = job_of(&record).ok_or(RequestError::Value)?;
        let checkpoint = points_of(&record).map(|point| point.checkpoint).max().unwrap_or(0);
        let access = writing_of(&job).map_or(AccessRequest::READ, |(access, _)| access);
        self.activity = self.activity.max(activity);
        self.running = Some(Running {
            job,
            phase: Phase::Recovering,
            outcome: Outcome::Done,
            failure: None,
            document: Some(document),
            docket: Some((activity, key.into())),
            transfer: None,
            resume: None,
            is_checked: checkpoint > 0,
            keeps_docket: false,
        });
        let request = RecoverRequest::new(activity, 1, access, checkpoint);
        self.send(machine, Pdu::RecoverRequest(Box::new(request)));
        Ok(())
    }

    pub(super) fn on_recovered(
        &mut self,
        response: &RecoverResponse,
        machine: &mut Machine,
        disk: &mut dyn Disk,
    ) {
        let fdata_bytes = self.config.fdata_bytes;
        let Some(running) = &mut self.running else { return };
        if machine.state() != State::DataTransferIdle {
            running.fail(response.diagnostic.clone());
            if let (Job::Get { local, .. }, Some((_, key))) = (&running.job, &running.docket)
                && let Some(token) = disk
                    .fetch(key)
                    .ok()
                    .and_then(|bytes| Record::read(&bytes)?.text("token").map(String::from))
            {
                disk.discard(local, &token);
            }
            return self.end(disk);
        }
        let Some((key, document)) =
            running.docket.as_ref().map(|(_, key)| key.clone()).zip(running.document.clone())
        else {
            return;
        };
        let reopened = (|| {
            let record =
                disk.fetch(&key).ok().and_then(|bytes| Record::read(&bytes)).ok_or(DiskError::NotThere)?;
            let checkpoint = response.recovery_point;
            let point = points_of(&record).find(|point| point.checkpoint == checkpoint);
            let point = point.or((checkpoint == 0).then_some(START)).ok_or(DiskError::Changed)?;
            let points = Points::new(point);
            let transfer = match &running.job {
                Job::Get { local, .. } => {
                    let token = record.text("token").ok_or(DiskError::NotThere)?;
                    let begun = disk.resume(local, WriteMode::Replace, token, point.at)?;
                    let inflow = Box::new(Inflow::new(&document, point.held));
                    Transfer::In { begun, inflow, at: point.at, points }
                }
                Job::Put { local, .. } | Job::Append { local, .. } => {
                    let (handle, entry) = disk.open(local)?;
                    if stamp_of(&record) != Some(entry.stamp) {
                        disk.leave(handle);
                        return Err(DiskError::Changed);
                    }
                    self.total_bytes = Some(entry.bytes);
                    let outflow =
                        Box::new(Outflow::new(&document, fdata_bytes, false, entry.bytes, point.at));
                    Transfer::Out { handle, stamp: entry.stamp, outflow, points, unchecked: 0, ended: false }
                }
                _ => return Err(DiskError::Unable),
            };
            Ok((point, transfer))
        })();
        match reopened {
            Ok((point, transfer)) => {
                running.resume = Some(point);
                running.transfer = Some(transfer);
                self.begin_transfer(machine, disk);
            }
            Err(disk_error) => {
                self.local_failure(disk_error);
                self.forget(disk);
                self.close(machine);
            }
        }
    }
}

fn job_of(record: &Record) -> Option<(Job, Document, i64)> {
    let (contents_type, _) = ContentsType::read(record.get("contents-type")?).ok()?;
    let document = Document::of(&contents_type)?;
    let local = match record.text("local")? {
        "" => Path::root(),
        local => Path::read(local).ok()?,
    };
    let (remote, activity) = (String::from(record.text("remote")?), record.number("activity")?);
    let job = match record.text("job")? {
        "get" => Job::Get { remote, local, document: Some(document.clone()) },
        "put" => Job::Put { local, remote, document: document.clone() },
        "append" => Job::Append { local, remote, document: document.clone() },
        _ => return None,
    };
    Some((job, document, activity))
}
