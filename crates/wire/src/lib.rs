//! Formats: a checked view and a plain representation of every header.
//!
//! One file per header, all alike:
//!
//! ```text
//! X::read(&[u8]) -> Result<(X, header bytes), Malformed>    look once, believe afterwards
//! x.length()     -> usize                                   bytes that `write` will fill
//! x.write(&mut [u8]) -> usize                               into the front of the slice
//! fill(header, rest), verify(header, rest)                  where a checksum covers more than the header
//! ```
//!
//! Fault     what a peer sent wrongly is a [`Malformed`], one list for the whole crate; a slice too short to write
//!           into is the caller's fault and panics.
//! Sums      a payload's one's-complement sum is known to whoever moved the payload, so no checksum here reads a
//!           payload: `rest` is the pseudo-header plus the payload, as a [`kiban_ground::Sum`]. All transport headers
//!           are of even length, so the order in which runs are added does not matter.
//! Limits    no state, no time, no allocation but in [`capture`], which appends to a caller's `Vec`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod malformed;

pub mod checksum;
pub mod crc;
pub mod numbers;

pub mod aal5;
pub mod atm;
pub mod atmarp;
pub mod llc_snap;
pub mod oam;

pub mod arp;
pub mod discovery;
pub mod ethernet;
pub mod icmp;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv4_options;
pub mod ipv6;
pub mod ipv6_extension;
pub mod tcp;
pub mod udp;

pub mod datagram;
pub mod ddp;
pub mod efe;
pub mod meeting;
pub mod mpa;
pub mod rdmap;

pub mod vi;

pub mod capture;

pub use malformed::Malformed;
