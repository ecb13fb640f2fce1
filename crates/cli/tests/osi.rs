//! `kiban osi` as a user runs it.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

fn kiban(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kiban")).args(arguments).output().expect("the program was built")
}

/// An echo server process, with its address and its output.
struct Server(Child, String, BufReader<ChildStderr>);

impl Server {
    fn start() -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_kiban"))
            .args(["osi", "echo", "--listen", "127.0.0.1:0"])
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program was built");
        let mut told = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        told.read_line(&mut line).expect("it says where it answers");
        let at = line.strip_prefix("listening on ").and_then(|rest| rest.split(';').next());
        let at = at.unwrap_or_else(|| panic!("{line}")).to_owned();
        Server(child, at, told)
    }

    fn says(&mut self) -> String {
        let mut line = String::new();
        self.2.read_line(&mut line).expect("a line");
        line
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn echoes_are_measured_and_each_association_is_logged() {
    let mut server = Server::start();
    let at = server.1.clone();
    let output = kiban(&["osi", "echo", &at, "--quiet", "--count", "20", "--bytes", "70000"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("Echoes of 70000 bytes"), "{output:?}");
    let line = server.says();
    assert!(line.contains("20 values, 1400100 bytes echoed, released"), "{line}");

    let output = kiban(&["osi", "echo", &at, "--quiet", "--json", "--tsel", "0x0001", "--ssel", "s"]);
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((value["bytes"].as_u64(), value["count"].as_u64()), (Some(100), Some(1000)));
    assert!(value["p99_us"].as_f64() >= value["p50_us"].as_f64() && value.get("cpu_percent").is_none());
}

#[test]
fn a_probe_lists_what_a_peer_supports_and_exits_with_0() {
    let server = Server::start();
    let output = kiban(&["osi", "probe", &server.1]);
    // The table wraps long answers.
    let text = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    for words in ["transport", "session", "presentation", "ACSE", "F-INITIALIZE", "any selector is accepted"]
    {
        assert!(output.status.success() && text.contains(words), "{words}: {output:?}");
    }
    let value: Value = serde_json::from_slice(&kiban(&["osi", "probe", &server.1, "--json"]).stdout).unwrap();
    assert_eq!((&value["tpkt"], value["target"].as_str()), (&Value::Bool(true), Some(&*server.1)));
    assert!(value["findings"].as_array().is_some_and(|findings| findings.len() > 20), "{value}");
}

#[test]
fn a_peer_without_osi_is_reported_with_exit_status_1() {
    let output = kiban(&["osi", "probe", "127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("refused"), "{output:?}");
}

#[test]
fn the_reason_of_a_transport_refusal_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let at = listener.local_addr().expect("it is bound");
    // A DR with the reason "address unknown", and text as additional information.
    let refusal = b"\x03\0\0\x11\x0c\x80\0\x01\0\0\x03\xe0\x04help";
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.expect("it comes");
            let _ = socket.read(&mut [0; 100]);
            let _ = socket.write_all(refusal);
            // The side that refuses waits for the initiator to close the connection.
            let _ = socket.read_to_end(&mut Vec::new());
        }
    });
    for arguments in [
        &["osi", "echo", &at.to_string(), "--quiet"][..],
        &["osi", "probe", &at.to_string()],
        &["ftam", "ls", &format!("ftam://{at}/")],
    ] {
        let output = kiban(arguments);
        let text = [output.stdout.clone(), output.stderr.clone()].concat();
        // The table wraps the text of its cells.
        let text = String::from_utf8_lossy(&text).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("the selector is unknown (3), saying \"help\""), "{arguments:?}: {text}");
    }
}

#[test]
fn usage_errors_name_a_remedy() {
    for (arguments, code, words) in [
        (&["osi", "echo"][..], 2, "--listen"),
        (&["osi", "echo", "127.0.0.1:1"], 1, "refused"),
        (&["osi", "echo", "host:port"], 2, "is not a port"),
        (&["osi", "probe", "host", "--tsel", "0x1"], 2, "pairs of digits"),
        (&["osi", "probe", "host", "--session-version", "3"], 2, "the session versions are 1 and 2"),
        (&["osi", "probe", "host", "--tls-ca", "x"], 2, "--tls"),
        (&["osi", "probe", "host", "--password-file", "x"], 2, "--user"),
        (&["osi", "probe", "host", "--user", "x", "--password-file", "/nowhere"], 1, "cannot read /nowhere"),
        (&["osi", "probe", "host", "--tls", "--tls-ca", "/nowhere"], 1, "cannot read /nowhere as PEM"),
        (&["osi", "echo", "--listen", "127.0.0.1:0", "--tls"], 1, "--tls-cert and --tls-key"),
        (&["osi", "echo", "--listen", "192.0.2.1:1102"], 1, "this host does not have the address"),
        (&["osi", "echo", "host", "--syntax", "octets"], 2, "numbers separated by dots"),
    ] {
        let output = kiban(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && text.contains(words), "{arguments:?}: {output:?}");
    }
}
