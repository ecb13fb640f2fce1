//! The OSI stack on the operating system's TCP.
pub mod association;
pub(crate) mod buffers;
pub mod echo;
pub mod probe;
pub mod pump;
pub mod relay;
mod ropes;
pub mod runtimes;
pub mod secure;
pub mod socket;
