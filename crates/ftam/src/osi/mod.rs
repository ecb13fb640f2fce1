//! OSI on the operating system's TCP.
pub mod association;
pub(crate) mod buffers;
pub mod echo;
pub mod runtimes;
pub mod probe;
pub mod pump;
pub mod relay;
mod ropes;
pub mod secure;
pub mod socket;
