//! `kiban lab sweep --board` and `serve --board`: measurements over the TCP of two running boards, which
//! exchange cells. The host's network has no route to the boards' addresses, so only the boards' TCP can
//! carry the measurement.

use crate::common::{TestDir, enter, text};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

const TOKEN: &str = "a token of this test alone";

/// Returns the configuration of a board that programs can attach to.
fn config(name: &str, own: u16, other: u16) -> String {
    format!(
        "name = \"{name}\"\n[[port]]\nname = \"atm\"\n\
         link = \"udp-cells:127.0.0.1:{own}-127.0.0.1:{other},packed\"\naddress = \"10.1.0.{}/24\"\n\
         [[port.pvc]]\nvc = \"0.100\"\n[[service]]\nkind = \"attach\"\n",
        own % 10
    )
}

/// `kiban lab serve` on the board `peer`.
struct Server(Child);

impl Server {
    fn start(dir: &TestDir) -> Server {
        dir.write("token", TOKEN);
        let arguments = ["lab", "serve", "--board", "peer", "--quiet", "--token-file", "token"];
        let mut child = dir.command(&arguments).stderr(Stdio::piped()).spawn().expect("it was built");
        let mut line = String::new();
        let mut said = BufReader::new(child.stderr.take().expect("piped"));
        said.read_line(&mut line).expect("it says where it listens");
        assert!(line.starts_with("listening on [::]:4195"), "{line}{}", dir.log());
        // Read the rest, so that the server can write it.
        std::thread::spawn(move || said.lines().map_while(Result::ok).for_each(drop));
        Server(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_sweep_runs_over_the_tcp_of_two_boards_and_names_them() {
    if !enter() {
        return;
    }
    let (near, far) = (TestDir::new("lab-near"), TestDir::new("lab-far"));
    let board = near.up(&config("lab", 7001, 7002));
    let _peer = far.up(&config("peer", 7002, 7001));
    board.until("the peer is known", |status| status["circuits"][0]["peer"] == "10.1.0.2");
    let _server = Server::start(&far);
    near.write("token", TOKEN);
    let sweep = |more: &[&str]| {
        let list = ["lab", "sweep", "10.1.0.2", "--board", "lab", "--token-file", "token", "--json"];
        let rest = ["--quiet", "--seconds", "0.1", "--foreign-cores", "100", "--patience", "0"];
        near.kiban(&[&list[..], &rest, more].concat())
    };
    let output = sweep(&["--messages", "100,4000", "--pattern", "write-read,stream", "--both-directions"]);
    assert!(output.status.success(), "{}\n{}", text(&output), near.log());
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let said = (&report["host"], &report["board"], &report["server"]["board"]);
    assert_eq!(said, (&"10.1.0.2 over board lab".into(), &"lab".into(), &"peer".into()), "{report:#}");
    let maps = report["maps"].as_array().expect("a list");
    let cells = maps.iter().flat_map(|map| map["cells"][0].as_array().expect("a row"));
    let figures: Vec<_> = cells.map(|cell| cell["figure"].as_f64()).collect();
    assert!(figures.len() == 8 && figures.iter().all(|figure| *figure > Some(0.0)), "{report:#}");
    // The board's statistics of the connection have arrived. An ATM port has an MTU of 9180 bytes.
    assert!(report["path"]["mss_bytes"].as_u64().is_some_and(|mss| mss > 9000), "{report:#}");
    // The bytes went through the board's attach service.
    let status = board.status();
    let moved = status["services"][0]["counters"]["bytes_out"].as_u64();
    assert!(moved > Some(100_000), "{status}");

    let output = near.kiban(&["lab", "report", "lab-lab-10.1.0.2"]);
    assert!(output.status.success(), "{}", text(&output));
    let page = std::fs::read_to_string(near.0.join("lab-lab-10.1.0.2/report.html")).expect("it was written");
    assert!(page.contains("10.1.0.2 over board lab to board peer: "), "the page names the network");

    let output =
        near.kiban(&["lab", "delay", "10.1.0.2", "--board", "lab", "--token-file", "token", "--count", "20"]);
    assert!(
        output.status.success() && text(&output).contains("10.1.0.2 over board lab"),
        "{}",
        text(&output)
    );

    // A board does not offer what only sockets have, and the error says where to set it instead.
    let output = sweep(&["--messages", "100", "--buffers", "8000", "--out", "buffers"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("come from its configuration ([tcp])"), "{}", text(&output));
    let output = near.kiban(&["lab", "sweep", "10.1.0.2", "--board", "none", "--token-file", "token"]);
    assert!(
        output.status.code() == Some(1) && text(&output).contains("no board none is running"),
        "{}",
        text(&output)
    );
}
