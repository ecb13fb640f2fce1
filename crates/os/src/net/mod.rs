//! Network interfaces, packet sockets, UDP sockets, and the origins of connections.

pub mod interface;
pub mod origin;
pub mod packet;
pub mod udp;
