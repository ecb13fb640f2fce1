//! The IPv6 header (RFC 8200 §3).
//!
//! ```text
//! | version 4, class 8, flow label 20 | payload length 16 | next header 8 | hop limit 8 | source 128 | target 128 |
//! ```
//!
//! Not implemented  extension headers are returned as `next_header`, see [`crate::wire::ipv6_extension`];
//!                  jumbograms (RFC 2675).

use core::net::Ipv6Addr;

use kiban_base::Malformed;

/// Length of the header, bytes.
pub const HEADER_BYTES: usize = 40;

/// The fixed header of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// DSCP in the high six bits (RFC 2474), ECN in the low two (RFC 3168).
    pub traffic_class: u8,
    /// Flow label, 20 bits (RFC 6437).
    pub flow_label: u32,
    /// Payload length, bytes, including extension headers.
    pub payload_bytes: u16,
    /// Protocol number of the next header (see [`kiban_base::numbers::protocol`]).
    pub next_header: u8,
    /// Number of hops left.
    pub hop_limit: u8,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub target: Ipv6Addr,
}

impl Header {
    /// Decodes the header at the front of a packet. Bytes after the payload length are link padding and are
    /// ignored.
    ///
    /// # Errors
    /// `Truncated`; `Version`; `TotalLength` if the payload length exceeds the bytes given.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<(Header, usize), Malformed> {
        let (header, header_bytes) = Header::read_quoted(bytes)?;
        if usize::from(header.payload_bytes) > bytes.len() - header_bytes {
            return Err(Malformed::TotalLength);
        }
        Ok((header, header_bytes))
    }

    /// Decodes the header of a packet that may be cut off, as quoted in an ICMPv6 error (RFC 4443 §2.4).
    ///
    /// # Errors
    /// `Truncated`; `Version`.
    #[inline]
    pub fn read_quoted(bytes: &[u8]) -> Result<(Header, usize), Malformed> {
        let Some(fixed) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(Malformed::Truncated);
        };
        let [w0, w1, w2, w3, l0, l1, next_header, hop_limit, addresses @ ..] = fixed;
        let word = u32::from_be_bytes([*w0, *w1, *w2, *w3]);
        if word >> 28 != 6 {
            return Err(Malformed::Version);
        }
        let payload_bytes = u16::from_be_bytes([*l0, *l1]);
        let (source, target) = addresses.split_at(16);
        let header = Header {
            traffic_class: (word >> 20) as u8,
            flow_label: word & 0xf_ffff,
            payload_bytes,
            next_header: *next_header,
            hop_limit: *hop_limit,
            source: address(source),
            target: address(target),
        };
        Ok((header, HEADER_BYTES))
    }

    /// Returns [`HEADER_BYTES`].
    #[inline]
    pub const fn length(&self) -> usize {
        HEADER_BYTES
    }

    /// Writes the header at the front of `target`. Only the low 20 bits of the flow label are written.
    /// Returns the number of bytes written.
    ///
    /// # Panics
    /// If `target` is shorter than the header.
    #[inline]
    pub fn write(&self, target: &mut [u8]) -> usize {
        let bytes = target.first_chunk_mut::<HEADER_BYTES>().expect("room for an IPv6 header of 40 bytes");
        let word = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        bytes[..4].copy_from_slice(&word.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.payload_bytes.to_be_bytes());
        bytes[6] = self.next_header;
        bytes[7] = self.hop_limit;
        bytes[8..24].copy_from_slice(&self.source.octets());
        bytes[24..].copy_from_slice(&self.target.octets());
        HEADER_BYTES
    }
}

/// Overwrites the payload length of a header.
#[inline]
pub fn set_payload_bytes(header: &mut [u8], payload_bytes: u16) {
    header[4..6].copy_from_slice(&payload_bytes.to_be_bytes());
}

#[inline]
fn address(bytes: &[u8]) -> Ipv6Addr {
    Ipv6Addr::from(*bytes.first_chunk::<16>().expect("split into halves of 16"))
}
