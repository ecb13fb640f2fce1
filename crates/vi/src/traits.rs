//! Attributes of VIs and paths, and asynchronous events.

/// Reliability level. It must be the same at both ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Reliability {
    /// Messages arrive at most once and in order; losses are not reported.
    Unreliable = 0,
    /// Messages arrive exactly once and in order, or the connection is lost.
    Delivery = 1,
    /// Like [`Reliability::Delivery`]; in addition, a send completes only when its data is in the peer's
    /// memory.
    Reception = 2,
}

impl Reliability {
    pub(crate) const ALL: [Reliability; 3] =
        [Reliability::Unreliable, Reliability::Delivery, Reliability::Reception];
}

/// Attributes of a VI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ViAttributes {
    /// Reliability level, which must be the same at both ends.
    pub reliability: Reliability,
    /// Maximum transfer size in bytes, which must be the same at both ends.
    pub transfer_bytes_max: u32,
    /// Quality of service, an opaque value that must be the same at both ends.
    pub qos: u64,
    /// The protection tag.
    pub tag: u32,
    /// Whether the peer may use RDMA Write on memory that allows it.
    pub rdma_write: bool,
    /// Whether the peer may use RDMA Read on memory that allows it. Must be false for an unreliable VI.
    pub rdma_read: bool,
}

/// State of a VI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ViState {
    /// Not connected. Receive descriptors may be posted.
    Idle,
    /// An outgoing request is in progress.
    ConnectPending,
    /// Connected.
    Connected,
    /// The connection broke, and all descriptors were flushed. [`crate::Nic::disconnect`] returns the VI to
    /// idle.
    Error,
}

/// Properties of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathTraits {
    /// Maximum packet length in bytes, including the header.
    pub packet_bytes: usize,
    /// Whether every packet arrives exactly once and in order (lossless).
    pub lossless: bool,
    /// Whether packets carry a CRC. If so, packets without one are dropped.
    pub checked: bool,
}

/// An asynchronous event for the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A VI's connection is lost.
    ConnectionLost {
        /// The VI.
        vi: u32,
        /// The cause, one of `crate::wire::fault`.
        fault: u32,
    },
    /// A message found no receive descriptor.
    ReceiveQueueEmpty {
        /// The VI.
        vi: u32,
    },
    /// A peer's RDMA operation was refused.
    RdmaProtection {
        /// The VI.
        vi: u32,
        /// Whether the refused operation was an RDMA Write.
        write: bool,
    },
    /// A completion queue was full and a completion was lost.
    CompletionQueueFull {
        /// The completion queue.
        queue: u32,
    },
}
