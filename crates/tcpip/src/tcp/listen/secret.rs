//! Unpredictable numbers: the SipHash-2-4 (Aumasson and Bernstein 2012) of a connection's 4-tuple under a
//! random key chosen at start. Each use prefixes a letter of its own, so that one number reveals nothing
//! about another.

use crate::wire::tcp::Sequence;
use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};
use kiban_base::{Instant, SecureRng};
use siphasher::sip::SipHasher24;

/// The secret key of one board.
pub(crate) struct Secret {
    key: [u64; 2],
}

/// The initial numbers of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InitialNumbers {
    /// Our initial sequence number.
    pub(crate) isn: Sequence,
    /// Offset of our timestamp clock.
    pub(crate) stamp_offset: u32,
}

impl Secret {
    pub(crate) fn new(rng: &mut SecureRng) -> Secret {
        Secret::with([rng.draw(), rng.draw()])
    }

    pub(crate) fn with(key: [u64; 2]) -> Secret {
        Secret { key }
    }

    /// RFC 6528 §3: a clock of 4 us plus a keyed hash of the 4-tuple. The clock permits reuse of a 4-tuple
    /// (RFC 9293 §3.4.1); the hash hides the numbers of other connections. The same applies to timestamps
    /// (RFC 7323 §7.1).
    pub(crate) fn initial_numbers(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        now: Instant,
    ) -> InitialNumbers {
        let clock = (now.as_nanos() / 4000) as u32;
        let hash = self.tuple_hasher(b'i', local, remote).finish() as u32;
        InitialNumbers {
            isn: Sequence(clock.wrapping_add(hash)),
            stamp_offset: self.stamp_offset(local, remote),
        }
    }

    /// Returns the offset of our timestamp clock for a 4-tuple.
    pub(crate) fn stamp_offset(&self, local: SocketAddr, remote: SocketAddr) -> u32 {
        self.tuple_hasher(b't', local, remote).finish() as u32
    }

    /// Returns a hasher that has hashed `letter` (the use) and the 4-tuple; more may be hashed after them.
    pub(crate) fn tuple_hasher(&self, letter: u8, local: SocketAddr, remote: SocketAddr) -> SipHasher24 {
        let mut hasher = SipHasher24::new_with_keys(self.key[0], self.key[1]);
        hasher.write_u8(letter);
        for end in [local, remote] {
            match end.ip() {
                IpAddr::V4(address) => hasher.write(&address.octets()),
                IpAddr::V6(address) => hasher.write(&address.octets()),
            }
            hasher.write(&end.port().to_be_bytes());
        }
        hasher
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steering::Steering;
    use crate::tcp::listen::fast_open::{grant, is_valid};
    use crate::tcp::{Config, Tcp};
    use core::net::Ipv4Addr;
    use kiban_base::RngKey;

    #[test]
    fn a_fast_open_cookie_of_one_shard_is_valid_on_all_shards_of_the_board() {
        let rng = |seed| SecureRng::new(RngKey::for_simulation(seed));
        let shard = |number, key| {
            let mut tcp = Tcp::new(Config::default(), 1 << 20, 1 << 20, &mut rng(number as u64));
            tcp.set_shard(number, Steering::new(2, RngKey::for_simulation(key)));
            tcp
        };
        let ends = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let granted = grant(&shard(0, 7).secret, ends.0, ends.1, Instant::ZERO);
        assert!(is_valid(&shard(1, 7).secret, granted, ends, Instant::ZERO));
        assert!(!is_valid(&shard(1, 8).secret, granted, ends, Instant::ZERO), "another board");
    }

    #[test]
    fn the_hash_matches_the_published_test_vectors() {
        // Vector from Aumasson and Bernstein 2012, appendix A: bytes 00..0e under the key 00..0f.
        let mut hasher = SipHasher24::new_with_keys(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        hasher.write(&core::array::from_fn::<u8, 15, _>(|n| n as u8));
        assert_eq!(hasher.finish(), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn sequence_numbers_differ_by_tuple_purpose_and_board() {
        let secret = |seed| Secret::new(&mut SecureRng::new(RngKey::for_simulation(seed)));
        let end = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), port);
        let of = |seed, port| secret(seed).initial_numbers(end(port), end(80), Instant::ZERO);
        let (one, other, elsewhere) = (of(1, 1), of(1, 2), of(2, 1));
        assert_ne!(one.isn, other.isn);
        assert_ne!(one.isn, elsewhere.isn);
        assert_ne!(one.isn.0, one.stamp_offset);
    }
}
