//! The packet layer of X.25: many logical channels over one link (X.25 §3 to §7 and Annexes B to E, ISO
//! 8208).
//!
//! Purpose          units of any length are sent in packets and delivered complete. Payload is cut and joined
//!                  without copying.
//! Roles            a DTE, and as much of a DCE as is needed for XOT and for the other end of a back-to-back
//!                  line.
//! Transmit path    units are cut into packets of the negotiated size, with the M bit set in all but the
//!                  last. A channel sends while its window is open; channels take turns, and control packets
//!                  go first.
//! Receive path     units are delivered when complete. Their last packet is acknowledged when the host has
//!                  taken the unit, so that P(R) with D = 1 confirms delivery.
//! State            [`state`] contains the tables of Annex C as data. The answer to a protocol error is the
//!                  restart, clear, reset or diagnostic that the cell specifies.
//! Timers           T20 to T23 (T10 to T13 at a DCE) and T26. An unconfirmed restart is repeated without
//!                  limit; a clear or a reset is sent `tries_max` times.
//! Limits           `unit_bytes_max` for a unit, `outgoing_bytes_max` waiting on each channel, `calls_max`
//!                  incoming calls that the host has not polled, [`CONTROL_PACKETS_MAX`] control packets that
//!                  wait for the link.
//! Not implemented  sending REJ, T24, T25 and T27, registration, charging, hunt groups and other facilities
//!                  that only a network has; unknown facilities are passed up unchanged.

mod call;
mod channel;
mod config;
mod counters;
mod interface;
mod layer;
pub mod network;
mod primitives;
pub mod state;
pub mod switch;
#[cfg(test)]
mod tests;
pub mod xot;

pub use crate::lapb::Role;
pub use crate::wire::x25::{Address, AddressBlock, Cause, FastSelect, Modulo};
pub use call::{Both, Call, Facilities, PACKET_BYTES_DEFAULT, Sizes, WINDOW_DEFAULT};
pub use config::{CONTROL_PACKETS_MAX, Channels, Config, Timers};
pub use counters::Counters;
pub use interface::{Interface, InterfaceCounters};
pub use layer::Layer;
pub use primitives::{Below, Indication, Misuse, Request};
