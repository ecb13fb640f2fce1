//! Interface identifiers of IPv6 addresses: from the MAC (RFC 4291 appendix A), or opaque (RFC 7217).
//!
//! Opaque           an opaque identifier is stable on one link, different on every other link, and unrelated
//!                  to the hardware address. RFC 7217 does not prescribe the function; we use SipHash-2-4
//!                  (Aumasson and Bernstein 2012).

use core::hash::Hasher;
use core::net::Ipv6Addr;
use kiban_base::ethernet::Mac;
use siphasher::sip::SipHasher24;

/// Returns the modified EUI-64 of a MAC address: ff:fe between its halves, and the universal/local bit
/// inverted.
pub(super) fn eui64(mac: Mac) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// Returns the opaque identifier (RFC 7217 §5): a keyed hash of prefix, MAC address and the number of
/// duplicates found so far.
pub(super) fn opaque(key: [u64; 2], prefix: Ipv6Addr, mac: Mac, taken: u8) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    let words = [(prefix.to_bits() >> 64) as u64, u64::from_be_bytes([a, b, c, d, e, f, 0, taken])];
    sip(key, &words)
}

/// Returns the address with the upper 64 bits of `prefix` and this interface identifier.
pub(super) fn join(prefix: Ipv6Addr, identifier: u64) -> Ipv6Addr {
    Ipv6Addr::from_bits(prefix.to_bits() & !u128::from(u64::MAX) | u128::from(identifier))
}

/// Returns the SipHash-2-4 of `words`.
fn sip(key: [u64; 2], words: &[u64]) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(key[0], key[1]);
    words.iter().for_each(|word| hasher.write(&word.to_le_bytes()));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sip_hash_gives_the_published_value() {
        // The vector in the paper's appendix A has 15 bytes. The reference vectors of 8 and 16 bytes are
        // whole words: the bytes 0, 1, 2 … under the key 0, 1, 2 ….
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        assert_eq!(sip(key, &[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(sip(key, &[key[0]]), 0x93f5_f579_9a93_2462);
        assert_eq!(sip(key, &key), 0x3f2a_cc7f_57c2_9bdb);
    }

    #[test]
    fn opaque_identifiers_match_the_standards() {
        let mac = Mac([0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde]);
        let prefix: Ipv6Addr = "fe80::".parse().unwrap();
        // The example of RFC 2464 §4.
        assert_eq!(join(prefix, eui64(mac)).to_bits() as u64, 0x3656_78ff_fe9a_bcde);
        let all = [0, 1, 2].map(|taken| opaque([1, 2], prefix, mac, taken));
        assert!(all[0] != all[1] && all[1] != all[2]);
        assert_ne!(opaque([1, 2], "2001:db8::".parse().unwrap(), mac, 0), all[0]);
        assert_eq!(opaque([1, 2], prefix, mac, 0), all[0]);
    }
}
