//! The status of a board.

use super::board::Running;
use crate::config::Carries;
use crate::losses;
use crate::services::ProgramView;
use crate::status::{self, Counters, Status, named, rounded};
use kiban_base::Instant;
use kiban_sandbox::Sandbox;
use kiban_tcpip::dhcp;
use kiban_tcpip::tcp::State;
use std::collections::BTreeMap;

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

impl Running {
    pub(super) fn status(&mut self, now: Instant) -> Status {
        let views = self.with_services(|services, _, _| services.views().collect::<Vec<_>>());
        let services = views.into_iter().map(|view| status::Service {
            name: view.plan.name.clone(),
            kind: view.plan.kind.word().into(),
            listen: view.plan.listen.to_string(),
            state: if view.closed { "ending" } else { "listening" }.into(),
            sessions: view.sessions as u64,
            sessions_max: view.plan.sessions_max as u64,
            counters: named(|see| view.counters.each(see)),
            programs: view.programs.iter().map(program).collect(),
        });
        let services = services.collect();
        let ports = (0..self.links.len()).map(|number| self.port_status(number, now)).collect();
        let circuits = (0..self.plan.ports.len()).flat_map(|number| self.circuits(number)).collect();
        let at_ports: Vec<BTreeMap<String, Counters>> =
            (0..self.links.len()).map(|number| self.port_counters(number)).collect();
        let board = self.driver.board();
        let mut counters: BTreeMap<String, Counters> = BTreeMap::new();
        board.counters(&mut |family, name, value| {
            // Skip counters that are reported with their port.
            if !at_ports.iter().any(|port| port.contains_key(family)) {
                *counters.entry(family.into()).or_default().entry(name.into()).or_default() += value;
            }
        });
        let mut sessions = Counters::new();
        for info in board.infos() {
            *sessions.entry(state_word(info.state)).or_default() += 1;
        }
        let page_bytes = self.plan.board.memory.page_bytes as u64;
        let memory = board.memory_mut();
        let of = |capacity: usize, at_home: usize, unit: u64| status::Use {
            capacity: capacity as u64 * unit,
            used: capacity.saturating_sub(at_home) as u64 * unit,
        };
        let memory = status::Memory {
            transmit_bytes: of(memory.transmit.capacity(), memory.transmit.available(), page_bytes),
            receive_bytes: of(memory.receive.capacity(), memory.receive.available(), page_bytes),
            pdus: of(memory.pdus.capacity(), memory.pdus.available(), 1),
        };
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
            ports,
            circuits,
            services,
            counters,
        }
    }

    fn port_counters(&mut self, number: usize) -> BTreeMap<String, Counters> {
        let mut counters: BTreeMap<String, Counters> = BTreeMap::new();
        self.driver.board().port_counters(number, &mut |family, name, value| {
            counters.entry(family.into()).or_default().insert(name.into(), value);
        });
        counters
    }

    fn port_status(&mut self, number: usize, now: Instant) -> status::Port {
        let link_counters = self.driver.link_counters(number).unwrap_or_default();
        let counters = self.port_counters(number);
        let board = self.driver.board();
        let waiting = board.waiting(number) as u64;
        let dhcp = board.dhcp(number).map(|client| dhcp_status(client, now));
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

/// Converts the name of a state to snake case: `Established` to `established`, `FinWait1` to `fin_wait1`.
pub(super) fn state_word(state: State) -> String {
    let mut word = String::new();
    for character in format!("{state:?}").chars() {
        if character.is_ascii_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.push(character.to_ascii_lowercase());
    }
    word
}
