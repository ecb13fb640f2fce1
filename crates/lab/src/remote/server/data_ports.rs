//! The ports of data connections.

use super::unproven::{Bounds, Handshakes, Length, Step};
use crate::remote::admission::is_same;
use crate::remote::protocol::LINE_TIME;
use crate::remote::tcp::{Listener, Stream};
use kiban_base::Instant;
use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The maximum number of connections accepted while waiting for data connections.
const CALLERS: Bounds = Bounds { connections_max: 16, per_network_max: 16, time: LINE_TIME };

/// The ports for data connections, used in turn.
pub(super) struct DataPorts {
    range: RangeInclusive<u16>,
    turn: AtomicUsize,
}

impl DataPorts {
    /// Uses the ports of a range in turn. If the range is port 0, the system chooses each port.
    pub(super) fn new(range: RangeInclusive<u16>) -> DataPorts {
        DataPorts { range, turn: AtomicUsize::new(0) }
    }

    /// Opens a socket on the first free port, starting with the next in turn.
    pub(super) fn take<T>(&self, mut make: impl FnMut(u16) -> io::Result<T>) -> io::Result<T> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.range.len().max(1);
        let mut found = Err(io::ErrorKind::AddrInUse.into());
        for port in self.range.clone().skip(turn).chain(self.range.clone().take(turn)) {
            found = make(port);
            if !matches!(&found, Err(error) if error.kind() == io::ErrorKind::AddrInUse) {
                break;
            }
        }
        found
    }
}

/// A port that accepts the data connections of a measurement: only from the client's address, and only with
/// the expected greetings.
pub(super) struct DataPort {
    listener: Listener,
    address: IpAddr,
    callers: Handshakes,
    /// The expected greetings; `None` once the connection has arrived.
    greetings: Vec<Option<Vec<u8>>>,
}

impl DataPort {
    /// Accepts one connection from `address` for each of the greetings, all of which must have the same
    /// length.
    pub(super) fn new(listener: Listener, address: IpAddr, greetings: Vec<Vec<u8>>) -> DataPort {
        let octets = greetings.first().map_or(0, Vec::len);
        let callers = Handshakes::new(CALLERS, Length::Octets(octets));
        DataPort { listener, address, callers, greetings: greetings.into_iter().map(Some).collect() }
    }

    /// Waits for at most `timeout`; returns the connections that have arrived, with the numbers of their
    /// greetings. A connection with a wrong greeting or none delays the expected ones at most until its own
    /// timeout.
    ///
    /// # Errors
    /// Returns errors from the operating system.
    pub(super) fn turn(
        &mut self,
        now: impl Fn() -> Instant,
        timeout: Duration,
    ) -> io::Result<Vec<(usize, Stream)>> {
        let mut arrived = Vec::new();
        if self.greetings.iter().all(Option::is_none) {
            return Ok(arrived);
        }
        for step in self.callers.turn(&self.listener, now, timeout, |from| from == self.address)? {
            let Step::Said(stream, _, said) = step else { continue };
            let is_said =
                |greeting: &Option<Vec<u8>>| greeting.as_ref().is_some_and(|one| is_same(&said, one));
            let Some(number) = self.greetings.iter().position(is_said) else { continue };
            stream.set_nonblocking(false)?;
            self.greetings[number] = None;
            arrived.push((number, stream));
        }
        Ok(arrived)
    }
}
