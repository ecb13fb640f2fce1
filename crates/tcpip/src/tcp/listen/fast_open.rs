//! TCP Fast Open (RFC 7413): the cookies of listeners, and the cookies that clients have got from servers.
//!
//! Listener         a SYN with a valid cookie comes from an address that has answered us before, so that its
//!                  data is delivered before the handshake is complete. The cookie is a keyed hash of both
//!                  addresses and of the time (§4.1.2), so that no state is kept.
//! Client           the cache keeps one cookie and MSS per server address (§4.1.3). If a SYN with data gets
//!                  no answer, no data is sent in SYNs to that address for an hour (§4.1.3.1).
//! Limits           a cookie is valid for six to twelve hours; the cache has `ENTRIES_MAX` entries, of which
//!                  the oldest is replaced.

use super::secret::Secret;
use crate::wire::tcp::FastOpenCookie;
use alloc::collections::VecDeque;
use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use kiban_base::Instant;

/// Cookies are made anew in each epoch; those of the last one are still valid.
const EPOCH: Duration = Duration::from_secs(6 * 3600);
/// Maximum number of servers in a client's cache.
const ENTRIES_MAX: usize = 256;
/// How long no data is sent in SYNs to an address after one was lost.
const SUSPENSION: Duration = Duration::from_secs(3600);

/// How long a pending session that a RST has ended counts as pending (Linux: 60 s).
pub(crate) const RESET_COUNTS: Duration = Duration::from_secs(60);

/// What a listener does with a SYN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FastOpenSyn {
    /// The usual handshake.
    Ordinary,
    /// The usual handshake; the SYN-ACK carries this cookie.
    Grant(FastOpenCookie),
    /// The cookie is valid: the data in the SYN is accepted.
    Accept,
}

fn epoch(now: Instant) -> u64 {
    now.as_nanos() / EPOCH.as_nanos() as u64
}

fn cookie(secret: &Secret, local: IpAddr, remote: IpAddr, epoch: u64) -> FastOpenCookie {
    let mut hasher = secret.tuple_hasher(b'f', SocketAddr::new(local, 0), SocketAddr::new(remote, 0));
    hasher.write_u64(epoch);
    FastOpenCookie::new(&hasher.finish().to_be_bytes()).expect("eight bytes are a valid length")
}

/// Returns the cookie for a client.
pub(crate) fn grant(secret: &Secret, local: IpAddr, remote: IpAddr, now: Instant) -> FastOpenCookie {
    cookie(secret, local, remote, epoch(now))
}

/// Returns whether we granted `shown` to a client, in this epoch or the last.
pub(crate) fn is_valid(
    secret: &Secret,
    shown: FastOpenCookie,
    (local, remote): (IpAddr, IpAddr),
    now: Instant,
) -> bool {
    let now = epoch(now);
    let made = |epoch| shown == cookie(secret, local, remote, epoch);
    made(now) || now.checked_sub(1).is_some_and(made)
}

#[derive(Debug)]
struct Entry {
    address: IpAddr,
    cookie: FastOpenCookie,
    mss: u16,
    suspended_until: Instant,
}

/// A client's cookies, oldest first.
#[derive(Debug, Default)]
pub(crate) struct FastOpenCache {
    entries: VecDeque<Entry>,
}

impl FastOpenCache {
    /// Returns the cookie to show to a server, or the request for one, and the server's MSS; `None` if Fast
    /// Open is suspended for its address.
    pub(crate) fn offer(&self, address: IpAddr, now: Instant) -> Option<(FastOpenCookie, u16)> {
        match self.entries.iter().find(|entry| entry.address == address) {
            None => Some((FastOpenCookie::REQUEST, 0)),
            Some(entry) => (entry.suspended_until <= now).then_some((entry.cookie, entry.mss)),
        }
    }

    /// Stores a cookie that a server has granted.
    pub(crate) fn store(&mut self, address: IpAddr, cookie: FastOpenCookie, mss: u16) {
        self.put(Entry { address, cookie, mss, suspended_until: Instant::ZERO });
    }

    /// Stores the MSS that a server has sent without a new cookie.
    pub(crate) fn set_mss(&mut self, address: IpAddr, mss: u16) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.address == address) {
            entry.mss = mss;
        }
    }

    /// Suspends Fast Open for an address, and forgets its cookie.
    pub(crate) fn suspend(&mut self, address: IpAddr, now: Instant) {
        self.put(Entry {
            address,
            cookie: FastOpenCookie::REQUEST,
            mss: 0,
            suspended_until: now + SUSPENSION,
        });
    }

    fn put(&mut self, entry: Entry) {
        self.entries.retain(|known| known.address != entry.address);
        if self.entries.len() == ENTRIES_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use kiban_base::{RngKey, SecureRng};

    fn address(n: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + n))
    }

    #[test]
    fn a_cookie_is_valid_for_its_addresses_and_for_two_epochs() {
        let secret = |seed| Secret::new(&mut SecureRng::new(RngKey::for_simulation(seed)));
        let at = |hours: u64| Instant::ZERO + Duration::from_secs(3600 * hours);
        let shown = grant(&secret(1), address(1), address(2), at(13));
        for (board, client, hour, valid) in [
            (1, 2, 13, true),
            (1, 2, 23, true),
            (1, 2, 24, false),
            (1, 2, 11, false),
            (1, 3, 13, false),
            (2, 2, 13, false),
        ] {
            let is_valid = is_valid(&secret(board), shown, (address(1), address(client)), at(hour));
            assert_eq!(is_valid, valid, "board {board}, client {client}, hour {hour}");
        }
        assert!(!is_valid(&secret(1), FastOpenCookie::REQUEST, (address(1), address(2)), at(0)));
    }

    #[test]
    fn the_cache_is_bounded_and_forgets_the_oldest() {
        let (mut cache, now) = (FastOpenCache::default(), Instant::ZERO);
        let cookie = FastOpenCookie::new(&[1; 8]).expect("a valid length");
        for n in 0..=ENTRIES_MAX as u32 {
            cache.store(address(n), cookie, 1460);
        }
        assert_eq!(cache.entries.len(), ENTRIES_MAX);
        assert_eq!(cache.offer(address(0), now), Some((FastOpenCookie::REQUEST, 0)));
        assert_eq!(cache.offer(address(1), now), Some((cookie, 1460)));
        cache.suspend(address(1), now);
        assert_eq!(cache.offer(address(1), now + SUSPENSION - Duration::from_nanos(1)), None);
        assert_eq!(cache.offer(address(1), now + SUSPENSION), Some((FastOpenCookie::REQUEST, 0)));
    }
}
