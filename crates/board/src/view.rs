//! A board's state for operators: counters, circuits and their peers, sessions and queues, as well as routes,
//! which can change at run time.

use crate::board::Board;
use crate::port::Port;
use core::net::IpAddr;
use kiban_base::{Copies, Memory};
use kiban_tcpip::dhcp;
use kiban_tcpip::ethernet::Link;
use kiban_tcpip::ip::{Prefix, Route};
use kiban_tcpip::tcp;

impl Board {
    /// Returns the number of bytes copied so far, by cause.
    pub fn copies(&self) -> &Copies {
        &self.stack.copies
    }

    /// Calls `see` for every counter: its family, name and value.
    pub fn counters(&self, see: &mut dyn FnMut(&'static str, &'static str, u64)) {
        self.stack.ip.ip.counters().each(&mut |name, value| see("ip", name, value));
        self.stack.ip.tcp.counters().each(&mut |name, value| see("tcp", name, value));
        self.stack.ip.udp.counters().each(&mut |name, value| see("udp", name, value));
        self.stack.ip.icmp.counters().each(&mut |name, value| see("icmp", name, value));
        if let Some(nic) = &self.vi {
            nic.counters().each(&mut |name, value| see("vi", name, value));
        }
        if let Some(rdma) = &self.rdma {
            rdma.counters(see);
        }
        self.stack.copies.each(&mut |name, value| see("copies", name, value));
        if let Some(shard) = &self.stack.ip.shard {
            shard.counters.each(&mut |name, value| see("shard", name, value));
        }
        see("host", "page_waits", self.stack.edge.page_line.waits);
        see("host", "page_waiters_met", self.stack.edge.page_line.waiters_met);
        see("host", "datagrams_dropped", self.stack.edge.datagrams_dropped);
        see("host", "replies_dropped", self.stack.edge.replies_dropped);
        for port in &self.stack.ports {
            port.counters(see);
        }
    }

    /// Returns one counter, summed over ports; zero if there is none of that name.
    pub fn counter(&self, family: &str, name: &str) -> u64 {
        let mut total = 0;
        self.counters(&mut |its_family, its_name, value| {
            if its_family == family && its_name == name {
                total += value;
            }
        });
        total
    }

    /// Returns the board's addresses, including autoconfigured ones.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.stack.ip.ip.addresses()
    }

    /// Returns TCP's counters.
    pub fn tcp_counters(&self) -> &tcp::TcpCounters {
        self.stack.ip.tcp.counters()
    }

    /// Returns the number of writes that queued for a page, and the sum of the queue lengths at those times,
    /// including the writers themselves.
    pub fn page_waits(&self) -> (u64, u64) {
        (self.stack.edge.page_line.waits, self.stack.edge.page_line.waiters_met)
    }

    /// Returns the packet memory, for tests that check for leaks or make it scarce.
    pub fn memory_mut(&mut self) -> &mut Memory {
        &mut self.stack.memory
    }

    /// Returns the number of TCP sessions in any state.
    pub fn sessions(&self) -> usize {
        self.stack.ip.tcp.sessions()
    }

    /// Returns the VI NIC's path through a port.
    pub fn vi_path(&self, port: usize) -> Option<u32> {
        match self.stack.ports.get(port) {
            Some(Port::Vi(path)) => Some(*path),
            _ => None,
        }
    }

    /// Calls `see` for every counter of one port: its family, name and value.
    pub fn port_counters(&self, port: usize, see: &mut dyn FnMut(&'static str, &'static str, u64)) {
        if let Some(port) = self.stack.ports.get(port) {
            port.counters(see);
        }
    }

    /// Returns the peers of an ATM port's circuits, in configuration order; `None` for those that InATMARP
    /// has not discovered yet.
    pub fn circuit_peers(&self, port: usize) -> impl Iterator<Item = Option<IpAddr>> + '_ {
        let atm = match self.stack.ports.get(port) {
            Some(Port::Atm(atm)) => Some(atm),
            _ => None,
        };
        atm.into_iter().flat_map(|atm| atm.peers())
    }

    /// Returns the number of packets that wait for a port's link, or of frames that wait for its line.
    pub fn waiting(&self, port: usize) -> usize {
        self.stack.ports.get(port).map_or(0, Port::waiting)
    }

    /// Returns TCP's state of every session.
    pub fn infos(&self) -> impl Iterator<Item = tcp::Info> + '_ {
        self.stack.ip.tcp.infos()
    }

    /// Returns a port's DHCP client, if it has one.
    pub fn dhcp(&self, port: usize) -> Option<&dhcp::Client> {
        match self.stack.ports.get(port) {
            Some(Port::Packets(packets)) => packets.link.as_ref()?.dhcp(),
            _ => None,
        }
    }

    /// Verifies the leased address of a port, because its link works again. The board must be polled
    /// afterwards.
    pub fn verify_lease(&mut self, port: usize) {
        let now = self.stack.now;
        self.links().skip(port).take(1).flatten().for_each(|link| link.verify_lease(now));
        self.stack.unsettled = true;
    }

    /// Gives all leased addresses back (DHCPRELEASE), because the board stops. The board must be polled
    /// afterwards.
    pub fn release_leases(&mut self) {
        let now = self.stack.now;
        self.links().flatten().for_each(|link| link.release_lease(now));
        self.stack.unsettled = true;
    }

    /// Returns the Ethernet link of each port that has one.
    fn links(&mut self) -> impl Iterator<Item = Option<&mut Link>> {
        self.stack.ports.iter_mut().map(|port| match port {
            Port::Packets(packets) => packets.link.as_deref_mut(),
            _ => None,
        })
    }

    /// Adds a route. The routes for the ports' own prefixes exist already.
    pub fn add_route(&mut self, route: Route) {
        self.stack.ip.ip.add_route(route);
    }

    /// Removes a route that was added.
    pub fn remove_route(&mut self, port: usize, prefix: Prefix, gateway: Option<IpAddr>) {
        self.stack.ip.ip.remove_route(port, prefix, gateway);
    }
}
