//! Network interfaces, packet sockets, UDP sockets and their ICMP errors, and the origins of connections.

pub mod icmp;
pub mod interface;
pub mod origin;
pub mod packet;
pub mod udp;
