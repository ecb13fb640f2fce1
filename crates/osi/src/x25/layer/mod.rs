//! The packet layer's data, queues and timers. The submodules handle requests, packets and protocol errors.

mod faults;
mod machine;
mod packets;
mod requests;

pub use machine::Layer;
