//! The RTP header (RFC 3550 §5.1, §5.3.1).
//!
//! ```text
//! | version 2 | padding 1 | extension 1 | CSRC count 4 | marker 1 | payload type 7 | sequence number 16 |
//! | timestamp 32 | SSRC 32 | CSRC 32 … | profile 16 | words 16 | extension … | payload | padding |
//! ```
//!
//! Padding          its last octet counts all octets of the padding. [`Header::payload`] leaves it out.
//! Not implemented  the contents of extensions, which profiles define.

use kiban_base::Malformed;

/// Length of the header without CSRCs and extension, bytes.
pub const HEADER_BYTES: usize = 12;
/// The only version.
pub(super) const VERSION: u8 = 2;

/// The extension of a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extension<'a> {
    /// Defined by the profile.
    pub profile: u16,
    /// The contents, whole 32-bit words.
    pub data: &'a [u8],
}

/// An RTP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header<'a> {
    /// Whether padding follows the payload.
    pub is_padded: bool,
    /// The marker; its meaning depends on the profile.
    pub marker: bool,
    /// The payload type, 0 to 127.
    pub payload_type: u8,
    /// The sequence number.
    pub sequence: u16,
    /// The sampling instant of the payload's first octet, in units of the payload's clock.
    pub timestamp: u32,
    /// The synchronisation source.
    pub ssrc: u32,
    /// The contributing sources, four octets each.
    pub csrcs: &'a [u8],
    /// The extension.
    pub extension: Option<Extension<'a>>,
}

impl<'a> Header<'a> {
    /// Decodes the header at the front of a packet.
    ///
    /// # Errors
    /// `Truncated`; `Version` if it is not 2; `HeaderLength` if CSRCs or the extension exceed the packet;
    /// `ParameterLength` if the padding does.
    pub fn read(bytes: &'a [u8]) -> Result<(Header<'a>, usize), Malformed> {
        let Some(&[first, second, s0, s1, t0, t1, t2, t3, i0, i1, i2, i3]) =
            bytes.first_chunk::<HEADER_BYTES>()
        else {
            return Err(Malformed::Truncated);
        };
        if first >> 6 != VERSION {
            return Err(Malformed::Version);
        }
        let mut used = HEADER_BYTES + 4 * usize::from(first & 0xf);
        let csrcs = bytes.get(HEADER_BYTES..used).ok_or(Malformed::HeaderLength)?;
        let mut extension = None;
        if first & 0x10 != 0 {
            let Some(&[p0, p1, w0, w1]) = bytes.get(used..).and_then(|rest| rest.first_chunk()) else {
                return Err(Malformed::HeaderLength);
            };
            let end = used + 4 + 4 * usize::from(u16::from_be_bytes([w0, w1]));
            let data = bytes.get(used + 4..end).ok_or(Malformed::HeaderLength)?;
            (extension, used) = (Some(Extension { profile: u16::from_be_bytes([p0, p1]), data }), end);
        }
        let header = Header {
            is_padded: first & 0x20 != 0,
            marker: second & 0x80 != 0,
            payload_type: second & 0x7f,
            sequence: u16::from_be_bytes([s0, s1]),
            timestamp: u32::from_be_bytes([t0, t1, t2, t3]),
            ssrc: u32::from_be_bytes([i0, i1, i2, i3]),
            csrcs,
            extension,
        };
        header.padding_bytes(&bytes[used..]).ok_or(Malformed::ParameterLength)?;
        Ok((header, used))
    }

    /// Returns the length of the padding at the end of `rest`, the bytes after the header; `None` if it is
    /// invalid.
    fn padding_bytes(&self, rest: &[u8]) -> Option<usize> {
        if !self.is_padded {
            return Some(0);
        }
        let count = usize::from(*rest.last()?);
        (1..=rest.len()).contains(&count).then_some(count)
    }

    /// Returns the payload, given the bytes after the header.
    pub fn payload<'b>(&self, rest: &'b [u8]) -> &'b [u8] {
        &rest[..rest.len() - self.padding_bytes(rest).unwrap_or(0)]
    }

    /// Returns the length of the header with CSRCs and extension, bytes.
    pub fn length(&self) -> usize {
        HEADER_BYTES + self.csrcs.len() + self.extension.map_or(0, |extension| 4 + extension.data.len())
    }

    /// Writes the header at the front of `target`, and returns the number of bytes written.
    ///
    /// # Panics
    /// If `target` is shorter than the header, or if CSRCs or extension are not whole words.
    pub fn write(&self, target: &mut [u8]) -> usize {
        assert!(self.csrcs.len() <= 60 && self.csrcs.len().is_multiple_of(4), "up to 15 CSRCs");
        target[0] = VERSION << 6
            | u8::from(self.is_padded) << 5
            | u8::from(self.extension.is_some()) << 4
            | (self.csrcs.len() / 4) as u8;
        target[1] = u8::from(self.marker) << 7 | self.payload_type & 0x7f;
        target[2..4].copy_from_slice(&self.sequence.to_be_bytes());
        target[4..8].copy_from_slice(&self.timestamp.to_be_bytes());
        target[8..12].copy_from_slice(&self.ssrc.to_be_bytes());
        let at = HEADER_BYTES + self.csrcs.len();
        target[HEADER_BYTES..at].copy_from_slice(self.csrcs);
        if let Some(Extension { profile, data }) = self.extension {
            assert!(data.len().is_multiple_of(4), "an extension consists of whole words");
            let words = u16::try_from(data.len() / 4).expect("an extension has at most 65,535 words");
            target[at..at + 2].copy_from_slice(&profile.to_be_bytes());
            target[at + 2..at + 4].copy_from_slice(&words.to_be_bytes());
            target[at + 4..at + 4 + data.len()].copy_from_slice(data);
        }
        self.length()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_with_all_parts_is_read_and_written() {
        let packet = [
            &[0xb2, 0xe0, 0x12, 0x34, 0, 0, 0, 160, 0xde, 0xad, 0xbe, 0xef][..],
            &[0, 0, 0, 1, 0, 0, 0, 2],
            &[0xbe, 0xde, 0, 1, 9, 8, 7, 6],
            &[1, 2, 3, 0, 0, 3],
        ]
        .concat();
        let (header, used) = Header::read(&packet).expect("a packet");
        assert_eq!((header.marker, header.payload_type, header.sequence), (true, 96, 0x1234));
        assert_eq!((header.timestamp, header.ssrc, header.csrcs.len()), (160, 0xdead_beef, 8));
        assert_eq!(header.extension, Some(Extension { profile: 0xbede, data: &[9, 8, 7, 6] }));
        assert_eq!((used, header.length(), header.payload(&packet[used..])), (28, 28, &[1, 2, 3][..]));
        let mut again = [0; 28];
        assert_eq!(header.write(&mut again), 28);
        assert_eq!(again, packet[..28]);
    }

    #[test]
    fn each_violated_rule_is_named() {
        let plain = [0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7];
        let with = |first: u8, rest: &[u8]| {
            let mut packet = plain.to_vec();
            packet[0] = first;
            packet.extend_from_slice(rest);
            Header::read(&packet).map(|(_, used)| used)
        };
        for (first, rest, expected) in [
            (0x80, &[][..], Ok(12)),
            (0x40, &[], Err(Malformed::Version)),
            (0x81, &[0; 3], Err(Malformed::HeaderLength)),
            (0x90, &[0; 3], Err(Malformed::HeaderLength)),
            (0x90, &[0, 0, 0, 1, 0, 0, 0], Err(Malformed::HeaderLength)),
            (0x90, &[0, 0, 0, 1, 0, 0, 0, 0], Ok(20)),
            (0xa0, &[], Err(Malformed::ParameterLength)),
            (0xa0, &[0], Err(Malformed::ParameterLength)),
            (0xa0, &[0, 3], Err(Malformed::ParameterLength)),
            (0xa0, &[0, 2], Ok(12)),
        ] {
            assert_eq!(with(first, rest), expected, "{first:#x} {rest:?}");
        }
        assert_eq!(Header::read(&plain[..11]), Err(Malformed::Truncated));
    }
}
