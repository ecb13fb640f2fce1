//! `kiban lab check` as two users run it: between network namespaces whose path has a fault, or something
//! that only looks like one.
//!
//! Recipes   rules of nft drop, mark or reset packets; a router has a link with a smaller MTU.
//! Skipped   without the right to create namespaces (CAP_SYS_ADMIN, CAP_NET_ADMIN), or without nft.

mod two_hosts;

use serde_json::Value;
use std::process::Command;
use two_hosts::{FAR, Folder, Network, Server, kiban, nft, run};

/// Replaces the rules for packets at a hook of a namespace; without nft, prints a message and returns false.
fn rule(side: &str, hook: &str, rule: &str) -> bool {
    let chain = format!("chain c {{ type filter hook {hook} priority mangle; {rule} }}");
    let made = nft(side, &format!("add table inet t; delete table inet t; table inet t {{ {chain}; }}"));
    if !made {
        println!("skipped: there is no nft");
    }
    made
}

fn ip(arguments: &str) -> bool {
    run(Command::new("ip").args(arguments.split_whitespace()))
}

/// Checks the path from a namespace to a server.
fn check(near: &str, folder: &Folder, server: &Server, more: &[&str]) -> Value {
    let mut command = kiban(Some(near));
    command.args(["lab", "check", &server.at, "--json", "--quiet", "--idle", "1"]).args(more);
    let output = command.args(["--token-file", &folder.path("token")]).output().expect("it was built");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("text: {value:#}"))
}

/// Returns the causes that were found, with their directions.
fn causes(report: &Value) -> Vec<(&str, &str)> {
    let findings = report["findings"].as_array().expect("a list").iter();
    findings.map(|finding| (text(&finding["cause"]), text(&finding["direction"]))).collect()
}

const TO: &str = "to the host";

#[test]
fn a_healthy_path_has_no_fault() {
    let Some(network) = Network::new('h', 1500) else { return };
    let folder = Folder::new("healthy");
    let server = Server::start(Some(&network.far), &folder, &format!("{FAR}:0"), &[]);
    let report = check(&network.near, &folder, &server, &["--strict"]);
    assert!(causes(&report).is_empty(), "{report:#}");
    let verdict = text(&report["verdict"]);
    assert!(verdict.starts_with("no fault found in path MTU, ECN and connections; loss"), "{report:#}");
    assert!(verdict.ends_with(&format!("`kiban lab udp {}` does that", server.at)), "{report:#}");
    assert_eq!(report["mtu"][0]["mtu_bytes"], 1500);
    assert_eq!(report["mtu"][1]["mtu_bytes"], 1500);
    assert_eq!(report["reset"]["failed"], Value::Null);
}

#[test]
fn long_packets_that_vanish_without_a_message_are_a_black_hole() {
    let Some(network) = Network::new('v', 1500) else { return };
    if !rule(&network.far, "prerouting", "ip length > 1300 drop;") {
        return;
    }
    let folder = Folder::new("vanish");
    let server = Server::start(Some(&network.far), &folder, &format!("{FAR}:0"), &[]);
    let report = check(&network.near, &folder, &server, &[]);
    assert_eq!(causes(&report), [("mtu_black_hole", TO)], "{report:#}");
    assert_eq!(report["mtu"][0]["mtu_bytes"], 1300, "{report:#}");
    let because = text(&report["findings"][0]["because"]);
    assert!(because.contains("TCP segments of 1500 bytes vanish as well"), "{because}");
    // Losses that do not depend on the length are no black hole.
    assert!(rule(&network.far, "prerouting", "udp length > 40 numgen inc mod 2 == 0 drop;"));
    let report = check(&network.near, &folder, &server, &[]);
    assert!(causes(&report).is_empty(), "{report:#}");
}

/// Two hosts with a router between them, whose link to the second host has an MTU of 1300.
struct Routed {
    near: String,
    router: String,
    far: String,
}

impl Routed {
    fn new() -> Option<Routed> {
        let name = |side| format!("kiban-{}-m{side}", std::process::id());
        let hosts = Routed { near: name('n'), router: name('r'), far: name('f') };
        let Routed { near, router, far } = &hosts;
        if !ip(&format!("netns add {near}")) {
            println!("skipped: network namespaces need CAP_SYS_ADMIN and iproute2");
            return None;
        }
        let commands = [
            format!("netns add {router}"),
            format!("netns add {far}"),
            format!("-n {near} link add wire type veth peer name first netns {router}"),
            format!("-n {far} link add wire type veth peer name second netns {router}"),
            format!("-n {near} address add 10.77.40.1/24 dev wire"),
            format!("-n {router} address add 10.77.40.254/24 dev first"),
            format!("-n {router} address add 10.77.41.254/24 dev second"),
            format!("-n {far} address add 10.77.41.2/24 dev wire"),
            format!("-n {near} link set wire up"),
            format!("-n {router} link set first up"),
            format!("-n {router} link set second mtu 1300 up"),
            format!("-n {far} link set wire mtu 1300 up"),
            format!("-n {near} route add default via 10.77.40.254"),
            format!("-n {far} route add default via 10.77.41.254"),
            format!("netns exec {router} sysctl -q -w net.ipv4.ip_forward=1"),
        ];
        assert!(commands.iter().all(|command| ip(command)), "who may make a namespace may route in it");
        Some(hosts)
    }
}

impl Drop for Routed {
    fn drop(&mut self) {
        for name in [&self.near, &self.router, &self.far] {
            ip(&format!("netns delete {name}"));
        }
    }
}

#[test]
fn a_small_path_mtu_is_a_black_hole_only_if_the_router_s_message_is_dropped() {
    let Some(hosts) = Routed::new() else { return };
    if !rule(&hosts.router, "postrouting", "icmp type destination-unreachable drop;") {
        return;
    }
    let folder = Folder::new("routed");
    let server = Server::start(Some(&hosts.far), &folder, "10.77.41.2:0", &[]);
    let report = check(&hosts.near, &folder, &server, &[]);
    assert_eq!(causes(&report), [("mtu_black_hole", TO)], "{report:#}");
    // The second host announces an MSS that fits its link.
    let because = text(&report["findings"][0]["because"]);
    assert!(because.contains("TCP is not affected"), "{because}");
    assert!(nft(&hosts.router, "delete table inet t"));
    let report = check(&hosts.near, &folder, &server, &[]);
    assert!(causes(&report).is_empty(), "{report:#}");
    assert_eq!(
        (&report["mtu"][0]["mtu_bytes"], &report["mtu"][0]["known_bytes"]),
        (&1300.into(), &1300.into())
    );
}

#[test]
fn removed_ecn_marks_are_told_from_congestion_and_from_another_dscp() {
    let Some(network) = Network::new('e', 1500) else { return };
    let folder = Folder::new("marks");
    let server = Server::start(Some(&network.far), &folder, &format!("{FAR}:0"), &[]);
    // As a rule does that sets the whole octet.
    if !rule(&network.far, "prerouting", "meta l4proto udp ip ecn set not-ect ip dscp set cs0;") {
        return;
    }
    let report = check(&network.near, &folder, &server, &[]);
    assert_eq!(causes(&report), [("ecn_bleached", TO); 3], "{report:#}");
    assert!(rule(&network.near, "prerouting", "meta l4proto udp ip ecn set not-ect;"));
    assert!(nft(&network.far, "delete table inet t"));
    let report = check(&network.near, &folder, &server, &[]);
    assert_eq!(causes(&report), [("ecn_bleached", "from the host")], "{report:#}");
    assert!(nft(&network.near, "delete table inet t"));
    // A congested router marks some packets, and another rewrites the DSCP.
    let marks = "meta l4proto udp ip dscp set cs0; ip ecn ect0 numgen inc mod 2 == 0 ip ecn set ce;";
    assert!(rule(&network.far, "prerouting", marks));
    let report = check(&network.near, &folder, &server, &[]);
    assert!(causes(&report).is_empty(), "{report:#}");
    assert!(report["ecn"][0]["dscp"] == 0, "{report:#}");
    // Marked packets are dropped.
    assert!(rule(&network.far, "prerouting", "meta l4proto udp ip ecn != not-ect drop;"));
    let report = check(&network.near, &folder, &server, &[]);
    assert_eq!(causes(&report), [("ecn_dropped", TO); 3], "{report:#}");
}

#[test]
fn a_reset_from_a_device_on_the_path_is_told_from_a_connection_that_stalls() {
    let Some(network) = Network::new('r', 1500) else { return };
    let folder = Folder::new("resets");
    let server = Server::start(Some(&network.far), &folder, &format!("{FAR}:0"), &[]);
    let port = server.at.rsplit(':').next().expect("a port");
    // The server's kernel must not send a reply again before the client has seen the reset: the client's
    // kernel would answer with a reset of its own.
    assert!(ip(&format!("-n {} route change 10.77.31.0/24 dev wire src {FAR} rto_min 30s", network.far)));
    // Data connections, but not the control connection, may carry 50 kB.
    let quota = |verdict: &str| format!("tcp dport != {port} quota over 50000 bytes {verdict};");
    if !rule(&network.far, "input", &quota("reject with tcp reset")) {
        return;
    }
    let report = check(&network.near, &folder, &server, &[]);
    assert_eq!(causes(&report), [("forged_reset", "between the hosts")], "{report:#}");
    assert_eq!(report["reset"]["failed"], "bulk", "{report:#}");
    // A device that drops packets instead makes the connection stall, which is no reset.
    assert!(rule(&network.far, "input", &quota("drop")));
    let report = check(&network.near, &folder, &server, &[]);
    assert!(causes(&report).is_empty() && report["reset"]["failed"] == "bulk", "{report:#}");
}
