//! Ethernet II (IEEE 802.3 §3.2), for bridged circuits and TAP links.
//!
//! ```text
//! | target 6 | source 6 | EtherType 2 | payload
//! ```
//!
//! Limits    preamble and FCS are left to the link; a VLAN tag appears as EtherType 8100.

use core::fmt;

use crate::Malformed;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 14;

/// A 48-bit address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The broadcast address.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// Returns whether this is a group address (multicast or broadcast).
    #[inline]
    pub const fn is_group(&self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl core::str::FromStr for Mac {
    type Err = Malformed;

    /// Parses six hexadecimal octets separated by colons.
    fn from_str(word: &str) -> Result<Mac, Malformed> {
        let mut octets = [0; 6];
        let mut words = word.split(':');
        for octet in &mut octets {
            let word = words.next().ok_or(Malformed::Truncated)?;
            *octet = u8::from_str_radix(word, 16).map_err(|_| Malformed::AddressLength)?;
        }
        if words.next().is_some() { Err(Malformed::AddressLength) } else { Ok(Mac(octets)) }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Destination address.
    pub target: Mac,
    /// Source address.
    pub source: Mac,
    /// EtherType, see [`crate::numbers::ether_type`]; values up to 1500 are an 802.3 length.
    pub ether_type: u16,
}

impl Header {
    /// Reads the header at the front of a frame and returns it with its length.
    ///
    /// # Errors
    /// [`Malformed::Truncated`] if `bytes` is shorter than the header.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<(Header, usize), Malformed> {
        let Some(&[t0, t1, t2, t3, t4, t5, s0, s1, s2, s3, s4, s5, e0, e1]) =
            bytes.first_chunk::<HEADER_BYTES>()
        else {
            return Err(Malformed::Truncated);
        };
        let target = Mac([t0, t1, t2, t3, t4, t5]);
        let source = Mac([s0, s1, s2, s3, s4, s5]);
        Ok((Header { target, source, ether_type: u16::from_be_bytes([e0, e1]) }, HEADER_BYTES))
    }

    /// Returns the length of the header, always [`HEADER_BYTES`].
    #[inline]
    pub const fn length(&self) -> usize {
        HEADER_BYTES
    }

    /// Writes the header at the front of `target` and returns its length.
    ///
    /// # Panics
    /// If `target` is shorter than the header.
    #[inline]
    pub fn write(&self, target: &mut [u8]) -> usize {
        let bytes =
            target.first_chunk_mut::<HEADER_BYTES>().expect("room for an Ethernet header of 14 bytes");
        bytes[..6].copy_from_slice(&self.target.0);
        bytes[6..12].copy_from_slice(&self.source.0);
        bytes[12..].copy_from_slice(&self.ether_type.to_be_bytes());
        HEADER_BYTES
    }
}
