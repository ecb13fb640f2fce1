//! The states of a queue pair, and its attributes.

/// The state of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpState {
    /// Not connected.
    Idle,
    /// Connected: ready to send.
    Rts,
    /// The connection is closing: posted work is completed, then the stream ends.
    Closing,
    /// An error occurred: a Terminate is to be sent.
    Terminate,
    /// Ended: everything is flushed.
    Error,
}

/// Creation attributes of a queue pair. Queues may have zero entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpAttributes {
    /// The protection domain.
    pub pd: u32,
    /// Completion queue of the send queue.
    pub send_cq: u32,
    /// Completion queue of receives.
    pub receive_cq: u32,
    /// The shared receive queue that the queue pair uses instead of its own, if any.
    pub srq: Option<u32>,
    /// Capacity of the send queue.
    pub send_work_max: usize,
    /// Capacity of the receive queue.
    pub receive_work_max: usize,
    /// Maximum number of elements in a send.
    pub send_sges_max: usize,
    /// Maximum number of elements in a receive.
    pub receive_sges_max: usize,
    /// Maximum number of bytes of inline data.
    pub inline_bytes_max: usize,
    /// Whether all sends generate completions.
    pub signal_all: bool,
    /// Whether a message that finds no posted receive stops the stream and waits for one. Otherwise such a
    /// message ends the connection, as the standard requires.
    pub waits_for_receives: bool,
}

impl QpAttributes {
    /// The attributes of a queue pair that has no queues of its own: a target of extended reliable
    /// connections. No object has the number 0.
    pub const TARGET: QpAttributes = QpAttributes {
        pd: 0,
        send_cq: 0,
        receive_cq: 0,
        srq: None,
        send_work_max: 0,
        receive_work_max: 0,
        send_sges_max: 0,
        receive_sges_max: 0,
        inline_bytes_max: 0,
        signal_all: false,
        waits_for_receives: true,
    };
}

/// The traits of a stream, agreed on by its two ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamTraits {
    /// Maximum number of outstanding reads and atomics from the peer (IRD).
    pub ird: u16,
    /// Maximum number of outstanding reads and atomics to the peer (ORD).
    pub ord: u16,
    /// Whether both ends support RFC 7306.
    pub extensions: bool,
    /// Whether both ends are kiban NICs and support kiban's own messages.
    /// [`super::super::Rnic::set_peer_is_kiban`] sets this where the code that creates the traits cannot
    /// know it.
    pub kiban: bool,
    /// Whether we may send before the peer has sent (RFC 5044 §7.1.2: a responder may not).
    pub may_send: bool,
}

/// The action that a queue pair requests of its stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamAction {
    /// Continue.
    Open,
    /// Send everything that is queued, then close gracefully.
    Finish,
    /// Abort at once.
    Abort,
}

/// The handling of posted work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Post {
    /// Sent in its turn.
    Queued,
    /// Waits for the stream.
    AwaitsStream,
    /// Flushed after the work that is still to be sent.
    FlushedInOrder,
    /// Flushed at once.
    Flushed,
}
