//! The IP header fields common to both families, for code that only inspects packets: links that place
//! payload in pages, and links that offload or complete checksums.

use super::{ipv4, ipv6};
use core::net::IpAddr;
use kiban_base::{Malformed, Sum, checksum};

/// Returns the version field of a packet, which selects the decoder; `None` if the packet is empty.
#[inline]
pub fn version(packet: &[u8]) -> Option<u8> {
    packet.first().map(|first| first >> 4)
}

/// The header fields common to both families.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Front {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub target: IpAddr,
    /// Protocol number of what follows the header; with IPv6 this may be an extension header.
    pub protocol: u8,
    /// Length of the header, bytes, including IPv4 options.
    pub header_bytes: usize,
    /// Payload length according to the header, bytes.
    pub payload_bytes: usize,
    /// Whether the IPv4 header marks the packet as a fragment; always false for IPv6.
    pub is_fragment: bool,
}

impl Front {
    /// Decodes the header of a packet that may be cut off after the header. The checksum is not verified.
    ///
    /// # Errors
    /// Same as for [`ipv4::Header::read_quoted`] and [`ipv6::Header::read_quoted`].
    #[inline]
    pub fn read(packet: &[u8]) -> Result<Front, Malformed> {
        if version(packet) == Some(6) {
            let (header, header_bytes) = ipv6::Header::read_quoted(packet)?;
            return Ok(Front {
                source: header.source.into(),
                target: header.target.into(),
                protocol: header.next_header,
                header_bytes,
                payload_bytes: header.payload_bytes.into(),
                is_fragment: false,
            });
        }
        let (header, header_bytes) = ipv4::Header::read_quoted(packet)?;
        Ok(Front {
            source: header.source.into(),
            target: header.target.into(),
            protocol: header.protocol,
            header_bytes,
            payload_bytes: header.payload_bytes(),
            is_fragment: header.is_fragment(),
        })
    }

    /// Returns the sum of the pseudo-header for a transport header and payload of `bytes` bytes.
    #[inline]
    pub fn pseudo(&self, bytes: usize) -> Sum {
        checksum::pseudo(self.source, self.target, self.protocol, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn both_families_give_the_same_header_fields() {
        let four = ipv4::Header {
            traffic_class: 0,
            total_bytes: 124,
            identification: 1,
            dont_fragment: false,
            more_fragments: true,
            fragment_offset_bytes: 0,
            time_to_live: 1,
            protocol: 6,
            source: [10, 0, 0, 1].into(),
            target: [10, 0, 0, 2].into(),
            options: &[1, 1, 1, 0],
        };
        let six = ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_bytes: 100,
            next_header: 6,
            hop_limit: 1,
            source: "2001:db8::1".parse().unwrap(),
            target: "2001:db8::2".parse().unwrap(),
        };
        let mut bytes = vec![0; 40];
        let header_bytes = four.write(&mut bytes);
        let (source, target) = (four.source.into(), four.target.into());
        let front =
            Front { source, target, protocol: 6, header_bytes, payload_bytes: 100, is_fragment: true };
        assert_eq!(Front::read(&bytes), Ok(front));
        assert_eq!(Front::read(&bytes[..23]), Err(Malformed::Truncated));
        let header_bytes = six.write(&mut bytes);
        let (source, target) = (six.source.into(), six.target.into());
        let front = Front { source, target, header_bytes, is_fragment: false, ..front };
        assert_eq!(Front::read(&bytes), Ok(front));
        assert_eq!(front.pseudo(100), checksum::pseudo(source, target, 6, 100));
        assert_eq!(Front::read(&bytes[..39]), Err(Malformed::Truncated));
        assert_eq!(Front::read(&[]), Err(Malformed::Truncated));
        assert_eq!(Front::read(&[0x50; 40]), Err(Malformed::Version));
    }
}
