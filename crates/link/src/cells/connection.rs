//! Messages over one connection of the kernel, of TCP or of a Unix socket. The link either connects to its
//! peer or waits for it.
//!
//! Purpose          read and write without blocking; a message is read once it is complete, and written
//!                  completely or not at all.
//! File             the link's file is an epoll instance, which is readable when a peer connects, when data
//!                  has arrived, and when there is room for waiting output. The file is therefore the same
//!                  before and after a peer has connected.
//! Limits           at most [`WAITING_BYTES`] of output wait; beyond that, messages are refused. Up to
//!                  [`ROOM_BYTES`] are read ahead.
//! End              when the peer closes, or the connection breaks, the link is gone; a TCP listener accepts
//!                  one peer. A listener at a path stays: the link waits for its next peer, so that a virtual
//!                  machine can restart. While there is a peer, others wait in the listener's backlog.

use kiban_os::interface::bind_remedy;
use kiban_os::unix;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{SendFlags, SocketType};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// If more bytes of output than this are waiting, no message is accepted.
const WAITING_BYTES: usize = 256 << 10;
/// Size of the read buffer, in bytes; it holds the longest message.
const ROOM_BYTES: usize = 256 << 10;
/// Timeout of a connect.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether a link waits for its peer or connects to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Waits for a peer at the link's own address.
    Listen,
    /// Connects to the peer.
    Call,
}

/// A listener.
enum Listener {
    Tcp(TcpListener),
    Unix(unix::Listener),
}

impl Listener {
    fn accept(&self) -> io::Result<Option<Stream>> {
        match self {
            Listener::Tcp(listener) => match listener.accept() {
                Ok((stream, _)) => Ok(Some(Stream::Tcp(stream))),
                Err(error) if is_for_later(&error) => Ok(None),
                Err(error) => Err(error),
            },
            Listener::Unix(listener) => Ok(listener.accept()?.map(Stream::Unix)),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener) => listener.as_fd(),
        }
    }
}

/// A connected socket.
enum Stream {
    Tcp(TcpStream),
    Unix(unix::Peer),
}

impl Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(into),
            Stream::Unix(peer) => peer.receive(into),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(peer) => {
                Ok(rustix::net::send(peer, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
            }
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(peer) => peer.as_fd(),
        }
    }
}

/// A connection, or a listener that waits for one.
pub(crate) struct Connection {
    epoll: OwnedFd,
    listener: Option<Listener>,
    stream: Option<Stream>,
    /// Whether the epoll watches for room to write.
    looks_for_room: bool,
    /// Whether the epoll ignores the listener, because accepting failed.
    is_paused: bool,
    /// The input that has not been consumed is in `room[read..end]`.
    room: Box<[u8]>,
    read: usize,
    end: usize,
    leaving: Vec<u8>,
    written: usize,
    name: String,
    /// `None` on a Unix socket.
    local: Option<SocketAddr>,
}

impl Connection {
    /// Listens at an address, or connects to it.
    pub(crate) fn open(role: Role, addresses: &[SocketAddr], name: String) -> io::Result<Connection> {
        let say = |what: &str, error: io::Error| {
            let more = match (role, error.kind()) {
                (Role::Call, io::ErrorKind::ConnectionRefused) => {
                    ": connection refused; start the other end first".to_owned()
                }
                (Role::Listen, _) => {
                    addresses.first().map_or_else(String::new, |local| bind_remedy(*local, &error))
                }
                _ => String::new(),
            };
            io::Error::new(error.kind(), format!("{name}: cannot {what}: {error}{more}"))
        };
        match role {
            Role::Listen => {
                let open = TcpListener::bind(addresses).map_err(|error| say("listen", error))?;
                open.set_nonblocking(true)?;
                let local = open.local_addr()?;
                Connection::new(Some(Listener::Tcp(open)), None, name, Some(local))
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
                Connection::new(None, Some(Stream::Tcp(open)), name, Some(local))
            }
        }
    }

    /// Listens at a path, where only this user and root can connect, or connects to the listener there.
    pub(crate) fn open_unix(role: Role, path: &Path, name: String) -> io::Result<Connection> {
        let say = |what: &str, error: io::Error| {
            io::Error::new(error.kind(), format!("{name}: cannot {what}: {error}"))
        };
        match role {
            Role::Listen => {
                let open = unix::Listener::open(path, SocketType::STREAM);
                let open = open.map_err(|error| say("listen", error))?;
                Connection::new(Some(Listener::Unix(open)), None, name, None)
            }
            Role::Call => {
                let open = unix::Peer::connect(path, SocketType::STREAM, false);
                let open = open.map_err(|error| say("connect", error))?;
                Connection::new(None, Some(Stream::Unix(open)), name, None)
            }
        }
    }

    fn new(
        listener: Option<Listener>,
        stream: Option<Stream>,
        name: String,
        local: Option<SocketAddr>,
    ) -> io::Result<Connection> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        if let Some(listener) = &listener {
            epoll::add(&epoll, listener, EventData::new_u64(0), EventFlags::IN)?;
        }
        let mut connection = Connection {
            epoll,
            listener,
            stream: None,
            looks_for_room: false,
            is_paused: false,
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

    fn take(&mut self, stream: Stream) -> io::Result<()> {
        if let Stream::Tcp(stream) = &stream {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
        }
        epoll::add(&self.epoll, &stream, EventData::new_u64(1), EventFlags::IN)?;
        self.stream = Some(stream);
        match &self.listener {
            Some(Listener::Unix(listener)) => epoll::delete(&self.epoll, listener)?,
            // A link has only one peer, so close the listener. The system then refuses other connections.
            _ => self.listener = None,
        }
        Ok(())
    }

    /// Handles the end of the connection: waits for the next peer at a path.
    ///
    /// # Errors
    /// The link is gone, because nothing else can connect to it.
    pub(crate) fn lose(&mut self, kind: io::ErrorKind, what: impl std::fmt::Display) -> io::Result<()> {
        let (Some(listener), Some(stream)) = (&self.listener, &self.stream) else {
            return Err(self.gone(kind, what));
        };
        epoll::delete(&self.epoll, stream)?;
        epoll::add(&self.epoll, listener, EventData::new_u64(0), EventFlags::IN)?;
        self.stream = None;
        self.looks_for_room = false;
        (self.read, self.end, self.written) = (0, 0, 0);
        self.leaving.clear();
        Ok(())
    }

    /// Returns the local address, if the link has one.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.local
    }

    /// Returns the file to wait for.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Returns an error that ends the link.
    pub(super) fn gone(&self, kind: io::ErrorKind, what: impl std::fmt::Display) -> io::Error {
        io::Error::new(kind, format!("{}: {what}", self.name))
    }

    /// Accepts a peer, writes waiting output, and reads input, appending it to the [unconsumed
    /// input](Connection::arrived). Returns whether there is more to read now.
    pub(crate) fn fill(&mut self) -> io::Result<bool> {
        if let (Some(listener), None) = (&self.listener, &self.stream) {
            let accepted = listener.accept();
            // Errors of Unix listeners are temporary. The peer still waits, so the file would stay readable,
            // and the board's thread would not sleep. It accepts again at its next turn: the end of a session
            // causes one, and frees descriptors.
            if let (Listener::Unix(listener), true) = (listener, accepted.is_err() != self.is_paused) {
                let events = if self.is_paused { EventFlags::IN } else { EventFlags::empty() };
                epoll::modify(&self.epoll, listener, EventData::new_u64(0), events)?;
                self.is_paused = !self.is_paused;
            }
            match accepted {
                Ok(Some(stream)) => self.take(stream)?,
                Ok(None) => return Ok(false),
                Err(_) if self.is_paused => return Ok(false),
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
                let what = format!("the peer closed the connection{within}");
                self.lose(io::ErrorKind::UnexpectedEof, what).map(|()| false)
            }
            Ok(count) => {
                self.end += count;
                Ok(true)
            }
            Err(error) if is_for_later(&error) => Ok(false),
            Err(error) => self.lose(error.kind(), format!("connection lost: {error}")).map(|()| false),
        }
    }

    /// Returns the input that was not consumed yet.
    pub(crate) fn arrived(&self) -> &[u8] {
        &self.room[self.read..self.end]
    }

    /// Consumes `bytes` of the input.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.read += bytes;
    }

    /// Returns whether a message can be written now.
    pub(crate) fn has_room(&self) -> bool {
        self.stream.is_some() && self.leaving.len() - self.written < WAITING_BYTES
    }

    /// Returns whether there is a peer.
    pub(crate) fn is_open(&self) -> bool {
        self.stream.is_some()
    }

    /// Returns the buffer to which the next message is appended, if there [is room](Connection::has_room).
    pub(crate) fn leaving(&mut self) -> &mut Vec<u8> {
        &mut self.leaving
    }

    /// Writes as much as the system takes now.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        while self.written < self.leaving.len() {
            match stream.write(&self.leaving[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_for_later(&error) => break,
                Err(error) => return self.lose(error.kind(), format!("connection lost: {error}")),
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
            epoll::modify(&self.epoll, stream, EventData::new_u64(1), flags)?;
            self.looks_for_room = wants;
        }
        Ok(())
    }
}

/// Returns whether the same call may succeed later, including when the system has no memory at the moment.
fn is_for_later(error: &io::Error) -> bool {
    let has_nothing = [libc::ENOMEM, libc::ENOBUFS];
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted)
        || error.raw_os_error().is_some_and(|error| has_nothing.contains(&error))
}
