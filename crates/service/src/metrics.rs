//! A board's metrics in the Prometheus text format (version 0.0.4).
//!
//! Names            `kiban_FAMILY_NAME_total` for counters, `kiban_…` with a unit for gauges.
//! Labels           `board`; also `port`, `service`, `state`, `pool`, `pid` and `cause`, if there may be
//!                  several.

use crate::status::{Counters, Status, Use};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The content type of the HTTP response.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A metric: its values, by label.
struct Metric {
    help: String,
    kind: &'static str,
    values: Vec<(String, f64)>,
}

/// All metrics, by name; the format requires all values of a metric to be consecutive.
#[derive(Default)]
struct Metrics(BTreeMap<String, Metric>);

impl Metrics {
    fn put(&mut self, kind: &'static str, name: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let metric = self.0.entry(name.to_owned()).or_insert_with(|| Metric {
            help: help.to_owned(),
            kind,
            values: Vec::new(),
        });
        metric.values.push((labels.join(","), value));
    }

    fn gauge(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        self.put("gauge", name, help, labels, value);
    }

    fn counters(&mut self, family: &str, of: &str, labels: &[(&str, &str)], counters: &Counters) {
        for (name, value) in counters {
            let help = format!("{}: {}", of, name.replace('_', " "));
            // Prometheus names end with the unit and `total`: `bytes_in` becomes `in_bytes`.
            let name = match name.strip_prefix("bytes_") {
                Some(direction) => format!("{direction}_bytes"),
                None => name.clone(),
            };
            self.put("counter", &format!("kiban_{family}_{name}_total"), &help, labels, *value as f64);
        }
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Returns the metrics of a board as text.
pub fn text(status: &Status) -> String {
    let mut metrics = Metrics::default();
    let board = ("board", status.name.as_str());
    metrics.gauge("kiban_info", "name and version of the board", &[board, ("version", &status.version)], 1.0);
    metrics.gauge("kiban_uptime_seconds", "seconds since the board started", &[board], status.uptime_seconds);
    metrics.put(
        "counter",
        "kiban_reloads_total",
        "successful reloads of the configuration",
        &[board],
        status.reloads as f64,
    );
    for (pool, Use { capacity, used }) in
        [("transmit", status.memory.transmit_bytes), ("receive", status.memory.receive_bytes)]
    {
        let labels = [board, ("pool", pool)];
        metrics.gauge("kiban_memory_capacity_bytes", "size of the packet memory", &labels, capacity as f64);
        metrics.gauge("kiban_memory_used_bytes", "packet memory in use", &labels, used as f64);
    }
    let pdus = status.memory.pdus;
    metrics.gauge("kiban_memory_pdus_capacity", "number of PDUs allocated", &[board], pdus.capacity as f64);
    metrics.gauge("kiban_memory_pdus_used", "PDUs in use", &[board], pdus.used as f64);
    let all: u64 = status.sessions.values().sum();
    metrics.gauge("kiban_tcp_sessions", "TCP sessions in all states", &[board], all as f64);
    for (state, count) in &status.sessions {
        let labels = [board, ("state", state.as_str())];
        metrics.gauge("kiban_tcp_sessions_by_state", "TCP sessions by state", &labels, *count as f64);
    }
    for (family, counters) in &status.counters {
        metrics.counters(family, family, &[board], counters);
    }
    for port in &status.ports {
        let labels = [board, ("port", port.name.as_str())];
        let is_up = if port.state == "up" { 1.0 } else { 0.0 };
        metrics.gauge("kiban_link_up", "1 if the link is up", &labels, is_up);
        metrics.gauge(
            "kiban_port_queue_units",
            "packets or frames queued for the link",
            &labels,
            port.waiting as f64,
        );
        metrics.gauge("kiban_port_mtu_bytes", "MTU of the port", &labels, port.mtu_bytes as f64);
        metrics.put(
            "counter",
            "kiban_link_losses_total",
            "number of times the link was lost",
            &labels,
            port.losses as f64,
        );
        if let Some(dhcp) = &port.dhcp {
            let is_bound = if dhcp.lease.is_some() { 1.0 } else { 0.0 };
            metrics.gauge("kiban_dhcp_bound", "1 if the port has a leased address", &labels, is_bound);
        }
        for (cause, lost) in &port.lost {
            let labels = [board, ("port", port.name.as_str()), ("cause", cause.as_str())];
            let help = "packets, frames or cells lost, by cause";
            metrics.put("counter", "kiban_port_lost_total", help, &labels, *lost as f64);
        }
        metrics.counters("link", "link", &labels, &port.link_counters);
        for (family, counters) in &port.counters {
            metrics.counters(family, family, &labels, counters);
        }
    }
    for circuit in &status.circuits {
        let labels = [board, ("port", circuit.port.as_str()), ("vc", circuit.vc.as_str())];
        let is_known = if circuit.peer.is_some() { 1.0 } else { 0.0 };
        metrics.gauge("kiban_circuit_peer_known", "1 if the address of the peer is known", &labels, is_known);
    }
    for service in &status.services {
        let labels = [board, ("service", service.name.as_str()), ("kind", service.kind.as_str())];
        metrics.gauge(
            "kiban_service_sessions",
            "open sessions of the service",
            &labels,
            service.sessions as f64,
        );
        metrics.gauge(
            "kiban_service_sessions_max",
            "limit of concurrent sessions",
            &labels,
            service.sessions_max as f64,
        );
        metrics.counters("service", "service", &labels, &service.counters);
        for program in &service.programs {
            let (pid, client) = (program.pid.to_string(), program.client.to_string());
            // A process may be attached twice, and time series must be distinct.
            let labels = [
                board,
                ("service", service.name.as_str()),
                ("pid", pid.as_str()),
                ("client", client.as_str()),
            ];
            let mut gauge = |name: &str, help: &str, value: u64| {
                metrics.gauge(&format!("kiban_rdma_program_{name}"), help, &labels, value as f64);
            };
            gauge("queue_pairs", "queue pairs of a program that uses the RDMA NIC", program.queue_pairs);
            gauge("shared_bytes", "memory shared with the program", program.shared_bytes);
            gauge("notices", "notices that wait until the program reads others", program.notices);
            let of = "program that uses the RDMA NIC";
            metrics.counters("rdma_program", of, &labels, &program.counters);
        }
    }
    let mut text = String::new();
    for (name, Metric { help, kind, values }) in metrics.0 {
        let _ = writeln!(text, "# HELP {name} {}", help.replace('\\', "\\\\").replace('\n', "\\n"));
        let _ = writeln!(text, "# TYPE {name} {kind}");
        for (labels, value) in values {
            let _ = writeln!(text, "{name}{{{labels}}} {value}");
        }
    }
    text
}
