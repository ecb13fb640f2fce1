//! Carries the configuration of a link's guest ([`crate::guest`]): requests and replies of DHCP and DHCPv6,
//! and router advertisements.
//!
//! Receive path     requests are taken before IP, because their sender may have no address yet. Only a whole,
//!                  correct datagram to a server's port and to one of our addresses, to all stations or to
//!                  the group of servers is taken.
//! Transmit path    replies go to the MAC address of the request's sender.
//! Advertisements   to all nodes: three at the beginning, then every 200 to 600 s (RFC 4861 §6.2.4), and
//!                  within half a second of a solicitation, but at most one every three seconds (§6.2.6).
//! Addresses        a guest with DHCPv6 gets its configured address. Any guest may also form addresses of its
//!                  own, if the net has 64 bits.

use super::cache::Advertised;
use super::dhcp::datagram;
use super::link::{Link, Output, group_mac6};
use crate::guest::{Guest, GuestCounters, LEASE_SECONDS, Target};
use crate::wire::dhcp;
use crate::wire::dhcpv6;
use crate::wire::discovery::{ALL_NODES, ALL_ROUTERS, HOP_LIMIT, Item, Message};
use crate::wire::ip::version;
use crate::wire::{icmpv6, ipv4, ipv6, udp};
use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use kiban_base::ethernet::Mac;
use kiban_base::numbers::protocol;
use kiban_base::{Context, Instant, Pdu, Sum, checksum};

/// MAX_RTR_ADVERT_INTERVAL and its minimum: bounds of the time between advertisements (RFC 4861 §6.2.1).
const ADVERTISEMENT_INTERVAL: [Duration; 2] = [Duration::from_secs(200), Duration::from_secs(600)];
/// Lifetime as a default router, seconds (§6.2.1: three times the interval).
const ROUTER_LIFETIME_SECONDS: u16 = 1800;
/// Time between the advertisements at the beginning (§10).
const INITIAL_INTERVAL: Duration = Duration::from_secs(16);
/// Minimum time between advertisements (§10).
const ADVERTISEMENT_DELAY_MIN: Duration = Duration::from_secs(3);
/// Maximum delay of the answer to a solicitation (§10).
const ANSWER_DELAY_MAX: Duration = Duration::from_millis(500);
/// How long to wait for a link-local address, without which nothing can be advertised.
const ADDRESS_DELAY: Duration = Duration::from_millis(100);
/// Type of the option that names name servers (RFC 8106 §5.1).
const RECURSIVE_NAME_SERVERS: u8 = 25;
/// Hop limit of DHCPv6 messages.
const DHCPV6_HOP_LIMIT: u8 = 64;

/// Returns the sender and the payload of a packet if it is a whole, correct datagram to DHCPv6 servers.
fn datagram6(pdu: &mut Pdu) -> Option<(Ipv6Addr, Vec<u8>)> {
    pdu.pull_up(ipv6::HEADER_BYTES)?;
    let (header, length) = ipv6::Header::read_quoted(pdu.head()).ok()?;
    if header.next_header != protocol::UDP || header.target != dhcpv6::ALL_SERVERS {
        return None;
    }
    let bytes: Vec<u8> = pdu.runs().flatten().copied().collect();
    let datagram = bytes.get(length..)?.get(..header.payload_bytes.into())?;
    let (about, at) = udp::Header::read(datagram).ok()?;
    // RFC 8415 §14: clients send from a link-local address.
    if about.target_port != dhcpv6::SERVER_PORT || !header.source.is_unicast_link_local() {
        return None;
    }
    let datagram = datagram.get(..about.total_bytes.into())?;
    let pseudo = checksum::pseudo_ipv6(header.source, header.target, protocol::UDP, datagram.len());
    if !pdu.is_verified() {
        udp::verify_over_ipv6(&datagram[..at], pseudo.plus(Sum::of(&datagram[at..]))).ok()?;
    }
    Some((header.source, datagram[at..].to_vec()))
}

impl Link {
    /// Joins the groups of routers and of DHCPv6 servers.
    pub(super) fn begin_guest(&mut self) {
        if self.is_router() {
            self.join(ALL_ROUTERS.into(), Instant::ZERO);
            self.join(dhcpv6::ALL_SERVERS.into(), Instant::ZERO);
        }
    }

    /// Returns whether the link advertises itself as a router.
    pub(super) fn is_router(&self) -> bool {
        self.guest.as_ref().is_some_and(|guest| guest.config.ipv6.is_some())
    }

    /// Returns the counters of the guest's configuration, if the link has a guest.
    pub fn guest_counters(&self) -> Option<&GuestCounters> {
        self.guest.as_ref().map(|guest| &guest.counters)
    }

    /// Answers a packet if it is a request of DHCP or DHCPv6. Returns whether it is.
    pub(super) fn take_request(&mut self, pdu: &mut Pdu, from: Mac, cx: &mut Context<'_>) -> bool {
        match pdu.pull_up(ipv4::HEADER_BYTES).and_then(|_| version(pdu.head())) {
            Some(6) => self.take_dhcpv6(pdu, from, cx),
            _ => self.take_dhcpv4(pdu, from, cx),
        }
    }

    fn take_dhcpv4(&mut self, pdu: &mut Pdu, from: Mac, cx: &mut Context<'_>) -> bool {
        let Some((to, message)) = datagram(pdu, dhcp::SERVER_PORT) else { return false };
        let Some(Guest { config, counters, .. }) = self.guest.as_deref_mut() else { return false };
        let is_ours = config.ipv4.is_some_and(|(.., server)| to.is_broadcast() || to == server);
        if !is_ours {
            return false;
        }
        cx.copies.header_bytes += message.len() as u64;
        let Some(reply) = config.answer(&message, self.config.mtu_bytes, counters) else { return true };
        let (target, mac) = match reply.target {
            Target::Broadcast => (Ipv4Addr::BROADCAST, Mac::BROADCAST),
            // A relayed message, whose sender is not its client, has no reply.
            Target::Unicast(address, _) => (address, from),
        };
        let ports = [dhcp::SERVER_PORT, dhcp::CLIENT_PORT];
        if let Some(pdu) = self.dhcp_packet(reply.source, target, ports, &reply.message, cx) {
            self.due.push_back(Output::Packet { mac, pdu });
        }
        true
    }

    fn take_dhcpv6(&mut self, pdu: &mut Pdu, from: Mac, cx: &mut Context<'_>) -> bool {
        if !self.is_router() {
            return false;
        }
        let Some((client, message)) = datagram6(pdu) else { return false };
        cx.copies.header_bytes += message.len() as u64;
        let source = self.source_address().filter(Ipv6Addr::is_unicast_link_local);
        let server = self.config.mac;
        let Some(Guest { config, counters, .. }) = self.guest.as_deref_mut() else { return false };
        let (Some(source), Some(reply)) = (source, config.answer6(&message, server, counters)) else {
            return true;
        };
        let total = reply.len() + udp::HEADER_BYTES;
        let Some(mut pdu) = self.pdu_of(&reply, cx) else { return true };
        let header = pdu.push_head(udp::HEADER_BYTES);
        let (source_port, target_port) = (dhcpv6::SERVER_PORT, dhcpv6::CLIENT_PORT);
        udp::Header { source_port, target_port, total_bytes: total as u16 }.write(header);
        let pseudo = checksum::pseudo_ipv6(source, client, protocol::UDP, total);
        udp::fill(header, pseudo.plus(Sum::of(&reply)));
        self.send_ipv6(pdu, (source, client, from), protocol::UDP, DHCPV6_HOP_LIMIT);
        true
    }

    /// Adds an IPv6 header to a packet, and sends it from an address to another with a MAC address.
    fn send_ipv6(
        &mut self,
        mut pdu: Pdu,
        (source, target, mac): (Ipv6Addr, Ipv6Addr, Mac),
        next_header: u8,
        hop_limit: u8,
    ) {
        let payload_bytes = pdu.len() as u16;
        let header = ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_bytes,
            next_header,
            hop_limit,
            source,
            target,
        };
        header.write(pdu.push_head(ipv6::HEADER_BYTES));
        self.due.push_back(Output::Packet { mac, pdu });
    }

    /// Processes a router solicitation (RFC 4861 §6.1.1, §6.2.6). Returns false if it is invalid.
    pub(super) fn on_router_solicitation(
        &mut self,
        source: Ipv6Addr,
        link: Option<Mac>,
        cx: &mut Context<'_>,
    ) -> bool {
        if source.is_unspecified() && link.is_some() {
            return false;
        }
        if !self.is_router() {
            // A host ignores router solicitations.
            self.counters.discovery_ignored += 1;
            return true;
        }
        if link.is_some() {
            let word =
                Advertised { mac: link, solicited: false, overrides: true, router: Some(false), learn: true };
            self.hear6(source, word, cx);
        }
        if let Some(guest) = &mut self.guest {
            let delay = Duration::from_nanos(cx.rng.below(ANSWER_DELAY_MAX.as_nanos() as u64));
            let answer_at = (cx.now + delay).max(guest.advertise_from);
            guest.advertise_at = guest.advertise_at.min(answer_at);
        }
        true
    }

    pub(super) fn guest_deadline(&self) -> Instant {
        self.guest.as_ref().map_or(Instant::NEVER, |guest| guest.advertise_at)
    }

    /// Sends an advertisement if it is due.
    pub(super) fn settle_guest(&mut self, cx: &mut Context<'_>) {
        if self.guest_deadline() > cx.now {
            return;
        }
        let source = self.source_address().filter(Ipv6Addr::is_unicast_link_local);
        let Some(guest) = &mut self.guest else { return };
        let Some(source) = source else {
            guest.advertise_at = cx.now + ADDRESS_DELAY;
            return;
        };
        guest.advertise_from = cx.now + ADVERTISEMENT_DELAY_MIN;
        let [least, most] = ADVERTISEMENT_INTERVAL;
        let random = Duration::from_nanos(cx.rng.below((most - least).as_nanos() as u64));
        guest.initial_left = guest.initial_left.saturating_sub(1);
        let pause = if guest.initial_left > 0 { INITIAL_INTERVAL } else { least + random };
        guest.advertise_at = cx.now + pause;
        let Some(mut bytes) = self.advertisement() else { return };
        let length = bytes.len();
        let rest = checksum::pseudo_ipv6(source, ALL_NODES, protocol::ICMPV6, length)
            .plus(Sum::of(&bytes[icmpv6::HEADER_BYTES..]));
        icmpv6::fill(&mut bytes, rest);
        if let Some(pdu) = self.pdu_of(&bytes, cx) {
            let ends = (source, ALL_NODES, group_mac6(ALL_NODES));
            self.send_ipv6(pdu, ends, protocol::ICMPV6, HOP_LIMIT);
            if let Some(guest) = &mut self.guest {
                guest.counters.router_advertisements_out += 1;
            }
        }
    }

    /// Returns an advertisement without its checksum.
    fn advertisement(&self) -> Option<Vec<u8>> {
        let config = &self.guest.as_ref()?.config;
        let (address, prefix) = config.ipv6?;
        let message = Message::RouterAdvertisement {
            hop_limit: DHCPV6_HOP_LIMIT,
            managed: true,
            other: true,
            lifetime_seconds: ROUTER_LIFETIME_SECONDS,
            reachable_ms: 0,
            retransmit_ms: 0,
        };
        let names = config.names6();
        let servers = [&[0, 0][..], &u32::from(ROUTER_LIFETIME_SECONDS).to_be_bytes(), &names].concat();
        let net = u128::MAX.checked_shl(128 - u32::from(prefix.bits())).unwrap_or(0);
        let mut options = vec![
            Item::SourceLink(self.config.mac),
            Item::Mtu(self.config.mtu_bytes as u32),
            Item::Prefix {
                bits: prefix.bits(),
                on_link: true,
                autonomous: prefix.bits() == 64,
                valid_seconds: LEASE_SECONDS,
                preferred_seconds: LEASE_SECONDS,
                prefix: Ipv6Addr::from_bits(address.to_bits() & net),
            },
        ];
        if !names.is_empty() {
            options.push(Item::Other { kind: RECURSIVE_NAME_SERVERS, data: &servers });
        }
        let mut bytes = vec![0; message.length() + options.iter().map(Item::length).sum::<usize>()];
        let mut at = message.write(&mut bytes);
        for option in &options {
            at += option.write(&mut bytes[at..]);
        }
        Some(bytes)
    }
}
