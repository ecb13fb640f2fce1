//! IP: IPv4 and IPv6 packets between hosts (RFC 791, RFC 1122 §3, RFC 8200).
//!
//! Purpose          add headers and find the next hop; check headers and deliver packets to the upper
//!                  protocols.
//! Transmit path    the header is built from source, destination and protocol; the route gives the port and
//!                  the next hop. A datagram longer than the path MTU is fragmented; a TCP segment is not
//!                  (`path_mtu_discovery`).
//! Receive path     version, lengths, checksum, options and extension headers are checked, link padding is
//!                  removed, fragments are reassembled. Packets for other hosts are dropped: a board is a
//!                  host, not a router.
//! Errors           a packet whose sender must get an ICMP error is output as an [`IcmpErrorRequest`]. The
//!                  wiring passes it to ICMP, which builds the message.
//! Files            `machine`: addresses, routes and code common to both families; `v4` and `v6`: headers;
//!                  `fragment`; `reassembly`; `path`: the path MTU cache; `route`.
//! Limits           routes and addresses are short lists, and [`Config`] bounds reassembly and path MTUs. A
//!                  chain of extension headers must fit the head and have at most eight headers.
//! Not implemented  forwarding, multicast beyond what neighbour discovery needs, flow labels, link-local
//!                  address zones (a link-local target is reached through the port of the source address, or
//!                  else through the first port that has a link-local address).

mod config;
mod counters;
mod fragment;
mod header;
mod icmp_error;
mod identification;
mod machine;
mod packet;
mod path;
mod reassembly;
mod route;
#[cfg(test)]
mod tests;
mod v4;
mod v6;

pub use config::{Config, ReassemblyConfig};
pub use counters::IpCounters;
pub use header::target_of;
pub use icmp_error::IcmpErrorKind;
pub use machine::Ip;
pub use packet::{Delivery, HeaderInfo, Hop, IcmpErrorRequest, Packet};
pub use route::{Prefix, Route, Routes};
