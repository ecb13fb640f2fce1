//! The file selection regime: selecting, creating and deleting files, and their attributes.

use super::answer::{bad_name, item_of, permanent, refused, result_of};
use super::machine::{Responder, disk_error};
use super::regimes::{Selected, Unfinished};
use super::store::Store;
use crate::ftam::attributes;
use crate::ftam::filestore::{
    Action, Actions, Control, Date, Disk, DiskError, Entry, Hold, Kind, Lock, Mark, Marks, Path, Stamp,
    WriteMode,
};
use crate::wire::ftam::{
    ActionResult, ChangeAttributes, ChangeAttributesRequest, ChangeAttributesResponse, ConcurrencyControl,
    CreateRequest, CreateResponse, DeleteResponse, DeselectResponse, Diagnostic, DiagnosticItem,
    DiagnosticType, Document, ErrorIdentifier, ObjectType, Override, PathnameAttribute, Pdu,
    PermittedActions, ReadAttributesRequest, ReadAttributesResponse, SelectRequest, SelectResponse,
};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// Returns the requested locks, or the default locks if none are requested.
pub(super) fn control_of(
    requested: Option<&ConcurrencyControl>,
    actions: Actions,
) -> Result<Control, DiagnosticItem> {
    let Some(requested) = requested else { return Ok(Control::usual(actions)) };
    let locks = Action::ALL.into_iter().zip(requested.locks());
    let control = locks.fold(Control::default(), |control, (action, lock)| {
        let lock = match lock.0 {
            1 => Lock::Shared,
            2 => Lock::Exclusive,
            3 => Lock::NoAccess,
            _ => Lock::NotRequired,
        };
        control.with(action, lock)
    });
    match control.serves(actions) {
        true => Ok(control),
        false => Err(permanent(ErrorIdentifier::SELECTION_CONCURRENCY_NOT_POSSIBLE)),
    }
}

impl Responder {
    fn may(&self, actions: Actions) -> Result<(), DiagnosticItem> {
        match self.admission()?.rights.has_all(actions) {
            true => Ok(()),
            false => Err(permanent(ErrorIdentifier::PERMITTED_ACTIONS_VIOLATED)),
        }
    }

    pub(super) fn select(
        &mut self,
        request: &SelectRequest,
        store: &mut Store<'_>,
    ) -> Result<Pdu, DiagnosticItem> {
        let actions = Actions::from_bits(request.requested_access.0);
        let path = self.path(&request.attributes.pathname)?;
        self.may(actions)?;
        let entry = store.disk.stat(&path).map_err(disk_error)?;
        let control = control_of(request.concurrency_control.as_ref(), actions)?;
        let hold = store.locks.take(&path, control).map_err(refused)?;
        self.selected = Some(Selected {
            path,
            name: spelling(&request.attributes.pathname),
            kind: entry.kind,
            access: actions,
            hold,
            document: attributes::document_of(&entry),
            fresh: None,
            entry: Some(entry),
            open: None,
        });
        self.counters.selected += 1;
        Ok(Pdu::SelectResponse(Box::new(SelectResponse::new(request.attributes.clone()))))
    }

    pub(super) fn create(
        &mut self,
        request: &CreateRequest,
        store: &mut Store<'_>,
    ) -> Result<Pdu, DiagnosticItem> {
        let wanted = &request.initial_attributes;
        let actions = Actions::from_bits(request.requested_access.0);
        let path = self.path(&wanted.pathname)?;
        self.may(actions)?;
        if !self.admission()?.rights.has_any(Actions::WRITING) {
            return Err(permanent(ErrorIdentifier::PERMITTED_ACTIONS_VIOLATED));
        }
        let document = Document::of(&wanted.contents_type);
        let document = document.ok_or_else(|| permanent(ErrorIdentifier::CONTENTS_TYPE_INCONSISTENT))?;
        let directory = matches!(document, Document::Directory(_) | Document::DirectoryOld(_))
            || wanted.object_type == ObjectType::FILE_DIRECTORY;
        let there = match store.disk.stat(&path) {
            Ok(entry) => Some(entry),
            Err(DiskError::NotThere) => None,
            Err(other) => return Err(disk_error(other)),
        };
        let control = control_of(request.concurrency_control.as_ref(), actions)?;
        let mut marks = attributes::marks_of_create(wanted);
        if marks.iter().any(|(_, value)| value.len() > crate::ftam::filestore::MARK_BYTES_MAX) {
            return Err(permanent(ErrorIdentifier::SELECTION_BAD_ATTRIBUTE_VALUE));
        }
        let user = self.admission()?.user.clone().into_bytes();
        marks.push((Mark::Creator, user.clone()));
        marks.push((Mark::Modifier, user));
        let mut said = None;
        let override_possible = there.as_ref().is_none_or(|entry| entry.kind == Kind::File) && !directory;
        let write_mode = match (&there, request.r#override) {
            (None, _) => Some(WriteMode::New),
            (Some(entry), Override::SELECT_OLD_OBJECT) if (entry.kind == Kind::Directory) == directory => {
                said = Some(ErrorIdentifier::OVERRIDE_SELECTED);
                None
            }
            (Some(_), Override::DELETE_AND_CREATE_WITH_OLD_ATTRIBUTES) if override_possible => {
                said = Some(ErrorIdentifier::OVERRIDE_RECREATED_OLD);
                marks.retain(|(mark, _)| matches!(mark, Mark::Modifier | Mark::ContentsType));
                Some(WriteMode::Replace)
            }
            (Some(_), Override::DELETE_AND_CREATE_WITH_NEW_ATTRIBUTES) if override_possible => {
                said = Some(ErrorIdentifier::OVERRIDE_RECREATED_NEW);
                let absent = |mark: &Mark| !marks.iter().any(|(other, _)| other == mark);
                let gone: Vec<Mark> = Mark::ALL.into_iter().filter(absent).collect();
                marks.extend(gone.into_iter().map(|mark| (mark, Vec::new())));
                Some(WriteMode::Replace)
            }
            (Some(_), Override::CREATE_FAILURE) => return Err(permanent(ErrorIdentifier::FILE_EXISTS)),
            _ => return Err(permanent(ErrorIdentifier::OVERRIDE_NOT_POSSIBLE)),
        };
        if write_mode == Some(WriteMode::Replace)
            && !self.admission()?.rights.has_any(Actions::NONE.with(Action::Replace).with(Action::Delete))
        {
            return Err(permanent(ErrorIdentifier::PERMITTED_ACTIONS_VIOLATED));
        }
        let hold = store.locks.take(&path, control).map_err(refused)?;
        let made = match write_mode {
            Some(_) if directory => store.disk.make_directory(&path).map(|()| None),
            Some(write_mode) => store.disk.begin(&path, write_mode).map(|begun| Some((begun, write_mode))),
            None => Ok(None),
        };
        let fresh = match made {
            Ok(fresh) => fresh,
            Err(failed) => {
                store.locks.give(hold);
                return Err(match failed {
                    DiskError::NotThere | DiskError::Outside => {
                        permanent(ErrorIdentifier::FILE_CANNOT_BE_CREATED)
                    }
                    other => disk_error(other),
                });
            }
        };
        let mut attributes = wanted.clone();
        let rights = self.admission()?.rights;
        attributes.permitted_actions = PermittedActions(rights.bits()) | PermittedActions::TRAVERSAL;
        let stored = match write_mode {
            None => there.as_ref().and_then(attributes::document_of),
            Some(_) => Some(document),
        };
        if let Some(stored) = &stored {
            attributes.contents_type = stored.contents_type();
        }
        self.selected = Some(Selected {
            path,
            name: spelling(&wanted.pathname),
            kind: if directory { Kind::Directory } else { Kind::File },
            access: actions,
            hold,
            document: stored,
            entry: if fresh.is_some() { Some(created(&marks, store.disk.date())) } else { there },
            fresh: fresh.map(|(begun, write_mode)| Unfinished { begun, write_mode, marks }),
            open: None,
        });
        self.counters.selected += 1;
        let mut response = CreateResponse::new(attributes);
        response.diagnostic = said.map(|said| item_of(said, DiagnosticType::INFORMATIVE).into());
        Ok(Pdu::CreateResponse(Box::new(response)))
    }

    pub(super) fn read_attributes(
        &mut self,
        request: &ReadAttributesRequest,
        store: &mut Store<'_>,
    ) -> Result<Pdu, DiagnosticItem> {
        let (rights, usual) = (self.admission()?.rights, self.config.document.clone());
        let allowed = attributes::names_of(self.groups);
        let home = self.admission()?.home.clone();
        let selected = self.selected()?;
        if !selected.access.has(Action::ReadAttribute) {
            return Err(permanent(ErrorIdentifier::REQUESTED_ACCESS_INCONSISTENT));
        }
        let entry = match (&selected.fresh, &selected.entry) {
            // No other user has seen the file yet, so its attributes are those given at its creation.
            (Some(_), Some(entry)) => entry.clone(),
            _ => store.disk.stat(&selected.path).map_err(disk_error)?,
        };
        let names = crate::wire::ftam::AttributeNames(request.attribute_names.0 & allowed.0);
        let name = below(&selected.path, &home);
        let read = attributes::read(&entry, &name, rights, &usual, names);
        let partial = names != request.attribute_names;
        let diagnostic: Option<Diagnostic> = partial
            .then(|| item_of(ErrorIdentifier::ATTRIBUTE_UNSUPPORTED, DiagnosticType::INFORMATIVE).into());
        Ok(Pdu::ReadAttributesResponse(Box::new(ReadAttributesResponse {
            action_result: ActionResult::SUCCESS,
            attributes: Some(read),
            diagnostic,
        })))
    }

    pub(super) fn change_attributes(
        &mut self,
        request: &ChangeAttributesRequest,
        store: &mut Store<'_>,
    ) -> Result<Pdu, DiagnosticItem> {
        let user = self.admission()?.user.clone().into_bytes();
        let allowed = attributes::names_of(self.groups);
        let new = match &request.attributes.pathname {
            Some(name) => Some(self.path(name)?),
            None => None,
        };
        let selected = self.selected()?;
        if !selected.access.has(Action::ChangeAttribute) {
            return Err(permanent(ErrorIdentifier::REQUESTED_ACCESS_INCONSISTENT));
        }
        if selected.fresh.is_some() {
            return Err(permanent(ErrorIdentifier::ATTRIBUTE_CANNOT_BE_CHANGED));
        }
        let mut marks = attributes::marks_of_change(&request.attributes, selected.entry.as_ref());
        let in_groups = marks.iter().all(|(mark, _)| allowed.contains(name_of(*mark)));
        if !in_groups || request.attributes.path_access_control.is_some() {
            return Err(permanent(ErrorIdentifier::ATTRIBUTE_UNSUPPORTED));
        }
        if marks.iter().any(|(_, value)| value.len() > crate::ftam::filestore::MARK_BYTES_MAX) {
            return Err(permanent(ErrorIdentifier::BAD_ATTRIBUTE_VALUE));
        }
        if let Some(new) = &new
            && *new != selected.path
        {
            // The new name is locked during the rename, so that no other association can create the file in
            // the meantime.
            let all = Control::usual(Actions::ALL);
            let hold = store.locks.take(new, all).map_err(refused)?;
            let renamed = store.disk.rename(&selected.path, new);
            store.locks.give(hold);
            renamed.map_err(disk_error)?;
            selected.path = new.clone();
        }
        marks.push((Mark::AttributeModifier, user));
        marks.push((Mark::AttributesModified, store.disk.date().text().into_bytes()));
        store.disk.mark(&selected.path, &marks).map_err(|other| match other {
            DiskError::Long => permanent(ErrorIdentifier::BAD_ATTRIBUTE_VALUE),
            other => disk_error(other),
        })?;
        Ok(Pdu::ChangeAttributesResponse(Box::new(ChangeAttributesResponse {
            action_result: ActionResult::SUCCESS,
            attributes: Some(ChangeAttributes::NONE),
            diagnostic: None,
        })))
    }

    pub(super) fn deselect(&mut self, store: &mut Store<'_>) -> Result<Pdu, DiagnosticItem> {
        let Some(selected) = self.selected.take() else {
            return Err(permanent(ErrorIdentifier::SUBSEQUENT_ERROR));
        };
        let finished = match selected.fresh {
            // The file was created but never written, so it is stored as an empty file.
            Some(fresh) => store.disk.finish(fresh.begun.handle, &fresh.marks),
            None => Ok(()),
        };
        store.locks.give(selected.hold);
        let item = finished.err().map(disk_error);
        Ok(Pdu::DeselectResponse(Box::new(DeselectResponse {
            action_result: item.as_ref().map_or(ActionResult::SUCCESS, result_of),
            charging: None,
            shared_ase_information: None,
            diagnostic: item.map(Into::into),
        })))
    }

    /// Deletes the file; the selection ends in any case.
    pub(super) fn delete(&mut self, store: &mut Store<'_>) -> Result<Pdu, DiagnosticItem> {
        let Some(selected) = self.selected.take() else {
            return Err(permanent(ErrorIdentifier::SUBSEQUENT_ERROR));
        };
        let allowed = selected.access.has(Action::Delete);
        let deleted =
            remove(&selected.path, selected.fresh.map(|fresh| fresh.begun.handle), allowed, store.disk);
        give(selected.hold, store);
        let item = deleted.err();
        Ok(Pdu::DeleteResponse(Box::new(DeleteResponse {
            action_result: item.as_ref().map_or(ActionResult::SUCCESS, result_of),
            shared_ase_information: None,
            charging: None,
            diagnostic: item.map(Into::into),
        })))
    }

    pub(super) fn path(&self, name: &PathnameAttribute) -> Result<Path, DiagnosticItem> {
        attributes::path_of(name, &self.admission()?.home).map_err(bad_name)
    }
}

/// Returns a filename as the initiator spelled it, with `/` between its strings.
fn spelling(name: &PathnameAttribute) -> String {
    let strings: Vec<_> = name.components().iter().map(|string| string.text()).collect();
    strings.join("/")
}

fn remove(
    path: &Path,
    fresh: Option<crate::ftam::filestore::Handle>,
    allowed: bool,
    disk: &mut dyn Disk,
) -> Result<(), DiagnosticItem> {
    if let Some(handle) = fresh {
        disk.abandon(handle);
        if !allowed {
            return Ok(());
        }
        return match disk.remove(path) {
            Ok(()) | Err(DiskError::NotThere) => Ok(()),
            Err(other) => Err(disk_error(other)),
        };
    }
    match allowed {
        true => disk.remove(path).map_err(disk_error),
        false => Err(permanent(ErrorIdentifier::REQUESTED_ACCESS_INCONSISTENT)),
    }
}

fn give(hold: Hold, store: &mut Store<'_>) {
    store.locks.give(hold);
}

/// Returns the attributes of a created file that is not visible yet.
fn created(marks: &[(Mark, Vec<u8>)], date: Date) -> Entry {
    let mut kept = Marks::default();
    kept.change(marks);
    Entry {
        kind: Kind::File,
        bytes: 0,
        created: Some(date),
        modified: Some(date),
        read: None,
        marks: kept,
        stamp: Stamp::default(),
    }
}

/// Returns a path relative to the user's home.
pub(super) fn below(path: &Path, home: &Path) -> alloc::string::String {
    let names: Vec<&str> = path.components().skip(home.components().count()).collect();
    if names.is_empty() { ".".into() } else { names.join("/") }
}

fn name_of(mark: Mark) -> crate::wire::ftam::AttributeNames {
    use crate::wire::ftam::AttributeNames as N;
    match mark {
        Mark::ContentsType => N::CONTENTS_TYPE,
        Mark::Account => N::STORAGE_ACCOUNT,
        Mark::Creator => N::IDENTITY_OF_CREATOR,
        Mark::Modifier => N::IDENTITY_OF_LAST_MODIFIER,
        Mark::Reader => N::IDENTITY_OF_LAST_READER,
        Mark::AttributeModifier => N::IDENTITY_OF_LAST_ATTRIBUTE_MODIFIER,
        Mark::Created => N::DATE_AND_TIME_OF_CREATION,
        Mark::AttributesModified => N::DATE_AND_TIME_OF_LAST_ATTRIBUTE_MODIFICATION,
        Mark::Availability => N::OBJECT_AVAILABILITY,
        Mark::FutureSize => N::FUTURE_OBJECT_SIZE,
        Mark::AccessControl => N::ACCESS_CONTROL,
        Mark::Legal => N::LEGAL_QUALIFICATIONS,
        Mark::Private => N::PRIVATE_USE,
    }
}
