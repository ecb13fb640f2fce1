//! Requests from the layer above, and indications to it.

use kiban_base::Rope;

/// Requests of the layer above.
#[derive(Clone, Debug)]
pub enum Request {
    /// Sets the link up.
    Connect,
    /// Takes the link down.
    Disconnect,
    /// Sends a packet.
    Data(Rope),
    /// Stops the peer's frames (RNR), or lets them continue.
    Busy(bool),
}

/// Indications to the layer above.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Indication {
    /// The link is up.
    Connected,
    /// A packet.
    Data(Rope),
    /// The link was reset: packets may have been lost in both directions.
    Reset,
    /// The link is down, for this reason.
    Disconnected(Reason),
}

/// The reason why a link is down.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// The host at this end requested it.
    Requested,
    /// The peer has disconnected it.
    ByPeer,
    /// The peer refuses the link.
    Refused,
    /// The peer does not answer.
    NoAnswer,
}

/// The reason why a request was rejected. A rejected request changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Misuse {
    /// The state of the link does not allow the request.
    State,
    /// The queue is full: wait until `Link::room` is not 0.
    Full,
    /// The packet is longer than N1 allows.
    TooLong,
}
