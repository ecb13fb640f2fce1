//! Identifications of IPv4 packets that may be cut (RFC 6864, RFC 7739).
//!
//! Purpose   unique between two hosts for as long as 16 bits last (RFC 6864 §4.3); what one host is sent
//!           tells nothing of those that another is sent (RFC 7739 §4).
//! Method    RFC 7739 §5.3: a keyed hash of source, target and protocol, plus a counter that all names in a
//!           bucket share.
//! Limits    at a high rate 65,536 are used up before the last fragments are forgotten (RFC 6864 §4.3: so it
//!           is with any choice). A host with many addresses can learn how much others in their buckets are
//!           sent, not with which identifications.

use core::hash::Hasher;
use core::net::Ipv4Addr;
use kiban_base::SecureRng;
use siphasher::sip::SipHasher24;

const BUCKETS: usize = 256;

pub(super) struct Identifications {
    key: [u64; 2],
    counters: [u16; BUCKETS],
}

impl Identifications {
    pub(super) fn new(rng: &mut SecureRng) -> Identifications {
        Identifications { key: [rng.draw(), rng.draw()], counters: [0; BUCKETS] }
    }

    /// Takes the identifications of so many packets, which follow each other: the first of them.
    pub(super) fn take(&mut self, source: Ipv4Addr, target: Ipv4Addr, protocol: u8, packets: u16) -> u16 {
        let mut hasher = SipHasher24::new_with_keys(self.key[0], self.key[1]);
        hasher.write(&source.octets());
        hasher.write(&target.octets());
        hasher.write_u8(protocol);
        // The bucket and the place in it come from different bits.
        let hash = hasher.finish();
        let counter = &mut self.counters[(hash >> 32) as usize % BUCKETS];
        let first = (hash as u16).wrapping_add(*counter);
        *counter = counter.wrapping_add(packets);
        first
    }
}
