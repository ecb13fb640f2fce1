//! Bulk data: sends and receives contents; handles checkpoints, restarts and cancels.

use super::answer::{item_of, permanent, result_of};
use super::machine::{Responder, disk_error};
use super::open::Docket;
use super::regimes::{Point, Points, Reading, Resume, Source, Transfer, Unfinished, Writing};
use super::report::Progress;
use super::store::Store;
use crate::ftam::contents::{Inflow, Outflow};
use crate::ftam::filestore::{Action, Disk, Kind, Mark, Stamp, WriteMode};
use crate::ftam::{Machine, Request, RequestError, State, attributes};
use crate::wire::ftam::{
    AccessContextKind, ActionResult, AttributeNames, Cancel, DataElement, DataEndRequest, DiagnosticItem,
    DiagnosticType, Document, ErrorIdentifier, FaduName, FirstLast, FunctionalUnits, Pdu, ReadRequest,
    Restart, TransferEndResponse, WriteOperation, WriteRequest,
};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;

/// Approximate encoded length of a directory entry in bytes.
const ENTRY_BYTES: usize = 256;

impl Responder {
    pub(super) fn on_read(&mut self, request: &ReadRequest, machine: &mut Machine, store: &mut Store<'_>) {
        match self.begin_read(request, store) {
            Ok(transfer) => {
                self.transfer = Some(transfer);
                if let Err(item) = self.note(store) {
                    self.end_data(item, machine, store);
                }
            }
            Err(item) => self.end_data(item, machine, store),
        }
    }

    fn begin_read(
        &mut self,
        request: &ReadRequest,
        store: &mut Store<'_>,
    ) -> Result<Transfer, DiagnosticItem> {
        let (names_max, fdata_bytes) = (self.config.names_max, self.config.fdata_bytes);
        let selected = self.selected()?;
        let open = selected.open.as_mut().ok_or_else(|| permanent(ErrorIdentifier::SUBSEQUENT_ERROR))?;
        open.bulk += 1;
        if !open.mode.has(Action::Read) {
            return Err(permanent(ErrorIdentifier::OPERATION_INCONSISTENT));
        }
        is_whole(&request.file_access_data_unit_identity.0)?;
        let structured = match request.access_context.access_context {
            AccessContextKind::UNSTRUCTURED_ALL_DATA_UNITS => false,
            AccessContextKind::FLAT_ALL_DATA_UNITS | AccessContextKind::HIERARCHICAL_ALL_DATA_UNITS => {
                if !matches!(open.document, Document::SequentialText(_)) {
                    return Err(permanent(ErrorIdentifier::ACCESS_CONTEXT_UNSUPPORTED));
                }
                true
            }
            _ => return Err(permanent(ErrorIdentifier::ACCESS_CONTEXT_UNSUPPORTED)),
        };
        let point =
            open.resume.take().map_or(Point { checkpoint: 0, at: 0, held: false }, |resume| resume.point);
        let source = match (&open.document, selected.kind) {
            (Document::Directory(wanted) | Document::DirectoryOld(wanted), Kind::Directory) => {
                let names = store.disk.list(&selected.path, names_max).map_err(disk_error)?;
                Source::Directory {
                    prefix: prefix_of(&selected.name),
                    names: names.into_iter(),
                    wanted: wanted.0,
                }
            }
            (document, _) => {
                let (handle, entry) = store.disk.open(&selected.path).map_err(disk_error)?;
                let known = selected.entry.as_ref().map(|entry| entry.stamp);
                if point.checkpoint > 0 && known != Some(entry.stamp) {
                    store.disk.leave(handle);
                    return Err(disk_error(crate::ftam::filestore::DiskError::Changed));
                }
                let outflow = Outflow::new(document, fdata_bytes, structured, entry.bytes, point.at);
                Source::File { handle, stamp: entry.stamp, outflow }
            }
        };
        Ok(Transfer::Read(Box::new(Reading {
            source,
            points: Points::new(point),
            unchecked: 0,
            ended: false,
        })))
    }

    pub(super) fn send_contents(
        &mut self,
        machine: &mut Machine,
        store: &mut Store<'_>,
        room_bytes: usize,
    ) -> Progress {
        let mut room = room_bytes;
        loop {
            let Some(Transfer::Read(reading)) = &mut self.transfer else { return Progress::Peer };
            if machine.state() != State::Reading || reading.ended {
                return Progress::Peer;
            }
            if room == 0 {
                return Progress::Room;
            }
            if self.is_check_due(machine) {
                match machine.request(Request::Check) {
                    Ok(()) => {
                        self.mark_point();
                        if let Err(item) = self.note(store) {
                            self.end_data(item, machine, store);
                        }
                    }
                    // The checkpoint window is full, so the peer must acknowledge a checkpoint first.
                    Err(RequestError::Checkpoint) => return Progress::Peer,
                    Err(_) => self.counters.internal_errors += 1,
                }
                continue;
            }
            match self.next_element(store) {
                Ok(Some(element)) => {
                    let bytes = element.len().max(if element.is_structure() { 8 } else { 1 });
                    let bytes = if element.is_empty() { bytes.max(ENTRY_BYTES) } else { bytes };
                    room = room.saturating_sub(bytes);
                    self.counters.bytes_out += element.len() as u64;
                    let structure = element.is_structure();
                    match machine.request(Request::Data(element)) {
                        Ok(()) => {}
                        // The association has no presentation context for structure elements, so only the
                        // data is sent.
                        Err(RequestError::Context) if structure => {}
                        Err(_) => {
                            self.counters.internal_errors += 1;
                            self.end_data(permanent(ErrorIdentifier::BAD_READ), machine, store);
                        }
                    }
                }
                Ok(None) => {
                    if let Some(Transfer::Read(reading)) = &mut self.transfer {
                        reading.ended = true;
                    }
                    let end = DataEndRequest { action_result: ActionResult::SUCCESS, diagnostic: None };
                    self.send(machine, Pdu::DataEndRequest(Box::new(end)));
                }
                Err(item) => self.end_data(item, machine, store),
            }
        }
    }

    fn is_check_due(&self, machine: &Machine) -> bool {
        let checks = FunctionalUnits::RECOVERY.0 | FunctionalUnits::RESTART_DATA_TRANSFER.0;
        let Some(Transfer::Read(reading)) = &self.transfer else { return false };
        let Source::File { outflow, .. } = &reading.source else { return false };
        machine.units().0 & checks != 0
            && outflow.is_at_border()
            && reading.unchecked >= self.config.checkpoint_bytes
            && !outflow.is_at_end()
    }

    fn mark_point(&mut self) {
        if let Some(Transfer::Read(reading)) = &mut self.transfer
            && let Source::File { outflow, .. } = &reading.source
        {
            reading.unchecked = 0;
            let checkpoint = reading.points.newest().checkpoint + 1;
            reading.points.push(Point { checkpoint, at: outflow.at(), held: false });
        }
    }

    fn next_element(&mut self, store: &mut Store<'_>) -> Result<Option<DataElement>, DiagnosticItem> {
        let rights = self.admission()?.rights;
        let allowed = attributes::names_of(self.groups);
        let usual = self.config.document.clone();
        let (Some(Transfer::Read(reading)), Some(selected)) = (&mut self.transfer, &self.selected) else {
            return Ok(None);
        };
        match &mut reading.source {
            Source::File { handle, outflow, .. } => {
                let handle = *handle;
                let element = outflow.next(&mut |at, most| store.disk.read(handle, at, most));
                let element = element.map_err(failure)?;
                reading.unchecked += element.as_ref().map_or(0, |element| element.len() as u64);
                Ok(element)
            }
            Source::Directory { prefix, names, wanted } => {
                for name in names {
                    let Ok(path) = selected.path.join(&name) else { continue };
                    // Skips an entry that was removed since the names were read.
                    let Ok(entry) = store.disk.stat(&path) else { continue };
                    let names = AttributeNames(wanted.0 & allowed.0);
                    let name = format!("{prefix}{name}");
                    let read = attributes::read(&entry, &name, rights, &usual, names);
                    return Ok(Some(DataElement::DirectoryEntry(Box::new(read))));
                }
                Ok(None)
            }
        }
    }

    /// Ends the data transfer with a diagnostic, because reading the file failed.
    fn end_data(&mut self, item: DiagnosticItem, machine: &mut Machine, store: &mut Store<'_>) {
        self.stop_transfer(store, false);
        self.counters.transfers_failed += 1;
        // The peer may have cancelled already; that indication has not been polled yet.
        if machine.state() != State::Reading {
            return;
        }
        let end = DataEndRequest { action_result: result_of(&item), diagnostic: Some(item.into()) };
        self.send(machine, Pdu::DataEndRequest(Box::new(end)));
    }

    pub(super) fn on_write(&mut self, request: &WriteRequest, machine: &mut Machine, store: &mut Store<'_>) {
        match self.begin_write(request, store) {
            Ok(transfer) => {
                self.transfer = Some(transfer);
                if let Err(item) = self.note(store) {
                    self.cancel(item, machine, store);
                }
            }
            Err(item) => self.cancel(item, machine, store),
        }
    }

    fn begin_write(
        &mut self,
        request: &WriteRequest,
        store: &mut Store<'_>,
    ) -> Result<Transfer, DiagnosticItem> {
        let user = self.admission()?.user.clone();
        let selected = self.selected()?;
        let open = selected.open.as_mut().ok_or_else(|| permanent(ErrorIdentifier::SUBSEQUENT_ERROR))?;
        open.bulk += 1;
        let text = matches!(open.document, Document::SequentialText(_));
        let (action, write_mode) = match request.file_access_data_unit_operation {
            WriteOperation::REPLACE => (Action::Replace, WriteMode::Replace),
            WriteOperation::EXTEND if !text => (Action::Extend, WriteMode::Extend),
            WriteOperation::INSERT if text => (Action::Insert, WriteMode::Extend),
            _ => return Err(permanent(ErrorIdentifier::OPERATION_UNSUPPORTED)),
        };
        if !open.mode.has(action) {
            return Err(permanent(ErrorIdentifier::OPERATION_INCONSISTENT));
        }
        let start = Point { checkpoint: 0, at: 0, held: false };
        let (contents, point) = match (open.resume.take(), selected.fresh.take()) {
            (Some(Resume { point, begun: Some(contents) }), _) => (contents, point),
            // The new file is invisible until it is complete. Whether it replaces an old file was decided
            // when it was created.
            (_, Some(fresh)) => (fresh, start),
            (_, None) => {
                let mut marks = vec![(Mark::Modifier, user.into_bytes())];
                if selected.document.is_none() {
                    marks.push((
                        Mark::ContentsType,
                        crate::wire::ber::Asn1::to_vec(&open.document.contents_type()),
                    ));
                }
                let begun = store.disk.begin(&selected.path, write_mode).map_err(disk_error)?;
                (Unfinished { begun, write_mode, marks }, start)
            }
        };
        let inflow = Inflow::new(&open.document, point.held);
        Ok(Transfer::Write(Box::new(Writing {
            contents,
            inflow,
            at: point.at,
            points: Points::new(point),
            failed: false,
        })))
    }

    pub(super) fn on_data(&mut self, element: DataElement, machine: &mut Machine, store: &mut Store<'_>) {
        let most = self.config.file_bytes_max;
        let Some(Transfer::Write(writing)) = &mut self.transfer else { return };
        let written = writing.inflow.take(element).map_err(bad_data).and_then(|bytes| {
            let count = bytes.len() as u64;
            if writing.at + count > most {
                return Err(permanent(ErrorIdentifier::FUTURE_FILE_SIZE_EXCEEDED));
            }
            store.disk.write(writing.contents.begun.handle, writing.at, bytes).map_err(disk_error)?;
            writing.at += count;
            self.counters.bytes_in += count;
            Ok(())
        });
        if let Err(item) = written {
            self.cancel(item, machine, store);
        }
    }

    pub(super) fn on_check(&mut self, checkpoint: i64, machine: &mut Machine, store: &mut Store<'_>) {
        let Some(Transfer::Write(writing)) = &mut self.transfer else { return };
        let point = Point { checkpoint, at: writing.at, held: writing.inflow.is_holding() };
        let before = writing.points.newest().checkpoint;
        writing.points.push(point);
        let settled = store.disk.sync(writing.contents.begun.handle).map_err(disk_error);
        match settled.and_then(|()| self.note(store)) {
            Ok(()) => {
                // The request fails if a cancel or a restart has arrived in the meantime; the checkpoint is
                // then void.
                let _ = machine.request(Request::CheckResponse { checkpoint });
            }
            Err(item) => {
                // The initiator can recover only from a checkpoint that was confirmed.
                if let Some(Transfer::Write(writing)) = &mut self.transfer {
                    writing.points.back_to(before);
                }
                self.cancel(item, machine, store);
            }
        }
    }

    pub(super) fn on_data_end(&mut self, end: &DataEndRequest, machine: &mut Machine, store: &mut Store<'_>) {
        let Some(Transfer::Write(writing)) = &mut self.transfer else { return };
        writing.failed = end.action_result != ActionResult::SUCCESS;
        let rest = writing.inflow.end();
        if let Err(trouble_) = store.disk.write(writing.contents.begun.handle, writing.at, rest) {
            self.cancel(disk_error(trouble_), machine, store);
        }
    }

    pub(super) fn on_transfer_end(&mut self, machine: &mut Machine, store: &mut Store<'_>) {
        // This end has already cancelled the transfer, and the cancel answers the request.
        if !matches!(machine.state(), State::ReadTransferEndPending | State::WriteTransferEndPending) {
            return;
        }
        let item = match self.transfer.take() {
            Some(Transfer::Write(writing)) if !writing.failed => {
                let finished = store
                    .disk
                    .finish(writing.contents.begun.handle, &writing.contents.marks)
                    .map_err(disk_error)
                    .err();
                if finished.is_none()
                    && let Some(selected) = &mut self.selected
                {
                    selected.entry = store.disk.stat(&selected.path).ok();
                }
                finished
            }
            Some(Transfer::Write(writing)) => {
                store.disk.abandon(writing.contents.begun.handle);
                Some(permanent(ErrorIdentifier::INITIATOR_ERROR))
            }
            Some(Transfer::Read(reading)) => {
                close(&reading, store.disk);
                None
            }
            // The transfer has failed; the end of its data reported that.
            None => Some(permanent(ErrorIdentifier::BAD_READ)),
        };
        self.forget_docket(store);
        match &item {
            None => self.counters.transfers += 1,
            Some(_) => self.counters.transfers_failed += 1,
        }
        let result = item.as_ref().map_or(ActionResult::SUCCESS, result_of);
        let response = TransferEndResponse::new(result, item.map(Into::into));
        self.send(machine, Pdu::TransferEndResponse(Box::new(response)));
    }

    pub(super) fn on_cancel(&mut self, machine: &mut Machine, store: &mut Store<'_>) {
        self.stop_transfer(store, false);
        self.counters.transfers_failed += 1;
        self.send(machine, Pdu::CancelResponse(Box::new(Cancel::new(ActionResult::SUCCESS, None))));
    }

    pub(super) fn on_restart(&mut self, restart: &Restart, machine: &mut Machine, store: &mut Store<'_>) {
        // This end has already cancelled the transfer.
        if !matches!(machine.state(), State::ReadRestartIndicated | State::WriteRestartIndicated) {
            return;
        }
        let checkpoint = restart.checkpoint_identifier;
        let back = match (&mut self.transfer, &self.selected) {
            (Some(Transfer::Read(reading)), _) => {
                let point = reading.points.back_to(checkpoint);
                match (point, &mut reading.source) {
                    (Some(point), Source::File { outflow, .. }) => {
                        outflow.go_back(point.at);
                        (reading.unchecked, reading.ended) = (0, false);
                        true
                    }
                    _ => false,
                }
            }
            (Some(Transfer::Write(writing)), Some(selected)) => match writing.points.back_to(checkpoint) {
                Some(point) => {
                    // Truncates the contents to the restart point, because the new data may be shorter than
                    // the old.
                    let Unfinished { begun, write_mode, .. } = &mut writing.contents;
                    store.disk.leave(begun.handle);
                    let resumed = store.disk.resume(&selected.path, *write_mode, &begun.token, point.at);
                    writing.at = point.at;
                    writing.inflow.go_back(point.held);
                    resumed.map(|resumed| *begun = resumed).is_ok()
                }
                None => false,
            },
            _ => false,
        };
        self.send(machine, Pdu::RestartResponse(Box::new(Restart::new(checkpoint))));
        if !back {
            let item = permanent(ErrorIdentifier::BAD_CHECKPOINT);
            match machine.state() {
                State::Reading => self.end_data(item, machine, store),
                _ => self.cancel(item, machine, store),
            }
        }
    }

    /// Cancels the transfer, because a write to the file failed.
    fn cancel(&mut self, item: DiagnosticItem, machine: &mut Machine, store: &mut Store<'_>) {
        // Once there is room again, the initiator can recover the transfer. Without a checkpoint, nothing
        // would be gained by keeping its contents on the full disk.
        let keeps = item.error() == ErrorIdentifier::LOCAL_FAILURE_SPACE
            && matches!(&self.transfer, Some(Transfer::Write(writing)) if writing.points.newest().at > 0);
        self.stop_transfer(store, keeps);
        if keeps && let Some(open) = self.selected.as_mut().and_then(|selected| selected.open.as_mut()) {
            // Closing the file must not remove the docket.
            open.docket = None;
        }
        self.counters.transfers_failed += 1;
        // As in `end_data`: the peer may have cancelled, and that indication may not have been polled yet.
        if !matches!(machine.state(), State::Writing | State::WriteEnded | State::WriteTransferEndPending) {
            return;
        }
        let cancel = Cancel::new(result_of(&item), Some(item.into()));
        self.send(machine, Pdu::CancelRequest(Box::new(cancel)));
    }

    /// Stops a transfer before its end. If `keeps` is true, because the association was lost or the disk is
    /// full, keeps the state needed to recover the transfer.
    pub(super) fn stop_transfer(&mut self, store: &mut Store<'_>, keeps: bool) {
        let kept =
            self.selected.as_ref().and_then(|selected| selected.open.as_ref()?.docket.as_ref()).is_some();
        match self.transfer.take() {
            Some(Transfer::Read(reading)) => close(&reading, store.disk),
            Some(Transfer::Write(writing)) if keeps && kept => {
                store.disk.leave(writing.contents.begun.handle);
            }
            Some(Transfer::Write(writing)) => store.disk.abandon(writing.contents.begun.handle),
            None => {}
        }
        if keeps {
            // A transfer that was recovered but not restarted can be recovered again.
            let resume = self.selected.as_mut().and_then(|selected| selected.open.as_mut()?.resume.take());
            if let Some(unfinished) = resume.and_then(|resume| resume.begun) {
                store.disk.leave(unfinished.begun.handle);
            }
        } else {
            self.forget_docket(store);
        }
    }

    fn forget_docket(&mut self, store: &mut Store<'_>) {
        if let Some(key) = self.selected.as_ref().and_then(|selected| selected.open.as_ref()?.docket.as_ref())
        {
            store.disk.forget(key);
        }
    }

    /// Writes the transfer's docket, if the transfer can be recovered.
    fn note(&mut self, store: &mut Store<'_>) -> Result<(), DiagnosticItem> {
        let user = self.admission()?.user.clone();
        let (Some(transfer), Some(selected)) = (&self.transfer, &self.selected) else { return Ok(()) };
        let Some(open) = &selected.open else { return Ok(()) };
        let Some(key) = &open.docket else { return Ok(()) };
        let (writes, stamp, points) = match transfer {
            Transfer::Read(reading) => match &reading.source {
                Source::File { stamp, .. } => (None, *stamp, &reading.points),
                Source::Directory { .. } => return Ok(()),
            },
            Transfer::Write(writing) => (Some(&writing.contents), Stamp::default(), &writing.points),
        };
        let docket = Docket {
            user: &user,
            path: &selected.path,
            access: selected.access,
            mode: open.mode,
            document: &open.document,
            bulk: open.bulk,
            writes,
            stamp,
            points,
        };
        docket.keep(key, store.disk).map_err(disk_error)
    }
}

/// Returns the part of an entry's name before its last component. An initiator can select an entry by the
/// name in the listing, so that name begins with the directory's, as the initiator spelled it; ISODE's client
/// does not end its loop over a listing otherwise.
fn prefix_of(directory: &str) -> String {
    let plain = directory.strip_suffix("/.").unwrap_or(directory);
    match plain.trim_end_matches('/') {
        "." => String::new(),
        name => format!("{name}/"),
    }
}

fn close(reading: &Reading, disk: &mut dyn Disk) {
    if let Source::File { handle, .. } = &reading.source {
        disk.leave(*handle);
    }
}

/// Checks that the whole file is requested, because unstructured and flat files can only be transferred as a
/// whole.
fn is_whole(name: &FaduName) -> Result<(), DiagnosticItem> {
    match name {
        FaduName::FirstLast(FirstLast::FIRST) | FaduName::BeginEnd(_) | FaduName::FaduNumber(0) => Ok(()),
        _ => Err(permanent(ErrorIdentifier::BAD_FADU_LOCATION)),
    }
}

fn bad_data(error: ErrorIdentifier) -> DiagnosticItem {
    item_of(error, DiagnosticType::PERMANENT)
}

fn failure(failure: crate::ftam::contents::Failure) -> DiagnosticItem {
    match failure {
        crate::ftam::contents::Failure::Disk(other) => disk_error(other),
        crate::ftam::contents::Failure::Text => permanent(ErrorIdentifier::LOCAL_FAILURE_DATA),
    }
}
