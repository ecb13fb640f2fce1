//! Units in datagrams of Unix sockets, as QEMU's `-netdev dgram` carries frames.
//!
//! ```text
//! | unit |     one datagram per unit
//! ```
//!
//! Sockets          one is bound to the link's path and receives. Another is connected to the peer's path and
//!                  sends: only a connected socket becomes writable when there is room in the peer's queue
//!                  again.
//! File             an epoll instance, as in `connection`.
//! Peer             units for a peer that does not exist yet are dropped and counted (`no_peer`). The next
//!                  unit connects again, so a virtual machine can restart.
//! Access           only this user and root can write to the socket at the link's path.
//! Limits           the system's queue holds few datagrams (`net.unix.max_dgram_qlen`); units for which it
//!                  has no room stay with the caller.
//! Not implemented  offloads: a unit is a packet.

use super::udp_cells::with_name;
use crate::unit::{LONGEST_BYTES, ReceivePage, Unit, UnitError};
use crate::{BURST, Link, LinkContext, LinkCounters, LinkTraits};
use kiban_os::unix::{Peer, SocketPath};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// A link over datagrams of Unix sockets.
pub struct UnixDatagrams<U> {
    epoll: OwnedFd,
    /// Dropped before the socket.
    _path: SocketPath,
    /// Receives at the link's path.
    socket: Peer,
    /// Sends to the peer, if it exists.
    sender: Option<UnixDatagram>,
    peer: PathBuf,
    name: String,
    mtu_bytes: usize,
    page: ReceivePage,
    received: Box<[u8]>,
    sent: Vec<u8>,
    /// Whether the epoll watches for room to send.
    looks_for_room: bool,
    counters: LinkCounters,
    unit: PhantomData<fn() -> U>,
}

impl<U> UnixDatagrams<U> {
    /// Receives at one path and sends to another. The MTU is reported to the port.
    ///
    /// # Errors
    /// Another process receives at the link's path, or another file is there.
    pub fn open(local: &Path, peer: &Path, name: &str, mtu_bytes: usize) -> io::Result<UnixDatagrams<U>> {
        let bind = || -> io::Result<(SocketPath, Peer)> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
            let socket = Peer::new(socket)?;
            Ok((SocketPath::bind(socket.as_fd(), local)?, socket))
        };
        let (path, socket) = bind().map_err(|error| with_name(name, error))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &socket, EventData::new_u64(0), EventFlags::IN)?;
        Ok(UnixDatagrams {
            epoll,
            _path: path,
            socket,
            sender: None,
            peer: peer.to_owned(),
            name: name.to_owned(),
            mtu_bytes,
            page: ReceivePage::default(),
            // One more byte shows that a datagram was cut.
            received: vec![0; LONGEST_BYTES + 1].into_boxed_slice(),
            sent: Vec::new(),
            looks_for_room: false,
            counters: LinkCounters::default(),
            unit: PhantomData,
        })
    }

    /// Sends the unit in the buffer. Returns false if the peer's queue is full.
    fn send_one(&mut self) -> io::Result<bool> {
        // A peer that has ended may have a successor at the same path.
        for _ in 0..2 {
            let sender = match &self.sender {
                Some(sender) => sender,
                None => {
                    let sender = UnixDatagram::unbound()?;
                    sender.set_nonblocking(true)?;
                    if sender.connect(&self.peer).is_err() {
                        break;
                    }
                    self.sender.insert(sender)
                }
            };
            match sender.send(&self.sent) {
                Ok(_) => {
                    self.counters.units_out += 1;
                    self.counters.bytes_out += self.sent.len() as u64;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
                    self.counters.send_errors += 1;
                    return Ok(true);
                }
                Err(_) => {
                    self.look_for_room(false)?;
                    self.sender = None;
                }
            }
        }
        self.counters.no_peer += 1;
        Ok(true)
    }

    /// Sets whether the link's file becomes readable once the peer's queue has room.
    fn look_for_room(&mut self, looks: bool) -> io::Result<()> {
        if let Some(sender) = self.sender.as_ref().filter(|_| self.looks_for_room != looks) {
            match looks {
                true => epoll::add(&self.epoll, sender, EventData::new_u64(1), EventFlags::OUT)?,
                false => epoll::delete(&self.epoll, sender)?,
            }
            self.looks_for_room = looks;
        }
        Ok(())
    }
}

impl<U: Unit> Link<U> for UnixDatagrams<U> {
    fn traits(&self) -> LinkTraits {
        LinkTraits { mtu_bytes: self.mtu_bytes, whole_segments: false }
    }

    fn receive(&mut self, lent: &mut LinkContext<'_>, into: &mut VecDeque<U>) -> io::Result<()> {
        for _ in 0..BURST {
            let length = match self.socket.receive(&mut self.received) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Somebody sent a file descriptor.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    self.socket.discard_datagram().map_err(|error| with_name(&self.name, error))?;
                    self.counters.malformed += 1;
                    continue;
                }
                Err(error) => return Err(with_name(&self.name, error)),
            };
            match U::from_received(&self.received[..length], &mut self.page, lent) {
                Ok(unit) => {
                    self.counters.units_in += 1;
                    self.counters.bytes_in += length as u64;
                    into.push_back(unit);
                }
                Err(UnitError::Malformed) => self.counters.malformed += 1,
                Err(UnitError::Starved) => self.counters.no_memory += 1,
            }
        }
        Ok(())
    }

    fn send(&mut self, units: &mut VecDeque<U>, _: &mut LinkContext<'_>) -> io::Result<()> {
        while let Some(unit) = units.front() {
            self.sent.clear();
            unit.append_to(&mut self.sent);
            if !self.send_one()? {
                return self.look_for_room(true);
            }
            units.pop_front();
        }
        self.look_for_room(false)
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn counters(&self) -> LinkCounters {
        self.counters
    }
}

impl<U> std::fmt::Debug for UnixDatagrams<U> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UnixDatagrams({}, {:?})", self.name, self.counters)
    }
}
