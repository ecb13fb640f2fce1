//! Identification values for IPv4 packets that may be fragmented (RFC 6864, RFC 7739).
//!
//! Purpose          a value must not be reused between two hosts while fragments that carry it may still
//!                  arrive (RFC 6864 §4.3), and the values in packets to one host must not reveal those sent
//!                  to another (RFC 7739 §4).
//! Method           RFC 7739 §5.3: a keyed hash of source, destination and protocol, plus a counter shared by
//!                  all flows of a bucket.
//! Limits           at a high rate all 65,536 values are used up before the oldest fragments expire, as with
//!                  any method (RFC 6864 §4.3). An attacker with many addresses can learn how many packets
//!                  are sent to hosts in the same buckets, but not which values they carry.

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

    /// Takes `packets` consecutive values and returns the first.
    pub(super) fn take(&mut self, source: Ipv4Addr, target: Ipv4Addr, protocol: u8, packets: u16) -> u16 {
        let mut hasher = SipHasher24::new_with_keys(self.key[0], self.key[1]);
        hasher.write(&source.octets());
        hasher.write(&target.octets());
        hasher.write_u8(protocol);
        // Take the bucket and the offset from different bits of the hash.
        let hash = hasher.finish();
        let counter = &mut self.counters[(hash >> 32) as usize % BUCKETS];
        let first = (hash as u16).wrapping_add(*counter);
        *counter = counter.wrapping_add(packets);
        first
    }
}
