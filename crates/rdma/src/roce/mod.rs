//! RoCEv2: packets of queue pairs in UDP datagrams (IBTA Annex A17), and their connections.
//!
//! ```text
//! queue pairs   requester, responder: the core     rnic/executor/roce, rnic/control/roce.rs
//! datagrams     addresses, ICRC, trains, timers    endpoint.rs
//! GRH           in front of received datagrams     grh.rs
//! connections   communication management (CM)      cm
//! octets        headers, ICRC, MADs                wire/roce
//! ```

pub mod cm;
mod endpoint;
mod grh;

pub use endpoint::{Departure, Endpoint, EndpointCounters, Path};
pub use grh::{gid, grh};
