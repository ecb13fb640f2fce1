//! `kiban run`: unmodified programs on a running board's TCP, with this host's kernel as the peer.
//!
//! Requires  a C compiler for the preloaded library, curl, iperf3, python3.

use crate::common::{ECHO, KIBAN, PORT, TestDir, digest_of, enter, run, text};
use crate::preload;
use kiban_os::Clock;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

pub(crate) const SOCKETS: &str = "[[service]]\nkind = \"sockets\"\n";

/// The directory that contains the preloaded library, which is built in the same way as by `make verbs`.
pub(crate) static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| preload::built("sockets", "board"));

/// Returns a command that runs a program on the board.
pub(crate) fn on_board(dir: &TestDir, program: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["600", KIBAN, "run", "--board", "lab", "--"]).args(program);
    command.env("XDG_RUNTIME_DIR", &dir.0).env("KIBAN_VERBS_LIB", &*LIBRARY).current_dir(&dir.0);
    command
}

pub(crate) fn told(mut command: Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// A server process that is killed at the end of the test.
pub(crate) struct Server(pub(crate) Child);

impl Server {
    /// Starts a server and waits until `answers` returns true.
    fn begin(mut command: Command, answers: impl Fn() -> bool) -> Server {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it is installed");
        let mut server = Server(child);
        while !answers() {
            assert!(
                server.0.try_wait().expect("it is a child of this process").is_none(),
                "{command:?} has ended"
            );
            std::thread::yield_now();
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(None)) {
            return;
        }
        // `timeout` forwards SIGTERM to the program.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

fn since(clock: &Clock) -> Duration {
    clock.now().since(kiban_base::Instant::ZERO)
}

fn answers_http(url: &str) -> bool {
    run("curl", &["-s", "-o", "/dev/null", "--max-time", "5", url]).status.success()
}

#[test]
fn curl_and_a_python_server_transfer_files_in_both_directions() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("run-curl");
    let _board = dir.up(&format!("{PORT}{ECHO}{SOCKETS}"));
    let bytes: Vec<u8> = (0..60_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    dir.write("small", "hello");
    let mut file = std::fs::File::create(dir.0.join("big")).expect("room");
    file.write_all(&bytes).expect("room");
    let wanted = digest_of(&mut &bytes[..]);
    let server = ["-m", "http.server", "--bind"];
    // The server uses the kernel's TCP, the client the board's.
    let mut kernel = Command::new("python3");
    kernel.args(server).args(["10.9.0.1", "8000"]).current_dir(&dir.0);
    let kernel = Server::begin(kernel, || answers_http("http://10.9.0.1:8000/small"));
    let fetched = told(on_board(&dir, &["curl", "-sSf", "http://10.9.0.1:8000/big"]));
    assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
    assert!(digest_of(&mut &fetched.stdout[..]) == wanted);
    drop(kernel);
    // The server uses the board's TCP. One client uses the kernel's TCP, another one the board's.
    let board = on_board(&dir, &["python3", "-m", "http.server", "--bind", "10.9.0.2", "8000"]);
    let _server = Server::begin(board, || answers_http("http://10.9.0.2:8000/small"));
    let fetched = run("curl", &["-sSf", "http://10.9.0.2:8000/big"]);
    assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
    assert!(digest_of(&mut &fetched.stdout[..]) == wanted);
    let fetched = told(on_board(&dir, &["curl", "-sSf", "http://10.9.0.2:8000/small"]));
    assert_eq!(text(&fetched), "hello");
}

#[test]
fn a_connect_to_an_absent_neighbour_fails_within_seconds() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("run-absent");
    let forward =
        "[[service]]\nkind = \"forward\"\nlisten = \"kernel:127.0.0.1:7000\"\nto = \"10.9.0.78:80\"\n";
    run("ip", &["link", "set", "lo", "up"]);
    let _board = dir.up(&format!("{PORT}{SOCKETS}{forward}"));
    // Compile the library before starting the clock.
    LazyLock::force(&LIBRARY);
    let clock = Clock::new();
    // Connect to an address for which no host answers and no router sends an ICMP error.
    let fetched = told(on_board(&dir, &["curl", "-sSv", "http://10.9.0.77/"]));
    let took = since(&clock);
    let error = String::from_utf8_lossy(&fetched.stderr);
    // curl's exit status 7: could not connect.
    assert!(fetched.status.code() == Some(7) && error.contains("No route to host"), "{error}");
    assert!(took > Duration::from_secs(2) && took < Duration::from_secs(10), "{took:?}: {error}");
    let absent = "import socket; socket.create_connection((\"10.9.0.77\", 80))";
    let told_of = told(on_board(&dir, &["python3", "-c", absent]));
    let error = String::from_utf8_lossy(&told_of.stderr).into_owned();
    assert!(error.contains("[Errno 113] No route to host"), "{error}");
    // The relay resets every connection at once, so that the client does not wait.
    let clock = Clock::new();
    let mut caller = TcpStream::connect("127.0.0.1:7000").expect("it listens");
    let heard = caller.read(&mut [0; 1]).expect_err("the other end is not there");
    assert_eq!(heard.kind(), ErrorKind::ConnectionReset);
    assert!(since(&clock) < Duration::from_secs(10), "{:?}", since(&clock));
}

/// Starts a program with piped output. Returns it, and its output after the line with which it is ready.
fn ready(mut command: Command) -> (Child, BufReader<ChildStdout>) {
    let mut child = command.spawn().expect("it is installed");
    let mut said = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("it says lines");
    assert_eq!(line, "ready\n");
    (child, said)
}

#[test]
fn traffic_for_a_stopped_board_takes_no_other_route() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("run-gone");
    let mut board = dir.up(&format!("{PORT}{SOCKETS}"));
    // A listener on the kernel would accept the connection if the program used the kernel's TCP by mistake.
    let listener = std::net::TcpListener::bind("10.9.0.1:8000").expect("it is the host's");
    listener.set_nonblocking(true).expect("a flag");
    let program = "import errno, socket\n\
                   print('ready', flush=True)\n\
                   input()\n\
                   for call in (lambda s: s.connect(('10.9.0.1', 8000)), lambda s: (s.bind(('', 8001)), s.listen())):\n\
                   \x20   try:\n\
                   \x20       call(socket.socket())\n\
                   \x20       print('it was done')\n\
                   \x20   except OSError as error:\n\
                   \x20       print(errno.errorcode[error.errno])\n";
    let mut command = on_board(&dir, &["python3", "-c", program]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (mut child, mut said) = ready(command);
    board.signal("-KILL");
    board.wait();
    child.stdin.take().expect("it is piped").write_all(b"\n").expect("it reads");
    let (mut rest, mut errors) = (String::new(), String::new());
    said.read_to_string(&mut rest).expect("it is text");
    child.stderr.take().expect("it is piped").read_to_string(&mut errors).expect("it is text");
    assert_eq!(rest, "ENETDOWN\nENETDOWN\n", "{errors}");
    assert!(child.wait().expect("it is a child of this process").success());
    assert_eq!(errors.matches("the board of this program is not running").count(), 1, "{errors}");
    assert_eq!(listener.accept().expect_err("no client connected").kind(), ErrorKind::WouldBlock);
    // The socket file left behind by a killed board is not used.
    let refused = told(on_board(&dir, &["true"]));
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused));
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(why.contains("no board"), "{why}");
}

#[test]
fn forked_servers_are_quiet_after_the_board_has_stopped() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("run-stopped-server");
    let mut board = dir.up(&format!("{PORT}{SOCKETS}"));
    assert_eq!(board.status()["connections"].as_array().map(Vec::len), Some(0));
    let program = format!("{TOOLS}{}", include_str!("python/stopped_server.py"));
    let mut command = on_board(&dir, &["python3", "-c", &program]);
    command.stdout(Stdio::piped());
    let (mut child, mut said) = ready(command);
    board.signal("-KILL");
    board.wait();
    let mut line = String::new();
    said.read_line(&mut line).expect("it says lines");
    assert_eq!(line, "all is well\n");
    assert!(child.wait().expect("it is a child of this process").success());
}

/// An iperf3 server, which refuses each client until it has finished with the previous one.
struct Iperf {
    said: BufReader<ChildStdout>,
    _server: Server,
}

impl Iperf {
    fn begin(mut command: Command) -> Iperf {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = Server(command.spawn().expect("it is installed"));
        Iperf { said: BufReader::new(server.0.stdout.take().expect("it is piped")), _server: server }
    }

    /// Reads the server's output until the server is ready for the next client.
    fn waits(&mut self) {
        let mut line = String::new();
        while !line.contains("Server listening") {
            line.clear();
            assert!(self.said.read_line(&mut line).expect("it says lines") > 0, "it has ended");
        }
    }
}

#[test]
fn iperf3_measures_both_directions_from_both_sides() {
    if !enter() {
        return;
    }
    for shards in [1, 2] {
        iperf3_measures_on(&format!("shards = {shards}\n{PORT}{SOCKETS}"));
    }
}

fn iperf3_measures_on(config: &str) {
    let dir = TestDir::new("run-iperf");
    let _board = dir.up(config);
    let mut kernel = Command::new("iperf3");
    kernel.args(["-s", "-B", "10.9.0.1", "-p", "5201", "--forceflush"]);
    let mut kernel = Iperf::begin(kernel);
    for more in [&[][..], &["-R"], &["-P", "8"]] {
        let arguments = ["iperf3", "-c", "10.9.0.1", "-p", "5201", "-n", "64M", "-J"];
        kernel.waits();
        let output = told(on_board(&dir, &[&arguments[..], more].concat()));
        assert_iperf(&output, more);
        if !more.contains(&"-R") {
            // From TCP_INFO of each stream, whichever shard has it.
            let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
            let streams = report["end"]["streams"].as_array().expect("streams");
            let windows = streams.iter().map(|stream| stream["sender"]["max_snd_cwnd"].as_u64());
            assert!(windows.clone().all(|window| window > Some(0)), "{report}");
        }
    }
    drop(kernel);
    let status = || text(&dir.kiban(&["status", "lab"]));
    let mut server = Iperf::begin(on_board(&dir, &["iperf3", "-s", "-p", "5202", "--forceflush"]));
    for more in [&[][..], &["-R"], &["-P", "8"]] {
        let arguments = ["-c", "10.9.0.2", "-p", "5202", "-n", "64M", "-J"];
        server.waits();
        assert_iperf(&run("iperf3", &[&arguments[..], more].concat()), more);
    }
    assert!(status().contains("sockets"), "{}", status());
}

fn assert_iperf(output: &Output, more: &[&str]) {
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{more:?}: {error}: {}", text(output)));
    assert!(report.get("error").is_none(), "{more:?}: {report}");
    let bytes = report["end"]["sum_received"]["bytes"].as_u64().expect("a number");
    // iperf3 does not count data that is still in flight when the sender stops. The buffers at both ends hold
    // several MB; with eight streams they hold about 12 MB.
    assert!(bytes >= 32 << 20, "{more:?}: {bytes}");
}

/// A Python program that checks name resolution, socket options, blocking and shutdown.
const CHECKS: &str = include_str!("python/checks.py");

/// The peer, which uses the kernel's TCP: echoes data, and resets the connection on request.
const FAR: &str = include_str!("python/far.py");

/// A Python program that makes unusual socket calls.
const ODDITIES: &str = include_str!("python/oddities.py");

/// A Python program that connects to the board through the kernel.
const PEER: &str = include_str!("python/peer.py");

#[test]
fn python_sockets_behave_like_the_systems() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("run-python");
    let board = dir.up(&format!("{PORT}{SOCKETS}"));
    let mut far = Command::new("python3");
    far.args(["-c", FAR]);
    let _far = Server::begin(far, || text(&run("ss", &["-Hltn", "sport", "=", ":5000"])).contains(":5000"));
    let mut story = on_board(&dir, &["python3", "-c", CHECKS]);
    story.env("PEER", PEER);
    let output = told(story);
    assert_eq!(text(&output), "all is well\n", "{}", dir.log());
    board.until("all streams have gone", |status| status["services"][0]["sessions"] == 0);
    let refused = dir.kiban(&["run", "--board", "moon", "--", "true"]);
    assert_eq!(text(&refused), "kiban: no board moon is running; running boards: lab\n");
}

#[test]
fn failed_connects_chosen_ports_and_late_resets_behave_like_the_systems() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("run-oddities");
    run("ip", &["link", "set", "lo", "up"]);
    let board = dir.up(&format!("{PORT}{SOCKETS}"));
    let mut far = Command::new("python3");
    far.args(["-c", FAR]);
    let _far = Server::begin(far, || text(&run("ss", &["-Hltn", "sport", "=", ":5000"])).contains(":5000"));
    let output = told(on_board(&dir, &["python3", "-c", ODDITIES]));
    assert_eq!(text(&output), "all is well\n", "{}", dir.log());
    board.until("all streams have gone", |status| status["services"][0]["sessions"] == 0);
}

#[test]
fn a_server_on_port_zero_reports_the_port_that_the_board_chose() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("run-any-port");
    let _board = dir.up(&format!("{PORT}{SOCKETS}"));
    dir.write("small", "hello");
    let mut server = on_board(&dir, &["python3", "-u", "-m", "http.server", "0"]);
    let child = server.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it is installed");
    let mut server = Server(child);
    // Parse the port from "Serving HTTP on 0.0.0.0 port 49152 (http://0.0.0.0:49152/) ...".
    let mut line = String::new();
    let stdout = server.0.stdout.take().expect("it is piped");
    BufReader::new(stdout).read_line(&mut line).expect("it says where it is");
    let port = line.split_once(" port ").and_then(|(_, rest)| rest.split(' ').next()).expect("it says which");
    let fetched = run("curl", &["-sSf", &format!("http://10.9.0.2:{port}/small")]);
    assert_eq!(text(&fetched), "hello", "{line}");
}

/// The program built from `handlers.c`. Its C library calls may be interposed by other preloaded libraries.
static HANDLERS: LazyLock<PathBuf> = LazyLock::new(|| {
    let program = LIBRARY.join("handlers");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/up/programs/handlers.c");
    let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    cc.args(["-Wall", "-Wextra", "-Werror", "-O1", "-rdynamic", source, "-o"]).arg(&program);
    let output = cc.args(["-lpthread", "-ldl", "-lrt"]).output().expect("there is a C compiler");
    assert!(output.status.success(), "{}", text(&output));
    program
});

/// A peer that uses the kernel's TCP, sends no data, and keeps its streams open until the test ends.
pub(super) fn silent_peer() {
    let listener = std::net::TcpListener::bind("10.9.0.1:5000").expect("it is the host's");
    std::thread::spawn(move || listener.incoming().collect::<Vec<_>>());
}

#[test]
fn async_signal_safe_calls_work_in_handlers_and_forked_children() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("run-handlers");
    let _board = dir.up(&format!("{PORT}{SOCKETS}"));
    silent_peer();
    let program = HANDLERS.to_str().expect("a plain path");
    for how in ["steps", "timer", "forks"] {
        let output = told(on_board(&dir, &[program, how, "10.9.0.1", "5000", "10.9.0.2"]));
        assert_eq!(text(&output), "done\n", "{how}: {}", dir.log());
    }
}

/// A Python program that makes a non-blocking connect while the board process is stopped, and prints the
/// result after the board continues.
const LATE: &str = include_str!("python/late.py");

#[test]
fn a_nonblocking_connect_returns_while_the_board_is_stopped() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("run-late");
    run("ip", &["link", "set", "lo", "up"]);
    run("ip", &["addr", "add", "10.99.0.1/32", "dev", "lo"]);
    let board = dir.up(&format!("{PORT}{SOCKETS}"));
    let mut far = Command::new("python3");
    far.args(["-c", &FAR.replace("\"10.9.0.1\"", "\"0.0.0.0\"")]);
    let _far = Server::begin(far, || text(&run("ss", &["-Hltn", "sport", "=", ":5000"])).contains(":5000"));
    let mut command = on_board(&dir, &["python3", "-c", LATE]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Server(command.spawn().expect("it is installed"));
    let mut says = child.0.stdin.take().expect("it is piped");
    let mut said = BufReader::new(child.0.stdout.take().expect("it is piped")).lines();
    let mut hear = |wanted: &[&str], why: &str| {
        let heard: Vec<String> = said.by_ref().take(wanted.len()).map_while(Result::ok).collect();
        assert_eq!(heard, wanted, "{why}");
    };
    let go_on = "\n".as_bytes();
    hear(&["ready"], "it begins");
    // The board process continues only after the program has printed all of this, so no call has blocked.
    board.stop();
    says.write_all(go_on).expect("it reads");
    hear(&["EINPROGRESS"; 5], "calls that do not block");
    hear(&["EALREADY", "ENOTCONN", "EAGAIN"], "while it connects");
    hear(&["EINPROGRESS", "EINTR", "stopped still"], "calls that block");
    board.signal("-CONT");
    says.write_all(go_on).expect("it reads");
    hear(&["echoed"], "all streams");
    board.stop();
    says.write_all(go_on).expect("it reads");
    hear(&["EINPROGRESS"], "once more");
    board.signal("-CONT");
    says.write_all(go_on).expect("it reads");
    let mut errors = String::new();
    if said.next().and_then(Result::ok).as_deref() != Some("all is well") {
        child.0.stderr.take().expect("it is piped").read_to_string(&mut errors).expect("it is text");
        panic!("{errors}\n{}", dir.log());
    }
    board.until("all streams have gone", |status| status["services"][0]["sessions"] == 0);
}

/// Python functions that the following programs use. `caught` returns the error of a call, or its result.
pub(super) const TOOLS: &str = include_str!("python/tools.py");

const FAST_OPEN: &str = include_str!("python/fast_open.py");

/// The library's tables have room for 64 descriptors in this test.
const HIGH_NUMBERS: &str = include_str!("python/high_numbers.py");

/// Builds the library with other limits, in a folder of its own. Returns the folder.
fn built_with(folder: &str, limit: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let build = concat!(env!("CARGO_MANIFEST_DIR"), "/../../preload/build");
    let mut build = Command::new(build);
    build.arg(&folder).arg("board").env("CFLAGS", limit);
    let output = told(build);
    assert!(output.status.success(), "{}", text(&output));
    folder
}

/// Runs a program on the board. Asserts that all its connections to this host came from the board. `more`
/// changes the command.
#[track_caller]
fn stays_on_board(name: &str, program: &str, more: impl FnOnce(&mut Command)) {
    let dir = TestDir::new(name);
    run("ip", &["link", "set", "lo", "up"]);
    let _board = dir.up(&format!("{PORT}{SOCKETS}"));
    let listener = std::net::TcpListener::bind("10.9.0.1:5000").expect("it is the host's");
    listener.set_nonblocking(true).expect("a flag");
    let mut command = on_board(&dir, &["python3", "-c", &format!("{TOOLS}{program}")]);
    more(&mut command);
    let output = told(command);
    assert_eq!(text(&output), "all is well\n", "{}", dir.log());
    let mut from = Vec::new();
    while let Ok((_, address)) = listener.accept() {
        from.push(address.ip().to_string());
    }
    assert!(!from.is_empty() && from.iter().all(|address| address == "10.9.0.2"), "{from:?}");
}

#[test]
fn fast_open_does_not_connect_over_the_hosts_network() {
    if enter() {
        stays_on_board("run-fast-open", FAST_OPEN, |_| {});
    }
}

/// Binds sockets to the wildcard address in all possible ways, and listens; connects to a short address.
const ADDRESSES: &str = include_str!("python/addresses.py");

#[test]
fn no_form_of_an_address_leads_to_the_hosts_network() {
    if enter() {
        stays_on_board("run-addresses", ADDRESSES, |_| {});
    }
}

/// Listens while a board, which this program plays, answers that no address is its own.
const STRANGE_BOARD: &str = "\
board = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
board.bind(os.environ['KIBAN_SOCKETS'])
board.listen()
def answer():
    while True:
        asker, _ = board.accept()
        asker.send(bytes([1, reason]) + asker.recv(48)[2:])
threading.Thread(target=answer, daemon=True).start()
for reason, error in (6, errno.ENETUNREACH), (7, errno.EADDRNOTAVAIL):
    for domain, name in (socket.AF_INET, '0.0.0.0'), (socket.AF_INET6, '::'), (socket.AF_INET6, '::ffff:0.0.0.0'):
        s = socket.socket(domain)
        s.bind((name, 7011))
        assert caught(s.listen) == error, (reason, name)
        s.close()
    s = socket.socket()
    s.bind(('10.9.0.1', 7012))
    s.listen()
    s.close()
print('all is well')
";

#[test]
fn the_wildcard_address_is_not_left_to_the_host_even_if_the_board_refuses_it() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("run-strange");
    run("ip", &["link", "set", "lo", "up"]);
    run("ip", &["addr", "add", "10.9.0.1/32", "dev", "lo"]);
    let mut command = Command::new("timeout");
    command.args(["60", "python3", "-c", &format!("{TOOLS}{STRANGE_BOARD}")]);
    command.env("LD_PRELOAD", LIBRARY.join("libkiban_sockets.so")).env("KIBAN_SOCKETS", dir.0.join("board"));
    assert_eq!(text(&told(command)), "all is well\n");
}

const PROTOCOLS: &str = include_str!("python/protocols.py");

#[test]
fn stream_protocols_that_the_board_does_not_have_are_refused() {
    if !enter() {
        return;
    }
    let shim = LIBRARY.join("libsctp.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/up/programs/sctp.c");
    let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    cc.args(["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", source, "-o"]).arg(&shim);
    let output = cc.arg("-ldl").output().expect("there is a C compiler");
    assert!(output.status.success(), "{}", text(&output));
    stays_on_board("run-protocols", PROTOCOLS, |command| {
        command.env("LD_PRELOAD", &shim).env("SHIM", &shim);
    });
}

/// A ring can open sockets, which the library does not see, so the program must not get one.
#[test]
fn programs_get_no_ring_of_io_uring() {
    if !enter() {
        return;
    }
    // io_uring_setup is call 425 on all architectures, and ENOSYS is 38.
    const SETUP: &str = "import ctypes; call = ctypes.CDLL(None, use_errno=True).syscall; \
                         print(call(425, 1, ctypes.create_string_buffer(120)), ctypes.get_errno())";
    let dir = TestDir::new("run-io-uring");
    let _board = dir.up(&format!("{PORT}{SOCKETS}"));
    let output = told(on_board(&dir, &["python3", "-c", SETUP]));
    assert_eq!(text(&output), "-1 38\n");
}

const FORMS: &str = include_str!("python/forms.py");

#[test]
fn addresses_of_all_lengths_and_families_have_the_same_results_as_with_the_system() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("run-forms");
    run("ip", &["link", "set", "lo", "up"]);
    let _board = dir.up(&format!("{PORT}{SOCKETS}"));
    silent_peer();
    let program = format!("{TOOLS}{FORMS}");
    let (wanted, output) =
        (run("python3", &["-c", &program]), told(on_board(&dir, &["python3", "-c", &program])));
    assert!(wanted.status.success() && output.status.success(), "{}{}", text(&wanted), text(&output));
    let differs = |(wanted, got): &(&str, &str)| wanted != got;
    let (wanted, got) = (text(&wanted), text(&output));
    let differences: Vec<_> = wanted.lines().zip(got.lines()).filter(differs).collect();
    assert!(differences.is_empty() && wanted == got, "the system, and the board: {differences:#?}");
}

#[test]
fn descriptors_beyond_the_table_do_not_use_the_hosts_network() {
    if !enter() {
        return;
    }
    let folder = built_with("sockets-small", "-DFILES=64");
    stays_on_board("run-high", HIGH_NUMBERS, |command| {
        command.env("KIBAN_VERBS_LIB", folder);
    });
}

const RESETS: &str = include_str!("python/resets.py");

/// Runs a program on the board, with a library in a folder and with the peer [`FAR`].
#[track_caller]
fn succeeds_with_far(name: &str, program: &str, library: &Path) {
    let dir = TestDir::new(name);
    let _board = dir.up(&format!("{PORT}{SOCKETS}"));
    let mut far = Command::new("python3");
    far.args(["-c", FAR]);
    let _far = Server::begin(far, || text(&run("ss", &["-Hltn", "sport", "=", ":5000"])).contains(":5000"));
    let mut command = on_board(&dir, &["python3", "-c", &format!("{TOOLS}{program}")]);
    command.env("KIBAN_VERBS_LIB", library);
    assert_eq!(text(&told(command)), "all is well\n", "{}", dir.log());
}

#[test]
fn every_read_reports_a_reset_and_options_for_protection_are_refused() {
    if enter() {
        succeeds_with_far("run-resets", RESETS, &LIBRARY);
    }
}

/// The library's table has room for four records whose descriptor numbers have been reused.
const DUPLICATES: &str = include_str!("python/duplicates.py");

#[test]
fn a_duplicate_is_recognised_after_the_number_of_its_original_is_reused() {
    if enter() {
        succeeds_with_far("run-duplicates", DUPLICATES, &built_with("sockets-aside", "-DASIDE=4"));
    }
}

/// Connects sockets that are not bound, beside one that is.
const UNBOUND: &str = "\
bound = socket.socket()
bound.bind(('10.9.0.2', 7010))
s = socket.create_connection(far)
assert s.getsockname()[1] != 7010
with socket.create_server(('127.0.0.1', 0)) as server:
    socket.create_connection(server.getsockname())
bound.listen()
assert bound.getsockname() == ('10.9.0.2', 7010)
print('all is well')
";

#[test]
fn a_socket_does_not_take_the_address_of_another_one() {
    if enter() {
        stays_on_board("run-unbound", UNBOUND, |_| {});
    }
}

const PAYLOAD: &str = include_str!("python/payload.py");

#[test]
fn data_from_the_peer_is_not_taken_for_the_reason_of_a_failed_connect() {
    if enter() {
        succeeds_with_far("run-payload", PAYLOAD, &LIBRARY);
    }
}

/// Connects in a parent and in its child while the board's process is stopped, and makes calls that do not
/// block with the system's TCP.
const STOPPED: &str = include_str!("python/stopped.py");

#[test]
fn calls_return_and_each_process_has_its_own_replies_while_the_board_is_stopped() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("run-stopped");
    let board = dir.up(&format!("{PORT}{SOCKETS}"));
    silent_peer();
    let mut command = on_board(&dir, &["python3", "-c", &format!("{TOOLS}{STOPPED}")]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Server(command.spawn().expect("it is installed"));
    let mut says = child.0.stdin.take().expect("it is piped");
    let mut said = BufReader::new(child.0.stdout.take().expect("it is piped")).lines();
    for (wanted, signal) in [("ready", "-STOP"), ("stopped still", "-CONT"), ("all is well", "-CONT")] {
        if said.next().and_then(Result::ok).as_deref() != Some(wanted) {
            board.signal("-CONT");
            let mut errors = String::new();
            child.0.stderr.take().expect("it is piped").read_to_string(&mut errors).expect("it is text");
            panic!("not {wanted:?}: {errors}\n{}", dir.log());
        }
        if signal == "-STOP" {
            board.stop();
        } else {
            board.signal(signal);
        }
        // The program ends after its last line.
        let _ = says.write_all(b"\n");
    }
}
