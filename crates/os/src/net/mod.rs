//! Network interfaces, packet sockets and UDP sockets.

pub mod interface;
pub mod packet;
pub mod udp;
