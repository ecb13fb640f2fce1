//! `kiban lab serve`, `sweep`, `delay` and `trace` as two users run them: on the kernel's own TCP, in two
//! network namespaces.
//!
//! Goal      with the pattern write, write, read, some cells of the throughput map are slow. The sweep finds
//!           them, names the cause of each, and suggests a remedy that makes them fast.
//! Network   a veth pair with a given MTU, and a token bucket of 135 Mbit/s in each direction. The tests
//!           create and remove it; without the right to do so (CAP_SYS_ADMIN, CAP_NET_ADMIN), they are
//!           skipped.

mod browser;
mod two_hosts;

use browser::{are_sound, browsed, is_sound};
use kiban_measure::pause::pace;
use kiban_os::Clock;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use two_hosts::script::delayed;
use two_hosts::{FAR, Folder, Network, Server, TOKEN, kiban, run};

/// Creates two hosts with a token bucket of 135 Mbit/s in each direction.
fn network(letter: char, mtu: u32) -> Option<Network> {
    let network = Network::new(letter, mtu)?;
    if ![&network.near, &network.far].into_iter().all(|side| Network::bucket(side, "135mbit")) {
        println!("without a token bucket: this kernel has no tbf; the wire is as fast as memory");
    }
    Some(network)
}

/// Runs a `kiban lab` command that requires the token.
fn lab(namespace: Option<&str>, folder: &Folder, arguments: &[&str]) -> Output {
    let mut command = kiban(namespace);
    command.arg("lab").args(arguments).args(["--token-file", &folder.path("token")]);
    command.output().expect("the program was built")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Options for a sweep that may run on a busy machine.
const UNGUARDED: [&str; 5] = ["--json", "--quiet", "--foreign-cores", "100", "--seconds"];

/// Returns the cells of a map as (buffer, message, cell).
fn cells(map: &Value) -> Vec<(u64, u64, Value)> {
    let list = |name: &str| map[name].as_array().expect("a list").clone();
    let numbers =
        |name: &str| -> Vec<u64> { list(name).iter().map(|n| n.as_u64().expect("a count")).collect() };
    let (buffers, messages) = (numbers("buffers"), numbers("messages"));
    let mut cells = Vec::new();
    for (buffer, row) in buffers.iter().zip(list("cells")) {
        for (message, cell) in messages.iter().zip(row.as_array().expect("a row")) {
            cells.push((*buffer, *message, cell.clone()));
        }
    }
    cells
}

/// The number of runs of which one must be undisturbed.
const RUNS_MAX: usize = 5;

/// The remedies against Nagle's algorithm, by words of the advice.
const REMEDIES: [&str; 2] = ["TCP_NODELAY", "header and body with one call"];

/// Returns the advice that contains the words.
fn advice<'a>(report: &'a Value, words: &str) -> Option<&'a Value> {
    let advice = report["advice"].as_array().expect("a list");
    advice.iter().find(|proof| proof["advice"].as_str().is_some_and(|text| text.contains(words)))
}

/// Returns whether only Nagle's algorithm made cells slow, and the remedies helped.
fn is_explained_by_nagle(report: &Value) -> bool {
    cells(&report["maps"][0])
        .iter()
        .all(|(.., cell)| cell["cause"].is_null() || cell["cause"] == "nagle-delayed-ack")
        && REMEDIES.iter().all(|words| advice(report, words).is_some_and(|proof| proof["removed"] == true))
}

/// Sweeps until a report is undisturbed, or as often as is allowed; returns the last directory of records
/// and its report. On a busy machine, programs may wait for their turn longer than for an acknowledgement.
fn undisturbed(
    folder: &Folder,
    is_undisturbed: impl Fn(&Value) -> bool,
    sweep: impl Fn(&str) -> Output,
) -> (String, Value) {
    let mut runs = (1..=RUNS_MAX).map(|number| {
        let out = folder.path(&format!("records-{number}"));
        let output = sweep(&out);
        assert!(output.status.success(), "{output:?}");
        (number, out, json(&output))
    });
    let last = runs.find(|(number, _, report)| *number == RUNS_MAX || is_undisturbed(report));
    let (_, out, report) = last.expect("one at least");
    (out, report)
}

/// Sweeps the pattern write, write, read, and checks every cell and every remedy; returns the report.
fn the_region_is_found(
    network: &Network,
    folder: &Folder,
    messages: &str,
    buffers: &str,
    expected: &[(u64, u64)],
) -> PathBuf {
    let server =
        Server::start(Some(&network.far), folder, &format!("{FAR}:0"), &["--allow", "10.77.31.0/24"]);
    let svg = folder.path("pictures");
    let (out, report) = undisturbed(folder, is_explained_by_nagle, |out| {
        let mut arguments = vec!["sweep", &server.at, "--messages", messages, "--buffers", buffers];
        arguments.extend(["--congestion", "cubic", "--out", out, "--svg", &svg]);
        arguments.extend(UNGUARDED);
        arguments.push("0.3");
        lab(Some(&network.near), folder, &arguments)
    });
    let cells = cells(&report["maps"][0]);
    assert!(cells.iter().all(|(.., cell)| cell["figure"].is_f64()), "every cell is measured: {report}");

    let slow: Vec<_> = cells.iter().filter(|(.., cell)| !cell["cause"].is_null()).collect();
    for place in expected {
        let found = slow.iter().any(|(buffer, message, _)| (*buffer, *message) == *place);
        assert!(found, "{place:?} is in the slow region: {report:#}");
    }
    // On a busy machine, a cell may be slow because a program waited for its turn. No cause is named then.
    let disturbed = |cell: &Value| cell["cause"] == "not-explained" && cell["predicted_slow"] == false;
    for (buffer, message, cell) in slow.iter().filter(|(.., cell)| !disturbed(cell)) {
        assert_eq!(cell["cause"], "nagle-delayed-ack", "{buffer} {message}: {cell}");
    }
    let right = cells
        .iter()
        .filter(|(.., cell)| cell["predicted_slow"] == !cell["cause"].is_null() || disturbed(cell))
        .count();
    assert!(right + 1 >= cells.len(), "the boundary is where it was predicted: {report:#}");

    for words in REMEDIES {
        let proof = advice(&report, words).unwrap_or_else(|| panic!("{words} is advised: {report:#}"));
        let (before, after) = (proof["before"].as_f64(), proof["after"].as_f64());
        assert_eq!(proof["removed"], true, "{proof}");
        assert!(after > before.map(|before| 10.0 * before), "{proof}");
    }
    let picture = std::fs::read_to_string(Path::new(&svg).join("map-1.svg")).expect("it was drawn");
    assert_eq!(picture.matches("<rect").count(), cells.len());
    are_sound(Path::new(&svg), "sweep-maps-browser");

    // Commands that only read the records of a run need no session with a peer.
    let html = Path::new(&out).join("page.html");
    let axes = ["--axes", "message_bytes,buffer_bytes", "--html", html.to_str().expect("a plain path")];
    let output = reader(&["report", &out], &axes);
    assert!(output.status.success(), "{output:?}");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        shown.contains(
            "Exchanges of a message and its reply, exchanges/s\nrows: buffer, bytes; columns: message, bytes"
        ),
        "{shown}"
    );
    let page = std::fs::read_to_string(&html).expect("it was written");
    // There is one map per metric, and the tooltips on it give the cause.
    let causes = page.matches("slow: Nagle&#39;s algorithm against delayed acknowledgements\n").count();
    let maps = page.matches("<figure ").count();
    let named = slow.iter().filter(|(.., cell)| !disturbed(cell)).count();
    assert_eq!((maps, causes), (5, 5 * named), "{named} slow cells");
    assert!(page.contains("Why cells are slow") && page.contains("set TCP_NODELAY on the sender"));
    // The first screen: the verdict, the remedies with their effect, and what was measured.
    let held = slow.iter().filter(|(.., cell)| cell["cause"] == "nagle-delayed-ack").count();
    let verdict = format!("meet delayed acknowledgements: {held} of {} cells are slow", cells.len());
    for words in [&verdict, "What helps, measured", "<dt>Measured</dt>", "<dd>kiban lab sweep 10.77.31.2"] {
        assert!(page.contains(words), "{words}");
    }
    let advice = report["advice"].as_array().expect("a list");
    let proved = advice.iter().filter(|proof| proof["removed"] == true).count();
    // In the verdict, and in the list of all.
    assert_eq!(page.matches(">PROVED</span>").count(), 2 * proved);
    let summary = json(&reader(&["summary", &out, "--json"], &[]));
    assert_eq!(summary["rows"].as_array().map(Vec::len), Some(cells.len()));
    html
}

/// Runs a command that only reads a directory and therefore needs no token.
fn reader(verb: &[&str], more: &[&str]) -> Output {
    let mut command = kiban(None);
    command.arg("lab").args(verb).args(more).env_remove("KIBAN_LAB_TOKEN");
    command.output().expect("the program was built")
}

#[test]
fn with_long_packets_the_slow_region_is_found_explained_and_removed() {
    let Some(network) = network('l', 9180) else { return };
    let folder = Folder::new("long");
    let slow = [
        (2000, 500),
        (6000, 500),
        (6000, 1500),
        (16_000, 500),
        (16_000, 1500),
        (16_000, 4500),
        (16_000, 6000),
    ];
    let page = the_region_is_found(&network, &folder, "500,1500,4500,6000", "2000,6000,16000", &slow);
    if let Some(found) = browsed(&page, "sweep-browser") {
        is_sound(&found);
    }

    let server = Server::start(Some(&network.far), &folder, &format!("{FAR}:0"), &[]);
    let (svg, pcap) = (folder.path("diagrams"), folder.path("captures"));
    let mut arguments = vec!["trace", &server.at, "--message", "1000", "--buffer", "16000", "--json"];
    arguments.extend(["--svg", &svg, "--pcap", &pcap]);
    let times = |case: &Value| -> Vec<u64> {
        let segments = case["segments"].as_array().expect("a list");
        segments.iter().map(|segment| segment["nanoseconds"].as_u64().expect("a time")).collect()
    };
    let gap_ms =
        |case: &Value| times(case).windows(2).map(|pair| pair[1].saturating_sub(pair[0]) / 1_000_000).max();
    let mut runs = 0;
    let trace = loop {
        let output = lab(Some(&network.near), &folder, &arguments);
        assert!(output.status.success(), "{output:?}");
        let trace = json(&output);
        let fast = &trace["cases"][1];
        runs += 1;
        // On a busy machine, programs may wait for their turn longer than for an acknowledgement.
        if runs == RUNS_MAX || fast["is_slow"] == false && gap_ms(fast) < Some(20) {
            break trace;
        }
    };
    let cases = trace["cases"].as_array().expect("a list");
    assert_eq!((cases.len(), &cases[0]["is_slow"], &cases[1]["is_slow"]), (2, &true.into(), &false.into()));
    assert_eq!(cases[0]["explanation"]["cause"], "nagle-delayed-ack", "{trace:#}");
    assert!(gap_ms(&cases[0]) >= Some(30), "an acknowledgement was waited for: {trace:#}");
    assert!(gap_ms(&cases[1]) < Some(20), "none was: {trace:#}");
    let arguments =
        ["trace", &server.at, "--message", "1000", "--buffer", "16000", "--both-directions", "--json"];
    let output = lab(Some(&network.near), &folder, &arguments);
    assert!(output.status.success(), "{output:?}");
    let both = json(&output);
    let names = both["cases"].as_array().expect("a list").iter().map(|case| case["name"].as_str());
    let expected = ["slow", "fast", "back-slow", "back-fast"].map(Some);
    assert_eq!(names.collect::<Vec<_>>(), expected, "{both:#}");
    assert_eq!(both["cases"][2]["explanation"]["cause"], "nagle-delayed-ack", "{both:#}");
    for name in ["slow", "fast"] {
        let file = std::fs::read(Path::new(&pcap).join(format!("{name}.pcap"))).expect("it was written");
        let (header, _) = kiban_capture::FileHeader::read(&file).expect("a capture");
        assert!(header.records(&file).filter(Result::is_ok).count() > 10);
        // It begins with the handshake, so that other tools see which end is the client.
        assert_eq!(tcp_flags(&header, &file), [SYN, SYN | ACK], "{name}");
        assert!(Path::new(&svg).join(format!("{name}.svg")).exists());
    }
    are_sound(Path::new(&svg), "trace-browser");
}

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// Returns the flags of the first two packets of a capture of IPv4 packets.
fn tcp_flags(header: &kiban_capture::FileHeader, file: &[u8]) -> Vec<u8> {
    let packets = header.records(file).filter_map(Result::ok).take(2);
    packets.map(|(_, packet)| packet[20 + 13]).collect()
}

fn has_bbr() -> bool {
    let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    known.is_ok_and(|known| known.split_whitespace().any(|name| name == "bbr"))
}

/// With small buffers, a stream of BBR is limited by its program, and not by the path.
#[test]
fn small_buffers_limit_a_stream_of_bbr_and_do_not_fill_the_path() {
    let Some((_path, network)) = delayed('y', 10) else { return };
    if !has_bbr() {
        println!("skipped: this kernel has no BBR");
        return;
    }
    let folder = Folder::new("paced");
    let server = Server::start(Some(&network.far), &folder, &format!("{FAR}:0"), &[]);
    let out = folder.path("records");
    let list = ["sweep", &server.at, "--pattern", "stream", "--messages", "16000", "--congestion", "bbr"];
    let more = ["--buffers", "0,2000,16000", "--out", &out];
    let output = lab(Some(&network.near), &folder, &[&list[..], &more, &UNGUARDED, &["1"]].concat());
    assert!(output.status.success(), "{output:?}");
    let report = json(&output);
    assert_eq!(report["congestion"], serde_json::json!(["bbr"]));
    for (buffer, _, cell) in cells(&report["maps"][0]) {
        let expected = if buffer > 0 { "receive-buffer".into() } else { Value::Null };
        assert_eq!((&cell["cause"], &cell["full"]), (&expected, &Value::Null), "{buffer}: {report:#}");
    }
}

/// Each limit of a window is produced by a setting of the receiver's system, and is not the program's.
#[test]
fn a_window_that_the_system_limits_is_not_blamed_on_the_program() {
    let Some((_path, network)) = delayed('z', 30) else { return };
    let folder = Folder::new("windows");
    let server = Server::start(Some(&network.far), &folder, &format!("{FAR}:0"), &[]);
    let set_at = |side: &str, setting: &str| {
        let mut command = Command::new("ip");
        run(command.args(["netns", "exec", side, "sysctl", "--quiet", "--write", setting]))
    };
    let set = |setting: &str| set_at(&network.far, setting);
    let both = |more: &[&str]| {
        let list =
            ["trace", &server.at, "--pattern", "stream", "--message", "8000", "--seconds", "1", "--json"];
        let output = lab(Some(&network.near), &folder, &[&list[..], more].concat());
        assert!(output.status.success(), "{output:?}");
        json(&output)["cases"].take()
    };
    let trace = |more: &[&str]| both(more)[0].take();
    let cause = |case: &Value| case["explanation"]["cause"].as_str().unwrap_or("none").to_owned();
    let advice = |case: &Value| case["advice"].to_string();
    if !set("net.ipv4.tcp_rmem=4096 65536 65536") {
        println!("skipped: there is no sysctl");
        return;
    }
    let cases = both(&[]);
    let (small, tried) = (&cases[0], &cases[1]);
    assert_eq!(cause(small), "receive-buffer", "{small:#}");
    let words = advice(small);
    assert!(words.contains("net.ipv4.tcp_rmem on the receiver, the server"), "{small:#}");
    // At least twice what the path carries without the limit, in a round trip of 60 ms.
    let bytes = words.split("to at least ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
    let mbps = tried["figure"].as_f64().expect("a figure");
    assert!(bytes > Some(2.0 * mbps * 60_000.0 / 8.0), "{words}: {mbps}");
    assert!(words.contains("; measured: "), "{words}");
    assert!(set("net.ipv4.tcp_rmem=4096 131072 6291456"));
    assert!(set_at(&network.near, "net.ipv4.tcp_wmem=4096 16384 16384"));
    // A sender that paces itself seldom waits for room in its buffer.
    if has_bbr() {
        let small = trace(&["--congestion", "bbr"]);
        assert_eq!(cause(&small), "send-buffer", "{small:#}");
        assert!(advice(&small).contains("net.ipv4.tcp_wmem on the sender, this host"), "{small:#}");
        assert!(small["title"].as_str().is_some_and(|title| title.ends_with(", bbr")), "{small:#}");
    }
    assert!(set_at(&network.near, "net.ipv4.tcp_wmem=4096 16384 4194304"));
    assert!(set("net.ipv4.tcp_window_scaling=0"));
    let unscaled = trace(&[]);
    assert_eq!(cause(&unscaled), "window-scaling", "{unscaled:#}");
    assert!(advice(&unscaled).contains("net.ipv4.tcp_window_scaling to 1"), "{unscaled:#}");
    // Look-alikes: a buffer that the program has set, and windows that do not limit.
    assert!(set("net.ipv4.tcp_window_scaling=1"));
    let asked = trace(&["--buffer", "16000", "--slow-below", "20Mbit/s"]);
    assert!(["receive-buffer", "send-buffer"].contains(&cause(&asked).as_str()), "{asked:#}");
    assert!(!advice(&asked).contains("net.ipv4"), "{asked:#}");
    let usual = trace(&[]);
    assert!(!["receive-buffer", "window-scaling", "receiver"].contains(&cause(&usual).as_str()), "{usual:#}");
}

#[test]
fn a_thin_direction_is_full_and_not_slow() {
    let Some(network) = Network::new('a', 1500) else { return };
    if !Network::bucket(&network.near, "5mbit") || !Network::bucket(&network.far, "50mbit") {
        println!("skipped: this kernel has no tbf");
        return;
    }
    let folder = Folder::new("thin");
    let server = Server::start(Some(&network.far), &folder, &format!("{FAR}:0"), &[]);
    let list = ["sweep", &server.at, "--pattern", "stream,stream-back", "--messages", "16000"];
    let out = folder.path("records");
    let more = ["--buffers", "0,262144", "--congestion", "cubic", "--out", &out];
    let output = lab(Some(&network.near), &folder, &[&list[..], &more, &UNGUARDED, &["1"]].concat());
    assert!(output.status.success(), "{output:?}");
    let report = json(&output);
    for map in report["maps"].as_array().expect("a list") {
        assert!(map["slow_below"].as_str().is_some_and(|words| words.contains("from the server")), "{map:#}");
        assert!(cells(map).iter().all(|(.., cell)| cell["cause"].is_null()), "{report:#}");
    }
    assert!(cells(&report["maps"][0]).iter().all(|(.., cell)| cell["full"].is_string()), "{report:#}");
    assert!(advice(&report, "to the server, the path is full at").is_some(), "{report:#}");
    // The system's buffers are not a buffer of 0 bytes.
    let output = reader(&["report", &out], &[]);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains("\n       system  "), "{shown}");
}

#[test]
fn with_usual_packets_the_slow_region_is_found_explained_and_removed() {
    let Some(network) = network('u', 1500) else { return };
    let folder = Folder::new("usual");
    let slow = [(4000, 100), (4000, 1000), (12_000, 100), (12_000, 1000)];
    the_region_is_found(&network, &folder, "100,1000,1600,4000", "4000,12000", &slow);
}

#[test]
fn a_dead_peer_loses_no_records_and_the_sweep_resumes_later() {
    let folder = Folder::new("death");
    let out = folder.path("records");
    let arguments = |at: &str| -> Vec<String> {
        let list =
            ["sweep", at, "--messages", "100,200,300,400", "--buffers", "8000,16000", "--nagle", "off"];
        let more = ["--out", &out, "--patience", "1", "--token-file", &folder.path("token")];
        list.into_iter().chain(more).chain(UNGUARDED).chain(["0.4"]).map(str::to_owned).collect()
    };
    let lines =
        || std::fs::read_to_string(Path::new(&out).join("records.jsonl")).unwrap_or_default().lines().count();
    let server = Server::start(None, &folder, "127.0.0.1:0", &[]);
    let at = server.at.clone();
    let sweep = kiban(None).arg("lab").args(arguments(&at)).stdout(Stdio::piped()).spawn();
    let sweep = sweep.expect("the program was built");
    // Wait until a few points are recorded; how long that takes depends on the machine.
    let clock = Clock::new();
    while lines() < 2 {
        assert!(clock.now().as_secs_f64() < 60.0, "points are kept as they are measured");
        pace(Duration::from_millis(5));
    }
    // Watch the run from another process.
    let seen = json(&reader(&["live", &out, "--json"], &[]));
    assert_eq!((&seen["question"], &seen["trials"]), (&"network".into(), &8.into()));
    assert!(seen["done"].as_u64() >= Some(2), "{seen}");
    drop(server);
    let output = sweep.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report = json(&output);
    let kept = lines();
    assert!((2..8).contains(&kept), "{kept}");
    let why = report["ended_early"].as_str().expect("it says why");
    assert!(why.contains(&format!("kept {kept} point")), "{why}");
    let output = reader(&["report", &out], &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = format!("{kept} of 8 trials have a record: the run is incomplete");
    assert!(String::from_utf8_lossy(&output.stderr).contains(&told), "{output:?}");

    let _server = Server::start(None, &folder, &at, &[]);
    let output = kiban(None).arg("lab").args(arguments(&at)).output().expect("the program was built");
    assert!(output.status.success(), "{output:?}");
    let report = json(&output);
    assert_eq!(report["resumed"].as_u64(), Some(kept as u64), "{report:#}");
    assert_eq!((lines(), &report["ended_early"]), (8, &Value::Null));
    for verb in [["report", &out], ["summary", &out], ["live", &out]] {
        let output = reader(&verb, &[]);
        assert!(output.status.success(), "{verb:?} {output:?}");
    }
    let page = std::fs::read_to_string(Path::new(&out).join("report.html")).expect("it was written");
    assert!(page.contains("8 of 8 trials have a record"));
}

/// Runs a short sweep over the loopback interface, which writes its records to a directory.
fn short(server: &Server, folder: &Folder, out: &str, more: &[&str]) -> Output {
    let list = ["sweep", &server.at, "--messages", "100..800/100", "--buffers", "0", "--nagle", "off"];
    lab(None, folder, &[&list[..], &["--out", out], more, &UNGUARDED, &["0.02"]].concat())
}

#[test]
fn a_stream_s_verdict_follows_the_absolute_threshold_without_another_measurement() {
    let folder = Folder::new("threshold");
    let out = folder.path("records");
    let server = Server::start(None, &folder, "127.0.0.1:0", &[]);
    let sweep = |more: &[&str]| {
        let list = ["sweep", &server.at, "--messages", "1000,9000", "--buffers", "0", "--pattern", "stream"];
        let output = lab(None, &folder, &[&list[..], &["--out", &out], more, &UNGUARDED, &["0.05"]].concat());
        assert!(output.status.success(), "{output:?}");
        json(&output)
    };
    let slow = |report: &Value| {
        let cells = cells(&report["maps"][0]);
        cells.iter().filter(|(.., cell)| !cell["cause"].is_null()).count()
    };
    // No stream over the loopback reaches 100 Tbit/s, and all exceed 1 kbit/s.
    let all = sweep(&["--slow-below", "100000Gbit/s"]);
    assert_eq!((slow(&all), &all["streams_slow_below"]["mbps"]), (2, &1e8.into()), "{all:#}");
    let output = reader(&["report", &out], &[]);
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read_to_string(Path::new(&out).join("report.html")).expect("it was written");
    assert!(page.contains("2 of 2 cells are slow (below 100000000 Mbit/s)"));
    let none = sweep(&["--slow-below", "1kbit/s"]);
    assert_eq!((slow(&none), &none["resumed"]), (0, &2.into()), "{none:#}");
    let again = sweep(&[]);
    assert_eq!((&again["streams_slow_below"], &again["resumed"]), (&"quarter-of-best".into(), &2.into()));
    let output = lab(None, &folder, &["sweep", &server.at, "--slow-below", "10"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("such as 10Mbit/s"), "{output:?}");
}

#[test]
fn both_directions_are_shown_side_by_side() {
    let folder = Folder::new("directions");
    let server = Server::start(None, &folder, "127.0.0.1:0", &[]);
    let list = ["sweep", &server.at, "--messages", "100,1000", "--buffers", "0", "--both-directions"];
    // With the loopback's long segments, Nagle's algorithm holds the body back whichever end sends it.
    let causes = |report: &Value| -> Vec<Value> {
        let pairs = report["directions"][0]["pairs"].as_array().expect("a list");
        pairs.iter().flat_map(|pair| [&pair["to"], &pair["from"]]).map(|way| way["cause"].clone()).collect()
    };
    let is_removed = |report: &Value| {
        report["advice"].as_array().expect("a list").iter().any(|proof| proof["removed"] == true)
    };
    let expected = vec![Value::from("nagle-delayed-ack"); 4];
    let is_undisturbed = |report: &Value| causes(report) == expected && is_removed(report);
    let (out, report) = undisturbed(&folder, is_undisturbed, |out| {
        lab(None, &folder, &[&list[..], &["--out", out], &UNGUARDED, &["0.2"]].concat())
    });
    assert_eq!(causes(&report), expected, "{report:#}");
    assert!(is_removed(&report), "{report:#}");
    let patterns = report["maps"].as_array().expect("a list").iter().map(|map| map["pattern"].as_str());
    let expected = ["write-write-read", "write-write-read-back"].map(Some);
    assert_eq!(patterns.collect::<Vec<_>>(), expected, "{report:#}");
    assert!(reader(&["report", &out], &[]).status.success());
    let page = std::fs::read_to_string(Path::new(&out).join("report.html")).expect("it was written");
    assert!(page.contains("Both directions") && page.contains("in both directions"));
}

/// The window of one connection does not fill a long path, those of several do.
#[test]
fn several_connections_and_both_directions_are_measured_at_once() {
    let Some((_path, network)) = delayed('s', 30) else { return };
    let folder = Folder::new("several");
    let server = Server::start(Some(&network.far), &folder, &format!("{FAR}:0"), &[]);
    let out = folder.path("records");
    let list = ["sweep", &server.at, "--pattern", "stream", "--messages", "16000", "--buffers", "65536"];
    let more = ["--connections", "1,6", "--opposite", "0,1", "--congestion", "cubic", "--out", &out];
    let output = lab(Some(&network.near), &folder, &[&list[..], &more, &UNGUARDED, &["1"]].concat());
    assert!(output.status.success(), "{output:?}");
    let report = json(&output);
    let maps = report["maps"].as_array().expect("a list");
    let map = |connections: u64, opposite: u64| {
        let is_one = |map: &&Value| map["connections"] == connections && map["opposite"] == opposite;
        let map = maps.iter().find(is_one).unwrap_or_else(|| panic!("a map: {report:#}"));
        cells(map)[0].2.clone()
    };
    let (alone, together) = (map(1, 0), map(6, 0));
    assert!(together["figure"].as_f64() > alone["figure"].as_f64().map(|mbps| 3.0 * mbps), "{report:#}");
    let cause = alone["cause"].as_str().unwrap_or("none");
    assert!(["receive-buffer", "send-buffer"].contains(&cause), "{report:#}");
    let both = [map(1, 1), map(6, 1)];
    assert!(both.iter().all(|cell| cell["opposite_mbps"].as_f64() > Some(0.0)), "{report:#}");
    assert!(together["slowest_mbps"].as_f64() > Some(0.0) && alone["slowest_mbps"].is_null(), "{report:#}");
    let verdict = report["verdict"].as_str().expect("a sentence");
    for words in [
        "Several connections at once: `stream` has ",
        " over 6; 6 are ",
        "Beside 1 connection in the opposite",
    ] {
        assert!(verdict.contains(words), "{words}: {verdict}");
    }
    let summary = json(&reader(&["summary", &out, "--json"], &[]));
    let rows = summary["rows"].as_array().expect("a list");
    assert_eq!(
        rows.iter().filter(|row| row["metrics"]["opposite_mbps"].is_object()).count(),
        2,
        "{summary:#}"
    );
    assert!(reader(&["report", &out], &[]).status.success());
    let page = std::fs::read_to_string(Path::new(&out).join("report.html")).expect("it was written");
    assert!(page.contains("--connections 1,6 --opposite 0,1") && page.contains(" over 6; 6 are "));
}

/// On a thin line with a long queue, a stream to the server delays the acknowledgements of one from it.
#[test]
fn acknowledgements_that_wait_behind_the_opposite_direction_are_named() {
    let Some(network) = Network::new('k', 1500) else { return };
    let bucket = ["qdisc", "add", "dev", "wire", "root", "tbf", "rate", "1mbit", "burst", "16kb"];
    let queue = run(Command::new("tc").args(["-n", &network.near]).args(bucket).args(["latency", "1500ms"]));
    if !queue || !Network::bucket(&network.far, "40mbit") {
        println!("skipped: this kernel has no tbf");
        return;
    }
    let folder = Folder::new("opposite");
    let server = Server::start(Some(&network.far), &folder, &format!("{FAR}:0"), &[]);
    let list = ["sweep", &server.at, "--pattern", "stream-back", "--messages", "16000", "--buffers", "0"];
    let cause = |report: &Value, map: usize| cells(&report["maps"][map])[0].2["cause"].clone();
    // The acknowledgements of a stream that was first may themselves fill the thin line.
    let is_slow = |report: &Value| !cause(report, 1).is_null();
    let (_, report) = undisturbed(&folder, is_slow, |out| {
        let more = ["--opposite", "0,4", "--congestion", "cubic", "--out", out];
        lab(Some(&network.near), &folder, &[&list[..], &more, &UNGUARDED, &["4"]].concat())
    });
    let found = [cause(&report, 0), cause(&report, 1)];
    assert_eq!(found, [Value::Null, "acknowledgement-queue".into()], "{report:#}");
    assert!(advice(&report, "shorten the queue to the server").is_some(), "{report:#}");
}

#[test]
fn a_truncated_record_is_reported_and_its_point_measured_again() {
    let folder = Folder::new("cut");
    let out = folder.path("records");
    let server = Server::start(None, &folder, "127.0.0.1:0", &[]);
    assert!(short(&server, &folder, &out, &[]).status.success());
    let path = Path::new(&out).join("records.jsonl");
    let text = std::fs::read(&path).expect("there are records");
    std::fs::write(&path, &text[..text.len() - 100]).expect("it can be cut");
    let output = short(&server, &folder, &out, &[]);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("skipped: line 8: truncated"), "{output:?}");
    let report = json(&output);
    assert_eq!((&report["resumed"], &report["broken"][0]), (&7.into(), &"line 8: truncated".into()));
    // Seven complete records, the truncated one, and its replacement.
    assert_eq!(std::fs::read_to_string(&path).expect("there are records").lines().count(), 9);
}

#[test]
fn a_directory_of_another_version_or_sweep_is_refused_with_a_remedy() {
    let folder = Folder::new("former");
    let server = Server::start(None, &folder, "127.0.0.1:0", &[]);
    let former = folder.path("former");
    std::fs::create_dir(&former).expect("there is room");
    std::fs::write(Path::new(&former).join("records.jsonl"), "{\"key\":\"0\"}\n").expect("there is room");
    let says = |output: &Output, words: &[&str]| {
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(words.iter().all(|words| told.contains(words)), "{words:?}: {told}");
    };
    let words = ["no run.json", "like a sweep of an earlier version", "another folder (--out)"];
    says(&short(&server, &folder, &former, &[]), &words);
    for verb in ["live", "summary", "report"] {
        says(&reader(&[verb, &former], &[]), &words);
    }
    let out = folder.path("records");
    assert!(short(&server, &folder, &out, &[]).status.success());
    let other = short(&server, &folder, &out, &["--mss", "1000"]);
    says(&other, &["belongs to another plan: the parameter mss_bytes differs", "(--out)"]);
    assert!(!String::from_utf8_lossy(&other.stderr).contains("--cache"), "nothing of real time is shared");
    // `kiban lab run` cannot run this plan, because it requires a session with a peer.
    let plan = folder.path("plan.toml");
    std::fs::write(&plan, "question = \"network\"\nparameters.host = \"192.0.2.1\"\n")
        .expect("there is room");
    says(&reader(&["run", &plan], &[]), &["network can only be run by 'kiban lab sweep HOST'"]);
}

/// Run in a mount namespace with a file system of 16 KiB.
#[test]
fn a_full_disk_is_reported_and_measurements_are_kept() {
    let folder = Folder::new("full");
    let server = Server::start(None, &folder, "127.0.0.1:0", &[]);
    let (small, kept) = (folder.path("small"), folder.path("kept"));
    std::fs::create_dir(&small).expect("there is room");
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", &small, &kept]);
        command.args([env!("CARGO_BIN_EXE_kiban"), &server.at, &folder.path("token")]);
        command.output().expect("util-linux is there")
    };
    if !unshare("mount -t tmpfs none \"$1\"").status.success() {
        println!("skipped: no file system can be mounted in a namespace here");
        return;
    }
    let output = unshare(
        r#"
        set -eu
        mount -t tmpfs -o size=16k none "$1"
        status=0
        "$3" lab sweep "$4" --messages 100..800/100 --buffers 0 --nagle off --out "$1/out" --token-file "$5" \
            --json --quiet --foreign-cores 100 --seconds 0.02 || status=$?
        echo "status $status"
        cp -r "$1/out" "$2"
    "#,
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("status 1"), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("the disk is full; the records so far are kept: free some space"), "{told}");
    let records = std::fs::read_to_string(Path::new(&kept).join("records.jsonl")).expect("there are some");
    let count = records.lines().count();
    assert!((1..8).contains(&count) && records.ends_with('\n'), "{count}");
    let report = json(&short(&server, &folder, &kept, &[]));
    assert_eq!((report["resumed"].as_u64(), &report["broken"]), (Some(count as u64), &serde_json::json!([])));
}

#[test]
fn unauthorised_clients_get_the_reason_and_measure_nothing() {
    let folder = Folder::new("strangers");
    let other = Folder::new("other");
    std::fs::write(other.0.join("token"), "quite another token").expect("there is room");
    let says = |output: &Output, words: &str| {
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && told.contains(words), "'{words}': {output:?}");
        assert!(!told.contains(TOKEN) && output.stdout.is_empty(), "{output:?}");
    };
    let server = Server::start(None, &folder, "127.0.0.1:0", &[]);
    says(&lab(None, &other, &["delay", &server.at]), "wrong token");
    let elsewhere = Server::start(None, &folder, "127.0.0.1:0", &["--allow", "192.0.2.0/24"]);
    says(&lab(None, &folder, &["delay", &elsewhere.at]), "--allow");
    says(&lab(None, &folder, &["delay", "127.0.0.1:1"]), "is `kiban lab serve` running there?");

    let output = kiban(None).args(["lab", "delay", &server.at]).env_remove("KIBAN_LAB_TOKEN").output();
    says(&output.expect("the program was built"), "KIBAN_LAB_TOKEN");
}

#[test]
fn round_trips_are_shown_with_percentiles_and_propagation_delay() {
    let folder = Folder::new("delay");
    let server = Server::start(None, &folder, "127.0.0.1:0", &[]);
    let arguments =
        ["delay", &server.at, "--json", "--quiet", "--count", "50", "--distance", "2.1", "--rate", "1000"];
    let output = lab(None, &folder, &arguments);
    assert!(output.status.success(), "{output:?}");
    let report = json(&output);
    let rows = report["hosts"][0]["rows"].as_array().expect("a list");
    assert_eq!(rows.len(), 5);
    for row in rows {
        let figures: Vec<f64> = ["min_us", "p50_us", "p90_us", "p99_us", "max_us"]
            .iter()
            .map(|name| row[*name].as_f64().expect("a figure"))
            .collect();
        assert!(figures[0] > 0.0 && figures.is_sorted(), "{row}");
        // The distance of 2.1 km takes 20 µs for both ways; in addition, each byte takes 8 bit times each
        // way, at 1000 Mbit/s.
        let bytes = row["bytes"].as_f64().expect("a count");
        assert!((row["distance_us"].as_f64().expect("said") - 20.0).abs() < 1e-9, "{row}");
        assert!((row["sending_us"].as_f64().expect("said") - bytes * 0.016).abs() < 1e-9, "{row}");
        assert_eq!(row["count"], 50);
    }
}

#[test]
fn the_rate_of_a_rate_limiter_is_found_although_small_messages_pass_in_a_burst() {
    let Some(network) = Network::new('b', 1500) else { return };
    if ![&network.near, &network.far].into_iter().all(|side| Network::bucket(side, "135mbit")) {
        println!("skipped: this kernel has no tbf");
        return;
    }
    let folder = Folder::new("bucket");
    let server = Server::start(Some(&network.far), &folder, &format!("{FAR}:0"), &[]);
    let arguments = ["delay", &server.at, "--json", "--quiet", "--count", "50"];
    let output = lab(Some(&network.near), &folder, &arguments);
    assert!(output.status.success(), "{output:?}");
    let report = json(&output);
    let host = &report["hosts"][0];
    // Load can lower the rate, or make it impossible to determine, but cannot raise it above the limit.
    assert!(host["rate_mbps"].as_f64().is_none_or(|mbps| mbps < 150.0), "{report:#}");
    let small = host["rows"].as_array().expect("a list").iter();
    assert!(small.map(|row| row["rest_us"].as_f64()).all(|rest| rest > Some(0.0)), "{report:#}");
}

/// Starts a server that prints where it listens, its token and a hint, and closes the pipe from which they
/// were read. Returns the server, its port and the hint.
fn server_with_hint() -> (Child, u16, String) {
    let mut server = kiban(None)
        .args(["lab", "serve", "--listen", "127.0.0.1:0"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("it was built");
    let said = BufReader::new(server.stderr.take().expect("a pipe"));
    let lines: Vec<String> = said.lines().take(3).map_while(Result::ok).collect();
    let [at, token, hint] = &lines[..] else { panic!("{lines:?}") };
    let token = token.strip_prefix("token: ").unwrap_or_else(|| panic!("{lines:?}"));
    assert!(hint.contains(&format!("KIBAN_LAB_TOKEN={token} ")), "{lines:?}");
    let port = at.strip_prefix("listening on 127.0.0.1:").and_then(|rest| rest.split(';').next());
    let port = port.and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("{at}"));
    (server, port, hint.clone())
}

fn end(mut server: Child) {
    server.kill().expect("it is a child of this process");
    server.wait().expect("it is a child of this process");
}

#[test]
fn the_token_is_printed_with_a_hint_that_contains_it_and_the_port() {
    let (server, port, hint) = server_with_hint();
    end(server);
    assert!(hint.ends_with(&format!(" kiban lab sweep HOST:{port}")), "{hint}");
}

#[test]
fn strangers_do_not_end_a_server_whose_standard_error_nobody_reads() {
    let (mut server, port, _) = server_with_hint();
    for _ in 0..3 {
        let mut stranger = std::net::TcpStream::connect(("127.0.0.1", port)).expect("the server serves");
        stranger.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("the server reads");
        // The server prints the refusal before it closes the connection, or after it.
        let _ = stranger.read_to_end(&mut Vec::new());
    }
    assert!(server.try_wait().expect("it is a child of this process").is_none(), "it has ended");
    end(server);
}
