//! Extension headers of IPv6 (RFC 8200 §4).
//!
//! ```text
//! | next header 8 | length/8 - 1 8 | options or routing data        hop-by-hop, destination options, routing
//! | next header 8 | 0 8 | offset/8 13, 0 0, M | identification 32   fragment (§4.5)
//! ```
//!
//! Options          kind 8, length 8, data. The two highest bits of the kind say how to handle an unknown
//!                  option (§4.2). Kind 0 is a single byte of padding.

use kiban_base::Malformed;

/// Length of the shortest extension header, and of the fragment header, bytes.
pub const HEADER_BYTES: usize = 8;

/// Pad1: one byte of padding.
pub const PAD_ONE: u8 = 0;
/// PadN: two or more bytes of padding.
pub const PAD_MORE: u8 = 1;
/// Router alert (RFC 2711).
pub const ROUTER_ALERT: u8 = 5;

/// Returns the length of a hop-by-hop, destination options or routing header, bytes, from its first two
/// bytes.
///
/// # Errors
/// `Truncated`.
#[inline]
pub fn length(bytes: &[u8]) -> Result<usize, Malformed> {
    match bytes {
        [_, units, ..] => Ok((usize::from(*units) + 1) * 8),
        _ => Err(Malformed::Truncated),
    }
}

/// The fragment header (RFC 8200 §4.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// Protocol number of the first header of the fragmentable part.
    pub next_header: u8,
    /// Fragment offset: where this payload begins in the fragmentable part, bytes; a multiple of 8.
    pub offset_bytes: u16,
    /// M: more fragments follow this one.
    pub more_fragments: bool,
    /// Identification: common to all fragments of one packet.
    pub identification: u32,
}

impl Fragment {
    /// Decodes the header; reserved bits are ignored.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn read(bytes: &[u8]) -> Result<(Fragment, usize), Malformed> {
        let Some(&[next_header, _, o0, o1, i0, i1, i2, i3]) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(Malformed::Truncated);
        };
        let word = u16::from_be_bytes([o0, o1]);
        let fragment = Fragment {
            next_header,
            offset_bytes: word & !7,
            more_fragments: word & 1 == 1,
            identification: u32::from_be_bytes([i0, i1, i2, i3]),
        };
        Ok((fragment, HEADER_BYTES))
    }

    /// Returns [`HEADER_BYTES`].
    pub const fn length(&self) -> usize {
        HEADER_BYTES
    }

    /// Writes the header at the front of `target`. Returns the number of bytes written.
    ///
    /// # Panics
    /// If `target` is shorter than the header.
    pub fn write(&self, target: &mut [u8]) -> usize {
        let bytes = target.first_chunk_mut::<HEADER_BYTES>().expect("room for a fragment header of 8 bytes");
        let [o0, o1] = ((self.offset_bytes & !7) | u16::from(self.more_fragments)).to_be_bytes();
        let [i0, i1, i2, i3] = self.identification.to_be_bytes();
        *bytes = [self.next_header, 0, o0, o1, i0, i1, i2, i3];
        HEADER_BYTES
    }
}

/// How to handle an unknown option, according to the two highest bits of its kind (RFC 8200 §4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unknown {
    /// Skip the option.
    Skip,
    /// Discard the packet.
    Discard,
    /// Discard the packet and send an ICMPv6 parameter problem, even if the packet was sent to a multicast
    /// address.
    Report,
    /// Discard the packet and send an ICMPv6 parameter problem, unless the packet was sent to a multicast
    /// address.
    ReportUnlessGroup,
}

/// One option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Item<'a> {
    /// The kind.
    pub kind: u8,
    /// Offset of the option in the header, bytes.
    pub at: usize,
    /// The data after kind and length.
    pub data: &'a [u8],
}

impl Item<'_> {
    /// Returns how to handle the option if its kind is unknown.
    pub const fn unknown(&self) -> Unknown {
        match self.kind >> 6 {
            0 => Unknown::Skip,
            1 => Unknown::Discard,
            2 => Unknown::Report,
            _ => Unknown::ReportUnlessGroup,
        }
    }
}

/// An iterator over the options of one complete hop-by-hop or destination options header. It skips Pad1, and
/// ends after the first malformed option.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    header: &'a [u8],
    at: usize,
}

impl<'a> Walk<'a> {
    /// Creates an iterator over the options of `header`, a complete extension header.
    pub const fn new(header: &'a [u8]) -> Walk<'a> {
        Walk { header, at: 2 }
    }

    /// Returns the offset of the next option in the header, bytes. After an error, returns the offset of the
    /// malformed option.
    pub const fn at(&self) -> usize {
        self.at
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Result<Item<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = self.header.get(self.at..)?;
            match *rest {
                [] => return None,
                [PAD_ONE, ..] => self.at += 1,
                [kind, length, ref data @ ..] if usize::from(length) <= data.len() => {
                    let item = Item { kind, at: self.at, data: &data[..usize::from(length)] };
                    self.at += 2 + usize::from(length);
                    return Some(Ok(item));
                }
                _ => {
                    self.header = &self.header[..self.at];
                    return Some(Err(Malformed::OptionLength));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_fragment_header_round_trips() {
        let header = Fragment {
            next_header: 17,
            offset_bytes: 1448,
            more_fragments: true,
            identification: 0xdead_beef,
        };
        let mut bytes = [0xff; 8];
        assert_eq!(header.write(&mut bytes), 8);
        assert_eq!(bytes, [17, 0, 0x05, 0xa9, 0xde, 0xad, 0xbe, 0xef]);
        assert_eq!(Fragment::read(&bytes), Ok((header, 8)));
        bytes[3] |= 6; // Reserved bits are ignored.
        assert_eq!(Fragment::read(&bytes), Ok((header, 8)));
        assert_eq!(Fragment::read(&bytes[..7]), Err(Malformed::Truncated));
    }

    #[test]
    fn options_are_iterated_and_an_invalid_length_ends_the_iteration() {
        type Row<'a> = (&'a [u8], &'a [(u8, usize, Unknown)], Option<usize>);
        let rows: &[Row<'_>] = &[
            (&[6, 0, 1, 4, 0, 0, 0, 0], &[(1, 2, Unknown::Skip)], None),
            (&[6, 0, 0, 0, 5, 2, 0, 0], &[(5, 4, Unknown::Skip)], None),
            (&[6, 0, 0xc2, 4, 0, 1, 0, 0], &[(0xc2, 2, Unknown::ReportUnlessGroup)], None),
            (
                &[6, 0, 0x80, 1, 9, 0x40, 1, 9],
                &[(0x80, 2, Unknown::Report), (0x40, 5, Unknown::Discard)],
                None,
            ),
            (&[6, 0, 1, 5, 0, 0, 0, 0], &[], Some(2)),
            (&[6, 0, 1, 3, 0, 0, 0, 7], &[(1, 2, Unknown::Skip)], Some(7)),
        ];
        for (bytes, expected, wrong) in rows {
            let mut walk = Walk::new(bytes);
            let (mut items, mut broken) = (Vec::new(), None);
            while let Some(item) = walk.next() {
                match item {
                    Ok(item) => items.push((item.kind, item.at, item.unknown())),
                    Err(_) => broken = Some(walk.at()),
                }
            }
            assert_eq!((&items[..], broken), (*expected, *wrong), "{bytes:?}");
        }
    }
}
