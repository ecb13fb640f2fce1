//! The samples of a board: the current status, rates, and the history for the graphs.

use kiban_lab::load::tree_cpu_nanos;
use kiban_service::status::{Connection, Service, Status};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// The number of samples in a graph.
const HISTORY: usize = 512;

/// The status of a board, and what can be computed from earlier ones.
pub(super) struct Samples {
    pub(super) status: Status,
    /// Received and sent bits per second of all ports, the newest first.
    pub(super) bits: [VecDeque<u64>; 2],
    /// CPU time per second, in cores.
    pub(super) cores: Option<f64>,
    cpu_nanos: Option<u64>,
    services: Rates,
    /// By the addresses of both ends.
    connections: Rates,
}

/// Received and sent bytes at the last sample, and their rates in bit/s.
type Rates = HashMap<String, ([u64; 2], Option<[f64; 2]>)>;

/// Returns the bytes now, and their rates since an earlier sample.
fn rates(now: impl Iterator<Item = (String, [u64; 2])>, before: &Rates, seconds: f64) -> Rates {
    now.map(|(name, bytes)| {
        let rate = before.get(&name).filter(|_| seconds > 0.0).map(|(before, _)| {
            [0, 1].map(|way| bytes[way].saturating_sub(before[way]) as f64 * 8.0 / seconds)
        });
        (name, (bytes, rate))
    })
    .collect()
}

/// Returns what identifies a session.
fn ends(connection: &Connection) -> String {
    format!("{} {}", connection.local, connection.remote)
}

fn bytes_of(service: &Service) -> [u64; 2] {
    ["bytes_in", "bytes_out"].map(|name| service.counters.get(name).copied().unwrap_or(0))
}

impl Samples {
    pub(super) fn new(status: Status) -> Samples {
        let mut samples = Samples {
            status: Status::default(),
            bits: Default::default(),
            cores: None,
            cpu_nanos: None,
            services: Rates::new(),
            connections: Rates::new(),
        };
        samples.add(status, Duration::ZERO);
        samples
    }

    /// Adds a status that was read this long after the previous one.
    pub(super) fn add(&mut self, status: Status, passed: Duration) {
        let seconds = passed.as_secs_f64();
        let sum = |of: fn(&kiban_service::status::Rates) -> f64| {
            status.ports.iter().map(|port| of(&port.rates)).sum::<f64>() as u64
        };
        for (history, now) in self.bits.iter_mut().zip([sum(|it| it.bits_in), sum(|it| it.bits_out)]) {
            history.push_front(now);
            history.truncate(HISTORY);
        }
        let cpu_nanos = tree_cpu_nanos(status.pid);
        let spent = cpu_nanos.zip(self.cpu_nanos).filter(|_| seconds > 0.0);
        self.cores = spent.map(|(now, before)| now.saturating_sub(before) as f64 / 1e9 / seconds);
        self.cpu_nanos = cpu_nanos;
        let services = status.services.iter().map(|service| (service.name.clone(), bytes_of(service)));
        self.services = rates(services, &self.services, seconds);
        let connections = status.connections.iter().map(|one| (ends(one), [one.bytes_in, one.bytes_out]));
        self.connections = rates(connections, &self.connections, seconds);
        self.status = status;
    }

    /// Returns the rates at which a service receives and sends, in bit/s, if they are known.
    pub(super) fn service_bits(&self, name: &str) -> Option<[f64; 2]> {
        self.services.get(name)?.1
    }

    /// Returns the rates at which a session receives and sends, in bit/s, if they are known.
    pub(super) fn connection_bits(&self, connection: &Connection) -> Option<[f64; 2]> {
        self.connections.get(&ends(connection))?.1
    }
}
