//! `kiban vi` as a user runs it.

use serde_json::Value;
use std::process::{Child, Command, Output, Stdio};

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
    // Retry until the server, which was just started, accepts the client.
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

#[test]
fn usage_errors_name_a_remedy() {
    for (arguments, words) in [
        (&["vi", "pingpong", "shm:nobody-here-at-all"][..], "start the other side first"),
        (&["vi", "serve", "--device", "loopback"], "give shm:NAME, udp:ADDRESS or board:NAME@ADDRESS"),
        (&["vi", "pingpong", "nic0"], "write loopback, shm, shm:NAME"),
        (&["vi", "pingpong", "--wait", "soon"], "hybrid:DURATION (such as hybrid:100us)"),
    ] {
        let output = kiban(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(words), "{arguments:?}: {text}");
    }
}
