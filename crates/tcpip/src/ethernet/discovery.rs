//! Neighbour discovery: solicitations, advertisements and redirects (RFC 4861 §7, §8).
//!
//! Validation       a message must not have crossed a router (hop limit 255, §11.2), must not be fragmented
//!                  (RFC 6980), and must be well-formed.
//! Updates          a solicitation for one of our addresses creates a cache entry for its sender, because we
//!                  will answer it. An unsolicited advertisement only updates an existing entry.
//! Redirects        a redirect is accepted from the current first hop only (§8.1), and only if
//!                  `accept_redirects` is set.

use super::cache::Advertised;
use super::link::{Link, Output, group_mac6};
use crate::ip::{Delivery, Prefix};
use crate::wire::discovery::{ALL_NODES, HOP_LIMIT, Item, Message, solicited_node};
use crate::wire::{icmpv6, ipv6, mld};
use core::net::{IpAddr, Ipv6Addr};
use kiban_base::checksum;
use kiban_base::ethernet::Mac;
use kiban_base::numbers::protocol;
use kiban_base::{Context, Pdu, Sum};

/// Longest message processed, bytes: room for a few prefixes, for the beginning of a redirected packet, or
/// for the sources in a query for multicast listeners.
const MESSAGE_BYTES_MAX: usize = 1460;

impl Link {
    /// Processes a message of neighbour discovery or multicast listener discovery whose checksum is correct,
    /// or a message of IGMP.
    pub fn on_discovery(&mut self, delivery: Delivery, cx: &mut Context<'_>) {
        let Delivery { source, target, pdu, brief, .. } = delivery;
        let mut bytes = [0; MESSAGE_BYTES_MAX];
        let length = pdu.len();
        if length > MESSAGE_BYTES_MAX {
            self.counters.discovery_malformed += 1;
            return;
        }
        let mut at = 0;
        for run in pdu.runs() {
            bytes[at..at + run.len()].copy_from_slice(run);
            at += run.len();
        }
        cx.copies.header_bytes += length as u64;
        let (IpAddr::V6(source), IpAddr::V6(target)) = (source, target) else {
            return self.on_igmp(&bytes[..length], brief, cx);
        };
        if mld::is_mld(bytes[0]) {
            return self.on_mld(&bytes[..length], source, brief, cx);
        }
        if brief.hop_limit != HOP_LIMIT || brief.in_fragments {
            self.counters.discovery_malformed += 1;
            return;
        }
        let Ok((message, options)) = Message::read(&bytes[..length]) else {
            self.counters.discovery_malformed += 1;
            return;
        };
        let link = |wanted: fn(Item<'_>) -> Option<Mac>| {
            options.clone().find_map(wanted).filter(|mac| !mac.is_group())
        };
        let source_link = link(|item| if let Item::SourceLink(mac) = item { Some(mac) } else { None });
        let target_link = link(|item| if let Item::TargetLink(mac) = item { Some(mac) } else { None });
        let good = match message {
            Message::RouterSolicitation => self.on_router_solicitation(source, source_link, cx),
            Message::RouterAdvertisement { .. } => {
                self.on_router_advertisement(message, options, source, source_link, cx)
            }
            Message::NeighbourSolicitation { target: wanted } => {
                self.on_solicitation(source, target, wanted, source_link, cx)
            }
            Message::NeighbourAdvertisement { router, solicited, overrides, target: who } => {
                let word =
                    Advertised { mac: target_link, solicited, overrides, router: Some(router), learn: false };
                self.on_advertisement(target, who, word, cx)
            }
            Message::Redirect { target: better, destination } => {
                self.on_redirect(source, better, destination, target_link, cx);
                true
            }
        };
        if !good {
            self.counters.discovery_malformed += 1;
        }
    }

    /// Processes a neighbour solicitation (§7.1.1, §7.2.3). Returns false if it is invalid.
    fn on_solicitation(
        &mut self,
        source: Ipv6Addr,
        target: Ipv6Addr,
        wanted: Ipv6Addr,
        link: Option<Mac>,
        cx: &mut Context<'_>,
    ) -> bool {
        let probes = source.is_unspecified();
        if wanted.is_multicast() || (probes && (link.is_some() || target != solicited_node(wanted))) {
            return false;
        }
        if self.is_tentative(wanted) {
            // RFC 4862 §5.4.3: a solicitation from the unspecified address is another host's duplicate
            // address detection for the same address. A solicitation from a unicast address is address
            // resolution, and is ignored while our address is tentative.
            if probes {
                self.on_duplicate(wanted, cx);
            }
            return true;
        }
        if !self.has6(wanted) {
            self.counters.discovery_ignored += 1;
            return true;
        }
        if !probes && let Some(mac) = link {
            let word =
                Advertised { mac: Some(mac), solicited: false, overrides: true, router: None, learn: true };
            self.hear6(source, word, cx);
        }
        let advertisement = Message::NeighbourAdvertisement {
            router: self.is_router(),
            solicited: !probes,
            overrides: true,
            target: wanted,
        };
        let to = if probes { ALL_NODES } else { source };
        let option = Item::TargetLink(self.config.mac);
        if let Some(packet) = self.message(wanted, to, advertisement, Some(option), cx) {
            self.counters.advertisements_out += 1;
            // The solicitation may have carried no link-layer address. In that case, the sender is resolved
            // first.
            if let Some((mac, pdu)) = self.resolve(to.into(), packet, cx) {
                self.due.push_back(Output::Packet { mac, pdu });
            }
        }
        true
    }

    /// Processes a neighbour advertisement (§7.1.2, §7.2.5). Returns false if it is invalid.
    fn on_advertisement(
        &mut self,
        target: Ipv6Addr,
        who: Ipv6Addr,
        word: Advertised,
        cx: &mut Context<'_>,
    ) -> bool {
        if who.is_multicast() || (target.is_multicast() && word.solicited) {
            return false;
        }
        if self.is_tentative(who) {
            self.on_duplicate(who, cx);
        } else if self.has6(who) {
            // RFC 4862 §5.4.4: the address is already in use here, so keep it and only count the conflict.
            self.counters.duplicate_addresses += 1;
        } else if self.cache.reach(who.into()).is_none() {
            self.counters.discovery_ignored += 1;
        } else {
            self.hear6(who, word, cx);
        }
        true
    }

    /// Processes a redirect (§8.1, §8.3).
    fn on_redirect(
        &mut self,
        source: Ipv6Addr,
        better: Ipv6Addr,
        destination: Ipv6Addr,
        link: Option<Mac>,
        cx: &mut Context<'_>,
    ) {
        let is_first_hop = self.autoconf.first_hop(destination) == Some(source);
        let is_hop = better == destination || better.is_unicast_link_local();
        if !self.config.autoconf.accept_redirects || !is_first_hop || !is_hop || destination.is_multicast() {
            self.counters.redirects_rejected += 1;
            return;
        }
        self.counters.redirects_in += 1;
        if link.is_some() {
            let router = (better != destination).then_some(true);
            let word = Advertised { mac: link, solicited: false, overrides: true, router, learn: true };
            self.hear6(better, word, cx);
        }
        let prefix = Prefix::new(destination.into(), 128);
        let gateway = (better != destination).then_some(better);
        if let Some((old, hop)) = self.autoconf.redirect(destination, gateway) {
            self.due.push_back(Output::Route(Prefix::new(old.into(), 128), hop.map(IpAddr::V6), false));
        }
        self.due.push_back(Output::Route(prefix, gateway.map(IpAddr::V6), true));
    }

    pub(super) fn hear6(&mut self, neighbour: Ipv6Addr, word: Advertised, cx: &mut Context<'_>) {
        if self.learn(neighbour.into(), word, cx) {
            // §7.2.5: the neighbour is no longer a default router.
            self.drop_router(neighbour);
        }
    }

    pub(super) fn send_solicitation(&mut self, neighbour: Ipv6Addr, mac: Option<Mac>, cx: &mut Context<'_>) {
        let Some(source) = self.source_address() else { return };
        let message = Message::NeighbourSolicitation { target: neighbour };
        let group = solicited_node(neighbour);
        let (to, mac) = match mac {
            Some(mac) => (neighbour, mac),
            None => (group, group_mac6(group)),
        };
        if self.send_message(source, to, mac, message, Some(Item::SourceLink(self.config.mac)), cx) {
            self.counters.solicitations_out += 1;
        }
    }

    /// Sends a message with at most one option to a MAC address. Returns false if there is no memory.
    pub(super) fn send_message(
        &mut self,
        source: Ipv6Addr,
        target: Ipv6Addr,
        mac: Mac,
        message: Message,
        option: Option<Item<'_>>,
        cx: &mut Context<'_>,
    ) -> bool {
        let packet = self.message(source, target, message, option, cx);
        let sent = packet.is_some();
        self.due.extend(packet.map(|pdu| Output::Packet { mac, pdu }));
        sent
    }

    /// Builds the IPv6 packet for a message with at most one option. Returns `None` if there is no memory.
    fn message(
        &mut self,
        source: Ipv6Addr,
        target: Ipv6Addr,
        message: Message,
        option: Option<Item<'_>>,
        cx: &mut Context<'_>,
    ) -> Option<Pdu> {
        let Some(mut pdu) = cx.memory.pdus.take() else {
            self.counters.no_memory += 1;
            return None;
        };
        let length = message.length() + option.map_or(0, |option| option.length());
        let bytes = pdu.push_head(length);
        let front = message.write(bytes);
        if let Some(option) = option {
            option.write(&mut bytes[front..]);
        }
        let rest = checksum::pseudo_ipv6(source, target, protocol::ICMPV6, length)
            .plus(Sum::of(&bytes[icmpv6::HEADER_BYTES..]));
        icmpv6::fill(bytes, rest);
        let header = ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_bytes: length as u16,
            next_header: protocol::ICMPV6,
            hop_limit: HOP_LIMIT,
            source,
            target,
        };
        header.write(pdu.push_head(ipv6::HEADER_BYTES));
        Some(pdu)
    }
}
