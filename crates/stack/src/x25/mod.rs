//! The packet layer of X.25: many circuits over one link (X.25 §3 to §7 and Annexes B to E, ISO 8208).
//!
//! Goal      a unit of any length leaves in packets and comes out whole; payload is cut and joined, never copied.
//! Ends      a DTE; and enough of a DCE to be the other end of a back-to-back line, and of XOT.
//! Down      units are cut into packets of the agreed size with M between them; a channel sends while its window is open; channels
//!           take turns, control packets go first.
//! Up        units, when they are complete; their last packet is acknowledged when the host has taken them, so that P(R) with
//!           D = 1 means delivery.
//! Tables    [`state`] has Annex C as data; a broken rule is answered by the restart, clear, reset or diagnostic of its cell.
//! Time      T20 to T23 (T10 to T13 at a DCE) and T26. A restart that nobody confirms is repeated for ever, a clear or a reset
//!           `tries_max` times.
//! Limits    a unit of `unit_bytes_max`, `outgoing_bytes_max` waiting for each channel, `calls_max` incoming calls that nobody has
//!           looked at, [`CONTROL_PACKETS_MAX`] control packets that wait for the link.
//! Left out  REJ of ours, T24, T25 and T27, registration, charging, hunt groups and other facilities that only a network has;
//!           unknown facilities are handed up as they are.

mod call;
mod channel;
mod layer;
pub mod network;
pub mod state;
#[cfg(test)]
mod tests;
pub mod xot;

pub use crate::lapb::Role;
pub use call::{Both, Call, Facilities, PACKET_BYTES_DEFAULT, Sizes, WINDOW_DEFAULT};
pub use kiban_wire::x25::{Address, AddressBlock, Cause, FastSelect, Modulo};
pub use layer::Layer;

use alloc::vec::Vec;
use core::ops::RangeInclusive;
use core::time::Duration;

use kiban_ground::{Rope, counters};

/// Control packets that wait for the link at most; what a peer causes beyond that is not answered.
pub const CONTROL_PACKETS_MAX: usize = 4096;

/// Which channels are for what (X.25 Annex A), as the DTE sees it.
#[derive(Clone, Debug, Default)]
pub struct Channels {
    /// Permanent circuits.
    pub permanent: Option<RangeInclusive<u16>>,
    /// Calls of the DCE only.
    pub incoming: Option<RangeInclusive<u16>>,
    /// Calls of either.
    pub two_way: Option<RangeInclusive<u16>>,
    /// Calls of the DTE only.
    pub outgoing: Option<RangeInclusive<u16>>,
}

/// Timers; the standard's numbers are the DTE's and the DCE's.
#[derive(Clone, Copy, Debug)]
pub struct Timers {
    /// T20, T10: a restart is confirmed within.
    pub restart: Duration,
    /// T21, T11: a call is answered within.
    pub call: Duration,
    /// T22, T12: a reset is confirmed within.
    pub reset: Duration,
    /// T23, T13: a clear is confirmed within.
    pub clear: Duration,
    /// T26: an interrupt is confirmed within.
    pub interrupt: Duration,
}

impl Timers {
    /// The values of Annex D.
    pub fn of(role: Role) -> Timers {
        let [restart, call, reset, clear] = match role {
            Role::Dte => [180, 200, 180, 180],
            Role::Dce => [60, 180, 60, 60],
        }
        .map(Duration::from_secs);
        Timers { restart, call, reset, clear, interrupt: Duration::from_secs(180) }
    }
}

/// What is agreed on beforehand.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which end this is.
    pub role: Role,
    /// Basic or extended numbering.
    pub modulo: Modulo,
    /// Which channels there are.
    pub channels: Channels,
    /// Sizes of calls that say nothing, and of permanent circuits.
    pub default: Sizes,
    /// Octets in a packet that a call may agree on, at most.
    pub packet_bytes_max: u16,
    /// Packets in a window that a call may agree on, at most.
    pub window_max: u8,
    /// Whether every call states its sizes (XOT has no default).
    pub states_sizes: bool,
    /// Whether a link that comes up begins with a restart (XOT has none).
    pub restarts: bool,
    /// Timers.
    pub timers: Timers,
    /// R22, R23: how often a reset or a clear is sent.
    pub tries_max: u32,
    /// The longest unit that is put together.
    pub unit_bytes_max: usize,
    /// What may wait on a channel.
    pub outgoing_bytes_max: usize,
    /// Incoming calls that the host has not looked at.
    pub calls_max: usize,
}

impl Config {
    /// Usual values: modulo 8, channels 1 to 16 for calls of either, packets of 128 octets, windows of 2.
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

/// What the host asks for.
#[derive(Clone, Debug)]
pub enum Request {
    /// Ends all circuits and begins anew.
    Restart(Cause),
    /// Calls on a channel that is free ([`Layer::free_channel`]).
    Call {
        /// The channel.
        channel: u16,
        /// Whom, and how.
        call: Call,
    },
    /// Answers an incoming call.
    Accept {
        /// The channel.
        channel: u16,
        /// Facilities that differ from those asked for; user data with fast select.
        call: Call,
    },
    /// Refuses an incoming call, or ends a circuit; what was not sent is lost.
    Clear {
        /// The channel.
        channel: u16,
        /// Why.
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
        /// Q.
        qualifier: bool,
        /// Whether its delivery is told ([`Indication::Delivered`]).
        delivery: bool,
    },
    /// Sends up to 32 octets past all data.
    Interrupt {
        /// The channel.
        channel: u16,
        /// The octets.
        data: Vec<u8>,
    },
    /// Empties both directions.
    Reset {
        /// The channel.
        channel: u16,
        /// Why.
        cause: Cause,
    },
    /// Stops the peer's data on a channel, or lets them come again.
    Receive {
        /// The channel.
        channel: u16,
        /// Whether they may come.
        ready: bool,
    },
}

/// What the link below says.
#[derive(Clone, Debug)]
pub enum Below {
    /// The link is up; also when it was set up anew, since packets may have been lost.
    Up,
    /// The link is down.
    Down,
    /// A packet.
    Data(Rope),
}

/// What the host is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Indication {
    /// Calls can be made.
    Ready,
    /// The peer has restarted; circuits that there were are told of one by one.
    Restarted(Cause),
    /// The link is down, likewise.
    Down,
    /// The peer calls.
    Incoming {
        /// The channel.
        channel: u16,
        /// Who, whom, how.
        call: Call,
    },
    /// A call was accepted.
    Accepted {
        /// The channel.
        channel: u16,
        /// What was agreed on.
        sizes: Sizes,
        /// The answer.
        call: Call,
    },
    /// A circuit or a call has ended.
    Cleared {
        /// The channel.
        channel: u16,
        /// Whether the peer said so; else this end had to.
        by_peer: bool,
        /// Why.
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
        /// Q.
        qualifier: bool,
        /// D: the sender is told when this is taken.
        delivery: bool,
    },
    /// The oldest unit that had asked for it was delivered.
    Delivered {
        /// The channel.
        channel: u16,
    },
    /// Octets that have passed all data; taking them confirms them.
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
    /// Both directions are empty: the peer, or a broken rule, has reset the circuit.
    Reset {
        /// The channel.
        channel: u16,
        /// Whether the peer said so; else this end had to.
        by_peer: bool,
        /// Why.
        cause: Cause,
    },
    /// A reset was confirmed: data may be sent.
    ResetConfirmed {
        /// The channel.
        channel: u16,
    },
    /// A DCE's diagnostic packet: its code and what it explains.
    Diagnostic(u8, Vec<u8>),
}

/// Why a request was not taken; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Misuse {
    /// The channel, or the layer, is not in a state for it.
    State,
    /// There is no such channel, or this end may not call on it.
    Channel,
    /// More waits than the channel may hold.
    Full,
    /// User data longer than the packet may carry.
    TooLong,
    /// Facilities that cannot be asked for or answered.
    Facilities,
}

counters! {
    /// What a layer saw.
    pub struct Counters {
        /// Packets that were fetched for the link.
        packets_out,
        /// Packets that came.
        packets_in,
        /// Restarts by this end for a broken rule.
        restarts_for_errors,
        /// Clears by this end for a broken rule.
        clears_for_errors,
        /// Resets by this end for a broken rule.
        resets_for_errors,
        /// Packets discarded because a state says so.
        discarded,
        /// Packets discarded that a DCE says so of.
        diagnostics,
        /// Registration packets, which are read and nothing more.
        registrations,
        /// Calls that were refused because too many wait.
        calls_refused,
        /// Timers that ran out.
        timeouts,
        /// Control packets that the link was too slow for.
        control_lost,
    }
}
