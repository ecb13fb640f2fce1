//! The board: one value, driven from outside.

use crate::bridge;
use crate::config::{BoardConfig, PortAddress, PortConfig};
use crate::edge::{Completion, Edge, NEXT_TURN};
use crate::port::{AtmPort, Claim, LinkNews, News, PacketPort, Port};
use crate::wiring::ip::{self, IpTower};
use crate::wiring::rdma::{RdmaConfig, RdmaTower};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use kiban_ground::{
    Blocks, Context, Copies, Instant, Memory, Pdu, Pool, RngKey, SecureRng, SharedBytes, SharedRoom,
};
use kiban_stack::atm::TimedCell;
use kiban_stack::ip::{Hop, Prefix, Route};
use kiban_stack::tcp::SessionId;
use kiban_stack::vi::Nic;

/// What a driver hands to a board.
#[derive(Debug)]
pub enum Input<'a> {
    /// Cells have arrived at an ATM port, in the order of their moments.
    Cells {
        /// Which port.
        port: usize,
        /// The train.
        cells: &'a [TimedCell],
    },
    /// IP packets have arrived at an IP port, or frames at an Ethernet port; the board takes them all.
    Packets {
        /// Which port.
        port: usize,
        /// The burst.
        packets: &'a mut VecDeque<Pdu>,
    },
    /// A packet of the VI NIC has arrived. It may stand in memory that others write to.
    Message {
        /// Which port.
        port: usize,
        /// The packet.
        bytes: SharedBytes<'a>,
    },
    /// A port that was full has room again.
    Room,
    /// The deadline that the board named is reached.
    Timeout,
}

/// What a board hands to its driver.
#[derive(Debug)]
pub enum Output {
    /// A packet leaves through an IP port, or a frame through an Ethernet port.
    Transmit {
        /// Which port.
        port: usize,
        /// The packet.
        pdu: Pdu,
    },
    /// Something has happened that the host should look at ([`Board::host`]).
    Completions,
    /// There is nothing to do before the deadline, unless something arrives.
    Idle {
        /// May be early, never late.
        deadline: Instant,
    },
}

/// A communications board.
pub struct Board {
    pub(crate) memory: Memory,
    pub(crate) rng: SecureRng,
    pub(crate) copies: Copies,
    pub(crate) ip: IpTower,
    pub(crate) edge: Edge,
    pub(crate) unsettled: bool,
    pub(crate) v6_only: bool,
    /// Owners that were given to clients.
    pub(crate) owners: u32,
    pub(crate) vi: Option<Box<Nic>>,
    pub(crate) rdma: Option<Box<RdmaTower>>,
    ports: Vec<Port>,
    /// The first lane of each port: lanes are numbered through all ports.
    lanes: Vec<usize>,
    /// Ports between which packets pass: the host's and the one whose address it has.
    passages: Vec<(usize, usize)>,
    /// Packets that pass in this burst: through which port, to whom.
    passing: Vec<(usize, Option<IpAddr>, Pdu)>,
    /// Frames for bridges in this burst: at which port, from which member.
    bridging: Vec<(usize, usize, Pdu)>,
    rooms: Vec<usize>,
    pub(crate) now: Instant,
    /// Whether the host has been told of the completions that are there.
    pub(crate) told: bool,
}

impl Board {
    /// Builds a board. Whatever peers see of its random numbers, and all its keys, come from a generator under `key`.
    pub fn new(config: &BoardConfig, key: RngKey) -> Board {
        let sizes = &config.memory;
        let memory = Memory {
            transmit: Pool::new(sizes.transmit_bytes / sizes.page_bytes, sizes.page_bytes),
            receive: Pool::new(sizes.receive_bytes / sizes.page_bytes, sizes.page_bytes),
            blocks: Blocks::new(sizes.pdus),
        };
        let mut rng = SecureRng::new(key);
        // A segment fills whole pages but for the last: that much of the memory is payload.
        let mss = usize::from(config.tcp.mss);
        let page_payload = mss as f64 / (mss.div_ceil(sizes.page_bytes) * sizes.page_bytes) as f64;
        let mut tower = ip::tower(config, page_payload, &mut rng);
        let segment_packets = (config.tcp.segment_bytes_max as usize).div_ceil(mss.max(1)).max(1);
        let mut ports = Vec::with_capacity(config.ports.len());
        let mut vi: Option<Box<Nic>> = None;
        let mut rdma = config.rdma.as_ref().map(|its| Box::new(RdmaTower::new(its, rng.draw_key())));
        let passages: Vec<_> = config
            .ports
            .iter()
            .enumerate()
            .filter_map(|(index, port)| match port {
                PortConfig::Host(host) => Some((index, host.of)),
                _ => None,
            })
            .collect();
        for (index, port) in config.ports.iter().enumerate() {
            let own = match port {
                PortConfig::Atm(atm) if atm.address.is_unspecified() => Vec::new(),
                PortConfig::Atm(atm) => alloc::vec![(atm.address, atm.prefix)],
                PortConfig::Ip(ip) => alloc::vec![(ip.address, ip.prefix)],
                // Those of IPv6 are the link's to give, once it has found that nobody else has them.
                PortConfig::Ethernet(ethernet) => ethernet.link.addresses.clone(),
                PortConfig::Vi(_) | PortConfig::Efe(_) | PortConfig::Host(_) | PortConfig::Bridge(_) => {
                    Vec::new()
                }
            };
            let host = passages.iter().find(|passage| passage.1 == index).map(|passage| passage.0);
            let is_links = |address: &IpAddr| matches!(port, PortConfig::Ethernet(_)) && address.is_ipv6();
            for (address, prefix) in own.into_iter().filter(|(address, _)| !is_links(address)) {
                let mtu_bytes = mtu_of(port);
                let direct = Route { prefix, port: index, gateway: None, source: address, mtu_bytes };
                tower.ip.add_route(direct);
                match host {
                    None => tower.ip.add_address(index, address),
                    // The host's: what is for it goes there.
                    Some(port) => {
                        tower.ip.add_route(Route { prefix: Prefix::new(address, 128), port, ..direct })
                    }
                }
            }
            ports.push(match port {
                PortConfig::Atm(atm) => Port::Atm(Box::new(AtmPort::new(atm, &config.bridged(index)))),
                PortConfig::Bridge(bridge) => Port::Packets(PacketPort::bridge(bridge)),
                PortConfig::Ip(ip) => Port::Packets(PacketPort::ip(ip, segment_packets)),
                PortConfig::Ethernet(ethernet) => {
                    Port::Packets(PacketPort::ethernet(ethernet, segment_packets, &mut rng))
                }
                PortConfig::Vi(traits) => {
                    let nic = vi.get_or_insert_with(|| Box::new(Nic::new(config.vi.clone(), rng.draw_key())));
                    Port::Vi(nic.open_path(*traits).expect("a NIC has more paths than a board has ports"))
                }
                PortConfig::Host(host) => {
                    Port::Packets(PacketPort::host(host, config.ports.get(host.of).map_or(0, mtu_of)))
                }
                PortConfig::Efe(efe) => {
                    let make = || Box::new(RdmaTower::new(&RdmaConfig::default(), rng.draw_key()));
                    rdma.get_or_insert_with(make).add_port(efe, rng.draw_key());
                    Port::Efe
                }
            });
        }
        let lanes =
            ports.iter().scan(0, |next, port| Some(core::mem::replace(next, *next + port.lanes()))).collect();
        for more in &config.addresses {
            let PortAddress { port, address, prefix } = *more;
            let mtu_bytes = mtu_of(&config.ports[port]);
            tower.ip.add_address(port, address);
            tower.ip.add_route(Route { prefix, port, gateway: None, source: address, mtu_bytes });
        }
        config.routes.iter().for_each(|route| tower.ip.add_route(*route));
        Board {
            memory,
            rng,
            copies: Copies::default(),
            ip: tower,
            edge: Edge::new(config.datagrams_max, (page_payload * sizes.page_bytes as f64) as usize),
            unsettled: true,
            v6_only: config.v6_only,
            owners: 0,
            vi,
            rdma,
            ports,
            lanes,
            passages,
            passing: Vec::new(),
            bridging: Vec::new(),
            rooms: Vec::new(),
            now: Instant::ZERO,
            told: false,
        }
    }

    /// Takes what a driver has for the board. Follow it with [`Board::poll`] until idle.
    pub fn handle(&mut self, input: Input<'_>, now: Instant) {
        self.now = self.now.max(now);
        self.unsettled = true;
        let Board {
            memory,
            rng,
            copies,
            ip,
            edge,
            vi,
            rdma,
            ports,
            lanes,
            passages,
            passing,
            bridging,
            now,
            ..
        } = self;
        let cx = &mut Context { now: *now, memory, rng, copies };
        let other_side = |port: usize| {
            let (host, of) = *passages.iter().find(|(host, of)| port == *host || port == *of)?;
            Some(if port == host { of } else { host })
        };
        match input {
            Input::Cells { port, cells } => {
                let passage = other_side(port);
                if let Some(Port::Atm(atm)) = ports.get_mut(port) {
                    atm.on_cells(cells, cx);
                    for news in atm.news() {
                        match news {
                            News::Frame { circuit, pdu } => bridging.push((port, circuit as usize, pdu)),
                            News::Packet { circuit, pdu } => {
                                let Some(pdu) = ip.pass(pdu, passage, passing) else { continue };
                                ip.on_packet(pdu, lanes[port] + circuit as usize, edge, cx);
                            }
                            News::Loopback { circuit, tag, round_trip } => {
                                edge.on_cell_loopback(port, circuit, tag, round_trip);
                            }
                        }
                    }
                }
            }
            Input::Packets { port, packets } => {
                let passage = other_side(port);
                let Some(Port::Packets(place)) = ports.get_mut(port) else { return };
                if place.bridge.is_some() {
                    for pdu in packets.drain(..) {
                        bridge::forward(ports, port, 0, pdu, cx);
                    }
                    return;
                }
                let PacketPort { believe_sums, merges, merge, link, .. } = place;
                for mut pdu in packets.drain(..) {
                    if !*believe_sums {
                        pdu.sum_again();
                    }
                    if let Some(link) = link {
                        match link.arrive(pdu, cx) {
                            Some(packet) => pdu = packet,
                            None => continue,
                        }
                    }
                    let Some(pdu) = ip.pass(pdu, passage, passing) else { continue };
                    let mut up = |pdu| ip.on_packet(pdu, lanes[port], edge, cx);
                    if *merges {
                        merge.on_packet(pdu, &mut up);
                    } else {
                        up(pdu);
                    }
                }
                merge.flush(&mut |pdu| ip.on_packet(pdu, lanes[port], edge, cx));
                while let Some(delivery) = ip.discoveries.pop_front() {
                    if let Some(link) = link {
                        link.on_discovery(delivery, cx);
                    }
                }
            }
            Input::Message { port, bytes } => match (ports.get(port), vi, rdma) {
                (Some(Port::Vi(path)), Some(nic), _) => nic.arrive(*path, bytes, *now),
                (Some(Port::Efe), _, Some(tower)) => tower.on_frame(bytes, *now),
                _ => {}
            },
            Input::Room | Input::Timeout => {}
        }
        for (port, circuit, pdu) in bridging.drain(..) {
            let member = |place: &mut Port| place.bridge()?.member(port, circuit as u32);
            let at = ports.iter_mut().enumerate().find_map(|(at, place)| Some((at, member(place)?)));
            if let Some((at, member)) = at {
                bridge::forward(ports, at, member, pdu, cx);
            }
        }
        for (port, next, pdu) in passing.drain(..) {
            ports[port].pass(next, pdu, cx);
        }
    }

    /// What the board has for its driver: completions first, so that the host's answer is settled with the burst;
    /// then what leaves; then the deadline.
    pub fn poll(&mut self) -> Output {
        loop {
            if let Some(nic) = &mut self.vi
                && nic.take_news()
            {
                self.edge.completions.push_back(Completion::Vi);
                self.told = false;
            }
            if self.rdma.is_some() && (self.unsettled || !self.edge.completions.is_empty()) {
                self.pump_rdma();
            }
            if !self.told && !self.edge.completions.is_empty() {
                self.told = true;
                return Output::Completions;
            }
            if self.unsettled {
                self.settle();
                continue;
            }
            for (port, place) in self.ports.iter_mut().enumerate() {
                if let Port::Packets(packets) = place
                    && !packets.held
                    && let Some(pdu) = packets.pop()
                {
                    // Room in the port lets the next segments through.
                    self.unsettled |= packets.is_empty() && self.ip.tcp.has_work(self.lanes[port]);
                    return Output::Transmit { port, pdu };
                }
            }
            return Output::Idle { deadline: self.deadline() };
        }
    }

    pub(crate) fn settle(&mut self) {
        self.unsettled = false;
        let Board { memory, rng, copies, ip, edge, ports, lanes, rooms, now, unsettled, .. } = self;
        let cx = &mut Context { now: *now, memory, rng, copies };
        // Frames that have left by now make room, and their memory comes home.
        ports.iter_mut().for_each(|port| port.advance(cx));
        edge.on_memory(&ip.tcp, cx.memory);
        ip.advance(cx);
        ip.answer(cx, |Hop { port, next, pdu }, cx| ports[port].send(next, pdu, Claim::Half, cx));
        rooms.clear();
        rooms.extend(ports.iter().flat_map(|port| (0..port.lanes()).map(|lane| port.room(lane))));
        ip.settle(rooms, edge, cx, |Hop { port, next, pdu }, cx| {
            ports[port].send(next, pdu, Claim::Granted, cx);
        });
        // What the board sends to itself comes up as if it had come from where it would have gone.
        while let Some(delivery) = ip.ip.looped() {
            let way = ip.ip.way_to(delivery.source);
            let lane = way.map_or(0, |(port, next)| lanes[port] + ports[port].lane_to(next));
            ip.deliver(delivery, lane, edge, cx);
            *unsettled = true;
        }
        while let Some((port, next)) = ip.doubts.pop_front() {
            ports[port].doubt(next);
        }
        for (index, port) in ports.iter_mut().enumerate() {
            let mut up = |news, cx: &mut Context<'_>| {
                // What it changes may let something through, or end something.
                *unsettled = true;
                on_news(ip, edge, index, news, cx);
            };
            match port {
                Port::Atm(atm) => atm.settle(cx, &mut up),
                Port::Vi(_) | Port::Efe => {}
                Port::Packets(packets) => packets.settle(cx, &mut up),
            }
        }
        if let Some(nic) = &mut self.vi {
            nic.settle(*now);
        }
        if let Some(tower) = &mut self.rdma {
            tower.settle(*now);
        }
        self.told = false;
    }

    /// The next moment at which the board does something by itself.
    fn deadline(&self) -> Instant {
        let ports = self.ports.iter().map(Port::deadline).min().unwrap_or(Instant::NEVER);
        let vi = self.vi.as_ref().map_or(Instant::NEVER, |nic| nic.deadline());
        let rdma = self.rdma.as_ref().map_or(Instant::NEVER, |tower| tower.deadline());
        let line = match self.edge.page_line.is_due(&self.ip.tcp) {
            true => self.now + NEXT_TURN,
            false => Instant::NEVER,
        };
        self.ip.tcp.deadline().min(self.ip.ip.deadline()).min(ports).min(vi).min(rdma).min(line)
    }

    /// Fills `room` with the next packet that the VI NIC has for a port: its length. Links ask when they can take one;
    /// follow it with [`Board::poll`], since what has left may be done.
    ///
    /// # Panics
    /// When the room is shorter than the port's packets.
    pub fn fetch(&mut self, port: usize, room: &mut SharedRoom<'_>) -> Option<usize> {
        match (self.ports.get(port), &mut self.vi, &mut self.rdma) {
            (Some(Port::Vi(path)), Some(nic), _) => nic.fetch(*path, room, self.now),
            (Some(Port::Efe), _, Some(tower)) => {
                let length = tower.fetch(room, self.now);
                // What has left makes room for more.
                self.unsettled |= length.is_some();
                length
            }
            _ => None,
        }
    }

    /// The link of an IP or Ethernet port takes nothing now, or takes packets again (then hand over [`Input::Room`]). What waits
    /// for a link that is held stays in the port's queue, and the queue holds back those who send.
    pub fn hold(&mut self, port: usize, held: bool) {
        if let Some(Port::Packets(packets)) = self.ports.get_mut(port) {
            packets.held = held;
        }
    }

    /// Commits the slots of an ATM port that start before `until`, and moves the cells that have left to `out`.
    pub fn cells(&mut self, port: usize, until: Instant, out: &mut Vec<TimedCell>) {
        if let Some(Port::Atm(atm)) = self.ports.get_mut(port) {
            atm.cells(until, &mut self.copies, out);
        }
    }

    /// When the next frame of an ATM port will have left if nothing more comes; may be early, never late.
    pub fn next_cell_end(&self, port: usize) -> Instant {
        match self.ports.get(port) {
            Some(Port::Atm(atm)) => atm.next_end(),
            _ => Instant::NEVER,
        }
    }

    /// When an ATM port for which segments wait, or for whose memory writers wait, will have room again
    /// ([`Input::Room`]); never, when none wait.
    pub fn next_room(&self, port: usize) -> Instant {
        let Some(place @ Port::Atm(atm)) = self.ports.get(port) else { return Instant::NEVER };
        let mut lanes = self.lanes[port]..self.lanes[port] + place.lanes();
        let waits = lanes.any(|lane| self.ip.tcp.has_work(lane)) || !self.edge.page_line.is_empty();
        if waits { atm.segmentation.next_end() } else { Instant::NEVER }
    }

    /// Bytes copied so far, by cause.
    pub fn copies(&self) -> &Copies {
        &self.copies
    }

    /// Shows every counter: its family, its name, its value.
    pub fn counters(&self, see: &mut dyn FnMut(&'static str, &'static str, u64)) {
        self.ip.ip.counters().each(&mut |name, value| see("ip", name, value));
        self.ip.tcp.counters().each(&mut |name, value| see("tcp", name, value));
        self.ip.udp.counters().each(&mut |name, value| see("udp", name, value));
        self.ip.icmp.counters().each(&mut |name, value| see("icmp", name, value));
        if let Some(nic) = &self.vi {
            nic.counters().each(&mut |name, value| see("vi", name, value));
        }
        if let Some(tower) = &self.rdma {
            tower.counters(see);
        }
        self.copies.each(&mut |name, value| see("copies", name, value));
        see("host", "page_waits", self.edge.page_line.waits);
        see("host", "page_waiters_met", self.edge.page_line.waiters_met);
        see("host", "datagrams_dropped", self.edge.datagrams_dropped);
        see("host", "replies_dropped", self.edge.replies_dropped);
        for port in &self.ports {
            port.counters(see);
        }
    }

    /// One counter, summed over ports. Zero for a name that does not exist.
    pub fn counter(&self, family: &str, name: &str) -> u64 {
        let mut total = 0;
        self.counters(&mut |its_family, its_name, value| {
            if its_family == family && its_name == name {
                total += value;
            }
        });
        total
    }

    /// The addresses that the board is known as, those that made themselves among them.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.ip.ip.addresses()
    }

    /// What TCP has counted.
    pub fn tcp_counters(&self) -> &kiban_stack::tcp::TcpCounters {
        self.ip.tcp.counters()
    }

    /// Writes that found no page and stood in line for one, and how long the line was then, themselves included, all
    /// together.
    pub fn page_waits(&self) -> (u64, u64) {
        (self.edge.page_line.waits, self.edge.page_line.waiters_met)
    }

    /// The packet memory, for those who check that it comes home or who make it scarce on purpose.
    pub fn memory_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }

    /// Sessions of TCP, of any state.
    pub fn sessions(&self) -> usize {
        self.ip.tcp.sessions()
    }

    /// The path of the VI NIC that leads through a port.
    pub fn vi_path(&self, port: usize) -> Option<u32> {
        match self.ports.get(port) {
            Some(Port::Vi(path)) => Some(*path),
            _ => None,
        }
    }

    pub(crate) fn port(&self, port: usize) -> Option<&Port> {
        self.ports.get(port)
    }

    /// The lane on which packets for `target` leave, as far as it is known.
    pub(crate) fn lane_to(&self, target: IpAddr) -> usize {
        let way = self.ip.ip.way_to(target);
        way.map_or(0, |(port, next)| self.lanes[port] + self.ports[port].lane_to(next))
    }

    pub(crate) fn with_context<T>(&mut self, work: impl FnOnce(&mut IpTower, &mut Context<'_>) -> T) -> T {
        self.unsettled = true;
        let Board { memory, rng, copies, ip, now, .. } = self;
        work(ip, &mut Context { now: *now, memory, rng, copies })
    }

    pub(crate) fn consume(&mut self, session: SessionId, bytes: u32) {
        self.with_context(|ip, cx| ip.tcp.consume(session, bytes, cx, &mut ip.from_tcp));
    }

    pub(crate) fn abort(&mut self, session: SessionId) {
        // A session that has gone needs no end.
        self.with_context(|ip, cx| ip.tcp.abort(session, cx, &mut ip.from_tcp).ok());
    }

    /// The tag of a loopback, if none is under way; nothing when there is no such circuit.
    pub(crate) fn cell_loopback(&mut self, port: usize, circuit: u32, pti: u8) -> Option<Option<u32>> {
        match self.ports.get_mut(port) {
            Some(Port::Atm(atm)) if atm.has(circuit) => Some(atm.ping(circuit, pti, &mut self.rng)),
            _ => None,
        }
    }
}

/// A link has news for IP.
fn on_news(tower: &mut IpTower, edge: &mut Edge, port: usize, news: LinkNews, cx: &mut Context<'_>) {
    let ip = &mut tower.ip;
    match news {
        LinkNews::Undelivered(pdu) => tower.on_undelivered(&pdu, edge, cx),
        LinkNews::Nobody(next) => tower.on_nobody(port, next, edge, cx),
        LinkNews::Address(address, true) => ip.add_address(port, address.into()),
        LinkNews::Address(address, false) => ip.remove_address(address.into()),
        LinkNews::Deprecated(address, deprecated) => ip.deprecate(address, deprecated),
        LinkNews::Group(group, listen) => ip.listen_to_group(port, group, listen),
        LinkNews::Route { prefix, gateway, exists: false, .. } => ip.remove_route(port, prefix, gateway),
        LinkNews::Route { prefix, gateway, mtu_bytes, .. } => {
            let source = core::net::Ipv6Addr::UNSPECIFIED.into();
            ip.add_route(Route { prefix, port, gateway, source, mtu_bytes });
        }
        LinkNews::Mtu(mtu_bytes) => ip.set_mtu6(port, mtu_bytes),
        LinkNews::HopLimit(hop_limit) => ip.set_hop_limit6(port, hop_limit),
    }
}

/// The longest IP packet of a port, bytes.
fn mtu_of(port: &PortConfig) -> usize {
    match port {
        PortConfig::Atm(atm) => atm.mtu_bytes,
        PortConfig::Ip(ip) => ip.mtu_bytes,
        PortConfig::Ethernet(ethernet) => ethernet.link.mtu_bytes,
        // Not for the board's own IP.
        PortConfig::Vi(_) | PortConfig::Efe(_) | PortConfig::Host(_) | PortConfig::Bridge(_) => 0,
    }
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Board({} ports, {} sessions, {:?})", self.ports.len(), self.sessions(), self.now)
    }
}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Board>();
};
