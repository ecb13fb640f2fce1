//! Wire formats: a decoded, validated representation of every header of this family.
//!
//! One file per header; all have the same methods:
//!
//! ```text
//! X::read(&[u8]) -> Result<(X, header bytes), Malformed>    validates the header
//! x.length()     -> usize                                   bytes that `write` writes
//! x.write(&mut [u8]) -> usize                               writes at the front of the slice
//! ```
//!
//! `read` validates lengths and constant fields, so that later code need not; checksums have their own
//! functions. A violated rule is reported as a [`Malformed`](kiban_base::Malformed). `write` panics if the
//! target slice is too short, because that is a bug in the caller.

/// The ports from which one is chosen where none is given (RFC 6335 §6: the dynamic ports).
pub const DYNAMIC_PORTS: core::ops::RangeInclusive<u16> = 49_152..=65_535;

pub mod arp;
pub mod dhcp;
pub mod dhcpv6;
pub mod discovery;
pub mod icmp;
pub mod icmpv6;
pub mod igmp;
pub mod ip;
pub mod ipv4;
pub mod ipv4_options;
pub mod ipv6;
pub mod ipv6_extension;
pub mod mld;
pub mod pfc;
pub mod rtcp;
pub mod rtp;
pub mod tcp;
pub mod udp;
