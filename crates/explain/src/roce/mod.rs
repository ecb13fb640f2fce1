//! RoCEv2: connections are pairs of queue pairs (RC and XRC) that exchange packets over UDP port 4791.
//!
//! Purpose          the same as for TCP: a verdict for each connection, with the packets that prove it.
//! Path             packets (`packet`) are sorted into connections (`connection`). For each end that sends
//!                  requests, its time is attributed to what held it back (`waits`), as that end saw it
//!                  (`timeline`). Rules find the causes in these sums (`verdict`).
//! Words            the requester sends Sends, Writes, Reads and atomics; the responder answers. Each end may
//!                  be both. PSNs, AETH, NAK codes: IBTA volume 1 §9.7; CNPs: Annex A17.
//! Limits           a queue pair number that is used again for another connection between the same hosts
//!                  counts as one connection.
//! Not implemented  UC and UD, which have no acknowledgements: their packets are only counted.

mod cause;
mod connection;
mod details;
mod packet;
mod report;
mod timeline;
mod verdict;
mod waits;

pub use cause::Cause;
pub use details::{Details, Flow};
pub use waits::Waited;

pub(crate) use connection::connections;
pub(crate) use packet::{Captured, PORT, read};
pub(crate) use report::explain;

/// RoCEv2 packets that belong to no connection that is explained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Uncounted {
    /// Messages of communication management (queue pair 1).
    pub management: u32,
    /// Datagrams (UD).
    pub datagrams: u32,
    /// Packets of unreliable connections (UC).
    pub unreliable: u32,
    /// Opcodes of manufacturers, and those that are reserved.
    pub unknown: u32,
}

impl Uncounted {
    pub(crate) fn take(&mut self, packet: &Captured) {
        match packet.kind {
            packet::Kind::Management(_) => self.management += 1,
            packet::Kind::Datagram => self.datagrams += 1,
            packet::Kind::Unreliable => self.unreliable += 1,
            packet::Kind::Unknown => self.unknown += 1,
            _ => {}
        }
    }

    /// Returns the number of packets.
    pub fn sum(&self) -> u32 {
        self.management + self.datagrams + self.unreliable + self.unknown
    }
}

impl std::fmt::Display for Uncounted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counts = [
            (self.management, "of communication management"),
            (self.datagrams, "of UD"),
            (self.unreliable, "of UC"),
            (self.unknown, "with unknown opcodes"),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counts.map(|(count, what)| format!("{count} {what}")).collect();
        write!(f, "RoCEv2 packets that belong to no connection were only counted: {}", counts.join(", "))
    }
}
