//! The causes of slow streams, each produced on a long path by what it is named after, and look-alikes that
//! must not be called so.
//!
//! Network   two namespaces, 50 ms in each direction and a token bucket of 40 Mbit/s. Round trips this long
//!           hide the jitter of a busy machine.
//! Stopped   a host that reads or writes too slowly is one whose process is stopped for most of the time.
//! Elsewhere the windows of the receiver's system, the sender's buffer, full paths and Nagle: `lab_net.rs`.
//!           The server's own limit: kiban-lab's tests.
//! Skipped   without the right to create namespaces (CAP_SYS_ADMIN, CAP_NET_ADMIN), or without nft or tbf.

mod two_hosts;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;
use two_hosts::script::delayed;
use two_hosts::{FAR, Folder, Network, Server, kiban, nft, run};

/// How long a host is stopped, and how long it runs in between.
const STOPPED: Duration = Duration::from_millis(600);
const RUNNING: Duration = Duration::from_millis(2);

struct Path<'a> {
    network: &'a Network,
    folder: &'a Folder,
    server: &'a Server,
}

impl Path<'_> {
    /// Traces a stream, and returns the cause of its slowness, "none" if it is not slow, with all of the
    /// report.
    fn cause(&self, pattern: &str, more: &[&str]) -> (String, Value) {
        let list = ["lab", "trace", &self.server.at, "--pattern", pattern, "--json", "--seconds", "2"];
        let usual = ["--congestion", "cubic", "--slow-below", "25Mbit/s"];
        let mut command = kiban(Some(&self.network.near));
        command.args(list).args(usual).args(more).args(["--token-file", &self.folder.path("token")]);
        let output = command.output().expect("the program was built");
        assert!(output.status.success(), "{output:?}");
        let mut report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let case = report["cases"][0].take();
        (case["explanation"]["cause"].as_str().unwrap_or("none").to_owned(), case)
    }

    /// The same, while the server's process is stopped for most of the time.
    fn cause_if_stopped(&self, pattern: &str) -> (String, Value) {
        let (stop, stopped) = mpsc::channel::<()>();
        let process = Pid::from_child(&self.server.child);
        let signal = |signal| kill_process(process, signal).expect("it is a child of this process");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while stopped.recv_timeout(RUNNING).is_err() {
                    signal(Signal::STOP);
                    let ends = stopped.recv_timeout(STOPPED).is_ok();
                    signal(Signal::CONT);
                    if ends {
                        break;
                    }
                }
            });
            let found = self.cause(pattern, &[]);
            stop.send(()).expect("it waits");
            found
        })
    }
}

/// Drops one of twenty packets of these lengths that arrive at a namespace; returns false without nft.
fn lossy(side: &str, lengths: &str) -> bool {
    let rule = format!("iifname \"wire\" meta length {lengths} numgen random mod 20 == 0 drop");
    let chain = format!("chain c {{ type filter hook input priority 0; {rule}; }}");
    nft(side, &format!("add table inet t; table inet t {{ {chain}; }}"))
}

#[test]
fn each_cause_of_slow_streams_is_named_and_its_look_alikes_are_not() {
    let Some((_path, network)) = delayed('q', 50) else { return };
    let (near, far) = (network.near.as_str(), network.far.as_str());
    if ![near, far].into_iter().all(|side| Network::bucket(side, "40mbit")) {
        println!("skipped: this kernel has no tbf");
        return;
    }
    let folder = Folder::new("causes");
    let server = Server::start(Some(far), &folder, &format!("{FAR}:0"), &[]);
    let path = Path { network: &network, folder: &folder, server: &server };
    let set = |setting: &str| {
        let mut command = Command::new("ip");
        assert!(run(command.args(["netns", "exec", far, "sysctl", "--quiet", "--write", setting])));
    };

    if !lossy(far, "> 500") {
        println!("skipped: there is no nft");
        return;
    }
    let (cause, case) = path.cause("stream", &[]);
    assert_eq!(cause, "loss", "{case:#}");
    assert!(nft(far, "delete table inet t") && lossy(near, "< 100"));
    let (cause, case) = path.cause("stream", &[]);
    assert_ne!(cause, "loss", "acknowledgements were lost: {case:#}");
    assert!(nft(near, "delete table inet t"));

    // A window of several segments; below, one of less than two.
    let small = ["--message", "500", "--buffer"];
    let (cause, case) = path.cause("stream", &[&small[..], &["16000"]].concat());
    assert_eq!(cause, "receive-buffer", "{case:#}");

    // A host that seldom reads, and one with the same window that always does.
    set("net.ipv4.tcp_rmem=4096 131072 1200000");
    let (cause, case) = path.cause_if_stopped("stream");
    assert_eq!(cause, "receiver", "{case:#}");
    let (cause, case) = path.cause("stream", &[]);
    assert!(!["receiver", "silly-window"].contains(&cause.as_str()), "{case:#}");

    // A host that seldom writes, and one with the same buffer that always does.
    set("net.ipv4.tcp_wmem=4096 65536 300000");
    let (cause, case) = path.cause_if_stopped("stream-back");
    assert_eq!(cause, "sender", "{case:#}");
    let (cause, case) = path.cause("stream-back", &[]);
    assert_ne!(cause, "sender", "{case:#}");

    // Four segments in flight are a twentieth of what the path carries.
    let clamp =
        ["route", "replace", "10.77.31.0/24", "dev", "wire", "src", "10.77.31.1", "cwnd", "lock", "4"];
    // The kernel remembers that it had no such limit.
    for change in [&clamp[..], &["tcp_metrics", "flush"]] {
        assert!(run(Command::new("ip").args(["-n", near]).args(change)), "{change:?}");
    }
    let (cause, case) = path.cause("stream", &["--message", "8000"]);
    assert_eq!(cause, "congestion-window", "{case:#}");
}

/// A window of less than two segments: it opens in smaller steps, for which both ends wait.
#[test]
fn a_window_of_a_segment_is_silly() {
    let Some(network) = Network::new('w', 1500) else { return };
    let folder = Folder::new("silly");
    let server = Server::start(Some(&network.far), &folder, &format!("{FAR}:0"), &[]);
    let path = Path { network: &network, folder: &folder, server: &server };
    let (cause, case) = path.cause("stream", &["--message", "710", "--buffer", "1500"]);
    assert_eq!(cause, "silly-window", "{case:#}");
}
