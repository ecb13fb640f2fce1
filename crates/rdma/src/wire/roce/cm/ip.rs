//! Addresses and ports in the private data of RDMA-CM (IBTA Annex A11).
//!
//! ```text
//!  0  major version 4 | minor version 4 | IP version 4 | reserved 4 | source port 16
//!  4  source address 128
//! 20  destination address 128
//! ```
//!
//! An IPv4 address is in the last four octets. The destination port is in the service id ([`PortSpace`]).

use super::super::mad::{octets, short};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use kiban_base::Malformed;

/// A port space of RDMA-CM: its number is in the service id, before the port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u16)]
pub enum PortSpace {
    /// Connections, `RDMA_PS_TCP`.
    Tcp = 0x0106,
    /// Datagrams, `RDMA_PS_UDP`.
    Udp = 0x0111,
    /// Connections of any kind, `RDMA_PS_IB`: XRC has no other.
    Ib = 0x013f,
}

impl PortSpace {
    /// Returns the service id of a port (IBTA §A11.2).
    pub const fn service_id(self, port: u16) -> u64 {
        (self as u64) << 16 | port as u64
    }

    /// Returns the port space and port of a service id; `None` if it is not one of RDMA-CM's.
    pub const fn of_service(service_id: u64) -> Option<(PortSpace, u16)> {
        match service_id >> 16 {
            0x0106 => Some((PortSpace::Tcp, service_id as u16)),
            0x0111 => Some((PortSpace::Udp, service_id as u16)),
            0x013f => Some((PortSpace::Ib, service_id as u16)),
            _ => None,
        }
    }
}

/// The addresses of a connection, in front of the consumer's private data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpCm {
    /// The port of the active side.
    pub source_port: u16,
    /// The address of the active side.
    pub source: IpAddr,
    /// The address of the passive side, of the same version.
    pub destination: IpAddr,
}

impl IpCm {
    /// Length of the header in bytes.
    pub const BYTES: usize = 36;

    /// Decodes the header.
    ///
    /// # Errors
    /// `Truncated`; `Version` unless the version is 0.0; `AddressLength` for another IP version than 4 and 6.
    pub fn read(bytes: &[u8]) -> Result<(IpCm, usize), Malformed> {
        let Some(bytes) = bytes.first_chunk::<{ IpCm::BYTES }>() else { return Err(Malformed::Truncated) };
        if bytes[0] != 0 {
            return Err(Malformed::Version);
        }
        let address: fn(&[u8], usize) -> IpAddr = match bytes[1] >> 4 {
            4 => |bytes, at| Ipv4Addr::from(octets::<4>(bytes, at + 12)).into(),
            6 => |bytes, at| Ipv6Addr::from(octets::<16>(bytes, at)).into(),
            _ => return Err(Malformed::AddressLength),
        };
        let header =
            IpCm { source_port: short(bytes, 2), source: address(bytes, 4), destination: address(bytes, 20) };
        Ok((header, IpCm::BYTES))
    }

    /// Returns [`IpCm::BYTES`].
    pub const fn length(&self) -> usize {
        IpCm::BYTES
    }

    /// Writes the header. The source decides the IP version.
    ///
    /// # Panics
    /// If `target` is shorter than the header.
    pub fn write(&self, target: &mut [u8]) -> usize {
        let bytes = target.first_chunk_mut::<{ IpCm::BYTES }>().expect("room for an IP CM header");
        bytes.fill(0);
        bytes[1] = if self.source.is_ipv4() { 4 << 4 } else { 6 << 4 };
        bytes[2..4].copy_from_slice(&self.source_port.to_be_bytes());
        for (at, address) in [(4, self.source), (20, self.destination)] {
            match address {
                IpAddr::V4(address) => bytes[at + 12..at + 16].copy_from_slice(&address.octets()),
                IpAddr::V6(address) => bytes[at..at + 16].copy_from_slice(&address.octets()),
            }
        }
        IpCm::BYTES
    }
}
