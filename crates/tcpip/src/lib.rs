//! TCP/IP: Ethernet, ARP and neighbour discovery, IPv4 and IPv6, ICMP, UDP and TCP, as state machines without
//! I/O.
//!
//! ```
//! use kiban_tcpip::wire::ipv4;
//!
//! // An IPv4 header, as it arrives: 20 bytes, protocol 17 (UDP).
//! let header = ipv4::Header {
//!     traffic_class: 0,
//!     total_bytes: 28,
//!     identification: 7,
//!     dont_fragment: true,
//!     more_fragments: false,
//!     fragment_offset_bytes: 0,
//!     time_to_live: 64,
//!     protocol: 17,
//!     source: [192, 0, 2, 1].into(),
//!     target: [192, 0, 2, 2].into(),
//!     options: &[],
//! };
//! let mut packet = [0; 28];
//! let header_bytes = header.write(&mut packet);
//!
//! let (read, length) = ipv4::Header::read(&packet)?;
//! ipv4::verify(&packet[..length])?;
//! assert_eq!((read, length), (header, header_bytes));
//! # Ok::<(), kiban_base::Malformed>(())
//! ```
//!
//! Each protocol is a value. Packets and the time go in; packets, indications and the next deadline come out.
//! The caller provides the time, random numbers and memory ([`kiban_base::Context`]). No protocol calls its
//! neighbour: `kiban-board` wires them together. The packet formats are in [`wire`].

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod dhcp;
pub mod ethernet;
mod families;
pub mod guest;
pub mod icmp;
pub mod ip;
pub mod offload;
pub mod rtp;
pub mod steering;
pub mod tcp;
pub mod udp;
pub mod wire;
