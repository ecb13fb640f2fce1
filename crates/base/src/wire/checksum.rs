//! Sums over headers and pseudo-headers (RFC 1071, RFC 9293 §3.1, RFC 8200 §8.1).
//!
//! Purpose   compute a transport checksum without touching the payload: header + pseudo-header + a known
//!           payload sum.
//!
//! ```text
//! IPv4 pseudo-header                        IPv6 pseudo-header
//! source 4 | target 4 | 0 | protocol |      source 16 | target 16 | length 4 | 0 0 0 | next header
//! length 2
//! ```
//!
//! Length    the length of transport header and payload, in bytes. A session keeps the sum for length 0 and
//!           adds the length of each segment with [`length`]; the order of additions does not matter.
//! Speed     headers are at most 60 bytes: a plain loop over 64-bit words in machine order (RFC 1071 §2(B)),
//!           without the dispatch to a SIMD routine that `Sum::of` makes for long runs.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Sum;

/// Computes the pseudo-header sum of `length` transport bytes over IPv4 (RFC 9293 §3.1, RFC 768).
#[inline]
pub fn pseudo_ipv4(source: Ipv4Addr, target: Ipv4Addr, protocol: u8, length: usize) -> Sum {
    let addresses = u64::from(source.to_bits()) + u64::from(target.to_bits());
    fold(addresses + u64::from(protocol) + length as u64)
}

/// Computes the pseudo-header sum of `length` transport bytes over IPv6 (RFC 8200 §8.1).
#[inline]
pub fn pseudo_ipv6(source: Ipv6Addr, target: Ipv6Addr, next_header: u8, length: usize) -> Sum {
    let addresses = quarters(source.to_bits()) + quarters(target.to_bits());
    fold(addresses + u64::from(next_header) + length as u64)
}

/// Computes the pseudo-header sum for either address family.
///
/// # Panics
/// If the two addresses are of different families.
#[inline]
pub fn pseudo(source: IpAddr, target: IpAddr, protocol: u8, length: usize) -> Sum {
    match (source, target) {
        (IpAddr::V4(source), IpAddr::V4(target)) => pseudo_ipv4(source, target, protocol, length),
        (IpAddr::V6(source), IpAddr::V6(target)) => pseudo_ipv6(source, target, protocol, length),
        _ => panic!("a packet has two addresses of one family"),
    }
}

/// Returns the sum to add for `length` to a pseudo-header sum that was computed with length 0.
#[inline]
pub fn length(length: usize) -> Sum {
    fold(length as u64)
}

/// Computes the sum of a short run of bytes, such as a header. It is also correct for longer runs, but slower
/// than `Sum::of`.
#[inline(always)]
pub fn of_header(header: &[u8]) -> Sum {
    let (words, rest) = header.as_chunks::<8>();
    let mut wide = 0u64;
    // With the end-around carry, 2^64 counts as 1 as well.
    let mut add = |word: u64| {
        let (sum, carry) = wide.overflowing_add(word);
        wide = sum + u64::from(carry);
    };
    for word in words {
        add(u64::from_ne_bytes(*word));
    }
    match rest {
        [] => {}
        &[a, b, c, d] => add(u32::from_ne_bytes([a, b, c, d]).into()),
        rest => {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            add(u64::from_ne_bytes(last));
        }
    }
    Sum::of_native(wide)
}

/// Computes the sum of a header given as 32-bit words.
#[inline]
pub fn of_words(words: &[u32]) -> Sum {
    fold(words.iter().map(|word| u64::from(*word)).sum())
}

/// Folds a sum of big-endian 16- or 32-bit words: 2^16 and 2^32 are both 1 modulo 2^16 - 1.
#[inline]
fn fold(wide: u64) -> Sum {
    let wide = (wide & 0xffff_ffff) + (wide >> 32);
    let wide = (wide & 0xffff) + (wide >> 16);
    let wide = (wide & 0xffff) + (wide >> 16);
    let wide = (wide & 0xffff) + (wide >> 16);
    Sum::from_word(wide as u16)
}

/// Adds the four 32-bit words of an address.
#[inline]
fn quarters(bits: u128) -> u64 {
    let word = |shift: u32| u64::from((bits >> shift) as u32);
    word(96) + word(64) + word(32) + word(0)
}
