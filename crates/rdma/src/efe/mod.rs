//! An EFE-like transport: reliable delivery of segments over Ethernet.
//!
//! Purpose          the lower layer of an RDMA NIC, modelled on the Ether Forwarding Engine of paper \[3\]:
//!                  frames lost on Ethernet are retransmitted end to end, receivers never drop frames for
//!                  lack of room, and queues stay short. NEC's format is not published;
//!                  `docs/efe.md` describes the ones used here.
//! Host side        offers flows between services: a host connects or accepts, sends and receives segments,
//!                  and finishes or aborts. A segment is a byte string of at most 1472 bytes; segments are
//!                  delivered whole, once and in order.
//! Transmit path    a link that can send a frame calls [`Endpoint::fetch`] and provides the buffer. Flows
//!                  take turns, one frame each.
//! Receive path     a link passes each received frame to [`Endpoint::arrive`]. Invalid frames are counted
//!                  and have no other effect.
//! Acknowledgement  an acknowledgement without data is sent only after [`Endpoint::settle`], because the
//!                  host may send a segment that carries the acknowledgement before then.
//! Memory           each flow has one ring of 64 slots per direction. The slots keep their memory, so in
//!                  steady state frames need no allocation.
//! Validation       a frame is accepted only if it comes from a flow's peer and carries the flow's number
//!                  and key. A request that the peer does not confirm holds one of `asked_max` slots for a
//!                  limited time.
//! Not implemented  encryption; more than 64 frames in flight; multipath.

mod config;
mod congestion;
mod counters;
mod drain_epochs;
mod endpoint;
pub mod ethernet;
mod flow;
mod host;
mod path;
mod receive;
mod requests;
mod send;
mod transmit;

pub use config::Config;
pub use counters::EfeCounters;
pub use endpoint::Endpoint;
pub use host::{EndReason, Event, FlowNumber, Padding, Peer, RequestError, Train, TrainLimits};
