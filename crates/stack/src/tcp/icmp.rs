//! What ICMP says of a segment that we sent (RFC 1122 §4.2.3.9, RFC 5927), and what the links below know for certain.

use super::{Outbox, SessionId, Tcp};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use kiban_ground::Context;
use kiban_wire::tcp::Sequence;

/// An ICMP error about a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// No way to the net or the host, or none allowed (type 3, codes 0, 1, 5 to 13).
    Unreachable,
    /// The peer has no such protocol (type 3, code 2).
    ProtocolUnreachable,
    /// The peer has no such port (type 3, code 3).
    PortUnreachable,
    /// The packet was too big for the path (type 3, code 4; ICMPv6 type 2).
    PacketTooBig {
        /// What the path takes, bytes of an IP packet.
        mtu: u32,
    },
    /// The packet was under way for too long (type 11).
    TimeExceeded,
    /// Something in the header was wrong (type 12).
    ParameterProblem,
}

impl Tcp {
    /// A session that has just been made learns what its way takes, bytes of an IP packet (RFC 9293 §3.7.1: MMS_S).
    pub fn on_way(&mut self, session: SessionId, mtu: u32, cx: &mut Context<'_>, out: &mut Outbox) {
        // One that has gone already needs no way.
        let _ = self.with_known(session, cx, out, |found, desk| found.learn_way(mtu, desk));
    }

    /// Whether an ICMP error may be true of a segment that began at `sequence`: such a byte is on its way (RFC 5927
    /// §4.1). To be asked before anything beside the session learns from it; a lie is counted.
    pub fn believes(&mut self, local: SocketAddr, remote: SocketAddr, sequence: Sequence) -> bool {
        let session = self.table.find(local, remote).and_then(|index| self.table.at(index));
        let believed = session.is_some_and(|session| session.is_on_its_way(sequence));
        self.counters.troubles_disbelieved += u64::from(!believed);
        believed
    }

    /// Nobody answers for a next hop. Sessions whose SYN goes that way, by what `is_that_way` says of our address and the
    /// peer's, end; those that have been made go on, since somebody may be there again (RFC 1122 §4.2.3.9).
    pub fn on_nobody(
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
            self.with(id.index, cx, out, |session, desk| session.on_nobody(desk));
        }
    }

    /// An ICMP error has come about a segment from `local` to `remote` that began at `sequence`.
    pub fn on_icmp(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        sequence: Sequence,
        trouble: Trouble,
        cx: &mut Context<'_>,
        out: &mut Outbox,
    ) {
        match self.table.find(local, remote) {
            Some(index) => {
                self.with(index, cx, out, |session, desk| session.on_icmp(trouble, sequence, desk));
            }
            None => self.counters.troubles_disbelieved += 1,
        }
    }
}
