//! Errors returned to the host.

use super::control::state::QpState;
use core::fmt;

/// The reason why a request from the host failed. A failed request changes nothing.
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
    /// No such XRC domain.
    UnknownXrcDomain,
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
    /// There are more scatter/gather elements than the queue was created for.
    TooManyElements,
    /// There is more inline data than the queue was created for, or the operation does not take inline data.
    TooMuchInline,
    /// The peer accepts no reads, or does not support this operation.
    NotAgreed,
    /// The queue pair or shared receive queue is of another type than the request needs.
    OtherKind,
    /// The number of a datagram queue pair, or the number set for it, exceeds 24 bits.
    BadNumber,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RequestError::UnknownPd => "no such protection domain: it was not created, or was destroyed",
            RequestError::UnknownStag => {
                "no such memory region: its key was never issued, or it was deregistered"
            }
            RequestError::UnknownCq => "no such completion queue: it was not created, or was destroyed",
            RequestError::UnknownQp => "no such queue pair: it was not created, or was destroyed",
            RequestError::UnknownSrq => "no such shared receive queue: it was not created, or was destroyed",
            RequestError::UnknownXrcDomain => "no such XRC domain: it was not opened, or was closed",
            RequestError::OtherPd => {
                "the shared receive queue belongs to another protection domain: create both in the same one"
            }
            RequestError::InUse => "still in use: release the objects that use it first",
            RequestError::TooMany => {
                "a limit of the NIC is reached: release some objects of this kind, or raise the limit in the \
                 settings"
            }
            RequestError::Full => "the queue is full: wait for completions, or make it larger",
            RequestError::BadAddress => "the address range wraps",
            RequestError::BadAccess => {
                "inconsistent access rights: memory that peers may write to must also allow local writes"
            }
            RequestError::BadState(QpState::Idle) => {
                "the queue pair is not ready to send: first connect it or, for datagrams, move it to RTS"
            }
            RequestError::BadState(QpState::Rts) => "the queue pair is connected: disconnect it first",
            RequestError::BadState(_) => "the queue pair has ended: create a new one",
            RequestError::TooManyElements => {
                "too many scatter/gather elements: create the queue with a higher maximum"
            }
            RequestError::TooMuchInline => "too much inline data: create the queue with a higher maximum",
            RequestError::NotAgreed => {
                "not negotiated with the peer: reads need an IRD and ORD of at least 1, atomics and immediate data \
                 need extensions at both ends, and a Send with immediate data needs kiban at both ends"
            }
            RequestError::OtherKind => {
                "wrong type of queue pair or queue: datagrams need a datagram queue pair, and an XRC shared receive \
                 queue an XRC target"
            }
            RequestError::BadNumber => "a datagram queue pair's number must fit in 24 bits",
        })
    }
}

impl core::error::Error for RequestError {}
