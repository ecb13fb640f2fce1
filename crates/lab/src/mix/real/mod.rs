//! A plan over a real network: from one host to another that runs `kiban lab serve`.
//!
//! ```text
//! sources ► Edge: shape, pack ► send, when due ► UDP ── network ── Datagrams ► Receiver: numbers, GCRA ► sinks ► Total
//! bulk: all it may ► TCP ─────────────────────────────── network ── read, blocks ─────────────────────────┘
//! ```
//!
//! Goal      the figures of the virtual network, of a real one: the same sources and sinks, the same
//!           contract, one outcome.
//! Told      losses by numbers; delays by their differences alone, since clocks of two hosts do not agree;
//!           how late the sender was.
//! Left out  the way back: flows of the other site are sent from there. TCP is not policed: its segments are
//!           the kernel's. The drift of the two clocks is reported, but not subtracted from delays.

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
