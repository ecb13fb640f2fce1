//! Configuration of a packet layer.

use super::call::{PACKET_BYTES_DEFAULT, Sizes, WINDOW_DEFAULT};
use crate::lapb::Role;
use crate::wire::x25::Modulo;
use core::ops::RangeInclusive;
use core::time::Duration;

/// Maximum number of control packets waiting for the link; if more are waiting, the peer's packets are not
/// answered.
pub const CONTROL_PACKETS_MAX: usize = 4096;

/// Logical channel ranges (X.25 Annex A), from the DTE's point of view.
#[derive(Clone, Debug, Default)]
pub struct Channels {
    /// Permanent virtual circuits.
    pub permanent: Option<RangeInclusive<u16>>,
    /// One-way incoming: only the DCE makes calls.
    pub incoming: Option<RangeInclusive<u16>>,
    /// Two-way: the DTE and the DCE make calls.
    pub two_way: Option<RangeInclusive<u16>>,
    /// One-way outgoing: only the DTE makes calls.
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
    /// R22, R23: maximum number of times that a reset or a clear is sent.
    pub tries_max: u32,
    /// Maximum length of a received unit in bytes.
    pub unit_bytes_max: usize,
    /// Maximum number of bytes waiting to be sent on a channel.
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
