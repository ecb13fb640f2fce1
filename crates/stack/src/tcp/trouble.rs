//! What TCP does about errors that others report of its segments: they are counted.
//!
//! Left out  (next) soft and hard errors (RFC 1122 §4.2.3.9, RFC 5927), path MTU discovery (RFC 1191, RFC 8201).

use super::{Outbox, Tcp};
use crate::icmp::Trouble;
use core::net::SocketAddr;
use kiban_ground::Context;
use kiban_wire::tcp::Sequence;

impl Tcp {
    /// Somebody reports an error about a segment from `local` to `remote` that began with `sequence`.
    pub fn on_trouble(
        &mut self,
        _local: SocketAddr,
        _remote: SocketAddr,
        _sequence: Sequence,
        _trouble: Trouble,
        _cx: &mut Context<'_>,
        _out: &mut Outbox,
    ) {
        self.counters.icmp_errors += 1;
    }
}
