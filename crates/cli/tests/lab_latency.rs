//! `kiban lab latency` and `udp` as two users run them: on the kernel's own TCP and UDP, in two network
//! namespaces.
//!
//! Goal      a queue, a loss or a late datagram is found in the direction in which it happens, and what only
//!           looks like one is not.
//! Recipes   deep and short queues are token buckets (tbf); a policer is a limit, and a path that
//!           drops long packets a rule, of nft; losses are every n-th datagram (nft); reordering is a slow
//!           class for some datagrams (htb).
//! Skipped   without the right to create namespaces (CAP_SYS_ADMIN, CAP_NET_ADMIN), tbf or nft.

mod browser;
mod two_hosts;

use browser::{browsed, is_sound};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use two_hosts::script::delayed;
use two_hosts::{FAR, Folder, Network, Server, kiban, run};

/// Runs `tc` in a namespace; returns false if the kernel lacks what it asks for.
fn tc(side: &str, arguments: &str) -> bool {
    run(Command::new("tc").args(["-n", side]).args(arguments.split_whitespace()))
}

/// Limits the rate at one end, with a queue of this length.
fn bucket(side: &str, rate: &str, latency: &str) -> bool {
    tc(side, &format!("qdisc add dev wire root tbf rate {rate} burst 16kb latency {latency}"))
}

/// Applies a rule to packets that enter (`prerouting`) or leave (`postrouting`) a namespace; returns false if
/// there is no nft.
fn nft(side: &str, hook: &str, rule: &str) -> bool {
    let script = format!("table inet t {{ chain c {{ type filter hook {hook} priority mangle; {rule} }}; }}");
    two_hosts::nft(side, &script)
}

/// Measures from the first namespace to the server in the second.
fn measure(network: Option<&Network>, folder: &Folder, server: &Server, arguments: &[&str]) -> Value {
    let mut command = kiban(network.map(|network| network.near.as_str()));
    command.arg("lab").args(arguments).args([&server.at, "--json", "--token-file", &folder.path("token")]);
    let output = command.output().expect("the program was built");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn serve(network: &Network, folder: &Folder, more: &[&str]) -> Server {
    Server::start(Some(&network.far), folder, &format!("{FAR}:0"), more)
}

fn figure(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path}: {value:#}"))
}

/// Returns the row of a load without its series.
fn load(report: &Value, name: &str) -> Value {
    let rows = report["loads"].as_array().expect("a list");
    let mut row = rows.iter().find(|row| row["load"] == name).expect("every load was measured").clone();
    row["series"].take();
    row
}

#[test]
fn a_deep_queue_has_a_bad_grade_in_its_direction_and_a_short_one_has_not() {
    let Some(network) = Network::new('q', 1500) else { return };
    // Uploads meet a deep queue, which the initial windows of four connections fill to 240 ms. Downloads meet
    // a short one.
    if !bucket(&network.near, "2mbit", "800ms") || !bucket(&network.far, "20mbit", "8ms") {
        println!("skipped: this kernel has no tbf");
        return;
    }
    let folder = Folder::new("queue");
    let server = serve(&network, &folder, &[]);
    let page = folder.path("page.html");
    let report =
        measure(Some(&network), &folder, &server, &["latency", "--seconds", "4", "--html", &page, "--quiet"]);
    // Whatever the system's congestion control is, the load fills the queue.
    assert_eq!(report["congestion"], serde_json::json!(["cubic", "cubic"]));
    let (upload, download) = (load(&report, "upload"), load(&report, "download"));
    assert!(["D", "F"].contains(&report["grade"].as_str().expect("a grade")), "{upload:#}");
    assert_eq!(report["grade"], upload["grade"]);
    assert!(figure(&download, "/increase_ms") < 0.5 * figure(&upload, "/increase_ms"), "{download:#}");
    // The one-way delays show where packets wait.
    assert!(figure(&upload, "/queue_ms/0") > 3.0 * figure(&upload, "/queue_ms/1"), "{upload:#}");
    let advice = report["advice"][0].as_str().expect("advice");
    assert!(advice.starts_with("packets to the host wait"), "{advice}");
    // Probes that a full queue drops are no losses of the idle path.
    assert!(!report["verdict"].as_str().expect("a verdict").contains("idle path loses"), "{report:#}");
    // The queue hides pauses of the hosts, so the upload fills the path on a busy machine, too. Data behind a
    // segment that the full queue dropped may arrive too late to count.
    assert!((0.5..3.0).contains(&figure(&upload, "/throughput_mbps/0")), "{upload:#}");
    for (row, way) in [(&upload, 0), (&download, 1)] {
        assert!(figure(row, &format!("/throughput_mbps/{way}")) > 0.0, "{row:#}");
        assert_eq!(row["rate_limited"], false);
    }
    let text = std::fs::read_to_string(&page).expect("it was written");
    // It begins with a capital letter there.
    let verdict = report["verdict"].as_str().expect("a verdict").replace('\'', "&#39;");
    assert!(text.contains(&verdict[1..]) && text.contains("<figure "));
    if let Some(found) = browsed(Path::new(&page), "latency-browser") {
        is_sound(&found);
    }
}

#[test]
fn a_load_that_does_not_move_has_no_grade_and_a_policed_one_retransmits() {
    let Some(network) = Network::new('p', 1500) else { return };
    let folder = Folder::new("policed");
    // A path to the host that drops long packets: handshakes and probes pass.
    if !nft(&network.far, "prerouting", "meta l4proto tcp meta length > 1400 drop;") {
        println!("skipped: there is no nft");
        return;
    }
    let server = serve(&network, &folder, &[]);
    let report = measure(Some(&network), &folder, &server, &["latency", "--seconds", "2"]);
    let verdict = report["verdict"].as_str().expect("a verdict");
    assert!(verdict.starts_with("no grade: the upload stalled"), "{report:#}");
    assert_eq!((&report["grade"], &load(&report, "upload")["grade"]), (&Value::Null, &Value::Null));
    assert!(load(&report, "download")["grade"].is_string(), "{report:#}");
    let advice = report["advice"][0].as_str().expect("advice");
    assert!(advice.contains(&format!("`kiban lab check {}`", server.at)), "{advice}");
    // A policer: what exceeds the rate is dropped, and nothing waits.
    let policer = "table inet t { chain c { meta l4proto tcp limit rate over 2500 kbytes/second burst 64 kbytes drop; }; }";
    if !["flush chain inet t c", policer].into_iter().all(|script| two_hosts::nft(&network.far, script)) {
        println!("skipped: nft has no limit of bytes");
        return;
    }
    let report = measure(Some(&network), &folder, &server, &["latency", "--seconds", "4"]);
    let upload = load(&report, "upload");
    let share = |row: &Value, way: usize| {
        let count = |name: &str| figure(row, &format!("/segments/{way}/{name}"));
        count("retransmits") / count("sent").max(1.0)
    };
    let download = load(&report, "download");
    assert!(share(&upload, 0) > 0.01, "{upload:#}");
    assert!(share(&download, 1) < 0.5 * share(&upload, 0), "{download:#}");
    let says = report["verdict"].as_str().is_some_and(|verdict| verdict.contains("the upload retransmits"));
    assert_eq!(says, share(&upload, 0) >= 0.05, "{report:#}");
}

#[test]
fn a_load_that_a_small_receive_window_limits_has_no_good_grade() {
    let Some((_path, network)) = delayed('b', 20) else { return };
    let small = ["netns", "exec", &network.far, "sysctl", "-q", "-w", "net.ipv4.tcp_rmem=4096 16384 16384"];
    assert!(run(Command::new("ip").args(small)), "who may make a namespace may set it");
    let folder = Folder::new("window");
    let server = serve(&network, &folder, &[]);
    let report = measure(Some(&network), &folder, &server, &["latency", "--seconds", "2"]);
    let (upload, verdict) = (load(&report, "upload"), report["verdict"].as_str().expect("a verdict"));
    assert_eq!(upload["limits"], serde_json::json!(["window", null]), "{upload:#}");
    assert_eq!(load(&report, "download")["limits"][0], Value::Null, "{report:#}");
    // Nothing fills the path, unless a busy machine delays the packets.
    let is_good = figure(&upload, "/increase_ms") < 30.0;
    assert_eq!(upload["grade"].is_null(), is_good, "{upload:#}");
    let words = "the upload did not fill the path, because the other host's receive window (net.ipv4.tcp_rmem) limits it";
    assert_eq!(verdict.contains(words), is_good, "{verdict}");
}

#[test]
fn a_queue_of_the_sending_host_itself_is_named() {
    let Some(network) = Network::new('t', 1500) else { return };
    // It holds more than TCP keeps there, so it drops nothing.
    if !bucket(&network.near, "50mbit", "2s") {
        println!("skipped: this kernel has no tbf");
        return;
    }
    let folder = Folder::new("own");
    let server = serve(&network, &folder, &[]);
    let report = measure(Some(&network), &folder, &server, &["latency", "--seconds", "3", "-P", "2"]);
    let upload = load(&report, "upload");
    assert_eq!(upload["limits"], serde_json::json!(["own_queue", null]), "{upload:#}");
    let words = "the upload waits in this host's queue (tc -s qdisc)";
    let is_longer = figure(&upload, "/increase_ms") >= 1.0;
    assert_eq!(report["verdict"].as_str().map(|text| text.contains(words)), Some(is_longer), "{report:#}");
}

#[test]
fn a_rate_limit_of_the_server_is_named_and_is_no_loss() {
    let folder = Folder::new("limit");
    let server = Server::start(None, &folder, "127.0.0.1:0", &["--rate", "5"]);
    let report = measure(None, &folder, &server, &["latency", "--seconds", "2"]);
    for (name, way) in [("upload", 0), ("download", 1)] {
        let row = load(&report, name);
        assert_eq!(row["rate_limited"], true, "{row:#}");
        // 5 Mbit/s, and a burst of 250 ms.
        assert!(figure(&row, &format!("/throughput_mbps/{way}")) < 12.0, "{row:#}");
    }
    // 1000 datagrams of 10 kB a second are 80 Mbit/s.
    let arguments = ["udp", "--interval", "1ms", "--bytes", "10000", "--time", "2s"];
    let report = measure(None, &folder, &server, &arguments);
    assert!(figure(&report, "/refused") > 100.0, "{report:#}");
    assert_eq!(
        (&report["to_host"]["lost"], &report["from_host"]["lost"]),
        (&0.into(), &0.into()),
        "{report:#}"
    );
}

#[test]
fn losses_are_found_in_their_direction() {
    let Some(network) = Network::new('d', 1500) else { return };
    let folder = Folder::new("losses");
    // One of ten long datagrams is dropped on its way to the host.
    if !nft(&network.far, "prerouting", "udp length > 200 numgen inc mod 10 == 0 drop;") {
        println!("skipped: there is no nft");
        return;
    }
    let server = serve(&network, &folder, &[]);
    let arguments = ["udp", "--interval", "5ms", "--bytes", "300", "--time", "2s"];
    let report = measure(Some(&network), &folder, &server, &arguments);
    let lost = figure(&report, "/to_host/lost_percent");
    assert!((8.0..12.0).contains(&lost), "{report:#}");
    for fate in ["from_host/lost", "from_host/reordered", "to_host/reordered", "to_host/duplicates"] {
        assert_eq!(figure(&report, &format!("/{fate}")), 0.0, "{fate}: {report:#}");
    }
    assert!(report["verdict"].as_str().is_some_and(|text| text.starts_with("to the host ")), "{report:#}");
    let next = report["next"].as_str().expect("a command");
    assert!(next.starts_with(&format!("`kiban lab latency {}`", server.at)), "{next}");
    // One of ten probes, which are short, is lost on its way back, whatever the load.
    assert!(
        nft(&network.near, "prerouting", "udp length < 200 numgen inc mod 10 == 0 drop;"),
        "there was nft"
    );
    let latency = measure(Some(&network), &folder, &server, &["latency", "--seconds", "2"]);
    let verdict = latency["verdict"].as_str().expect("a verdict");
    let begins =
        verdict.starts_with("the idle path loses ") && verdict.contains("of the probes from the host; ");
    assert!(begins, "{latency:#}");
    assert!(!verdict.contains("of the probes to the host"), "{latency:#}");
    let first = latency["advice"][0].as_str().expect("advice");
    assert!(first.starts_with("the path loses ") && first.contains(" from the host although"), "{latency:#}");
    // Both namespaces have the same clock.
    let [offset, uncertainty] =
        ["offset_ms", "uncertainty_ms"].map(|name| figure(&report, &format!("/clocks/{name}")));
    assert!(offset.abs() <= uncertainty + 0.05, "{report:#}");
}

#[test]
fn reordering_is_found_in_its_direction_and_is_no_loss() {
    let Some(network) = Network::new('o', 1500) else { return };
    let folder = Folder::new("order");
    // Four of sixty datagrams from the host wait for a slow class; the others do not.
    let classes = [
        "qdisc add dev wire root handle 1: htb default 10",
        "class add dev wire parent 1: classid 1:10 htb rate 1gbit",
        "class add dev wire parent 1: classid 1:20 htb rate 250kbit burst 1600 cburst 1600",
    ];
    if !classes.iter().all(|class| tc(&network.far, class)) {
        println!("skipped: this kernel has no htb");
        return;
    }
    let slow = "udp length > 1000 numgen inc mod 60 < 4 meta priority set 0x10020;";
    if !nft(&network.far, "postrouting", slow) {
        println!("skipped: there is no nft");
        return;
    }
    let server = serve(&network, &folder, &[]);
    let arguments = ["udp", "--interval", "5ms", "--bytes", "1200", "--time", "2s"];
    let report = measure(Some(&network), &folder, &server, &arguments);
    assert!(figure(&report, "/from_host/reordered") >= 1.0, "{report:#}");
    for fate in ["from_host/lost", "to_host/lost", "to_host/reordered"] {
        assert_eq!(figure(&report, &format!("/{fate}")), 0.0, "{fate}: {report:#}");
    }
}

#[test]
fn a_queue_of_datagrams_delays_only_its_direction() {
    let Some(network) = Network::new('w', 1500) else { return };
    // 1.95 Mbit/s of datagrams with their headers meet a quarter of that.
    if !bucket(&network.near, "500kbit", "400ms") {
        println!("skipped: this kernel has no tbf");
        return;
    }
    let folder = Folder::new("way");
    let server = serve(&network, &folder, &[]);
    let arguments = ["udp", "--interval", "5ms", "--bytes", "1180", "--time", "3s"];
    let report = measure(Some(&network), &folder, &server, &arguments);
    let spread = |way: &str| {
        figure(&report, &format!("/{way}/one_way/p95_ms"))
            - figure(&report, &format!("/{way}/one_way/min_ms"))
    };
    assert!(spread("to_host") > 50.0, "{report:#}");
    assert!(spread("from_host") < 0.3 * spread("to_host"), "{report:#}");
    assert!(
        report["verdict"]
            .as_str()
            .is_some_and(|text| text.starts_with("to the host ") && text.contains("delays vary by")),
        "{report:#}"
    );
    // A growing queue is not taken for the drift of a clock.
    assert_eq!(figure(&report, "/clocks/drift_ppm"), 0.0, "{report:#}");
}
