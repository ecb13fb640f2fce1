//! Network interfaces, namespaces of guests, packet sockets, UDP sockets and their ICMP errors, the origins
//! of connections, and this host's name servers.

pub mod icmp;
pub mod interface;
pub mod namespace;
pub mod origin;
pub mod packet;
pub mod resolver;
pub mod udp;
