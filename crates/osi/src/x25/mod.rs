//! The packet layer of X.25: many logical channels over one link (X.25 §3 to §7 and Annexes B to E, ISO
//! 8208).
//!
//! Purpose          a unit of any length is sent in packets and received complete; payload is cut and joined,
//!                  never copied.
//! Roles            a DTE; and as much of a DCE as the other end of a back-to-back line, and XOT, need.
//! Transmit path    units are cut into packets of the negotiated size, with the M bit between them. A channel
//!                  sends while its window is open; channels take turns, control packets go first.
//! Receive path     units are delivered when complete. Their last packet is acknowledged when the host has
//!                  taken them, so that P(R) with D = 1 means delivery.
//! Tables           [`state`] has Annex C as data; a protocol error is answered by the restart, clear, reset
//!                  or diagnostic of its cell.
//! Timers           T20 to T23 (T10 to T13 at a DCE) and T26. An unconfirmed restart is repeated for ever, a
//!                  clear or a reset `tries_max` times.
//! Limits           `unit_bytes_max` for a unit, `outgoing_bytes_max` waiting on each channel, `calls_max`
//!                  incoming calls that the host has not polled, [`CONTROL_PACKETS_MAX`] control packets that
//!                  wait for the link.
//! Not implemented  sending REJ, T24, T25 and T27, registration, charging, hunt groups and other facilities
//!                  that only a network has; unknown facilities are handed up unchanged.

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

/// Maximum number of control packets that wait for the link; beyond it, the peer's packets are not answered.
pub const CONTROL_PACKETS_MAX: usize = 4096;

/// Logical channel ranges (X.25 Annex A), as the DTE sees them.
#[derive(Clone, Debug, Default)]
pub struct Channels {
    /// Permanent virtual circuits.
    pub permanent: Option<RangeInclusive<u16>>,
    /// One-way incoming: calls by the DCE only.
    pub incoming: Option<RangeInclusive<u16>>,
    /// Two-way: calls by either.
    pub two_way: Option<RangeInclusive<u16>>,
    /// One-way outgoing: calls by the DTE only.
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
    /// Default sizes: of calls without size facilities, and of permanent circuits.
    pub default: Sizes,
    /// Maximum packet size in octets that a call may negotiate.
    pub packet_bytes_max: u16,
    /// Maximum window in packets that a call may negotiate.
    pub window_max: u8,
    /// Whether every call states its sizes (XOT has no default).
    pub states_sizes: bool,
    /// Whether a restart follows when the link comes up (not in XOT).
    pub restarts: bool,
    /// The timers.
    pub timers: Timers,
    /// R22, R23: how often a reset or a clear is sent.
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
    /// Restarts: ends all circuits.
    Restart(Cause),
    /// Calls on a free channel ([`Layer::free_channel`]).
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
        /// With fast select, up to 128 octets.
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
    /// Stops the peer's data on a channel (RNR), or resumes it.
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
    /// The link is up; also after it was reset, since packets may have been lost.
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
    /// The peer has restarted; each existing circuit has an indication of its own.
    Restarted(Cause),
    /// The link is down; each existing circuit has an indication of its own.
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
        /// Whether the peer cleared it; otherwise this end had to.
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
        /// The D bit: delivery is confirmed to the sender when this is taken.
        delivery: bool,
    },
    /// The oldest unit for which this was requested was delivered.
    Delivered {
        /// The channel.
        channel: u16,
    },
    /// An interrupt, which has overtaken data; polling it confirms it.
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
        /// Whether the peer reset it; otherwise this end had to.
        by_peer: bool,
        /// The cause and diagnostic.
        cause: Cause,
    },
    /// A reset was confirmed: data may be sent.
    ResetConfirmed {
        /// The channel.
        channel: u16,
    },
    /// A diagnostic packet of the DCE: its code and explanation.
    Diagnostic(u8, Vec<u8>),
}

/// Why a request was rejected; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Misuse {
    /// The channel, or the layer, is not in a state that allows it.
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
