//! `kiban ping`: hosts that answer, a host that is absent, a host that cannot be reached.

use crate::common::{LONG, TestDir, enter, ip, text};
use serde_json::Value;
use std::process::Output;

const BOARD: &str = "name = \"lab\"\n[[port]]\nname = \"lan\"\nlink = \"tap:kiban0\"\n\
    address = [\"10.9.0.2/24\", \"fd00:9::2/64\"]\nhost_address = \"10.9.0.1/24\"\n";

fn results(output: &Output) -> Vec<Value> {
    let out = String::from_utf8_lossy(&output.stdout);
    out.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {}", text(output))))
        .collect()
}

#[test]
fn a_board_pings_the_kernel_and_itself_over_both_families() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("echo-hosts");
    let _board = dir.up(BOARD);
    ip("-6 addr add fd00:9::1/64 dev kiban0 nodad");
    // The board may use its IPv6 address once duplicate address detection has ended (RFC 4862 §5.4).
    let clock = kiban_os::Clock::new();
    while dir.kiban(&["ping", "fd00:9::1", "-c", "1"]).status.code() == Some(2) {
        assert!(clock.now().as_secs_f64() < LONG.as_secs_f64(), "the address is never usable");
    }
    for (target, size) in [("10.9.0.1", 56), ("10.9.0.1", 5000), ("fd00:9::1", 56), ("10.9.0.2", 0)] {
        let length = size.to_string();
        let output = dir.kiban(&["ping", target, "-c", "3", "-i", "10ms", "-s", &length, "--json"]);
        let told = results(&output);
        assert_eq!((output.status.code(), told.len()), (Some(0), 4), "{target}: {}", text(&output));
        for (number, reply) in told[..3].iter().enumerate() {
            assert_eq!(reply["sequence"].as_u64(), Some(number as u64 + 1), "{reply}");
            assert_eq!((reply["from"].as_str(), reply["bytes"].as_u64()), (Some(target), Some(size + 8)));
            assert!(reply["round_trip_us"].as_f64().is_some_and(|time| time >= 0.0), "{reply}");
        }
        let summary = &told[3]["summary"];
        let counts = ["sent", "received", "errors"].map(|key| summary[key].as_u64());
        assert_eq!(counts, [Some(3), Some(3), Some(0)], "{summary}");
        let [min, avg, max] = ["min", "avg", "max"].map(|key| summary["round_trip_us"][key].as_f64());
        assert!(min <= avg && avg <= max && min.is_some(), "{summary}");
    }
    let output = dir.kiban(&["ping", "10.9.0.1", "-c", "1"]);
    let shown = text(&output);
    for part in [
        "PING 10.9.0.1 from board lab: 56 data bytes",
        "64 bytes from 10.9.0.1: icmp_seq=1 time=",
        "1 packets transmitted, 1 received, 0% packet loss",
        "rtt min/avg/max = ",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[test]
fn a_ping_without_a_reply_says_why_and_fails_as_ping_does() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("echo-absent");
    let _board = dir.up(BOARD);
    let output = dir.kiban(&["ping", "10.9.0.77", "-c", "1", "-W", "60", "--json"]);
    let told = results(&output);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert_eq!(told[0]["error"].as_str(), Some("destination host unreachable"), "{}", text(&output));
    assert_eq!(told[0]["from"].as_str(), Some("10.9.0.2"), "{}", text(&output));
    assert_eq!(told[1]["summary"]["errors"].as_u64(), Some(1), "{}", text(&output));
    // The timeout is shorter than the search for the next hop.
    let output = dir.kiban(&["ping", "10.9.0.78", "-c", "1", "-W", "10ms"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("no answer for icmp_seq=1"), "{}", text(&output));
    assert!(text(&output).contains("1 packets transmitted, 0 received, 100% packet loss"));
    for (arguments, says) in [
        (&["192.0.2.1"][..], "cannot ping 192.0.2.1: no route to that address"),
        (&["10.9.0.1", "--board", "other"], "no board other is running; running boards: lab"),
        (&["10.9.0.1", "-s", "65508"], "65508"),
        (&["10.9.0.1", "-W", "2m"], "at most 60 s"),
        (&["example"], "invalid IP address"),
    ] {
        let output = dir.kiban(&[&["ping", "-c", "1"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains(says), "{arguments:?}: {}", text(&output));
    }
}
