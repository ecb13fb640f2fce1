//! Errors returned to the host.

use super::control::state::QpState;
use core::fmt;

/// The reason why a request of the host failed. A failed request changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RequestError {
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

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RequestError::UnknownPd => "no such protection domain: it was not created, or is gone",
            RequestError::UnknownStag => "no such memory: its key was not issued, or it is deregistered",
            RequestError::UnknownCq => "no such completion queue: it was not created, or is gone",
            RequestError::UnknownQp => "no such queue pair: it was not created, or is gone",
            RequestError::UnknownSrq => "no such shared receive queue: it was not created, or is gone",
            RequestError::OtherPd => {
                "the shared receive queue belongs to another protection domain: make both in the same"
            }
            RequestError::InUse => "others still use it: release them first",
            RequestError::TooMany => {
                "the NIC has no more of these: release some, or raise the bound in its settings"
            }
            RequestError::Full => "the queue is full: wait for completions, or make it larger",
            RequestError::BadAddress => "the address range wraps",
            RequestError::BadAccess => "memory that peers may write to must allow local writes as well",
            RequestError::BadState(QpState::Idle) => "the queue pair does not send: connect it first; one for datagrams, let it send",
            RequestError::BadState(QpState::Rts) => "the queue pair is connected: disconnect it first",
            RequestError::BadState(_) => "the queue pair has ended: create a new one",
            RequestError::TooManyElements => "more elements than the queue was made for",
            RequestError::TooMuchInline => "more inline data than the queue was made for",
            RequestError::NotAgreed => {
                "not agreed with the peer: reads need IRD and ORD of at least 1, atomics and immediate data need \
                 extensions at both ends, a Send with immediate data needs a peer that is kiban's"
            }
            RequestError::OtherKind => "datagrams and streams have queue pairs of their own kind: take the other",
            RequestError::BadNumber => "queue pairs of datagrams have numbers of 24 bits: name it so",
        })
    }
}

impl core::error::Error for RequestError {}
