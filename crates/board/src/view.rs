//! The board as those see it who run it: counters of one port, circuits and their peers, sessions, what waits. And routes, which may
//! change while it runs.

use crate::board::Board;
use crate::port::Port;
use core::net::IpAddr;
use kiban_stack::ip::{Prefix, Route};
use kiban_stack::tcp;

impl Board {
    /// Shows every counter of one port: its family, its name, its value.
    pub fn port_counters(&self, port: usize, see: &mut dyn FnMut(&'static str, &'static str, u64)) {
        if let Some(port) = self.port(port) {
            port.counters(see);
        }
    }

    /// The peers of an ATM port's circuits, in the order of its configuration; none where InATMARP has no answer yet.
    pub fn circuit_peers(&self, port: usize) -> impl Iterator<Item = Option<IpAddr>> + '_ {
        let atm = match self.port(port) {
            Some(Port::Atm(atm)) => Some(atm),
            _ => None,
        };
        atm.into_iter().flat_map(|atm| atm.peers())
    }

    /// Packets that wait for the link of a port, or frames for the slots of its line.
    pub fn waiting(&self, port: usize) -> usize {
        self.port(port).map_or(0, Port::waiting)
    }

    /// What TCP knows of every session.
    pub fn infos(&self) -> impl Iterator<Item = tcp::Info> + '_ {
        self.ip.tcp.infos()
    }

    /// Packets for a prefix take this way from now on. Routes of ports' own prefixes are theirs.
    pub fn add_route(&mut self, route: Route) {
        self.ip.ip.add_route(route);
    }

    /// A way that was added is none any more.
    pub fn remove_route(&mut self, port: usize, prefix: Prefix, gateway: Option<IpAddr>) {
        self.ip.ip.remove_route(port, prefix, gateway);
    }
}
