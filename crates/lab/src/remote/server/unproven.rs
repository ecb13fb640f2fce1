//! Connections that have not authenticated yet.
//!
//! Purpose     serve an honest client even while other clients fill the server with silent connections.
//! Limits      [`Bounds`] limits the number of connections, in total and per network, and sets a timeout. A
//!             network is an IPv4 address or an IPv6 /64, because even a single host may have a whole /64.
//! Displacing  a new connection always gets a slot. If its own network has used up its share, it displaces
//!             that network's oldest connection. If the table is full, it displaces a connection of the
//!             provider, site and network that have the most ([`origin`](kiban_os::origin)), counting the
//!             new one. An honest client sends its line within a round trip, so its connection is not the
//!             oldest for long.
//! Deferring   where the listener defers accepting until data arrive (TCP_DEFER_ACCEPT), an honest client's
//!             line is read when its connection is accepted, and the connection needs no slot.
//! Handshake   [`Handshakes`] reads a line, or a fixed number of octets, from each connection without
//!             blocking, and not one octet more.
//! Weakness    hosts at `connections_max` providers or more that connect at the same time displace each
//!             other, as do hosts at many sites of one provider. A kernel whose queue of half-open
//!             connections is full sends SYN cookies and defers no longer.

use crate::remote::tcp::{Listener, Stream};
use kiban_base::Instant;
use kiban_measure::pause::pace;
use kiban_os::origin::{most_crowded, origin_of};
use std::io::{self, ErrorKind, Read};
use std::net::IpAddr;
use std::time::Duration;

/// The maximum number of connections accepted before existing ones are read.
const ACCEPTS_MAX: usize = 64;

/// The bounds of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The maximum number of connections in total.
    pub(crate) connections_max: usize,
    /// The maximum number of connections from one network.
    pub(crate) per_network_max: usize,
    /// How long a connection may take to authenticate.
    pub(crate) time: Duration,
}

struct Entry<T> {
    /// The IPv4 address or IPv6 /64.
    network: IpAddr,
    until: Instant,
    item: T,
}

/// A table of unauthenticated connections (or other items), the oldest first.
pub(crate) struct Unproven<T> {
    bounds: Bounds,
    entries: Vec<Entry<T>>,
}

impl<T> Unproven<T> {
    pub(crate) fn new(bounds: Bounds) -> Unproven<T> {
        Unproven { bounds, entries: Vec::new() }
    }

    /// Adds a connection; returns the one that it displaced, if the table was full.
    pub(crate) fn insert(&mut self, address: IpAddr, now: Instant, item: T) -> Option<T> {
        let network = origin_of(address);
        self.entries.push(Entry { network, until: now + self.bounds.time, item });
        let mut own = (0..self.entries.len()).filter(|at| self.entries[*at].network == network);
        let displaced = if own.clone().count() > self.bounds.per_network_max {
            own.next()
        } else if self.entries.len() > self.bounds.connections_max {
            most_crowded(self.entries.iter().map(|entry| entry.network))
        } else {
            None
        };
        displaced.map(|at| self.entries.remove(at).item)
    }

    /// Removes the connections that have timed out.
    fn expired(&mut self, now: Instant) -> Vec<T> {
        self.entries.extract_if(.., |entry| entry.until <= now).map(|entry| entry.item).collect()
    }
}

/// The length of the first message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Length {
    /// Everything up to the first newline, at most this number of octets.
    Line(usize),
    /// Exactly this number of octets.
    Octets(usize),
}

/// Why a connection was closed before it had sent its first message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandshakeError {
    /// The first message took too long.
    Late,
    /// Another connection has displaced it.
    Displaced,
    /// The connection sent too much, or was closed before it had sent enough.
    Nonsense,
}

/// The result of a connection's first message.
pub(crate) enum Step {
    /// The message has been received completely.
    Said(Stream, IpAddr, Vec<u8>),
    /// The connection failed.
    Cut(Stream, IpAddr, HandshakeError),
}

struct Half {
    stream: Stream,
    address: IpAddr,
    said: Vec<u8>,
}

impl Half {
    /// Returns the result; `None` until it is known.
    fn step(self, length: Length) -> Step {
        let Half { stream, address, said } = self;
        let is_whole = match length {
            Length::Line(_) => said.ends_with(b"\n"),
            Length::Octets(octets) => said.len() == octets,
        };
        if is_whole {
            Step::Said(stream, address, said)
        } else {
            Step::Cut(stream, address, HandshakeError::Nonsense)
        }
    }
}

/// Connections whose first message has not been received completely.
pub(crate) struct Handshakes {
    table: Unproven<Half>,
    length: Length,
}

impl Handshakes {
    pub(crate) fn new(bounds: Bounds, length: Length) -> Handshakes {
        Handshakes { table: Unproven::new(bounds), length }
    }

    /// Waits for at most `timeout`, accepts connections from addresses for which `admits` is true, and reads
    /// what has arrived.
    ///
    /// # Errors
    /// Returns the operating system's errors while waiting.
    pub(crate) fn turn(
        &mut self,
        listener: &Listener,
        now: impl Fn() -> Instant,
        timeout: Duration,
        mut admits: impl FnMut(IpAddr) -> bool,
    ) -> io::Result<Vec<Step>> {
        let ready = listener.ready(self.table.entries.iter().map(|entry| &entry.item.stream), timeout)?;
        let mut steps = Vec::new();
        let mut waiting = ready.iter();
        let heard = self.table.entries.extract_if(.., |entry| {
            waiting.next() == Some(&true) && hear(&mut entry.item, self.length).is_break()
        });
        steps.extend(heard.map(|entry| entry.item.step(self.length)));
        let now = now();
        let late = self.table.expired(now).into_iter();
        steps.extend(late.map(|half| Step::Cut(half.stream, half.address, HandshakeError::Late)));
        for _ in 0..if ready.last() == Some(&true) { ACCEPTS_MAX } else { 0 } {
            match listener.accept() {
                Ok((stream, from)) => {
                    let address = from.ip().to_canonical();
                    if !admits(address) || stream.set_nonblocking(true).is_err() {
                        continue;
                    }
                    let mut half = Half { stream, address, said: Vec::new() };
                    // Once the message is complete, the connection no longer needs a slot, and later
                    // connections cannot displace it.
                    if hear(&mut half, self.length).is_break() {
                        steps.push(half.step(self.length));
                    } else if let Some(half) = self.table.insert(address, now, half) {
                        steps.push(Step::Cut(half.stream, half.address, HandshakeError::Displaced));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // It is not an error if a client closes its connection before it is accepted.
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                // A shortage of file descriptors or memory is temporary: pause before accepting again.
                Err(_) => {
                    pace(Duration::from_millis(10));
                    break;
                }
            }
        }
        Ok(steps)
    }
}

/// Reads as much of the first message as has arrived, and no more; returns `Break` when the message is
/// complete or has failed.
fn hear(half: &mut Half, length: Length) -> std::ops::ControlFlow<()> {
    use std::ops::ControlFlow::{Break, Continue};
    let mut room = [0; 1024];
    let left = match length {
        Length::Line(most) | Length::Octets(most) => most.saturating_sub(half.said.len()).min(room.len()),
    };
    // Data after the line belongs to the session, so peek before reading.
    let part = match (length, half.stream.peek(&mut room[..left])) {
        (Length::Line(_), Ok(count)) => {
            room[..count].iter().position(|octet| *octet == b'\n').map_or(count, |at| at + 1)
        }
        (Length::Octets(_), Ok(count)) => count,
        (_, Err(error)) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            return Continue(());
        }
        (_, Err(_)) => return Break(()),
    };
    match half.stream.read(&mut room[..part]) {
        Ok(count) if count > 0 => half.said.extend_from_slice(&room[..count]),
        _ => return Break(()),
    }
    let is_whole = match length {
        Length::Line(most) => half.said.ends_with(b"\n") || half.said.len() >= most,
        Length::Octets(octets) => half.said.len() >= octets,
    };
    if is_whole { Break(()) } else { Continue(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    const BOUNDS: Bounds = Bounds { connections_max: 6, per_network_max: 3, time: Duration::from_secs(5) };

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn of(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_full_table_displaces_the_oldest_of_the_largest_network() {
        let mut table = Unproven::new(BOUNDS);
        let (flood, other, honest) = (of("192.0.2.1"), of("192.0.2.2"), of("198.51.100.7"));
        for number in 0..3 {
            assert_eq!(table.insert(flood, at(number), number), None);
        }
        // The network has used up its share, so its own oldest connection is displaced, although the table
        // has free slots.
        assert_eq!(table.insert(flood, at(3), 3), Some(0));
        assert_eq!(table.insert(other, at(3), 10), None);
        assert_eq!(table.insert(other, at(3), 11), None);
        assert_eq!(table.insert(honest, at(3), 20), None);
        // All slots are in use, so the network with the most connections loses its oldest one.
        assert_eq!(table.insert(honest, at(4), 21), Some(1));
        for number in 100..1000 {
            let displaced = table.insert(flood, at(4), number).expect("all places are taken");
            assert!(displaced != 20 && displaced != 21, "{displaced}");
            assert!(table.entries.len() <= BOUNDS.connections_max);
        }
    }

    #[test]
    fn one_site_with_many_networks_displaces_only_itself() {
        for (honest, flood) in [
            ("2001:db8:ffff:1::1", "2001:db8:7:N::1"),
            ("2001:db8:ffff:1::1", "2001:db9:N:1::1"),
            ("192.0.2.1", "198.51.100.N"),
            ("192.0.2.1", "198.51.N.1"),
        ] {
            // An honest site may have several connections in one network, and the flood one in each.
            let mut table = Unproven::new(BOUNDS);
            assert_eq!(table.insert(of(honest), at(0), 0), None);
            assert_eq!(table.insert(of(honest), at(0), 1), None);
            for number in 2..200 {
                let displaced = table.insert(of(&flood.replace('N', &number.to_string())), at(0), number);
                assert!(!matches!(displaced, Some(0 | 1)), "{honest} after {number} of {flood}");
            }
        }
    }

    #[test]
    fn fewer_providers_than_slots_displace_only_themselves() {
        for (honest, flood) in [("192.0.2.1", "10.N.0.1"), ("2001:db8::1", "2001:dN::1")] {
            let mut table = Unproven::new(BOUNDS);
            assert_eq!(table.insert(of(honest), at(0), 0), None);
            for number in 1..200 {
                let provider = (number % (BOUNDS.connections_max - 1)).to_string();
                let displaced = table.insert(of(&flood.replace('N', &provider)), at(0), number);
                assert_ne!(displaced, Some(0), "{honest} after {number} of {flood}");
            }
        }
    }

    #[test]
    fn slow_connections_time_out() {
        let mut table = Unproven::new(BOUNDS);
        for (number, address) in ["192.0.2.1", "192.0.2.2", "192.0.2.3"].into_iter().enumerate() {
            assert_eq!(table.insert(of(address), at(number as u64), number), None);
        }
        for (now, expected) in [(4, vec![]), (6, vec![0, 1]), (7, vec![2])] {
            assert_eq!(table.expired(at(now)), expected);
        }
        assert!(table.entries.is_empty());
    }

    #[test]
    fn data_after_the_first_message_is_not_consumed() {
        for (length, said, words) in [
            (Length::Line(20), &b"hello\nand more"[..], &b"hello\n"[..]),
            (Length::Octets(5), b"helloand more", b"hello"),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
            listener.set_nonblocking(true).expect("a socket");
            let mut caller = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
            let listener = Listener::Host(listener);
            let mut handshakes = Handshakes::new(BOUNDS, length);
            let mut turn =
                || handshakes.turn(&listener, || at(0), Duration::from_secs(10), |_| true).expect("loopback");
            for part in [&said[..2], &said[2..]] {
                assert!(turn().is_empty());
                io::Write::write_all(&mut caller, part).expect("loopback");
            }
            let Some(Step::Said(mut stream, address, heard)) = turn().pop() else { panic!("{length:?}") };
            assert_eq!((&heard[..], address.is_loopback()), (words, true));
            stream.set_nonblocking(false).expect("a socket");
            let mut rest = [0; 8];
            stream.read_exact(&mut rest).expect("it is there");
            assert_eq!(&rest, b"and more");
        }
    }
}
