//! A TCP connection of the kernel as a carrier of messages: one peer, called or waited for.
//!
//! Goal      bytes in and out without blocking; a message is read when it is whole, and written whole or not at all.
//! Doors     the link's file is an epoll of its own: it can be read when somebody calls, when something has arrived, and
//!           when there is room for what waits to leave. So it stays the same before and after a peer has come.
//! Limits    [`WAITING_BYTES`] wait to leave: with more, messages are refused. [`ROOM_BYTES`] are read ahead.
//! End       when the peer closes, or the connection breaks, the link is gone; a listener takes one peer.

use super::interface::bind_remedy;
use rustix::event::epoll::{self, EventData, EventFlags};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Bytes that wait to leave, beyond which no message is taken.
const WAITING_BYTES: usize = 256 << 10;
/// Bytes that are read ahead; the longest message fits.
const ROOM_BYTES: usize = 256 << 10;
/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Which end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Waits for a peer at its own address.
    Listen,
    /// Calls the peer.
    Call,
}

/// A connection, or the wait for it.
pub(super) struct Connection {
    doors: OwnedFd,
    listener: Option<TcpListener>,
    stream: Option<TcpStream>,
    /// Whether the doors look for room.
    looks_for_room: bool,
    /// What has arrived stands here from `read` to `end`.
    room: Box<[u8]>,
    read: usize,
    end: usize,
    leaving: Vec<u8>,
    written: usize,
    name: String,
    local: SocketAddr,
}

impl Connection {
    /// Listens at an address, or calls it.
    pub(super) fn open(role: Role, addresses: &[SocketAddr], name: String) -> io::Result<Connection> {
        let doors = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let say = |what: &str, error: io::Error| {
            let more = match (role, error.kind()) {
                (Role::Call, io::ErrorKind::ConnectionRefused) => {
                    ": nobody listens there; start the other end first".to_owned()
                }
                (Role::Listen, _) => {
                    addresses.first().map_or_else(String::new, |local| bind_remedy(*local, &error))
                }
                _ => String::new(),
            };
            io::Error::new(error.kind(), format!("{name}: cannot {what}: {error}{more}"))
        };
        let (mut listener, mut stream) = (None, None);
        let local = match role {
            Role::Listen => {
                let open = TcpListener::bind(addresses).map_err(|error| say("listen", error))?;
                open.set_nonblocking(true)?;
                epoll::add(&doors, &open, EventData::new_u64(0), EventFlags::IN)?;
                let local = open.local_addr()?;
                listener = Some(open);
                local
            }
            Role::Call => {
                let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
                let mut open = None;
                for address in addresses {
                    match TcpStream::connect_timeout(address, CALL_TIMEOUT) {
                        Ok(stream) => {
                            open = Some(stream);
                            break;
                        }
                        Err(error) => last = error,
                    }
                }
                let open = open.ok_or(last).map_err(|error| say("connect", error))?;
                let local = open.local_addr()?;
                stream = Some(open);
                local
            }
        };
        let mut connection = Connection {
            doors,
            listener,
            stream: None,
            looks_for_room: false,
            room: vec![0; ROOM_BYTES].into_boxed_slice(),
            read: 0,
            end: 0,
            leaving: Vec::new(),
            written: 0,
            name,
            local,
        };
        if let Some(stream) = stream {
            connection.take(stream)?;
        }
        Ok(connection)
    }

    fn take(&mut self, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        epoll::add(&self.doors, &stream, EventData::new_u64(1), EventFlags::IN)?;
        self.stream = Some(stream);
        // One peer: others are turned away by the system.
        self.listener = None;
        Ok(())
    }

    /// Its own address.
    pub(super) fn local(&self) -> SocketAddr {
        self.local
    }

    /// The file to wait for.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.doors.as_fd()
    }

    /// An error that ends the link.
    pub(super) fn gone(&self, kind: io::ErrorKind, what: impl std::fmt::Display) -> io::Error {
        io::Error::new(kind, format!("{}: {what}", self.name))
    }

    /// Takes a peer that calls, writes what waits, reads what has arrived behind what [has](Connection::arrived) and was not
    /// consumed: whether there is more of it now.
    pub(super) fn fill(&mut self) -> io::Result<bool> {
        if let Some(listener) = &self.listener {
            match listener.accept() {
                Ok((stream, _)) => self.take(stream)?,
                Err(error) if is_for_later(&error) => return Ok(false),
                Err(error) => return Err(self.gone(error.kind(), format!("cannot accept: {error}"))),
            }
        }
        self.flush()?;
        self.room.copy_within(self.read..self.end, 0);
        (self.read, self.end) = (0, self.end - self.read);
        let Some(stream) = &mut self.stream else { return Ok(false) };
        if self.end == self.room.len() {
            return Ok(false);
        }
        let result = loop {
            match stream.read(&mut self.room[self.end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result,
            }
        };
        match result {
            Ok(0) => {
                let within = if self.end > 0 { " within a message" } else { "" };
                let what = format!("the peer has closed the connection{within}");
                Err(self.gone(io::ErrorKind::UnexpectedEof, what))
            }
            Ok(count) => {
                self.end += count;
                Ok(true)
            }
            Err(error) if is_for_later(&error) => Ok(false),
            Err(error) => Err(self.gone(error.kind(), format!("the connection has broken: {error}"))),
        }
    }

    /// What has arrived and was not consumed.
    pub(super) fn arrived(&self) -> &[u8] {
        &self.room[self.read..self.end]
    }

    /// So many bytes of it have been read.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.read += bytes;
    }

    /// Whether a message can be put now.
    pub(super) fn has_room(&self) -> bool {
        self.stream.is_some() && self.leaving.len() - self.written < WAITING_BYTES
    }

    /// Whether there is a peer.
    pub(super) fn is_open(&self) -> bool {
        self.stream.is_some()
    }

    /// Where the next message is appended, if there [is room](Connection::has_room).
    pub(super) fn leaving(&mut self) -> &mut Vec<u8> {
        &mut self.leaving
    }

    /// Writes what the system takes now.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        while self.written < self.leaving.len() {
            match stream.write(&self.leaving[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_for_later(&error) => break,
                Err(error) => {
                    return Err(self.gone(error.kind(), format!("the connection has broken: {error}")));
                }
            }
        }
        if self.written == self.leaving.len() {
            self.leaving.clear();
            self.written = 0;
        } else if self.written > WAITING_BYTES {
            self.leaving.drain(..self.written);
            self.written = 0;
        }
        let wants = !self.leaving.is_empty();
        if wants != self.looks_for_room {
            let flags = if wants { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            epoll::modify(&self.doors, stream, EventData::new_u64(1), flags)?;
            self.looks_for_room = wants;
        }
        Ok(())
    }
}

/// Whether the same call may succeed later: also when the system has no memory at the moment.
fn is_for_later(error: &io::Error) -> bool {
    let has_nothing = [libc::ENOMEM, libc::ENOBUFS];
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted)
        || error.raw_os_error().is_some_and(|error| has_nothing.contains(&error))
}
