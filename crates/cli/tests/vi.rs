//! `kiban vi` as a user runs it.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

fn kiban(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kiban")).args(arguments).output().expect("the program was built")
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn both_measurements_print_a_table_and_json() {
    for what in ["pingpong", "stream"] {
        let arguments = ["vi", what, "--quiet", "--count", "100", "--bytes", "64"];
        let output = kiban(&arguments);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("shared memory, both ends here"), "{output:?}");
        let output = kiban(&[&arguments[..], &["--json", "--level", "reception"]].concat());
        let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!((value["bytes"].as_u64(), value["count"].as_u64()), (Some(64), Some(100)));
    }
}

#[test]
fn a_server_of_another_process_is_measured_by_name() {
    let name = format!("shm:cli-{}", std::process::id());
    let child = Command::new(env!("CARGO_BIN_EXE_kiban"))
        .args(["vi", "serve", "--quiet", "--device", &name])
        .stderr(Stdio::inherit())
        .spawn()
        .expect("the program was built");
    let _server = Server(child);
    // The server was just started: retry until it accepts the client.
    let mut tries = 0;
    let output = loop {
        let output = kiban(&["vi", "stream", &name, "--quiet", "--count", "80", "--json"]);
        tries += 1;
        if output.status.success() || tries > 1000 {
            break output;
        }
    };
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((value["count"].as_u64(), value["lost"].as_u64()), (Some(80), Some(0)));
}

/// Waits for a while during which a process is stopped.
fn pause(time: Duration) {
    let (_keep, never) = std::sync::mpsc::channel::<()>();
    let _ = never.recv_timeout(time);
}

#[test]
fn a_server_that_gets_no_processor_is_lost_unless_silence_lets_it_be_silent() {
    // The impatient client gives up while the server is stopped; the patient one finishes after the server
    // continues.
    for (silence, count, is_lost) in [("300ms", "100000000", true), ("10min", "20000", false)] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_kiban"))
            .args(["vi", "serve", "--silence", "10min", "--device", "udp:127.0.0.1:0"])
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program was built");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let server = Server(child);
        let line = lines.next().expect("it starts").expect("it is text");
        let address = line.strip_prefix("serving at ").and_then(|rest| rest.split_once(';'));
        let address = address.unwrap_or_else(|| panic!("{line}")).0.to_owned();
        let signal = |signal: &str| {
            let status = Command::new("kill").args([signal, &server.0.id().to_string()]).status();
            assert!(status.expect("kill is there").success());
        };
        let client = Command::new(env!("CARGO_BIN_EXE_kiban"))
            .args(["vi", "pingpong", &address, "--count", count, "--quiet", "--json", "--silence", silence])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program was built");
        pause(Duration::from_millis(200));
        signal("-STOP");
        if !is_lost {
            // Longer than the default, 0.9 s.
            pause(Duration::from_millis(1300));
            signal("-CONT");
        }
        let output = client.wait_with_output().expect("it ends");
        assert_eq!(output.status.success(), !is_lost, "{silence}: {output:?}");
    }
}

#[test]
fn usage_errors_name_a_remedy() {
    for (arguments, words) in [
        (&["vi", "pingpong", "shm:nobody-here-at-all"][..], "start the other side first"),
        (&["vi", "serve", "--device", "loopback"], "give shm:NAME, udp:ADDRESS or board:NAME@ADDRESS"),
        (&["vi", "pingpong", "nic0"], "use loopback, shm, shm:NAME"),
        (&["vi", "pingpong", "--wait", "soon"], "hybrid:DURATION (such as hybrid:100us)"),
    ] {
        let output = kiban(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(words), "{arguments:?}: {text}");
    }
}

#[test]
fn tune_measures_each_cell_and_recommends_a_setting() {
    let output = kiban(&["vi", "tune", "--quick", "--link", "shm", "--json", "--quiet"]);
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let cells = value["cells"].as_array().expect("a list");
    assert_eq!(cells.len(), 4 * 3 * 3 * 2, "policies, sizes, buffers and patterns");
    for cell in cells {
        let (messages, lost) = (cell["messages"].as_u64(), cell["lost"].as_u64());
        assert!(lost <= messages && messages > Some(0), "{cell}");
    }
    let best = &value["recommended"][0];
    assert_eq!(best["link"].as_str(), Some("shm"));
    let is_best = |cell: &&Value| cell["wait"] == best["wait"] && cell["descriptors"] == best["descriptors"];
    assert!(cells.iter().any(|cell| is_best(&cell)), "{best}");
}
