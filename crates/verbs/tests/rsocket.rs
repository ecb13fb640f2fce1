//! Tests rsockets from C, and socket programs over rsockets.
//!
//! Purpose   tests the API of rsocket(7) (`c/rsocket.c`), rdma-core's rsocket programs, and unmodified
//!           socket programs.
//! Needs     a C compiler, Debian's rdmacm-utils, and python3 for `librspreload.so`.

#[path = "common/libraries.rs"]
mod libraries;

use libraries::{home, linked, output, stdout_of};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = linked("rsocket");
    let mut compiler = compiler(&folder.join("tests"));
    compiler.arg(home().join("tests/c/rsocket.c")).arg(folder.join("librdmacm.so.1"));
    stdout_of(compiler.arg(folder.join("libibverbs.so.1")).arg("-lpthread"));
    folder
});

/// Returns a command that compiles C files to a program.
fn compiler(program: &Path) -> Command {
    let mut compiler = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    // Functions of the program replace those that preloaded libraries call.
    compiler.args(["-Wall", "-Wextra", "-Werror", "-O1", "-g", "-rdynamic", "-o"]).arg(program);
    compiler
}

/// Returns a program with our libraries and a time limit.
fn program(name: &str, arguments: &[&str]) -> Command {
    program_within("60", name, arguments)
}

/// Returns a program that is ended after this many seconds.
fn program_within(seconds: &str, name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", seconds, name]).args(arguments).env("LD_LIBRARY_PATH", &*FOLDER);
    command
}

#[track_caller]
fn run_test(name: &str) {
    let path = FOLDER.join("tests");
    stdout_of(&mut program(path.to_str().expect("a plain path"), &[name]));
}

macro_rules! c_tests {
    ($($test:ident $name:literal)*) => {
        $(#[test] fn $test() { run_test($name); })*
    };
}

c_tests! {
    invalid_calls_fail_with_the_errors_of_rdma_core "errors"
    each_direction_is_shut_down_separately_without_loss "halves"
    bulk_data_flows_both_ways_at_once "both_ways"
    a_blocked_sender_resumes_when_the_peer_reads "nonblocking"
    a_hundred_sockets_are_distinguished "hundred"
    a_killed_peer_is_detected "killed"
    a_forked_child_creates_its_own_rsockets "forked"
    mapped_memory_is_written_outside_the_stream "mapped"
    closed_connections_leave_no_files "again"
}

/// Runs a test of `c/preloaded.c`.
#[track_caller]
fn run_preloaded(name: &str) {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
        let path = FOLDER.join("preloaded");
        let mut compiler = compiler(&path);
        stdout_of(compiler.arg(home().join("tests/c/preloaded.c")).arg("-lpthread"));
        path
    });
    let mut command = program("env", &[]);
    command.arg(format!("LD_PRELOAD={}", FOLDER.join("librspreload.so").display()));
    stdout_of(command.arg(&*PROGRAM).arg(name));
}

macro_rules! preloaded_tests {
    ($($test:ident $name:literal)*) => {
        $(#[test] fn $test() { run_preloaded($name); })*
    };
}

preloaded_tests! {
    a_vfork_child_changes_no_rsocket_of_its_parent "vforked"
    a_number_closed_by_fclose_no_longer_means_the_rsocket "fclosed"
    a_number_closed_by_close_range_or_closefrom_no_longer_means_the_rsocket "ranges"
    a_number_closed_by_a_system_call_no_longer_means_the_rsocket "unseen"
    a_descriptor_that_cannot_be_looked_at_keeps_its_rsocket "unknown"
    a_call_ends_when_its_descriptor_cannot_be_looked_at "unknown_later"
    an_rsocket_is_closed_even_if_its_descriptor_cannot_be_looked_at "unknown_closed"
    a_watch_ends_when_dup2_replaces_its_descriptor "replaced"
    a_child_that_shares_the_memory_changes_no_rsocket_of_its_parent "shared"
    an_epoll_set_has_no_rsockets_of_a_closed_set_with_its_number "sets"
    a_forked_child_has_none_of_its_parents_rsockets_and_closes_its_own "forked"
    no_signal_handler_interrupts_the_librarys_allocations "handlers"
    close_waits_for_no_thread_that_allocates "locks"
    a_blocking_call_never_continues_on_a_later_connection "during"
    connect_leaves_a_socket_that_has_taken_the_number_alone "connecting"
    a_listener_keeps_its_port_while_it_becomes_an_rsocket "port"
    options_that_ask_for_protection_are_refused "protection"
}

/// Returns a free port outside the ephemeral range (ip_local_port_range).
fn port() -> String {
    static STEPS: AtomicU16 = AtomicU16::new(0);
    let first = 12_000 + (std::process::id() % 8_000) as u16;
    let mut ports = std::iter::repeat_with(|| first + STEPS.fetch_add(1, Ordering::Relaxed));
    let is_free = |port: &u16| TcpListener::bind(("0.0.0.0", *port)).is_ok();
    ports.find(is_free).expect("a free port").to_string()
}

/// A process that is killed when it is dropped.
struct Server(Child);

impl Server {
    /// Starts a server, and waits until it listens on its port.
    fn start(mut command: Command, port: &str) -> Server {
        let mut server = Server(command.spawn().expect("timeout(1) is there"));
        let wanted = format!(":{:04X} 00000000:0000 0A", port.parse::<u16>().expect("a number"));
        loop {
            let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux has /proc");
            if table.contains(&wanted) {
                return server;
            }
            let ended = server.0.try_wait().expect("it is ours");
            assert!(ended.is_none(), "{command:?} ended: {ended:?}");
            std::thread::yield_now();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // timeout(1) forwards this signal to its program, and ends when the program does.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

#[test]
fn rstream_runs_in_every_mode() {
    for ways in [&["-T", "b"][..], &["-T", "a"], &["-T", "n"], &["-T", "r"], &["-T", "v"]] {
        let port = port();
        let common = ["-p", &port, "-S", "40000", "-C", "50", "-I", "20", "-T", "v"];
        let arguments = [&common[..], ways].concat();
        let mut server = program("rstream", &arguments);
        let mut server = Server::start(
            {
                server.stdout(Stdio::null());
                server
            },
            &port,
        );
        let arguments = [&["-s", "127.0.0.1"][..], &arguments].concat();
        let stdout = stdout_of(&mut program("rstream", &arguments));
        assert!(stdout.contains("custom"), "{ways:?}: {stdout}");
        assert!(server.0.wait().expect("it is ours").success(), "{ways:?}");
    }
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut word = 0x1234_5678_9abc_def0u64;
    let mut step = || {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word as u8
    };
    (0..bytes).map(|_| step()).collect()
}

#[test]
fn rcopy_copies_a_hundred_megabytes() {
    let (source, copy) = (FOLDER.join("source"), FOLDER.join("copy"));
    std::fs::write(&source, noise(100_000_000)).expect("the folder can be written");
    let _ = std::fs::remove_file(&copy);
    let port = port();
    let mut server = program("rcopy", &["-p", &port]);
    server.stdout(Stdio::null());
    let server = Server::start(server, &port);
    let target = format!("127.0.0.1:{}", copy.display());
    stdout_of(&mut program("rcopy", &[source.to_str().expect("a plain path"), &target, "-p", &port]));
    drop(server);
    let same =
        std::fs::read(&source).expect("it was written") == std::fs::read(&copy).expect("it was copied");
    assert!(same, "the copy differs");
}

/// Runs a program written for sockets over rsockets.
fn preloaded(code: &str, arguments: &[&str]) -> Command {
    preloaded_within("60", code, arguments)
}

/// Like [`preloaded`], but ends the program after this many seconds.
fn preloaded_within(seconds: &str, code: &str, arguments: &[&str]) -> Command {
    let arguments = [&["-c", code][..], arguments].concat();
    let mut command = program_within(seconds, "env", &[]);
    let preload = FOLDER.join("librspreload.so");
    command.arg(format!("LD_PRELOAD={}", preload.display())).arg("/usr/bin/python3").args(arguments);
    command
}

/// Echoes data on each connection in capitals, using poll or epoll. Prints its port and the kind of
/// listener.
const SERVER: &str = r#"
import selectors, socket, sys
listener = socket.create_server(("127.0.0.1", 0))
chosen = selectors.EpollSelector() if sys.argv[1] == "epoll" else selectors.PollSelector()
chosen.register(listener, selectors.EVENT_READ)
kind = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()
print(listener.getsockname()[1], kind, flush=True)
served = 0
while served < 3:
    for key, _ in chosen.select():
        if key.fileobj is listener:
            end, peer = listener.accept()
            assert peer == end.getpeername()
            end = end.dup()
            chosen.register(end, selectors.EVENT_READ)
        elif data := key.fileobj.recv(65536):
            key.fileobj.sendall(data.upper())
        else:
            chosen.unregister(key.fileobj)
            key.fileobj.close()
            served += 1
"#;

/// Accepts connections, and sends nothing.
const HOLD: &str = r#"
import socket
listener = socket.create_server(("127.0.0.1", 0), backlog=200)
print(listener.getsockname()[1], flush=True)
held = []
while True:
    held.append(listener.accept()[0])
    if len(held) > 300:
        held.pop(1).close()
"#;

const CLIENT: &str = r#"
import socket, subprocess, sys, threading
for round in range(3):
    end = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20)
    kind = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()
    assert kind == sys.argv[2], kind
    assert subprocess.run(["true"]).returncode == 0
    text = b"hello " * 200000
    sender = threading.Thread(target=lambda: (end.sendall(text), end.shutdown(socket.SHUT_WR)))
    sender.start()
    got = b""
    while data := end.recv(100000):
        got += data
    sender.join()
    assert got == text.upper(), (len(got), len(text))
    end.close()
print("done")
"#;

/// Starts a server. Returns its first line of output, and the rest as a stream.
fn started(mut command: Command) -> (Server, String, BufReader<impl Read>) {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("timeout(1) is there");
    let mut said = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("it says where it listens");
    (Server(child), line.trim().to_owned(), said)
}

#[test]
fn socket_programs_run_over_rsockets() {
    for way in ["poll", "epoll"] {
        let (mut server, line, _said) = started(preloaded(SERVER, &[way]));
        let (port, kind) = line.split_once(' ').expect("a port and a kind");
        assert_eq!(kind, "rsocket");
        assert_eq!(stdout_of(&mut preloaded(CLIENT, &[port, "rsocket"])), "done\n", "{way}");
        assert!(server.0.wait().expect("it is ours").success(), "{way}");
    }
}

/// A signal handler makes async-signal-safe calls (POSIX) on rsockets while it interrupts the same calls.
#[test]
fn signal_handlers_may_make_the_calls_that_they_interrupted() {
    let program = FOLDER.join("handlers");
    let mut compiler = compiler(&program);
    compiler.arg(home().join("../cli/tests/up/programs/handlers.c"));
    stdout_of(compiler.args(["-lpthread", "-ldl", "-lrt"]));
    let (_server, port, _said) = started(preloaded_within("600", HOLD, &[]));
    // The program watches itself, round by round; on a busy machine, there are minutes of them.
    let mut handlers = program_within("600", "env", &[]);
    handlers.arg(format!("LD_PRELOAD={}", FOLDER.join("librspreload.so").display()));
    handlers.arg(program).args(["timer", "127.0.0.1", &port, "127.0.0.1"]);
    assert_eq!(stdout_of(&mut handlers), "done\n");
}

#[test]
fn a_plain_server_is_reached_over_tcp_after_fallback() {
    // This server answers plain TCP clients, and closes all other connections.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it has one").port().to_string();
    let serving = std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.expect("a client connects");
            let mut first = [0; 5];
            if connection.read_exact(&mut first).is_err() || &first != b"plain" {
                continue;
            }
            connection.write_all(b"spoken").expect("the client is connected");
            return;
        }
    });
    let code = r#"
import socket, sys
end = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
end.sendall(b"plain")
print(end.recv(6, socket.MSG_WAITALL).decode())
"#;
    assert_eq!(stdout_of(&mut preloaded(code, &[&port])), "spoken\n");
    serving.join().expect("no panic");
    // If there is no listener, the error is the system's.
    let refused = output(&mut preloaded(code, &[&port]));
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(words.contains("ConnectionRefusedError"), "{words}");
    assert!(Path::new(&*FOLDER).join("librspreload.so").is_file());
}
