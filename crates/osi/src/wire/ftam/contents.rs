//! Data elements: a file's contents during transfer (ISO 8571-2, abstract syntaxes of contents and of FADUs).
//!
//! Purpose   data of any length is handled without copying: an element's header is decoded at the front of a
//!           rope, or prepended to one.
//! Elements  strings (of characters in FTAM-1 and FTAM-2, of octets in FTAM-3); directory entries (NBS-9);
//!           the elements of FTAM-2's structure: node descriptors, enter and exit subtree.
//! Decoding  accepts definite and indefinite lengths, whole and segmented strings, several elements in one
//!           rope.
//! Encoding  uses definite lengths and whole strings.
//! Limits    [`HEADER_BYTES_MAX`] for a header; [`SEGMENT_DEPTH_MAX`] levels of segments;
//!           [`STRUCTURE_BYTES_MAX`] for a structuring element or a directory entry, which are copied to be
//!           decoded.

use kiban_base::Rope;

use super::attributes::ReadAttributes;
use crate::asn1;
use crate::wire::ber::{Asn1, Boolean, External, GraphicString, Header, Integer, Null, Tag};
use kiban_base::Malformed;

/// Maximum length of a header in bytes: tag, and length with leading zeros.
pub const HEADER_BYTES_MAX: usize = 16;
/// Maximum nesting depth of segments of a string.
pub const SEGMENT_DEPTH_MAX: u8 = 8;
/// Maximum length of a structuring element or directory entry in bytes.
pub const STRUCTURE_BYTES_MAX: usize = 1 << 16;

/// The type of a directory entry (NBS-9).
pub const DIRECTORY_ENTRY: Tag = Tag::private(2);

asn1! {
    /// The descriptor of a node, which precedes its data.
    NodeDescriptor ::= [APPLICATION 0] IMPLICIT SEQUENCE {
        name        NodeName OPTIONAL,
        /// The distance from the parent, in levels.
        arc_length  [1] IMPLICIT Integer DEFAULT 1,
        /// Whether a data unit follows.
        data_exists [2] IMPLICIT Boolean DEFAULT true,
    }

    /// A node's name.
    NodeName ::= CHOICE {
        FtamCoded [0] IMPLICIT GraphicString,
        UserCoded External,
    }

    /// Begins the children of a node.
    EnterSubtree ::= [APPLICATION 1] IMPLICIT Null;

    /// Ends the children of a node.
    ExitSubtree ::= [APPLICATION 2] IMPLICIT Null;

    /// A data element in the abstract syntax "FTAM FADU".
    Structuring ::= CHOICE {
        NodeDescriptor NodeDescriptor,
        EnterSubtree   EnterSubtree,
        ExitSubtree    ExitSubtree,
    }

    /// A data element of NBS-9: one entry of a directory.
    DirectoryEntry ::= [PRIVATE 2] EXPLICIT ReadAttributes;
}

impl Structuring {
    /// The descriptor of an unnamed node with data, one level down. It precedes each record in FTAM-2.
    pub const RECORD: Structuring =
        Structuring::NodeDescriptor(NodeDescriptor { name: None, arc_length: 1, data_exists: true });
    /// The descriptor of FTAM-2's root, which has no data.
    pub const ROOT: Structuring =
        Structuring::NodeDescriptor(NodeDescriptor { name: None, arc_length: 1, data_exists: false });
    /// Begins the children of a node.
    pub const ENTER: Structuring = Structuring::EnterSubtree(EnterSubtree(Null));
    /// Ends the children of a node.
    pub const EXIT: Structuring = Structuring::ExitSubtree(ExitSubtree(Null));
}

/// A data element.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DataElement {
    /// A string: its type, and its octets as received.
    Value {
        /// OCTET STRING, or one of the character string types.
        tag: Tag,
        /// The octets.
        contents: Rope,
    },
    /// A structuring element.
    Structuring(Structuring),
    /// A directory entry.
    DirectoryEntry(alloc::boxed::Box<ReadAttributes>),
}

impl DataElement {
    /// Builds FTAM-3's data element.
    pub fn octets(contents: Rope) -> DataElement {
        DataElement::Value { tag: Tag::OCTET_STRING, contents }
    }

    /// Returns the number of octets of contents; a structuring element has none.
    pub fn len(&self) -> usize {
        match self {
            DataElement::Value { contents, .. } => contents.len(),
            DataElement::Structuring(_) | DataElement::DirectoryEntry(_) => 0,
        }
    }

    /// Returns whether the element has no contents.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the element belongs to the abstract syntax "FTAM FADU", not to the abstract syntax of
    /// the contents.
    pub const fn is_structure(&self) -> bool {
        matches!(self, DataElement::Structuring(_))
    }

    /// Splits one element off the front of a rope. Contents are shared, not copied.
    ///
    /// # Errors
    /// Returns the rule that the element breaks, or `Alternative` if its type is not that of a data element.
    /// The rope is unusable after an error.
    pub fn read(rope: &mut Rope) -> Result<DataElement, Malformed> {
        let (header, header_bytes) = front(rope)?;
        if is_string(header.tag) {
            let contents = string(rope, SEGMENT_DEPTH_MAX)?;
            return Ok(DataElement::Value { tag: header.tag, contents });
        }
        // Structuring elements and directory entries are rare and short, so they are copied for decoding.
        let whole = match header.length {
            Some(length) => length.checked_add(header_bytes).ok_or(Malformed::Truncated)?,
            None => rope.len().min(STRUCTURE_BYTES_MAX),
        };
        if whole > STRUCTURE_BYTES_MAX {
            return Err(Malformed::ElementLength);
        }
        if whole > rope.len() {
            return Err(Malformed::Truncated);
        }
        let mut bytes = alloc::vec![0; whole];
        rope.copy_to(0, &mut bytes);
        let (element, count) = if header.tag == DIRECTORY_ENTRY {
            let (DirectoryEntry(attributes), count) = DirectoryEntry::read(&bytes)?;
            (DataElement::DirectoryEntry(attributes.into()), count)
        } else {
            let (structuring, count) = Structuring::read(&bytes)?;
            (DataElement::Structuring(structuring), count)
        };
        rope.skip(count);
        Ok(element)
    }

    /// Encodes the element; contents are shared, not copied.
    pub fn into_rope(self) -> Rope {
        match self {
            DataElement::Value { tag, mut contents } => {
                let mut room = [0; Header::BYTES_MAX];
                let header = Header { tag, constructed: false, length: Some(contents.len()) };
                let at = header.write_before(&mut room);
                contents.prepend(&room[at..]);
                contents
            }
            DataElement::Structuring(structuring) => structuring.to_rope(),
            DataElement::DirectoryEntry(attributes) => DirectoryEntry(*attributes).to_rope(),
        }
    }
}

/// Returns whether a tag is that of OCTET STRING or a character string type.
const fn is_string(tag: Tag) -> bool {
    matches!(tag.class, crate::wire::ber::Class::Universal)
        && matches!(tag.number, 4 | 12 | 18..=22 | 25..=27)
}

/// Decodes the header at the front of a rope; the contents need not be present.
fn front(rope: &Rope) -> Result<(Header, usize), Malformed> {
    match Header::read(rope.first_run()) {
        Ok(read) => Ok(read),
        // The header may be split between two pieces.
        Err(_) => {
            let mut room = [0; HEADER_BYTES_MAX];
            let count = rope.copy_to(0, &mut room);
            Header::read(&room[..count])
        }
    }
}

/// Splits off a string, including its header, and joins its segments.
fn string(rope: &mut Rope, depth: u8) -> Result<Rope, Malformed> {
    let (header, header_bytes) = front(rope)?;
    rope.skip(header_bytes);
    if header.length.is_some_and(|length| length > rope.len()) {
        return Err(Malformed::Truncated);
    }
    if !header.constructed {
        return Ok(rope.split_to(header.length.expect("only what is constructed may have none")));
    }
    let depth = depth.checked_sub(1).ok_or(Malformed::Nesting)?;
    let mut joined = Rope::new();
    match header.length {
        Some(length) => {
            let mut segments = rope.split_to(length);
            while !segments.is_empty() {
                joined.append(segment(&mut segments, depth)?);
            }
        }
        None => loop {
            let (header, header_bytes) = front(rope)?;
            if header.tag == Tag::END_OF_CONTENTS {
                // X.690 §8.1.5: exactly two zero octets.
                if header_bytes != 2 || header.constructed || header.length != Some(0) {
                    return Err(Malformed::ElementLength);
                }
                rope.skip(header_bytes);
                break;
            }
            joined.append(segment(rope, depth)?);
        },
    }
    Ok(joined)
}

fn segment(rope: &mut Rope, depth: u8) -> Result<Rope, Malformed> {
    let (header, _) = front(rope)?;
    if !is_string(header.tag) {
        return Err(Malformed::Alternative);
    }
    string(rope, depth)
}
