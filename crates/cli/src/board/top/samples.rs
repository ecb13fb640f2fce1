//! The samples of a board: the current status, rates, and the history for the graphs.
//!
//! Rates     every rate of a frame is the difference of a counter in the two latest statuses, divided by the
//!           time between them on the board's clock. So the rates of a frame agree with each other, and do
//!           not depend on how long a status takes to arrive.
//! New       a session that was not in the previous status began after it, so its counters began at zero,
//!           like those of a link that was opened again; unless that status did not list all sessions.

use kiban_lab::load::tree_cpu_nanos;
use kiban_service::status::{CONNECTIONS_MAX, Connection, Counters, Service, Shard, Status};
use std::collections::{HashMap, VecDeque};

/// The number of samples in a graph.
const HISTORY: usize = 512;

/// The status of a board, and what can be computed from earlier ones.
#[derive(Default)]
pub(super) struct Samples {
    pub(super) status: Status,
    /// Received and sent bits per second of all ports, the newest first.
    pub(super) bits: [VecDeque<u64>; 2],
    /// CPU time per second, in cores.
    pub(super) cores: Option<f64>,
    cpu_nanos: Option<u64>,
    counts: Counts,
    rates: HashMap<String, [f64; 2]>,
}

/// Received and sent bytes or units.
type Counts = HashMap<String, [u64; 2]>;

fn pair(counters: &Counters, names: [&str; 2]) -> [u64; 2] {
    names.map(|name| counters.get(name).copied().unwrap_or(0))
}

fn counts(status: &Status) -> Counts {
    let mut counts = Counts::new();
    for port in &status.ports {
        let of = |names| pair(&port.link_counters, names);
        counts.insert(port_key(&port.name), of(["bytes_in", "bytes_out"]));
        counts.insert(units_key(&port.name), of(["units_in", "units_out"]));
    }
    for service in &status.services {
        counts.insert(service_key(service), pair(&service.counters, ["bytes_in", "bytes_out"]));
    }
    for one in &status.connections {
        counts.insert(connection_key(one), [one.bytes_in, one.bytes_out]);
    }
    for (number, shard) in status.shards.iter().enumerate() {
        let Shard { units_in, units_out, .. } = *shard;
        counts.insert(shard_key(number), [units_in, units_out]);
    }
    counts
}

pub(super) fn port_key(port: &str) -> String {
    format!("port {port}")
}

fn units_key(port: &str) -> String {
    format!("units {port}")
}

pub(super) fn service_key(service: &Service) -> String {
    format!("service {}", service.name)
}

pub(super) fn connection_key(connection: &Connection) -> String {
    format!("session {} {}", connection.local, connection.remote)
}

pub(super) fn shard_key(number: usize) -> String {
    format!("shard {number}")
}

impl Samples {
    pub(super) fn new(status: Status) -> Samples {
        let mut samples = Samples::default();
        samples.add(status);
        samples
    }

    /// Adds a status.
    pub(super) fn add(&mut self, status: Status) {
        let seconds = status.uptime_seconds - self.status.uptime_seconds;
        // The first status has nothing to be compared with.
        let is_first = self.status.pid != status.pid || self.counts.is_empty();
        let has_rates = !is_first && seconds > 0.0;
        let now = counts(&status);
        let lists_all = self.status.connections.len() < CONNECTIONS_MAX;
        let rate = |(name, now): (&String, &[u64; 2])| {
            let before = self.counts.get(name).copied().or_else(|| lists_all.then_some([0; 2]))?;
            let passed = |way: usize| now[way].checked_sub(before[way]).unwrap_or(now[way]);
            Some((name.clone(), [0, 1].map(|way| passed(way) as f64 / seconds)))
        };
        self.rates = now.iter().filter(|_| has_rates).filter_map(rate).collect();
        let cpu_nanos = tree_cpu_nanos(status.pid);
        let spent = cpu_nanos.zip(self.cpu_nanos).filter(|_| has_rates);
        self.cores = spent.map(|(now, before)| now.saturating_sub(before) as f64 / 1e9 / seconds);
        (self.cpu_nanos, self.counts, self.status) = (cpu_nanos, now, status);
        if has_rates {
            for (way, history) in self.bits.iter_mut().enumerate() {
                let ports = self.status.ports.iter().filter_map(|port| self.rates.get(&port_key(&port.name)));
                history.push_front(ports.map(|rates| rates[way] * 8.0).sum::<f64>() as u64);
                history.truncate(HISTORY);
            }
        }
    }

    fn bits_of(&self, key: &str) -> Option<[f64; 2]> {
        self.rates.get(key).map(|rates| rates.map(|bytes| bytes * 8.0))
    }

    /// Returns the rates at which a port receives and sends, in bit/s, if they are known.
    pub(super) fn port_bits(&self, port: &str) -> Option<[f64; 2]> {
        self.bits_of(&port_key(port))
    }

    /// Returns the packets, frames or cells that a port receives and sends per second, if they are known.
    pub(super) fn port_units(&self, port: &str) -> Option<[f64; 2]> {
        self.rates.get(&units_key(port)).copied()
    }

    /// Returns the rates at which a service receives and sends, in bit/s, if they are known.
    pub(super) fn service_bits(&self, service: &Service) -> Option<[f64; 2]> {
        self.bits_of(&service_key(service))
    }

    /// Returns the rates at which a session receives and sends, in bit/s, if they are known.
    pub(super) fn connection_bits(&self, connection: &Connection) -> Option<[f64; 2]> {
        self.bits_of(&connection_key(connection))
    }

    /// Returns the packets and frames that a shard receives and sends per second, if they are known.
    pub(super) fn shard_units(&self, number: usize) -> Option<[f64; 2]> {
        self.rates.get(&shard_key(number)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiban_service::status::{Port, Rates};

    /// A board with one port and one session, after these seconds, and these bytes through its link and to
    /// its session. The board's own rates belong to another interval.
    fn status(uptime_seconds: f64, link: u64, session: u64) -> Status {
        let rates = Rates { bits_in: 1.0, ..Rates::default() };
        let link_counters = [("bytes_in".to_owned(), link), ("units_in".to_owned(), link / 1000)].into();
        Status {
            pid: u32::MAX,
            uptime_seconds,
            ports: vec![Port { name: "east".into(), rates, link_counters, ..Port::default() }],
            connections: vec![Connection { bytes_in: session, ..Connection::default() }],
            ..Status::default()
        }
    }

    #[test]
    fn all_rates_of_a_frame_are_of_one_interval_of_the_boards_clock() {
        let mut samples = Samples::new(status(10.0, 1_000_000, 900_000));
        let session = Connection::default();
        assert_eq!((samples.port_bits("east"), samples.connection_bits(&session)), (None, None));
        assert!(samples.bits[0].is_empty());
        samples.add(status(14.0, 3_000_000, 2_700_000));
        assert_eq!(samples.port_bits("east"), Some([4e6, 0.0]));
        assert_eq!(samples.port_units("east"), Some([500.0, 0.0]));
        assert_eq!(samples.connection_bits(&session), Some([3.6e6, 0.0]));
        assert_eq!(samples.bits[0], [4_000_000]);
        // The link was opened again, and the session is another one from the same port.
        samples.add(status(15.0, 1000, 100));
        assert_eq!(samples.port_bits("east"), Some([8e3, 0.0]));
        assert_eq!(samples.connection_bits(&session), Some([800.0, 0.0]));
        // No time has passed.
        samples.add(status(15.0, 2000, 200));
        assert_eq!((samples.port_bits("east"), samples.bits[0].len()), (None, 2));
    }

    #[test]
    fn a_session_that_is_not_in_the_previous_status_is_new_if_that_listed_all() {
        let one = |number: usize, bytes_in| Connection {
            remote: format!("10.0.0.2:{number}"),
            bytes_in,
            ..Connection::default()
        };
        for (before, expected) in [(1, Some([8e3, 0.0])), (CONNECTIONS_MAX, None)] {
            let connections = (0..before).map(|number| one(number, 7)).collect();
            let mut samples = Samples::new(Status { connections, ..status(1.0, 0, 0) });
            let new = one(CONNECTIONS_MAX + 1, 1000);
            samples.add(Status { connections: vec![new.clone()], ..status(2.0, 0, 0) });
            assert_eq!(samples.connection_bits(&new), expected);
        }
    }
}
