//! Decoding of BER elements from contiguous bytes.

use alloc::{borrow::Cow, vec::Vec};

use super::{Header, Tag};
use kiban_base::Malformed;

/// Maximum nesting depth of elements.
pub const NESTING_MAX: u8 = 48;

/// An iterator over consecutive elements. It ends after the first error.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    /// How many more levels of nesting are allowed.
    levels: u8,
}

/// One element, whose contents are borrowed from the input.
#[derive(Clone, Debug)]
pub struct Element<'a> {
    /// The element's tag.
    pub tag: Tag,
    /// Whether the element is constructed, that is, its contents are elements.
    pub constructed: bool,
    contents: &'a [u8],
    whole: &'a [u8],
    levels: u8,
}

impl<'a> Cursor<'a> {
    /// Creates an iterator over `bytes`.
    pub fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, levels: NESTING_MAX }
    }

    /// Returns the bytes not yet consumed.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    fn step(&mut self) -> Result<Element<'a>, Malformed> {
        let (header, header_bytes) = Header::read(self.bytes)?;
        let behind = &self.bytes[header_bytes..];
        let (contents_bytes, end_bytes) = match header.length {
            Some(length) if length <= behind.len() => (length, 0),
            Some(_) => return Err(Malformed::Truncated),
            None => (length_up_to_end(behind)?, 2),
        };
        let (whole, rest) = self.bytes.split_at(header_bytes + contents_bytes + end_bytes);
        self.bytes = rest;
        let Header { tag, constructed, .. } = header;
        Ok(Element { tag, constructed, contents: &behind[..contents_bytes], whole, levels: self.levels })
    }
}

impl<'a> Iterator for Cursor<'a> {
    type Item = Result<Element<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        let element = self.step();
        if element.is_err() {
            self.bytes = &[];
        }
        Some(element)
    }
}

/// Returns the number of contents bytes of an element of indefinite length, that is, of the bytes before its
/// end-of-contents octets. Nested elements are skipped.
fn length_up_to_end(bytes: &[u8]) -> Result<usize, Malformed> {
    let mut at = 0;
    let mut open = 1;
    loop {
        let (header, header_bytes) = Header::read(&bytes[at..])?;
        at += header_bytes;
        match header.length {
            Some(_) if header.is_end_of_contents(header_bytes) => {
                open -= 1;
                if open == 0 {
                    return Ok(at - header_bytes);
                }
            }
            Some(length) if length <= bytes.len() - at => at += length,
            Some(_) => return Err(Malformed::Truncated),
            None if open == NESTING_MAX => return Err(Malformed::Nesting),
            None => open += 1,
        }
    }
}

impl<'a> Element<'a> {
    /// Reads one element from the front of `bytes`; returns it and the number of bytes that it occupies.
    ///
    /// # Errors
    /// `Truncated`; `Nesting`; any error of [`Header::read`].
    pub fn read(bytes: &'a [u8]) -> Result<(Element<'a>, usize), Malformed> {
        let element = Cursor::new(bytes).step()?;
        let count = element.whole.len();
        Ok((element, count))
    }

    /// Returns the element's header and contents, as received.
    pub fn whole(&self) -> &'a [u8] {
        self.whole
    }

    /// Returns the contents, as received, without end-of-contents octets.
    pub fn contents(&self) -> &'a [u8] {
        self.contents
    }

    /// Returns the elements in the contents.
    ///
    /// # Errors
    /// `ElementForm` if the element is primitive; `Nesting`.
    pub fn elements(&self) -> Result<Cursor<'a>, Malformed> {
        if !self.constructed {
            return Err(Malformed::ElementForm);
        }
        let levels = self.levels.checked_sub(1).ok_or(Malformed::Nesting)?;
        Ok(Cursor { bytes: self.contents, levels })
    }

    /// Returns the element inside an explicit tag.
    ///
    /// # Errors
    /// `ElementMissing`; any error of [`Element::elements`].
    pub fn inner(&self) -> Result<Element<'a>, Malformed> {
        self.elements()?.next().ok_or(Malformed::ElementMissing)?
    }

    /// Returns the contents of a primitive element.
    ///
    /// # Errors
    /// `ElementForm` if it is constructed.
    pub fn primitive(&self) -> Result<&'a [u8], Malformed> {
        if self.constructed { Err(Malformed::ElementForm) } else { Ok(self.contents) }
    }

    /// Returns the octets of a string. The segments of a constructed string are joined (§8.7).
    ///
    /// # Errors
    /// Any error in a segment; `Nesting`.
    pub fn octets(&self) -> Result<Cow<'a, [u8]>, Malformed> {
        if !self.constructed {
            return Ok(Cow::Borrowed(self.contents));
        }
        let mut joined = Vec::new();
        self.each_segment(&mut |segment| {
            joined.extend_from_slice(segment);
            Ok(())
        })?;
        Ok(Cow::Owned(joined))
    }

    /// Returns the octets of a bit string, and the number of unused bits in the last one. The segments of a
    /// constructed bit string are joined (§8.6).
    ///
    /// # Errors
    /// `ElementValue` for a wrong number of unused bits; any error in a segment; `Nesting`.
    pub fn bits(&self) -> Result<(Cow<'a, [u8]>, u8), Malformed> {
        if !self.constructed {
            let (octets, unused) = bits_of(self.contents)?;
            return Ok((Cow::Borrowed(octets), unused));
        }
        let (mut joined, mut unused) = (Vec::new(), 0);
        self.each_segment(&mut |segment| {
            // §8.6.4: only the last segment may end within an octet.
            if unused != 0 {
                return Err(Malformed::ElementValue);
            }
            let (octets, last) = bits_of(segment)?;
            joined.extend_from_slice(octets);
            unused = last;
            Ok(())
        })?;
        Ok((Cow::Owned(joined), unused))
    }

    /// Calls `see` for every segment of a string.
    fn each_segment(&self, see: &mut dyn FnMut(&'a [u8]) -> Result<(), Malformed>) -> Result<(), Malformed> {
        if !self.constructed {
            return see(self.contents);
        }
        self.elements()?.try_for_each(|segment| segment?.each_segment(see))
    }
}

fn bits_of(contents: &[u8]) -> Result<(&[u8], u8), Malformed> {
    match contents.split_first() {
        Some((0, octets)) => Ok((octets, 0)),
        Some((&unused @ 1..=7, octets)) if !octets.is_empty() => Ok((octets, unused)),
        _ => Err(Malformed::ElementValue),
    }
}
