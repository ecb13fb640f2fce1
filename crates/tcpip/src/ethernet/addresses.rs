//! State of IPv6 address configuration: our addresses, prefixes, routers and redirects (RFC 4861 §6.3, RFC
//! 4862).

use super::config::LinkConfig;
use crate::ip::Prefix;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::Ipv6Addr;
use core::time::Duration;
use kiban_base::{Instant, SecureRng};

/// Maximum number of router solicitations sent (RFC 4861 §10).
pub(super) const ROUTER_SOLICITATIONS: u8 = 3;
/// Maximum number of redirects in effect.
const REDIRECTS_MAX: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AddressState {
    /// Duplicate address detection is running: `left` more probes will be sent, the next one at `at`.
    Tentative {
        left: u8,
        at: Instant,
    },
    Ready,
    /// Another station has the address.
    Taken,
}

pub(super) struct Own {
    pub(super) address: Ipv6Addr,
    pub(super) standing: AddressState,
    /// The prefix from which the address was autoconfigured, if any. If the address turns out to be a
    /// duplicate, another may be generated.
    pub(super) made: Option<Ipv6Addr>,
    pub(super) taken: u8,
    pub(super) valid_until: Instant,
    pub(super) preferred_until: Instant,
    pub(super) deprecated: bool,
}

pub(super) struct OnLink {
    pub(super) prefix: Prefix,
    pub(super) valid_until: Instant,
}

pub(super) struct Router {
    pub(super) address: Ipv6Addr,
    pub(super) until: Instant,
}

/// IPv6 addresses, prefixes, routers and redirects of one link.
pub(super) struct Autoconf {
    pub(super) own: Vec<Own>,
    pub(super) prefixes: Vec<OnLink>,
    pub(super) routers: Vec<Router>,
    pub(super) redirects: VecDeque<(Ipv6Addr, Option<Ipv6Addr>)>,
    pub(super) solicitations: u8,
    pub(super) solicit_at: Instant,
    /// Random delay before the first duplicate address detection probe (RFC 4862 §5.4.2).
    pub(super) first_wait: Duration,
}

/// Returns the time `seconds` after `now`; all ones mean infinity (RFC 4861 §4.6.2).
pub(super) fn after(now: Instant, seconds: u32) -> Instant {
    if seconds == u32::MAX { Instant::NEVER } else { now + Duration::from_secs(seconds.into()) }
}

impl Autoconf {
    pub(super) fn new(config: &LinkConfig, rng: &mut SecureRng) -> Autoconf {
        let settings = &config.autoconf;
        let mut autoconf = Autoconf {
            own: Vec::new(),
            prefixes: Vec::new(),
            routers: Vec::new(),
            redirects: VecDeque::new(),
            solicitations: 0,
            solicit_at: Instant::NEVER,
            first_wait: Duration::from_nanos(rng.below(1_000_000_000)),
        };
        if !settings.enabled {
            return autoconf;
        }
        if settings.accept_routers {
            autoconf.solicit_at = Instant::ZERO + autoconf.first_wait;
            autoconf.solicitations = ROUTER_SOLICITATIONS;
        }
        autoconf
    }

    pub(super) fn deadline(&self) -> Instant {
        let own = self.own.iter().map(|own| {
            let asked = match own.standing {
                AddressState::Tentative { at, .. } => at,
                AddressState::Ready if !own.deprecated => own.preferred_until,
                _ => Instant::NEVER,
            };
            asked.min(own.valid_until)
        });
        let others = self.prefixes.iter().map(|prefix| prefix.valid_until);
        let routers = self.routers.iter().map(|router| router.until);
        own.chain(others).chain(routers).min().unwrap_or(Instant::NEVER).min(self.solicit_at)
    }

    /// Returns the router for packets to `destination`. Returns `None` if the destination is on the link, or
    /// no router is known.
    pub(super) fn first_hop(&self, destination: Ipv6Addr) -> Option<Ipv6Addr> {
        if let Some((_, hop)) = self.redirects.iter().find(|(target, _)| *target == destination) {
            return *hop;
        }
        if self.prefixes.iter().any(|known| known.prefix.contains(destination.into())) {
            return None;
        }
        self.routers.first().map(|router| router.address)
    }

    /// Records a redirect. Returns the redirect that it replaced or evicted, if any.
    pub(super) fn redirect(
        &mut self,
        destination: Ipv6Addr,
        hop: Option<Ipv6Addr>,
    ) -> Option<(Ipv6Addr, Option<Ipv6Addr>)> {
        let same = self.redirects.iter().position(|(target, _)| *target == destination);
        let gone = match same {
            Some(at) => self.redirects.remove(at),
            None if self.redirects.len() >= REDIRECTS_MAX => self.redirects.pop_front(),
            None => None,
        };
        self.redirects.push_back((destination, hop));
        gone
    }
}
