//! IPv6 stateless address autoconfiguration: addresses, prefixes and routers (RFC 4861 §6.3, RFC 4862, RFC
//! 7217).
//!
//! Addresses        an address comes from the configuration, from the link itself (fe80::), or from an
//!                  advertised prefix. An address from a prefix is deprecated and then removed as its
//!                  lifetimes end. A new address is *tentative* until duplicate address detection has passed,
//!                  and only then usable by IP. A duplicate address is not used; if it is opaque, another is
//!                  generated.
//! Routers          a router becomes a default router if it advertises a non-zero lifetime. The list is kept
//!                  in order of discovery; a router that does not answer moves to its end.
//! Limits           any station on the link can send advertisements, so tables are bounded. An advertised
//!                  lifetime below two hours does not shorten a known lifetime (RFC 4862 §5.5.3). An MTU must
//!                  be between 1280 and the link's own.

use super::addresses::{AddressState, OnLink, Own, Router, after};
use super::cache::Advertised;
use super::config::Identifier;
use super::link::{Link, Output, group_mac6};
use super::opaque;
use crate::ip::Prefix;
use crate::wire::discovery::{ALL_ROUTERS, Item, Message, Options, solicited_node};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;
use kiban_base::ethernet::Mac;
use kiban_base::{Context, Instant};

/// RFC 4862 §5.5.3(e): an advertisement cannot shorten the remaining lifetime of an address below this.
const TWO_HOURS: Duration = Duration::from_secs(7200);
/// Interval between router solicitations (RFC 4861 §10).
const ROUTER_SOLICITATION_INTERVAL: Duration = Duration::from_secs(4);
/// Maximum number of attempts to replace a duplicate opaque identifier (RFC 7217 §7).
const IDENTIFIERS_MAX: u8 = 3;
/// Largest accepted values of a router's reachable time and retransmit interval.
const REACHABLE_MAX: Duration = Duration::from_secs(3600);
const RETRANSMIT_MAX: Duration = Duration::from_secs(60);

impl Link {
    /// Creates the link-local address and the configured addresses.
    pub(super) fn begin_addresses(&mut self) {
        if !self.config.autoconf.enabled {
            return;
        }
        let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);
        self.due.push_back(Output::Route(Prefix::new(link_local.into(), 64), None, true));
        let address = self.make(link_local, 0);
        self.begin(address, Some(link_local), 0, (Instant::NEVER, Instant::NEVER), Instant::ZERO);
        for at in 0..self.config.addresses.len() {
            let (address, prefix) = self.config.addresses[at];
            if let IpAddr::V6(address) = address {
                self.due.push_back(Output::Route(prefix, None, true));
                self.begin(address, None, 0, (Instant::NEVER, Instant::NEVER), Instant::ZERO);
            }
        }
    }

    fn make(&self, prefix: Ipv6Addr, taken: u8) -> Ipv6Addr {
        let identifier = match self.config.autoconf.identifier {
            Identifier::Eui64 => opaque::eui64(self.config.mac),
            Identifier::Opaque { key } => opaque::opaque(key, prefix, self.config.mac, taken),
        };
        opaque::join(prefix, identifier)
    }

    /// Adds an address with these valid and preferred lifetimes, and starts duplicate address detection.
    fn begin(
        &mut self,
        address: Ipv6Addr,
        made: Option<Ipv6Addr>,
        taken: u8,
        (valid_until, preferred_until): (Instant, Instant),
        now: Instant,
    ) {
        if self.autoconf.own.iter().any(|own| own.address == address) {
            return;
        }
        if self.autoconf.own.len() >= self.config.autoconf.addresses_max {
            self.counters.autoconf_table_full += 1;
            return;
        }
        let wait = if now == Instant::ZERO { self.autoconf.first_wait } else { Duration::ZERO };
        // RFC 4862 §5.4.2: if the probe is delayed, the join is, too.
        self.join(solicited_node(address).into(), now + wait);
        let probes = self.config.autoconf.probes;
        let standing = if probes == 0 {
            self.due.push_back(Output::Address(address, true));
            AddressState::Ready
        } else {
            AddressState::Tentative { left: probes, at: now + wait }
        };
        self.autoconf.own.push(Own {
            address,
            standing,
            made,
            taken,
            valid_until,
            preferred_until,
            deprecated: false,
        });
    }

    fn standing(&self, address: Ipv6Addr) -> Option<AddressState> {
        self.autoconf.own.iter().find(|own| own.address == address).map(|own| own.standing)
    }

    /// Returns whether an address is ours and in use.
    pub(super) fn has6(&self, address: Ipv6Addr) -> bool {
        self.standing(address) == Some(AddressState::Ready)
    }

    pub(super) fn is_tentative(&self, address: Ipv6Addr) -> bool {
        matches!(self.standing(address), Some(AddressState::Tentative { .. }))
    }

    /// Returns the source address for solicitations: preferably the link-local one.
    pub(super) fn source_address(&self) -> Option<Ipv6Addr> {
        let ready = self.autoconf.own.iter().filter(|own| own.standing == AddressState::Ready);
        ready.map(|own| own.address).max_by_key(|address| address.is_unicast_link_local())
    }

    /// Handles a duplicate address (RFC 4862 §5.4.5): gives it up, and replaces it if it is opaque.
    pub(super) fn on_duplicate(&mut self, address: Ipv6Addr, cx: &mut Context<'_>) {
        let Some(at) = self.autoconf.own.iter().position(|own| own.address == address) else { return };
        self.counters.duplicate_addresses += 1;
        self.leave(solicited_node(address).into(), cx.now);
        let own = &mut self.autoconf.own[at];
        own.standing = AddressState::Taken;
        let (made, taken, until) = (own.made, own.taken + 1, (own.valid_until, own.preferred_until));
        if let (Some(prefix), Identifier::Opaque { .. }) = (made, self.config.autoconf.identifier)
            && taken <= IDENTIFIERS_MAX
        {
            self.autoconf.own.remove(at);
            let again = self.make(prefix, taken);
            self.begin(again, made, taken, until, cx.now);
        }
    }

    pub(super) fn settle_autoconf(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        if self.autoconf.deadline() > now {
            return;
        }
        let (mut probes, mut left) = (Vec::new(), Vec::new());
        let due = &mut self.due;
        let mld = &mut self.mld;
        let retransmit = self.cache.retransmit;
        self.autoconf.own.retain_mut(|own| {
            if own.valid_until <= now {
                if own.standing == AddressState::Ready {
                    due.push_back(Output::Address(own.address, false));
                }
                if own.standing != AddressState::Taken {
                    left.push(solicited_node(own.address));
                }
                return false;
            }
            if own.preferred_until <= now && own.standing == AddressState::Ready && !own.deprecated {
                own.deprecated = true;
                due.push_back(Output::Deprecated(own.address, true));
            }
            match own.standing {
                AddressState::Tentative { left: 0, at } if at <= now => {
                    own.standing = AddressState::Ready;
                    due.push_back(Output::Address(own.address, true));
                    if own.address.is_unicast_link_local() {
                        mld.report_again(now);
                    }
                }
                AddressState::Tentative { left, at } if at <= now => {
                    own.standing = AddressState::Tentative { left: left - 1, at: now + retransmit };
                    probes.push(own.address);
                }
                _ => {}
            }
            true
        });
        self.autoconf.prefixes.retain(|known| {
            if known.valid_until <= now {
                due.push_back(Output::Route(known.prefix, None, false));
            }
            known.valid_until > now
        });
        self.autoconf.routers.retain(|router| {
            if router.until <= now {
                due.push_back(default_route(router.address, false));
            }
            router.until > now
        });
        left.into_iter().for_each(|group| self.leave(group.into(), now));
        for address in probes {
            let group = solicited_node(address);
            let message = Message::NeighbourSolicitation { target: address };
            if self.send_message(Ipv6Addr::UNSPECIFIED, group, group_mac6(group), message, None, cx) {
                self.counters.solicitations_out += 1;
            }
        }
        if self.autoconf.solicit_at <= now {
            self.solicit_routers(cx);
        }
    }

    /// Sends a router solicitation (RFC 4861 §6.3.7).
    fn solicit_routers(&mut self, cx: &mut Context<'_>) {
        self.autoconf.solicitations = self.autoconf.solicitations.saturating_sub(1);
        self.autoconf.solicit_at = match self.autoconf.solicitations {
            0 => Instant::NEVER,
            _ => cx.now + ROUTER_SOLICITATION_INTERVAL,
        };
        let source = self.source_address();
        let option = source.map(|_| Item::SourceLink(self.config.mac));
        let source = source.unwrap_or(Ipv6Addr::UNSPECIFIED);
        let (group, message) = (ALL_ROUTERS, Message::RouterSolicitation);
        if self.send_message(source, group, group_mac6(group), message, option, cx) {
            self.counters.router_solicitations_out += 1;
        }
    }

    /// Processes a router advertisement (RFC 4861 §6.1.2, §6.3.4). Returns false if it is invalid.
    pub(super) fn on_router_advertisement(
        &mut self,
        message: Message,
        options: Options<'_>,
        source: Ipv6Addr,
        link: Option<Mac>,
        cx: &mut Context<'_>,
    ) -> bool {
        let Message::RouterAdvertisement { hop_limit, lifetime_seconds, reachable_ms, retransmit_ms, .. } =
            message
        else {
            return false;
        };
        if !source.is_unicast_link_local() {
            return false;
        }
        let settings = self.config.autoconf;
        if !settings.enabled || !settings.accept_routers {
            self.counters.discovery_ignored += 1;
            return true;
        }
        self.counters.router_advertisements_in += 1;
        if hop_limit > 0 {
            self.due.push_back(Output::HopLimit(hop_limit));
        }
        let millis = |ms: u32| Duration::from_millis(ms.into());
        if reachable_ms > 0 && millis(reachable_ms) <= REACHABLE_MAX {
            self.cache.reachable = millis(reachable_ms);
        }
        // A lower bound: a solicitation every millisecond would flood the link.
        if retransmit_ms > 0 && millis(retransmit_ms) <= RETRANSMIT_MAX {
            self.cache.retransmit = millis(retransmit_ms).max(Duration::from_millis(100));
        }
        self.set_router(source, lifetime_seconds, cx.now);
        if link.is_some() {
            let word =
                Advertised { mac: link, solicited: false, overrides: true, router: Some(true), learn: true };
            self.hear6(source, word, cx);
        }
        for option in options {
            match option {
                Item::Mtu(mtu) => match usize::try_from(mtu) {
                    Ok(mtu) if (1280..=self.config.mtu_bytes).contains(&mtu) => {
                        self.due.push_back(Output::Mtu(mtu));
                    }
                    _ => self.counters.autoconf_invalid += 1,
                },
                Item::Prefix { bits, on_link, autonomous, valid_seconds, preferred_seconds, prefix } => {
                    if prefix.is_unicast_link_local() || prefix.is_multicast() || bits > 128 {
                        self.counters.autoconf_invalid += 1;
                        continue;
                    }
                    if on_link {
                        self.set_prefix(Prefix::new(prefix.into(), bits), valid_seconds, cx.now);
                    }
                    if autonomous {
                        self.set_address(prefix, bits, valid_seconds, preferred_seconds, cx.now);
                    }
                }
                _ => {}
            }
        }
        true
    }

    /// Adds, updates or removes a default router (RFC 4861 §6.3.4).
    fn set_router(&mut self, address: Ipv6Addr, lifetime_seconds: u16, now: Instant) {
        if lifetime_seconds == 0 {
            return self.drop_router(address);
        }
        let until = after(now, lifetime_seconds.into());
        if let Some(known) = self.autoconf.routers.iter_mut().find(|router| router.address == address) {
            known.until = until;
        } else if self.autoconf.routers.len() >= self.config.autoconf.routers_max {
            self.counters.autoconf_table_full += 1;
        } else {
            self.autoconf.routers.push(Router { address, until });
            self.due.push_back(default_route(address, true));
        }
        // RFC 4861 §6.3.7: once a router is known, solicitations stop.
        self.autoconf.solicitations = 0;
        self.autoconf.solicit_at = Instant::NEVER;
    }

    pub(super) fn drop_router(&mut self, address: Ipv6Addr) {
        let before = self.autoconf.routers.len();
        self.autoconf.routers.retain(|router| router.address != address);
        if self.autoconf.routers.len() < before {
            self.due.push_back(default_route(address, false));
        }
    }

    /// Moves a router that does not answer to the end of the list (RFC 4861 §6.3.6).
    pub(super) fn put_router_last(&mut self, address: Ipv6Addr) {
        if let Some(at) = self.autoconf.routers.iter().position(|router| router.address == address) {
            let router = self.autoconf.routers.remove(at);
            self.autoconf.routers.push(router);
            self.due.push_back(default_route(address, false));
            self.due.push_back(default_route(address, true));
        }
    }

    fn set_prefix(&mut self, prefix: Prefix, valid_seconds: u32, now: Instant) {
        let valid_until = after(now, valid_seconds);
        if let Some(known) = self.autoconf.prefixes.iter_mut().find(|known| known.prefix == prefix) {
            known.valid_until = valid_until;
        } else if valid_seconds == 0 {
            // An unknown prefix with a zero lifetime is ignored.
        } else if self.autoconf.prefixes.len() >= self.config.autoconf.prefixes_max {
            self.counters.autoconf_table_full += 1;
        } else {
            self.autoconf.prefixes.push(OnLink { prefix, valid_until });
            self.due.push_back(Output::Route(prefix, None, true));
        }
    }

    /// Creates or updates the address made from an advertised prefix (RFC 4862 §5.5.3).
    fn set_address(&mut self, prefix: Ipv6Addr, bits: u8, valid: u32, preferred: u32, now: Instant) {
        // Interface identifiers have 64 bits, so prefixes must have 64 as well.
        if bits != 64 || preferred > valid {
            self.counters.autoconf_invalid += 1;
            return;
        }
        let prefix = opaque::join(prefix, 0);
        let (valid_until, preferred_until) = (after(now, valid), after(now, preferred));
        let Some(own) = self.autoconf.own.iter_mut().find(|own| own.made == Some(prefix)) else {
            if valid > 0 {
                let address = self.make(prefix, 0);
                self.begin(address, Some(prefix), 0, (valid_until, preferred_until), now);
            }
            return;
        };
        let remaining = own.valid_until.since(now);
        if valid_until.since(now) > TWO_HOURS || valid_until > own.valid_until {
            own.valid_until = valid_until;
        } else if remaining > TWO_HOURS {
            own.valid_until = now + TWO_HOURS;
        } else {
            self.counters.autoconf_invalid += 1;
        }
        own.preferred_until = preferred_until;
        let deprecated = preferred_until <= now;
        if own.deprecated != deprecated && own.standing == AddressState::Ready {
            self.due.push_back(Output::Deprecated(own.address, deprecated));
        }
        own.deprecated = deprecated;
    }
}

fn default_route(router: Ipv6Addr, exists: bool) -> Output {
    Output::Route(Prefix::new(Ipv6Addr::UNSPECIFIED.into(), 0), Some(router.into()), exists)
}
