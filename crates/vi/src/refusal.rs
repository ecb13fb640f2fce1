//! Errors of the host's calls.

use crate::traits::ViState;
use core::fmt;

/// Why the NIC rejected a call of the host. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// No such protection tag.
    UnknownTag,
    /// No such registered memory.
    UnknownMemory,
    /// No such VI.
    UnknownVi,
    /// No such completion queue.
    UnknownQueue,
    /// No such connection request: it was answered, withdrawn, or timed out.
    UnknownRequest,
    /// No such path.
    UnknownPath,
    /// The object is still in use.
    InUse,
    /// A bound of [`Config`](crate::Config) is reached.
    TooMany,
    /// The VI's state does not allow it.
    BadState(ViState),
    /// The reliability levels of the two ends differ.
    Reliability,
    /// The maximum transfer size differs from the peer's or exceeds the NIC's.
    TransferBytes,
    /// The qualities of service of the two ends differ.
    Qos,
    /// An unreliable VI does not support RDMA Read.
    RdmaRead,
    /// A discriminator is too long.
    BadAddress,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::UnknownTag => "no such protection tag: create one, or use the one of your VI",
            Refusal::UnknownMemory => {
                "no such registered memory: its handle was never given, or is deregistered"
            }
            Refusal::UnknownVi => "no such VI: it was never made, or has been destroyed",
            Refusal::UnknownQueue => "no such completion queue: it was never made, or has been destroyed",
            Refusal::UnknownRequest => "no such request to connect: it is answered, withdrawn or given up",
            Refusal::UnknownPath => "there is no way to that NIC",
            Refusal::InUse => "others still use it: release them first",
            Refusal::TooMany => {
                "the NIC has no more of these: release some, or raise the bound in its settings"
            }
            Refusal::BadState(ViState::Idle) => "the VI is idle: connect it first",
            Refusal::BadState(ViState::ConnectPending) => "the VI is connecting: wait for the answer",
            Refusal::BadState(ViState::Connected) => "the VI is connected: disconnect it first",
            Refusal::BadState(ViState::Error) => "the VI's connection broke: disconnect it first",
            Refusal::Reliability => "the two ends have different reliability levels: make the VIs alike",
            Refusal::TransferBytes => {
                "the longest message differs from the peer's or exceeds the NIC's: choose one that both have"
            }
            Refusal::Qos => "the two ends have different qualities of service: make the VIs alike",
            Refusal::RdmaRead => "RDMA Read needs a reliable VI: choose reliable delivery or reception",
            Refusal::BadAddress => "the address's discriminator is longer than the NIC takes",
        })
    }
}

impl core::error::Error for Refusal {}
