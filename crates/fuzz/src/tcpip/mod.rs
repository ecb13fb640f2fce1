//! TCP/IP: boards behind IP and Ethernet ports, sessions, streams.

pub(crate) mod craft;
pub(crate) mod ethernet_board;
#[cfg(test)]
mod hostile;
pub(crate) mod ip_board;
pub(crate) mod oracle;
pub(crate) mod session;
pub(crate) mod stand;
pub mod streams;
