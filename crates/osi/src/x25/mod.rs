//! The packet layer of X.25: many logical channels over one link (X.25 §3 to §7 and Annexes B to E, ISO
//! 8208).
//!
//! Purpose          a unit of any length is sent in packets and delivered complete; payload is cut and joined
//!                  without copying.
//! Roles            a DTE; of a DCE, what XOT and the other end of a back-to-back line need.
//! Transmit path    units are cut into packets of the negotiated size, with the M bit set in all but the
//!                  last. A channel sends while its window is open; channels take turns, control packets go
//!                  first.
//! Receive path     units are delivered when complete. Their last packet is acknowledged when the host has
//!                  taken the unit, so that P(R) with D = 1 confirms delivery.
//! State            [`state`] has the tables of Annex C as data; the answer to a protocol error is the
//!                  restart, clear, reset or diagnostic that the table's cell specifies.
//! Timers           T20 to T23 (T10 to T13 at a DCE) and T26. An unconfirmed restart is repeated without
//!                  limit, a clear or a reset `tries_max` times.
//! Limits           `unit_bytes_max` for a unit, `outgoing_bytes_max` waiting on each channel, `calls_max`
//!                  incoming calls that the host has not polled, [`CONTROL_PACKETS_MAX`] control packets that
//!                  wait for the link.
//! Not implemented  sending REJ, T24, T25 and T27, registration, charging, hunt groups and other facilities
//!                  that only a network has; unknown facilities are passed up unchanged.

mod call;
mod channel;
mod layer;
pub mod network;
pub mod state;
#[cfg(test)]
mod tests;
pub mod xot;

pub use crate::lapb::Role;
pub use crate::wire::x25::{Address, AddressBlock, Cause, FastSelect, Modulo};
pub use call::{Both, Call, Facilities, PACKET_BYTES_DEFAULT, Sizes, WINDOW_DEFAULT};
pub use layer::Layer;

use alloc::vec::Vec;
use core::ops::RangeInclusive;
use core::time::Duration;

use kiban_base::{Rope, counters};

/// Maximum number of control packets waiting for the link; above it, the peer's packets are not answered.
pub const CONTROL_PACKETS_MAX: usize = 4096;

/// Logical channel ranges (X.25 Annex A), as the DTE sees them.
#[derive(Clone, Debug, Default)]
pub struct Channels {
    /// Permanent virtual circuits.
    pub permanent: Option<RangeInclusive<u16>>,
    /// One-way incoming: only the DCE calls.
    pub incoming: Option<RangeInclusive<u16>>,
    /// Two-way: DTE and DCE call.
    pub two_way: Option<RangeInclusive<u16>>,
    /// One-way outgoing: only the DTE calls.
    pub outgoing: Option<RangeInclusive<u16>>,
}

/// Timers, with the standard's numbers for the DTE and the DCE.
#[derive(Clone, Copy, Debug)]
pub struct Timers {
    /// T20, T10: time limit for a restart confirmation.
    pub restart: Duration,
    /// T21, T11: time limit for the answer to a call.
    pub call: Duration,
    /// T22, T12: time limit for a reset confirmation.
    pub reset: Duration,
    /// T23, T13: time limit for a clear confirmation.
    pub clear: Duration,
    /// T26: time limit for an interrupt confirmation.
    pub interrupt: Duration,
}

impl Timers {
    /// Returns the values of Annex D.
    pub fn of(role: Role) -> Timers {
        let [restart, call, reset, clear] = match role {
            Role::Dte => [180, 200, 180, 180],
            Role::Dce => [60, 180, 60, 60],
        }
        .map(Duration::from_secs);
        Timers { restart, call, reset, clear, interrupt: Duration::from_secs(180) }
    }
}

/// Configuration of a packet layer; both ends must agree on most of it beforehand.
#[derive(Clone, Debug)]
pub struct Config {
    /// The role of this end.
    pub role: Role,
    /// Basic or extended numbering.
    pub modulo: Modulo,
    /// The logical channel ranges.
    pub channels: Channels,
    /// Default sizes, for calls without size facilities and for permanent circuits.
    pub default: Sizes,
    /// Maximum packet size in octets that a call may negotiate.
    pub packet_bytes_max: u16,
    /// Maximum window in packets that a call may negotiate.
    pub window_max: u8,
    /// Whether every call must state its sizes, as in XOT, which has no default.
    pub states_sizes: bool,
    /// Whether this end sends a restart when the link comes up; XOT does not.
    pub restarts: bool,
    /// The timers.
    pub timers: Timers,
    /// R22, R23: how many times a reset or a clear is sent.
    pub tries_max: u32,
    /// Maximum length of a received unit in bytes.
    pub unit_bytes_max: usize,
    /// Maximum number of bytes that wait to be sent on a channel.
    pub outgoing_bytes_max: usize,
    /// Maximum number of incoming calls that the host has not polled.
    pub calls_max: usize,
}

impl Config {
    /// Returns common values: modulo 8, two-way channels 1 to 16, packets of 128 octets, windows of 2.
    pub fn new(role: Role) -> Config {
        Config {
            role,
            modulo: Modulo::Eight,
            channels: Channels { two_way: Some(1..=16), ..Channels::default() },
            default: Sizes::same(PACKET_BYTES_DEFAULT, WINDOW_DEFAULT),
            packet_bytes_max: 4096,
            window_max: 7,
            states_sizes: false,
            restarts: true,
            timers: Timers::of(role),
            tries_max: 2,
            unit_bytes_max: 1 << 24,
            outgoing_bytes_max: 1 << 24,
            calls_max: 64,
        }
    }
}

/// Requests of the host.
#[derive(Clone, Debug)]
pub enum Request {
    /// Restarts the packet layer, which ends all circuits.
    Restart(Cause),
    /// Makes a call on a free channel ([`Layer::free_channel`]).
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
        /// Facilities that differ from the proposed ones; user data with fast select.
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
        /// Whether its delivery is reported ([`Indication::Delivered`]).
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
    /// The link is up. Also sent after a link reset, since packets may have been lost.
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
    /// The peer has restarted. Each existing circuit has got a separate indication.
    Restarted(Cause),
    /// The link is down. Each existing circuit has got a separate indication.
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
        /// Whether the peer cleared it; otherwise this end did, for example after a protocol error.
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
        /// The D bit: taking this indication confirms delivery to the sender.
        delivery: bool,
    },
    /// The oldest unit with a delivery request was delivered.
    Delivered {
        /// The channel.
        channel: u16,
    },
    /// An interrupt, which has overtaken data. It is confirmed when the host polls this indication.
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
        /// Whether the peer reset it; otherwise this end did, for example after a protocol error.
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

/// Why a request was rejected; a rejected request changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Misuse {
    /// The channel, or the layer, is in a state that does not allow the request.
    State,
    /// The channel does not exist, or this end may not call on it.
    Channel,
    /// The channel's queue has no room.
    Full,
    /// User data longer than the packet may carry.
    TooLong,
    /// Facilities that cannot be requested, or that are not a valid answer.
    Facilities,
}

counters! {
    /// Counters of a packet layer.
    pub struct Counters {
        /// Packets sent.
        packets_out,
        /// Packets received.
        packets_in,
        /// Restarts by this end for a protocol error.
        restarts_for_errors,
        /// Clears by this end for a protocol error.
        clears_for_errors,
        /// Resets by this end for a protocol error.
        resets_for_errors,
        /// Packets discarded because of the state.
        discarded,
        /// Packets discarded for which a DCE sends a diagnostic packet.
        diagnostics,
        /// Registration packets received, which have no effect.
        registrations,
        /// Calls refused because too many are waiting.
        calls_refused,
        /// Timers that expired.
        timeouts,
        /// Control packets dropped because too many were waiting for the link.
        control_lost,
    }
}
