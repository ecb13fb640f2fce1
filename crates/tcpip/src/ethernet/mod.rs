//! Ethernet under IP: frames, ARP, neighbour discovery, address autoconfiguration (RFC 894, RFC 826, RFC
//! 4861, RFC 4862).
//!
//! Purpose          send packets to neighbours in frames to their MAC addresses; configure and defend the
//!                  link's own addresses.
//! Transmit path    [`Link::resolve`] returns the MAC address of the next hop, or keeps the packet and
//!                  solicits.
//! Receive path     [`Link::arrive`] removes the Ethernet header and handles ARP. ICMPv6 verifies the
//!                  checksum of neighbour discovery messages and passes them to [`Link::on_discovery`].
//! Settle           [`Link::settle`] fires due timers and passes on the outputs ([`Output`]): frames,
//!                  resolved packets, undeliverable packets, and changes of addresses, routes and groups for
//!                  IP.
//! Files            `link`: the state machine; `cache`: the neighbour cache; `arp`; `discovery`: IPv6
//!                  solicitations and advertisements; `autoconf`: IPv6 addresses and routers; `addresses`:
//!                  their state; `opaque`: interface identifiers; `mld`, `igmp`: reports of groups;
//!                  `listener`: their state; `announcement`: announcements of IPv4 addresses; `dhcp`:
//!                  leased IPv4 addresses; `guest`: configuration of the one guest of a link; `bridge`: the
//!                  station table of a bridge, independent of the other files.
//! Limits           the configuration bounds every table.
//! Not implemented  VLAN tags, sending redirects: a board is a host, except towards a guest.

mod addresses;
mod announcement;
mod arp;
mod autoconf;
mod bridge;
mod cache;
mod config;
mod counters;
mod dhcp;
mod discovery;
mod guest;
mod igmp;
mod link;
mod listener;
mod mld;
mod opaque;

pub use bridge::{Bridge, Forward, STATION_TIMEOUT, STATIONS_MAX};
pub use cache::{Advertised, Reach};
pub use config::{AutoconfConfig, Identifier, LinkConfig, NeighbourConfig, Role};
pub use counters::EthernetCounters;
pub use link::{Link, Output};
