//! Splices: connections between the two sides' loopback addresses, joined socket to socket.
//!
//! Purpose        a connection from this host's loopback to a forwarded port, or from the guest's loopback,
//!                needs no packets: it bypasses the board's TCP and the guest's interface.
//! Half-close     the directions end independently; a reset is passed on as a reset.
//! Back-pressure  a direction holds at most one piece, and reads no more until the other socket has taken it.
//! Families       a connection to ::1 that fails is tried at 127.0.0.1: the other side may have no IPv6, or
//!                its program serve only IPv4, and the caller cannot try that itself, since it is connected.
//! Limits         each has a session slot of the service, and two sockets.

use super::namespace::{Namespace, Protocol, Side};
use crate::services::counters::ServiceCounters;
use crate::services::forward::connect_with;
use crate::services::relay::reset;
use crate::services::service::PIECE_BYTES;
use crate::services::slots::SessionSlot;
use kiban_base::Instant;
use kiban_link::{EpollSet, Interest};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::Socket;
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::time::Duration;

/// The maximum number of pieces that one direction moves in one call, so that others get their turn.
const PIECES_MAX: usize = 8;
/// The caller's socket, and the one that is connected for it, in [`Splice::ends`].
const CALLER: usize = 0;
const CALLED: usize = 1;

/// One direction of a splice.
#[derive(Default)]
struct Direction {
    /// What the receiver has not taken: the bytes after the first `sent`.
    held: Vec<u8>,
    sent: usize,
    /// Whether the sender has sent a FIN, and whether it has been passed on.
    is_finished: bool,
    is_shut_down: bool,
}

struct Splice {
    ends: [Socket; 2],
    /// By sender.
    directions: [Direction; 2],
    watched: [Option<Interest>; 2],
    is_connected: bool,
    /// The side on which it is connected, and the address.
    to: (Side, SocketAddr),
    moved_at: Instant,
    _slot: SessionSlot,
}

/// The splices.
pub(super) struct Splices {
    first: u64,
    next: u64,
    splices: BTreeMap<u64, Splice>,
    piece: Vec<u8>,
}

impl Splices {
    /// Returns an empty set; `first`, an even number, is that of the first socket among the watched files.
    pub(super) fn new(first: u64) -> Splices {
        Splices { first, next: 0, splices: BTreeMap::new(), piece: vec![0; PIECE_BYTES] }
    }

    pub(super) fn len(&self) -> usize {
        self.splices.len()
    }

    /// Starts a splice by connecting to an address on a side.
    pub(super) fn begin(
        &mut self,
        caller: Socket,
        mut to: (Side, SocketAddr),
        slot: SessionSlot,
        (namespace, files): (&mut Namespace, &EpollSet),
        counters: &mut ServiceCounters,
        now: Instant,
    ) {
        let Ok(called) = connect(&mut to, namespace) else {
            counters.errors += 1;
            reset(&caller);
            return;
        };
        counters.accepted += 1;
        let splice = Splice {
            ends: [caller, called],
            directions: Default::default(),
            watched: [None; 2],
            is_connected: false,
            to,
            moved_at: now,
            _slot: slot,
        };
        let number = self.next;
        self.next += 1;
        self.splices.insert(number, splice);
        self.pump(number, (namespace, files), counters, now);
    }

    /// Handles a socket that is ready.
    pub(super) fn on_ready(
        &mut self,
        number: u64,
        sides: (&mut Namespace, &EpollSet),
        counters: &mut ServiceCounters,
        now: Instant,
    ) {
        self.pump((number - self.first) / 2, sides, counters, now);
    }

    /// Moves as much as possible, and ends a splice whose directions have ended.
    fn pump(
        &mut self,
        number: u64,
        (namespace, files): (&mut Namespace, &EpollSet),
        counters: &mut ServiceCounters,
        now: Instant,
    ) {
        let Some(splice) = self.splices.get_mut(&number) else { return };
        let first = self.first + number * 2;
        let moved = splice.work(namespace, &mut self.piece, counters, now);
        match moved.and_then(|ends| splice.watch(first, files).map(|()| ends)) {
            Ok(false) => {}
            Ok(true) => {
                counters.ended += 1;
                self.splices.remove(&number);
            }
            Err(_) => {
                counters.aborted += 1;
                splice.reset();
                self.splices.remove(&number);
            }
        }
    }

    /// Ends splices that have been idle for too long.
    pub(super) fn look(&mut self, idle: Option<Duration>, counters: &mut ServiceCounters, now: Instant) {
        let Some(idle) = idle else { return };
        self.splices.retain(|_, splice| {
            let stays = splice.moved_at + idle > now;
            if !stays {
                counters.idle_timeouts += 1;
                counters.aborted += 1;
                splice.reset();
            }
            stays
        });
    }

    /// Resets all splices.
    pub(super) fn cut(&mut self, counters: &mut ServiceCounters) {
        for splice in std::mem::take(&mut self.splices).into_values() {
            counters.aborted += 1;
            splice.reset();
        }
    }
}

/// Starts to connect to an address, or to that of IPv4 if this fails.
fn connect(to: &mut (Side, SocketAddr), namespace: &mut Namespace) -> io::Result<Socket> {
    let mut try_at = |to: (Side, SocketAddr)| {
        let socket = namespace.socket(to.0, to.1, Protocol::Tcp)?;
        if to.1.is_ipv6() {
            // Where the loopback interface has no ::1, a default route would lead the SYN to the board, and
            // the connection would fail only after minutes. Before Linux 5.7, this needs privileges.
            let _ = socket.bind_device(Some(b"lo"));
        }
        connect_with(&socket, to.1).map(|()| socket)
    };
    match try_at(*to) {
        Err(_) if to.1.is_ipv6() => {
            to.1.set_ip(Ipv4Addr::LOCALHOST.into());
            try_at(*to)
        }
        connected => connected,
    }
}

impl Splice {
    /// Returns whether both directions have ended.
    fn work(
        &mut self,
        namespace: &mut Namespace,
        piece: &mut [u8],
        counters: &mut ServiceCounters,
        now: Instant,
    ) -> io::Result<bool> {
        if !self.is_connected {
            match self.ends[CALLED].take_error()? {
                None => {}
                Some(_) if self.to.1.is_ipv6() => {
                    self.to.1.set_ip(Ipv4Addr::LOCALHOST.into());
                    // Closing the old socket ends its watch.
                    self.ends[CALLED] = connect(&mut self.to, namespace)?;
                    self.watched[CALLED] = None;
                }
                Some(error) => return Err(error),
            }
            self.is_connected = self.ends[CALLED].peer_addr().is_ok();
            if !self.is_connected {
                return Ok(false);
            }
        }
        for from in [CALLER, CALLED] {
            let moved = self.move_from(from, piece)?;
            if moved > 0 {
                self.moved_at = now;
            }
            // As for other sessions, `in` is what comes from the guest.
            let is_from_guest = (from == CALLED) == (self.to.0 == Side::Guest);
            let bytes = if is_from_guest { &mut counters.bytes_in } else { &mut counters.bytes_out };
            *bytes += moved;
        }
        Ok(self.directions.iter().all(|direction| direction.is_shut_down))
    }

    /// Moves data from one of the sockets to the other. Returns how many bytes were read.
    fn move_from(&mut self, from: usize, piece: &mut [u8]) -> io::Result<u64> {
        let (sender, receiver, direction) =
            (&self.ends[from], &self.ends[1 - from], &mut self.directions[from]);
        let mut moved = 0;
        for _ in 0..PIECES_MAX {
            direction.sent += send_all(receiver, &direction.held[direction.sent..])?;
            if direction.sent < direction.held.len() {
                break;
            }
            (direction.held, direction.sent) = (Vec::new(), 0);
            if direction.is_finished {
                if !direction.is_shut_down {
                    receiver.shutdown(Shutdown::Write)?;
                    direction.is_shut_down = true;
                }
                break;
            }
            let count = match recv(sender, &mut *piece, RecvFlags::DONTWAIT) {
                Ok((_, count)) => count,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            };
            moved += count as u64;
            direction.is_finished = count == 0;
            let sent = send_all(receiver, &piece[..count])?;
            direction.held.extend_from_slice(&piece[sent..count]);
        }
        Ok(moved)
    }

    /// Watches each socket only for events that the splice can use now; `first` is the caller's number.
    fn watch(&mut self, first: u64, files: &EpollSet) -> io::Result<()> {
        for end in [CALLER, CALLED] {
            let (own, other) = (&self.directions[end], &self.directions[1 - end]);
            let wanted = if self.is_connected {
                Interest {
                    read: !own.is_finished && own.held.is_empty(),
                    write: !other.held.is_empty() || (other.is_finished && !other.is_shut_down),
                }
            } else {
                Interest { read: false, write: end == CALLED }
            };
            let wanted = (wanted != Interest::default()).then_some(wanted);
            files.update(&self.ends[end], first + end as u64, &mut self.watched[end], wanted)?;
        }
        Ok(())
    }

    fn reset(&self) {
        self.ends.iter().for_each(reset);
    }
}

/// Sends bytes until the socket takes no more. Returns how many it has taken.
fn send_all(socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match send(socket, &bytes[sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(count) => sent += count,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(sent)
}
