//! A plan over a real network: from one host to another that runs `kiban lab serve`.
//!
//! ```text
//! sources ► Edge: shape, pack ► send, when due ► UDP ── network ── Datagrams ► Receiver: numbers, GCRA ► sinks ► Total
//! bulk: all it may ► TCP ─────────────────────────────── network ── read, blocks ─────────────────────────┘
//! ```
//!
//! Goal      the figures of the virtual network for a real one: the same sources and sinks, the same
//!           contract, one outcome.
//! Measured  losses from sequence numbers; only differences of delays, because the clocks of two hosts do not
//!           agree; how late the sender was.
//! Left out  the reverse direction: flows of the other site are sent from there. TCP is not policed, because
//!           its segments are the kernel's. The drift of the two clocks is reported, but not subtracted from
//!           delays.

mod bulk;
mod delays;
mod edge;
mod protocol;
mod receive;
mod send;
mod serve;
mod wire;

pub use protocol::MixRequest;
pub use send::run;
pub(crate) use serve::{Room, serve};
