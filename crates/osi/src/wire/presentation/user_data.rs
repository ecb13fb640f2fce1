//! User data (X.226 §8.4): presentation data values on a rope.
//!
//! ```text
//! 61 L  30 L  [06 .. transfer syntax]  02 01 context  A0 L value      single-ASN1-type: one element of BER
//!                                                     81 L octets     octet-aligned: one or more encodings
//!                                                     82 L bits       arbitrary
//!       30 L  ..                                                      more PDV-lists
//! 60 L  octets                                                        simply encoded: context implied
//! ```
//!
//! Decoding  starts at the front. Headers are parsed in place (copied only if they are split between pieces),
//!           and contents are split off. If a length is indefinite, the rope is scanned once more to find the
//!           end of the value.
//! Encoding  uses definite lengths, from the last value to the first, and prepends headers to the values'
//!           ropes.

use alloc::vec::Vec;
use kiban_base::{ROOM_BYTES, Rope};

use crate::wire::ber::{Asn1, Builder, Element, Encoding, External, Header, NESTING_MAX, Oid, Tag, Tagged};
use kiban_base::Malformed;

/// Maximum number of presentation data values in the user data of one primitive.
pub const PDVS_MAX: usize = 1024;
/// Maximum length of a header in bytes: 6 for the tag, 1 + 126 for the length.
const HEADER_BYTES_MAX: usize = 133;
/// Maximum length of an element that contains a transfer syntax name or a context identifier.
const SMALL_BYTES_MAX: usize = 64;

const SIMPLE: Tag = Tag::application(0);
const FULL: Tag = Tag::application(1);
const SINGLE: Tag = Tag::context(0);
const OCTET_ALIGNED: Tag = Tag::context(1);
const ARBITRARY: Tag = Tag::context(2);

/// A PDV-list: one presentation data value, or several in the same context.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pdv {
    /// The context identifier; [`Pdv::NO_CONTEXT`] in an EXTERNAL without one.
    pub context: i64,
    /// The transfer syntax; required only if several transfer syntaxes were accepted for the context.
    pub transfer_syntax: Option<Oid>,
    /// The value.
    pub value: PdvValue,
}

/// The form of a presentation data value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PdvValue {
    /// One BER element with its header. Received bytes are not checked for this form.
    Single(Rope),
    /// Consecutive encodings, each of which has a whole number of octets.
    OctetAligned(Rope),
    /// Encodings that may have any number of bits.
    Arbitrary {
        /// The octets.
        octets: Rope,
        /// The number of unused bits in the last octet.
        unused: u8,
    },
}

/// User-data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UserData {
    /// Simply encoded: values of the only context, or of the default context.
    Simple(Rope),
    /// Fully encoded: values that name their contexts.
    Full(Vec<Pdv>),
}

impl Pdv {
    /// The context identifier of values that do not name their context.
    pub const NO_CONTEXT: i64 = 0;

    /// Builds a value that is one BER element.
    pub fn single(context: i64, value: impl Into<Rope>) -> Pdv {
        Pdv { context, transfer_syntax: None, value: PdvValue::Single(value.into()) }
    }

    /// Builds values as consecutive encodings in one context.
    pub fn octet_aligned(context: i64, octets: impl Into<Rope>) -> Pdv {
        Pdv { context, transfer_syntax: None, value: PdvValue::OctetAligned(octets.into()) }
    }

    /// Returns the octets of the value or values, which are consecutive BER elements in either form.
    pub fn octets(&self) -> &Rope {
        let (PdvValue::Single(rope)
        | PdvValue::OctetAligned(rope)
        | PdvValue::Arbitrary { octets: rope, .. }) = &self.value;
        rope
    }

    /// Converts this into the octets of the value or values.
    pub fn into_octets(self) -> Rope {
        let (PdvValue::Single(rope)
        | PdvValue::OctetAligned(rope)
        | PdvValue::Arbitrary { octets: rope, .. }) = self.value;
        rope
    }

    /// Encodes the PDV-list by prepending its headers to its value.
    fn into_rope(self) -> Rope {
        let mut front = Front::default();
        let (tag, constructed, mut rope) = match self.value {
            PdvValue::Single(rope) => (SINGLE, true, rope),
            PdvValue::OctetAligned(rope) => (OCTET_ALIGNED, false, rope),
            PdvValue::Arbitrary { mut octets, unused } => {
                octets.prepend(&[unused]);
                (ARBITRARY, false, octets)
            }
        };
        let value_bytes = rope.len();
        front.header(tag, constructed, value_bytes);
        // Context identifier and transfer syntax always fit: at most eight octets and 41 octets, including
        // headers.
        front.integer(self.context);
        if let Some(transfer_syntax) = self.transfer_syntax {
            front.put(transfer_syntax.contents());
            front.header(Tag::OBJECT_IDENTIFIER, false, transfer_syntax.contents().len());
        }
        front.header(Tag::SEQUENCE, true, front.bytes().len() + value_bytes);
        rope.prepend(front.bytes());
        rope
    }
}

/// The headers encoded so far, from the last to the first.
struct Front {
    room: [u8; 2 * ROOM_BYTES],
    start: usize,
}

impl Default for Front {
    fn default() -> Front {
        Front { room: [0; 2 * ROOM_BYTES], start: 2 * ROOM_BYTES }
    }
}

impl Front {
    fn bytes(&self) -> &[u8] {
        &self.room[self.start..]
    }

    fn put(&mut self, bytes: &[u8]) {
        self.start -= bytes.len();
        self.room[self.start..][..bytes.len()].copy_from_slice(bytes);
    }

    fn header(&mut self, tag: Tag, constructed: bool, length: usize) {
        let header = Header { tag, constructed, length: Some(length) };
        self.start = header.write_before(&mut self.room[..self.start]);
    }

    fn integer(&mut self, number: i64) {
        let octets = number.to_be_bytes();
        let alike = if number < 0 { number.leading_ones() } else { number.leading_zeros() };
        let octets = &octets[(alike as usize - 1) / 8..];
        self.put(octets);
        self.header(Tag::INTEGER, false, octets.len());
    }
}

impl UserData {
    /// Decodes user data from a rope; bytes after it are dropped. No payload is copied.
    ///
    /// # Errors
    /// `Alternative` if the bytes are not user data; `TooMany` values; any error in an element.
    pub fn from_rope(mut rope: Rope) -> Result<UserData, Malformed> {
        let (header, _) = take_header(&mut rope)?;
        let data = match header.tag {
            SIMPLE => UserData::Simple(take_octets(&mut rope, header, NESTING_MAX)?),
            FULL => {
                let mut values = Vec::new();
                let mut lists = Contents::enter(&mut rope, header)?;
                while let Some(header) = lists.next()? {
                    if header.tag != Tag::SEQUENCE {
                        return Err(Malformed::Alternative);
                    }
                    if values.len() == PDVS_MAX {
                        return Err(Malformed::TooMany);
                    }
                    let mut list = Contents::enter(&mut lists.rope, header)?;
                    values.push(take_list(&mut list)?);
                    list.leave(&mut lists.rope);
                }
                if values.is_empty() {
                    return Err(Malformed::ElementMissing);
                }
                UserData::Full(values)
            }
            _ => return Err(Malformed::Alternative),
        };
        Ok(data)
    }

    /// Encodes the user data as a rope. No payload is copied.
    pub fn into_rope(self) -> Rope {
        let (tag, mut rope) = match self {
            UserData::Simple(rope) => (SIMPLE, rope),
            UserData::Full(values) => {
                let lists = values.into_iter().map(Pdv::into_rope);
                let joined = lists.rev().reduce(|behind, mut list| {
                    list.append(behind);
                    list
                });
                (FULL, joined.unwrap_or_default())
            }
        };
        let mut front = Front::default();
        front.header(tag, tag == FULL, rope.len());
        rope.prepend(front.bytes());
        rope
    }
}

impl Asn1 for UserData {
    fn begins(tag: Tag) -> bool {
        tag == SIMPLE || tag == FULL
    }

    fn from_element(element: &Element<'_>) -> Result<UserData, Malformed> {
        UserData::from_rope(element.whole().to_vec().into())
    }

    fn put(&self, builder: &mut Builder) {
        builder.put_rope(self.clone().into_rope());
    }
}

/// Decodes a PDV-list.
fn take_list(list: &mut Contents) -> Result<Pdv, Malformed> {
    let (mut transfer_syntax, mut context, mut value) = (None, None, None);
    while let Some(header) = list.next()? {
        let rope = &mut list.rope;
        match header.tag {
            Tag::OBJECT_IDENTIFIER if context.is_none() => transfer_syntax = Some(take_small(rope, header)?),
            Tag::INTEGER => context = Some(take_small(rope, header)?),
            // The user of the context checks whether the value is one BER element, because some peers send
            // other values.
            SINGLE if header.constructed => value = Some(PdvValue::Single(take_contents(rope, header)?)),
            SINGLE => return Err(Malformed::ElementForm),
            OCTET_ALIGNED => value = Some(PdvValue::OctetAligned(take_octets(rope, header, NESTING_MAX)?)),
            ARBITRARY => value = Some(take_bits(rope, header)?),
            _ => drop(take_contents(rope, header)?),
        }
    }
    let context = context.ok_or(Malformed::ElementMissing)?;
    let value = value.ok_or(Malformed::ElementMissing)?;
    Ok(Pdv { context, transfer_syntax, value })
}

/// The contents of a constructed element in a rope.
struct Contents {
    rope: Rope,
    /// The contents end with end-of-contents octets; the bytes after those are still in `rope`.
    indefinite: bool,
}

impl Contents {
    /// Enters an element whose header has been split off.
    fn enter(rope: &mut Rope, header: Header) -> Result<Contents, Malformed> {
        if !header.constructed {
            return Err(Malformed::ElementForm);
        }
        let contents = match header.length {
            Some(length) => split_to(rope, length)?,
            None => core::mem::take(rope),
        };
        Ok(Contents { rope: contents, indefinite: header.length.is_none() })
    }

    /// Splits off the next element's header; `None` at the end.
    fn next(&mut self) -> Result<Option<Header>, Malformed> {
        if !self.indefinite && self.rope.is_empty() {
            return Ok(None);
        }
        let (header, is_end) = take_header(&mut self.rope)?;
        Ok((!self.indefinite || !is_end).then_some(header))
    }

    /// Puts back the bytes that follow the element, after `next` has returned `None`.
    fn leave(self, rope: &mut Rope) {
        if self.indefinite {
            *rope = self.rope;
        }
    }
}

/// Parses the header at the front without removing it; returns it and its length.
fn look_at_header(rope: &Rope) -> Result<(Header, usize), Malformed> {
    match Header::read(rope.first_run()) {
        Err(Malformed::Truncated) => {
            let mut room = [0; HEADER_BYTES_MAX];
            let count = rope.copy_to(0, &mut room);
            Header::read(&room[..count])
        }
        looked => looked,
    }
}

/// Splits off the header at the front; returns it, and whether it is end-of-contents octets.
fn take_header(rope: &mut Rope) -> Result<(Header, bool), Malformed> {
    let (header, count) = look_at_header(rope)?;
    rope.skip(count);
    Ok((header, header.is_end_of_contents(count)))
}

/// Splits off the first bytes. If they make up the whole rope, the rope is moved without touching its pieces.
fn split_to(rope: &mut Rope, count: usize) -> Result<Rope, Malformed> {
    match count.cmp(&rope.len()) {
        core::cmp::Ordering::Less => Ok(rope.split_to(count)),
        core::cmp::Ordering::Equal => Ok(core::mem::take(rope)),
        core::cmp::Ordering::Greater => Err(Malformed::Truncated),
    }
}

/// Splits off the contents of an element whose header has been split off, without end-of-contents octets.
fn take_contents(rope: &mut Rope, header: Header) -> Result<Rope, Malformed> {
    match header.length {
        Some(length) => split_to(rope, length),
        None => {
            let count = bytes_up_to_end(rope)?;
            let contents = split_to(rope, count)?;
            rope.skip(2);
            Ok(contents)
        }
    }
}

/// Returns the number of bytes in front of the end-of-contents octets. `rope` begins with the contents of the
/// element that they close.
fn bytes_up_to_end(rope: &Rope) -> Result<usize, Malformed> {
    // This clones references to the pieces, not their bytes.
    let mut rest = rope.clone();
    let mut open = 1;
    loop {
        let before = rest.len();
        let (header, is_end) = take_header(&mut rest)?;
        match header.length {
            Some(_) if is_end => open -= 1,
            Some(length) if length <= rest.len() => rest.skip(length),
            Some(_) => return Err(Malformed::Truncated),
            None if open == NESTING_MAX => return Err(Malformed::Nesting),
            None => open += 1,
        }
        if open == 0 {
            return Ok(rope.len() - before);
        }
    }
}

/// Decodes a value of a few octets.
fn take_small<T: Tagged>(rope: &mut Rope, header: Header) -> Result<T, Malformed> {
    let length = header.length.filter(|&length| length <= SMALL_BYTES_MAX).ok_or(Malformed::ElementValue)?;
    let mut bytes = [0; SMALL_BYTES_MAX + Header::BYTES_MAX];
    if rope.copy_to(0, &mut bytes[Header::BYTES_MAX..][..length]) < length {
        return Err(Malformed::Truncated);
    }
    rope.skip(length);
    let at = header.write_before(&mut bytes[..Header::BYTES_MAX]);
    let (element, _) = Element::read(&bytes[at..Header::BYTES_MAX + length])?;
    T::from_contents(&element)
}

/// Returns the octets of a string, joining its segments.
fn take_octets(rope: &mut Rope, header: Header, levels: u8) -> Result<Rope, Malformed> {
    if !header.constructed {
        return split_to(rope, header.length.expect("a primitive element's length is definite"));
    }
    let levels = levels.checked_sub(1).ok_or(Malformed::Nesting)?;
    let mut joined = Rope::new();
    let mut segments = Contents::enter(rope, header)?;
    while let Some(header) = segments.next()? {
        joined.append(take_octets(&mut segments.rope, header, levels)?);
    }
    segments.leave(rope);
    Ok(joined)
}

/// Returns the bits of a string. Segments, which no known peer sends, are copied together.
fn take_bits(rope: &mut Rope, header: Header) -> Result<PdvValue, Malformed> {
    if header.constructed {
        let mut whole = take_contents(rope, header)?;
        let mut front = Front::default();
        front.header(header.tag, true, whole.len());
        whole.prepend(front.bytes());
        let whole = whole.into_bytes();
        let (element, _) = Element::read(&whole)?;
        let (octets, unused) = element.bits()?;
        return Ok(PdvValue::Arbitrary { octets: Rope::from(octets.into_owned()), unused });
    }
    let mut octets = split_to(rope, header.length.expect("a primitive element's length is definite"))?;
    let unused = octets.first_run().first().copied().filter(|&unused| unused < 8);
    let unused = unused.ok_or(Malformed::ElementValue)?;
    octets.skip(1);
    if unused > 0 && octets.is_empty() {
        return Err(Malformed::ElementValue);
    }
    Ok(PdvValue::Arbitrary { octets, unused })
}

/// Converts an EXTERNAL to a PDV-list, which holds the same information.
impl From<External> for Pdv {
    fn from(external: External) -> Pdv {
        Pdv {
            context: external.indirect_reference.unwrap_or(Pdv::NO_CONTEXT),
            transfer_syntax: external.direct_reference,
            value: match external.encoding {
                Encoding::SingleAsn1Type(element) => PdvValue::Single(element.0.into()),
                Encoding::OctetAligned(octets) => PdvValue::OctetAligned(octets.into()),
                Encoding::Arbitrary(bits) => {
                    PdvValue::Arbitrary { octets: bits.octets().to_vec().into(), unused: bits.unused() }
                }
            },
        }
    }
}

/// Converts a PDV-list to an EXTERNAL. The value is copied, because such values are short.
impl From<&Pdv> for External {
    fn from(pdv: &Pdv) -> External {
        External {
            direct_reference: pdv.transfer_syntax,
            indirect_reference: Some(pdv.context).filter(|&context| context != Pdv::NO_CONTEXT),
            data_value_descriptor: None,
            encoding: match &pdv.value {
                PdvValue::Single(rope) => Encoding::SingleAsn1Type(crate::wire::ber::Any(rope.to_vec())),
                PdvValue::OctetAligned(rope) => Encoding::OctetAligned(rope.to_vec()),
                PdvValue::Arbitrary { octets, unused } => {
                    Encoding::Arbitrary(crate::wire::ber::BitString::new(octets.to_vec(), *unused))
                }
            },
        }
    }
}
