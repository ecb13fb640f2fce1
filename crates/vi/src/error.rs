//! Errors of the host's calls.

use crate::traits::ViState;
use core::fmt;

/// Why the NIC rejected a call from the host. A rejected call changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RequestError {
    /// No such protection tag.
    UnknownTag,
    /// No such registered memory.
    UnknownMemory,
    /// No such VI.
    UnknownVi,
    /// No such completion queue.
    UnknownQueue,
    /// There is no such connection request: it was answered, withdrawn, or timed out.
    UnknownRequest,
    /// No such path.
    UnknownPath,
    /// The object is still in use.
    InUse,
    /// A limit in [`Config`](crate::Config) is reached.
    TooMany,
    /// The VI's state does not allow the call.
    BadState(ViState),
    /// The reliability levels of the two ends differ.
    Reliability,
    /// The maximum transfer size differs from the peer's or exceeds the NIC's.
    TransferBytes,
    /// The two ends have different qualities of service.
    Qos,
    /// An unreliable VI does not support RDMA Read.
    RdmaRead,
    /// A discriminator is too long.
    BadAddress,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RequestError::UnknownTag => "no such protection tag: create one, or use that of your VI",
            RequestError::UnknownMemory => {
                "no such registered memory: its handle was never issued, or it was deregistered"
            }
            RequestError::UnknownVi => "no such VI: it was not created, or has been destroyed",
            RequestError::UnknownQueue => {
                "no such completion queue: it was not created, or has been destroyed"
            }
            RequestError::UnknownRequest => {
                "no such connection request: it was already answered, was withdrawn, or timed out"
            }
            RequestError::UnknownPath => "no path to that NIC",
            RequestError::InUse => "still in use: release the objects that use it first",
            RequestError::TooMany => {
                "a limit of the NIC is reached: release some objects of this kind, or raise the limit in the \
                 settings"
            }
            RequestError::BadState(ViState::Idle) => "the VI is idle: connect it first",
            RequestError::BadState(ViState::ConnectPending) => "the VI is connecting: wait for the answer",
            RequestError::BadState(ViState::Connected) => "the VI is connected: disconnect it first",
            RequestError::BadState(ViState::Error) => "the VI's connection broke: disconnect it first",
            RequestError::Reliability => {
                "the reliability level differs from the peer's: create both VIs with the same one"
            }
            RequestError::TransferBytes => {
                "the maximum message length differs from the peer's or exceeds the NIC's: create both VIs with \
                 the same one"
            }
            RequestError::Qos => {
                "the quality of service differs from the peer's: create both VIs with the same one"
            }
            RequestError::RdmaRead => "RDMA Read needs a reliable VI: choose reliable delivery or reception",
            RequestError::BadAddress => "the address's discriminator is too long for the NIC",
        })
    }
}

impl core::error::Error for RequestError {}
