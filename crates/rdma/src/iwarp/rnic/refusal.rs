//! Errors returned to the host.

use super::control::state::QpState;
use core::fmt;

/// The reason why a request of the host failed. A failed request changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// No such protection domain.
    UnknownPd,
    /// No such steering tag.
    UnknownStag,
    /// No such completion queue.
    UnknownCq,
    /// No such queue pair.
    UnknownQp,
    /// No such shared receive queue.
    UnknownSrq,
    /// The shared receive queue belongs to another protection domain.
    OtherPd,
    /// The object is still in use.
    InUse,
    /// A limit of [`super::Config`] or of the queue is reached.
    TooMany,
    /// The queue is full: wait for completions.
    Full,
    /// The address range wraps.
    BadAddress,
    /// The access rights are inconsistent.
    BadAccess,
    /// The queue pair's state does not allow the request.
    BadState(QpState),
    /// More scatter/gather elements than the queue was created for.
    TooManyElements,
    /// More inline data than the queue was created for, or inline data for an operation that takes none.
    TooMuchInline,
    /// The peer accepts no reads, or does not support this operation.
    NotAgreed,
    /// A datagram request on a stream queue pair, or the reverse.
    OtherKind,
    /// The number or name of a datagram queue pair exceeds 24 bits.
    BadNumber,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::UnknownPd => "no such protection domain: it was never made, or is gone",
            Refusal::UnknownStag => "no such memory: its key was never given, or is deregistered",
            Refusal::UnknownCq => "no such completion queue: it was never made, or is gone",
            Refusal::UnknownQp => "no such queue pair: it was never made, or is gone",
            Refusal::UnknownSrq => "no such shared receive queue: it was never made, or is gone",
            Refusal::OtherPd => {
                "the shared receive queue belongs to another protection domain: make both in the same"
            }
            Refusal::InUse => "others still use it: release them first",
            Refusal::TooMany => {
                "the NIC has no more of these: release some, or raise the bound in its settings"
            }
            Refusal::Full => "the queue is full: wait for completions, or make it larger",
            Refusal::BadAddress => "the address range wraps",
            Refusal::BadAccess => "memory that peers may write to must allow local writes as well",
            Refusal::BadState(QpState::Idle) => "the queue pair does not send: connect it first; one for datagrams, let it send",
            Refusal::BadState(QpState::Rts) => "the queue pair is connected: disconnect it first",
            Refusal::BadState(_) => "the queue pair is over: make a new one",
            Refusal::TooManyElements => "more elements than the queue was made for",
            Refusal::TooMuchInline => "more inline data than the queue was made for",
            Refusal::NotAgreed => {
                "not agreed with the peer: reads need IRD and ORD of at least 1, atomics and immediate data need \
                 extensions at both ends, a Send with immediate data needs a peer that is kiban's"
            }
            Refusal::OtherKind => "datagrams and streams have queue pairs of their own kind: take the other",
            Refusal::BadNumber => "queue pairs of datagrams have numbers of 24 bits: name it so",
        })
    }
}

impl core::error::Error for Refusal {}
