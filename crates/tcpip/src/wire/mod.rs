//! Formats: a checked view and a plain representation of every header of this family.
//!
//! One file per header, all alike:
//!
//! ```text
//! X::read(&[u8]) -> Result<(X, header bytes), Malformed>    check once, believe afterwards
//! x.length()     -> usize                                   bytes that `write` will fill
//! x.write(&mut [u8]) -> usize                               into the front of the slice
//! ```
//!
//! A rule that a peer's bytes break is a [`Malformed`](kiban_base::Malformed). A slice too short to write
//! into is the caller's fault and panics.

pub mod arp;
pub mod discovery;
pub mod icmp;
pub mod icmpv6;
pub mod ip;
pub mod ipv4;
pub mod ipv4_options;
pub mod ipv6;
pub mod ipv6_extension;
pub mod tcp;
pub mod udp;
