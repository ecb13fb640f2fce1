//! File attributes, as text and as JSON.

use kiban_lab::table::Table;
use kiban_os::text::printable;
use kiban_osi::ftam::filestore::Date;
use kiban_osi::wire::ber::Oid;
use kiban_osi::wire::ftam::{
    AccountAttribute, Availability, AvailabilityAttribute, ContentsType, DateAndTimeAttribute,
    LegalQualificationAttribute, ObjectType, PathnameAttribute, PermittedActions, ReadAttributes,
    SizeAttribute, UserIdentityAttribute, oids,
};
use serde::Serialize;

const BINARY: &str = "FTAM-3 binary";

/// A file's attributes; those that the responder did not return are omitted.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct FileAttributes {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) is_directory: Option<bool>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) future_bytes: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) permitted: Option<Vec<&'static str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) created: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) modified: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) read: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) attributes_modified: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) creator: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) modifier: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reader: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) account: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) availability: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) legal: Option<String>,
    /// When the contents were last modified, if that is a date.
    #[serde(skip)]
    pub(super) modified_at: Option<Date>,
}

impl FileAttributes {
    pub(super) fn of(read: &ReadAttributes) -> FileAttributes {
        let user = |identity: &Option<UserIdentityAttribute>| match identity {
            Some(UserIdentityAttribute::Actual(user)) => Some(user.0.text().into_owned()),
            _ => None,
        };
        let size = |size: &Option<SizeAttribute>| match size {
            Some(SizeAttribute::Actual(bytes)) => Some(*bytes),
            _ => None,
        };
        let document = match &read.contents_type {
            Some(ContentsType::DocumentType(document)) => Some(document.document_type_name.0),
            _ => None,
        };
        let is_directory = match read.object_type {
            Some(kind) => Some(kind == ObjectType::FILE_DIRECTORY),
            None => document.map(|name| name == oids::NBS_9 || name == oids::NBS_9_OLD),
        };
        FileAttributes {
            name: read.pathname.as_ref().map(name_of).unwrap_or_default(),
            is_directory,
            kind: document.map(kind_of),
            bytes: size(&read.object_size),
            future_bytes: size(&read.future_object_size),
            permitted: read.permitted_actions.map(actions_of),
            created: date(&read.date_and_time_of_creation),
            modified: date(&read.date_and_time_of_last_modification),
            read: date(&read.date_and_time_of_last_read_access),
            attributes_modified: date(&read.date_and_time_of_last_attribute_modification),
            creator: user(&read.identity_of_creator),
            modifier: user(&read.identity_of_last_modifier),
            reader: user(&read.identity_of_last_reader),
            account: match &read.storage_account {
                Some(AccountAttribute::Actual(account)) => Some(account.0.text().into_owned()),
                _ => None,
            },
            availability: match read.object_availability {
                Some(AvailabilityAttribute::Actual(when)) if when == Availability::DEFERRED => {
                    Some("deferred")
                }
                Some(AvailabilityAttribute::Actual(_)) => Some("immediate"),
                _ => None,
            },
            legal: match &read.legal_qualification {
                Some(LegalQualificationAttribute::Actual(legal)) => Some(legal.text().into_owned()),
                _ => None,
            },
            modified_at: instant(&read.date_and_time_of_last_modification),
        }
    }

    /// Returns whether the contents are bytes that are stored as they are sent.
    pub(super) fn is_binary(&self) -> bool {
        self.kind.as_deref() == Some(BINARY)
    }

    /// Returns whether two sets of attributes describe the same version of a file; `None` if they lack the
    /// size and the date of modification, so that writing to the file would not show.
    pub(super) fn is_same_version(&self, other: &FileAttributes) -> Option<bool> {
        // A listing may omit attributes that a responder tells about a selected file.
        fn same<T: PartialEq>(one: &Option<T>, other: &Option<T>) -> Option<bool> {
            Some(one.as_ref()? == other.as_ref()?)
        }
        let told = [same(&self.bytes, &other.bytes), same(&self.modified, &other.modified)];
        let is_same = told.into_iter().flatten().reduce(|one, other| one && other)?;
        Some(is_same && same(&self.created, &other.created) != Some(false))
    }

    /// Returns a table with one row per known attribute.
    pub(super) fn table(&self, title: String) -> Table {
        let mut table = Table::new(title).text_column("attribute").text_column("value");
        let number = |number: Option<i64>| number.map(|number| number.to_string());
        let rows = [
            ("filename", Some(self.name.clone())),
            ("contents type", self.kind.clone()),
            ("permitted actions", self.permitted.as_ref().map(|actions| actions.join(", "))),
            ("size, bytes", number(self.bytes)),
            ("future size, bytes", number(self.future_bytes)),
            ("created", self.created.clone()),
            ("last modified", self.modified.clone()),
            ("last read", self.read.clone()),
            ("attributes modified", self.attributes_modified.clone()),
            ("creator", self.creator.clone()),
            ("last modifier", self.modifier.clone()),
            ("last reader", self.reader.clone()),
            ("storage account", self.account.clone()),
            ("availability", self.availability.map(String::from)),
            ("legal qualification", self.legal.clone()),
        ];
        for (what, value) in rows {
            if let Some(value) = value {
                table.row([what.to_owned(), printable(&value).into_owned()]);
            }
        }
        table
    }
}

/// Returns a table of directory entries.
pub(super) fn list(title: String, entries: &[FileAttributes]) -> Table {
    let mut table = Table::new(title)
        .text_column("name")
        .text_column("type")
        .number_column("bytes")
        .text_column("modified")
        .text_column("creator");
    for entry in entries {
        let said = |value: &Option<String>| printable(value.as_deref().unwrap_or_default()).into_owned();
        let slash = if entry.is_directory == Some(true) { "/" } else { "" };
        table.row([
            format!("{}{slash}", printable(&entry.name)),
            said(&entry.kind),
            entry.bytes.map(|bytes| bytes.to_string()).unwrap_or_default(),
            said(&entry.modified),
            said(&entry.creator),
        ]);
    }
    table
}

fn name_of(name: &PathnameAttribute) -> String {
    let (PathnameAttribute::Incomplete(name) | PathnameAttribute::Complete(name)) = name;
    name.0.iter().map(|part| part.text()).collect::<Vec<_>>().join("/")
}

fn kind_of(name: Oid) -> String {
    match name {
        oids::FTAM_1 => "FTAM-1 text".into(),
        oids::FTAM_2 => "FTAM-2 records".into(),
        oids::FTAM_3 => BINARY.into(),
        oids::NBS_9 | oids::NBS_9_OLD => "NBS-9 directory".into(),
        other => other.to_string(),
    }
}

fn actions_of(actions: PermittedActions) -> Vec<&'static str> {
    use PermittedActions as P;
    let words = [
        (P::READ, "read"),
        (P::INSERT, "insert"),
        (P::REPLACE, "replace"),
        (P::EXTEND, "extend"),
        (P::ERASE, "erase"),
        (P::READ_ATTRIBUTE, "read attributes"),
        (P::CHANGE_ATTRIBUTE, "change attributes"),
        (P::DELETE_OBJECT, "delete"),
    ];
    words.into_iter().filter(|(action, _)| actions.contains(*action)).map(|(_, word)| word).collect()
}

/// Formats a GeneralizedTime as `2026-11-22 10:43:16`. A value that is not a date is returned unchanged.
fn date(date: &Option<DateAndTimeAttribute>) -> Option<String> {
    let Some(DateAndTimeAttribute::Actual(date)) = date else { return None };
    Some(date_words(date.text().escape_debug().to_string()))
}

/// Returns the time that a GeneralizedTime means.
fn instant(date: &Option<DateAndTimeAttribute>) -> Option<Date> {
    let Some(DateAndTimeAttribute::Actual(date)) = date else { return None };
    instant_of(&date.text())
}

fn instant_of(text: &str) -> Option<Date> {
    Date::read(&format!("{:04}{}", year_of(text)?, text.get(4..)?))
}

/// Returns the year of a date of 14 digits.
fn year_of(text: &str) -> Option<u16> {
    let digits = text.get(..14).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    // ISODE sends the years since 1900: 0126 is 2026.
    match digits[..4].parse() {
        _ if !("01".."13").contains(&&digits[4..6]) => None,
        Ok(years @ 100..200) => Some(1900 + years),
        Ok(year) => Some(year),
        Err(_) => None,
    }
}

fn date_words(text: String) -> String {
    let (Some(year), Some(d)) = (year_of(&text), text.get(..14)) else { return text };
    let zone = if text.ends_with('Z') { "Z" } else { "" };
    format!("{year:04}-{}-{} {}:{}:{}{zone}", &d[4..6], &d[6..8], &d[8..10], &d[10..12], &d[12..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_the_size_and_the_dates_and_a_date_of_creation_alone_is_none() {
        let version = |bytes: Option<i64>, modified: Option<&str>, created: Option<&str>| FileAttributes {
            bytes,
            modified: modified.map(String::from),
            created: created.map(String::from),
            ..FileAttributes::default()
        };
        for (one, other, same) in [
            (version(Some(1), Some("2"), Some("3")), version(Some(1), Some("2"), Some("3")), Some(true)),
            (version(Some(1), Some("2"), None), version(Some(1), None, Some("3")), Some(true)),
            (version(Some(1), None, None), version(Some(2), None, None), Some(false)),
            (version(None, Some("2"), None), version(None, Some("3"), None), Some(false)),
            (version(Some(1), None, Some("3")), version(Some(1), None, Some("4")), Some(false)),
            (version(None, None, Some("3")), version(None, None, Some("3")), None),
            (version(None, Some("2"), None), version(Some(1), None, None), None),
        ] {
            assert_eq!(one.is_same_version(&other), same, "{one:?} {other:?}");
        }
    }

    #[test]
    fn dates_are_readable_and_years_since_1900_are_recognised() {
        for (text, words) in [
            ("20261122104316Z", "2026-11-22 10:43:16Z"),
            ("20261122104316.25+0100", "2026-11-22 10:43:16"),
            ("01261122104316Z", "2026-11-22 10:43:16Z"),
            ("01261322104316Z", "01261322104316Z"),
            ("126112210431Z", "126112210431Z"),
        ] {
            assert_eq!(date_words(text.into()), words);
        }
        assert_eq!(instant_of("01261122104316Z"), instant_of("20261122104316Z"));
        assert_eq!(instant_of("20231114221320Z"), Some(Date(1_700_000_000)));
        assert_eq!(instant_of("126112210431Z"), None);
    }
}
