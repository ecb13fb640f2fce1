//! Reads and writes the fields of an entry, in native byte order.

use crate::rnic::{Access, Sge, Sges};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Maximum number of scatter/gather elements in an entry.
pub const SGES_MAX: usize = 32;

/// An entry that is being written.
#[derive(Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn u8(&mut self, value: u8) -> &mut Writer {
        self.0.push(value);
        self
    }

    pub(super) fn u16(&mut self, value: u16) -> &mut Writer {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Writer {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Writer {
        self.0.extend(value.to_ne_bytes());
        self
    }

    /// Writes bytes with their length.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Writer {
        self.u16(bytes.len() as u16).0.extend_from_slice(bytes);
        self
    }

    pub(super) fn option(&mut self, value: Option<u64>) -> &mut Writer {
        self.u8(value.is_some().into()).u64(value.unwrap_or(0))
    }

    pub(super) fn address(&mut self, address: Option<SocketAddr>) -> &mut Writer {
        match address {
            None => self.u8(0),
            Some(SocketAddr::V4(address)) => self.u8(4).u32(address.ip().to_bits()).u16(address.port()),
            Some(SocketAddr::V6(address)) => {
                self.u8(6).0.extend(address.ip().octets());
                self.u16(address.port())
            }
        }
    }

    pub(super) fn access(&mut self, access: Access) -> &mut Writer {
        let Access { local_write, remote_write, remote_read, remote_atomic, bind } = access;
        self.flags(&[local_write, remote_write, remote_read, remote_atomic, bind])
    }

    /// Writes up to eight flags, the first one in the lowest bit.
    pub(super) fn flags(&mut self, flags: &[bool]) -> &mut Writer {
        self.u8(flags.iter().rev().fold(0, |bits, flag| bits << 1 | u8::from(*flag)))
    }

    pub(super) fn sges(&mut self, sges: &Sges) -> &mut Writer {
        self.u8(sges.len() as u8);
        for sge in sges {
            self.u32(sge.stag).u64(sge.address).u32(sge.length);
        }
        self
    }
}

/// An entry that is being read. A copy, since the other side may change the shared one at any time.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*front)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_ne_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_ne_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        self.u8().map(|value| value != 0)
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        let (front, rest) = self.0.split_at_checked(length.into())?;
        self.0 = rest;
        Some(front)
    }

    pub(super) fn option(&mut self) -> Option<Option<u64>> {
        let (is_some, value) = (self.flag()?, self.u64()?);
        Some(is_some.then_some(value))
    }

    pub(super) fn address(&mut self) -> Option<Option<SocketAddr>> {
        let ip: IpAddr = match self.u8()? {
            0 => return Some(None),
            4 => Ipv4Addr::from_bits(self.u32()?).into(),
            6 => Ipv6Addr::from(self.take::<16>()?).into(),
            _ => return None,
        };
        Some(Some(SocketAddr::new(ip, self.u16()?)))
    }

    pub(super) fn access(&mut self) -> Option<Access> {
        let [local_write, remote_write, remote_read, remote_atomic, bind] = self.flags()?;
        Some(Access { local_write, remote_write, remote_read, remote_atomic, bind })
    }

    pub(super) fn flags<const N: usize>(&mut self) -> Option<[bool; N]> {
        let bits = self.u8()?;
        Some(core::array::from_fn(|at| bits >> at & 1 != 0))
    }

    pub(super) fn sges(&mut self) -> Option<Sges> {
        let count = usize::from(self.u8()?);
        if count > SGES_MAX {
            return None;
        }
        let mut sges = Sges::new();
        for _ in 0..count {
            sges.push(Sge { stag: self.u32()?, address: self.u64()?, length: self.u32()? });
        }
        Some(sges)
    }
}
