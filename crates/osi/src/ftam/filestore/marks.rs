//! Marks: file attributes that a host's file system cannot store, kept with the file as keywords and bytes.
//!
//! Purpose   an attribute that one initiator sets can be read by another at any later time, through any
//!           server.
//! Storage   each disk decides where to store marks: in extended attributes, or in separate files.
//! Limits    [`MARK_BYTES_MAX`] for each value.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Maximum length of a value in bytes. It is chosen so that all of a file's marks fit in one block of a file
/// system that has extended attributes.
pub const MARK_BYTES_MAX: usize = 512;

/// The kinds of marks, named after the attributes of ISO 8571-2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// The contents type: document type and parameters.
    ContentsType,
    /// The storage account.
    Account,
    /// The identity of the creator.
    Creator,
    /// The identity of the user who last modified the contents.
    Modifier,
    /// The identity of the user who last read the contents.
    Reader,
    /// The identity of the user who last modified the attributes.
    AttributeModifier,
    /// The time at which the file was created, if the host does not record it.
    Created,
    /// The time at which the file's attributes were last changed.
    AttributesModified,
    /// File availability: whether opening may take a while.
    Availability,
    /// The future file size.
    FutureSize,
    /// Access control.
    AccessControl,
    /// Legal qualifications.
    Legal,
    /// Private use.
    Private,
}

impl Mark {
    /// All kinds.
    pub const ALL: [Mark; 13] = [
        Mark::ContentsType,
        Mark::Account,
        Mark::Creator,
        Mark::Modifier,
        Mark::Reader,
        Mark::AttributeModifier,
        Mark::Created,
        Mark::AttributesModified,
        Mark::Availability,
        Mark::FutureSize,
        Mark::AccessControl,
        Mark::Legal,
        Mark::Private,
    ];

    /// Returns the keyword under which the mark is stored.
    pub const fn word(self) -> &'static str {
        match self {
            Mark::ContentsType => "contents-type",
            Mark::Account => "account",
            Mark::Creator => "creator",
            Mark::Modifier => "modifier",
            Mark::Reader => "reader",
            Mark::AttributeModifier => "attribute-modifier",
            Mark::Created => "created",
            Mark::AttributesModified => "attributes-modified",
            Mark::Availability => "availability",
            Mark::FutureSize => "future-size",
            Mark::AccessControl => "access-control",
            Mark::Legal => "legal",
            Mark::Private => "private",
        }
    }

    /// Returns the mark with this keyword.
    pub fn of_word(word: &str) -> Option<Mark> {
        Mark::ALL.into_iter().find(|mark| mark.word() == word)
    }
}

/// The marks of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks(BTreeMap<Mark, Vec<u8>>);

impl Marks {
    /// Returns the value of a mark.
    pub fn get(&self, mark: Mark) -> Option<&[u8]> {
        self.0.get(&mark).map(Vec::as_slice)
    }

    /// Returns the value of a mark if it is text.
    pub fn text(&self, mark: Mark) -> Option<&str> {
        core::str::from_utf8(self.get(mark)?).ok()
    }

    /// Sets a value; an empty one removes the mark. Returns false if it is too long.
    #[must_use]
    pub fn set(&mut self, mark: Mark, value: &[u8]) -> bool {
        if value.is_empty() {
            self.0.remove(&mark);
        } else if value.len() <= MARK_BYTES_MAX {
            self.0.insert(mark, value.into());
        } else {
            return false;
        }
        true
    }

    /// Returns these marks with one added. A value that is too long is left out.
    #[must_use]
    pub fn with(mut self, mark: Mark, value: &[u8]) -> Marks {
        let _ = self.set(mark, value);
        self
    }

    /// Sets the marks in `changes` and keeps the others. An empty value removes a mark; a value that is too
    /// long is left out.
    pub fn change(&mut self, changes: &[(Mark, Vec<u8>)]) {
        for (mark, value) in changes {
            let _ = self.set(*mark, value);
        }
    }

    /// Returns all marks that are set.
    pub fn each(&self) -> impl Iterator<Item = (Mark, &[u8])> {
        self.0.iter().map(|(mark, value)| (*mark, value.as_slice()))
    }

    /// Returns whether no mark is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_map_back_to_their_marks() {
        for mark in Mark::ALL {
            assert_eq!(Mark::of_word(mark.word()), Some(mark));
        }
        assert_eq!(Mark::of_word("colour"), None);
    }

    #[test]
    fn values_are_limited_and_an_empty_value_removes_the_mark() {
        let mut marks = Marks::default().with(Mark::Account, b"sales");
        assert!(!marks.set(Mark::Account, &[0; MARK_BYTES_MAX + 1]));
        assert_eq!(marks.text(Mark::Account), Some("sales"));
        assert!(marks.set(Mark::Account, b"") && marks.is_empty());
    }
}
