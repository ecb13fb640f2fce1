//! Links that carry ATM cells, or any units over a byte stream or datagrams.

pub mod atmtcp;
pub(crate) mod connection;
mod datagram;
pub mod pseudowire;
pub(crate) mod sar;
pub mod stream;
pub mod udp_cells;
pub mod unix_datagrams;
