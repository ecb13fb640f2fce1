//! `kiban atm` as an operator runs it: pings, a switch and bridges. Each test has its own network namespace
//! and uses the loopback interface there.

use kiban_atm::TimedCell;
use kiban_atm::wire::atm::{Header, Interface, Vc};
use kiban_base::Instant;
use kiban_os::interface::enter_new_namespace;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const KIBAN: &str = env!("CARGO_BIN_EXE_kiban");
/// A timeout that is longer than any step of these tests.
const LONG: Duration = Duration::from_secs(60);

/// Returns whether the test runs in its own network namespace; if not, prints why.
fn enter() -> bool {
    match enter_new_namespace() {
        Ok(()) => true,
        Err(error) => {
            println!("skipped: {error}");
            false
        }
    }
}

/// A directory for one test, with configurations and control sockets.
struct TestDir(PathBuf);

impl TestDir {
    fn new(test: &str) -> TestDir {
        let path = std::env::temp_dir().join(format!("kiban-atm-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("there is disk space");
        TestDir(path)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("there is disk space");
        path.display().to_string()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(KIBAN);
        command.args(arguments).env("XDG_RUNTIME_DIR", &self.0).env_remove("KIBAN_LOG");
        command
    }

    fn kiban(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the program was built")
    }

    /// Runs the program in a namespace (`None` means the test's own) until it reports that it is ready.
    fn start(&self, namespace: Option<&str>, arguments: &[&str]) -> Running {
        let mut command = match namespace {
            None => self.command(arguments),
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace, KIBAN]).args(arguments);
                command.env("XDG_RUNTIME_DIR", &self.0).env_remove("KIBAN_LOG");
                command
            }
        };
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{error}"));
        let mut log = BufReader::new(child.stderr.take().expect("piped"));
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let (mut line, mut all) = (String::new(), String::new());
        while !line.contains(" ready") {
            line.clear();
            assert!(log.read_line(&mut line).expect("text") > 0, "{arguments:?}: {all}");
            all += &line;
        }
        // Read the rest of the output, so that the writer does not block.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Running { child, out }
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        // Ignore errors: a leftover directory does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Running {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Running {
    fn signal(&self, name: &str) {
        assert!(
            Command::new("kill").args([name, &self.child.id().to_string()]).status().expect("kill").success()
        );
    }

    /// Returns the next line of the program's output, as JSON.
    fn line(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.out.read_line(&mut line).expect("text") > 0, "it has ended");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Returns the rest of the program's output.
    fn rest(&mut self) -> String {
        let mut text = String::new();
        self.out.read_to_string(&mut text).expect("text");
        text
    }

    /// Stops the program and returns its exit status.
    fn stop(&mut self) -> Option<i32> {
        self.signal("-TERM");
        self.child.wait().expect("it is a child of this process").code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn lines(output: &Output) -> Vec<Value> {
    let out = String::from_utf8_lossy(&output.stdout);
    out.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

fn ip(command: &str) {
    let output = Command::new("ip").args(command.split(' ')).output().expect("iproute2 is there");
    assert!(output.status.success(), "ip {command}: {}", text(&output));
}

/// A board with two circuits, one of which is in another virtual path.
const BOARD: &str = "name = \"lab\"\n[[port]]\nname = \"atm\"\nlink = \"udp-cells:127.0.0.1:7001-127.0.0.1:7000\"\n\
    address = \"10.0.0.2/24\"\n[[port.pvc]]\nvc = \"0.100\"\npeer = \"10.0.0.1\"\n[[port.pvc]]\nvc = \"5.101\"\npeer = \"10.0.0.3\"\n";
const LINK: &str = "udp-cells:127.0.0.1:7000-127.0.0.1:7001";

#[test]
fn boards_answer_pings_on_their_circuits_and_paths_only() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("answers");
    let config = dir.write("board.toml", BOARD);
    let _board = dir.start(None, &["up", &config]);
    for (circuit, more) in [
        ("0.100", None),
        ("0.100", Some("--segment")),
        ("5.101", None),
        ("5", None),
        ("0", Some("--segment")),
    ] {
        let mut arguments =
            vec!["atm", "ping", LINK, circuit, "--count", "3", "--interval", "20ms", "--json"];
        arguments.extend(more);
        let output = dir.kiban(&arguments);
        let told = lines(&output);
        assert_eq!((output.status.code(), told.len()), (Some(0), 4), "{circuit}: {}", text(&output));
        for (number, line) in told[..3].iter().enumerate() {
            let time = line["round_trip_us"].as_f64().expect("a time");
            assert_eq!(line["sequence"].as_u64(), Some(number as u64), "{line}");
            assert!(time > 0.0 && time < 5e6, "{line}");
            assert_eq!((time * 1e3).round() / 1e3, time, "no more than thousandths: {line}");
        }
        let summary = &told[3]["summary"];
        assert_eq!((summary["sent"].as_u64(), summary["received"].as_u64()), (Some(3), Some(3)), "{summary}");
        let [least, mean, most] =
            ["min", "avg", "max"].map(|key| summary["round_trip_us"][key].as_f64().expect("a time"));
        assert!(least <= mean && mean <= most, "{summary}");
    }
    for circuit in ["0.101", "1"] {
        let output = dir.kiban(&["atm", "ping", LINK, circuit, "-c", "2", "-i", "10ms", "-t", "100ms"]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(
            text(&output).ends_with(&format!("{circuit}: 2 sent, 0 received, 100 % lost\n")),
            "{}",
            text(&output)
        );
    }
}

#[test]
fn a_board_and_the_ping_command_ping_each_other() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("both");
    let config = dir.write("board.toml", BOARD);
    let _board = dir.start(None, &["up", &config]);
    let mut child = dir.command(&["atm", "ping", LINK, "0.100", "-i", "20ms", "--json"]);
    let mut child = child.stdout(Stdio::piped()).spawn().expect("the program was built");
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    // The program is ready when its first ping has been answered.
    assert!(out.read_line(&mut line).expect("text") > 0);
    for more in [&[][..], &["--segment"]] {
        let mut arguments =
            vec!["atm", "ping", "0.100", "--board", "lab", "--port", "atm", "-c", "3", "-i", "5ms", "--json"];
        arguments.extend(more);
        let output = dir.kiban(&arguments);
        let told = lines(&output);
        assert_eq!((output.status.code(), told.len()), (Some(0), 4), "{}", text(&output));
        assert_eq!(told[3]["summary"]["received"].as_u64(), Some(3), "{}", text(&output));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill").success());
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("text");
    let last: Value = serde_json::from_str(rest.lines().last().expect("a summary")).expect("JSON");
    assert_eq!(last["summary"]["answered"].as_u64(), Some(6), "{last}");
    let [sent, received] = ["sent", "received"].map(|key| last["summary"][key].as_u64().expect("a number"));
    // One ping may still be in flight.
    assert!(received <= sent && sent <= received + 1, "{last}");
    assert_eq!(child.wait().expect("it is a child of this process").code(), Some(0));
    for (arguments, says) in [
        (
            vec!["0.102", "--board", "lab", "--port", "atm"],
            "port atm has no circuit 0.102; its circuits are 0.100, 5.101",
        ),
        (vec!["0.100", "--board", "lab", "--port", "lan"], "no port lan; the ports are atm"),
        (
            vec!["0.100", "--board", "other", "--port", "atm"],
            "no board other is running; running boards: lab",
        ),
        (vec!["0.100"], "give both the link and the circuit"),
        (vec!["tap:tap0", "0.100"], "does not carry cells"),
        (vec![LINK, "300"], "use at most 255, or --nni"),
        (vec![LINK, "a.b"], "neither a circuit nor a path"),
    ] {
        let output = dir.kiban(&[&["atm", "ping", "-c", "1"], &arguments[..]].concat());
        assert!(output.status.code() == Some(1) && text(&output).contains(says), "{}", text(&output));
    }
}

/// The configuration of a board that gives this host's kernel access to the board's circuits through a TUN
/// device.
fn host_board(name: &str, own: u16, peer: u16, address: u8, vcs: &[&str]) -> String {
    let mut text = format!(
        "name = \"{name}\"\n[[port]]\nname = \"atm\"\nlink = \"udp-cells:127.0.0.1:{own}-127.0.0.1:{peer}\"\n\
         address = \"10.0.0.{address}/24\"\nhost = \"tun:{name}\"\n"
    );
    vcs.iter().for_each(|vc| text += &format!("[[port.pvc]]\nvc = \"{vc}\"\n"));
    text
}

#[test]
fn ip_crosses_a_switch_between_three_boards_in_both_directions() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("switch");
    let plan = "[[link]]\nname = \"a\"\nlink = \"udp-cells:127.0.0.1:7000-127.0.0.1:7001\"\nsegment_end = true\n\
        [[link]]\nname = \"b\"\nlink = \"udp-cells:127.0.0.1:7002-127.0.0.1:7003\"\n\
        [[link]]\nname = \"c\"\nlink = \"udp-cells:127.0.0.1:7004-127.0.0.1:7005,packed\"\n\
        [[route]]\nfrom = \"a:0.100\"\nto = \"b:1.200\"\n[[route]]\nfrom = \"a:0.101\"\nto = \"c:0.300\"\npcr = 50000\ncdvt = \"1s\"\n\
        [[route]]\nfrom = \"b:7\"\nto = \"c:9\"\n";
    let plan = dir.write("switch.toml", plan);
    let mut switch = dir.start(None, &["atm", "switch", &plan, "--json"]);
    let boards = [
        host_board("one", 7001, 7000, 1, &["0.100", "0.101"]),
        host_board("two", 7003, 7002, 2, &["1.200", "7.70"]),
        host_board("three", 7005, 7004, 3, &["0.300", "9.70"]),
    ];
    // All boards are in one subnet; InATMARP discovers the peer on each circuit.
    let mut running = Vec::new();
    for (number, board) in boards.iter().enumerate() {
        let config = dir.write(&format!("board{number}.toml"), board);
        running.push(dir.start(None, &["up", &config]));
    }
    // All three addresses belong to this kernel, so a ping sent by the kernel would never leave it. Therefore
    // the boards ping each other instead: first with OAM cells, then by connecting to each other's services.
    for (board, circuit) in
        [("one", "0.100"), ("one", "0.101"), ("two", "7.70"), ("three", "9.70"), ("three", "0.300")]
    {
        let output =
            dir.kiban(&["atm", "ping", circuit, "--board", board, "--port", "atm", "-c", "2", "-i", "1ms"]);
        assert!(output.status.success(), "{board} {circuit}: {}", text(&output));
    }
    // The first segment ends at the switch, so a segment ping never goes beyond it.
    let output = dir.kiban(&[
        "atm",
        "ping",
        "0.100",
        "--board",
        "one",
        "--port",
        "atm",
        "-c",
        "3",
        "-i",
        "1ms",
        "--segment",
    ]);
    assert!(output.status.success(), "{}", text(&output));
    switch.signal("-USR1");
    let status = switch.line();
    let route = |from: &str| {
        let routes = status["routes"].as_array().expect("a list");
        routes.iter().find(|route| route["from"] == from).cloned().unwrap_or_else(|| panic!("{status}"))
    };
    assert_eq!(status["links"][0]["answered"].as_u64(), Some(3), "{status}");
    for from in ["a:0.100", "b:1.200", "a:0.101", "c:0.300", "b:7", "c:9"] {
        let counters = route(from);
        assert!(counters["cells_in"].as_u64() >= Some(2), "{counters}");
        assert_eq!(counters["cells_in"], counters["cells_queued"], "{counters}");
        assert!(counters["frames"].as_u64() >= Some(1), "InATMARP has gone through: {counters}");
    }
    assert_eq!(switch.stop(), Some(0));
    assert_eq!(switch.line()["counters"]["cells_unrouted"].as_u64(), Some(0));
}

/// Returns one cell on a circuit, as the content of one datagram.
fn cell(vc: Vc, number: u8) -> [u8; 53] {
    TimedCell::new(Instant::ZERO, Header::user(vc, true).to_word(Interface::Uni), [number; 48]).to_bytes()
}

#[test]
fn a_switch_polices_tags_shapes_and_counts_unknown_circuits() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("police");
    let words = ["a=udp-cells:127.0.0.1:7000-127.0.0.1:7001", "b=udp-cells:127.0.0.1:7002-127.0.0.1:7003"];
    let routes = [
        "a:0.100=b:0.200,pcr=1,cdvt=1ms,one-way",
        "a:0.101=b:0.201,pcr=1,cdvt=1ms,police=tag,one-way",
        "a:0.102=b:0.202,pcr=100,cdvt=1ms,police=shape,one-way",
        "a:0.103=b:0.203",
    ];
    let mut arguments = vec!["atm", "switch", "--json"];
    words.iter().for_each(|word| arguments.extend(["--link", word]));
    routes.iter().for_each(|word| arguments.extend(["--route", word]));
    let mut switch = dir.start(None, &arguments);
    let near = UdpSocket::bind("127.0.0.1:7001").expect("a port");
    let far = UdpSocket::bind("127.0.0.1:7003").expect("a port");
    far.set_read_timeout(Some(LONG)).expect("a timeout");
    let clock = kiban_os::Clock::new();
    // Send twenty cells on each circuit, and one on an unknown circuit. The contracts allow either one or a
    // hundred cells per second.
    for number in 0..20 {
        for vci in [100, 101, 102, 103, 104] {
            near.send_to(&cell(Vc::new(0, vci), number), "127.0.0.1:7000").expect("sent");
        }
    }
    let mut came = std::collections::BTreeMap::<u16, Vec<(bool, u8)>>::new();
    let mut bytes = [0; 64];
    // Shaped cells are delayed, so they arrive last.
    while came.get(&202).map_or(0, Vec::len) < 20 {
        let count = far.recv(&mut bytes).expect("a cell");
        let cell = TimedCell::from_bytes(Instant::ZERO, bytes[..count].try_into().expect("53 bytes"));
        assert_eq!(cell, TimedCell::new(Instant::ZERO, cell.header, cell.payload), "its HEC fits");
        let header = Header::from_word(Interface::Uni, cell.header);
        came.entry(header.vc.vci).or_default().push((header.clp, cell.payload[0]));
    }
    let took = clock.now().as_secs_f64();
    assert!(took >= 0.188, "19 cells at 100 a second, less the tolerance: {took}");
    switch.signal("-USR1");
    let status = switch.line();
    let route = |place: usize, key: &str| status["routes"][place][key].as_u64().expect("a number");
    let (passed, tagged) = (came[&200].len() as u64, came[&201].iter().filter(|cell| cell.0).count() as u64);
    // If the test is delayed by seconds, more cells than the first one conform.
    assert_eq!((route(0, "cells_in"), route(0, "cells_policed")), (20, 20 - passed), "{status}");
    assert!((1..15).contains(&passed) && came[&200][0] == (false, 0), "{came:?}");
    assert_eq!((came[&201].len(), route(1, "cells_tagged")), (20, tagged), "{status}");
    assert!((5..20).contains(&tagged) && !came[&201][0].0, "{came:?}");
    assert_eq!((route(2, "cells_queued"), came[&202].len()), (20, 20));
    assert_eq!(came[&203], (0..20).map(|number| (false, number)).collect::<Vec<_>>());
    assert_eq!(status["links"][0]["unknown"].as_u64(), Some(20), "{status}");
    // The reverse route: cells in the other direction leave with the other VPI and VCI.
    near.set_read_timeout(Some(LONG)).expect("a timeout");
    far.send_to(&cell(Vc::new(0, 203), 7), "127.0.0.1:7002").expect("sent");
    let count = near.recv(&mut bytes).expect("a cell");
    assert_eq!(bytes[..count], cell(Vc::new(0, 103), 7));
    assert_eq!(switch.stop(), Some(0));
}

#[test]
fn a_switch_counts_header_errors_at_the_incoming_link() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("hec");
    let words = ["a=udp-cells:127.0.0.1:7000-127.0.0.1:7001", "b=udp-cells:127.0.0.1:7002-127.0.0.1:7003"];
    let arguments =
        ["atm", "switch", "--json", "--link", words[0], "--link", words[1], "--route", "a:0.100=b:0.200"];
    let mut switch = dir.start(None, &arguments);
    let near = UdpSocket::bind("127.0.0.1:7001").expect("a port");
    let far = UdpSocket::bind("127.0.0.1:7003").expect("a port");
    far.set_read_timeout(Some(LONG)).expect("a timeout");
    // Send five cells with uncorrectable header errors; a valid cell; a cell with a single-bit error, which
    // is corrected; and another valid cell.
    for wrong in [0b11, 0b11, 0b11, 0b11, 0b11, 0, 0b1, 0] {
        let mut cell = cell(Vc::new(0, 100), 7);
        cell[4] ^= wrong;
        near.send_to(&cell, "127.0.0.1:7000").expect("sent");
    }
    let mut bytes = [0; 64];
    for _ in 0..3 {
        let count = far.recv(&mut bytes).expect("a cell");
        assert_eq!(bytes[..count], cell(Vc::new(0, 200), 7));
    }
    switch.signal("-USR1");
    let status = switch.line();
    let of = |link: usize, key: &str| status["links"][link][key].as_u64();
    assert_eq!([of(0, "hec_bad"), of(0, "hec_corrected")], [Some(5), Some(1)], "{status}");
    assert_eq!([of(1, "hec_bad"), of(1, "hec_corrected")], [Some(0), Some(0)], "{status}");
    assert_eq!(status["counters"]["cells_hec_bad"].as_u64(), Some(5), "{status}");
    assert_eq!(switch.stop(), Some(0));
    // The table must also show the cells that were dropped because of HEC errors.
    let arguments = ["atm", "switch", "--link", words[0], "--link", words[1], "--route", "a:0.100=b:0.200"];
    let mut switch = dir.start(None, &arguments);
    let mut wrong = cell(Vc::new(0, 100), 7);
    wrong[4] ^= 0b11;
    near.send_to(&wrong, "127.0.0.1:7000").expect("sent");
    near.send_to(&cell(Vc::new(0, 100), 7), "127.0.0.1:7000").expect("sent");
    far.recv(&mut bytes).expect("a cell");
    assert_eq!(switch.stop(), Some(0));
    let table = switch.rest();
    let words = |start: &str| -> Vec<String> {
        let line = table.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{table}"));
        line.replace("cells in", "in")
            .replace("HEC errors", "HEC")
            .split_whitespace()
            .map(str::to_owned)
            .collect()
    };
    let column = words("link ").iter().rev().position(|head| head == "HEC").expect("a column");
    assert_eq!(words("a ").iter().rev().nth(column).map(String::as_str), Some("1"), "{table}");
}

#[test]
fn a_switch_reopens_a_lost_link() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("again");
    let arguments = [
        "atm",
        "switch",
        "--json",
        "--link",
        "a=udp-cells:127.0.0.1:7000-127.0.0.1:7001",
        "--link",
        "b=tcp-cells:listen:127.0.0.1:7002",
        "--route",
        "a:0.100=b:0.200",
    ];
    let mut switch = dir.start(None, &arguments);
    let near = UdpSocket::bind("127.0.0.1:7001").expect("a port");
    let clock = kiban_os::Clock::new();
    for losses in 1..3 {
        let mut far = loop {
            if let Ok(far) = std::net::TcpStream::connect("127.0.0.1:7002") {
                break far;
            }
            assert!(clock.now().as_secs_f64() < LONG.as_secs_f64(), "nobody listens again");
        };
        far.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
        // The switch discards cells until it has accepted a client, so keep sending until one arrives.
        let mut bytes = [0; 57];
        loop {
            near.send_to(&cell(Vc::new(0, 100), losses), "127.0.0.1:7000").expect("sent");
            if far.read_exact(&mut bytes).is_ok() {
                break;
            }
            assert!(clock.now().as_secs_f64() < LONG.as_secs_f64(), "nothing comes through");
        }
        assert_eq!(bytes[4..], cell(Vc::new(0, 200), losses));
        drop(far);
        loop {
            switch.signal("-USR1");
            let status = switch.line();
            if status["links"][1]["losses"].as_u64() == Some(losses.into()) {
                break;
            }
            assert!(clock.now().as_secs_f64() < LONG.as_secs_f64(), "{status}");
        }
    }
}

#[test]
fn switch_configuration_errors_say_what_to_write() {
    let dir = TestDir::new("mistakes");
    let a = "a=udp-cells:127.0.0.1:7000-127.0.0.1:7001";
    let b = "b=udp-cells:127.0.0.1:7002-127.0.0.1:7003";
    for (words, says) in [
        (vec!["--link", "udp-cells:127.0.0.1:1"], "write NAME=ADDRESS"),
        (vec!["--link", "a=tap:tap0"], "the link carries frames: a switch needs links that carry cells"),
        (vec!["--link", a], "no route configured"),
        (vec!["--link", a, "--link", b, "--route", "a:0.100=c:0.100"], "unknown link; the links are a, b"),
        (vec!["--link", a, "--link", b, "--route", "a:0.100=b:5"], "a route joins two circuits or two paths"),
        (
            vec!["--link", a, "--link", b, "--route", "a:0.100=b:0.4"],
            "VCIs 0 to 4 are reserved for the path's own cells",
        ),
        (vec!["--link", a, "--link", b, "--route", "a:300.100=b:0.50"], "its headers allow VPIs up to 255"),
        (vec!["--link", a, "--link", b, "--route", "a:0.100=b:0.50,pcr=400000"], "cells/s on this line"),
        (vec!["--link", a, "--link", b, "--route", "a:0.100=b:0.50,police=tag"], "set pcr, in cells/s"),
        (
            vec!["--link", a, "--link", b, "--route", "a:0.100=b:0.50,pcr=9,police=tags"],
            "did you mean `tag`?",
        ),
        (vec!["--link", a, "--link", b, "--route", "a:0.100=b:0.50,prc=9"], "did you mean `pcr`?"),
        (
            vec!["--link", a, "--link", b, "--route", "a:0.100=b:0.50", "--route", "b:0.50=a:0.9999"],
            "b:0.50 already has a route",
        ),
        (vec!["--link", a, "--link", a], "duplicate link name `a`"),
    ] {
        let output = dir.kiban(&[&["atm", "switch", "--check"], &words[..]].concat());
        assert!(
            output.status.code() == Some(1) && text(&output).contains(says),
            "{words:?}: {}",
            text(&output)
        );
    }
    let file = dir.write("s.toml", "[[link]]\nname = \"a\"\nlink = \"tun:t\"\n");
    let output = dir.kiban(&["atm", "switch", "--check", &file]);
    assert!(text(&output).contains("s.toml: line 3: link: the link carries packets"), "{}", text(&output));
}

/// Two network namespaces connected by a link that carries cells.
struct Network([String; 2]);

impl Network {
    fn new() -> Option<Network> {
        let names = ["n", "f"].map(|side| format!("kiban-{}-{side}b", std::process::id()));
        let made = Command::new("ip").args(["netns", "add", &names[0]]).output();
        if !made.is_ok_and(|output| output.status.success()) {
            println!("skipped: network namespaces need CAP_SYS_ADMIN and iproute2");
            return None;
        }
        let network = Network(names);
        let [near, far] = &network.0;
        ip(&format!("netns add {far}"));
        ip(&format!("-n {near} link add wire type veth peer name wire netns {far}"));
        for (side, address) in [(near, "10.77.31.1/24"), (far, "10.77.31.2/24")] {
            ip(&format!("-n {side} address add {address} dev wire"));
            ip(&format!("-n {side} link set wire up"));
            ip(&format!("-n {side} link set lo up"));
        }
        Some(network)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("ip").args(["netns", "delete", name]).output();
        }
    }
}

#[test]
fn kernels_with_tap_devices_reach_each_other_over_a_circuit_in_every_encapsulation() {
    let Some(network) = Network::new() else { return };
    let [near, far] = &network.0;
    let dir = TestDir::new("bridge");
    let bytes: Vec<u8> = (0..2_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let file = dir.0.join("file");
    std::fs::write(&file, &bytes).expect("room");
    for more in [&[][..], &["--fcs"], &["--vc-mux"], &["--vc-mux", "--fcs"], &["--pcr", "100000"]] {
        let record = dir.0.join(format!("cells{}.pcap", more.concat()));
        let cells = [
            format!("udp-cells:10.77.31.1:7000-10.77.31.2:7000,record={}", record.display()),
            "udp-cells:10.77.31.2:7000-10.77.31.1:7000".to_owned(),
        ];
        let _bridges = [(near, 0, "10.5.0.1/24"), (far, 1, "10.5.0.2/24")].map(|(side, end, address)| {
            let (frames, cells) = (format!("tap:tap{end}"), cells[end].as_str());
            let arguments = ["atm", "bridge", &frames, cells, "0.100", "--host-address", address];
            dir.start(Some(side), &[&arguments[..], more].concat())
        });
        let output = Command::new("ip")
            .args([
                "netns", "exec", near, "ping", "-c", "3", "-i", "0.05", "-W", "10", "-s", "1472", "-M", "do",
                "10.5.0.2",
            ])
            .output()
            .expect("iputils-ping");
        assert!(output.status.success(), "{more:?}: {}", text(&output));
        // TCP uses checksums computed by the kernels: each kernel verifies what the other sends.
        let script = format!("exec 3<>/dev/tcp/10.5.0.2/7007 && cat {} >&3 && exec 3>&-", file.display());
        let listen = "import socket,sys,hashlib\ns=socket.create_server(('10.5.0.2',7007))\nprint('ready',flush=True)\n\
            c,_=s.accept()\nh=hashlib.sha256()\nwhile True:\n b=c.recv(65536)\n if not b: break\n h.update(b)\nprint(h.hexdigest())\n";
        let mut server = Command::new("ip")
            .args(["netns", "exec", far, "python3", "-c", listen])
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let mut told = BufReader::new(server.stdout.take().expect("piped"));
        let mut line = String::new();
        told.read_line(&mut line).expect("text");
        assert_eq!(line, "ready\n");
        let output =
            Command::new("ip").args(["netns", "exec", near, "bash", "-c", &script]).output().expect("bash");
        assert!(output.status.success(), "{more:?}: {}", text(&output));
        line.clear();
        told.read_line(&mut line).expect("text");
        assert!(server.wait().expect("it is a child of this process").success());
        let summed = Command::new("sha256sum").arg(&file).output().expect("coreutils");
        assert_eq!(line.trim(), &text(&summed)[..64], "{more:?}");
    }
    // Check lengths, CRCs and headers with Wireshark.
    for (name, with_fcs) in [("cells.pcap", false), ("cells--fcs.pcap", true)] {
        let record = dir.0.join(name);
        let output = Command::new("tshark")
            .args(["-r", &record.display().to_string(), "-o", "erf.aal5_type:llc multiplexed", "-Y", "icmp"])
            .args([
                "-T",
                "fields",
                "-E",
                "separator=,",
                "-e",
                "llc.oui",
                "-e",
                "llc.pid",
                "-e",
                "eth.type",
                "-e",
                "atm.aal5t_len",
            ])
            .args(["-e", "icmp.checksum.status", "-e", "eth.fcs.status"])
            .output()
            .expect("tshark");
        let told = String::from_utf8_lossy(&output.stdout);
        let pid = if with_fcs { "0x0001" } else { "0x0007" };
        assert!(told.lines().count() >= 6, "{}", text(&output));
        for line in told.lines() {
            let fields: Vec<&str> = line.split(',').collect();
            assert_eq!((fields[1], fields[2], fields[4]), (pid, "0x0800", "1"), "{name}: {line}");
        }
    }
}

#[test]
fn a_bridge_from_the_command_line_cannot_reload_a_configuration() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("words");
    let [frames, cells] =
        ["udp-frames:127.0.0.1:7002-127.0.0.1:7003", "udp-cells:127.0.0.1:7000-127.0.0.1:7001"];
    let _bridge = dir.start(None, &["atm", "bridge", frames, cells, "0.100", "--name", "words"]);
    let output = dir.kiban(&["reload", "words"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output),
        "kiban: board words was configured on the command line and has no configuration file to reload: \
         stop it (kiban down words) and start it again\n"
    );
    let status: Value =
        serde_json::from_slice(&dir.kiban(&["status", "words", "--json"]).stdout).expect("JSON");
    assert_eq!(status["config"], "(command line)");
}

#[test]
fn a_bridge_learns_which_circuit_leads_to_each_address() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("learn");
    let hub = "name = \"hub\"\n[[port]]\nname = \"a\"\nlink = \"udp-cells:127.0.0.1:7000-127.0.0.1:7001\"\n[[port.pvc]]\nvc = \"0.100\"\n\
        [[port.pvc]]\nvc = \"0.101\"\n[[bridge]]\nname = \"lan\"\nlink = \"udp-frames:127.0.0.1:7002-127.0.0.1:7003\"\n\
        circuits = [\"a:0.100\", \"a:0.101\"]\n";
    let config = dir.write("hub.toml", hub);
    let _hub = dir.start(None, &["up", &config]);
    let line = UdpSocket::bind("127.0.0.1:7001").expect("a port");
    let lan = UdpSocket::bind("127.0.0.1:7003").expect("a port");
    for socket in [&line, &lan] {
        socket.set_read_timeout(Some(LONG)).expect("a timeout");
    }
    let mac = |last: u8| [2, 0, 0, 0, 0, last];
    let frame = |target: [u8; 6], source: [u8; 6], payload: &[u8]| {
        [&target[..], &source, &[0x88, 0xb5], payload].concat()
    };
    // An Ethernet frame on a circuit, encoded as in RFC 2684 §5.2, with PID 00-07 and two bytes of padding.
    let send = |vci: u16, frame: &[u8]| {
        let sdu = [&[0xaa, 0xaa, 3, 0, 0x80, 0xc2, 0, 7, 0, 0], frame].concat();
        for cell in cells(Vc::new(0, vci), &sdu) {
            line.send_to(&cell, "127.0.0.1:7000").expect("sent");
        }
    };
    let mut assembly = std::collections::BTreeMap::<u16, Vec<u8>>::new();
    let mut next = || loop {
        let mut bytes = [0; 64];
        let count = line.recv(&mut bytes).expect("a cell");
        let cell = TimedCell::from_bytes(Instant::ZERO, bytes[..count].try_into().expect("53 bytes"));
        let header = Header::from_word(Interface::Uni, cell.header);
        let frame = assembly.entry(header.vc.vci).or_default();
        frame.extend_from_slice(&cell.payload);
        if header.is_last() {
            let whole = std::mem::take(frame);
            let (_, sdu) = kiban_atm::wire::aal5::open(&whole).expect("whole");
            assert_eq!(sdu[..10], [0xaa, 0xaa, 3, 0, 0x80, 0xc2, 0, 7, 0, 0]);
            return (header.vc.vci, sdu[10..].to_vec());
        }
    };
    let mut room = [0; 2000];
    // A frame to an unknown address is flooded: with padding to the Ethernet link, and unchanged to the
    // circuits.
    let short = frame(mac(9), mac(1), b"who");
    send(100, &short);
    let mut padded = short.clone();
    padded.resize(60, 0);
    let count = lan.recv(&mut room).expect("a frame");
    assert_eq!(room[..count], padded);
    assert_eq!(next(), (101, short.clone()));
    // The reply is forwarded only to the sender of the request.
    let answer = frame(mac(1), mac(2), &[7; 100]);
    send(101, &answer);
    assert_eq!(next(), (100, answer));
    // Forward frames from the link to each of the two circuits, and from one circuit to the other.
    for (last, vci) in [(1, 100), (2, 101)] {
        let long = frame(mac(last), mac(3), &[last; 1500]);
        lan.send_to(&long, "127.0.0.1:7002").expect("sent");
        assert_eq!(next(), (vci, long));
    }
    let back = frame(mac(3), mac(1), &[8; 46]);
    send(100, &back);
    let count = lan.recv(&mut room).expect("a frame");
    assert_eq!(room[..count], back);
    let status = lines_of(&dir.kiban(&["status", "hub", "--json"]));
    let bridge = &status["ports"][1]["counters"]["bridge"];
    assert_eq!((bridge["frames_in"].as_u64(), bridge["flooded"].as_u64()), (Some(5), Some(1)), "{status}");
    assert_eq!(bridge["forwarded"].as_u64(), Some(4), "{status}");
    // A frame with a valid FCS is forwarded; a frame with a wrong FCS is dropped.
    let with_fcs = |frame: &[u8], harm: u8| {
        let mut crc = kiban_base::crc::Crc32Ethernet::new();
        crc.update(frame);
        let mut fcs = crc.value().to_le_bytes();
        fcs[0] ^= harm;
        let sdu = [&[0xaa, 0xaa, 3, 0, 0x80, 0xc2, 0, 1, 0, 0], frame, &fcs].concat();
        for cell in cells(Vc::new(0, 100), &sdu) {
            line.send_to(&cell, "127.0.0.1:7000").expect("sent");
        }
    };
    with_fcs(&frame(mac(3), mac(1), &[9; 46]), 1);
    let good = frame(mac(3), mac(1), &[10; 46]);
    with_fcs(&good, 0);
    let count = lan.recv(&mut room).expect("a frame");
    assert_eq!(room[..count], good);
    let status = lines_of(&dir.kiban(&["status", "hub", "--json"]));
    assert_eq!(status["ports"][0]["counters"]["port"]["fcs_errors"].as_u64(), Some(1), "{status}");
}

fn lines_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(output)))
}

/// Returns the cells of an AAL5 frame, as they appear on the line.
fn cells(vc: Vc, sdu: &[u8]) -> Vec<[u8; 53]> {
    let mut crc = kiban_base::crc::Crc32Aal5::new();
    crc.update(sdu);
    let mut tail = [0; kiban_atm::wire::aal5::TAIL_BYTES_MAX];
    let length = kiban_atm::wire::aal5::write_tail(sdu.len(), 0, crc, &mut tail);
    let whole = [sdu, &tail[..length]].concat();
    let (payloads, []) = whole.as_chunks::<48>() else { panic!("cells are whole") };
    let count = payloads.len();
    let word = |number| Header::user(vc, number + 1 == count).to_word(Interface::Uni);
    let cell = |(number, payload): (usize, &[u8; 48])| {
        TimedCell::new(Instant::ZERO, word(number), *payload).to_bytes()
    };
    payloads.iter().enumerate().map(cell).collect()
}
