//! `kiban rdma` as a user runs it.

use serde_json::Value;
use std::io::{BufRead, BufReader};
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
fn both_measurements_print_a_table_and_json_for_every_operation() {
    let [efe, roce] = ["efe", "roce"].map(|kind| format!("{kind}:127.80.{}.1", std::process::id() % 250));
    for what in ["pingpong", "stream"] {
        for (operation, name) in [("--send", "Send"), ("--write", "RDMA Write"), ("--read", "RDMA Read")] {
            for over in ["tcp", &efe, &roce] {
                let arguments =
                    ["rdma", what, operation, "--over", over, "--quiet", "--count", "100", "--bytes", "64"];
                let output = kiban(&arguments);
                let text = String::from_utf8_lossy(&output.stdout);
                let title = format!("of 64 bytes, {name}, both ends here over {over}");
                assert!(output.status.success() && text.contains(&title), "{output:?}");
                let output = kiban(&[&arguments[..], &["--json", "--crc"]].concat());
                let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
                assert_eq!((value["bytes"].as_u64(), value["count"].as_u64()), (Some(64), Some(100)));
            }
        }
    }
}

#[test]
fn several_sizes_are_rows_of_one_table() {
    let output = kiban(&["rdma", "pingpong", "--quiet", "--count", "20", "--bytes", "1,2000,70000"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for size in ["bytes", "1 ", "2000 ", "70000 "] {
        assert!(text.lines().any(|line| line.trim_start().starts_with(size)), "{size}: {output:?}");
    }
}

/// Starts a server, and returns its address.
fn serve(at: &str, over: &str) -> (Server, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kiban"))
        .args(["rdma", "serve", at, "--over", over])
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built");
    let told = child.stderr.take().expect("piped");
    let server = Server(child);
    let mut line = String::new();
    BufReader::new(told).read_line(&mut line).expect("it says where it serves");
    let at = line.strip_prefix("serving at ").and_then(|rest| rest.split(' ').next()).expect("an address");
    (server, at.to_owned())
}

#[test]
fn a_server_of_another_process_is_measured_by_its_address() {
    let own = format!("127.81.{}.1:0", std::process::id() % 250);
    for (at, over) in [("127.0.0.1:0", "tcp"), (&own, "roce")] {
        let (_server, at) = serve(at, over);
        for what in ["stream", "pingpong"] {
            for operation in ["--send", "--write", "--read"] {
                let arguments =
                    ["rdma", what, &at, "--over", over, operation, "--quiet", "--count", "80", "--json"];
                let output = kiban(&arguments);
                assert!(output.status.success(), "{arguments:?}: {output:?}");
                let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
                assert_eq!(value["count"].as_u64(), Some(80), "{arguments:?}: {output:?}");
            }
        }
    }
}

#[test]
fn usage_errors_name_a_remedy() {
    for (arguments, words) in [
        (&["rdma", "pingpong", "127.0.0.1:1"][..], "connection refused"),
        (&["rdma", "pingpong", "--over", "pigeons"], "use tcp, tcp:ADDRESS"),
        (&["rdma", "pingpong", "--over", "board:"], "use tcp, tcp:ADDRESS, board, board:NAME"),
        (&["rdma", "pingpong", "--over", "nic:"], "nic, nic:NAME, nic-roce, nic-roce:NAME"),
        (&["rdma", "pingpong", "nowhere"], "use IP:PORT or MAC/SERVICE"),
        (&["rdma", "pingpong", "--over", "efe-raw:lo"], "specify SERVER"),
        (&["rdma", "stream", "--read", "--write"], "cannot be used with"),
        (&["rdma", "pingpong", "02:00:00:00:00:01/7"], "need an address in the form IP:PORT"),
        (&["rdma", "pingpong", "--over", "roce:::1"], "use another address of this host"),
        (&["rdma", "serve", "0.0.0.0:7471", "--over", "roce"], "use roce:ADDRESS"),
        (&["rdma", "serve", "127.0.0.9:7471", "--over", "roce:127.0.0.8"], "listen at 127.0.0.8"),
    ] {
        let output = kiban(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(words), "{arguments:?}: {text}");
    }
}
