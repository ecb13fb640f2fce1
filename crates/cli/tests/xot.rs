//! `kiban xot` as a user runs it: two relays and the two endpoints of an association, in separate processes.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};

fn kiban(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kiban")).args(arguments).output().expect("the program was built")
}

/// A service process, its address, and its subsequent output.
struct Server {
    child: Child,
    at: String,
    told: Box<dyn BufRead>,
    lines: Option<Box<dyn BufRead>>,
}

impl Server {
    fn start(arguments: &[&str]) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_kiban"))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program was built");
        let mut told = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        told.read_line(&mut line).expect("it says where it listens");
        let at = line.split(" on ").nth(1).and_then(|rest| rest.split(';').next());
        let at = at.unwrap_or_else(|| panic!("{line}")).to_owned();
        let stdout = child.stdout.take().expect("piped");
        let lines: Box<dyn BufRead> = Box::new(BufReader::new(stdout));
        Server { child, at, told: Box::new(told), lines: Some(lines) }
    }

    fn says(&mut self) -> String {
        let mut line = String::new();
        self.told.read_line(&mut line).expect("a line");
        line
    }

    fn json(&mut self) -> Value {
        let mut line = String::new();
        self.lines.as_mut().expect("piped").read_line(&mut line).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_echo_crosses_x25_and_both_relays_log_it() {
    let echo = Server::start(&["osi", "echo", "--listen", "127.0.0.1:0"]);
    let route = format!("4567*={}", echo.at);
    let mut from_xot = Server::start(&["xot", "--listen", "127.0.0.1:0", "--route", &route]);
    let place = format!("127.0.0.1:0={}/45678901", from_xot.at);
    let mut to_xot =
        Server::start(&["xot", "--place", &place, "--packet-bytes", "256", "--window", "2", "--json"]);

    let output =
        kiban(&["osi", "echo", &to_xot.at, "--quiet", "--json", "--count", "4", "--bytes", "1048576"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!((value["count"].as_u64(), value["bytes"].as_u64()), (Some(4), Some(1 << 20)));

    assert!(from_xot.says().contains("calls 45678901, connected to"));
    let line = from_xot.says();
    assert!(line.contains("ended") && line.contains("bytes to X.25"), "{line}");
    let (open, closed) = (to_xot.json(), to_xot.json());
    assert_eq!((open["event"].as_str(), open["called"].as_str()), (Some("open"), Some("45678901")));
    assert_eq!((closed["event"].as_str(), closed["circuit"].as_u64()), (Some("closed"), Some(1)));
    assert!(closed["bytes_to_x25"].as_u64() > Some(4 << 20), "{closed}");
}

#[test]
fn an_unreachable_router_is_reported() {
    let mut relay = Server::start(&["xot", "--place", "127.0.0.1:0=127.0.0.1:1/45"]);
    let mut socket = std::net::TcpStream::connect(&relay.at).expect("it listens");
    assert_eq!(socket.read(&mut [0; 1]).unwrap_or(0), 0);
    let line = relay.says();
    assert!(line.contains("refused") && line.contains("127.0.0.1:1"), "{line}");
}

#[test]
fn usage_errors_name_a_remedy() {
    for (arguments, code, words) in [
        (&["xot"][..], 2, "--route"),
        (&["xot", "--route", "45"], 2, "PATTERN=HOST"),
        (&["xot", "--route", "4x=host"], 2, "an X.121 address such as"),
        (&["xot", "--place", "1102=router/45"], 2, "is not ADDRESS:PORT"),
        (&["xot", "--place", "127.0.0.1:0=router"], 2, "ROUTER/CALLED"),
        (&["xot", "--place", "127.0.0.1:0=r/45", "--packet-bytes", "100"], 2, "must be 16"),
        (&["xot", "--place", "127.0.0.1:0=r/45", "--window", "8"], 1, "--modulo 128"),
        (&["xot", "--place", "127.0.0.1:0=r/45", "--called-nsap", "4"], 2, "1 to 20 octets"),
        (&["xot", "--listen", "127.0.0.1:0"], 2, "--route"),
        (
            &["xot", "--route", "*=host", "--listen", "192.0.2.1:1998"],
            1,
            "this host does not have the address",
        ),
    ] {
        let output = kiban(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && text.contains(words), "{arguments:?}: {output:?}");
    }
}
