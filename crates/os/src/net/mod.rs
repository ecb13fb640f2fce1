//! Network interfaces, namespaces of guests, packet sockets, UDP sockets and their ICMP errors, and the
//! origins of connections.

pub mod icmp;
pub mod interface;
pub mod namespace;
pub mod origin;
pub mod packet;
pub mod udp;
