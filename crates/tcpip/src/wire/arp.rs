//! ARP for IPv4 on Ethernet (RFC 826, RFC 5227).
//!
//! ```text
//! | hardware 16 = 1 | protocol 16 = 0800 | 6 | 4 | operation 16 | sender MAC 6, IPv4 4 | target MAC 6, IPv4 4 |
//! ```
//!
//! Receive path     the packet follows an Ethernet header with EtherType 0x0806; bytes after it are link
//!                  padding.

use core::net::Ipv4Addr;

use kiban_base::{Malformed, ethernet::Mac, numbers::ether_type};

/// Length of a packet, bytes.
pub const PACKET_BYTES: usize = 28;

const HARDWARE_ETHERNET: u16 = 1;

/// The ARP operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Operation {
    /// Asks for the MAC address of the target IPv4 address.
    Request = 1,
    /// Reports the sender's MAC address for the sender's IPv4 address.
    Reply = 2,
}

/// An ARP packet for IPv4 over Ethernet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// The operation.
    pub operation: Operation,
    /// MAC address of the sender.
    pub sender_mac: Mac,
    /// IPv4 address of the sender; unspecified in a probe (RFC 5227 §1.1).
    pub sender: Ipv4Addr,
    /// MAC address of the target; zero in a request.
    pub target_mac: Mac,
    /// IPv4 address of the target; in a request, the address to resolve.
    pub target: Ipv4Addr,
}

impl Packet {
    /// Decodes a packet. Bytes after it are ignored.
    ///
    /// # Errors
    /// `Truncated`; `HardwareType`; `ProtocolType`; `AddressLength`; `Operation`.
    pub fn read(bytes: &[u8]) -> Result<(Packet, usize), Malformed> {
        let Some(bytes) = bytes.first_chunk::<PACKET_BYTES>() else { return Err(Malformed::Truncated) };
        let pair = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let mac = |at: usize| Mac(*bytes[at..].first_chunk().expect("within the packet"));
        let ip = |at: usize| Ipv4Addr::from(*bytes[at..].first_chunk::<4>().expect("within the packet"));
        if pair(0) != HARDWARE_ETHERNET {
            return Err(Malformed::HardwareType);
        }
        if pair(2) != ether_type::IPV4 {
            return Err(Malformed::ProtocolType);
        }
        if bytes[4..6] != [6, 4] {
            return Err(Malformed::AddressLength);
        }
        let operation = match pair(6) {
            1 => Operation::Request,
            2 => Operation::Reply,
            _ => return Err(Malformed::Operation),
        };
        let packet =
            Packet { operation, sender_mac: mac(8), sender: ip(14), target_mac: mac(18), target: ip(24) };
        Ok((packet, PACKET_BYTES))
    }

    /// Returns [`PACKET_BYTES`].
    pub const fn length(&self) -> usize {
        PACKET_BYTES
    }

    /// Writes the packet at the front of `target`. Returns the number of bytes written.
    ///
    /// # Panics
    /// If `target` is shorter than the packet.
    pub fn write(&self, target: &mut [u8]) -> usize {
        let bytes = target.first_chunk_mut::<PACKET_BYTES>().expect("room for an ARP packet of 28 bytes");
        bytes[..2].copy_from_slice(&HARDWARE_ETHERNET.to_be_bytes());
        bytes[2..4].copy_from_slice(&ether_type::IPV4.to_be_bytes());
        bytes[4..6].copy_from_slice(&[6, 4]);
        bytes[6..8].copy_from_slice(&(self.operation as u16).to_be_bytes());
        bytes[8..14].copy_from_slice(&self.sender_mac.0);
        bytes[14..18].copy_from_slice(&self.sender.octets());
        bytes[18..24].copy_from_slice(&self.target_mac.0);
        bytes[24..28].copy_from_slice(&self.target.octets());
        PACKET_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arp_packet_round_trips_and_each_malformed_one_has_a_reason() {
        let packet = Packet {
            operation: Operation::Request,
            sender_mac: Mac([2, 0, 0, 0, 0, 1]),
            sender: Ipv4Addr::new(10, 0, 0, 1),
            target_mac: Mac::default(),
            target: Ipv4Addr::new(10, 0, 0, 2),
        };
        let mut bytes = [0; 60];
        assert_eq!(packet.write(&mut bytes), PACKET_BYTES);
        assert_eq!(bytes[..8], [0, 1, 8, 0, 6, 4, 0, 1]);
        assert_eq!(Packet::read(&bytes), Ok((packet, PACKET_BYTES)));
        assert_eq!(Packet::read(&bytes[..27]), Err(Malformed::Truncated));
        for (at, value, rule) in [
            (1, 6, Malformed::HardwareType),
            (2, 0x86, Malformed::ProtocolType),
            (4, 8, Malformed::AddressLength),
            (5, 16, Malformed::AddressLength),
            (7, 3, Malformed::Operation),
            (7, 0, Malformed::Operation),
        ] {
            let mut wrong = bytes;
            wrong[at] = value;
            assert_eq!(Packet::read(&wrong), Err(rule), "byte {at}");
        }
    }
}
