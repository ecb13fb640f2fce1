//! iperf3 as a server and as a client.

use crate::common::{run, text};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;

/// Runs until the floor is met, at most.
const RUNS_MAX: usize = 10;

/// A server of iperf3 for one run; it ends with the test at the latest.
struct Server(Child);

impl Server {
    /// It listens when it says so.
    fn begin(begin: impl FnOnce(Command) -> Child) -> Server {
        let mut command = Command::new("iperf3");
        command.args(["-s", "-1", "--forceflush"]).stdout(Stdio::piped());
        let mut child = begin(command);
        let told = BufReader::new(child.stdout.take().expect("piped"));
        // The thread reads on to the end: nobody is held up by a pipe that is full.
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
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns iperf3's result: bit/s at the receiver, and bytes.
fn measured(output: &Output) -> (f64, f64) {
    let told: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(output)));
    let sum = &told["end"]["sum_received"];
    let figure = |name: &str| sum[name].as_f64().unwrap_or_else(|| panic!("no {name}: {told}"));
    (figure("bits_per_second"), figure("bytes"))
}

/// A run against an address, with a server that `begin` begins: bit/s that arrived. On a machine that has
/// other things to do as well the best run is what the way can carry.
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
