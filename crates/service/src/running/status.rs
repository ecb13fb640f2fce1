//! The status of a board.

use super::board::Running;
use super::part::{Part, PortPart, part_of};
use crate::config::{Carries, Forwarded, Kind, NetConfig, ServicePlan};
use crate::losses;
use crate::services::{GuestView, ProgramView};
use crate::status::{self, Status, named, rounded};
use kiban_base::Instant;
use kiban_sandbox::Sandbox;
use kiban_tcpip::dhcp;
use std::iter;

fn program(view: &ProgramView) -> status::Program {
    status::Program {
        client: view.client,
        pid: view.pid,
        queue_pairs: view.queue_pairs as u64,
        completion_queues: view.completion_queues as u64,
        keys: view.keys as u64,
        shared_bytes: view.shared_bytes as u64,
        notices: view.notices as u64,
        counters: named(|see| view.counters.each(see)),
    }
}

/// Returns what the status says of the guest of a network.
fn guest_status(config: &NetConfig, view: &GuestView) -> status::Guest {
    let ports = |ports: &[Forwarded]| ports.iter().map(Forwarded::to_string).collect();
    status::Guest {
        addresses: config.guest.iter().map(|(guest, net)| format!("{guest}/{}", net.bits())).collect(),
        tcp: ports(&view.tcp),
        udp: ports(&view.udp),
        guest_tcp: ports(&view.guest_tcp),
        guest_udp: ports(&view.guest_udp),
        warning: view.warning.map(str::to_owned),
    }
}

fn dhcp_status(client: &dhcp::Client, now: Instant) -> status::Dhcp {
    let lease = client.lease().map(|lease| status::Lease {
        address: format!("{}/{}", lease.address, lease.prefix.bits()),
        server: lease.server.to_string(),
        router: lease.router.map(|router| router.to_string()),
        name_servers: lease.name_servers.iter().map(ToString::to_string).collect(),
        mtu_bytes: lease.mtu_bytes as u64,
        seconds_left: (lease.expires_at != Instant::NEVER).then(|| lease.expires_at.since(now).as_secs()),
    });
    status::Dhcp { state: client.state().to_string(), lease }
}

/// Returns what the status says of one shard.
fn shard_status(part: &Part) -> status::Shard {
    status::Shard {
        sessions: part.sessions.values().sum(),
        units_in: part.ports.iter().map(|port| port.link_counters.units_in).sum(),
        units_out: part.ports.iter().map(|port| port.link_counters.units_out).sum(),
        counters: part.counters.get("shard").cloned().unwrap_or_default(),
    }
}

impl Running {
    pub(super) fn status(&mut self, now: Instant) -> Status {
        let own = part_of(&mut self.driver, self.services, self.links.len());
        let others = self.shards.parts(self.links.len());
        let services_of_first = own.services.len();
        let shards = match others.is_empty() {
            true => Vec::new(),
            false => iter::once(&own).chain(&others).map(shard_status).collect(),
        };
        let mut part = own;
        others.into_iter().for_each(|other| part.add(other));
        // The services of shard 0 come first in the sum, in the same order.
        let services = part.services.iter().take(services_of_first).map(|view| {
            let is_it = |plan: &&ServicePlan| !view.closed && plan.name == view.plan.name;
            let configured = self.plan.services.iter().find(is_it);
            status::Service {
                name: view.plan.name.clone(),
                kind: view.plan.kind.word().into(),
                listen: view.plan.listen.to_string(),
                state: if view.closed { "ending" } else { "listening" }.into(),
                sessions: view.sessions as u64,
                sessions_max: configured.unwrap_or(&view.plan).sessions_max as u64,
                counters: named(|see| view.counters.each(see)),
                programs: view.programs.iter().map(program).collect(),
                guest: match &view.plan.kind {
                    Kind::Net(config) => Some(guest_status(config, &view.guest)),
                    _ => None,
                },
            }
        });
        let services = services.collect();
        let parts = std::mem::take(&mut part.ports);
        let ports = parts.into_iter().enumerate().map(|(at, part)| self.port_status(at, part, now)).collect();
        let circuits = (0..self.plan.ports.len()).flat_map(|number| self.circuits(number)).collect();
        let Part { memory, sessions, connections, counters, .. } = part;
        Status {
            name: self.plan.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            state: if self.stops_at.is_some() { "stopping" } else { "running" }.into(),
            config: self.file.as_ref().map_or("(command line)".into(), |file| file.display().to_string()),
            uptime_seconds: rounded(now.since(self.began).as_secs_f64()),
            reloads: self.reloads,
            sandbox: self.sandbox.as_ref().map(Sandbox::report).map(status::Sandbox::from),
            memory,
            sessions,
            connections,
            shards,
            ports,
            circuits,
            services,
            counters,
        }
    }

    fn port_status(&self, number: usize, part: PortPart, now: Instant) -> status::Port {
        let PortPart { waiting, link_counters, counters } = part;
        let dhcp = self.driver.view().dhcp(number).map(|client| dhcp_status(client, now));
        let leased = dhcp.iter().flat_map(|dhcp| &dhcp.lease).map(|lease| lease.address.clone());
        let link = &self.links[number];
        status::Port {
            name: link.name(),
            link: link.address().to_owned(),
            carries: if link.device.is_none() { link.plan.carries } else { Carries::Packets }.to_string(),
            state: if link.state.is_up { "up" } else { "down" }.into(),
            error: link.state.error.clone(),
            addresses: link
                .plan
                .addresses
                .iter()
                .map(|(address, net)| format!("{address}/{}", net.bits()))
                .chain(leased)
                .collect(),
            dhcp: dhcp.clone(),
            host: if link.device.is_none() { link.plan.host.clone() } else { None },
            mtu_bytes: link.plan.mtu_bytes as u64,
            waiting,
            losses: link.state.losses,
            lost: losses::of_port(&link_counters, &counters),
            rates: link.rates,
            link_counters: named(|see| link_counters.each(see)),
            counters,
        }
    }

    fn circuits(&mut self, number: usize) -> Vec<status::Circuit> {
        let peers: Vec<_> = self.driver.board().circuit_peers(number).collect();
        let plan = &self.links[number].plan;
        let bridged = |index: usize| {
            let mut all = self.plan.ports.iter().filter_map(|port| port.bridge.as_ref()).flatten();
            all.any(|its| (its.port, its.circuit as usize) == (number, index))
        };
        let circuits = plan.circuits.iter().zip(peers).enumerate();
        let circuits = circuits.map(|(index, (circuit, peer))| status::Circuit {
            port: plan.name.clone(),
            vc: circuit.vc.to_string(),
            peer: peer.map(|peer| peer.to_string()),
            state: match (circuit.peer, peer) {
                _ if bridged(index) => "bridged",
                (Some(_), _) => "fixed",
                (None, Some(_)) => "known",
                (None, None) => "asking",
            }
            .into(),
        });
        circuits.collect()
    }
}
