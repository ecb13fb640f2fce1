//! What a sender waited for.

/// What a sender waited for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Waited {
    /// Nothing: segments followed each other.
    Sending,
    /// Acknowledgements: the congestion window was full.
    Network,
    /// The receiver's window was full.
    ReceiveWindow,
    /// The receiver's window was closed: zero.
    ZeroWindow,
    /// Nagle's algorithm held a short segment while the receiver delayed its acknowledgement.
    DelayedAck,
    /// The sending application had nothing to send.
    Application,
    /// The sending application waited for data of the peer.
    Peer,
    /// The server prepared an answer to the client's data.
    ThinkTime,
    /// Between two exchanges: the client had its answer and sent no request.
    Idle,
    /// A retransmission timer.
    Timeout,
    /// Retransmissions of lost segments.
    Recovery,
    /// What a requester of RoCEv2 waited for.
    #[serde(untagged)]
    Roce(crate::roce::Waited),
}

impl Waited {
    /// Returns what was waited for in a few words.
    pub fn words(self) -> &'static str {
        match self {
            Waited::Sending => "sending",
            Waited::Network => "waiting for acknowledgements (congestion window)",
            Waited::ReceiveWindow => "waiting for a full receive window",
            Waited::ZeroWindow => "waiting for a closed receive window",
            Waited::DelayedAck => "holding short segments until a delayed acknowledgement",
            Waited::Application => "waiting for the sender (its program, or its send buffer)",
            Waited::Peer => "waiting for the peer's data",
            Waited::ThinkTime => "preparing an answer (think time)",
            Waited::Idle => "idle between two exchanges",
            Waited::Timeout => "waiting for a retransmission timer",
            Waited::Recovery => "repairing losses",
            Waited::Roce(waited) => waited.words(),
        }
    }
}
