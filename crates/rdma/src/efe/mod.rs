//! An EFE-like transport: reliable delivery of segments over Ethernet.
//!
//! Purpose          the lower layer of an RDMA NIC, modelled on the Ether Forwarding Engine of paper \[3\]:
//!                  frames that the Ethernet loses are retransmitted end to end, receivers never drop, and
//!                  queues stay short. NEC's format and algorithms are not public; the ones used here are
//!                  described in `docs/efe.md`.
//! Host side        flows between services: connect, accept, send and receive segments, finish or abort. A
//!                  segment is a byte string of at most 1472 bytes and is delivered whole, once and in order.
//! Transmit path    [`Endpoint::fetch`]: a link that can send a frame provides the buffer. Flows take turns,
//!                  one frame each.
//! Receive path     [`Endpoint::arrive`]. Impossible frames are counted and change nothing.
//! Acknowledgement  pure acknowledgements are sent only after [`Endpoint::settle`]: until then, the host may
//!                  send a segment that carries the acknowledgement.
//! Memory           rings of 64 slots per flow and direction, which keep their memory: in the long run,
//!                  frames need no allocation.
//! Validation       a frame is accepted only with the number and the key of a flow, from the flow's peer.
//!                  Peers that request a flow but do not confirm it hold one of `asked_max` slots for a
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
mod receive;
mod send;

pub use config::Config;
pub use counters::EfeCounters;
pub use endpoint::Endpoint;
pub use host::{EndReason, Event, FlowNumber, Peer, RequestError};
