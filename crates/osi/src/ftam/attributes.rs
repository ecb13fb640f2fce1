//! Conversion between a filestore's information about a file and FTAM attributes.

use super::filestore::{Actions, Date, Entry, Kind, Mark};
use crate::wire::ber::{Asn1, Null, SetOf};
use crate::wire::ftam::{
    AccessControlAttribute, AccessControlChange, Account, AccountAttribute, AttributeGroups, AttributeNames,
    Availability, AvailabilityAttribute, ChangeAttributes, ContentsType, CreateAttributes,
    DateAndTimeAttribute, DirectoryParameters, Document, LegalQualificationAttribute, ObjectType,
    PathnameAttribute, PermittedActions, PrivateUseAttribute, ReadAttributes, SizeAttribute, UserIdentity,
    UserIdentityAttribute,
};
use alloc::string::ToString;
use alloc::vec::Vec;

/// Returns the attribute names that an association's attribute groups allow.
pub(super) fn names_of(groups: AttributeGroups) -> AttributeNames {
    let mut names = AttributeNames::KERNEL | AttributeNames::OBJECT_TYPE;
    for (group, of_group) in [
        (AttributeGroups::STORAGE, AttributeNames::STORAGE),
        (AttributeGroups::SECURITY, AttributeNames::SECURITY),
        (AttributeGroups::PRIVATE, AttributeNames::PRIVATE),
    ] {
        if groups.contains(group) {
            names = names | of_group;
        }
    }
    names
}

/// Returns the document type of an entry, from its mark or because it is a directory; `None` if unknown.
pub(super) fn document_of(entry: &Entry) -> Option<Document> {
    match entry.kind {
        Kind::Directory => Some(Document::Directory(DirectoryParameters(AttributeNames::KERNEL))),
        Kind::File => {
            let (contents_type, _) = ContentsType::read(entry.marks.get(Mark::ContentsType)?).ok()?;
            Document::of(&contents_type)
        }
    }
}

/// Returns the requested attributes of an entry.
pub(super) fn read(
    entry: &Entry,
    name: &str,
    rights: Actions,
    usual: &Document,
    names: AttributeNames,
) -> ReadAttributes {
    use AttributeNames as N;
    let has = |name: N| names.contains(name);
    let user = |mark: Mark| match entry.marks.text(mark) {
        Some(user) => UserIdentityAttribute::Actual(UserIdentity(user.into())),
        None => UserIdentityAttribute::NoValueAvailable(Null),
    };
    let date = |date: Option<Date>| match date {
        Some(date) => DateAndTimeAttribute::Actual(date.text().as_str().into()),
        None => DateAndTimeAttribute::NoValueAvailable(Null),
    };
    let marked_date = |mark: Mark| entry.marks.text(mark).and_then(Date::read);
    let document = document_of(entry).unwrap_or_else(|| usual.clone());
    ReadAttributes {
        pathname: has(N::PATHNAME).then(|| name.into()),
        // The first edition does not have this attribute, so it is returned only if requested by name.
        object_type: has(N::OBJECT_TYPE).then_some(match entry.kind {
            Kind::File => ObjectType::FILE,
            Kind::Directory => ObjectType::FILE_DIRECTORY,
        }),
        permitted_actions: has(N::PERMITTED_ACTIONS)
            .then(|| PermittedActions(rights.bits()) | PermittedActions::TRAVERSAL),
        contents_type: has(N::CONTENTS_TYPE).then(|| document.contents_type()),
        storage_account: has(N::STORAGE_ACCOUNT).then(|| match entry.marks.text(Mark::Account) {
            Some(account) => AccountAttribute::Actual(Account(account.into())),
            None => AccountAttribute::NoValueAvailable(Null),
        }),
        date_and_time_of_creation: has(N::DATE_AND_TIME_OF_CREATION).then(|| date(entry.created)),
        date_and_time_of_last_modification: has(N::DATE_AND_TIME_OF_LAST_MODIFICATION)
            .then(|| date(entry.modified)),
        date_and_time_of_last_read_access: has(N::DATE_AND_TIME_OF_LAST_READ_ACCESS)
            .then(|| date(entry.read)),
        date_and_time_of_last_attribute_modification: has(N::DATE_AND_TIME_OF_LAST_ATTRIBUTE_MODIFICATION)
            .then(|| date(marked_date(Mark::AttributesModified))),
        identity_of_creator: has(N::IDENTITY_OF_CREATOR).then(|| user(Mark::Creator)),
        identity_of_last_modifier: has(N::IDENTITY_OF_LAST_MODIFIER).then(|| user(Mark::Modifier)),
        identity_of_last_reader: has(N::IDENTITY_OF_LAST_READER).then(|| user(Mark::Reader)),
        identity_of_last_attribute_modifier: has(N::IDENTITY_OF_LAST_ATTRIBUTE_MODIFIER)
            .then(|| user(Mark::AttributeModifier)),
        object_availability: has(N::OBJECT_AVAILABILITY).then(|| {
            let deferred = entry.marks.text(Mark::Availability) == Some("deferred");
            AvailabilityAttribute::Actual(if deferred {
                Availability::DEFERRED
            } else {
                Availability::IMMEDIATE
            })
        }),
        object_size: has(N::OBJECT_SIZE).then_some(SizeAttribute::Actual(entry.bytes as i64)),
        future_object_size: has(N::FUTURE_OBJECT_SIZE).then(|| {
            match entry.marks.text(Mark::FutureSize).and_then(|text| text.parse().ok()) {
                Some(size) => SizeAttribute::Actual(size),
                None => SizeAttribute::NoValueAvailable(Null),
            }
        }),
        access_control: has(N::ACCESS_CONTROL).then(|| {
            let kept = entry
                .marks
                .get(Mark::AccessControl)
                .and_then(|bytes| AccessControlAttribute::read(bytes).ok());
            kept.map_or(AccessControlAttribute::NoValueAvailable(Null), |(kept, _)| kept)
        }),
        legal_qualification: has(N::LEGAL_QUALIFICATIONS).then(|| match entry.marks.text(Mark::Legal) {
            Some(legal) => LegalQualificationAttribute::Actual(legal.into()),
            None => LegalQualificationAttribute::NoValueAvailable(Null),
        }),
        private_use: has(N::PRIVATE_USE).then(|| {
            let kept = entry.marks.get(Mark::Private).and_then(|bytes| PrivateUseAttribute::read(bytes).ok());
            kept.map_or(PrivateUseAttribute::NoValueAvailable(Null), |(kept, _)| kept)
        }),
        ..ReadAttributes::NONE
    }
}

/// Returns the marks of a file that is created with these attributes.
pub(super) fn marks_of_create(attributes: &CreateAttributes) -> Vec<(Mark, Vec<u8>)> {
    let mut marks = Vec::new();
    marks.push((Mark::ContentsType, attributes.contents_type.to_vec()));
    let access = attributes.access_control.as_ref().and_then(|access| match access {
        AccessControlAttribute::Actual(_) => Some(access.to_vec()),
        AccessControlAttribute::NoValueAvailable(_) => None,
    });
    common(
        &mut marks,
        attributes.storage_account.as_ref(),
        attributes.object_availability.as_ref(),
        attributes.future_object_size.as_ref(),
        attributes.legal_qualification.as_ref(),
        attributes.private_use.as_ref(),
    );
    marks.extend(access.map(|access| (Mark::AccessControl, access)));
    marks
}

/// Returns the marks that an attribute change sets; an empty value removes a mark.
pub(super) fn marks_of_change(changes: &ChangeAttributes, entry: Option<&Entry>) -> Vec<(Mark, Vec<u8>)> {
    let mut marks = Vec::new();
    common(
        &mut marks,
        changes.storage_account.as_ref(),
        changes.object_availability.as_ref(),
        changes.future_object_size.as_ref(),
        changes.legal_qualification.as_ref(),
        changes.private_use.as_ref(),
    );
    if let Some(AccessControlChange::Actual(change)) = &changes.access_control {
        let kept = entry.and_then(|entry| entry.marks.get(Mark::AccessControl));
        let mut elements = match kept.and_then(|bytes| AccessControlAttribute::read(bytes).ok()) {
            Some((AccessControlAttribute::Actual(elements), _)) => elements.0,
            _ => Vec::new(),
        };
        elements.retain(|element| {
            !change.delete_values.iter().flat_map(|values| &values.0).any(|gone| gone == element)
        });
        elements.extend(change.insert_values.iter().flat_map(|values| &values.0).cloned());
        let value = match elements.is_empty() {
            true => Vec::new(),
            false => AccessControlAttribute::Actual(SetOf(elements)).to_vec(),
        };
        marks.push((Mark::AccessControl, value));
    }
    marks
}

fn common(
    marks: &mut Vec<(Mark, Vec<u8>)>,
    account: Option<&AccountAttribute>,
    availability: Option<&AvailabilityAttribute>,
    future_size: Option<&SizeAttribute>,
    legal: Option<&LegalQualificationAttribute>,
    private: Option<&PrivateUseAttribute>,
) {
    if let Some(account) = account {
        let value = match account {
            AccountAttribute::Actual(account) => account.0.0.clone(),
            AccountAttribute::NoValueAvailable(_) => Vec::new(),
        };
        marks.push((Mark::Account, value));
    }
    if let Some(availability) = availability {
        let deferred = *availability == AvailabilityAttribute::Actual(Availability::DEFERRED);
        marks.push((Mark::Availability, if deferred { b"deferred".to_vec() } else { Vec::new() }));
    }
    if let Some(size) = future_size {
        let value = match size {
            SizeAttribute::Actual(size) => size.to_string().into_bytes(),
            SizeAttribute::NoValueAvailable(_) => Vec::new(),
        };
        marks.push((Mark::FutureSize, value));
    }
    if let Some(legal) = legal {
        let value = match legal {
            LegalQualificationAttribute::Actual(legal) => legal.0.clone(),
            LegalQualificationAttribute::NoValueAvailable(_) => Vec::new(),
        };
        marks.push((Mark::Legal, value));
    }
    if let Some(private) = private {
        let value = match private {
            PrivateUseAttribute::Actual(_) => private.to_vec(),
            _ => Vec::new(),
        };
        marks.push((Mark::Private, value));
    }
}

/// Returns the path that a name attribute denotes, below `home`.
pub(super) fn path_of(
    name: &PathnameAttribute,
    home: &super::filestore::Path,
) -> Result<super::filestore::Path, super::filestore::PathError> {
    let strings: Vec<_> = name.components().iter().map(|component| component.text()).collect();
    let path = super::filestore::Path::from_filename(strings.iter().map(|string| string.as_ref()))?;
    path.components().try_fold(home.clone(), |above, name| above.join(name))
}
