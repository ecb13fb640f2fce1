//! Asynchronous events for the host.

use crate::wire::rdmap::Reason;

/// An asynchronous event: anything that is reported to the host other than through completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A queue pair failed locally.
    QpFailed {
        /// The queue pair.
        qp: u32,
        /// The reason sent to the peer, if any. (RoCEv2 sends it as a NAK code.)
        reason: Option<Reason>,
    },
    /// A queue pair that stays after its peer's orderly close (see [`super::Rnic::outlive_peer_close`]) has
    /// work that no peer will accept. In InfiniBand, the work stays pending while requests to the silent
    /// peer are retried. Here, the receiver of this event decides when to give up
    /// ([`super::Rnic::give_up`]).
    Abandoned {
        /// The queue pair.
        qp: u32,
    },
    /// The peer terminated the stream.
    PeerTerminated {
        /// The queue pair.
        qp: u32,
        /// The peer's reason.
        reason: Reason,
    },
    /// A completion queue overran: completions were lost, and the queue is in error.
    CqOverrun {
        /// The completion queue.
        cq: u32,
    },
    /// A shared receive queue holds fewer receives than its limit.
    SrqLimit {
        /// The shared receive queue.
        srq: u32,
    },
    /// A queue pair will take no further receives from its shared receive queue.
    LastReceive {
        /// The queue pair.
        qp: u32,
    },
}
