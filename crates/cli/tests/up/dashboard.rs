//! The Grafana dashboard `examples/service/grafana.json`: Debian's Prometheus answers the query of every
//! panel with the metrics of a running board.
//!
//! Needs   `scripts/prometheus`, which `make test` runs.

use crate::common::{ECHO, LONG, PORT, TestDir, connect, echo, enter, run, spawn};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const DASHBOARD: &str = include_str!("../../../../examples/service/grafana.json");
const METRICS: &str = "[metrics]\nlisten = \"127.0.0.1:9464\"\n";
const SCRAPES: &str = "scrape_configs: [{job_name: kiban, scrape_interval: 1s, \
    static_configs: [{targets: ['127.0.0.1:9464']}]}]\n";

/// A server that is ended when it is dropped.
struct Prometheus(std::process::Child);

impl Prometheus {
    /// Starts a server that scrapes the board every second.
    fn start(dir: &TestDir) -> Prometheus {
        let program = std::env::var_os("KIBAN_PROMETHEUS").map_or_else(|| "prometheus".into(), PathBuf::from);
        let config = dir.write("prometheus.yml", SCRAPES);
        let log = std::fs::File::create(dir.0.join("prometheus.log")).expect("there is disk space");
        let mut command = Command::new(program);
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", dir.0.join("data").display()));
        command.arg("--web.listen-address=127.0.0.1:9090").stdout(Stdio::null()).stderr(log);
        Prometheus(spawn(command))
    }

    /// Returns the answer to a query: a list of time series with their values. Fails if the query is invalid.
    fn ask(query: &str) -> Vec<Value> {
        let query = format!("query={query}");
        let asked = ["-sS", "-G", "--data-urlencode", &query, "http://127.0.0.1:9090/api/v1/query"];
        let output = run("curl", &asked);
        // Until the server listens, the connection is refused.
        let Ok(answer) = serde_json::from_slice::<Value>(&output.stdout) else { return Vec::new() };
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].as_array().cloned().unwrap_or_default()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn prometheus_answers_every_query_of_the_dashboard() {
    if !enter() {
        return;
    }
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("a list");
    assert!(panels.len() > 10, "{} panels", panels.len());

    assert!(run("ip", &["link", "set", "lo", "up"]).status.success());
    let dir = TestDir::new("dashboard");
    let _board = dir.up(&format!("{PORT}{ECHO}{METRICS}"));
    let mut session = connect("10.9.0.2:7");
    echo(&mut session, b"hello");
    let _prometheus = Prometheus::start(&dir);
    let clock = kiban_os::Clock::new();
    for panel in panels {
        for target in panel["targets"].as_array().expect("a list") {
            let query = target["expr"].as_str().expect("a query");
            // Grafana replaces these variables.
            let query = query.replace("$board", "lab").replace("$__rate_interval", "1m");
            let series = loop {
                let series = Prometheus::ask(&query);
                if !series.is_empty() {
                    break series;
                }
                let log = || std::fs::read_to_string(dir.0.join("prometheus.log")).unwrap_or_default();
                assert!(
                    clock.now().as_secs_f64() < 3.0 * LONG.as_secs_f64(),
                    "{query} has no result\n{}",
                    log()
                );
                echo(&mut session, b"more");
            };
            // The legend tells the series apart by labels that they have.
            let legend = target["legendFormat"].as_str().expect("a legend");
            for label in legend.split("{{").skip(1).filter_map(|rest| rest.split("}}").next()) {
                assert!(
                    series.iter().all(|one| one["metric"][label].is_string()),
                    "{query}: {label}: {series:?}"
                );
            }
        }
    }
    let links = Prometheus::ask("sum(kiban_link_up{board=~\"lab\"})");
    assert_eq!(links[0]["value"][1], "1", "{links:?}");
}

#[test]
fn no_panels_of_the_dashboard_overlap() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let places: Vec<[i64; 4]> = dashboard["panels"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|panel| ["x", "y", "w", "h"].map(|name| panel["gridPos"][name].as_i64().expect("a number")))
        .collect();
    for (at, &[x, y, w, h]) in places.iter().enumerate() {
        assert!(x >= 0 && x + w <= 24, "Grafana's grid has 24 columns");
        for &[other_x, other_y, other_w, other_h] in &places[..at] {
            let is_apart =
                x >= other_x + other_w || other_x >= x + w || y >= other_y + other_h || other_y >= y + h;
            assert!(is_apart, "panel {at} at {x}, {y}");
        }
    }
}
