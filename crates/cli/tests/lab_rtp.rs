//! `kiban lab rtp`: streams over the loopback, and between simulated boards, with a capture that Wireshark
//! reads.

use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::UdpSocket;
use std::process::{Command, Output, Stdio};

fn kiban(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiban"));
    command.args(["lab", "rtp"]).args(arguments);
    command
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Returns a free port whose successor is free, too.
fn port() -> u16 {
    loop {
        let free = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("loopback");
        let next = free.port().checked_add(1).map(|next| UdpSocket::bind(("127.0.0.1", next)));
        if matches!(next, Some(Ok(_))) {
            return free.port();
        }
    }
}

#[test]
fn streams_over_the_loopback_are_received_and_reported() {
    let at = format!("127.0.0.1:{}", port());
    let arguments = ["receive", "--listen", &at, "--time", "1min", "--json", "--name", "there"];
    let mut receiver = kiban(&arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built");
    let mut said = String::new();
    BufReader::new(receiver.stderr.take().expect("piped")).read_line(&mut said).expect("it says where");
    assert!(said.contains(&at), "{said}");
    // A receiver's first report comes within 2.5 s * 1.5 / 1.218, so its goodbye at the end has a report,
    // too.
    let send =
        ["send", &at, "--streams", "2", "--interval", "10ms", "--time", "5s", "--json", "--name", "here"];
    let sent = json(&kiban(&send).output().expect("the program was built"));
    let mut text = String::new();
    receiver.stdout.take().expect("piped").read_to_string(&mut text).expect("it ends after the goodbyes");
    assert!(receiver.wait().expect("it is a child of this process").success());
    let received: Value = serde_json::from_str(&text).expect("JSON");
    let streams = received["streams"].as_array().expect("a list");
    assert_eq!(streams.len(), 2, "{received:#}");
    for stream in streams {
        // A busy host may drop datagrams, which then count as lost.
        let packets = stream["packets"].as_u64().expect("a count");
        let lost = stream["lost"].as_i64().expect("a count");
        assert_eq!(packets as i64 + lost, 499, "{received:#}");
        assert!(stream["cname"] == "here" && stream["has_left"] == true, "{received:#}");
        assert!(stream["jitter_ms"].as_f64().is_some_and(|jitter| jitter >= 0.0), "{received:#}");
        // Sender and receiver share the clock; timestamps have a resolution of 0.125 ms.
        assert!(stream["one_way_ms"].as_f64().is_some_and(|delay| delay > -0.5), "{received:#}");
    }
    for stream in sent["streams"].as_array().expect("a list") {
        assert_eq!((&stream["packets"], &stream["payload_bytes"]), (&500.into(), &80_000.into()), "{sent:#}");
        assert!(stream["lost"].is_i64(), "the receiver has reported: {sent:#}");
        assert!(stream["round_trip_ms"].as_f64().is_some_and(|trip| trip >= 0.0), "{sent:#}");
    }
}

#[test]
fn wireshark_reads_the_packets_of_boards_as_rtp_and_rtcp() {
    let file = std::env::temp_dir().join(format!("kiban-rtp-{}.pcap", std::process::id()));
    let path = file.display().to_string();
    let boards =
        ["boards", "--streams", "2", "--packets", "600", "--loss", "0.02", "--pcap", &path, "--json"];
    let figures = json(&kiban(&boards).output().expect("the program was built"));
    let tshark = |filter: &str, fields: &[&str]| {
        let mut command = Command::new("tshark");
        command.args(["-r", &path, "-d", "udp.port==5004,rtp", "-d", "udp.port==5005,rtcp", "-Y", filter]);
        command.args(["-T", "fields", "-E", "separator=;"]);
        for field in fields {
            command.args(["-e", field]);
        }
        let output = command.output().expect("tshark");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(tshark("_ws.malformed || _ws.expert.severity == 0x800000", &["frame.number"]).is_empty());
    for stream in figures["received"]["streams"].as_array().expect("a list") {
        let ssrc = stream["ssrc"].as_u64().expect("a number");
        let packets = tshark(&format!("rtp.ssrc == {ssrc:#x}"), &["rtp.p_type", "rtp.payload"]);
        // The first packet only announces the stream.
        let counted = ["packets", "ignored"].map(|name| stream[name].as_u64().expect("a count"));
        assert_eq!(packets.len() as u64, counted.iter().sum::<u64>(), "{figures:#}");
        assert!(packets.iter().all(|fields| fields.starts_with("0;5a5a")), "{packets:?}");
        let reports = tshark(&format!("rtcp.pt == 200 && rtcp.senderssrc == {ssrc:#x}"), &["rtcp.sdes.text"]);
        assert!(!reports.is_empty() && reports.iter().all(|name| name.contains("stream-")), "{reports:?}");
    }
    assert!(!tshark("rtcp.pt == 203", &["frame.number"]).is_empty(), "streams end with a goodbye");
    std::fs::remove_file(&file).expect("it was written");
}

#[test]
fn figures_are_shown_in_tables_and_errors_say_what_to_do() {
    let output = kiban(&["boards", "--packets", "50", "--jitter", "5ms"]).output().expect("it was built");
    let text = String::from_utf8_lossy(&output.stdout);
    for words in ["Streams received", "jitter ms", "one-way ms", "Streams sent", "The cable lost 0 datagrams"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    for (arguments, status, words) in [
        (&["receive", "--listen", "127.0.0.1:0"][..], 1, "RTCP uses the next one"),
        (&["send", "127.0.0.1:65535"], 1, "RTCP uses the next one"),
        (&["send", "127.0.0.1", "--interval", "0ms"], 2, "from 10us to 10s"),
        (&["boards", "--loss", "1"], 2, "below 1"),
    ] {
        let output = kiban(arguments).output().expect("it was built");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(status) && said.contains(words), "{arguments:?}: {said}");
    }
}
