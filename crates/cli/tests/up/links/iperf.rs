//! iperf3 as a server and as a client.

use crate::common::{run, text};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;

/// The maximum number of runs in which the rate must reach `floor` once.
const RUNS_MAX: usize = 10;

/// An iperf3 server for one run; it is killed at the end of the test if it is still running.
struct Server(Child);

impl Server {
    /// Starts a server and waits for the line that says that it is listening.
    fn begin(begin: impl FnOnce(Command) -> Child) -> Server {
        let mut command = Command::new("iperf3");
        command.args(["-s", "-1", "--forceflush"]).stdout(Stdio::piped());
        let mut child = begin(command);
        let told = BufReader::new(child.stdout.take().expect("piped"));
        // The thread reads until the end of the output, so that the pipe does not fill up and block the
        // server.
        let (tell, ready) = mpsc::channel();
        std::thread::spawn(move || {
            for line in told.lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        while !ready.recv().expect("it says where it listens").contains("listening") {}
        Server(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the result from iperf3: the rate at the receiver in bit/s, and the number of bytes.
fn measured(output: &Output) -> (f64, f64) {
    let told: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(output)));
    let sum = &told["end"]["sum_received"];
    let figure = |name: &str| sum[name].as_f64().unwrap_or_else(|| panic!("no {name}: {told}"));
    (figure("bits_per_second"), figure("bytes"))
}

/// Runs iperf3 against an address, with a server started by `begin`; returns the received rate in bit/s. The
/// result is the best of several runs, because other load on the machine can only make a run slower.
pub(crate) fn rate(client: &[&str], floor: f64, begin: impl Fn(Command) -> Child) -> f64 {
    let mut best = 0.0_f64;
    for _ in 0..RUNS_MAX {
        let _server = Server::begin(&begin);
        let output = run("iperf3", &[client, &["-t", "2", "-J"]].concat());
        let (rate, bytes) = measured(&output);
        println!("iperf3 {}: {:.1} Mbit/s, {bytes} bytes", client.join(" "), rate / 1e6);
        best = best.max(rate);
        if best > floor {
            break;
        }
    }
    best
}
