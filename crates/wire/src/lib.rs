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
//! Ropes     OSI's units carry user data of any length: [`session`] takes a [`kiban_ground::Rope`] apart and puts one together.
//! Limits    no state, no time, no allocation but in [`capture`], which appends to a caller's `Vec`, and for OSI's parameters and
//!           what is written in [`ber`], whose values own what they hold and are bounded by the bytes that were read.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod malformed;

pub mod checksum;
pub mod crc;
pub mod numbers;

pub mod aal1;
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

pub mod cotp;
pub mod lapb;
pub mod session;
pub mod tpkt;
pub mod x25;
pub mod xot;

pub mod capture;

pub mod acse;
pub mod ber;
pub mod presentation;

pub mod ftam;

pub use malformed::Malformed;
