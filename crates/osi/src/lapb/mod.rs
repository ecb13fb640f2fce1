//! LAPB: one data link between a DTE and a DCE (X.25 §2, ISO 7776).
//!
//! Purpose          delivers frames once and in order; at line rate, unless frames are lost.
//! Transmit path    [`Request::Data`] puts a packet into a queue. Frames at the front of the queue are sent,
//!                  and kept until they are acknowledged. Payload is shared, so that a retransmission needs
//!                  memory only for a header. The driver fetches a frame ([`Link::poll_down`]) whenever the
//!                  line has room; T1 starts then, not earlier.
//! Receive path     delivers in-sequence frames when the host takes them; while the host does not, the link
//!                  is busy (RNR).
//! Numbers          `v_a` is the oldest unacknowledged number; the other variables are distances from it.
//! Recovery         uses REJ (§2.4.5.6). When T1 expires, a command with P = 1 asks for the peer's state;
//!                  after its answer, frames that it has not received are retransmitted (§2.4.5.9). After N2
//!                  attempts the link is reset, which may lose data in transit and is reported as
//!                  [`Indication::Reset`].
//! T2               the time for which an acknowledgement may wait for an I frame that carries it. When half
//!                  a window is unacknowledged, an acknowledgement is sent at once.
//! T3               a virtual line has no idle state. So if no frame arrives for T3, a command with P = 1
//!                  asks for the peer's state.
//! Limits           `queue_frames_max` frames queued or unacknowledged, `up_frames_max` waiting for the host,
//!                  [`PENDING_FRAMES_MAX`] pending unnumbered responses.
//! Not implemented  X.32 identification (XID), multilink procedures, selective reject. The code that sends on
//!                  the line computes the FCS (`wire::lapb`).

mod config;
mod counters;
mod frames;
mod link;
mod primitives;
mod set_up;
mod state;
#[cfg(test)]
mod tests;
mod transfer;

pub use crate::wire::lapb::Modulo;
pub use config::{Config, PENDING_FRAMES_MAX, Role};
pub use counters::Counters;
pub use link::Link;
pub use primitives::{Indication, Misuse, Reason, Request};
pub use state::{Act, Event, State, cell};
