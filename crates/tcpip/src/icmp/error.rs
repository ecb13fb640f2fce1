//! ICMP errors received about our packets, and checks before we send any.
//!
//! Purpose          decode the quoted packet as carefully as one from the wire, to find the session or socket
//!                  it belongs to. Nothing else in it is trusted: any host that guesses addresses and ports
//!                  can forge it, so TCP checks the sequence number as well (RFC 5927 §4).

use crate::ip::IcmpErrorKind;
use crate::wire::ip::version;
use crate::wire::{icmp, icmpv6, ipv4, ipv6, ipv6_extension};
use core::net::{IpAddr, SocketAddr};
use kiban_base::numbers::protocol;

/// Number of bytes of the quoted transport header that must be present (RFC 792: the first 64 bits).
pub const TRANSPORT_BYTES: usize = 8;
/// Maximum number of extension headers skipped in a quotation.
const HEADERS_MAX: usize = 8;

/// An ICMP error about one of our packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcmpError {
    /// The kind of error.
    pub kind: IcmpErrorKind,
    /// The host that sent the error.
    pub reporter: IpAddr,
    /// Source of the quoted packet: our address.
    pub source: IpAddr,
    /// Destination of the quoted packet.
    pub target: IpAddr,
    /// Protocol number of the quoted packet.
    pub protocol: u8,
    /// Length of the quoted packet according to its header, bytes.
    pub packet_bytes: usize,
    /// The first bytes of the transport header: the ports (TCP and UDP) and the sequence number (TCP).
    pub transport: [u8; TRANSPORT_BYTES],
}

impl IcmpError {
    /// Returns our address and port (TCP and UDP).
    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(self.source, u16::from_be_bytes([self.transport[0], self.transport[1]]))
    }

    /// Returns the peer's address and port (TCP and UDP).
    pub fn remote(&self) -> SocketAddr {
        SocketAddr::new(self.target, u16::from_be_bytes([self.transport[2], self.transport[3]]))
    }

    /// Returns the sequence number of the segment (TCP).
    pub fn sequence(&self) -> u32 {
        let [_, _, _, _, a, b, c, d] = self.transport;
        u32::from_be_bytes([a, b, c, d])
    }

    /// Returns the identifier and the sequence number of the quoted echo request, if it is one.
    pub fn echo_request(&self) -> Option<(u16, u16)> {
        let request = match (self.protocol, self.source.is_ipv4()) {
            (protocol::ICMP, true) => match icmp::Header::read(&self.transport) {
                Ok((icmp::Header::EchoRequest { identifier, sequence }, _)) => (identifier, sequence),
                _ => return None,
            },
            (protocol::ICMPV6, false) => match icmpv6::Header::read(&self.transport) {
                Ok((icmpv6::Header::EchoRequest { identifier, sequence }, _)) => (identifier, sequence),
                _ => return None,
            },
            _ => return None,
        };
        Some(request)
    }

    /// Returns whether a retry is useless, because a protocol or port is unreachable or, with IPv6,
    /// prohibited (RFC 1122 §4.2.3.9; RFC 5461 §2 classifies the IPv6 errors).
    pub fn is_hard(&self) -> bool {
        match self.kind {
            IcmpErrorKind::Unreachable { code } if self.source.is_ipv4() => matches!(code, 2 | 3),
            IcmpErrorKind::Unreachable { code } => matches!(code, 1 | 4),
            IcmpErrorKind::ParameterProblem { code, .. } => self.source.is_ipv6() && code == 1,
            IcmpErrorKind::FragmentationNeeded { .. } | IcmpErrorKind::TimeExceeded { .. } => false,
        }
    }
}

/// Decodes the quoted beginning of a packet. Returns `None` if it does not identify a session: a later
/// fragment has no transport header.
pub fn read_quoted(bytes: &[u8], kind: IcmpErrorKind, reporter: IpAddr) -> Option<IcmpError> {
    let (source, target, protocol, packet_bytes, at) = match version(bytes)? {
        4 => {
            let (header, length) = ipv4::Header::read_quoted(bytes).ok()?;
            if header.fragment_offset_bytes > 0 {
                return None;
            }
            let total = usize::from(header.total_bytes);
            (header.source.into(), header.target.into(), header.protocol, total, length)
        }
        _ => {
            let (header, length) = ipv6::Header::read_quoted(bytes).ok()?;
            let (protocol, at) = pass_extensions(bytes, header.next_header, length)?;
            let total = ipv6::HEADER_BYTES + usize::from(header.payload_bytes);
            (header.source.into(), header.target.into(), protocol, total, at)
        }
    };
    let transport = *bytes.get(at..)?.first_chunk()?;
    Some(IcmpError { kind, reporter, source, target, protocol, packet_bytes, transport })
}

/// Returns the error for one of our packets whose next hop does not answer, as if a router had sent it (RFC
/// 1122 §2.3.2.2, RFC 4861 §7.2.2).
pub fn undelivered(packet: &[u8]) -> Option<IcmpError> {
    let unreachable = |code| IcmpErrorKind::Unreachable { code };
    let trouble = read_quoted(packet, unreachable(icmp::UNREACHABLE_HOST), IpAddr::from([0; 4]))?;
    // Host unreachable (RFC 792; RFC 4443 §3.1).
    let code = if trouble.source.is_ipv4() { icmp::UNREACHABLE_HOST } else { icmpv6::UNREACHABLE_ADDRESS };
    Some(IcmpError { kind: unreachable(code), reporter: trouble.source, ..trouble })
}

/// Skips extension headers. Returns the protocol behind them and the offset of its header.
fn pass_extensions(bytes: &[u8], first: u8, at: usize) -> Option<(u8, usize)> {
    let (mut next, mut at) = (first, at);
    for _ in 0..HEADERS_MAX {
        let rest = bytes.get(at..)?;
        match next {
            protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS | protocol::ROUTING => {
                at += ipv6_extension::length(rest).ok()?;
                next = *rest.first()?;
            }
            protocol::FRAGMENT => {
                let (fragment, length) = ipv6_extension::Fragment::read(rest).ok()?;
                if fragment.offset_bytes > 0 {
                    return None;
                }
                (next, at) = (fragment.next_header, at + length);
            }
            protocol => return Some((protocol, at)),
        }
    }
    None
}

/// Returns whether the packet is a later fragment or an ICMP error. An ICMP error must not be answered with
/// an error (RFC 1122 §3.2.2, RFC 4443 §2.4(e)).
pub(super) fn is_not_to_be_answered(bytes: &[u8]) -> bool {
    let kind = IcmpErrorKind::Unreachable { code: 0 };
    let nobody = IpAddr::from([0, 0, 0, 0]);
    match version(bytes) {
        Some(4) => {
            let Ok((header, length)) = ipv4::Header::read_quoted(bytes) else { return true };
            let is_error = |rest| icmp::Header::read(rest).is_ok_and(|(header, _)| header.is_error());
            header.fragment_offset_bytes > 0
                || (header.protocol == protocol::ICMP && bytes.get(length..).is_some_and(is_error))
        }
        Some(6) => match read_quoted(bytes, kind, nobody) {
            Some(read) => {
                let redirect = 137;
                read.protocol == protocol::ICMPV6
                    && (icmpv6::Header::read(&read.transport).is_ok_and(|(header, _)| header.is_error())
                        || read.transport[0] == redirect)
            }
            // A broken chain of headers may itself be the error to report.
            None => false,
        },
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn quoted4(protocol: u8, offset: u16, rest: &[u8]) -> Vec<u8> {
        let header = ipv4::Header {
            traffic_class: 0,
            total_bytes: 1500,
            identification: 1,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset_bytes: offset,
            time_to_live: 1,
            protocol,
            source: "10.0.0.1".parse().unwrap(),
            target: "10.0.0.2".parse().unwrap(),
            options: &[],
        };
        let mut bytes = vec![0; 20];
        header.write(&mut bytes);
        bytes.extend_from_slice(rest);
        bytes
    }

    fn quoted6(next_header: u8, rest: &[u8]) -> Vec<u8> {
        let header = ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_bytes: 1460,
            next_header,
            hop_limit: 1,
            source: "2001:db8::1".parse().unwrap(),
            target: "2001:db8::2".parse().unwrap(),
        };
        let mut bytes = vec![0; 40];
        header.write(&mut bytes);
        bytes.extend_from_slice(rest);
        bytes
    }

    const PORTS: [u8; 8] = [0x12, 0x34, 0, 80, 1, 2, 3, 4];

    #[test]
    fn a_quoted_packet_identifies_its_session_or_none() {
        let kind = IcmpErrorKind::Unreachable { code: 1 };
        let reporter: IpAddr = "192.0.2.1".parse().unwrap();
        let mut chained = vec![protocol::FRAGMENT, 0, 1, 4, 0, 0, 0, 0];
        chained.extend([protocol::TCP, 0, 0, 1, 0, 0, 0, 9]);
        chained.extend(PORTS);
        let mut later = chained.clone();
        later[11] = 8 | 1;
        let endless: Vec<u8> = [protocol::DESTINATION_OPTIONS, 0, 1, 4, 0, 0, 0, 0].repeat(20);
        for (bytes, names) in [
            (quoted4(6, 0, &PORTS), true),
            (quoted4(6, 0, &PORTS[..7]), false),
            (quoted4(6, 8, &PORTS), false),
            (quoted6(6, &PORTS), true),
            (quoted6(protocol::DESTINATION_OPTIONS, &chained), true),
            (quoted6(protocol::DESTINATION_OPTIONS, &later), false),
            (quoted6(protocol::DESTINATION_OPTIONS, &endless), false),
            (quoted6(protocol::DESTINATION_OPTIONS, &[6, 255]), false),
            (vec![], false),
            (vec![0x45], false),
        ] {
            let read = read_quoted(&bytes, kind, reporter);
            assert_eq!(read.is_some(), names, "{bytes:?}");
            if let Some(read) = read {
                assert_eq!((read.local().port(), read.remote().port()), (0x1234, 80));
                assert_eq!((read.sequence(), read.packet_bytes), (0x0102_0304, 1500));
            }
        }
    }

    #[test]
    fn hard_errors_are_those_of_rfc_1122() {
        let hard = |bytes: &[u8], kind| read_quoted(bytes, kind, "::1".parse().unwrap()).unwrap().is_hard();
        let (four, six) = (quoted4(6, 0, &PORTS), quoted6(6, &PORTS));
        for code in 0..16 {
            let kind = IcmpErrorKind::Unreachable { code };
            assert_eq!(hard(&four, kind), matches!(code, 2 | 3), "{code}");
            assert_eq!(hard(&six, kind), matches!(code, 1 | 4), "{code}");
        }
        assert!(!hard(&four, IcmpErrorKind::TimeExceeded { code: 0 }));
        assert!(!hard(&four, IcmpErrorKind::FragmentationNeeded { mtu: 1000 }));
    }

    #[test]
    fn errors_and_later_fragments_are_not_answered() {
        let unreachable = [3, 3, 0, 0, 0, 0, 0, 0];
        let echo = [8, 0, 0, 0, 0, 1, 0, 1];
        for (bytes, silent) in [
            (quoted4(1, 0, &unreachable), true),
            (quoted4(1, 0, &echo), false),
            (quoted4(1, 8, &echo), true),
            (quoted4(17, 0, &PORTS), false),
            (quoted6(58, &[1, 4, 0, 0, 0, 0, 0, 0]), true),
            (quoted6(58, &[137, 0, 0, 0, 0, 0, 0, 0]), true),
            (quoted6(58, &[128, 0, 0, 0, 0, 0, 0, 0]), false),
            (quoted6(99, &[]), false),
            (vec![0x45, 0], true),
        ] {
            assert_eq!(is_not_to_be_answered(&bytes), silent, "{bytes:?}");
        }
    }
}
