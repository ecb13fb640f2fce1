//! The part of a board's status that one shard contributes. An undivided board has one part.

use crate::services::{Services, View};
use crate::status::{self, Counters};
use kiban_base::Instant;
use kiban_link::{Driver, LinkCounters};
use kiban_tcpip::tcp::{Info, State};
use std::collections::BTreeMap;

/// One shard's part of the status.
pub(super) struct Part {
    pub(super) memory: status::Memory,
    /// TCP sessions, by state.
    pub(super) sessions: Counters,
    /// The sessions that carried data last.
    pub(super) connections: Vec<status::Connection>,
    /// The states of the services.
    pub(super) services: Vec<View>,
    /// Counters of the whole board, by family.
    pub(super) counters: BTreeMap<String, Counters>,
    pub(super) ports: Vec<PortPart>,
}

/// One shard's part of a port's status.
pub(super) struct PortPart {
    pub(super) waiting: u64,
    pub(super) link_counters: LinkCounters,
    /// The port's counters, by family.
    pub(super) counters: BTreeMap<String, Counters>,
}

/// Returns the part of the shard that a driver drives, which has this number of links.
pub(super) fn part_of(driver: &mut Driver, services: usize, links: usize) -> Part {
    let ports: Vec<PortPart> = (0..links)
        .map(|port| {
            let link_counters = driver.link_counters(port).unwrap_or_default();
            let mut counters: BTreeMap<String, Counters> = BTreeMap::new();
            driver.view().port_counters(port, &mut |family, name, value| {
                counters.entry(family.into()).or_default().insert(name.into(), value);
            });
            PortPart { waiting: driver.view().waiting(port) as u64, link_counters, counters }
        })
        .collect();
    let services = driver.program::<Services>(services).into_iter().flat_map(Services::views).collect();
    let mut counters: BTreeMap<String, Counters> = BTreeMap::new();
    driver.view().counters(&mut |family, name, value| {
        // Skip counters that are reported with their port.
        if !ports.iter().any(|port| port.counters.contains_key(family)) {
            *counters.entry(family.into()).or_default().entry(name.into()).or_default() += value;
        }
    });
    if let Some(shard) = counters.get_mut("shard") {
        shard.insert("ring_full".into(), driver.dropped_parcels());
    }
    let mut sessions = Counters::new();
    for info in driver.view().infos() {
        *sessions.entry(state_word(info.state)).or_default() += 1;
    }
    let connections = connections(driver);
    let memory = driver.board().memory_mut();
    let of = |capacity: usize, at_home: usize, unit: usize| status::Use {
        capacity: (capacity * unit) as u64,
        used: (capacity.saturating_sub(at_home) * unit) as u64,
    };
    let (transmit, receive, pdus) = (&mut memory.transmit, &mut memory.receive, &mut memory.pdus);
    let memory = status::Memory {
        transmit_bytes: of(transmit.capacity(), transmit.available(), transmit.page_bytes()),
        receive_bytes: of(receive.capacity(), receive.available(), receive.page_bytes()),
        pdus: of(pdus.capacity(), pdus.available(), 1),
    };
    Part { memory, sessions, connections, services, counters, ports }
}

/// Returns the sessions that carried data last.
fn connections(driver: &Driver) -> Vec<status::Connection> {
    let used_at = |info: &Info| info.data_sent_at.max(info.data_received_at);
    let open = || driver.view().infos().filter(|info| info.state != State::TimeWait);
    let mut times: Vec<Instant> = open().map(|info| used_at(&info)).collect();
    // A session that was used before this time is left out.
    let since = match times.len().checked_sub(status::CONNECTIONS_MAX) {
        Some(older) if older > 0 => *times.select_nth_unstable(older).1,
        _ => Instant::ZERO,
    };
    let recent = open().filter(|info| used_at(info) >= since).take(status::CONNECTIONS_MAX);
    recent
        .map(|info| status::Connection {
            local: info.local.to_string(),
            remote: info.remote.to_string(),
            state: state_word(info.state),
            bytes_in: info.bytes_in,
            bytes_out: info.bytes_acknowledged,
            rtt_us: info.round_trip.as_micros() as u64,
            cwnd_bytes: info.congestion_window_bytes.into(),
            retransmitted_bytes: info.retransmitted_bytes,
        })
        .collect()
}

impl Part {
    /// Adds another shard's part to this one.
    pub(super) fn add(&mut self, other: Part) {
        let uses = |memory: &mut status::Memory, other: status::Memory| {
            for (its, other) in [
                (&mut memory.transmit_bytes, other.transmit_bytes),
                (&mut memory.receive_bytes, other.receive_bytes),
                (&mut memory.pdus, other.pdus),
            ] {
                its.capacity += other.capacity;
                its.used += other.used;
            }
        };
        uses(&mut self.memory, other.memory);
        add_counters(&mut self.sessions, other.sessions);
        self.connections.extend(other.connections);
        add_families(&mut self.counters, other.counters);
        for view in other.services {
            let is_it = |its: &&mut View| (&its.plan.name, its.closed) == (&view.plan.name, view.closed);
            match self.services.iter_mut().find(is_it) {
                Some(its) => {
                    its.sessions += view.sessions;
                    its.counters.add(&view.counters);
                }
                None => self.services.push(view),
            }
        }
        for (its, other) in self.ports.iter_mut().zip(other.ports) {
            its.waiting += other.waiting;
            its.link_counters.add(&other.link_counters);
            add_families(&mut its.counters, other.counters);
        }
    }
}

fn add_counters(counters: &mut Counters, others: Counters) {
    others.into_iter().for_each(|(name, value)| *counters.entry(name).or_default() += value);
}

fn add_families(families: &mut BTreeMap<String, Counters>, others: BTreeMap<String, Counters>) {
    others
        .into_iter()
        .for_each(|(family, counters)| add_counters(families.entry(family).or_default(), counters));
}

/// Returns whether all sessions have ended (TIME-WAIT excepted).
pub(super) fn is_quiet(driver: &Driver, services: usize) -> bool {
    let sessions = driver.program::<Services>(services).map_or(0, Services::sessions);
    sessions == 0 && driver.view().infos().all(|info| info.state == State::TimeWait)
}

/// Converts the name of a state to snake case: `Established` to `established`, `FinWait1` to `fin_wait1`.
fn state_word(state: State) -> String {
    let mut word = String::new();
    for character in format!("{state:?}").chars() {
        if character.is_ascii_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.push(character.to_ascii_lowercase());
    }
    word
}
