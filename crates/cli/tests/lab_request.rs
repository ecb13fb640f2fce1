//! `kiban lab request` as a user runs it: web servers and name servers in a network namespace, and a path
//! that is short, long, or loses packets.
//!
//! Recipes   `request/server.py` thinks, writes header and body separately, answers names late, or
//!           not at all; `request/delay.py` is a long path; nft drops SYNs and packets to an address; a token
//!           bucket (tbf) makes transfers slow.
//! Skipped   without the right to create namespaces (CAP_SYS_ADMIN, CAP_NET_ADMIN), Python or nft.

#[allow(dead_code, reason = "no server of kiban is needed")]
mod two_hosts;

use serde_json::Value;
use std::process::{Command, Output, Stdio};
use two_hosts::script::{Script, delayed};
use two_hosts::{FAR, Folder, Network, kiban, run};

fn ip(arguments: &str) -> bool {
    run(Command::new("ip").args(arguments.split_whitespace()))
}

/// Two namespaces, and the servers in the second.
struct Place {
    folder: Folder,
    // The script ends before its namespace.
    _servers: Script,
    network: Network,
}

impl Place {
    /// Creates the place; `None` if the test has to be skipped.
    fn new(letter: char, name: &str) -> Option<Place> {
        let network = Network::new(letter, 1500)?;
        Place::with(network, name)
    }

    fn with(network: Network, name: &str) -> Option<Place> {
        for last in 3..=6 {
            let far = &network.far;
            assert!(ip(&format!("-n {far} address add 10.77.31.{last}/24 dev wire")), "a second address");
        }
        let folder = Folder::new(name);
        let usual = || vec![FAR.to_owned(), "web.lab".to_owned()];
        let more = (0..1500).map(|number| format!("host{number}.web.lab"));
        let certificates = [("cert", usual()), ("long", usual().into_iter().chain(more).collect())];
        let authorities: String = certificates
            .into_iter()
            .map(|(name, names)| {
                let made = rcgen::generate_simple_self_signed(names).expect("names");
                for (end, text) in [("pem", made.cert.pem()), ("key", made.signing_key.serialize_pem())] {
                    std::fs::write(folder.path(&format!("{name}.{end}")), text).expect("there is disk space");
                }
                made.cert.pem()
            })
            .collect();
        std::fs::write(folder.path("authorities.pem"), authorities).expect("there is disk space");
        let servers = Script::start(&network.far, "server.py", &[folder.0.to_str().expect("a plain path")])?;
        Some(Place { folder, _servers: servers, network })
    }

    /// Requests with the lines of a resolv.conf.
    fn request(&self, url: &str, resolv_conf: &str, more: &[&str]) -> Output {
        std::fs::write(self.folder.path("resolv.conf"), resolv_conf).expect("there is disk space");
        let mut command = kiban(Some(&self.network.near));
        command.args(["lab", "request", url, "--json", "--quiet", "--count", "3", "--pause", "0"]);
        command.args([
            "--resolv-conf",
            &self.folder.path("resolv.conf"),
            "--ca",
            &self.folder.path("authorities.pem"),
        ]);
        command.args(more).output().expect("the program was built")
    }

    fn report(&self, url: &str, resolv_conf: &str, more: &[&str]) -> Value {
        let output = self.request(url, resolv_conf, more);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }
}

fn cause(report: &Value) -> &str {
    report["verdict"]["cause"].as_str().unwrap_or("none")
}

fn servers(last: &[u8], options: &str) -> String {
    let lines: String = last.iter().map(|last| format!("nameserver 10.77.31.{last}\n")).collect();
    format!("{lines}options timeout:1 {options}\n")
}

#[test]
fn the_share_of_look_ups_has_the_cause_that_the_name_servers_show() {
    let Some(place) = Place::new('n', "names") else { return };
    for (what, resolv_conf, expected) in [
        ("a silent first server", servers(&[3, 2], ""), "name_server_silent"),
        ("a slow server is not silent", servers(&[4], ""), "name_server_slow"),
        ("a first server that fails", servers(&[6, 2], ""), "name_server_fails"),
        ("a server without answers for IPv6", servers(&[5], ""), "name_server_half_silent"),
        ("a search list", format!("{}search a.no.lab b.no.lab\n", servers(&[2], "ndots:5")), "search_list"),
    ] {
        let report = place.report("http://web.lab:8001/", &resolv_conf, &[]);
        assert_eq!(cause(&report), expected, "{what}: {report:#}");
        assert_eq!(report["verdict"]["part"], "DNS", "{what}");
        assert_eq!((&report["requests"][0], &report["requests"][1]), (&3.into(), &3.into()), "{what}");
        let kept = report["kept_connection"].as_array().expect("a list");
        assert!(kept.iter().all(|part| part["part"] != "DNS"), "{what}: {report:#}");
    }
    // An address needs no look-up, whatever the name servers do.
    let report = place.report(&format!("http://{FAR}:8002/"), &servers(&[3], ""), &[]);
    assert_eq!(cause(&report), "server_think_time", "{report:#}");
    let output = place.request("http://absent.lab:8001/", &servers(&[2], ""), &[]);
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && why.contains("the name does not exist"), "{why}");
}

#[test]
fn a_server_that_takes_long_is_told_from_the_path_and_from_tls() {
    let Some(place) = Place::new('t', "think") else { return };
    let at = |scheme: &str, port: u16| format!("{scheme}://{FAR}:{port}/");
    let report = place.report(&at("https", 8444), "", &[]);
    assert_eq!((cause(&report), &report["verdict"]["part"]), ("tls_server", &"TLS".into()), "{report:#}");
    // The servers start a handshake at once, so none of its waits is theirs.
    let report = place.report(&at("https", 8443), "", &[]);
    assert!(cause(&report) != "tls_server" || report["new_connection"][1]["p50_ms"].as_f64() < Some(100.0));
    assert_eq!(report["tls"], "TLS 1.3", "{report:#}");
    let report = place.report(&at("http", 8002), "", &[]);
    assert_eq!(cause(&report), "server_think_time", "{report:#}");
    // A server that closes each connection.
    let report = place.report(&at("http", 8004), "", &[]);
    assert_eq!(report["requests"][1], 0, "{report:#}");
    // A transfer that the path limits has figures, but its cause is not shown.
    if !Network::bucket(&place.network.far, "40mbit") {
        println!("skipped: this kernel has no tbf");
        return;
    }
    let report = place.report(&at("http", 8003), "", &[]);
    assert_eq!((&report["verdict"]["part"], cause(&report)), (&"transfer".into(), "none"), "{report:#}");
    let output = place.request(&at("https", 8001), "", &[]);
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && why.contains("the TLS handshake failed"), "{why}");
}

#[test]
fn a_queue_that_another_transfer_fills_is_told_from_distance_and_losses() {
    let Some(place) = Place::new('q', "queue") else { return };
    let bucket = "qdisc add dev wire root tbf rate 4mbit burst 16kb latency 3s";
    let tc = run(Command::new("tc").args(["-n", &place.network.far]).args(bucket.split(' ')));
    if !tc {
        println!("skipped: this kernel has no tbf");
        return;
    }
    // 2 MB take four seconds, most of which are queued.
    let mut command = kiban(Some(&place.network.near));
    command.args([
        "lab",
        "request",
        &format!("http://{FAR}:8003/"),
        "--quiet",
        "--count",
        "20",
        "--pause",
        "0",
    ]);
    let mut other = command.stdout(Stdio::null()).spawn().expect("the program was built");
    // The first requests may find the queue empty.
    let requests = || place.report(&format!("http://{FAR}:8001/"), "", &[]);
    let report = std::iter::repeat_with(requests).take(5).find(|report| cause(report) == "queue");
    other.kill().expect("it is a child of this process");
    other.wait().expect("it is a child of this process");
    let report = report.expect("the queue is named");
    for (part, begin) in [("words", "packets wait in a queue"), ("advice", "run `kiban lab latency HOST`")] {
        let text = report["verdict"][part].as_str();
        assert!(text.is_some_and(|text| text.starts_with(begin)), "{report:#}");
    }
}

#[test]
fn a_response_in_two_writes_waits_on_a_kept_connection_only_with_nagle() {
    let Some(place) = Place::new('w', "writes") else { return };
    let at = |port: u16| format!("http://{FAR}:{port}/");
    // Python writes header and body separately, and does not set TCP_NODELAY.
    let report = place.report(&at(8001), "", &[]);
    assert_eq!(cause(&report), "nagle_delayed_ack", "{report:#}");
    assert_eq!(report["verdict"]["part"], "transfer", "{report:#}");
    // It looks the same, but the server's program waits.
    let report = place.report(&at(8005), "", &[]);
    assert_ne!(cause(&report), "nagle_delayed_ack", "{report:#}");
    let words = report["verdict"]["words"].as_str().expect("a verdict");
    assert!(words.contains("the server pauses within its response"), "{report:#}");
}

#[test]
fn connections_that_are_not_accepted_at_once_have_their_cause() {
    let Some(place) = Place::new('c', "connect") else { return };
    let rule = |rule: &str| {
        let script = format!(
            "add table inet t; delete table inet t; table inet t {{ chain c {{ type filter hook prerouting priority \
             0; {rule} }}; }}"
        );
        run(Command::new("ip").args(["netns", "exec", &place.network.far, "nft", &script]))
    };
    // The first SYN of each connection is dropped; the second arrives after a second.
    if !rule("tcp dport 8001 tcp flags & (syn | ack) == syn numgen inc mod 2 == 0 drop;") {
        println!("skipped: there is no nft");
        return;
    }
    let report = place.report(&format!("http://{FAR}:8001/"), "", &[]);
    assert_eq!(cause(&report), "syn_lost", "{report:#}");
    // The first of two addresses does not answer.
    assert!(ip(&format!("-n {} address add 10.77.31.9/24 dev wire", place.network.far)));
    assert!(rule("ip daddr 10.77.31.9 tcp dport 8001 drop;"));
    let report = place.report("http://two.lab:8001/", &servers(&[2], ""), &["--timeout", "1"]);
    assert_eq!(cause(&report), "address_silent", "{report:#}");
}

#[test]
fn a_long_path_is_told_from_a_server_that_thinks() {
    let Some((_path, network)) = delayed('p', 40) else { return };
    let Some(place) = Place::with(network, "path") else { return };
    for (url, expected) in [
        (format!("http://{FAR}:8001/"), "round_trips"),
        (format!("https://{FAR}:8443/"), "round_trips"),
        (format!("https://{FAR}:8445/"), "tls_round_trips"),
        (format!("http://{FAR}:8002/"), "server_think_time"),
    ] {
        let report = place.report(&url, "", &[]);
        assert_eq!(cause(&report), expected, "{url}: {report:#}");
        assert!(report["round_trip"]["min_ms"].as_f64().is_some_and(|ms| ms >= 80.0), "{report:#}");
    }
}
