//! The RTP testbed: senders and receivers with a report for each stream (paper \[1\], §5).
//!
//! ```text
//! real    sender ── RTP ──▶ receiver, over UDP of hosts or of running boards; RTCP in both directions
//! boards  the same machines as programs on two simulated boards, over a cable with known impairments
//! ```
//!
//! Machine   [`kiban_tcpip::rtp`] in both; only the sockets and the clock differ.
//! Delay     the receiver cannot know the one-way delay unless it shares the sender's clock. Otherwise it
//!           reports the variation: each transit time minus the shortest one. The sender measures round
//!           trips with its own clock.
//! Left out  playout buffers, payload formats.

pub mod boards;
pub mod measured;
pub mod receive;
pub mod send;
mod socket;
pub mod stream;

pub use measured::{Received, Sent};
pub use stream::Stream;
