//! The file open regime: document type, permitted actions, and recovery.

use super::answer::{item_of, permanent, refused};
use super::machine::{Responder, disk_error};
use super::regimes::{Open, Point, Points, Resume, Selected, Unfinished};
use super::select::control_of;
use super::store::Store;
use crate::ftam::Machine;
use crate::ftam::filestore::{
    Action, Actions, Control, Disk, DiskError, Entry, Kind, Mark, Path, Stamp, WriteMode,
};
use crate::ftam::record::{Record, number_of};
use crate::wire::ber::Asn1;
use crate::wire::ftam::{
    ActionResult, CloseResponse, ContentsType, Diagnostic, DiagnosticItem, DiagnosticType, Document,
    ErrorIdentifier, FunctionalUnits, OpenContentsType, OpenRequest, OpenResponse, Pdu, RecoverRequest,
    RecoverResponse, RecoveryMode,
};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Maximum number of dockets that are checked for expiry when an initiator connects.
const SWEEP_MAX: usize = 64;

/// The data stored so that a transfer can be recovered.
pub(super) struct Docket<'a> {
    pub(super) user: &'a str,
    pub(super) path: &'a Path,
    pub(super) access: Actions,
    pub(super) mode: Actions,
    pub(super) document: &'a Document,
    pub(super) bulk: i64,
    /// For a write: the unfinished contents.
    pub(super) writes: Option<&'a Unfinished>,
    /// For a read: the version of the file.
    pub(super) stamp: Stamp,
    pub(super) points: &'a Points,
}

impl Docket<'_> {
    pub(super) fn keep(&self, key: &str, disk: &mut dyn Disk) -> Result<(), DiskError> {
        let mut record = Record::default();
        record.put("user", self.user.as_bytes());
        record.put("path", self.path.as_str().as_bytes());
        record.put_number("access", self.access.bits() as i64);
        record.put_number("mode", self.mode.bits() as i64);
        record.put("contents-type", &self.document.contents_type().to_vec());
        record.put_number("bulk", self.bulk);
        if let Some(Unfinished { begun, write_mode, marks }) = self.writes {
            record.put("way", write_mode_word(*write_mode).as_bytes());
            record.put("token", begun.token.as_bytes());
            for (mark, value) in marks {
                record.put("mark", &[mark.word().as_bytes(), b" ", value].concat());
            }
        }
        self.stamp.0.iter().for_each(|part| record.put("stamp", &part.to_be_bytes()));
        for point in self.points.last() {
            let text = format!("{} {} {}", point.checkpoint, point.at, u8::from(point.held));
            record.put("point", text.as_bytes());
        }
        record.put_number("date", disk.date().0);
        disk.keep(key, &record.to_vec())
    }
}

pub(in super::super) fn write_mode_word(write_mode: WriteMode) -> &'static str {
    match write_mode {
        WriteMode::New => "new",
        WriteMode::Replace => "replace",
        WriteMode::Extend => "extend",
    }
}

pub(in super::super) fn write_mode_of(word: &str) -> Option<WriteMode> {
    [WriteMode::New, WriteMode::Replace, WriteMode::Extend]
        .into_iter()
        .find(|write_mode| write_mode_word(*write_mode) == word)
}

/// Decodes a record's marks.
fn marks_of(record: &Record) -> Option<Vec<(Mark, Vec<u8>)>> {
    let mark = |bytes: &[u8]| {
        let end = bytes.iter().position(|byte| *byte == b' ')?;
        let mark = Mark::of_word(core::str::from_utf8(&bytes[..end]).ok()?)?;
        Some((mark, bytes[end + 1..].to_vec()))
    };
    record.all("mark").map(mark).collect()
}

/// Decodes a record's checkpoints, which are in ascending order.
pub(in super::super) fn points_of(record: &Record) -> impl Iterator<Item = Point> {
    record.all("point").filter_map(|text| {
        let mut words = core::str::from_utf8(text).ok()?.split(' ');
        let (checkpoint, at) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Point { checkpoint, at, held: words.next()? == "1" })
    })
}

pub(in super::super) fn stamp_of(record: &Record) -> Option<Stamp> {
    let mut stamp = Stamp::default();
    let mut parts = record.all("stamp");
    for part in &mut stamp.0 {
        *part = u64::from_be_bytes(parts.next()?.try_into().ok()?);
    }
    Some(stamp)
}

impl Responder {
    pub(super) fn open(
        &mut self,
        request: &OpenRequest,
        machine: &Machine,
        store: &mut Store<'_>,
    ) -> Result<Pdu, DiagnosticItem> {
        let user = self.admission()?.user.clone();
        let usual = self.config.document.clone();
        let most = (self.config.dockets_max, self.config.user_dockets_max);
        let recovers = machine.units().contains(FunctionalUnits::RECOVERY);
        let selected = self.selected()?;
        let mode = Actions::from_bits(request.processing_mode.0);
        let (document, said) = contents(selected, &request.contents_type, mode, &usual)?;
        if !machine.has_context(&document) {
            return Err(permanent(ErrorIdentifier::CONTENTS_TYPE_INCONSISTENT));
        }
        let possible = match &document {
            Document::Directory(_) | Document::DirectoryOld(_) => Actions::NONE.with(Action::Read),
            Document::SequentialText(_) => {
                Actions::NONE.with(Action::Read).with(Action::Insert).with(Action::Replace)
            }
            _ => Actions::NONE.with(Action::Read).with(Action::Replace).with(Action::Extend),
        };
        if !possible.has_all(mode) {
            return Err(permanent(ErrorIdentifier::PROCESSING_MODE_UNSUPPORTED));
        }
        if !selected.access.has_all(mode) {
            return Err(permanent(ErrorIdentifier::PROCESSING_MODE_INCONSISTENT));
        }
        if request.concurrency_control.is_some() {
            let control = control_of(request.concurrency_control.as_ref(), mode)
                .map_err(|_| permanent(ErrorIdentifier::ACCESS_CONCURRENCY_INCONSISTENT))?;
            store.locks.change(&selected.hold, control).map_err(refused)?;
        }
        let activity = request.activity_identifier.as_ref().filter(|_| {
            recovers && request.recovery_mode != RecoveryMode::NONE && selected.kind == Kind::File
        });
        let docket = activity.map(|activity| key(&user, activity.0));
        // If there is no room for a docket, the transfer proceeds but cannot be recovered.
        let docket = docket.filter(|key| has_room(key, most, store.disk));
        if let Some(key) = &docket {
            // If the initiator reuses the number of an interrupted activity, that activity is abandoned.
            drop_docket(key, store.disk);
        }
        let mut response = OpenResponse::new(document.contents_type());
        if docket.is_some() {
            response.recovery_mode = request.recovery_mode;
        }
        response.diagnostic = said.map(|said| Diagnostic::from(item_of(said, DiagnosticType::INFORMATIVE)));
        selected.open = Some(Open { document, mode, docket, bulk: 0, resume: None });
        Ok(Pdu::OpenResponse(Box::new(response)))
    }

    pub(super) fn close(&mut self, store: &mut Store<'_>) -> Result<Pdu, DiagnosticItem> {
        if let Some(open) = self.selected.as_mut().and_then(|selected| selected.open.take()) {
            if let Some(key) = open.docket {
                store.disk.forget(&key);
            }
            if let Some(unfinished) = open.resume.and_then(|resume| resume.begun) {
                store.disk.abandon(unfinished.begun.handle);
            }
        }
        Ok(Pdu::CloseResponse(Box::new(CloseResponse {
            action_result: ActionResult::SUCCESS,
            shared_ase_information: None,
            diagnostic: None,
        })))
    }

    pub(super) fn recover(
        &mut self,
        request: &RecoverRequest,
        machine: &Machine,
        store: &mut Store<'_>,
    ) -> Pdu {
        match self.recovered(request, machine, store) {
            Ok(response) => {
                self.counters.recovered += 1;
                Pdu::RecoverResponse(Box::new(response))
            }
            Err(item) => super::answer::failed(&Pdu::RecoverRequest(Box::new(request.clone())), item.into()),
        }
    }

    fn recovered(
        &mut self,
        request: &RecoverRequest,
        machine: &Machine,
        store: &mut Store<'_>,
    ) -> Result<RecoverResponse, DiagnosticItem> {
        use ErrorIdentifier as E;
        let admission = self.admission()?.clone();
        let key = key(&admission.user, request.activity_identifier.0);
        let bytes = store.disk.fetch(&key).map_err(|failed| match failed {
            DiskError::NotThere => permanent(E::ACTIVITY_NOT_RECOGNIZED),
            // The docket exists, but cannot be read now; a later attempt may succeed.
            failed => disk_error(failed),
        })?;
        let corrupt = || permanent(E::CORRUPT_DOCKET);
        let record = Record::read(&bytes).ok_or_else(corrupt)?;
        if record.text("user") != Some(&admission.user) {
            return Err(permanent(E::ACTIVITY_NOT_RECOGNIZED));
        }
        let path = Path::read(record.text("path").ok_or_else(corrupt)?).map_err(|_| corrupt())?;
        self.file = path.as_str().into();
        let bits = |word| record.number(word).map(|bits| Actions::from_bits(bits as u64)).ok_or_else(corrupt);
        let (access, mode) = (bits("access")?, bits("mode")?);
        if !path.is_within(&admission.home) || !admission.rights.has_all(access) {
            return Err(permanent(E::RECOVERY_ACCESS_CONTROL_INCONSISTENT));
        }
        if record.number("bulk") != Some(request.bulk_transfer_number) {
            return Err(permanent(E::ACTIVITY_NO_LONGER_EXISTS));
        }
        let contents_type = record.get("contents-type").and_then(|bytes| ContentsType::read(bytes).ok());
        let (contents_type, _) = contents_type.ok_or_else(corrupt)?;
        let document = Document::of(&contents_type).ok_or_else(corrupt)?;
        if !machine.has_context(&document) {
            return Err(permanent(E::RECOVERY_CONTENTS_TYPE_INCONSISTENT));
        }
        let start = Point { checkpoint: 0, at: 0, held: false };
        let point = points_of(&record).filter(|point| point.checkpoint <= request.recovery_point);
        let point = point.max_by_key(|point| point.checkpoint).unwrap_or(start);
        let marks = marks_of(&record).ok_or_else(corrupt)?;
        let hold = store.locks.take(&path, Control::usual(access)).map_err(refused)?;
        let resumed = match (record.text("way").and_then(write_mode_of), record.text("token")) {
            (Some(write_mode), Some(token)) => {
                let begun = store.disk.resume(&path, write_mode, token, point.at);
                let begun = begun.map_err(|failed| match failed {
                    // The transfer failed: its contents were removed, but removing its docket failed.
                    DiskError::NotThere => permanent(E::ACTIVITY_NO_LONGER_EXISTS),
                    failed => disk_error(failed),
                });
                begun.map(|begun| (Some(Unfinished { begun, write_mode, marks }), None))
            }
            _ => store
                .disk
                .stat(&path)
                .and_then(|entry| match stamp_of(&record) == Some(entry.stamp) {
                    true => Ok((None, Some(entry))),
                    false => Err(DiskError::Changed),
                })
                .map_err(disk_error),
        };
        let (begun, entry): (_, Option<Entry>) = match resumed {
            Ok(resumed) => resumed,
            Err(failed) => {
                store.locks.give(hold);
                return Err(failed);
            }
        };
        self.selected = Some(Selected {
            path,
            name: self.file.clone(),
            kind: Kind::File,
            access,
            hold,
            document: Some(document.clone()),
            fresh: None,
            entry,
            open: Some(Open {
                document,
                mode,
                docket: Some(key),
                bulk: request.bulk_transfer_number - 1,
                resume: Some(Resume { point, begun }),
            }),
        });
        Ok(RecoverResponse::new(contents_type, point.checkpoint))
    }

    /// Removes dockets of transfers that can no longer be recovered.
    pub(super) fn sweep(&mut self, store: &mut Store<'_>) {
        let oldest = store.disk.date().0.saturating_sub(self.config.docket_seconds_max);
        let keys = store.disk.kept();
        for key in keys.iter().filter(|key| key.starts_with("r-")).take(SWEEP_MAX) {
            // A docket that currently cannot be read is kept.
            let Ok(bytes) = store.disk.fetch(key) else { continue };
            let date = Record::read(&bytes).and_then(|record| record.number("date"));
            if date.is_none_or(|date| date < oldest) {
                drop_docket(key, store.disk);
            }
        }
    }
}

/// Returns the document type for this open regime, and a diagnostic if there is one.
fn contents(
    selected: &Selected,
    requested: &OpenContentsType,
    mode: Actions,
    usual: &Document,
) -> Result<(Document, Option<ErrorIdentifier>), DiagnosticItem> {
    let inconsistent = || permanent(ErrorIdentifier::CONTENTS_TYPE_INCONSISTENT);
    let requested = match requested {
        OpenContentsType::Unknown(_) => {
            return Ok((selected.document.clone().unwrap_or_else(|| usual.clone()), None));
        }
        OpenContentsType::Proposed(contents_type) => Document::of(contents_type).ok_or_else(inconsistent)?,
    };
    let directory = matches!(requested, Document::Directory(_) | Document::DirectoryOld(_));
    match (&selected.document, &requested) {
        _ if directory != (selected.kind == Kind::Directory) => Err(inconsistent()),
        _ if directory => Ok((requested, None)),
        // A file without a mark is opened with any document type that is requested.
        (None, _) => Ok((requested, None)),
        (Some(stored), requested) if stored.name() == requested.name() => {
            let plain = requested.contents_type() == ContentsType::document(requested.name(), None);
            Ok((if plain { stored.clone() } else { requested.clone() }, None))
        }
        // ISO 8571-2: FTAM-2 can be simplified to FTAM-1.
        (Some(Document::SequentialText(_)), Document::UnstructuredText(_)) => {
            Ok((requested, Some(ErrorIdentifier::CONTENTS_TYPE_SIMPLIFIED)))
        }
        // The octets of any file can be read, as with ISODE. They are those of the host's file.
        (Some(_), Document::UnstructuredBinary(_)) if mode == Actions::NONE.with(Action::Read) => {
            Ok((requested, Some(ErrorIdentifier::CONTENTS_TYPE_SIMPLIFIED)))
        }
        _ => Err(inconsistent()),
    }
}

fn key(user: &str, activity: i64) -> String {
    format!("r-{:016x}-{:016x}", number_of(user), activity as u64)
}

/// Returns whether there is room for another docket, under both the total limit and the limit per user, which
/// keeps one user from taking all the room.
fn has_room(key: &str, (most, users_most): (usize, usize), disk: &mut dyn Disk) -> bool {
    let kept = disk.kept();
    let user = key.rsplit_once('-').map_or("", |(user, _)| user);
    let users = kept.iter().filter(|other| other.starts_with(user)).count();
    kept.iter().any(|other| other == key) || (kept.len() < most && users < users_most)
}

fn drop_docket(key: &str, disk: &mut dyn Disk) {
    let Ok(bytes) = disk.fetch(key) else { return };
    if let Some(record) = Record::read(&bytes)
        && let (Some(path), Some(token)) = (record.text("path"), record.text("token"))
        && let Ok(path) = Path::read(path)
    {
        disk.discard(&path, token);
    }
    disk.forget(key);
}
