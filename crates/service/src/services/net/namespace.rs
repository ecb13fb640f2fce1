//! The guest's network namespace, seen from outside.
//!
//! Purpose     the board uses sockets in the guest's namespace, which it may not enter: a process in that
//!             namespace creates them and passes them on ([`serve_namespace`]).
//! Sockets     a socket stays in the namespace in which it was created: there, the board binds and connects
//!             it.
//! Protocol    a request is one byte, a number in [`SOCKETS`] followed by [`TABLES`]. The answer is one byte,
//!             with a file if there is one. Before the first request, the process writes one byte.
//! Privileges  the process drops all of them before it serves. If a program of the guest kills it, the guest
//!             only loses its forwarded ports.
//! Limits      the board waits [`PATIENCE`] for an answer, because a program of the guest may stop the
//!             process. Until a late answer has arrived, it does not wait again: what needs a socket fails.

use kiban_os::unix::{inherited_file, receive_file, send_file};
use kiban_sandbox::{OnRefusal, Sandbox};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use socket2::{Domain, Socket, Type};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long the whole board may stand still once; a process on a busy host seldom needs longer.
const PATIENCE: Duration = Duration::from_millis(500);
/// The same before the guest's programs run.
const PATIENCE_AT_START: Duration = Duration::from_secs(10);

const SOCKETS: [(Domain, Type); 4] = [
    (Domain::IPV4, Type::STREAM),
    (Domain::IPV6, Type::STREAM),
    (Domain::IPV4, Type::DGRAM),
    (Domain::IPV6, Type::DGRAM),
];
/// The sockets of a namespace (proc_pid_net(5)).
const TABLES: [&str; 4] =
    ["/proc/self/net/tcp", "/proc/self/net/tcp6", "/proc/self/net/udp", "/proc/self/net/udp6"];

/// One of the two sides between which ports are forwarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Host,
    Guest,
}

impl Side {
    pub(super) fn other(self) -> Side {
        match self {
            Side::Host => Side::Guest,
            Side::Guest => Side::Host,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    pub(super) fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
        }
    }
}

/// The way to the guest's namespace.
pub(super) struct Namespace {
    socket: Option<UnixStream>,
    /// Whether the answer to the last request has not arrived.
    is_late: bool,
}

impl Namespace {
    /// Takes over the socket with a number, which leads to a process in the namespace.
    ///
    /// # Errors
    /// There is no such socket.
    pub(super) fn new(number: Option<i32>) -> io::Result<Namespace> {
        let socket = number.map(inherited_file).transpose()?.map(UnixStream::from);
        if let Some(socket) = &socket {
            socket.set_read_timeout(Some(PATIENCE_AT_START))?;
            socket.set_write_timeout(Some(PATIENCE_AT_START))?;
        }
        Ok(Namespace { socket, is_late: false })
    }

    /// Makes later requests wait for only [`PATIENCE`]: the guest's programs will run.
    pub(super) fn has_started(&self) -> io::Result<()> {
        let Some(socket) = &self.socket else { return Ok(()) };
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))
    }

    /// Returns whether there is a way.
    pub(super) fn is_open(&self) -> bool {
        self.socket.is_some()
    }

    /// Returns a new socket on a side, for an address of the family of `address`.
    ///
    /// # Errors
    /// There is no way to the guest's namespace, or the process or the system has run out of something.
    pub(super) fn socket(
        &mut self,
        side: Side,
        address: SocketAddr,
        protocol: Protocol,
    ) -> io::Result<Socket> {
        let request = usize::from(address.is_ipv6()) + if protocol == Protocol::Udp { 2 } else { 0 };
        match side {
            Side::Host => {
                let (domain, kind) = SOCKETS[request];
                Socket::new(domain, kind, None)
            }
            Side::Guest => Ok(self.ask(request)?.into()),
        }
    }

    /// Returns the tables of the sockets of a side: those of IPv4 and of IPv6.
    pub(super) fn tables(&mut self, side: Side, protocol: Protocol) -> Vec<File> {
        let first = if protocol == Protocol::Udp { 2 } else { 0 };
        // Without IPv6, a table is missing.
        let open = |table: usize| match side {
            Side::Host => File::open(TABLES[table]).ok(),
            Side::Guest => self.ask(SOCKETS.len() + table).ok().map(File::from),
        };
        [first, first + 1].into_iter().filter_map(open).collect()
    }

    fn ask(&mut self, request: usize) -> io::Result<OwnedFd> {
        if self.is_late {
            let socket = self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
            let mut polled = [PollFd::new(socket, PollFlags::IN)];
            if poll(&mut polled, Some(&Timespec::default()))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            // A file that has come too late is closed.
            drop(self.receive());
        }
        let socket = self.socket.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        if let Err(error) = socket.write_all(&[request as u8]) {
            let is_over = matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset);
            // Otherwise, the system has run out of something for now.
            return Err(if is_over { self.end(error) } else { error });
        }
        self.receive()
    }

    /// Receives an answer.
    fn receive(&mut self) -> io::Result<OwnedFd> {
        let socket = self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let answer = loop {
            match receive_file(socket) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                answer => break answer,
            }
        };
        self.is_late = matches!(&answer, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        match answer {
            Ok(Some(file)) => Ok(file),
            Ok(None) => Err(self.end(io::ErrorKind::NotConnected.into())),
            // The answer has no file, or comes later.
            Err(error) if error.kind() == io::ErrorKind::InvalidData || self.is_late => Err(error),
            // Whether the answer will still arrive is not known.
            Err(error) => Err(self.end(error)),
        }
    }

    /// Asks no more.
    fn end(&mut self, error: io::Error) -> io::Error {
        tracing::warn!(
            %error,
            "the process that creates sockets for the guest has ended: callers at this host's loopback reach the \
             guest's address and not its loopback, and the guest's loopback is no longer forwarded"
        );
        self.socket = None;
        error
    }
}

/// Serves sockets of this process's network namespace to the other end of `socket`, until that is closed.
/// Drops all privileges first, and then writes one byte.
///
/// # Errors
/// The privileges cannot be dropped, or the other end is closed.
pub fn serve_namespace(mut socket: UnixStream) -> io::Result<()> {
    // Programs of the guest may be of the same user: they must not trace this process.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let tables = TABLES.map(|table| File::open(table).ok());
    // Files in flight are limited by the soft limit of open files (unix(7), ETOOMANYREFS).
    kiban_os::limit::raise();
    let _sandbox = Sandbox::enter(&[], OnRefusal::Error)?;
    socket.write_all(&[1])?;
    loop {
        let mut request = [0];
        match socket.read(&mut request) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Ok(()),
        }
        let number = usize::from(request[0]);
        if answer(&mut socket, number, &tables).is_err() {
            return Ok(());
        }
    }
}

/// Answers a request, without a file if there is none or if it cannot be passed on now.
fn answer(socket: &mut UnixStream, number: usize, tables: &[Option<File>]) -> io::Result<()> {
    let created = SOCKETS.get(number).map(|&(domain, kind)| Socket::new(domain, kind, None));
    let table = tables.get(number.wrapping_sub(SOCKETS.len())).and_then(Option::as_ref);
    let answered = match (created, table) {
        (Some(Ok(created)), _) => send_file(&*socket, created.as_fd()),
        (None, Some(table)) => send_file(&*socket, table.as_fd()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    // All processes of a user share a limit of files in flight, and those of another guest may use it up.
    answered.or_else(|_| socket.write_all(&[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_answer_is_dropped_and_delays_only_one_request() {
        let (own, other) = UnixStream::pair().unwrap();
        own.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let mut namespace = Namespace { socket: Some(own), is_late: false };
        assert_eq!(namespace.ask(0).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        // No second request is sent before the first has been answered.
        assert_eq!(namespace.ask(1).unwrap_err().kind(), io::ErrorKind::TimedOut);
        let answers = [Type::STREAM, Type::DGRAM].map(|kind| Socket::new(Domain::IPV4, kind, None).unwrap());
        answers.iter().for_each(|file| send_file(&other, file.as_fd()).unwrap());
        let answered = Socket::from(namespace.ask(2).unwrap());
        assert_eq!(answered.r#type().unwrap(), Type::DGRAM);
        let mut requests = [0; 2];
        (&other).read_exact(&mut requests).unwrap();
        assert_eq!(requests, [0, 2]);
    }

    #[test]
    fn an_answer_without_a_file_does_not_end_the_way() {
        let (own, mut other) = UnixStream::pair().unwrap();
        let mut namespace = Namespace { socket: Some(own), is_late: false };
        answer(&mut other, usize::MAX, &[]).unwrap();
        assert_eq!(namespace.ask(9).unwrap_err().kind(), io::ErrorKind::InvalidData);
        answer(&mut other, 0, &[]).unwrap();
        assert!(namespace.ask(0).is_ok() && namespace.is_open());
        drop(other);
        assert!(namespace.ask(0).is_err() && !namespace.is_open());
    }
}
