//! Marks: attributes that a host's file system has no place for, kept beside a file as words and bytes.
//!
//! Goal      what an initiator set is what the next one reads, whoever serves it, whenever.
//! Where     the disk's matter: extended attributes, or files of its own.
//! Limits    a value has at most [`MARK_BYTES_MAX`].

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Bytes of the longest value: all of them fit in one block of a file system with extended attributes.
pub const MARK_BYTES_MAX: usize = 512;

/// What is marked; the attributes of ISO 8571-2 by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// The contents type: document type and parameters.
    ContentsType,
    /// The storage account.
    Account,
    /// Who created the file.
    Creator,
    /// Who last changed its contents.
    Modifier,
    /// Who last read it.
    Reader,
    /// Who last changed its attributes.
    AttributeModifier,
    /// When it was created, where the host does not say.
    Created,
    /// When its attributes were last changed.
    AttributesModified,
    /// Whether opening it may take a while.
    Availability,
    /// How long it may become.
    FutureSize,
    /// Who may do what.
    AccessControl,
    /// Legal qualifications.
    Legal,
    /// Private use.
    Private,
}

impl Mark {
    /// All of them.
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

    /// The word it is kept under.
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

    /// The mark kept under a word.
    pub fn of_word(word: &str) -> Option<Mark> {
        Mark::ALL.into_iter().find(|mark| mark.word() == word)
    }
}

/// The marks of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks(BTreeMap<Mark, Vec<u8>>);

impl Marks {
    /// What is kept under this one.
    pub fn get(&self, mark: Mark) -> Option<&[u8]> {
        self.0.get(&mark).map(Vec::as_slice)
    }

    /// The same, if it is text.
    pub fn text(&self, mark: Mark) -> Option<&str> {
        core::str::from_utf8(self.get(mark)?).ok()
    }

    /// Keeps a value; an empty one takes the mark away. False if it is too long.
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

    /// The same marks with one more; a value that is too long is left out.
    #[must_use]
    pub fn with(mut self, mark: Mark, value: &[u8]) -> Marks {
        let _ = self.set(mark, value);
        self
    }

    /// Those in `changes` become what they are there, an empty value none; the others stay. Too long a one is left out.
    pub fn change(&mut self, changes: &[(Mark, Vec<u8>)]) {
        for (mark, value) in changes {
            let _ = self.set(*mark, value);
        }
    }

    /// All that are set.
    pub fn each(&self) -> impl Iterator<Item = (Mark, &[u8])> {
        self.0.iter().map(|(mark, value)| (*mark, value.as_slice()))
    }

    /// Whether none is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lead_back_to_their_marks() {
        for mark in Mark::ALL {
            assert_eq!(Mark::of_word(mark.word()), Some(mark));
        }
        assert_eq!(Mark::of_word("colour"), None);
    }

    #[test]
    fn values_have_a_bound_and_an_empty_one_is_none() {
        let mut marks = Marks::default().with(Mark::Account, b"sales");
        assert!(!marks.set(Mark::Account, &[0; MARK_BYTES_MAX + 1]));
        assert_eq!(marks.text(Mark::Account), Some("sales"));
        assert!(marks.set(Mark::Account, b"") && marks.is_empty());
    }
}
