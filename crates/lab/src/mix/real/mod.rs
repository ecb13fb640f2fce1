//! Runs a plan over a real network, from this host to one that runs `kiban lab serve`.
//!
//! ```text
//! sources ► Edge: shape, pack ► send when due ► UDP ─── network ── Datagrams ► Receiver: numbers, GCRA ► sinks ► Total
//! bulk sources ► TCP ────────────────────────────────── network ── read, blocks ─────────────────────────┘
//! ```
//!
//! Goal      the same statistics for a real network as for the virtual one: the same sources and sinks, the
//!           same contract, one kind of outcome.
//! Measured  losses, by sequence numbers; differences of delays only, because the clocks of the two hosts are
//!           not synchronised; and how late the sender was.
//! Left out  the reverse direction: to measure it, run the other site's flows from there. TCP is not policed,
//!           because the kernel makes its segments. The drift of the two clocks is reported, but not
//!           subtracted from delays.

pub(crate) mod bulk;
pub(crate) mod delays;
mod edge;
pub(crate) mod messages;
pub(crate) mod receive;
mod send;
pub(crate) mod wire;

pub use messages::{FlowSample, MixRequest, MixTotal};
pub use send::run;
