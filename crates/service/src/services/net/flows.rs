//! Flows: the guest's datagrams to one destination, and its pings of one host.
//!
//! Purpose   each flow has a socket of this host, connected to its destination, so the kernel delivers only
//!           answers of that destination, and reports its ICMP errors.
//! Datagrams an answer goes to the guest from the address to which the guest had sent.
//! Callers   the datagrams of a sender at a forwarded port that do not pass through the board: the flow's
//!           socket is connected to the other side's loopback, and answers leave through the port.
//! Pings     the kernel's ping sockets (icmp(7)) send echo requests without privileges, for groups in
//!           `net.ipv4.ping_group_range`; they replace the identifier.
//! Limits    those of an [`IdleMap`].

use super::idle::IdleMap;
use super::names::Names;
use super::ports::Ports;
use kiban_base::Instant;
use kiban_board::Host;
use kiban_link::{EpollSet, Interest};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// The maximum number of answers that one flow passes on in one call, so that others get their turn.
const ANSWERS_MAX: usize = 64;
/// Length of the header of an echo message (RFC 792, RFC 4443 §4).
const ECHO_HEADER_BYTES: usize = 8;
const ECHO_REQUEST: [u8; 2] = [8, 128];
const ECHO_REPLY: [u8; 2] = [0, 129];
const NO_PINGS: &str = "the guest cannot ping: this user's group is not in net.ipv4.ping_group_range; root can allow \
                        all groups: sysctl -w net.ipv4.ping_group_range='0 2147483647'";

/// What identifies a flow: the destination as the guest knows it, and the guest. Datagrams have a third
/// address, that of the socket's peer, since requests for names may go to several servers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Key {
    Datagrams(SocketAddr, SocketAddr, SocketAddr),
    Pings(IpAddr, IpAddr, u16),
    /// The number of the forwarded port, and the sender.
    Caller(u64, SocketAddr),
}

struct Flow {
    key: Key,
    socket: Socket,
}

/// The flows by number.
pub(super) struct Flows {
    next: u64,
    flows: IdleMap<u64, Flow>,
    by_key: BTreeMap<Key, u64>,
    room: Vec<u8>,
    /// Whether it has been reported that this host forbids ping sockets.
    has_warned: bool,
}

impl Flows {
    /// Returns an empty set; `first` is the number of the first flow among the watched files.
    pub(super) fn new(first: u64) -> Flows {
        Flows {
            next: first,
            flows: IdleMap::new(),
            by_key: BTreeMap::new(),
            room: vec![0; 1 << 16],
            has_warned: false,
        }
    }

    /// Sends a datagram of the guest to a destination. Returns false if it is refused: the destination has no
    /// such port, or this host has no route or no socket.
    pub(super) fn send_datagram(
        &mut self,
        (local, remote): (SocketAddr, SocketAddr),
        to: SocketAddr,
        payload: &[u8],
        files: &EpollSet,
        now: Instant,
    ) -> bool {
        let open = || open(to, Protocol::UDP);
        self.send(Key::Datagrams(local, remote, to), payload, files, open, now).is_ok()
    }

    /// Passes on a datagram that a sender has sent to a forwarded port; `open` connects a socket. Returns
    /// false if the datagram is refused.
    pub(super) fn send_of_caller(
        &mut self,
        (port, sender): (u64, SocketAddr),
        payload: &[u8],
        open: impl FnOnce() -> io::Result<Socket>,
        files: &EpollSet,
        now: Instant,
    ) -> bool {
        self.send(Key::Caller(port, sender), payload, files, open, now).is_ok()
    }

    /// Sends an echo request of the guest. Returns false if this host cannot.
    pub(super) fn send_echo(
        &mut self,
        (local, remote, identifier): (IpAddr, IpAddr, u16),
        sequence: u16,
        payload: &[u8],
        files: &EpollSet,
        now: Instant,
    ) -> bool {
        let (kind, protocol) = match local {
            IpAddr::V4(_) => (ECHO_REQUEST[0], Protocol::ICMPV4),
            IpAddr::V6(_) => (ECHO_REQUEST[1], Protocol::ICMPV6),
        };
        // The kernel fills in checksum and identifier.
        let mut message = vec![kind, 0, 0, 0, 0, 0];
        message.extend_from_slice(&sequence.to_be_bytes());
        message.extend_from_slice(payload);
        let open = || open(SocketAddr::new(local, 0), protocol);
        let sent = self.send(Key::Pings(local, remote, identifier), &message, files, open, now);
        match &sent {
            Ok(_) => self.has_warned = false,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !self.has_warned => {
                self.has_warned = true;
                tracing::warn!("{NO_PINGS}");
            }
            Err(_) => {}
        }
        sent.is_ok()
    }

    /// Returns why pings fail, if the last one did.
    pub(super) fn warning(&self) -> Option<&'static str> {
        self.has_warned.then_some(NO_PINGS)
    }

    fn send(
        &mut self,
        key: Key,
        bytes: &[u8],
        files: &EpollSet,
        open: impl FnOnce() -> io::Result<Socket>,
        now: Instant,
    ) -> io::Result<()> {
        let number = match self.by_key.get(&key) {
            Some(number) => *number,
            None => self.begin(key, open()?, files, now)?,
        };
        self.flows.touch(number, now);
        let flow = self.flows.get(&number).expect("it has a number");
        match flow.socket.send(bytes) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Err(error),
            // The datagram is lost, as on a link: the socket's buffer is full, a firewall forbids it, or it
            // is too long for the path.
            Err(_) => Ok(()),
        }
    }

    fn begin(&mut self, key: Key, socket: Socket, files: &EpollSet, now: Instant) -> io::Result<u64> {
        let number = self.next;
        files.watch(&socket, number, Interest::READ)?;
        self.next += 1;
        self.by_key.insert(key, number);
        if let Some(idle) = self.flows.insert(number, Flow { key, socket }, now) {
            self.by_key.remove(&idle.key);
        }
        Ok(number)
    }

    /// Passes the answers of a flow on. Returns how many.
    pub(super) fn on_ready(
        &mut self,
        number: u64,
        (ports, names): (&Ports, &mut Names),
        host: &mut Host<'_>,
        now: Instant,
    ) -> u64 {
        let mut passed = 0;
        for _ in 0..ANSWERS_MAX {
            let Some(Flow { key, socket }) = self.flows.get(&number) else { break };
            let received = rustix::net::recv(socket, &mut self.room, RecvFlags::DONTWAIT);
            let length = match received {
                Ok((_, length)) => length,
                Err(Errno::CONNREFUSED) => {
                    if let Key::Datagrams(local, remote, to) = *key
                        && names.on_refused(local, to, now)
                    {
                        // Without memory for the answer, the guest sees a loss.
                        let _ = host.refuse_datagram(local, remote);
                    }
                    break;
                }
                // Nothing has arrived, or another ICMP error, which does not end the flow.
                Err(_) => break,
            };
            if let Key::Datagrams(_, _, from) = *key {
                names.on_answer(from);
            }
            // Without packet memory, the answer is lost.
            passed += u64::from(pass(*key, &self.room[..length], ports, host));
        }
        self.touch_by_answer(number, now);
        passed
    }

    /// Records an answer. Only a caller itself keeps its flow alive: later, another program may have its
    /// port.
    fn touch_by_answer(&mut self, number: u64, now: Instant) {
        if self.flows.get(&number).is_some_and(|flow| !matches!(flow.key, Key::Caller(..))) {
            self.flows.touch(number, now);
        }
    }

    /// Ends flows that have been idle for too long.
    pub(super) fn look(&mut self, now: Instant) {
        while let Some(idle) = self.flows.expire(now) {
            self.by_key.remove(&idle.key);
        }
    }
}

/// Passes an answer on. Returns whether it was sent.
fn pass(key: Key, answer: &[u8], ports: &Ports, host: &mut Host<'_>) -> bool {
    match key {
        Key::Caller(port, sender) => ports.send(port, answer, sender),
        Key::Datagrams(local, remote, _) => host.send_from(local, remote, answer).is_ok(),
        Key::Pings(local, remote, identifier) => {
            let Some((header, payload)) = answer.split_first_chunk::<ECHO_HEADER_BYTES>() else {
                return false;
            };
            let sequence = u16::from_be_bytes([header[6], header[7]]);
            ECHO_REPLY.contains(&header[0])
                && host.reply_to_echo((local, remote), identifier, sequence, payload).is_ok()
        }
    }
}

/// Returns a socket that is connected to a destination.
fn open(to: SocketAddr, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, Some(protocol))?;
    connect(socket, to)
}

/// Connects a new socket to a destination.
pub(super) fn connect(socket: Socket, to: SocketAddr) -> io::Result<Socket> {
    socket.set_nonblocking(true)?;
    socket.connect(&to.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn answers_keep_flows_of_the_guest_alive_but_not_those_of_callers() {
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let address = SocketAddr::from(([127, 0, 0, 1], 40_000));
        let files = EpollSet::new().unwrap();
        let mut flows = Flows::new(0);
        for key in [Key::Datagrams(address, address, address), Key::Caller(1, address)] {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
            let number = flows.begin(key, socket, &files, at(0)).unwrap();
            flows.touch_by_answer(number, at(100));
        }
        flows.look(at(150));
        assert_eq!(flows.by_key.into_keys().collect::<Vec<_>>(), [Key::Datagrams(address, address, address)]);
    }
}
