//! Units (packets, frames or cells) over kernel sockets: on a connection of TCP or of a Unix socket, or in
//! UDP datagrams.
//!
//! ```text
//! connection   | length 4, highest byte first | unit |     as QEMU's and passt's socket networks carry frames
//! UDP          | unit |                                    one datagram per unit, as QEMU's and Dynamips' do
//! ```
//!
//! Purpose          a link that needs no privileges, through anything that carries TCP or UDP: tunnels,
//!                  relays, another program on this host.
//! Contents         units are not inspected.
//! Loss             on a connection, a unit for which there is no room stays with the caller, as
//!                  back-pressure; if no peer has connected yet, the unit is dropped and counted
//!                  (`no_peer`). Over UDP, units are lost when their datagrams are lost.
//! Errors           if a length is 0, or above the length of the longest unit, the peer speaks another
//!                  protocol and the connection ends, and with it the link, unless it listens at a path.
//! Not implemented  offloads: a unit is a packet. Cells over UDP have their own link, [`super::udp_cells`].

use super::connection::{Connection, Role};
use super::datagram::{Datagrams, SendResult};
use super::udp_cells::with_name;
use crate::unit::{LONGEST_BYTES, ReceivePage, Unit, UnitError};
use crate::{BURST, Link, LinkContext, LinkCounters, LinkTraits};
use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

const LENGTH_BYTES: usize = 4;

/// A link over a connection.
pub struct StreamUnits<U> {
    connection: Connection,
    mtu_bytes: usize,
    page: ReceivePage,
    counters: LinkCounters,
    unit: PhantomData<fn() -> U>,
}

impl<U: Unit> StreamUnits<U> {
    /// Waits for a peer, or connects to one. The MTU is reported to the port.
    ///
    /// # Errors
    /// The connection is refused, or the address is in use or does not belong to this host.
    pub fn open(
        role: Role,
        addresses: &[SocketAddr],
        name: &str,
        mtu_bytes: usize,
    ) -> io::Result<StreamUnits<U>> {
        Ok(StreamUnits::over(Connection::open(role, addresses, name.to_owned())?, mtu_bytes))
    }

    /// Waits for a peer at the path of a Unix socket, or connects to it. The MTU is reported to the port.
    ///
    /// # Errors
    /// The connection is refused; another process listens at the path, or another file is there.
    pub fn open_unix(role: Role, path: &Path, name: &str, mtu_bytes: usize) -> io::Result<StreamUnits<U>> {
        Ok(StreamUnits::over(Connection::open_unix(role, path, name.to_owned())?, mtu_bytes))
    }

    fn over(connection: Connection, mtu_bytes: usize) -> StreamUnits<U> {
        StreamUnits {
            connection,
            mtu_bytes,
            page: ReceivePage::default(),
            counters: LinkCounters::default(),
            unit: PhantomData,
        }
    }

    /// Returns the local address; if port 0 was requested, this includes the port that the system chose.
    /// Returns `None` on a Unix socket.
    pub fn local(&self) -> Option<SocketAddr> {
        self.connection.local()
    }
}

impl<U: Unit> Link<U> for StreamUnits<U> {
    fn traits(&self) -> LinkTraits {
        LinkTraits { mtu_bytes: self.mtu_bytes, whole_segments: false }
    }

    fn receive(&mut self, lent: &mut LinkContext<'_>, into: &mut VecDeque<U>) -> io::Result<()> {
        let StreamUnits { connection, page, counters, .. } = self;
        let enough = into.len() + BURST;
        while into.len() < enough {
            let Some((length, rest)) = connection.arrived().split_first_chunk::<LENGTH_BYTES>() else {
                if connection.fill()? { continue } else { break }
            };
            let length = u32::from_be_bytes(*length) as usize;
            if !(1..=LONGEST_BYTES).contains(&length) {
                let what =
                    format!("not a stream of packets, frames or cells: it has a unit of {length} bytes");
                counters.malformed += 1;
                return connection.lose(io::ErrorKind::InvalidData, what);
            }
            let Some(bytes) = rest.get(..length) else { if connection.fill()? { continue } else { break } };
            match U::from_received(bytes, page, lent) {
                Ok(unit) => {
                    counters.units_in += 1;
                    counters.bytes_in += length as u64;
                    into.push_back(unit);
                }
                Err(UnitError::Malformed) => counters.malformed += 1,
                Err(UnitError::Starved) => {
                    // The unit stays in the buffer until there is memory. In the meantime, TCP holds back the
                    // peer.
                    counters.no_memory += 1;
                    break;
                }
            }
            connection.consume(LENGTH_BYTES + length);
        }
        Ok(())
    }

    fn send(&mut self, units: &mut VecDeque<U>, _: &mut LinkContext<'_>) -> io::Result<()> {
        let StreamUnits { connection, counters, .. } = self;
        if !connection.is_open() {
            counters.no_peer += units.len() as u64;
            units.clear();
        }
        while let Some(unit) = units.front() {
            if !connection.has_room() {
                connection.flush()?;
                if !connection.has_room() {
                    return Ok(());
                }
            }
            let length = unit.bytes();
            let leaving = connection.leaving();
            leaving.extend_from_slice(&(length as u32).to_be_bytes());
            unit.append_to(leaving);
            counters.units_out += 1;
            counters.bytes_out += length as u64;
            units.pop_front();
        }
        connection.flush()
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.connection.file())
    }

    fn counters(&self) -> LinkCounters {
        self.counters
    }
}

/// A link over UDP datagrams.
pub struct UdpUnits<U> {
    datagrams: Datagrams,
    name: String,
    mtu_bytes: usize,
    page: ReceivePage,
    buffer: Vec<u8>,
    counters: LinkCounters,
    unit: PhantomData<fn() -> U>,
}

impl<U: Unit> UdpUnits<U> {
    /// Opens a link between two addresses. The MTU is reported to the port.
    ///
    /// # Errors
    /// The address is in use or does not belong to this host.
    pub fn open(
        local: SocketAddr,
        peer: SocketAddr,
        name: &str,
        mtu_bytes: usize,
    ) -> io::Result<UdpUnits<U>> {
        Ok(UdpUnits {
            datagrams: Datagrams::open(local, peer, false)?,
            name: name.to_owned(),
            mtu_bytes,
            page: ReceivePage::default(),
            buffer: Vec::new(),
            counters: LinkCounters::default(),
            unit: PhantomData,
        })
    }

    /// Returns the local address; if port 0 was requested, this includes the port that the system chose.
    pub fn local(&self) -> SocketAddr {
        self.datagrams.local()
    }
}

impl<U: Unit> Link<U> for UdpUnits<U> {
    fn traits(&self) -> LinkTraits {
        LinkTraits { mtu_bytes: self.mtu_bytes, whole_segments: false }
    }

    fn receive(&mut self, lent: &mut LinkContext<'_>, into: &mut VecDeque<U>) -> io::Result<()> {
        let UdpUnits { datagrams, name, page, counters, .. } = self;
        let take =
            |datagram: &[u8], counters: &mut LinkCounters, into: &mut VecDeque<U>| match U::from_received(
                datagram, page, lent,
            ) {
                Ok(unit) => {
                    counters.units_in += 1;
                    counters.bytes_in += datagram.len() as u64;
                    into.push_back(unit);
                }
                Err(UnitError::Malformed) => counters.malformed += 1,
                Err(UnitError::Starved) => counters.no_memory += 1,
            };
        datagrams.each(into, counters, take).map_err(|error| with_name(name, error))
    }

    fn send(&mut self, units: &mut VecDeque<U>, _: &mut LinkContext<'_>) -> io::Result<()> {
        let UdpUnits { datagrams, buffer, counters, .. } = self;
        while let Some(unit) = units.front() {
            buffer.clear();
            unit.append_to(buffer);
            match datagrams.send(buffer, buffer.len()) {
                SendResult::All => {
                    counters.units_out += 1;
                    counters.bytes_out += buffer.len() as u64;
                }
                SendResult::Some(_) => break,
                SendResult::None => counters.send_errors += 1,
            }
            units.pop_front();
        }
        Ok(())
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.datagrams.as_fd())
    }

    fn counters(&self) -> LinkCounters {
        self.counters
    }
}

impl<U> std::fmt::Debug for StreamUnits<U> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StreamUnits({:?}, {:?})", self.connection.local(), self.counters)
    }
}

impl<U> std::fmt::Debug for UdpUnits<U> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UdpUnits({}, {:?})", self.name, self.counters)
    }
}
