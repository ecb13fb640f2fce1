//! The ports of data connections.

use super::unproven::Bounds;
use crate::remote::protocol::LINE_TIME;
use std::io;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most connections accepted while waiting for a trial's data connection.
pub(crate) const CALLERS: Bounds = Bounds { connections_max: 16, per_network_max: 16, time: LINE_TIME };

/// The ports for data connections, used in turn.
pub(crate) struct DataPorts {
    range: RangeInclusive<u16>,
    turn: AtomicUsize,
}

impl DataPorts {
    /// Uses the ports of a range in turn; with port 0 the system chooses.
    pub(crate) fn new(range: RangeInclusive<u16>) -> DataPorts {
        DataPorts { range, turn: AtomicUsize::new(0) }
    }

    /// Opens a socket on the first free port, starting with the next in turn.
    pub(crate) fn take<T>(&self, mut make: impl FnMut(u16) -> io::Result<T>) -> io::Result<T> {
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
