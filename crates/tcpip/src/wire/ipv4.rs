//! The IPv4 header (RFC 791 §3.1).
//!
//! Purpose          decode and encode the fixed header. Options are returned as bytes, not interpreted; see
//!                  [`crate::wire::ipv4_options`].
//!
//! ```text
//! | version 4, words 4 | class 8 | total length 16 | identification 16 | 0 DF MF, offset/8 13 |
//! | time to live 8 | protocol 8 | checksum 16 | source 32 | target 32 | options 0..40 |
//! ```
//!
//! Checksum         the checksum covers only the header. [`Header::write`] computes it, [`verify`] checks it,
//!                  [`fill`] recomputes it after a field was changed in place. [`Header::read`] does not
//!                  check it, because the link may already have done so.

use core::net::Ipv4Addr;

use kiban_base::{Malformed, checksum};

/// Length of a header without options, bytes.
pub const HEADER_BYTES: usize = 20;
/// Length of the longest header, bytes.
pub const HEADER_BYTES_MAX: usize = 60;
/// Length of the longest packet, bytes.
pub const PACKET_BYTES_MAX: usize = 65535;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

/// An IPv4 header. `options` borrows from the bytes that were decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header<'a> {
    /// DSCP in the high six bits (RFC 2474), ECN in the low two (RFC 3168).
    pub traffic_class: u8,
    /// Total length: header and payload, bytes.
    pub total_bytes: u16,
    /// Identification: common to all fragments of one packet.
    pub identification: u16,
    /// DF: routers must not fragment the packet.
    pub dont_fragment: bool,
    /// MF: more fragments follow this one.
    pub more_fragments: bool,
    /// Fragment offset: where this payload begins in the payload of the original packet, bytes; a multiple of
    /// 8.
    pub fragment_offset_bytes: u16,
    /// TTL: number of hops left.
    pub time_to_live: u8,
    /// Protocol number of the payload (see [`kiban_base::numbers::protocol`]).
    pub protocol: u8,
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub target: Ipv4Addr,
    /// Options with padding: a multiple of 4 bytes, at most 40.
    pub options: &'a [u8],
}

impl<'a> Header<'a> {
    /// Decodes the header at the front of a packet. Bytes after the total length are link padding and are
    /// ignored.
    ///
    /// # Errors
    /// Same as for [`Header::read_quoted`]; `TotalLength` if the total length exceeds the bytes given.
    #[inline]
    pub fn read(bytes: &'a [u8]) -> Result<(Header<'a>, usize), Malformed> {
        let (header, header_bytes) = Header::read_quoted(bytes)?;
        if usize::from(header.total_bytes) > bytes.len() {
            return Err(Malformed::TotalLength);
        }
        Ok((header, header_bytes))
    }

    /// Decodes the header of a packet that may be cut off, as quoted in an ICMP error (RFC 792).
    ///
    /// # Errors
    /// `Truncated`; `Version`; `HeaderLength` (RFC 791 §3.1: at least 5 words); `TotalLength`;
    /// `FragmentRange`.
    #[inline]
    pub fn read_quoted(bytes: &'a [u8]) -> Result<(Header<'a>, usize), Malformed> {
        let Some((fixed, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(Malformed::Truncated);
        };
        let [first, traffic_class, l0, l1, i0, i1, f0, f1, time_to_live, protocol, _, _, addresses @ ..] =
            fixed;
        if first >> 4 != 4 {
            return Err(Malformed::Version);
        }
        let header_bytes = usize::from(first & 0x0f) * 4;
        let options = match header_bytes {
            HEADER_BYTES => &[][..],
            ..HEADER_BYTES => return Err(Malformed::HeaderLength),
            _ => rest.get(..header_bytes - HEADER_BYTES).ok_or(Malformed::Truncated)?,
        };
        let total_bytes = u16::from_be_bytes([*l0, *l1]);
        if usize::from(total_bytes) < header_bytes {
            return Err(Malformed::TotalLength);
        }
        let fragment = u16::from_be_bytes([*f0, *f1]);
        let fragment_offset_bytes = (fragment & OFFSET) * 8;
        // RFC 791 §3.2: a packet has at most 65,535 bytes. A fragment that ends beyond that could overrun a
        // reassembly buffer.
        if usize::from(fragment_offset_bytes) + usize::from(total_bytes) > PACKET_BYTES_MAX {
            return Err(Malformed::FragmentRange);
        }
        let [s0, s1, s2, s3, t0, t1, t2, t3] = *addresses;
        let header = Header {
            traffic_class: *traffic_class,
            total_bytes,
            identification: u16::from_be_bytes([*i0, *i1]),
            dont_fragment: fragment & DONT_FRAGMENT != 0,
            more_fragments: fragment & MORE_FRAGMENTS != 0,
            fragment_offset_bytes,
            time_to_live: *time_to_live,
            protocol: *protocol,
            source: Ipv4Addr::new(s0, s1, s2, s3),
            target: Ipv4Addr::new(t0, t1, t2, t3),
            options,
        };
        Ok((header, header_bytes))
    }

    /// Returns the length of the header with options, bytes.
    #[inline]
    pub const fn length(&self) -> usize {
        HEADER_BYTES + self.options.len()
    }

    /// Returns the payload length: the total length minus the header, bytes.
    #[inline]
    pub const fn payload_bytes(&self) -> usize {
        (self.total_bytes as usize).saturating_sub(self.length())
    }

    /// Returns whether the packet is a fragment.
    #[inline]
    pub const fn is_fragment(&self) -> bool {
        self.more_fragments || self.fragment_offset_bytes != 0
    }

    /// Writes the header, including its checksum, at the front of `target`. Returns the number of bytes
    /// written.
    ///
    /// # Panics
    /// If `target` is shorter than [`Header::length`], or `options` is longer than 40 bytes or not a multiple
    /// of 4.
    #[inline]
    pub fn write(&self, target: &mut [u8]) -> usize {
        let header_bytes = self.length();
        assert!(
            header_bytes <= HEADER_BYTES_MAX && header_bytes.is_multiple_of(4),
            "options must be padded to a multiple of 4 bytes, at most 40"
        );
        let (fixed, options) = target[..header_bytes]
            .split_first_chunk_mut::<HEADER_BYTES>()
            .expect("length counts the fixed part");
        let pair = |high: u16, low: u16| u32::from(high) << 16 | u32::from(low);
        let first = u16::from_be_bytes([0x40 | (header_bytes / 4) as u8, self.traffic_class]);
        let life = u16::from_be_bytes([self.time_to_live, self.protocol]);
        let fragment = if self.dont_fragment { DONT_FRAGMENT } else { 0 }
            | if self.more_fragments { MORE_FRAGMENTS } else { 0 }
            | (self.fragment_offset_bytes / 8);
        let mut words = [
            pair(first, self.total_bytes),
            pair(self.identification, fragment),
            pair(life, 0),
            self.source.to_bits(),
            self.target.to_bits(),
        ];
        // The checksum is computed from the values: reading back bytes that were just stored one by one would
        // stall the CPU.
        let sum = checksum::of_words(&words).plus(checksum::of_header(self.options));
        words[2] |= u32::from(sum.checksum());
        let (places, _) = fixed.as_chunks_mut::<4>();
        for (place, word) in places.iter_mut().zip(words) {
            *place = word.to_be_bytes();
        }
        options.copy_from_slice(self.options);
        header_bytes
    }
}

/// Returns the destination address from the first 20 bytes of a packet, without validating anything.
#[inline]
pub fn target(fixed: &[u8; HEADER_BYTES]) -> Ipv4Addr {
    let [.., t0, t1, t2, t3] = *fixed;
    Ipv4Addr::new(t0, t1, t2, t3)
}

/// Returns the length of a header with its options, in bytes, as its first byte states. The header has not
/// been checked: this many bytes must be contiguous before it is decoded.
///
/// # Panics
/// If `packet` is empty.
#[inline]
pub fn header_bytes(packet: &[u8]) -> usize {
    usize::from(packet[0] & 0x0f) * 4
}

/// Returns whether two headers without options differ at most in total length, identification and checksum,
/// so that the packets may be parts of one larger packet.
#[inline]
pub fn may_be_joined(one: &[u8; HEADER_BYTES], other: &[u8; HEADER_BYTES]) -> bool {
    one[..2] == other[..2] && one[6..10] == other[6..10] && one[12..] == other[12..]
}

/// Overwrites the total length of a header. The caller must call [`fill`] afterwards to correct the checksum.
///
/// # Panics
/// If `header` is shorter than 20 bytes.
#[inline]
pub fn set_total_bytes(header: &mut [u8], total_bytes: u16) {
    header[2..4].copy_from_slice(&total_bytes.to_be_bytes());
}

/// Overwrites the identification of a header. [`fill`] must correct the checksum afterwards.
///
/// # Panics
/// If `header` is shorter than 20 bytes.
#[inline]
pub fn set_identification(header: &mut [u8], identification: u16) {
    header[4..6].copy_from_slice(&identification.to_be_bytes());
}

/// Overwrites the checksum of a header with one that the caller has computed.
#[inline]
pub fn set_checksum(header: &mut [u8], checksum: u16) {
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// Recomputes the checksum of a header with its options.
///
/// # Panics
/// If `header` is shorter than 20 bytes.
#[inline]
pub fn fill(header: &mut [u8]) {
    set_checksum(header, 0);
    let checksum = checksum::of_header(header).checksum();
    set_checksum(header, checksum);
}

/// Verifies the checksum of a header. `header` must be exactly the bytes that [`Header::read`] returned as
/// its length.
///
/// # Errors
/// `Checksum` if it does not match.
#[inline]
pub fn verify(header: &[u8]) -> Result<(), Malformed> {
    if checksum::of_header(header).is_intact() { Ok(()) } else { Err(Malformed::Checksum) }
}
