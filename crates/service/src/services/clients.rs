//! Sockets on which services accept clients.

use kiban_link::{EpollSet, Interest};
use kiban_os::unix::names;
use socket2::Socket;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;

/// The number of a service's listening socket among its watched files.
pub(super) const LISTENER: u64 = u64::MAX;

/// The listening socket of a service. While the process has no descriptors for another client, the socket is
/// not watched, so that the service does not spin.
pub(super) struct Entrance<L> {
    listener: Option<L>,
    number: u64,
    is_paused: bool,
}

impl<L> Default for Entrance<L> {
    fn default() -> Entrance<L> {
        Entrance { listener: None, number: LISTENER, is_paused: false }
    }
}

impl<L: AsFd> Entrance<L> {
    /// Watches a listening socket under a number.
    ///
    /// # Errors
    /// The socket cannot be watched.
    pub(super) fn new(listener: L, number: u64, files: &EpollSet) -> io::Result<Entrance<L>> {
        files.watch(&listener, number, Interest::READ)?;
        Ok(Entrance { listener: Some(listener), number, is_paused: false })
    }

    /// Starts to watch the only listening socket of a service.
    ///
    /// # Errors
    /// The socket cannot be watched.
    pub(super) fn open(&mut self, listener: L, files: &EpollSet) -> io::Result<()> {
        *self = Entrance::new(listener, LISTENER, files)?;
        Ok(())
    }

    /// Creates a Unix socket with `listen`, after its directory, and starts to watch it.
    ///
    /// # Errors
    /// The reason, with the path.
    pub(super) fn open_at(
        &mut self,
        path: &Path,
        files: &EpollSet,
        listen: impl FnOnce(&Path) -> io::Result<L>,
    ) -> Result<(), String> {
        make_folder(path)?;
        let opened = listen(path).and_then(|listener| self.open(listener, files));
        opened.map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Returns the next client, if there is one.
    pub(super) fn next<T>(
        &mut self,
        files: &EpollSet,
        accept: impl FnOnce(&L) -> io::Result<Option<T>>,
    ) -> Option<T> {
        let listener = self.listener.as_ref()?;
        accept(listener).unwrap_or_else(|_| {
            self.is_paused = files.forget(listener).is_ok();
            None
        })
    }

    /// Watches the socket again after a pause, if the process has descriptors again.
    pub(super) fn look(&mut self, files: &EpollSet) {
        if let (true, Some(listener)) = (self.is_paused, &self.listener) {
            self.is_paused = files.watch(listener, self.number, Interest::READ).is_err();
        }
    }

    pub(super) fn close(&mut self) {
        self.listener = None;
    }
}

impl Entrance<Socket> {
    /// Returns the next TCP connection, ready to be relayed, and the peer's address.
    pub(super) fn accept(&mut self, files: &EpollSet) -> Option<(Socket, SocketAddr)> {
        self.next(files, |listener| match listener.accept() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            accepted => {
                let (socket, peer) = accepted?;
                set_up_relayed(&socket)?;
                Ok(peer.as_socket().map(|peer| (socket, peer)))
            }
        })
    }
}

/// Prepares a TCP socket for a relay, which passes everything on at once and in order. The kernel probes idle
/// peers (tcp_keepalive_time of tcp(7)), so that the connection to one that has gone does not stay for ever.
pub(super) fn set_up_relayed(socket: &Socket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_keepalive(true)?;
    socket.set_out_of_band_inline(true)
}

/// Watches the socket of a new client. Refuses the client if `here`, the current number of clients, has
/// reached `most`.
///
/// # Errors
/// The reason for the refusal, for the client and the log.
pub(super) fn admit(
    callers: &str,
    here: usize,
    most: usize,
    watch: impl FnOnce() -> io::Result<()>,
) -> Result<(), String> {
    if here >= most {
        return Err(format!("too many {callers}: the limit of {most} is reached"));
    }
    watch().map_err(|error| format!("the board cannot watch the socket: {error}"))
}

/// Returns the process ID of a client; 0 if it is in another PID namespace.
pub(super) fn process_of(client: impl AsFd) -> u32 {
    let peer = rustix::net::sockopt::socket_peercred(client);
    peer.map_or(0, |peer| peer.pid.as_raw_nonzero().get().unsigned_abs())
}

/// Returns the user of a client; `None` if the system does not say.
pub(super) fn user_of(client: impl AsFd) -> Option<u32> {
    rustix::net::sockopt::socket_peercred(client).ok().map(|peer| peer.uid.as_raw())
}

/// Creates and checks the directory for a Unix socket if it is the default directory. Any other directory is
/// its owner's responsibility.
fn make_folder(path: &Path) -> Result<(), String> {
    if path.parent() == Some(&names::own_path()) {
        names::own_folder().map_err(|error| error.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_caller_gets_the_actual_cause() {
        let full = || Err(io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error()));
        assert_eq!(admit("clients", 255, 256, || Ok(())), Ok(()));
        let why = admit("clients", 256, 256, || panic!("it has no entry")).expect_err("full");
        assert_eq!(why, "too many clients: the limit of 256 is reached");
        let why = admit("clients", 3, 256, full).expect_err("no watch");
        assert!(why.starts_with("the board cannot watch the socket: No space left"), "{why}");
        assert!(!why.contains("256"), "{why}");
    }

    #[test]
    fn the_kernel_probes_the_idle_peers_of_a_relay() {
        let socket = Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        set_up_relayed(&socket).expect("TCP has these options");
        assert!(socket.keepalive().expect("an option"));
    }
}
