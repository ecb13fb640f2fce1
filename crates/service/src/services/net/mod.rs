//! The network of a guest (a container or a program): what it sends to other hosts passes through
//! sockets of this host, by destination.
//!
//! Purpose          the guest reaches whatever this host's user reaches, without privileges. Its packets end
//!                  at the board ([`kiban_board::Host::intercept`]), so each side has its own TCP connection.
//! Connections      `connections`: the guest's SYN is answered once this host has connected. From then on a
//!                  relay ([`super::relay`]) copies in both directions.
//! Datagrams, pings `flows`: one connected socket for each pair of addresses, and for each ping.
//! Names            requests to the board's address, port 53, go to this host's name server.
//! Loopback         the board's address reaches this host's loopback only if `host_loopback` is set. The
//!                  guest's packets to loopback or link-local addresses are dropped by IP.
//! Limits           connections: `sessions`; flows: [`flows::FLOWS_MAX`], the longest idle one makes room.

mod connections;
mod flows;

use super::counters::ServiceCounters;
use super::relay::Relays;
use super::service::{Service, SessionLimits};
use crate::config::NetConfig;
use connections::Connections;
use flows::Flows;
use kiban_base::Instant;
use kiban_board::{Completion, Host, InterceptedKind};
use kiban_link::EpollSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

/// The number of the first connection among the watched files, and of the first relay; flows come first.
const FIRST_CONNECTION: u64 = 1 << 32;
const FIRST_RELAY: u64 = 1 << 48;
/// The port of the name service.
const DOMAIN: u16 = 53;

impl NetConfig {
    /// Returns the address to which this host connects for a packet of the guest to `target`; `None` if the
    /// guest must not reach it. `is_own` says whether the target is one of the board's addresses.
    fn destination(&self, target: SocketAddr, is_own: bool) -> Option<SocketAddr> {
        if !is_own {
            // IP has dropped these already.
            let address = target.ip().to_canonical();
            let is_own = address != target.ip() || address.is_loopback() || address.is_unspecified();
            return (!is_own).then_some(target);
        }
        if target.port() == DOMAIN && self.name_server.is_some() {
            return self.name_server;
        }
        let loopback: IpAddr = match target {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        self.host_loopback.then_some(SocketAddr::new(loopback, target.port()))
    }
}

/// The service.
pub struct Net {
    config: NetConfig,
    bounds: SessionLimits,
    files: EpollSet,
    listener: Option<u32>,
    connections: Connections,
    flows: Flows,
    relays: Relays,
    counters: ServiceCounters,
    ready: Vec<u64>,
    payload: Vec<u8>,
}

impl Net {
    /// Returns a service that will take what the guest sends.
    ///
    /// # Errors
    /// If the process has too many open files.
    pub fn new(config: NetConfig, bounds: SessionLimits) -> io::Result<Net> {
        Ok(Net {
            config,
            bounds,
            files: EpollSet::new()?,
            listener: None,
            connections: Connections::new(FIRST_CONNECTION),
            flows: Flows::default(),
            relays: Relays::new(FIRST_RELAY, bounds.sessions_max),
            counters: ServiceCounters::default(),
            ready: Vec::new(),
            payload: Vec::new(),
        })
    }

    /// Handles a SYN of the guest by connecting through the kernel.
    fn on_requested(&mut self, local: SocketAddr, remote: SocketAddr, host: &mut Host<'_>, now: Instant) {
        let to = self.config.destination(local, host.is_own(local.ip()));
        let slot = to.and_then(|_| self.relays.take_slot(Some(remote.ip()), host, &mut self.counters, now));
        let (Some(to), Some(slot)) = (to, slot) else {
            // Without memory for the RST, the guest retransmits its SYN.
            let _ = host.refuse(local, remote);
            return;
        };
        if self.connections.begin((local, remote), to, slot, &self.files, now).is_err() {
            self.counters.errors += 1;
            let _ = host.refuse(local, remote);
        }
    }

    /// Handles the datagrams and pings of the guest.
    fn on_intercepted(&mut self, host: &mut Host<'_>, now: Instant) {
        while let Some(packet) = host.intercepted() {
            packet.copy_payload(&mut self.payload);
            let sent = match packet.kind() {
                InterceptedKind::Datagram { local, remote } => {
                    let to = self.config.destination(local, host.is_own(local.ip()));
                    to.is_some_and(|to| {
                        self.flows.send_datagram((local, remote), to, &self.payload, &self.files, now)
                    })
                }
                InterceptedKind::Echo { local, remote, identifier, sequence } => {
                    let key = (local, remote, identifier);
                    self.config.destination(SocketAddr::new(local, 0), false).is_some()
                        && self.flows.send_echo(key, sequence, &self.payload, &self.files, now)
                }
            };
            if sent {
                self.counters.datagrams_in += 1;
                continue;
            }
            self.counters.datagrams_refused += 1;
            if let InterceptedKind::Datagram { local, remote } = packet.kind() {
                // Without memory for the answer, the guest sees a loss.
                let _ = host.refuse_datagram(local, remote);
            }
        }
    }
}

impl Service for Net {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) -> Result<(), String> {
        self.listener = Some(host.intercept().map_err(|refused| refused.to_string())?);
        Ok(())
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        match completion {
            Completion::Requested { local, remote, .. } => self.on_requested(local, remote, host, now),
            Completion::Intercepted => self.on_intercepted(host, now),
            Completion::Accepted { stream, listener, remote } if Some(listener) == self.listener => {
                let Net { connections, relays, files, counters, .. } = self;
                let socket = host.info(stream).ok().and_then(|info| connections.take(info.local, remote));
                let Some(begin) = socket else {
                    let _ = host.abort(stream);
                    return;
                };
                relays.begin(stream, begin, counters, now);
                relays.pump(stream, host, files, counters, now);
            }
            completion => {
                let Net { relays, files, counters, .. } = self;
                relays.on_completion(completion, host, files, counters, now);
            }
        }
    }

    fn look(&mut self, host: &mut Host<'_>, now: Instant) {
        self.connections.look(host, now);
        self.flows.look(now);
        self.relays.look(self.bounds.idle, host, &mut self.counters, now);
    }

    fn close(&mut self, host: &mut Host<'_>) {
        if let Some(listener) = self.listener.take() {
            let _ = host.unlisten(listener);
        }
    }

    fn cut(&mut self, host: &mut Host<'_>) {
        self.relays.cut(host, &mut self.counters);
    }

    fn sessions(&self) -> usize {
        self.relays.len()
    }

    fn counters(&self) -> ServiceCounters {
        self.counters
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.files.as_fd())
    }

    fn on_file(&mut self, host: &mut Host<'_>, now: Instant) {
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        self.files.ready(&mut ready);
        for &number in &ready {
            let Net { connections, flows, relays, files, counters, .. } = self;
            match number {
                FIRST_RELAY.. => drop(relays.on_ready(number, host, files, counters, now)),
                FIRST_CONNECTION.. => connections.on_ready(number, host, files, counters),
                _ => counters.datagrams_out += flows.on_ready(number, host, now),
            }
        }
        self.ready = ready;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_boards_own_addresses_stand_for_others() {
        let names: SocketAddr = "192.168.1.1:53".parse().unwrap();
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let rows = [
            // (target, own, loopback wanted, destination)
            ("192.0.2.1:80", false, false, Some("192.0.2.1:80")),
            ("192.0.2.1:53", false, true, Some("192.0.2.1:53")),
            ("127.0.0.1:80", false, true, None),
            ("[::ffff:127.0.0.1]:80", false, true, None),
            ("[::ffff:192.0.2.1]:80", false, true, None),
            ("0.0.0.0:80", false, true, None),
            ("10.0.2.2:53", true, false, Some("192.168.1.1:53")),
            ("10.0.2.2:80", true, false, None),
            ("10.0.2.2:80", true, true, Some("127.0.0.1:80")),
            ("[fd00::2]:80", true, true, Some("[::1]:80")),
        ];
        for (target, is_own, host_loopback, expected) in rows {
            let config = NetConfig { name_server: Some(names), host_loopback };
            assert_eq!(config.destination(address(target), is_own), expected.map(address), "{target}");
        }
        let none = NetConfig { name_server: None, host_loopback: false };
        assert_eq!(none.destination(address("10.0.2.2:53"), true), None);
    }
}
