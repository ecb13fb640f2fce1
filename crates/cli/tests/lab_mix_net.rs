//! `kiban lab mix --to` as two users run it: over the loopback interface, and between two network namespaces
//! connected through a token bucket.
//!
//! Goal      traffic within the rate arrives completely; excess traffic is reported as lost or late; each
//!           path is policed by its own contract; if a peer dies, only the results that it had not yet
//!           reported are missing.
//! Skipped   the tests in namespaces are skipped without the right to create namespaces (CAP_SYS_ADMIN,
//!           CAP_NET_ADMIN) or without tbf.

mod two_hosts;

use serde_json::Value;
use std::process::{Command, Output, Stdio};
use two_hosts::{FAR, Folder, Network, Server, kiban};

/// Writes a plan with three sites and these paths and flows.
fn plan(folder: &Folder, seconds: f64, paths: &str, flows: &str) -> String {
    let sites: String =
        ["here", "there", "yonder"].map(|name| format!("[[site]]\nname = \"{name}\"\n")).concat();
    let text = format!("title = \"a story\"\nseconds = {seconds}\nsample_ms = 500\n{sites}{paths}{flows}");
    std::fs::write(folder.0.join("plan.toml"), text).expect("there is disk space");
    folder.path("plan.toml")
}

fn path(from: &str, to: &str, mbps: f64, cdvt_us: f64, more: &str) -> String {
    format!("[[pvc]]\nfrom = \"{from}\"\nto = \"{to}\"\nmbps = {mbps}\ncdvt_us = {cdvt_us}\n{more}")
}

fn flow(name: &str, kind: &str, to: &str, more: &str) -> String {
    format!("[[flow]]\nname = \"{name}\"\nkind = \"{kind}\"\nfrom = \"here\"\nto = \"{to}\"\n{more}")
}

/// Creates two hosts with a token bucket at the near one; returns `None` without the necessary privileges.
fn network(letter: char, rate: &str) -> Option<Network> {
    let network = Network::new(letter, 1500)?;
    if !Network::bucket(&network.near, rate) {
        println!("skipped: this kernel has no tbf");
        return None;
    }
    Some(network)
}

fn mix(namespace: Option<&str>, folder: &Folder, plan: &str, at: &str, more: &[&str]) -> Command {
    let mut command = kiban(namespace);
    command.args(["lab", "mix", plan, "--from", "here", "--to", at, "--token-file", &folder.path("token")]);
    command.args(more);
    command
}

fn outcome(mut command: Command) -> Value {
    let output = command.output().expect("the program was built");
    assert!(output.status.success(), "{output:?}");
    json(&output)
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn named<'a>(outcome: &'a Value, name: &str) -> &'a Value {
    let flows = outcome["flows"].as_array().expect("a list");
    flows.iter().find(|flow| flow["name"] == name).unwrap_or_else(|| panic!("{name}: {outcome:#}"))
}

fn figure(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("{name}: {value:#}"))
}

#[test]
fn every_kind_of_flow_crosses_loopback_as_it_crosses_the_virtual_network() {
    let folder = Folder::new("kinds");
    let paths = path("here", "there", 100.0, 1e6, "") + &path("there", "here", 100.0, 1e6, "");
    let flows = flow("mpeg2", "mpeg2", "there", "fec = \"short\"\nclock_ppm = 40\n")
        + &flow("cbr", "constant", "there", "mbps = 2.048\n")
        + &flow("jpeg", "jpeg", "there", "ranges = [[2.1, 5.5]]\nshape_mbps = 8\n")
        + &flow("audio", "audio", "there", "copies = 2\n")
        + &flow("data", "data", "there", "")
        + &flow("bulk", "bulk", "there", "shape_mbps = 20\n");
    let plan = plan(&folder, 3.0, &paths, &flows);
    let server = Server::start(None, &folder, "127.0.0.1:0", &[]);
    let real = outcome(mix(None, &folder, &plan, &server.at, &["--json"]));
    let output = kiban(None).args(["lab", "mix", &plan, "--json"]).output().expect("the program was built");
    let virtual_ = json(&output);
    assert_eq!((&real["network"]["kind"], &virtual_["network"]["kind"]), (&"real".into(), &"virtual".into()));
    for name in ["mpeg2", "cbr", "jpeg", "audio", "data"] {
        let (one, other) = (named(&real, name), named(&virtual_, name));
        // The same sources with the same seed must send the same cells.
        for figure in ["cells", "units"] {
            assert_eq!(one[figure], other[figure], "{name} {figure}");
        }
        assert_eq!((&one["cells_lost"], &one["cells_strange"]), (&0.into(), &0.into()), "{one:#}");
        assert_eq!(one["units_lost"], 0, "{one:#}");
        assert_eq!(one["samples"].as_array().map(Vec::len), Some(6));
        assert!(figure(one, "variation_us_p99") >= figure(one, "variation_us_p50"));
    }
    let bulk = named(&real, "bulk");
    // The sender never exceeds its configured rate; how close it comes depends on the machine.
    assert!((1.0..21.0).contains(&figure(bulk, "goodput_mbps")), "{bulk:#}");
    assert!(bulk["variation_us_p99"].is_f64() && bulk["round_us_p50"].is_f64(), "{bulk:#}");
    let told = &real["real"];
    assert!(figure(told, "late_us_max") >= figure(told, "late_us_p99"));
    assert_eq!((&told["datagrams_lost"], &told["ended_early"]), (&0.into(), &Value::Null));
    let table =
        mix(None, &folder, &plan, &server.at, &["--seconds", "1"]).output().expect("the program was built");
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.contains("Real network: ") && table.contains("no delay includes this lateness"), "{table}");
}

#[test]
fn a_mix_within_the_rate_loses_nothing_and_one_above_it_shows_loss_and_delay() {
    let Some(network) = network('r', "20mbit") else { return };
    let folder = Folder::new("rate");
    let server =
        Server::start(Some(&network.far), &folder, &format!("{FAR}:0"), &["--allow", "10.77.31.0/24"]);
    let paths = path("here", "there", 200.0, 1e6, "police = false\n");
    let mut variations = Vec::new();
    for mbps in [4.0, 40.0] {
        let flows = flow("cbr", "constant", "there", &format!("mbps = {mbps}\n"))
            + &flow("audio", "audio", "there", "");
        let plan = plan(&folder, 4.0, &paths, &flows);
        let made = outcome(mix(Some(&network.near), &folder, &plan, &server.at, &["--json"]));
        let cbr = named(&made, "cbr");
        let (cells, lost) = (figure(cbr, "cells"), figure(cbr, "cells_lost"));
        variations.push(figure(cbr, "variation_us_p99"));
        if mbps < 20.0 {
            assert_eq!((lost, &named(&made, "audio")["units_lost"]), (0.0, &0.into()), "{made:#}");
        } else {
            // 40 Mbit/s of user data produce 50 Mbit/s of datagrams. At most 20 Mbit/s of these pass the
            // token bucket, on any machine.
            assert!(lost > 0.4 * cells, "{made:#}");
            assert!(figure(cbr, "carried_mbps") < 20.0, "{made:#}");
            let samples: Vec<f64> = cbr["samples"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|sample| figure(sample, "cells_lost"))
                .collect();
            assert!(samples.iter().filter(|lost| **lost > 0.0).count() >= 4, "{samples:?}");
        }
    }
    // The token bucket's queue, which holds 50 ms of traffic, stays full.
    assert!(variations[1] > 20_000.0 && variations[1] > 2.0 * variations[0], "{variations:?}");
}

#[test]
fn each_path_is_policed_and_only_the_nonconforming_flow_loses_cells() {
    let Some(network) = network('p', "100mbit") else { return };
    let folder = Folder::new("contract");
    let server = Server::start(Some(&network.far), &folder, &format!("{FAR}:0"), &[]);
    let flows = flow("keeps", "constant", "there", "mbps = 4\n")
        + &flow("breaks", "constant", "yonder", "mbps = 4\n");
    // 4 Mbit/s of user data produce 4.51 Mbit/s of cells. The tolerance of half a second is longer than the
    // delays on a busy machine.
    for (more, is_lost) in [("", true), ("tag = true\n", false), ("shape = true\n", false)] {
        let paths = path("here", "there", 6.0, 500_000.0, "") + &path("here", "yonder", 2.0, 500_000.0, more);
        let plan = plan(&folder, 4.0, &paths, &flows);
        let made = outcome(mix(Some(&network.near), &folder, &plan, &server.at, &["--json"]));
        let (keeps, breaks) = (named(&made, "keeps"), named(&made, "breaks"));
        assert_eq!((&keeps["cells_lost"], &keeps["cells_policed"]), (&0.into(), &0.into()), "{made:#}");
        let (cells, policed) = (figure(breaks, "cells"), figure(breaks, "cells_policed"));
        // Cells that a shaped path cannot send in time are dropped when the path's queue is full.
        let full = figure(&made["network"], "cells_dropped_full");
        assert_eq!(figure(breaks, "cells_lost"), policed + full, "{made:#}");
        assert_eq!(full > 0.0, more.starts_with("shape"), "{made:#}");
        if is_lost {
            // 2 of the 4.51 Mbit/s conform. In addition, the tolerance admits half a second's cells once.
            let passes = (2.0 * 4.0 + 2.0 * 0.5) * 1e6 / 424.0;
            assert!((cells - policed - passes).abs() < 0.05 * cells, "{cells} {policed} {passes}");
        } else {
            assert_eq!(policed, 0.0, "{made:#}");
        }
        let tagged = figure(&made["network"], "cells_tagged");
        assert_eq!(tagged > 0.0, more.starts_with("tag"), "{made:#}");
    }
}

/// Returns the number of datagrams sent by all processes on this host.
fn datagrams_sent() -> u64 {
    let text = std::fs::read_to_string("/proc/net/snmp").expect("Linux says it");
    let mut lines = text.lines().filter(|line| line.starts_with("Udp:"));
    let (names, counts) = (lines.next().expect("names"), lines.next().expect("counts"));
    let place = names.split(' ').position(|name| name == "OutDatagrams").expect("it counts them");
    counts.split(' ').nth(place).and_then(|count| count.parse().ok()).expect("a count")
}

#[test]
fn the_outcome_of_a_dead_peer_covers_its_last_report() {
    let folder = Folder::new("death");
    let plan = plan(
        &folder,
        60.0,
        &path("here", "there", 100.0, 1e6, ""),
        &flow("cbr", "constant", "there", "mbps = 1\n"),
    );
    let server = Server::start(None, &folder, "127.0.0.1:0", &[]);
    let before = datagrams_sent();
    let mut command = mix(None, &folder, &plan, &server.at, &["--json"]);
    let mut client =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program was built");
    // Wait until it has been sending for a while. At 2660 cells per second, a datagram holds about two cells.
    let clock = kiban_os::Clock::new();
    while datagrams_sent() < before + 1500 {
        assert!(clock.now().as_secs_f64() < 50.0, "it sends");
        assert!(client.try_wait().expect("a child").is_none(), "it runs for a minute");
        kiban_measure::pause::pace(std::time::Duration::from_millis(20));
    }
    drop(server);
    let output = client.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let made = json(&output);
    let why = made["real"]["ended_early"].as_str().expect("it says why");
    assert!(why.contains("the server is gone"), "{why}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("the server is gone"), "{output:?}");
    let cbr = named(&made, "cbr");
    assert!(figure(&made, "seconds") < 59.0 && figure(cbr, "cells") > 100.0, "{made:#}");
}

#[test]
fn impossible_mixes_are_refused_before_anything_is_sent() {
    let folder = Folder::new("impossible");
    let paths = path("here", "there", 100.0, 1e6, "");
    let plan = plan(&folder, 5.0, &paths, &flow("cbr", "constant", "there", "mbps = 1\n"));
    let server = Server::start(None, &folder, "127.0.0.1:0", &["--trial", "2"]);
    let says = |mut command: Command, words: &str| {
        let output = command.output().expect("the program was built");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && told.contains(words), "'{words}': {output:?}");
        assert!(output.stdout.is_empty());
    };
    says(
        mix(None, &folder, &plan, &server.at, &[]),
        "too many milliseconds in a trial: 5000, the server allows 2000",
    );
    let mut command = kiban(None);
    command.args(["lab", "mix", &plan, "--to", &server.at, "--token-file", &folder.path("token")]);
    says(command, "choose this host's site with --from (here, there, yonder)");
    let mut command = kiban(None);
    command.args([
        "lab",
        "mix",
        &plan,
        "--from",
        "there",
        "--to",
        &server.at,
        "--token-file",
        &folder.path("token"),
    ]);
    says(command, "no flow of the plan leaves 'there'");
    std::fs::write(folder.0.join("token"), "quite another token").expect("there is room");
    says(mix(None, &folder, &plan, &server.at, &[]), "wrong token");
}
