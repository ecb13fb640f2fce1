//! The board's configuration from a plan.

use crate::config::{Carries, Kind, Plan, PortPlan, RoutePlan};
use kiban_atm::wire::atm::Interface;
use kiban_board::{
    AtmPortConfig, BridgePortConfig, EthernetPortConfig, HostPortConfig, IpPortConfig, PortAddress,
    PortConfig, RdmaConfig, RoceConfig,
};
use kiban_link::{AnyLink, SEGMENT_BYTES};
use kiban_rdma::hif::SGES_MAX;
use kiban_rdma::iwarp::mpa;
use kiban_rdma::{efe, nic, rnic};
use kiban_tcpip::ethernet::LinkConfig;
use kiban_tcpip::ip::{Prefix, Route};
use std::io;
use std::net::IpAddr;

/// The code of RoCEv2's acknowledgement timeout: 0.5 s (IBTA volume 1 §9.7.6.1.3).
const ACK_TIMEOUT: u8 = 17;

/// Checks that enough memory is available: a board allocates its packet memory when it starts, and a failed
/// allocation would abort the process.
pub(super) fn has_memory(wanted: usize) -> Result<(), String> {
    let host = rustix::system::sysinfo();
    let there = (host.totalram as u64).saturating_mul(host.mem_unit.into());
    if wanted as u64 <= there {
        return Ok(());
    }
    let mib = |bytes: u64| bytes >> 20;
    let (wanted, there) = (mib(wanted as u64), mib(there));
    Err(format!("memory: transmit and receive need {wanted} MiB, but this host has {there} MiB: reduce them"))
}

pub(super) fn route_of(plan: &Plan, route: &RoutePlan) -> Route {
    Route {
        prefix: route.prefix,
        port: route.port,
        gateway: Some(route.gateway),
        source: route.source,
        mtu_bytes: plan.ports[route.port].mtu_bytes,
    }
}

/// Returns the settings of the RDMA NIC for programs on this host.
fn rdma_config(qps_max: usize) -> RdmaConfig {
    let core = rnic::Config { qps_max, sges_max: SGES_MAX, ..rnic::Config::default() };
    // Peers that do not support RFC 7306 are not sent its messages.
    let mpa = mpa::Config { extensions: true, ..mpa::Config::default() };
    // What several queue pairs have queued for an OC-3c line may wait longer than the usual 67 ms.
    let roce = nic::RoceConfig { ack_timeout: ACK_TIMEOUT, ..nic::RoceConfig::default() };
    let roce = Some(RoceConfig { nic: roce, ..RoceConfig::default() });
    RdmaConfig { nic: core, mpa, roce, efe: Some(efe::Config::udp()) }
}

/// Returns the board configuration of a plan, given the links that were opened.
pub(super) fn plan_board(plan: &Plan, opened: &[io::Result<Vec<AnyLink>>]) -> kiban_board::BoardConfig {
    let mut board = plan.board.clone();
    board.rdma = plan.rdma_service().map(|service| rdma_config(service.sessions_max));
    // Ports of bridges do not carry IP.
    let own = plan.ports.iter().filter(|port| port.bridge.is_none()).count();
    let mtu = plan.ports[..own].iter().map(|port| port.mtu_bytes).min().unwrap_or(1500);
    if !plan.mss_is_configured {
        board.tcp.mss = mtu.saturating_sub(40) as u16;
    }
    // TCP may produce larger segments only if every port can cut them into cells or packets.
    let may_be_whole = plan.ports[..own].iter().all(|port| port.carries != Carries::Cells);
    let is_whole = |opened: &io::Result<Vec<AnyLink>>| {
        opened.as_ref().is_ok_and(|queues| queues.iter().all(|link| link.traits().whole_segments))
    };
    let opened = &opened[..plan.ports.len()];
    let any_whole = may_be_whole && opened[..own].iter().any(is_whole);
    board.tcp.segment_bytes_max = if any_whole { SEGMENT_BYTES } else { board.tcp.mss.into() };
    board.tcp.segmentation_offload = any_whole && !opened[..own].iter().all(is_whole);
    for (number, (port, opened)) in plan.ports.iter().zip(opened).enumerate() {
        let whole = is_whole(opened);
        // Packets pass unchanged to the kernel's side.
        let (cuts, merges) = (!whole, !whole && port.host.is_none());
        let PortPlan { mtu_bytes, packets_max, .. } = *port;
        if let Some(circuits) = &port.bridge {
            let circuits = circuits.clone();
            board.ports.push(PortConfig::Bridge(BridgePortConfig { circuits, packets_max }));
            continue;
        }
        board.ports.push(match port.carries {
            Carries::Packets => {
                let (address, prefix) = port.addresses[0];
                for (address, prefix) in &port.addresses[1..] {
                    board.addresses.push(PortAddress { port: number, address: *address, prefix: *prefix });
                }
                let believe_sums = true;
                PortConfig::Ip(IpPortConfig {
                    address,
                    prefix,
                    mtu_bytes,
                    packets_max,
                    cuts,
                    merges,
                    believe_sums,
                })
            }
            Carries::Frames => {
                let (addresses, dhcp) = (port.addresses.clone(), port.dhcp);
                let guest = port.guest.clone();
                let mut link = LinkConfig { addresses, dhcp, guest, mtu_bytes, ..LinkConfig::new(port.mac) };
                // The board is the router of its guest, whose advertisements must not change it.
                link.autoconf.accept_routers = link.guest.is_none();
                if plan.services.iter().any(|service| matches!(service.kind, Kind::Net(_))) {
                    // The guest's addresses are assigned together with the board's, so none is duplicate.
                    link.autoconf.probes = 0;
                }
                let believe_sums = true;
                PortConfig::Ethernet(EthernetPortConfig {
                    packets_max,
                    cuts,
                    merges,
                    believe_sums,
                    ..EthernetPortConfig::on(link)
                })
            }
            Carries::Cells => {
                // This port has no address, because its circuits belong to bridges.
                let none = (IpAddr::from([0; 4]), Prefix::new(IpAddr::from([0; 4]), 32));
                let (address, prefix) = port.addresses.first().copied().unwrap_or(none);
                for (address, prefix) in port.addresses.iter().skip(1) {
                    board.addresses.push(PortAddress { port: number, address: *address, prefix: *prefix });
                }
                PortConfig::Atm(AtmPortConfig {
                    line_bits_per_second: port.bits_per_second,
                    interface: Interface::Uni,
                    address,
                    prefix,
                    mtu_bytes,
                    circuits: port.circuits.clone(),
                    by_circuit: plan.shards > 1 && port.has_queues(),
                })
            }
        });
    }
    for (of, port) in plan.ports.iter().enumerate().filter(|(_, port)| port.host.is_some()) {
        board.ports.push(PortConfig::Host(HostPortConfig { of, packets_max: port.packets_max }));
    }
    board
}
