//! Assembles a board from its configuration.

use crate::board::Board;
use crate::config::{BoardConfig, PortAddress, PortConfig, RdmaConfig};
use crate::edge::Edge;
use crate::port::{AtmPort, PacketPort, Port};
use crate::shard::Shard;
use crate::stack::Stack;
use crate::wiring::ip;
use crate::wiring::rdma::RdmaWiring;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use kiban_base::{Copies, Instant, Memory, PagePool, PduPool, RngKey, SecureRng};
use kiban_rdma::wire::{efe, roce};
use kiban_tcpip::ip::{Prefix, Route};
use kiban_vi::Nic;

impl Board {
    /// Builds a board. All of its keys, and all random numbers that peers can see, come from a generator
    /// seeded with `key`.
    ///
    /// # Panics
    /// If the RDMA NIC speaks RoCEv2 or EFE over UDP, and the board may have too few UDP sockets for that; if
    /// it has EFE both over UDP and at a port.
    pub fn new(config: &BoardConfig, key: RngKey) -> Board {
        let sizes = &config.memory;
        let memory = Memory {
            transmit: PagePool::new(sizes.transmit_bytes / sizes.page_bytes, sizes.page_bytes),
            receive: PagePool::new(sizes.receive_bytes / sizes.page_bytes, sizes.page_bytes),
            pdus: PduPool::new(sizes.pdus),
        };
        let mut rng = SecureRng::new(key);
        // A segment fills all its pages except the last; this is the fraction of the memory that holds
        // payload.
        let mss = usize::from(config.tcp.mss);
        let page_payload = mss as f64 / (mss.div_ceil(sizes.page_bytes) * sizes.page_bytes) as f64;
        let mut ip_stack = ip::new_ip_stack(config, page_payload, &mut rng);
        if let Some(shard) = &config.shard {
            ip_stack.tcp.set_shard(shard.number, shard.steering);
            ip_stack.shard = Some(Box::new(Shard::new(shard)));
        }
        let segment_packets = (config.tcp.segment_bytes_max as usize).div_ceil(mss.max(1)).max(1);
        let mut ports = Vec::with_capacity(config.ports.len());
        let mut vi: Option<Box<Nic>> = None;
        let mut rdma = config.rdma.as_ref().map(|its| Box::new(RdmaWiring::new(its, rng.draw_key())));
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
            let host = passages.iter().find(|passage| passage.1 == index).map(|passage| passage.0);
            for (address, prefix) in addresses_of(port) {
                let mtu_bytes = mtu_of(port);
                let direct = Route { prefix, port: index, gateway: None, source: address, mtu_bytes };
                ip_stack.ip.add_route(direct);
                match host {
                    None => ip_stack.ip.add_address(index, address),
                    // The host owns this port's addresses, so packets for them go to the host port.
                    Some(port) => {
                        ip_stack.ip.add_route(Route { prefix: Prefix::new(address, 128), port, ..direct })
                    }
                }
            }
            ports.push(match port {
                PortConfig::Atm(atm) => {
                    let shard = config.shard.as_ref().map(|shard| (shard.number, shard.steering.shards()));
                    Port::Atm(Box::new(AtmPort::new(atm, &config.bridged(index), shard)))
                }
                PortConfig::Bridge(bridge) => Port::Packets(PacketPort::bridge(bridge)),
                PortConfig::Ip(ip) => Port::Packets(PacketPort::ip(ip, segment_packets)),
                PortConfig::Ethernet(ethernet) => {
                    let mut ethernet = ethernet.clone();
                    if let Some(shard) = &config.shard {
                        ethernet.link = ethernet.link.of_shard(shard.number);
                    }
                    Port::Packets(PacketPort::ethernet(&ethernet, segment_packets, &mut rng))
                }
                PortConfig::Vi(traits) => {
                    let nic = vi.get_or_insert_with(|| Box::new(Nic::new(config.vi.clone(), rng.draw_key())));
                    Port::Vi(nic.open_path(*traits).expect("a NIC has more paths than a board has ports"))
                }
                PortConfig::Host(host) => {
                    Port::Packets(PacketPort::host(host, config.ports.get(host.of).map_or(0, mtu_of)))
                }
                PortConfig::Efe(efe) => {
                    let make = || Box::new(RdmaWiring::new(&RdmaConfig::default(), rng.draw_key()));
                    rdma.get_or_insert_with(make).add_port(efe, rng.draw_key());
                    Port::Efe
                }
            });
        }
        let full_bytes = (page_payload * sizes.page_bytes as f64) as usize;
        let mut edge = Edge::new(config.datagrams_max, full_bytes);
        if let (Some(rdma), Some(its)) = (&mut rdma, &config.rdma) {
            let mut bind = |port: u16| {
                let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
                let socket = ip_stack.udp.bind_with(any, false).expect("these are the board's first sockets");
                edge.add_nic_socket(socket);
                socket
            };
            if let Some(roce) = &its.roce {
                rdma.add_roce(roce, bind(roce::PORT), rng.draw_key());
            }
            if let Some(efe) = &its.efe {
                rdma.add_efe(efe, bind(efe::UDP_PORT), rng.draw_key());
            }
        }
        let tx_queues = ports
            .iter()
            .scan(0, |next, port| Some(core::mem::replace(next, *next + port.tx_queues())))
            .collect();
        for more in &config.addresses {
            let PortAddress { port, address, prefix } = *more;
            let mtu_bytes = mtu_of(&config.ports[port]);
            ip_stack.ip.add_address(port, address);
            ip_stack.ip.add_route(Route { prefix, port, gateway: None, source: address, mtu_bytes });
        }
        config.routes.iter().for_each(|route| ip_stack.ip.add_route(*route));
        let stack = Stack {
            memory,
            rng,
            copies: Copies::default(),
            ip: ip_stack,
            edge,
            ports,
            tx_queues,
            passages,
            passing: Vec::new(),
            bridging: Vec::new(),
            rooms: Vec::new(),
            unsettled: true,
            datagram_waits: false,
            v6_only: config.v6_only,
            owners: 0,
            now: Instant::ZERO,
        };
        Board { stack, vi, rdma, announced: false }
    }
}

/// Returns the addresses that a port is configured with, and their prefixes.
fn addresses_of(port: &PortConfig) -> Vec<(IpAddr, Prefix)> {
    match port {
        PortConfig::Atm(atm) if atm.address.is_unspecified() => Vec::new(),
        PortConfig::Atm(atm) => alloc::vec![(atm.address, atm.prefix)],
        PortConfig::Ip(ip) => alloc::vec![(ip.address, ip.prefix)],
        // The link adds IPv6 addresses itself, after it has verified that they are unique (RFC 4862 §5.4).
        PortConfig::Ethernet(ethernet) => {
            ethernet.link.addresses.iter().copied().filter(|(address, _)| address.is_ipv4()).collect()
        }
        PortConfig::Vi(_) | PortConfig::Efe(_) | PortConfig::Host(_) | PortConfig::Bridge(_) => Vec::new(),
    }
}

/// Returns the maximum IP packet size of a port, in bytes.
fn mtu_of(port: &PortConfig) -> usize {
    match port {
        PortConfig::Atm(atm) => atm.mtu_bytes,
        PortConfig::Ip(ip) => ip.mtu_bytes,
        PortConfig::Ethernet(ethernet) => ethernet.link.mtu_bytes,
        // These ports do not carry packets of the board's own IP.
        PortConfig::Vi(_) | PortConfig::Efe(_) | PortConfig::Host(_) | PortConfig::Bridge(_) => 0,
    }
}
