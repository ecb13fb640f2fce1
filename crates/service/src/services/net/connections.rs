//! Connections of the guest that this host is opening.
//!
//! Purpose   the guest's SYN is answered when this host's connection is established, with a RST if it is
//!           refused, and not at all if it times out; then the guest's own timer decides. If there are
//!           several destinations (name servers), the next one is tried when one fails, or has not answered
//!           for [`PATIENCE`].
//! State     a connection waits for the kernel (`opening`), then for the last segment of the guest's
//!           handshake (`admitted`); then it is a relay.
//! Limits    each has a session slot of the service. One that the guest does not complete within
//!           [`HANDSHAKE`] is dropped. If [`OPENING_MAX`] wait for their destination, a further one takes the
//!           place of the oldest, so that a guest which scans addresses can still connect.

use super::names::PATIENCE;
use crate::services::counters::ServiceCounters;
use crate::services::forward::connect;
use crate::services::relay::{Begin, reset};
use crate::services::slots::SessionSlot;
use kiban_base::Instant;
use kiban_board::Host;
use kiban_link::{EpollSet, Interest};
use rustix::io::Errno;
use socket2::Socket;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// How long the guest may take for its handshake: longer than TCP repeats a SYN-ACK.
const HANDSHAKE: Duration = Duration::from_secs(240);

/// The maximum number of connections that wait for their destination. The board's backlog must be larger.
const OPENING_MAX: usize = 4096;

/// The destination, and the guest's address.
type Addresses = (SocketAddr, SocketAddr);

struct Connection {
    socket: Socket,
    slot: SessionSlot,
    since: Instant,
    /// Where to connect if this fails, the next one last.
    further: Vec<SocketAddr>,
}

/// Starts to connect to the last destination of a list, and removes it; or to those before it.
fn connect_next(to: &mut Vec<SocketAddr>, number: u64, files: &EpollSet) -> io::Result<Socket> {
    let mut result = Err(io::ErrorKind::NotFound.into());
    while result.is_err()
        && let Some(to) = to.pop()
    {
        result = connect(to).and_then(|socket| {
            files.watch(&socket, number, Interest { read: false, write: true })?;
            Ok(socket)
        });
    }
    result
}

/// The connections that are being opened.
pub(super) struct Connections {
    next: u64,
    opening: BTreeMap<u64, (Addresses, Connection)>,
    admitted: BTreeMap<Addresses, Connection>,
}

impl Connections {
    /// Returns an empty set; `first` is the number of the first connection among the watched files.
    pub(super) fn new(first: u64) -> Connections {
        Connections { next: first, opening: BTreeMap::new(), admitted: BTreeMap::new() }
    }

    /// Starts to connect to the first one of some destinations.
    ///
    /// # Errors
    /// The kernel cannot connect to any of them.
    pub(super) fn begin(
        &mut self,
        addresses: Addresses,
        mut to: Vec<SocketAddr>,
        slot: SessionSlot,
        files: &EpollSet,
        host: &mut Host<'_>,
        now: Instant,
    ) -> io::Result<()> {
        if self.opening.len() >= OPENING_MAX
            && let Some((_, ((local, remote), _))) = self.opening.pop_first()
        {
            // Its SYN may come again.
            host.ignore(local, remote);
        }
        to.reverse();
        let socket = connect_next(&mut to, self.next, files)?;
        self.opening.insert(self.next, (addresses, Connection { socket, slot, since: now, further: to }));
        self.next += 1;
        Ok(())
    }

    /// Handles a socket that the kernel has connected, or could not connect.
    pub(super) fn on_ready(
        &mut self,
        number: u64,
        host: &mut Host<'_>,
        files: &EpollSet,
        counters: &mut ServiceCounters,
    ) {
        let Some(((local, remote), mut connection)) = self.opening.remove(&number) else { return };
        let error = connection.socket.take_error().and_then(|error| error.map_or(Ok(()), Err));
        if error.is_err()
            && let Ok(socket) = connect_next(&mut connection.further, number, files)
        {
            connection.socket = socket;
            self.opening.insert(number, ((local, remote), connection));
            return;
        }
        match error.and_then(|()| files.forget(&connection.socket)) {
            Ok(()) if host.admit(local, remote).is_ok() => {
                self.admitted.insert((local, remote), connection);
                return;
            }
            // The guest has given up, or there is no session for it.
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(Errno::TIMEDOUT.raw_os_error()) => {
                host.ignore(local, remote);
            }
            // Without memory for the RST, the guest retransmits its SYN.
            Err(_) => drop(host.refuse(local, remote)),
        }
        counters.errors += 1;
        reset(&connection.socket);
    }

    /// Returns the state of the relay for a connection whose handshake with the guest is complete.
    pub(super) fn take(&mut self, local: SocketAddr, remote: SocketAddr) -> Option<Begin> {
        let Connection { socket, slot, .. } = self.admitted.remove(&(local, remote))?;
        Some(Begin::plain(socket, true, true, slot))
    }

    /// Tries further destinations, and drops connections whose handshake the guest has reset or not
    /// completed.
    pub(super) fn look(&mut self, host: &mut Host<'_>, files: &EpollSet, now: Instant) {
        for (number, (_, connection)) in &mut self.opening {
            if !connection.further.is_empty() && connection.since + PATIENCE <= now {
                connection.since = now;
                // If no other one can be reached, this one may still answer.
                if let Ok(socket) = connect_next(&mut connection.further, *number, files) {
                    connection.socket = socket;
                }
            }
        }
        self.admitted.retain(|(local, remote), connection| {
            let stays = host.has_connection(*local, *remote) && connection.since + HANDSHAKE > now;
            if !stays {
                reset(&connection.socket);
            }
            stays
        });
    }
}
