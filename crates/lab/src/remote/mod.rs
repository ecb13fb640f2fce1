//! The measurement of a remote end: the server, its clients, and the protocol between them.

pub mod admission;
pub mod client;
pub mod protocol;
pub mod server;
