//! Requests from the host, indications to the host, and indications from the link below.

use super::call::{Call, Sizes};
use crate::wire::x25::Cause;
use alloc::vec::Vec;
use kiban_base::Rope;

/// Requests of the host.
#[derive(Clone, Debug)]
pub enum Request {
    /// Restarts the packet layer, which ends all circuits.
    Restart(Cause),
    /// Makes a call on a free channel (`Layer::free_channel`).
    Call {
        /// The channel.
        channel: u16,
        /// Addresses, facilities and user data.
        call: Call,
    },
    /// Accepts an incoming call.
    Accept {
        /// The channel.
        channel: u16,
        /// The facilities that differ from the proposed ones and, with fast select, user data.
        call: Call,
    },
    /// Refuses an incoming call, or ends a circuit; data not yet sent is lost.
    Clear {
        /// The channel.
        channel: u16,
        /// The cause and diagnostic.
        cause: Cause,
        /// User data; up to 128 octets with fast select, otherwise none.
        user_data: Vec<u8>,
    },
    /// Sends a unit.
    Data {
        /// The channel.
        channel: u16,
        /// The unit.
        data: Rope,
        /// The Q bit.
        qualifier: bool,
        /// Whether the unit's delivery is to be reported ([`Indication::Delivered`]).
        delivery: bool,
    },
    /// Sends an interrupt of up to 32 octets, which overtakes data.
    Interrupt {
        /// The channel.
        channel: u16,
        /// The octets.
        data: Vec<u8>,
    },
    /// Resets a circuit: discards the data in both directions.
    Reset {
        /// The channel.
        channel: u16,
        /// The cause and diagnostic.
        cause: Cause,
    },
    /// Stops the peer's data on a channel (RNR), or lets it continue (RR).
    Receive {
        /// The channel.
        channel: u16,
        /// Whether data may be received.
        ready: bool,
    },
}

/// Indications of the link below.
#[derive(Clone, Debug)]
pub enum Below {
    /// The link is up. This is also indicated after a link reset, since packets may have been lost.
    Up,
    /// The link is down.
    Down,
    /// A packet.
    Data(Rope),
}

/// Indications and confirmations to the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Indication {
    /// Calls can be made.
    Ready,
    /// The peer has restarted. A separate indication was queued for each existing circuit.
    Restarted(Cause),
    /// The link is down. A separate indication was queued for each existing circuit.
    Down,
    /// An incoming call.
    Incoming {
        /// The channel.
        channel: u16,
        /// Addresses, facilities and user data.
        call: Call,
    },
    /// A call was accepted.
    Accepted {
        /// The channel.
        channel: u16,
        /// The negotiated sizes.
        sizes: Sizes,
        /// The answer.
        call: Call,
    },
    /// A circuit or a call has ended.
    Cleared {
        /// The channel.
        channel: u16,
        /// True if the peer cleared the call; false if this end did, for example after a protocol error.
        by_peer: bool,
        /// The cause and diagnostic.
        cause: Cause,
        /// User data with fast select.
        user_data: Vec<u8>,
    },
    /// A clear was confirmed: the channel is free.
    ClearConfirmed {
        /// The channel.
        channel: u16,
    },
    /// A unit.
    Data {
        /// The channel.
        channel: u16,
        /// The unit.
        data: Rope,
        /// The Q bit.
        qualifier: bool,
        /// The D bit: if it is set, polling this indication confirms delivery to the sender.
        delivery: bool,
    },
    /// The oldest unit with a delivery request was delivered.
    Delivered {
        /// The channel.
        channel: u16,
    },
    /// An interrupt, which may have overtaken data. When the host polls this indication, the interrupt is
    /// confirmed.
    Interrupt {
        /// The channel.
        channel: u16,
        /// The octets.
        data: Vec<u8>,
    },
    /// An interrupt was confirmed.
    InterruptConfirmed {
        /// The channel.
        channel: u16,
    },
    /// The circuit was reset, by the peer or after a protocol error: the data in both directions is
    /// discarded.
    Reset {
        /// The channel.
        channel: u16,
        /// True if the peer reset the circuit; false if this end did, for example after a protocol error.
        by_peer: bool,
        /// The cause and diagnostic.
        cause: Cause,
    },
    /// A reset was confirmed: data may be sent.
    ResetConfirmed {
        /// The channel.
        channel: u16,
    },
    /// A diagnostic packet from the DCE: its code and explanation.
    Diagnostic(u8, Vec<u8>),
}

/// The reason why a request was rejected. A rejected request changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Misuse {
    /// The channel, or the layer, is in a state that does not allow the request.
    State,
    /// The channel does not exist, or this end may not call on it.
    Channel,
    /// The channel's queue has no room.
    Full,
    /// The user data is longer than the packet may carry.
    TooLong,
    /// The facilities cannot be requested, or are not a valid answer.
    Facilities,
}
