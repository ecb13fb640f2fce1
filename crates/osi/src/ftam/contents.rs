//! Conversion between a host file's bytes and a document's data elements, for both initiator and responder.
//!
//! Sending    the file is read when its elements are needed, [`AHEAD_BYTES`] at a time, since one system call
//!            per short element would cost more than the element itself. Text elements are strings (see
//!            [`text`](super::filestore::text)); other elements are runs of octets that share the memory into
//!            which the file was read.
//! Receiving  structure elements are ignored, since each string in an FTAM-2 document is one record.

use super::filestore::DiskError;
use super::filestore::text::{Lines, StringsToText, TextToStrings};
use crate::wire::ber::Tag;
use crate::wire::ftam::{DataElement, Document, ErrorIdentifier, Structuring, TextParameters};
use alloc::collections::VecDeque;
use kiban_base::{Bytes, Rope};

/// Number of bytes of a file that are read at a time; more are read if an element is longer.
const AHEAD_BYTES: usize = 128 * 1024;

/// Maximum length in octets of a line that is sent as one string, if the document has no maximum string
/// length.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// Returns how lines end in a text document, or `None` for other document types.
fn lines_of(document: &Document) -> Option<(Lines, &TextParameters)> {
    match document {
        // ISO 8571-2, FTAM-1: strings of character classes 25 and 26 have no format effectors.
        Document::UnstructuredText(parameters) => match parameters.universal_class_number {
            Some(25 | 26) => Some((Lines::Strings, parameters)),
            _ => Some((Lines::Within, parameters)),
        },
        Document::SequentialText(parameters) => Some((Lines::Strings, parameters)),
        _ => None,
    }
}

/// The reason why contents cannot be converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// A disk error.
    Disk(DiskError),
    /// The text cannot be sent in a document of this type.
    Text,
}

/// Converts a file to data elements.
pub(super) struct Outflow {
    outward: Option<TextToStrings>,
    lines: Option<(Lines, usize)>,
    tag: Tag,
    structured: bool,
    piece_bytes: usize,
    bytes: u64,
    /// Number of bytes of the file that have been consumed.
    taken: u64,
    /// The bytes of the file that have been read but not consumed.
    ahead: Bytes,
    ended: bool,
    ready: VecDeque<DataElement>,
}

impl Outflow {
    /// Creates a converter for a file of `bytes`, starting at offset `at`, that returns elements of about
    /// `fdata_bytes`.
    pub(super) fn new(
        document: &Document,
        fdata_bytes: usize,
        structured: bool,
        bytes: u64,
        at: u64,
    ) -> Outflow {
        let lines = lines_of(document).map(|(lines, parameters)| {
            let said = parameters.maximum_string_length.and_then(|length| usize::try_from(length).ok());
            let usual = if lines == Lines::Within { fdata_bytes } else { LINE_BYTES_MAX };
            (lines, said.map_or(usual, |said| said.min(usual)).max(2))
        });
        let outward = lines.map(|(lines, most)| TextToStrings::new(lines, most));
        let most = match document {
            Document::UnstructuredBinary(parameters) => parameters.maximum_string_length,
            _ => None,
        };
        let piece_bytes = most
            .and_then(|most| usize::try_from(most).ok())
            .map_or(fdata_bytes, |most| most.min(fdata_bytes));
        Outflow {
            outward,
            lines,
            tag: document.element_tag(),
            structured,
            piece_bytes: piece_bytes.max(1),
            bytes,
            taken: at,
            ahead: Bytes::new(),
            ended: false,
            ready: VecDeque::new(),
        }
    }

    /// Returns the next element, or `None` at the end of the file; `read` takes an offset and a length, and
    /// reads that part of the file.
    pub(super) fn next(
        &mut self,
        read: &mut dyn FnMut(u64, usize) -> Result<Bytes, DiskError>,
    ) -> Result<Option<DataElement>, Failure> {
        loop {
            if let Some(element) = self.ready.pop_front() {
                return Ok(Some(element));
            }
            if self.taken >= self.bytes {
                if !self.ended
                    && let Some(outward) = &mut self.outward
                {
                    outward.end();
                    self.ended = true;
                    self.gather();
                    continue;
                }
                return Ok(None);
            }
            if self.ahead.is_empty() {
                let whole_pieces = (AHEAD_BYTES / self.piece_bytes).max(1) * self.piece_bytes;
                let most = (self.bytes - self.taken).min(whole_pieces as u64) as usize;
                self.ahead = read(self.taken, most).map_err(Failure::Disk)?;
                if self.ahead.is_empty() {
                    return Err(Failure::Disk(DiskError::Changed));
                }
            }
            let piece = self.ahead.split_to(self.ahead.len().min(self.piece_bytes));
            self.taken += piece.len() as u64;
            match &mut self.outward {
                Some(outward) => {
                    outward.push(piece).map_err(|_| Failure::Text)?;
                    self.gather();
                }
                None => return Ok(Some(DataElement::Value { tag: self.tag, contents: Rope::from(piece) })),
            }
        }
    }

    fn gather(&mut self) {
        while let Some(contents) = self.outward.as_mut().and_then(TextToStrings::pop) {
            if self.structured {
                self.ready.push_back(DataElement::Structuring(Structuring::RECORD));
            }
            self.ready.push_back(DataElement::Value { tag: self.tag, contents });
        }
    }

    /// Returns whether all complete elements have been returned, so that a checkpoint can be set at
    /// [`Outflow::at`].
    pub(super) fn is_at_border(&self) -> bool {
        self.ready.is_empty()
    }

    /// Returns whether nothing is left.
    pub(super) fn is_at_end(&self) -> bool {
        self.ready.is_empty() && self.taken >= self.bytes && (self.outward.is_none() || self.ended)
    }

    /// Returns the file offset of the next element.
    pub(super) fn at(&self) -> u64 {
        self.taken - self.outward.as_ref().map_or(0, TextToStrings::held_bytes) as u64
    }

    /// Continues at an earlier offset.
    pub(super) fn go_back(&mut self, at: u64) {
        self.outward = self.lines.map(|(lines, most)| TextToStrings::new(lines, most));
        self.ready.clear();
        self.ahead.clear();
        (self.taken, self.ended) = (at, false);
    }
}

/// Converts data elements to a file.
pub(super) struct Inflow {
    inward: Option<StringsToText>,
    lines: Option<Lines>,
}

impl Inflow {
    /// Creates a converter; `held` is the value of [`Inflow::is_holding`] at the point where the transfer
    /// continues.
    pub(super) fn new(document: &Document, held: bool) -> Inflow {
        let lines = lines_of(document).map(|(lines, _)| lines);
        Inflow { inward: lines.map(|lines| StringsToText::new(lines, held)), lines }
    }

    /// Returns the bytes to store for a data element.
    pub(super) fn take(&mut self, element: DataElement) -> Result<Rope, ErrorIdentifier> {
        let (tag, contents) = match element {
            DataElement::Value { tag, contents } => (tag, contents),
            DataElement::Structuring(_) if self.inward.is_some() => return Ok(Rope::new()),
            _ => return Err(ErrorIdentifier::BAD_DATA_ELEMENT_TYPE),
        };
        match &mut self.inward {
            None if tag == Tag::OCTET_STRING => Ok(contents),
            Some(inward) if tag != Tag::OCTET_STRING => {
                inward.push(contents).map_err(|_| ErrorIdentifier::BAD_DATA_ELEMENT_TYPE)
            }
            _ => Err(ErrorIdentifier::BAD_DATA_ELEMENT_TYPE),
        }
    }

    /// Returns the bytes to store after the last element.
    pub(super) fn end(&mut self) -> Rope {
        self.inward.as_mut().map_or_else(Rope::new, StringsToText::end)
    }

    /// Returns whether a CR is held back because the next byte may be LF.
    pub(super) fn is_holding(&self) -> bool {
        self.inward.as_ref().is_some_and(StringsToText::is_holding)
    }

    /// Continues from an earlier point; `held` says whether a CR was held back there.
    pub(super) fn go_back(&mut self, held: bool) {
        self.inward = self.lines.map(|lines| StringsToText::new(lines, held));
    }
}
