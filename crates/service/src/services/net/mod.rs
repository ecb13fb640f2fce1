//! The network of a guest (a container or a program): what it sends to other hosts passes through
//! sockets of this host, by destination.
//!
//! Purpose          the guest reaches whatever this host's user reaches, without privileges. Its packets end
//!                  at the board ([`kiban_board::Host::intercept`]), so each side has its own TCP connection.
//! Connections      `connections`: the guest's SYN is answered once this host has connected. From then on a
//!                  relay ([`super::relay`]) copies in both directions.
//! Datagrams, pings `flows`: one connected socket for each pair of addresses, and for each ping.
//! DNS              `names`: requests to port 53 of addresses of the board go to this host's name servers.
//! Mapped addresses the board's addresses may stand for others (`map`), as for this host's loopback.
//!                  Otherwise, the guest reaches nothing at them. Its packets to loopback or link-local
//!                  addresses are dropped by IP.
//! Forwarded ports  `ports`: sockets of this host, and of the guest's loopback (`namespace`). Callers at this
//!                  host's loopback and the guest's are connected with the other side's loopback, past the
//!                  board (`splices`, and `flows` for datagrams); so the program at the other end sees a
//!                  caller of its own host. Callers of other hosts reach the guest through the board, and
//!                  appear there with their own addresses (a relay, and `senders` for datagrams).
//! Limits           connections: `sessions`, of which at most half past the board; flows, flows of callers,
//!                  and senders at forwarded ports: [`idle::ENTRIES_MAX`] each, of which the longest idle one
//!                  makes room.

mod bound;
mod connections;
mod flows;
mod idle;
mod names;
mod namespace;
mod ports;
mod senders;
mod splices;

pub use namespace::serve_namespace;

use super::counters::{GuestView, ServiceCounters};
use super::relay::{Begin, Relays, reset};
use super::service::{Service, SessionLimits};
use crate::config::{Mapped, NetConfig};
use connections::Connections;
use flows::Flows;
use kiban_base::Instant;
use kiban_board::{Completion, Host, InterceptedKind, StreamId};
use kiban_link::EpollSet;
use kiban_tcpip::ip::Prefix;
use names::Names;
use namespace::{Namespace, Protocol, Side};
use ports::Ports;
use senders::{Senders, shown};
use splices::Splices;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

/// The numbers among the watched files of the first connection, relay, splice, flow of a caller and forwarded
/// port, and of the lists of name servers; the guest's flows come first.
const FIRST_CONNECTION: u64 = 1 << 44;
const FIRST_RELAY: u64 = 1 << 48;
const FIRST_SPLICE: u64 = 1 << 56;
const FIRST_CALLER: u64 = 1 << 60;
const FIRST_PORT: u64 = 1 << 62;
const NAMES: u64 = u64::MAX;

/// The maximum number of connections, or datagrams, that one port passes on in one call, so that others get
/// their turn.
const CALLERS_MAX: usize = 64;

impl NetConfig {
    /// Returns the address to which this host connects for a packet of the guest to `target`; `None` if the
    /// guest must not reach it. `is_own` says whether the target is one of the board's addresses.
    fn destination(&self, target: SocketAddr, is_own: bool) -> Option<SocketAddr> {
        let stands = |mapped: &&Mapped| {
            mapped.address == target.ip() && mapped.port.is_none_or(|port| port == target.port())
        };
        if let Some(Mapped { to, to_port, .. }) = self.map.iter().find(stands) {
            return Some(SocketAddr::new(*to, to_port.unwrap_or(target.port())));
        }
        // IP has dropped most of these already.
        let address = target.ip().to_canonical();
        let is_here = is_own || address != target.ip() || address.is_loopback() || address.is_unspecified();
        (!is_here).then_some(target)
    }

    /// Returns the guest's address for a caller, and its subnet: that of the same family, or the first one.
    fn guest_for(&self, caller: IpAddr) -> Option<(IpAddr, Prefix)> {
        let is_ipv4 = caller.to_canonical().is_ipv4();
        let same = self.guest.iter().find(|(guest, _)| guest.is_ipv4() == is_ipv4);
        same.or(self.guest.first()).copied()
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
    /// The flows of callers at forwarded ports, who must not take the room of the guest's.
    callers: Flows,
    names: Names,
    namespace: Namespace,
    ports: Ports,
    senders: Senders,
    relays: Relays,
    splices: Splices,
    counters: ServiceCounters,
    ready: Vec<u64>,
    payload: Vec<u8>,
    /// Room for a datagram at a forwarded port.
    room: Vec<u8>,
}

impl Net {
    /// Returns a service that will take what the guest sends.
    ///
    /// # Errors
    /// If the process has too many open files, or there is no socket with a number in the configuration.
    pub fn new(config: NetConfig, bounds: SessionLimits) -> io::Result<Net> {
        let files = EpollSet::new()?;
        Ok(Net {
            names: Names::new(&config.dns, &config.dns_servers, config.dns_changes, (&files, NAMES))?,
            namespace: Namespace::new(config.namespace)?,
            config,
            bounds,
            files,
            listener: None,
            connections: Connections::new(FIRST_CONNECTION),
            flows: Flows::new(0),
            callers: Flows::new(FIRST_CALLER),
            ports: Ports::new(FIRST_PORT),
            senders: Senders::new(),
            relays: Relays::new(FIRST_RELAY, bounds.sessions_max),
            splices: Splices::new(FIRST_SPLICE),
            counters: ServiceCounters::default(),
            ready: Vec::new(),
            payload: Vec::new(),
            room: vec![0; 1 << 16],
        })
    }

    /// Handles a SYN of the guest by connecting through the kernel.
    fn on_requested(&mut self, local: SocketAddr, remote: SocketAddr, host: &mut Host<'_>, now: Instant) {
        let to = match self.names.serve(local) {
            true => self.names.in_order(now),
            false => self.config.destination(local, host.is_own(local.ip())).into_iter().collect(),
        };
        let slot = match to.is_empty() {
            true => None,
            false => self.relays.take_slot(Some(remote.ip()), host, &mut self.counters, now),
        };
        let Some(slot) = slot else {
            // Without memory for the RST, the guest retransmits its SYN.
            let _ = host.refuse(local, remote);
            return;
        };
        if self.connections.begin((local, remote), to, slot, &self.files, host, now).is_err() {
            self.counters.errors += 1;
            let _ = host.refuse(local, remote);
        }
    }

    /// Handles the callers at a forwarded port.
    fn on_port(&mut self, number: u64, host: &mut Host<'_>, now: Instant) {
        let Some((side, protocol, to)) = self.ports.get(number) else { return };
        for _ in 0..CALLERS_MAX {
            let more = match protocol {
                Protocol::Tcp => self.on_caller(number, (side, to), host, now),
                Protocol::Udp => self.on_datagram(number, (side, to), host, now),
            };
            if !more {
                break;
            }
        }
    }

    /// Returns where a caller is connected past the board; `None` if the caller belongs to another host, or
    /// there is no way into the guest's namespace.
    fn spliced(&self, side: Side, caller: IpAddr, to: u16) -> Option<(Side, SocketAddr)> {
        let caller = caller.to_canonical();
        let is_spliced = side == Side::Guest || (caller.is_loopback() && self.namespace.is_open());
        let loopback = match caller {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        };
        is_spliced.then(|| (side.other(), SocketAddr::new(loopback, to)))
    }

    /// Handles the next connection at a forwarded port. Returns false if there is none.
    fn on_caller(&mut self, number: u64, (side, to): (Side, u16), host: &mut Host<'_>, now: Instant) -> bool {
        let Some((socket, caller)) = self.ports.accept(number, &self.files) else { return false };
        let spliced = self.spliced(side, caller.ip(), to);
        let Net { bounds, namespace, relays, splices, files, counters, .. } = self;
        // A splice belongs to no address, and is never closed to make room. So that another user of this host
        // cannot take the slots of the guest and of remote callers, splices get at most half, and only free
        // ones.
        if spliced.is_some() && (splices.len() >= bounds.sessions_max / 2 || relays.are_full()) {
            counters.refused += 1;
            reset(&socket);
            return true;
        }
        let peer = spliced.is_none().then(|| caller.ip().to_canonical());
        let Some(slot) = relays.take_slot(peer, host, counters, now) else {
            reset(&socket);
            return true;
        };
        if let Some(to) = spliced {
            splices.begin(socket, to, slot, (namespace, files), counters, now);
            return true;
        }
        match self.open_to_guest(caller, to, host) {
            Some(stream) => {
                let begin = Begin::plain(socket, true, false, slot);
                self.relays.begin(stream, begin, &mut self.counters, now);
            }
            None => {
                self.counters.errors += 1;
                reset(&socket);
            }
        }
        true
    }

    /// Opens a connection to the guest, from the caller's address if the guest can answer there. If another
    /// connection has the same addresses, through another forwarded port, it comes from the gateway's.
    fn open_to_guest(&self, caller: SocketAddr, to: u16, host: &mut Host<'_>) -> Option<StreamId> {
        let (guest, subnet) = self.config.guest_for(caller.ip())?;
        let to = SocketAddr::new(guest, to);
        let from = shown(caller.ip(), subnet, host).map(|address| SocketAddr::new(address, caller.port()));
        from.and_then(|from| host.open_from(from, to).ok()).or_else(|| host.open(to).ok())
    }

    /// Handles the next datagram at a forwarded port. Returns false if there is none.
    fn on_datagram(
        &mut self,
        number: u64,
        (side, to): (Side, u16),
        host: &mut Host<'_>,
        now: Instant,
    ) -> bool {
        let Some((length, sender)) = self.ports.receive(number, &mut self.room) else { return false };
        let spliced = self.spliced(side, sender.ip(), to);
        let (payload, from) = (&self.room[..length], (number, sender));
        let passed = match (spliced, self.config.guest_for(sender.ip())) {
            (Some((side, to)), _) => {
                let Net { namespace, callers, files, .. } = self;
                let open = || flows::connect(namespace.socket(side, to, Protocol::Udp)?, to);
                callers.send_of_caller(from, payload, open, files, now)
            }
            (None, Some((guest, subnet))) => {
                let to = SocketAddr::new(guest, to);
                self.senders.pass(from, (to, subnet), (payload, &self.ports), host, now)
            }
            (None, None) => false,
        };
        match side {
            Side::Host => self.counters.datagrams_out += u64::from(passed),
            Side::Guest => self.counters.datagrams_in += u64::from(passed),
        }
        true
    }

    /// Handles the datagrams and pings of the guest.
    fn on_intercepted(&mut self, host: &mut Host<'_>, now: Instant) {
        while let Some(packet) = host.intercepted() {
            packet.copy_payload(&mut self.payload);
            let sent = match packet.kind() {
                InterceptedKind::Datagram { local, remote }
                    if self.senders.answer((local, remote), &self.payload, &self.ports, now) =>
                {
                    true
                }
                InterceptedKind::Datagram { local, remote } if self.names.serve(local) => {
                    let Net { names, flows, payload, files, .. } = self;
                    names.ask(now, |to| flows.send_datagram((local, remote), to, payload, files, now))
                }
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
        self.ports.start(&self.config, &mut self.namespace, &self.files)?;
        self.namespace.has_started().map_err(|error| format!("cannot set a time limit: {error}"))?;
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
        self.connections.look(host, &self.files, now);
        self.flows.look(now);
        self.callers.look(now);
        self.senders.look(now);
        self.ports.look(&self.config, &mut self.namespace, &self.files);
        self.relays.look(self.bounds.idle, host, &mut self.counters, now);
        self.splices.look(self.bounds.idle, &mut self.counters, now);
    }

    fn close(&mut self, host: &mut Host<'_>) {
        // A successor may open the same ports while this service still has sessions.
        self.ports.close();
        if let Some(listener) = self.listener.take() {
            let _ = host.unlisten(listener);
        }
    }

    fn cut(&mut self, host: &mut Host<'_>) {
        self.relays.cut(host, &mut self.counters);
        self.splices.cut(&mut self.counters);
    }

    fn sessions(&self) -> usize {
        self.relays.len() + self.splices.len()
    }

    fn counters(&self) -> ServiceCounters {
        self.counters
    }

    fn guest(&self) -> GuestView {
        GuestView { warning: self.flows.warning(), ..self.ports.forwarded() }
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.files.as_fd())
    }

    fn on_file(&mut self, host: &mut Host<'_>, now: Instant) {
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        self.files.ready(&mut ready);
        for &number in &ready {
            let Net {
                connections,
                flows,
                callers,
                names,
                namespace,
                ports,
                relays,
                splices,
                files,
                counters,
                ..
            } = self;
            match number {
                NAMES => names.on_ready(),
                FIRST_PORT.. => self.on_port(number, host, now),
                FIRST_CALLER.. => {
                    counters.datagrams_out += callers.on_ready(number, (ports, names), host, now)
                }
                FIRST_SPLICE.. => splices.on_ready(number, (namespace, files), counters, now),
                FIRST_RELAY.. => drop(relays.on_ready(number, host, files, counters, now)),
                FIRST_CONNECTION.. => connections.on_ready(number, host, files, counters),
                _ => counters.datagrams_out += flows.on_ready(number, (ports, names), host, now),
            }
        }
        self.ready = ready;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mapped_addresses_stand_for_others() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let mapped = |from: &str, port, to: &str, to_port| Mapped {
            address: from.parse().unwrap(),
            port,
            to: to.parse().unwrap(),
            to_port,
        };
        let names = mapped("10.0.2.2", Some(53), "192.168.1.1", Some(5353));
        let loopback = [mapped("10.0.2.2", None, "127.0.0.1", None), mapped("fd00::2", None, "::1", None)];
        let config = |map: &[Mapped]| NetConfig { map: map.to_vec(), ..NetConfig::default() };
        let (few, all) = (config(&[names]), config(&[names, loopback[0], loopback[1]]));
        let rows = [
            // (target, own, configuration, destination)
            ("192.0.2.1:80", false, &few, Some("192.0.2.1:80")),
            ("192.0.2.1:53", false, &all, Some("192.0.2.1:53")),
            ("127.0.0.1:80", false, &all, None),
            ("[::ffff:127.0.0.1]:80", false, &all, None),
            ("[::ffff:192.0.2.1]:80", false, &all, None),
            ("0.0.0.0:80", false, &all, None),
            ("10.0.2.2:53", true, &few, Some("192.168.1.1:5353")),
            ("10.0.2.2:80", true, &few, None),
            ("10.0.2.2:80", true, &all, Some("127.0.0.1:80")),
            ("[fd00::2]:80", true, &all, Some("[::1]:80")),
            ("[fd00::2]:80", true, &few, None),
        ];
        for (target, is_own, config, expected) in rows {
            assert_eq!(config.destination(address(target), is_own), expected.map(address), "{target}");
        }
    }
}
