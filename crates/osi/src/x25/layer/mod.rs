//! The packet layer's data, queues and timers. Requests, packets and protocol errors are handled in the
//! submodules.

mod faults;
mod machine;
mod packets;
mod requests;

pub use machine::Layer;
