//! DHCP: an IPv4 address for an Ethernet port, leased from a server (RFC 2131, RFC 2132).
//!
//! ```text
//!           DISCOVER        OFFER: REQUEST          ACK             no conflict
//!   init ─────────────► selecting ─────► requesting ─────► probing ───────────► bound ◄──┐ ACK
//!    ▲                                     │ NAK             │ conflict: DECLINE   │ T1: REQUEST to the server
//!    │◄────────────────────────────────────┘                 │                     ▼     │
//!    │◄──────────────────────────────────────────────────────┘                  renewing │
//!    │                                                                             │ T2: REQUEST by broadcast
//!    │◄──────────────────────────────────────────────────────────────────────── rebinding
//!                                  NAK (also in renewing), or the lease expires
//! ```
//!
//! Purpose          obtain an address with its subnet, router, MTU and name servers, and keep it.
//! Transmit path    messages are retransmitted after 4, 8, 16, 32 and then every 64 s, each time ±1 s (RFC
//!                  2131 §4.1); renewals after half of the remaining time, but at least 60 s (§4.4.5).
//! Receive path     a reply must carry our transaction number and hardware address, and come from the server
//!                  that we chose; only a lease that is being rebound may be extended by another server. A
//!                  lease must be plausible (`lease`); implausible routers, MTUs and name servers are
//!                  ignored.
//! Broadcast flag   clear in the first DISCOVER, because the link accepts unicast before it has an address;
//!                  set in retransmissions, in case the reply could not be delivered by unicast.
//! Identifier       option 61 is derived from the hardware address (RFC 4361), so that it never changes.
//! Limits           a client that was refused, or found its address in use, begins again after a delay that
//!                  doubles up to 64 s; at least 10 s after a DECLINE (RFC 2131 §3.1).
//! Not implemented  INIT-REBOOT with a stored lease; INFORM; choosing among several offers (the first
//!                  plausible one is taken); authentication (RFC 3118); option 121 (classless routes).

mod client;
mod lease;

pub use client::{Client, Config, Destination, DhcpCounters, Output, State};
pub use lease::Lease;
