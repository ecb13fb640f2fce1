//! Ethernet under IP: frames, ARP, neighbour discovery, addresses by themselves (RFC 894, RFC 826, RFC 4861, RFC 4862).
//!
//! Goal      a packet for a neighbour becomes a frame to its MAC; addresses of the link are found, kept and defended.
//! Down      [`Link::resolve`] knows the MAC or keeps the packet and asks.
//! Up        [`Link::arrive`] takes the frame's header off; ARP stays here. Neighbour discovery comes back from ICMPv6
//!           ([`Link::on_discovery`]), its checksum right.
//! Settle    [`Link::settle`] lets time pass and hands out what is due: frames, packets that can leave, packets whose
//!           neighbour is not there, and what IP is to know about addresses, routes, groups ([`Due`]).
//! Files     `bridge` a bridge's stations, for who has none of the above; `cache` who is where; `arp`; `discovery` questions and answers of IPv6; `autoconf` addresses and routers;
//!           `opaque` interface identifiers.
//! Limits    every table has a bound in its configuration.
//! Left out  VLAN tags, MLD reports (groups are listened to, not reported), DHCP, sending redirects or router
//!           advertisements: a board is a host.

mod arp;
mod autoconf;
mod bridge;
mod cache;
mod discovery;
mod opaque;

pub use autoconf::{AutoconfConfig, Identifier};
pub use bridge::{Bridge, Forward, STATION_TIMEOUT, STATIONS_MAX};
pub use cache::Reach;

use crate::ip::Prefix;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use arp::Announcement;
use autoconf::Autoconf;
use cache::{Cache, Passed, Resolved};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use kiban_ground::{Context, Instant, Pdu, SecureRng};
use kiban_wire::ethernet::{self, HEADER_BYTES, Mac};
use kiban_wire::numbers::ether_type;
use kiban_wire::{ipv4, ipv6};

kiban_ground::counters! {
    /// What happened on an Ethernet link.
    pub struct EthernetCounters {
        /// Frames that arrived.
        frames_in,
        /// Frames too short, or from a group.
        malformed,
        /// Frames for another station.
        not_ours,
        /// Frames of a type that is not known here.
        unknown_type,
        /// Frames to a group with a packet to one host (RFC 1122 §3.3.6).
        to_group,
        /// ARP packets that break a rule.
        arp_malformed,
        /// ARP packets that are not about us or anybody known.
        arp_ignored,
        /// ARP questions asked.
        arp_requests_out,
        /// ARP questions answered.
        arp_replies_out,
        /// Others that claim an IPv4 address of ours (RFC 5227 §2.4).
        arp_conflicts,
        /// Times that an IPv4 address was announced or defended.
        arp_announced,
        /// Messages of neighbour discovery that break a rule: not of this link, in fragments, of wrong form.
        discovery_malformed,
        /// Messages of neighbour discovery that concern nobody here.
        discovery_ignored,
        /// Solicitations sent, for neighbours or for addresses of our own.
        solicitations_out,
        /// Advertisements sent.
        advertisements_out,
        /// Solicitations for routers sent.
        router_solicitations_out,
        /// Router advertisements taken.
        router_advertisements_in,
        /// Prefixes, routers or addresses that were one too many.
        autoconf_excess,
        /// Prefixes that cannot be used, and lifetimes that were too short to be true (RFC 4862 §5.5.3).
        autoconf_refused,
        /// Addresses of ours that somebody else has (RFC 4862 §5.4).
        duplicates,
        /// Redirects obeyed.
        redirects_in,
        /// Redirects refused.
        redirects_refused,
        /// Neighbours that made room for others.
        neighbours_evicted,
        /// Neighbours that changed their MAC.
        neighbours_moved,
        /// Neighbours that did not answer.
        neighbours_gone,
        /// Packets that waited for a neighbour and had to go.
        waiting_dropped,
        /// Questions or answers that found no memory.
        starved,
    }
}

/// Settings of the neighbour cache.
#[derive(Clone, Copy, Debug)]
pub struct NeighbourConfig {
    /// Neighbours that are remembered at most (Linux: 1024).
    pub neighbours_max: usize,
    /// Packets that wait for one neighbour at most (RFC 4861 §7.2.2: at least one).
    pub queue_max: usize,
    /// Packets that wait for all neighbours at most.
    pub queued_max: usize,
    /// How long an answer is good, ±50 % (RFC 4861 §10: 30 s); a router may say otherwise.
    pub reachable: Duration,
    /// How long a stale neighbour is used before it is asked (RFC 4861 §10: 5 s).
    pub delay: Duration,
    /// Between questions (RFC 4861 §10, RFC 1122 §2.3.2.1: 1 s).
    pub retransmit: Duration,
    /// Questions to everybody for one neighbour (RFC 4861 §10: 3).
    pub questions: u8,
    /// Questions to a neighbour itself (RFC 4861 §10: 3).
    pub probes: u8,
}

impl Default for NeighbourConfig {
    fn default() -> NeighbourConfig {
        NeighbourConfig {
            neighbours_max: 1024,
            queue_max: 3,
            queued_max: 64,
            reachable: Duration::from_secs(30),
            delay: Duration::from_secs(5),
            retransmit: Duration::from_secs(1),
            questions: 3,
            probes: 3,
        }
    }
}

/// A link before it is built.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Our MAC.
    pub mac: Mac,
    /// Our addresses and the nets that are reached directly. Those of IPv6 are used once nobody is found to have them.
    pub addresses: Vec<(IpAddr, Prefix)>,
    /// The longest IP packet, bytes.
    pub mtu_bytes: usize,
    /// Settings of the neighbour cache.
    pub neighbours: NeighbourConfig,
    /// Addresses and routers of IPv6.
    pub autoconf: AutoconfConfig,
    /// Times that each IPv4 address is announced at the start (RFC 5227 §2.3: 2).
    pub announcements: u8,
}

impl LinkConfig {
    /// A link with its standard MTU (RFC 894) and no address but IPv6's link-local.
    pub fn new(mac: Mac) -> LinkConfig {
        LinkConfig {
            mac,
            addresses: Vec::new(),
            mtu_bytes: 1500,
            neighbours: NeighbourConfig::default(),
            autoconf: AutoconfConfig::default(),
            announcements: 2,
        }
    }
}

/// What a link has for those around it.
#[derive(Debug)]
pub enum Due {
    /// A frame of the link's own.
    Frame(Pdu),
    /// A packet whose neighbour is known now.
    Packet {
        /// Where the neighbour is.
        mac: Mac,
        /// The packet, without a frame's header.
        pdu: Pdu,
    },
    /// A packet whose neighbour does not answer.
    Undelivered(Pdu),
    /// Nobody answered for a neighbour whose MAC was not known; routes that led through it have changed already.
    Nobody(IpAddr),
    /// An IPv6 address may be used, or not any more.
    Address(Ipv6Addr, bool),
    /// An IPv6 address is deprecated, or not any more.
    Deprecated(Ipv6Addr, bool),
    /// A group is listened to, or not any more.
    Group(Ipv6Addr, bool),
    /// A prefix is reached through a router, or directly; or not any more.
    Route(Prefix, Option<IpAddr>, bool),
    /// IPv6 packets are at most so long, bytes.
    Mtu(usize),
    /// IPv6 packets pass so many routers.
    HopLimit(u8),
}

/// One Ethernet link.
pub struct Link {
    config: LinkConfig,
    cache: Cache,
    own4: Vec<(Ipv4Addr, Prefix)>,
    announcements: Vec<Announcement>,
    autoconf: Autoconf,
    due: VecDeque<Due>,
    counters: EthernetCounters,
}

impl Link {
    /// A link. Nothing is sent before the first [`Link::settle`].
    pub fn new(config: LinkConfig, rng: &mut SecureRng) -> Link {
        let own4: Vec<_> = config
            .addresses
            .iter()
            .filter_map(|(address, prefix)| match address {
                IpAddr::V4(address) => Some((*address, *prefix)),
                IpAddr::V6(_) => None,
            })
            .collect();
        let announcements =
            own4.iter().map(|(address, _)| Announcement::new(*address, config.announcements)).collect();
        let mut link = Link {
            cache: Cache::new(&config.neighbours),
            own4,
            announcements,
            autoconf: Autoconf::new(&config, rng),
            due: VecDeque::new(),
            counters: EthernetCounters::default(),
            config,
        };
        link.begin_addresses();
        link
    }

    /// What has been counted.
    pub fn counters(&self) -> &EthernetCounters {
        &self.counters
    }

    /// How well a neighbour is known, if at all.
    pub fn reach(&self, neighbour: IpAddr) -> Option<Reach> {
        self.cache.reach(neighbour)
    }

    /// Neighbours that are remembered.
    pub fn neighbours(&self) -> usize {
        self.cache.len()
    }

    /// Puts a frame's header in front of a packet.
    #[inline]
    pub fn push_header(&self, target: Mac, pdu: &mut Pdu) {
        let is_ipv4 = pdu.head().first().is_some_and(|first| first >> 4 == 4);
        let ether_type = if is_ipv4 { ether_type::IPV4 } else { ether_type::IPV6 };
        ethernet::Header { target, source: self.config.mac, ether_type }.write(pdu.push_head(HEADER_BYTES));
    }

    /// Where the next hop of a packet is. If that is not known the packet waits, and the next [`Link::settle`] asks.
    #[inline]
    pub fn resolve(&mut self, next: IpAddr, pdu: Pdu, cx: &mut Context<'_>) -> Option<(Mac, Pdu)> {
        if let Some(group) = self.group_mac(next) {
            return Some((group, pdu));
        }
        let Link { cache, config, counters, .. } = self;
        match cache.resolve(next, pdu, cx.now, &config.neighbours, counters) {
            Resolved::Known(mac, pdu) => Some((mac, pdu)),
            Resolved::Waits { ask } => {
                if ask {
                    self.ask(next, None, cx);
                }
                None
            }
        }
    }

    /// Packets by way of `next` seem to get nowhere.
    pub fn doubt(&mut self, next: IpAddr) {
        self.cache.doubt(next);
    }

    /// The MAC of a group or of everybody (RFC 1112 §6.4, RFC 2464 §7).
    #[inline]
    fn group_mac(&self, next: IpAddr) -> Option<Mac> {
        match next {
            IpAddr::V4(next) if next.is_multicast() => {
                let [_, b, c, d] = next.octets();
                Some(Mac([0x01, 0x00, 0x5e, b & 0x7f, c, d]))
            }
            IpAddr::V4(next) => {
                let is_last = |(_, prefix): &(Ipv4Addr, Prefix)| prefix.is_last(next);
                (next.is_broadcast() || self.own4.iter().any(is_last)).then_some(Mac::BROADCAST)
            }
            IpAddr::V6(next) if next.is_multicast() => Some(group_mac6(next)),
            IpAddr::V6(_) => None,
        }
    }

    /// A frame has arrived: the packet in it, if it is one for IP.
    pub fn arrive(&mut self, mut pdu: Pdu, cx: &mut Context<'_>) -> Option<Pdu> {
        self.counters.frames_in += 1;
        let Some(moved) = pdu.pull_up(HEADER_BYTES) else {
            self.counters.malformed += 1;
            return None;
        };
        cx.copies.header_bytes += moved as u64;
        let Ok((header, length)) = ethernet::Header::read(pdu.head()) else {
            self.counters.malformed += 1;
            return None;
        };
        if header.source.is_group() {
            self.counters.malformed += 1;
            return None;
        }
        let to_group = header.target.is_group();
        if !to_group && header.target != self.config.mac {
            self.counters.not_ours += 1;
            return None;
        }
        pdu.pull_head(length);
        match header.ether_type {
            ether_type::IPV4 | ether_type::IPV6 if to_group && !self.is_for_group(&mut pdu, cx) => {
                self.counters.to_group += 1;
                None
            }
            ether_type::IPV4 | ether_type::IPV6 => Some(pdu),
            ether_type::ARP => {
                self.on_arp(pdu, header.source, cx);
                None
            }
            _ => {
                self.counters.unknown_type += 1;
                None
            }
        }
    }

    /// RFC 1122 §3.3.6: what came to everybody and is for one host is not for anybody.
    fn is_for_group(&self, pdu: &mut Pdu, cx: &mut Context<'_>) -> bool {
        let Some(moved) = pdu.pull_up(ipv4::HEADER_BYTES) else { return false };
        cx.copies.header_bytes += moved as u64;
        if pdu.head()[0] >> 4 == 6 {
            let Some(moved) = pdu.pull_up(ipv6::HEADER_BYTES) else { return false };
            cx.copies.header_bytes += moved as u64;
            return pdu.head()[24] == 0xff;
        }
        let target = Ipv4Addr::from(*pdu.head()[16..].first_chunk::<4>().expect("20 bytes are there"));
        self.group_mac(target.into()).is_some()
    }

    /// Lets time pass, and hands out what is due.
    pub fn settle(&mut self, cx: &mut Context<'_>, out: &mut dyn FnMut(Due, &mut Context<'_>)) {
        for passed in self.cache.pass(cx.now, &self.config.neighbours) {
            match passed {
                Passed::Ask(neighbour, mac) => self.ask(neighbour, mac, cx),
                Passed::Gone { neighbour, was_router, was_known, queue } => {
                    self.counters.neighbours_gone += 1;
                    self.due.extend(queue.into_iter().map(Due::Undelivered));
                    // RFC 4861 §6.3.6: a router that was never found is no better than one that has gone.
                    if (was_router || !was_known)
                        && let IpAddr::V6(router) = neighbour
                    {
                        self.put_router_last(router);
                    }
                    if !was_known {
                        self.due.push_back(Due::Nobody(neighbour));
                    }
                }
            }
        }
        self.settle_announcements(cx);
        self.settle_autoconf(cx);
        while let Some(due) = self.due.pop_front() {
            out(due, cx);
        }
    }

    /// The next moment at which something happens by itself: may be early, never late.
    pub fn deadline(&self) -> Instant {
        if !self.due.is_empty() {
            return Instant::ZERO;
        }
        let announcements = self.announcements.iter().map(|announcement| announcement.at).min();
        self.cache.deadline().min(announcements.unwrap_or(Instant::NEVER)).min(self.autoconf.deadline())
    }

    /// Asks where a neighbour is: everybody, or itself if its MAC was known.
    fn ask(&mut self, neighbour: IpAddr, mac: Option<Mac>, cx: &mut Context<'_>) {
        match neighbour {
            IpAddr::V4(neighbour) => self.ask_arp(neighbour, mac, cx),
            IpAddr::V6(neighbour) => self.ask_discovery(neighbour, mac, cx),
        }
    }

    /// A frame of our own with `bytes` behind its header.
    fn send_frame(&mut self, target: Mac, ether_type: u16, bytes: &[u8], cx: &mut Context<'_>) -> bool {
        let Some(mut pdu) = cx.memory.blocks.take() else {
            self.counters.starved += 1;
            return false;
        };
        pdu.push_head(bytes.len()).copy_from_slice(bytes);
        let header = ethernet::Header { target, source: self.config.mac, ether_type };
        header.write(pdu.push_head(HEADER_BYTES));
        self.due.push_back(Due::Frame(pdu));
        true
    }

    /// Packets that waited for a neighbour leave.
    fn release(&mut self, mac: Mac, queue: VecDeque<Pdu>) {
        self.due.extend(queue.into_iter().map(|pdu| Due::Packet { mac, pdu }));
    }
}

/// The MAC of an IPv6 group (RFC 2464 §7).
fn group_mac6(group: Ipv6Addr) -> Mac {
    let octets = group.octets();
    Mac([0x33, 0x33, octets[12], octets[13], octets[14], octets[15]])
}
