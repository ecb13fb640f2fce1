//! IP for one board: its addresses and routes, sending and receiving.

use super::config::Config;
use super::counters::IpCounters;
use super::header::{MTU_MIN, header4, header6};
use super::icmp_error::IcmpErrorKind;
use super::identification::Identifications;
use super::packet::{Delivery, HeaderInfo, Hop, IcmpErrorRequest, Packet};
use super::path::{Path, Paths, plateau_below};
use super::reassembly::Reassembly;
use super::route::{Prefix, Route, Routes};
use crate::wire::ip::version;
use crate::wire::{discovery, igmp, ipv4, ipv6};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use kiban_base::{Context, Instant, Pdu, SecureRng};

/// One of our IPv6 addresses.
#[derive(Clone, Copy)]
pub(super) struct Own6 {
    pub(super) address: Ipv6Addr,
    pub(super) port: usize,
    pub(super) deprecated: bool,
}

/// IP for one board.
pub struct Ip {
    pub(super) config: Config,
    pub(super) own4: Vec<Ipv4Addr>,
    pub(super) own6: Vec<Own6>,
    /// Groups joined, by port, except all nodes and all hosts.
    pub(super) groups: Vec<(usize, IpAddr)>,
    /// Hop limits advertised by routers, by port; zero if none.
    pub(super) hop_limits: Vec<u8>,
    pub(super) routes: Routes,
    pub(super) paths: Paths,
    pub(super) reassembly: Reassembly,
    pub(super) identifications: Identifications,
    pub(super) error_requests: VecDeque<IcmpErrorRequest>,
    pub(super) looped: VecDeque<Delivery>,
    pub(super) counters: IpCounters,
    is_intercepting: bool,
}

impl Ip {
    /// Creates an IP layer without addresses or routes.
    pub fn new(config: Config, rng: &mut SecureRng) -> Ip {
        Ip {
            reassembly: Reassembly::new(config.reassembly),
            config,
            own4: Vec::new(),
            own6: Vec::new(),
            groups: Vec::new(),
            hop_limits: Vec::new(),
            routes: Routes::default(),
            paths: Paths::default(),
            identifications: Identifications::new(rng),
            error_requests: VecDeque::new(),
            looped: VecDeque::new(),
            counters: IpCounters::default(),
            is_intercepting: false,
        }
    }

    /// Adds an address of this host on a port.
    pub fn add_address(&mut self, port: usize, address: IpAddr) {
        if self.is_ours(address) {
            return;
        }
        match address {
            IpAddr::V4(address) => self.own4.push(address),
            IpAddr::V6(address) => self.own6.push(Own6 { address, port, deprecated: false }),
        }
    }

    /// Removes an address of this host.
    pub fn remove_address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.own4.retain(|own| *own != address),
            IpAddr::V6(address) => self.own6.retain(|own| own.address != address),
        }
    }

    /// Sets whether an address is deprecated and so not chosen for new connections (RFC 4862 §5.5.4).
    pub fn deprecate(&mut self, address: Ipv6Addr, deprecated: bool) {
        if let Some(own) = self.own6.iter_mut().find(|own| own.address == address) {
            own.deprecated = deprecated;
        }
    }

    /// Joins a group on a port, or leaves it.
    pub fn listen_to_group(&mut self, port: usize, group: IpAddr, listen: bool) {
        match self.groups.iter().position(|known| *known == (port, group)) {
            None if listen => self.groups.push((port, group)),
            Some(at) if !listen => {
                self.groups.swap_remove(at);
            }
            _ => {}
        }
    }

    /// Adds a route, replacing any existing one for the same prefix.
    pub fn add_route(&mut self, route: Route) {
        self.routes.add(route);
    }

    /// Adds a route, unless there is one for the same prefix.
    pub fn add_route_unless_known(&mut self, route: Route) {
        if !self.routes.has(route.prefix) {
            self.routes.add(route);
        }
    }

    /// Returns the nets that are directly connected to other ports than `port`.
    pub fn other_nets(&self, port: usize) -> impl Iterator<Item = Prefix> {
        self.routes.direct_elsewhere(port).map(|route| route.prefix)
    }

    /// Removes the routes of `port` for `prefix` through `gateway`.
    pub fn remove_route(&mut self, port: usize, prefix: Prefix, gateway: Option<IpAddr>) {
        self.routes.remove(|route| route.port == port && route.prefix == prefix && route.gateway == gateway);
    }

    /// Removes the route of a lease: one whose source address is the leased one.
    pub fn remove_leased_route(
        &mut self,
        port: usize,
        prefix: Prefix,
        gateway: Option<IpAddr>,
        source: IpAddr,
    ) {
        self.routes.remove(|route| {
            (route.port, route.prefix, route.gateway, route.source) == (port, prefix, gateway, source)
        });
    }

    /// Sets the IPv6 MTU of a port, bytes (RFC 4861 §4.6.4).
    pub fn set_mtu6(&mut self, port: usize, mtu_bytes: usize) {
        self.routes.set_mtu6(port, mtu_bytes);
    }

    /// Sets the hop limit of IPv6 packets sent through a port (RFC 4861 §6.3.4).
    pub fn set_hop_limit6(&mut self, port: usize, hop_limit: u8) {
        if self.hop_limits.len() <= port {
            self.hop_limits.resize(port + 1, 0);
        }
        self.hop_limits[port] = hop_limit;
    }

    /// Returns whether `address` belongs to this host.
    #[inline]
    pub fn is_ours(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.own4.contains(&address),
            IpAddr::V6(address) => self.is_ours6(address),
        }
    }

    #[inline]
    pub(super) fn is_ours6(&self, address: Ipv6Addr) -> bool {
        self.own6.iter().any(|own| own.address == address)
    }

    /// Returns whether packets to a group that arrive at a port are taken (RFC 1112 §7.2).
    pub(super) fn listens_to(&self, port: usize, group: IpAddr) -> bool {
        group == IpAddr::V4(igmp::ALL_HOSTS)
            || group == IpAddr::V6(discovery::ALL_NODES)
            || self.groups.contains(&(port, group))
    }

    /// Sets whether packets to any unicast address are taken, as a transparent proxy does.
    pub fn intercept(&mut self, is_on: bool) {
        self.is_intercepting = is_on;
    }

    /// Returns whether packets to an address of another host are taken ([`Ip::intercept`]).
    pub(super) fn intercepts(&self, address: IpAddr) -> bool {
        // An IPv4-mapped address must not appear on the wire: this host's sockets would take it for IPv4's.
        let is_near = match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local() || address.to_ipv4_mapped().is_some(),
        };
        let is_nowhere = address.is_unspecified() || address.is_loopback() || is_near;
        self.is_intercepting && !is_nowhere && !self.is_for_many(address)
    }

    /// Returns whether packets from an address may be ours.
    pub fn may_be_ours(&self, address: IpAddr) -> bool {
        self.is_ours(address) || self.intercepts(address)
    }

    /// Returns the addresses of this host.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let six = self.own6.iter().map(|own| IpAddr::V6(own.address));
        self.own4.iter().copied().map(IpAddr::V4).chain(six)
    }

    /// Returns whether an IPv4 address is a broadcast address: the limited one, or the broadcast address of a
    /// directly connected net.
    pub(super) fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        address.is_broadcast() || self.routes.is_broadcast(address)
    }

    /// Returns whether an address is multicast or broadcast.
    pub fn is_for_many(&self, address: IpAddr) -> bool {
        address.is_multicast() || matches!(address, IpAddr::V4(address) if self.is_broadcast(address))
    }

    /// Returns the source address for packets to `target`, if there is a route.
    pub fn source_for(&self, target: IpAddr) -> Option<IpAddr> {
        let route = self.routes.find(target)?;
        match target {
            IpAddr::V4(_) if self.is_ours(route.source) => Some(route.source),
            // The route's source address is not one of this host's: use another address of the port, or else
            // any of ours.
            IpAddr::V4(_) => {
                let own = self.routes.direct(route.port).map(|direct| direct.source);
                let own = own.filter(|source| source.is_ipv4()).find(|source| self.is_ours(*source));
                own.or_else(|| self.own4.first().copied().map(IpAddr::V4))
            }
            IpAddr::V6(_) if self.is_ours(route.source) => Some(route.source),
            IpAddr::V6(target) => self.choose_source(target, route.port).map(IpAddr::V6),
        }
    }

    /// Chooses a source address by RFC 6724 §5: rules 2 (same scope as the target), 3 (not deprecated) and 8
    /// (longest common prefix).
    fn choose_source(&self, target: Ipv6Addr, port: usize) -> Option<Ipv6Addr> {
        let is_local = |address: Ipv6Addr| {
            address.is_unicast_link_local() || (address.is_multicast() && address.octets()[1] & 0x0f <= 2)
        };
        let rank = |own: &&Own6| {
            let common = (own.address.to_bits() ^ target.to_bits()).leading_zeros();
            (is_local(own.address) == is_local(target), !own.deprecated, common)
        };
        self.own6.iter().filter(|own| own.port == port).max_by_key(rank).map(|own| own.address)
    }

    /// Returns the port that has an address of ours.
    pub fn port_of(&self, address: IpAddr) -> Option<usize> {
        let route = || self.routes.all().find(|route| route.gateway.is_none() && route.source == address);
        let own6 = self.own6.iter().find(|own| IpAddr::V6(own.address) == address);
        self.is_ours(address).then(|| own6.map(|own| own.port).or_else(|| Some(route()?.port))).flatten()
    }

    /// Returns the port for a membership that names no interface: that of the route to the group, or else the
    /// first one with an address of its family.
    pub fn port_for_group(&self, group: IpAddr) -> Option<usize> {
        let is_near = |route: &&Route| route.gateway.is_none() && route.source.is_ipv4() == group.is_ipv4();
        let routed = || self.routes.find(group).map(|route| route.port);
        let own6 = || self.own6.first().map(|own| own.port).filter(|_| group.is_ipv6());
        routed().or_else(own6).or_else(|| self.routes.all().find(is_near).map(|route| route.port))
    }

    /// Returns the port and the next hop of the route to `target`, if there is one.
    pub fn route_to(&self, target: IpAddr) -> Option<(usize, IpAddr)> {
        self.routes.find(target).map(|route| route.hop(target))
    }

    /// Returns the MTU of the port towards `target`, bytes.
    pub fn mtu_for(&self, target: IpAddr) -> Option<usize> {
        self.routes.find(target).map(|route| route.mtu_bytes)
    }

    /// Returns the port and the next hop for packets from `source` to `target`.
    pub fn first_hop(&self, source: IpAddr, target: IpAddr) -> Option<(usize, IpAddr)> {
        self.routes.find_from(target, source).map(|route| route.hop(target))
    }

    /// Returns the known path MTU to `target`, bytes; zero if there is no route.
    pub fn path_mtu(&self, target: IpAddr, now: Instant) -> u16 {
        let Some(port) = self.mtu_for(target) else { return 0 };
        let port = u16::try_from(port).unwrap_or(u16::MAX);
        self.paths.get(target, now, self.config.path_mtu_age).map_or(port, |path| path.mtu.min(port))
    }

    /// Processes a report that one of our packets, of `packet_bytes`, was too long for a path whose MTU is
    /// `mtu` (0 if it is not stated). Returns the path MTU to use, if the report is plausible.
    pub fn on_too_long(
        &mut self,
        target: IpAddr,
        packet_bytes: usize,
        mtu: u32,
        now: Instant,
    ) -> Option<u16> {
        let known = self.path_mtu(target, now);
        let (mtu, floor) = match target {
            IpAddr::V4(_) if mtu == 0 => (plateau_below(packet_bytes), self.config.path_mtu_floor),
            IpAddr::V4(_) => (mtu, self.config.path_mtu_floor),
            // RFC 8200 §5 and RFC 8021: a value below 1280 neither lowers the MTU nor causes fragment
            // headers.
            IpAddr::V6(_) if mtu < MTU_MIN.into() => (u32::MAX, 0),
            IpAddr::V6(_) => (mtu, MTU_MIN),
        };
        if known == 0 || packet_bytes as u64 <= u64::from(mtu) {
            self.counters.path_mtu_implausible += 1;
            return None;
        }
        let (locked, mtu) = (mtu < floor.into(), mtu.max(floor.into()).min(known.into()) as u16);
        if mtu < known || locked {
            self.counters.path_mtu_lowered += u64::from(mtu < known);
            self.paths.learn(target, Path { mtu, locked, since: now }, self.config.paths_max);
        }
        Some(mtu)
    }

    /// Returns the counters.
    pub fn counters(&self) -> &IpCounters {
        &self.counters
    }

    /// Returns the settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Adds the header, finds the route and passes each packet to `hop`. Without a route nothing is sent.
    #[inline]
    pub fn send<F: FnMut(Hop, &mut Context<'_>)>(
        &mut self,
        packet: Packet,
        cx: &mut Context<'_>,
        hop: &mut F,
    ) {
        if self.is_ours(packet.target) {
            return self.loop_back(packet);
        }
        match (packet.source, packet.target) {
            (IpAddr::V4(source), IpAddr::V4(target)) => self.send4(packet, source, target, cx, hop),
            (IpAddr::V6(source), IpAddr::V6(target)) => self.send6(packet, source, target, cx, hop),
            _ => self.counters.no_route += 1,
        }
    }

    /// A packet from this host to itself needs no header, link or checksum.
    fn loop_back(&mut self, packet: Packet) {
        let Packet { source, target, protocol, traffic_class, hop_limit, mut pdu, .. } = packet;
        self.counters.loopback += 1;
        pdu.set_verified();
        let hop_limit = if hop_limit == 0 { self.config.hop_limit } else { hop_limit };
        let brief = HeaderInfo { traffic_class, hop_limit, ..HeaderInfo::default() };
        self.looped.push_back(Delivery { source, target, protocol, pdu, brief });
    }

    /// Removes and returns the next packet that this host sent to itself.
    #[inline]
    pub fn looped(&mut self) -> Option<Delivery> {
        self.looped.pop_front()
    }

    /// Checks a packet that arrived at a port, and returns it without its header if it is for an upper layer.
    #[inline]
    pub fn arrive(&mut self, mut pdu: Pdu, port: usize, cx: &mut Context<'_>) -> Option<Delivery> {
        self.counters.packets_in += 1;
        let Some(moved) = pdu.pull_up(ipv4::HEADER_BYTES) else {
            self.counters.malformed += 1;
            return None;
        };
        cx.copies.header_bytes += moved as u64;
        match version(pdu.head()) {
            Some(6) => self.arrive6(pdu, port, false, cx),
            // The header decoder rejects any other version.
            _ => self.arrive4(pdu, port, cx),
        }
    }

    /// Reports a packet whose protocol no upper layer accepts.
    pub fn on_unknown_protocol(&mut self, delivery: Delivery) {
        self.counters.unknown_protocol += 1;
        let code = crate::wire::icmp::UNREACHABLE_PROTOCOL;
        self.request_error(IcmpErrorKind::Unreachable { code }, delivery);
    }

    /// Reports a delivered packet to its sender. Its header is rebuilt, without options.
    pub fn request_error(&mut self, kind: IcmpErrorKind, delivery: Delivery) {
        let Delivery { source, target, protocol, mut pdu, brief } = delivery;
        if brief.to_group {
            return;
        }
        // If the link verified the checksum, the payload may not have been summed here. The checksum of the
        // ICMP error needs those sums.
        if pdu.is_verified() {
            pdu.recompute_sums();
        }
        match (source, target) {
            (IpAddr::V4(source), IpAddr::V4(target)) => {
                header4(protocol, pdu.len(), source, target, brief).write(pdu.push_head(ipv4::HEADER_BYTES));
            }
            (IpAddr::V6(source), IpAddr::V6(target)) => {
                header6(protocol, pdu.len(), source, target, brief).write(pdu.push_head(ipv6::HEADER_BYTES));
            }
            _ => return,
        }
        self.request_error_about(kind, source, target, pdu);
    }

    /// Queues a report about `pdu`, which holds a packet from `remote`, starting at its IP header.
    pub(super) fn request_error_about(
        &mut self,
        kind: IcmpErrorKind,
        remote: IpAddr,
        local: IpAddr,
        pdu: Pdu,
    ) {
        if remote.is_unspecified() || remote.is_multicast() {
            return;
        }
        self.counters.icmp_errors_requested += 1;
        self.error_requests.push_back(IcmpErrorRequest { kind, local, remote, pdu });
    }

    /// Removes and returns the next packet for which ICMP must send an error.
    #[inline]
    pub fn poll_error_request(&mut self) -> Option<IcmpErrorRequest> {
        self.error_requests.pop_front()
    }

    /// Drops datagrams that were not complete in time.
    pub fn settle(&mut self, cx: &mut Context<'_>) {
        while let Some(late) = self.reassembly.expired(cx, &mut self.counters) {
            // RFC 1122 §3.3.2, RFC 8200 §4.5: the timeout is reported only if fragment zero has arrived.
            if let Some(pdu) = late.pdu {
                let kind = IcmpErrorKind::TimeExceeded { code: 1 };
                self.request_error_about(kind, late.source, late.target, pdu);
            }
        }
    }

    /// Returns when [`Ip::settle`] is next due. The time may be early, but is never late.
    #[inline]
    pub fn deadline(&self) -> Instant {
        self.reassembly.deadline()
    }

    /// Returns the number of incomplete datagrams.
    pub fn incomplete(&self) -> usize {
        self.reassembly.len()
    }
}
