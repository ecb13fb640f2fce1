//! IP: packets between hosts, both families (RFC 791, RFC 1122 §3, RFC 8200).
//!
//! Goal      put a header in front and say where the packet goes next; check a header and say whose the packet is.
//! Down      source, target and protocol make the header; the route names the port and the next hop. A datagram that is
//!           longer than the way is cut into fragments; TCP's segments are not (`path_mtu_discovery`).
//! Up        version, lengths, checksum, options and extension headers are checked, padding of the link is cut off,
//!           fragments are put together; what is not for this host is dropped: a board is a host, not a router.
//! Complaint what the sender of a packet is to hear about goes out as a [`Complaint`], the packet with it; ICMP makes a
//!           message of it, and the wiring carries it there.
//! Files     `v4` and `v6` read and write; `fragment` cuts; `reassembly` joins; `path` remembers narrow ways; `route`.
//! Limits    routes and addresses are short lists; reassembly and narrow ways have bounds in [`Config`]; a chain of
//!           extension headers ends with the head's room and after eight headers.
//! Left out  forwarding, multicast beyond what neighbour discovery needs, flow labels, zones of link-local addresses (a
//!           link-local target is reached through the port of the source, or the first that has one).

mod fragment;
mod identification;
mod path;
mod reassembly;
mod route;
mod trouble;
mod v4;
mod v6;

pub use reassembly::ReassemblyConfig;
pub use route::{Prefix, Route, Routes};
pub use trouble::TroubleKind;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use identification::Identifications;
use kiban_ground::{Context, Instant, Pdu, SecureRng};
use kiban_wire::{discovery, ipv4, ipv6};
use path::Paths;
use reassembly::Reassembly;

kiban_ground::counters! {
    /// What happened in IP.
    pub struct IpCounters {
        /// Packets that arrived.
        packets_in,
        /// Packets sent.
        packets_out,
        /// Packets to an address of this host: they go up again without leaving (RFC 1122 §3.3.1.5 has them as any other).
        looped,
        /// Packets with a header that breaks a rule.
        malformed,
        /// Packets whose header checksum does not match.
        checksum_wrong,
        /// Packets shorter than their length field.
        truncated,
        /// Packets for somebody else, dropped.
        not_ours,
        /// Packets from an address that cannot be a source.
        bad_source,
        /// Packets for a protocol that is not here.
        unknown_protocol,
        /// Packets for which there is no route.
        unreachable,
        /// Packets longer than the port takes.
        too_long,
        /// IPv4 packets with options that break a rule.
        options_malformed,
        /// IPv4 packets with a source route, IPv6 packets with a routing header that asks to be sent on: dropped.
        source_routed,
        /// IPv6 packets with an option that is not known and asks to be discarded.
        options_refused,
        /// IPv6 packets with extension headers out of order, too many, or too long.
        headers_refused,
        /// IPv6 packets in which nothing stands behind the headers (RFC 8200 §4.7).
        nothing_inside,
        /// Fragments that arrived.
        fragments_in,
        /// Fragments of no length, or of a length that no fragment has.
        fragments_malformed,
        /// Fragments that would end beyond the longest packet.
        fragments_beyond,
        /// Fragments too short for the header that a filter would look at (RFC 1858, RFC 3128, RFC 7112).
        fragments_tiny,
        /// Fragments that were there already.
        fragments_duplicate,
        /// Fragments that overlap others or contradict their end: their datagram is given up (RFC 5722).
        fragments_overlapping,
        /// Fragments of datagrams that were given up.
        fragments_late,
        /// Fragments beyond the number that a datagram may have: their datagram is given up.
        fragments_excess,
        /// IPv6 packets that are their only fragment (RFC 6946).
        fragments_atomic,
        /// Datagrams put together.
        reassembled,
        /// Datagrams that were not complete in time.
        reassembly_timeouts,
        /// Datagrams given up because newer ones came when the bound was reached.
        reassembly_evicted,
        /// Datagrams that found no memory, on the way in or out.
        starved,
        /// Datagrams cut into fragments.
        fragmented,
        /// Fragments sent.
        fragments_out,
        /// Times that a way was found to be narrower than it was thought.
        path_mtu_lowered,
        /// Reports of a narrow way that cannot be true.
        path_mtu_implausible,
        /// Packets that became complaints, for ICMP to send.
        complaints,
    }
}

/// The settings of IP.
#[derive(Clone, Debug)]
pub struct Config {
    /// Packets live for so many routers (RFC 1700's recommendation, and Linux's).
    pub hop_limit: u8,
    /// TCP's segments are never cut on the way: IPv4 says so with DF (RFC 1191 §3).
    pub path_mtu_discovery: bool,
    /// No IPv4 way is believed to be narrower, bytes. (RFC 791 says 68; Linux has 552, since a small number is how a
    /// stranger slows others down.) On a way that is, DF is left out. IPv6 has 1280 (RFC 8201 §4).
    pub path_mtu_floor: u16,
    /// After so long a way may be wide again (RFC 1191 §6.3, RFC 8201 §4: 10 minutes).
    pub path_mtu_age: Duration,
    /// Narrow ways that are remembered at most.
    pub paths_max: usize,
    /// Bounds of reassembly.
    pub reassembly: ReassemblyConfig,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            hop_limit: 64,
            path_mtu_discovery: true,
            path_mtu_floor: 552,
            path_mtu_age: Duration::from_secs(600),
            paths_max: 256,
            reassembly: ReassemblyConfig::default(),
        }
    }
}

/// A packet on its way down: the transport header stands at the front of the PDU's head.
#[derive(Debug)]
pub struct Packet {
    /// The address it comes from.
    pub source: IpAddr,
    /// The address it goes to.
    pub target: IpAddr,
    /// What stands above (see [`kiban_wire::numbers::protocol`]).
    pub protocol: u8,
    /// DSCP and ECN, as they stand in the header (RFC 2474 §3).
    pub traffic_class: u8,
    /// Transport header and payload.
    pub pdu: Pdu,
}

/// What else a header said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Brief {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Routers left to pass.
    pub hop_limit: u8,
    /// IPv4's name for the packet among fragments.
    pub identification: u16,
    /// It came in fragments, or with a fragment header.
    pub in_fragments: bool,
    /// It was sent to a group or to everybody: no error answers it (RFC 1122 §3.2.2).
    pub to_group: bool,
}

/// A packet on its way up: the transport header is what follows.
#[derive(Debug)]
pub struct Delivery {
    /// The address it comes from.
    pub source: IpAddr,
    /// The address it was sent to.
    pub target: IpAddr,
    /// What stands above (see [`kiban_wire::numbers::protocol`]).
    pub protocol: u8,
    /// Transport header and payload.
    pub pdu: Pdu,
    /// What else the header said.
    pub brief: Brief,
}

/// A packet of which its sender is to hear something.
#[derive(Debug)]
pub struct Complaint {
    /// What is wrong with it.
    pub kind: TroubleKind,
    /// Our address, to which it was sent.
    pub local: IpAddr,
    /// Its sender.
    pub remote: IpAddr,
    /// The packet from its IP header on.
    pub pdu: Pdu,
}

/// Where a packet goes next, with its IP header in front.
#[derive(Debug)]
pub struct Hop {
    /// The port.
    pub port: usize,
    /// The neighbour on that port that is to have it.
    pub next: IpAddr,
    /// The packet.
    pub pdu: Pdu,
}

/// One of our IPv6 addresses.
#[derive(Clone, Copy)]
struct Own6 {
    address: Ipv6Addr,
    port: usize,
    deprecated: bool,
}

/// IP for one board.
pub struct Ip {
    config: Config,
    own4: Vec<Ipv4Addr>,
    own6: Vec<Own6>,
    /// IPv6 groups that ports listen to, all nodes aside.
    groups: Vec<(usize, Ipv6Addr)>,
    /// Hop limits that routers asked for, by port; zero: none did.
    hop_limits: Vec<u8>,
    routes: Routes,
    paths: Paths,
    reassembly: Reassembly,
    identifications: Identifications,
    complaints: VecDeque<Complaint>,
    looped: VecDeque<Delivery>,
    counters: IpCounters,
}

impl Ip {
    /// IP without addresses or routes.
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
            complaints: VecDeque::new(),
            looped: VecDeque::new(),
            counters: IpCounters::default(),
        }
    }

    /// This host is also known as `address`, on a port.
    pub fn add_address(&mut self, port: usize, address: IpAddr) {
        if self.is_ours(address) {
            return;
        }
        match address {
            IpAddr::V4(address) => self.own4.push(address),
            IpAddr::V6(address) => self.own6.push(Own6 { address, port, deprecated: false }),
        }
    }

    /// This host is no longer known as `address`.
    pub fn remove_address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.own4.retain(|own| *own != address),
            IpAddr::V6(address) => self.own6.retain(|own| own.address != address),
        }
    }

    /// An address is not to be chosen for what is new, or is again (RFC 4862 §5.5.4).
    pub fn deprecate(&mut self, address: Ipv6Addr, deprecated: bool) {
        if let Some(own) = self.own6.iter_mut().find(|own| own.address == address) {
            own.deprecated = deprecated;
        }
    }

    /// A port listens to a group, or does not any more.
    pub fn listen_to_group(&mut self, port: usize, group: Ipv6Addr, listen: bool) {
        match self.groups.iter().position(|known| *known == (port, group)) {
            None if listen => self.groups.push((port, group)),
            Some(at) if !listen => {
                self.groups.swap_remove(at);
            }
            _ => {}
        }
    }

    /// Packets for a prefix go through a port.
    pub fn add_route(&mut self, route: Route) {
        self.routes.add(route);
    }

    /// Forgets the routes of `port` for `prefix` through `gateway`.
    pub fn remove_route(&mut self, port: usize, prefix: Prefix, gateway: Option<IpAddr>) {
        self.routes.remove(|route| route.port == port && route.prefix == prefix && route.gateway == gateway);
    }

    /// IPv6 packets through a port are at most so long (RFC 4861 §4.6.4).
    pub fn set_mtu6(&mut self, port: usize, mtu_bytes: usize) {
        self.routes.set_mtu6(port, mtu_bytes);
    }

    /// IPv6 packets through a port pass so many routers (RFC 4861 §6.3.4).
    pub fn set_hop_limit6(&mut self, port: usize, hop_limit: u8) {
        if self.hop_limits.len() <= port {
            self.hop_limits.resize(port + 1, 0);
        }
        self.hop_limits[port] = hop_limit;
    }

    /// Whether this host is known as `address`.
    #[inline]
    pub fn is_ours(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.own4.contains(&address),
            IpAddr::V6(address) => self.is_ours6(address),
        }
    }

    #[inline]
    fn is_ours6(&self, address: Ipv6Addr) -> bool {
        self.own6.iter().any(|own| own.address == address)
    }

    fn listens_to(&self, group: Ipv6Addr) -> bool {
        group == discovery::ALL_NODES || self.groups.iter().any(|(_, known)| *known == group)
    }

    /// The addresses that this host is known as.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let six = self.own6.iter().map(|own| IpAddr::V6(own.address));
        self.own4.iter().copied().map(IpAddr::V4).chain(six)
    }

    /// Whether an IPv4 address is everybody's: the limited broadcast, or that of a net that is reached directly.
    fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        address.is_broadcast() || self.routes.is_broadcast(address)
    }

    /// Whether an address stands for many: a group, or everybody.
    pub fn is_for_many(&self, address: IpAddr) -> bool {
        address.is_multicast() || matches!(address, IpAddr::V4(address) if self.is_broadcast(address))
    }

    /// The address from which this host speaks to `target`, if there is a way.
    pub fn source_for(&self, target: IpAddr) -> Option<IpAddr> {
        let route = self.routes.find(target)?;
        match target {
            IpAddr::V4(_) if self.is_ours(route.source) => Some(route.source),
            // That one is somebody's behind this host: another of the port's, or any.
            IpAddr::V4(_) => {
                let own = self.routes.direct(route.port).map(|direct| direct.source);
                let own = own.filter(|source| source.is_ipv4()).find(|source| self.is_ours(*source));
                own.or_else(|| self.own4.first().copied().map(IpAddr::V4))
            }
            IpAddr::V6(_) if self.is_ours(route.source) => Some(route.source),
            IpAddr::V6(target) => self.choose_source(target, route.port).map(IpAddr::V6),
        }
    }

    /// RFC 6724 §5, rules 2 (the target's scope), 3 (not deprecated) and 8 (the longest common prefix).
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

    /// The port and the neighbour on the way to `target`, if there is one.
    pub fn way_to(&self, target: IpAddr) -> Option<(usize, IpAddr)> {
        self.routes.find(target).map(|route| route.hop(target))
    }

    /// The longest packet that the port towards `target` takes, bytes.
    pub fn mtu_for(&self, target: IpAddr) -> Option<usize> {
        self.routes.find(target).map(|route| route.mtu_bytes)
    }

    /// The port and the neighbour by which packets from `source` to `target` leave.
    pub fn first_hop(&self, source: IpAddr, target: IpAddr) -> Option<(usize, IpAddr)> {
        self.routes.find_from(target, source).map(|route| route.hop(target))
    }

    /// The longest packet that the way to `target` takes as far as is known, bytes; zero: there is no way.
    pub fn path_mtu(&self, target: IpAddr, now: Instant) -> u16 {
        let Some(port) = self.mtu_for(target) else { return 0 };
        let port = u16::try_from(port).unwrap_or(u16::MAX);
        self.paths.get(target, now, self.config.path_mtu_age).map_or(port, |path| path.mtu.min(port))
    }

    /// A router says that a packet of ours of `packet_bytes` was too long for a way that takes `mtu` (0: it did not
    /// say). What is to be believed, if it can be true.
    pub fn on_too_long(
        &mut self,
        target: IpAddr,
        packet_bytes: usize,
        mtu: u32,
        now: Instant,
    ) -> Option<u16> {
        let known = self.path_mtu(target, now);
        let (mtu, floor) = match target {
            IpAddr::V4(_) if mtu == 0 => (path::plateau_below(packet_bytes), self.config.path_mtu_floor),
            IpAddr::V4(_) => (mtu, self.config.path_mtu_floor),
            // RFC 8200 §5 and RFC 8021: less than 1280 is neither obeyed nor answered with fragment headers.
            IpAddr::V6(_) if mtu < v6::MTU_MIN.into() => (u32::MAX, 0),
            IpAddr::V6(_) => (mtu, v6::MTU_MIN),
        };
        if known == 0 || packet_bytes as u64 <= u64::from(mtu) {
            self.counters.path_mtu_implausible += 1;
            return None;
        }
        let (locked, mtu) = (mtu < floor.into(), mtu.max(floor.into()).min(known.into()) as u16);
        if mtu < known || locked {
            self.counters.path_mtu_lowered += u64::from(mtu < known);
            self.paths.learn(target, path::Path { mtu, locked, since: now }, self.config.paths_max);
        }
        Some(mtu)
    }

    /// What has been counted.
    pub fn counters(&self) -> &IpCounters {
        &self.counters
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Puts the header in front and finds the way; what leaves goes to `hop`. Nothing does when there is no way.
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
            _ => self.counters.unreachable += 1,
        }
    }

    /// What this host sends to itself needs neither header nor link, and no checksum.
    fn loop_back(&mut self, packet: Packet) {
        let Packet { source, target, protocol, traffic_class, mut pdu } = packet;
        self.counters.looped += 1;
        pdu.set_verified();
        let brief = Brief { traffic_class, hop_limit: self.config.hop_limit, ..Brief::default() };
        self.looped.push_back(Delivery { source, target, protocol, pdu, brief });
    }

    /// The next packet that this host has sent to itself.
    #[inline]
    pub fn looped(&mut self) -> Option<Delivery> {
        self.looped.pop_front()
    }

    /// Checks a packet that arrived; it goes up without its header, or nowhere.
    #[inline]
    pub fn arrive(&mut self, mut pdu: Pdu, cx: &mut Context<'_>) -> Option<Delivery> {
        self.counters.packets_in += 1;
        let Some(moved) = pdu.pull_up(ipv4::HEADER_BYTES) else {
            self.counters.malformed += 1;
            return None;
        };
        cx.copies.header_bytes += moved as u64;
        match pdu.head()[0] >> 4 {
            6 => self.arrive6(pdu, false, cx),
            // Any other version is what the header's reader refuses.
            _ => self.arrive4(pdu, cx),
        }
    }

    /// A packet came up for a protocol that nobody above wanted.
    pub fn on_unknown_protocol(&mut self, delivery: Delivery) {
        self.counters.unknown_protocol += 1;
        let code = kiban_wire::icmp::UNREACHABLE_PROTOCOL;
        self.complain(TroubleKind::Unreachable { code }, delivery);
    }

    /// What came up is to be reported to its sender: its header is put in front again, without options.
    pub fn complain(&mut self, kind: TroubleKind, delivery: Delivery) {
        let Delivery { source, target, protocol, mut pdu, brief } = delivery;
        if brief.to_group {
            return;
        }
        // A link that verified the checksum need not have summed; the quotation's is formed from sums.
        if pdu.is_verified() {
            pdu.sum_again();
        }
        match (source, target) {
            (IpAddr::V4(source), IpAddr::V4(target)) => {
                v4::header(protocol, pdu.len(), source, target, brief)
                    .write(pdu.push_head(ipv4::HEADER_BYTES));
            }
            (IpAddr::V6(source), IpAddr::V6(target)) => {
                v6::header(protocol, pdu.len(), source, target, brief)
                    .write(pdu.push_head(ipv6::HEADER_BYTES));
            }
            _ => return,
        }
        self.complain_of(kind, source, target, pdu);
    }

    /// `pdu` is a packet of `remote` from its IP header on.
    fn complain_of(&mut self, kind: TroubleKind, remote: IpAddr, local: IpAddr, pdu: Pdu) {
        if remote.is_unspecified() || remote.is_multicast() {
            return;
        }
        self.counters.complaints += 1;
        self.complaints.push_back(Complaint { kind, local, remote, pdu });
    }

    /// The next complaint: what ICMP is to tell a sender.
    #[inline]
    pub fn complaint(&mut self) -> Option<Complaint> {
        self.complaints.pop_front()
    }

    /// Gives up datagrams whose time is over.
    pub fn settle(&mut self, cx: &mut Context<'_>) {
        while let Some(late) = self.reassembly.expired(cx, &mut self.counters) {
            // RFC 1122 §3.3.2, RFC 8200 §4.5: told only when fragment zero had come.
            if let Some(pdu) = late.pdu {
                let kind = TroubleKind::TimeExceeded { code: 1 };
                self.complain_of(kind, late.source, late.target, pdu);
            }
        }
    }

    /// The next moment at which something happens by itself: may be early, never late.
    #[inline]
    pub fn deadline(&self) -> Instant {
        self.reassembly.deadline()
    }

    /// Datagrams that wait for fragments.
    pub fn incomplete(&self) -> usize {
        self.reassembly.len()
    }
}

#[cfg(test)]
mod tests;
