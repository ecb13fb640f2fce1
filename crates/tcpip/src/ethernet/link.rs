//! One Ethernet link: the state machine that ties together the neighbour cache, ARP and IPv6 neighbour
//! discovery.

use super::addresses::Autoconf;
use super::announcement::Announcement;
use super::cache::{Advertised, Cache, CacheEvent, Reach, Resolved};
use super::config::{LinkConfig, Role};
use super::counters::EthernetCounters;
use super::listener::Listener;
use crate::dhcp;
use crate::guest::Guest;
use crate::ip::Prefix;
use crate::wire::ip::version;
use crate::wire::{ipv4, ipv6};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use kiban_base::ethernet::{self, HEADER_BYTES, Mac};
use kiban_base::numbers::ether_type;
use kiban_base::{Context, Instant, Pdu, SecureRng};

/// An output of a link.
#[derive(Debug)]
pub enum Output {
    /// A frame of the link itself (ARP, neighbour discovery).
    Frame(Pdu),
    /// A packet whose next hop is now resolved.
    Packet {
        /// The MAC address of the next hop.
        mac: Mac,
        /// The packet, without an Ethernet header.
        pdu: Pdu,
    },
    /// A packet whose next hop does not answer.
    Undelivered(Pdu),
    /// A next hop did not answer, although its MAC address was still unknown. Routes through it have already
    /// been changed.
    NextHopUnreachable(IpAddr),
    /// An IPv6 address became usable or ceased to be.
    Address(Ipv6Addr, bool),
    /// An IPv6 address became deprecated or ceased to be.
    Deprecated(Ipv6Addr, bool),
    /// A group was joined, or left.
    Group(IpAddr, bool),
    /// A route to a prefix, through a router or direct, was added or removed.
    Route(Prefix, Option<IpAddr>, bool),
    /// An IPv4 address was leased by DHCP, or its lease ended.
    Lease(dhcp::Lease, bool),
    /// The IPv6 MTU, bytes.
    Mtu(usize),
    /// The IPv6 hop limit.
    HopLimit(u8),
    /// The first shard of the board is asked for a neighbour ([`Link::ask`]).
    Ask(IpAddr),
    /// The other shards of the board are informed about a neighbour ([`Link::inform`]).
    Inform(IpAddr, Advertised),
}

/// One Ethernet link.
pub struct Link {
    pub(super) config: LinkConfig,
    pub(super) cache: Cache,
    pub(super) own4: Vec<(Ipv4Addr, Prefix)>,
    pub(super) announcements: Vec<Announcement>,
    pub(super) autoconf: Autoconf,
    pub(super) mld: Listener<Ipv6Addr>,
    pub(super) igmp: Listener<Ipv4Addr>,
    pub(super) dhcp: Option<Box<dhcp::Client>>,
    pub(super) guest: Option<Box<Guest>>,
    pub(super) due: VecDeque<Output>,
    pub(super) counters: EthernetCounters,
}

impl Link {
    /// Creates a link. Nothing is sent before the first [`Link::settle`].
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
            mld: Listener::new(),
            igmp: Listener::new(),
            dhcp: config.dhcp.then(|| {
                let config = dhcp::Config::new(config.mac, config.mtu_bytes);
                Box::new(dhcp::Client::new(config, rng))
            }),
            guest: config.guest.clone().map(|guest| Box::new(Guest::new(guest))),
            due: VecDeque::new(),
            counters: EthernetCounters::default(),
            config,
        };
        link.begin_addresses();
        link.begin_guest();
        link
    }

    /// Returns the counters.
    pub fn counters(&self) -> &EthernetCounters {
        &self.counters
    }

    /// Returns the reachability of a neighbour, if it is in the cache.
    pub fn reach(&self, neighbour: IpAddr) -> Option<Reach> {
        self.cache.reach(neighbour)
    }

    /// Returns the number of neighbours in the cache.
    pub fn neighbours(&self) -> usize {
        self.cache.len()
    }

    /// Adds an Ethernet header to a packet.
    #[inline]
    pub fn push_header(&self, target: Mac, pdu: &mut Pdu) {
        let is_ipv4 = version(pdu.head()) == Some(4);
        let ether_type = if is_ipv4 { ether_type::IPV4 } else { ether_type::IPV6 };
        ethernet::Header { target, source: self.config.mac, ether_type }.write(pdu.push_head(HEADER_BYTES));
    }

    /// Returns the MAC address of the next hop together with the packet. If the address is unknown, the
    /// packet waits, and the next [`Link::settle`] sends a solicitation.
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
                    self.solicit(next, None, cx);
                }
                None
            }
        }
    }

    /// Handles the question of another shard about a neighbour: informs the shards about what is known, or
    /// solicits.
    pub fn ask(&mut self, neighbour: IpAddr, cx: &mut Context<'_>) {
        let Link { cache, config, counters, .. } = self;
        match cache.look_up(neighbour, cx.now, &config.neighbours, counters) {
            Ok(mac) => {
                let is_reachable = cache.reach(neighbour) == Some(Reach::Reachable);
                let word = Advertised {
                    mac: Some(mac),
                    solicited: is_reachable,
                    overrides: true,
                    router: None,
                    learn: false,
                };
                self.due.push_back(Output::Inform(neighbour, word));
                if !is_reachable {
                    // The other shard asks at most once per second while it needs the answer.
                    self.solicit(neighbour, Some(mac), cx);
                }
            }
            Err(true) => self.solicit(neighbour, None, cx),
            Err(false) => {}
        }
    }

    /// Handles information of the first shard about a neighbour.
    pub fn inform(&mut self, neighbour: IpAddr, word: Advertised, cx: &mut Context<'_>) {
        self.learn(neighbour, word, cx);
    }

    /// Updates the neighbour cache and sends the packets that waited. Returns whether the neighbour was a
    /// router and no longer is.
    pub(super) fn learn(&mut self, neighbour: IpAddr, word: Advertised, cx: &mut Context<'_>) -> bool {
        let Link { cache, config, counters, .. } = self;
        let before = cache.state(neighbour);
        let learned = cache.update(neighbour, word, cx.now, &config.neighbours, cx.rng, counters);
        let after = cache.state(neighbour);
        if config.role == Role::First && after.is_some() && after != before {
            // The others update their entries, but create none. Later they ask, so they need not be informed
            // about a neighbour that is still reachable.
            self.due.push_back(Output::Inform(neighbour, Advertised { learn: false, ..word }));
        }
        if let Some(mac) = word.mac {
            self.release(mac, learned.queue);
        }
        learned.no_router
    }

    /// Gives negative advice about `next`, because packets through it seem to be lost.
    pub fn negative_advice(&mut self, next: IpAddr) {
        self.cache.negative_advice(next);
    }

    /// Returns the MAC address of a multicast or broadcast address (RFC 1112 §6.4, RFC 2464 §7).
    #[inline]
    fn group_mac(&self, next: IpAddr) -> Option<Mac> {
        match next {
            IpAddr::V4(next) if next.is_multicast() => Some(group_mac4(next)),
            IpAddr::V4(next) => {
                let is_last = |(_, prefix): &(Ipv4Addr, Prefix)| prefix.is_last(next);
                (next.is_broadcast() || self.own4.iter().any(is_last)).then_some(Mac::BROADCAST)
            }
            IpAddr::V6(next) if next.is_multicast() => Some(group_mac6(next)),
            IpAddr::V6(_) => None,
        }
    }

    /// Processes a frame that arrived, and returns the packet in it if it is for IP.
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
            ether_type::IPV4 if self.take_dhcp(&mut pdu, header.source, cx) => None,
            ether_type::IPV4 | ether_type::IPV6
                if self.guest.is_some() && self.take_request(&mut pdu, header.source, cx) =>
            {
                None
            }
            ether_type::IPV4 | ether_type::IPV6 if to_group && !self.is_for_group(&mut pdu, cx) => {
                self.counters.unicast_in_multicast += 1;
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

    /// Returns whether the packet's destination is a group. (RFC 1122 §3.3.6: a packet for a single host is
    /// dropped if it arrives in a frame to a group.)
    fn is_for_group(&self, pdu: &mut Pdu, cx: &mut Context<'_>) -> bool {
        let Some(moved) = pdu.pull_up(ipv4::HEADER_BYTES) else { return false };
        cx.copies.header_bytes += moved as u64;
        if version(pdu.head()) == Some(6) {
            let Some(moved) = pdu.pull_up(ipv6::HEADER_BYTES) else { return false };
            cx.copies.header_bytes += moved as u64;
            return ipv6::Header::read_quoted(pdu.head())
                .is_ok_and(|(header, _)| header.target.is_multicast());
        }
        let target = ipv4::target(pdu.head().first_chunk().expect("20 bytes are there"));
        self.group_mac(target.into()).is_some()
    }

    /// Fires due timers and passes all outputs to `out`.
    pub fn settle(&mut self, cx: &mut Context<'_>, out: &mut dyn FnMut(Output, &mut Context<'_>)) {
        for passed in self.cache.expire(cx.now, &self.config.neighbours) {
            match passed {
                CacheEvent::Ask(neighbour, mac) => self.solicit(neighbour, mac, cx),
                CacheEvent::Gone { neighbour, was_router, was_known, queue } => {
                    self.counters.neighbours_failed += 1;
                    self.due.extend(queue.into_iter().map(Output::Undelivered));
                    // RFC 4861 §6.3.6: a router whose MAC address was never resolved counts as unreachable.
                    if (was_router || !was_known)
                        && let IpAddr::V6(router) = neighbour
                    {
                        self.put_router_last(router);
                    }
                    if !was_known {
                        self.due.push_back(Output::NextHopUnreachable(neighbour));
                    }
                }
            }
        }
        self.settle_dhcp(cx);
        self.settle_announcements(cx);
        // The report of a group precedes the first duplicate address detection probe to it.
        self.settle_mld(cx);
        self.settle_igmp(cx);
        self.settle_autoconf(cx);
        self.settle_guest(cx);
        while let Some(due) = self.due.pop_front() {
            out(due, cx);
        }
    }

    /// Returns when [`Link::settle`] is next due. The time may be early, but is never late.
    pub fn deadline(&self) -> Instant {
        if !self.due.is_empty() {
            return Instant::ZERO;
        }
        let announcements = self.announcements.iter().map(|announcement| announcement.at).min();
        let ipv6 = self.autoconf.deadline().min(self.mld.deadline());
        let ipv4 =
            announcements.unwrap_or(Instant::NEVER).min(self.dhcp_deadline()).min(self.igmp.deadline());
        self.cache.deadline().min(ipv4).min(ipv6).min(self.guest_deadline())
    }

    /// Sends a solicitation or ARP request by broadcast or multicast, or by unicast if a MAC address is
    /// given.
    fn solicit(&mut self, neighbour: IpAddr, mac: Option<Mac>, cx: &mut Context<'_>) {
        if self.config.role == Role::Other {
            return self.due.push_back(Output::Ask(neighbour));
        }
        match neighbour {
            IpAddr::V4(neighbour) => self.send_arp_request(neighbour, mac, cx),
            IpAddr::V6(neighbour) => self.send_solicitation(neighbour, mac, cx),
        }
    }

    /// Sends a frame that the link layer itself originates, with `bytes` after the header.
    pub(super) fn send_frame(
        &mut self,
        target: Mac,
        ether_type: u16,
        bytes: &[u8],
        cx: &mut Context<'_>,
    ) -> bool {
        let Some(mut pdu) = cx.memory.pdus.take() else {
            self.counters.no_memory += 1;
            return false;
        };
        pdu.push_head(bytes.len()).copy_from_slice(bytes);
        let header = ethernet::Header { target, source: self.config.mac, ether_type };
        header.write(pdu.push_head(HEADER_BYTES));
        self.due.push_back(Output::Frame(pdu));
        true
    }

    /// Returns a PDU with `bytes` in its body, or `None` if there is no memory.
    pub(super) fn pdu_of(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> Option<Pdu> {
        let pdu = cx.memory.pdus.take().and_then(|mut pdu| {
            let slice = cx.memory.transmit.take()?.append(bytes)?;
            pdu.push_body(slice).ok().map(|()| pdu)
        });
        self.counters.no_memory += u64::from(pdu.is_none());
        pdu
    }

    /// Sends packets that waited for a neighbour.
    pub(super) fn release(&mut self, mac: Mac, queue: VecDeque<Pdu>) {
        self.due.extend(queue.into_iter().map(|pdu| Output::Packet { mac, pdu }));
    }
}

/// Returns the MAC address of an IPv4 group (RFC 1112 §6.4).
pub(super) fn group_mac4(group: Ipv4Addr) -> Mac {
    let [_, b, c, d] = group.octets();
    Mac([0x01, 0x00, 0x5e, b & 0x7f, c, d])
}

/// Returns the MAC address of an IPv6 group (RFC 2464 §7).
pub(super) fn group_mac6(group: Ipv6Addr) -> Mac {
    let octets = group.octets();
    Mac([0x33, 0x33, octets[12], octets[13], octets[14], octets[15]])
}
