//! IP: packets between hosts, both families (RFC 791, RFC 1122 §3, RFC 8200).
//!
//! Purpose          add headers and find the next hop; check headers and deliver packets to the upper
//!                  protocols.
//! Transmit path    source, destination and protocol make the header; the route gives the port and the next
//!                  hop. A datagram longer than the path MTU is fragmented; TCP's segments are not
//!                  (`path_mtu_discovery`).
//! Receive path     version, lengths, checksum, options and extension headers are checked, link padding is
//!                  removed, fragments are reassembled. Packets for other hosts are dropped: a board is a
//!                  host, not a router.
//! Errors           a packet about which its sender is to get an ICMP error leaves as a [`IcmpErrorRequest`].
//!                  ICMP makes the message, and the wiring carries it there.
//! Files            `machine` addresses, routes and what both families share; `v4` and `v6` headers;
//!                  `fragment`; `reassembly`; `path` the path MTU cache; `route`.
//! Limits           routes and addresses are short lists; [`Config`] bounds reassembly and path MTUs; a chain
//!                  of extension headers must fit the head and have at most eight headers.
//! Not implemented  forwarding, multicast beyond what neighbour discovery needs, flow labels, zones of
//!                  link-local addresses (a link-local target is reached through the port of the source, or
//!                  the first that has one).

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
