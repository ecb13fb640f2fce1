//! ICMP errors about our segments (RFC 1122 §4.2.3.9, RFC 5927), and unreachable next hops reported by our
//! own links.

use super::icmp_error::IcmpErrorClass;
use super::machine::Tcp;
use super::segment::Outbox;
use crate::tcp::interface::indication::SessionId;
use crate::wire::tcp::Sequence;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use kiban_base::Context;

impl Tcp {
    /// Sets the path MTU of a new session as the length of an IP packet, bytes (RFC 9293 §3.7.1: MMS_S).
    pub fn set_path_mtu(&mut self, session: SessionId, mtu: u32, cx: &mut Context<'_>, out: &mut Outbox) {
        // The session may have ended; then there is nothing to set.
        let _ = self.with_known(session, cx, out, |found, ctx| found.set_initial_path_mtu(mtu, ctx));
    }

    /// Returns whether an ICMP error about a segment that began at `sequence` is plausible: that byte must be
    /// outstanding (RFC 5927 §4.1). Call this before anything but the session uses the error. Implausible
    /// errors are counted.
    pub fn is_icmp_plausible(&mut self, local: SocketAddr, remote: SocketAddr, sequence: Sequence) -> bool {
        let session = self.table.find(local, remote).and_then(|index| self.table.at(index));
        let believed = session.is_some_and(|session| session.is_outstanding(sequence));
        self.counters.icmp_errors_rejected += u64::from(!believed);
        believed
    }

    /// Ends the connection attempts whose route, according to `is_that_way(local address, peer address)`,
    /// leads through a next hop that does not answer. Established sessions continue, since the next hop may
    /// return (RFC 1122 §4.2.3.9).
    pub fn on_next_hop_unreachable(
        &mut self,
        is_that_way: impl Fn(IpAddr, IpAddr) -> bool,
        cx: &mut Context<'_>,
        out: &mut Outbox,
    ) {
        self.forget_opened();
        let is_lost = |id: &SessionId| {
            let found = self.table.get(*id);
            found.is_some_and(|session| is_that_way(session.local.ip(), session.remote.ip()))
        };
        let lost: Vec<SessionId> = self.opening.iter().copied().filter(is_lost).collect();
        for id in lost {
            self.with(id.index, cx, out, |session, ctx| session.on_next_hop_unreachable(ctx));
        }
    }

    /// Processes an ICMP error about a segment from `local` to `remote` that began at `sequence`.
    pub fn on_icmp(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        sequence: Sequence,
        trouble: IcmpErrorClass,
        cx: &mut Context<'_>,
        out: &mut Outbox,
    ) {
        match self.table.find(local, remote) {
            Some(index) => {
                self.with(index, cx, out, |session, ctx| session.on_icmp(trouble, sequence, ctx));
            }
            None => self.counters.icmp_errors_rejected += 1,
        }
    }
}
