//! `kiban run`: unmodified programs on a running board's TCP, with this host's kernel as the peer.
//!
//! Requires  a C compiler for the preloaded library, curl, iperf3, python3.

use crate::common::{ECHO, KIBAN, PORT, TestDir, digest_of, enter, run, text};
use crate::preload;
use kiban_os::Clock;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

const SOCKETS: &str = "[[service]]\nkind = \"sockets\"\n";

/// The directory that contains the preloaded library, which is built in the same way as by `make verbs`.
pub(crate) static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| preload::built("sockets", "board"));

/// Returns a command that runs a program on the board.
fn on_board(dir: &TestDir, program: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["60", KIBAN, "run", "--board", "lab", "--"]).args(program);
    command.env("XDG_RUNTIME_DIR", &dir.0).env("KIBAN_VERBS_LIB", &*LIBRARY).current_dir(&dir.0);
    command
}

fn told(mut command: Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// A server process that is killed at the end of the test.
struct Server(Child);

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
    let mut child = command.spawn().expect("it is installed");
    let mut said = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("it says lines");
    assert_eq!(line, "ready\n");
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
    let dir = TestDir::new("run-iperf");
    let _board = dir.up(&format!("{PORT}{SOCKETS}"));
    let mut kernel = Command::new("iperf3");
    kernel.args(["-s", "-B", "10.9.0.1", "-p", "5201", "--forceflush"]);
    let mut kernel = Iperf::begin(kernel);
    for more in [&[][..], &["-R"], &["-P", "8"]] {
        let arguments = ["iperf3", "-c", "10.9.0.1", "-p", "5201", "-n", "64M", "-J"];
        kernel.waits();
        let output = told(on_board(&dir, &[&arguments[..], more].concat()));
        assert_iperf(&output, more);
    }
    drop(kernel);
    let status = || text(&dir.kiban(&["status", "lab"]));
    let mut server = Iperf::begin(on_board(&dir, &["iperf3", "-s", "-p", "5202", "--forceflush"]));
    for more in [&[][..], &["-R"]] {
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
const CHECKS: &str = r#"
import asyncio, errno, os, select, socket, sys, threading

far = ("10.9.0.1", 5000)
kernel = os.environ.pop("PEER")

# Names, and a stream both ways.
s = socket.create_connection(far, timeout=20)
assert s.getsockname()[0] == "10.9.0.2" and s.getpeername() == far, (s.getsockname(), s.getpeername())
assert s.family == socket.AF_INET
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
s.sendall(b"echo")
assert s.recv(4, socket.MSG_WAITALL) == b"echo"
# A copy of the number is the same stream, and knows its names.
copy = s.dup()
assert copy.getpeername() == far
# A child has it.
pid = os.fork()
if pid == 0:
    copy.sendall(b"from the child")
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
got = b""
while len(got) < 14:
    got += s.recv(14 - len(got))
assert got == b"from the child", got
copy.close()
s.shutdown(socket.SHUT_WR)
assert s.recv(1) == b"", "an end in order is an end"
s.close()

# Nobody listens: blocking, and not.
try:
    socket.create_connection(("10.9.0.1", 5999), timeout=20)
    assert False
except ConnectionRefusedError:
    pass
s = socket.socket()
s.setblocking(False)
error = s.connect_ex(("10.9.0.1", 5999))
if error == errno.EINPROGRESS:
    select.select([], [s], [], 20)
    error = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
assert error == errno.ECONNREFUSED, error
s.close()

# A reset is no end.
s = socket.create_connection(far, timeout=20)
s.sendall(b"reset")
try:
    assert s.recv(100) != b"", "a reset"
    assert False
except ConnectionResetError:
    pass
s.close()

# Whoever has finished still gets everything, however slowly it reads.
s = socket.create_connection(far, timeout=20)
s.sendall(b"big")
s.shutdown(socket.SHUT_WR)
total = 0
while data := s.recv(4096):
    total += len(data)
assert total == 3 << 20, total
s.close()

# What could not be opened has nothing to read.
s = socket.socket()
s.setblocking(False)
if s.connect_ex(("10.9.0.1", 5999)) == errno.EINPROGRESS:
    select.select([], [s], [], 20)
    try:
        s.recv(10)
        assert False
    except ConnectionRefusedError:
        pass
s.close()

# What is not the board's stays the system's.
listener = socket.create_server(("127.0.0.1", 0))
own = socket.create_connection(listener.getsockname(), timeout=20)
peer, _ = listener.accept()
own.sendall(b"own")
assert peer.recv(3) == b"own"

# A listener, with poll, and two dozen callers at once.
async def main():
    async def echo(reader, writer):
        assert writer.get_extra_info("peername")[0] == "10.9.0.1"
        writer.write(await reader.read())
        await writer.drain()
        writer.close()
    server = await asyncio.start_server(echo, "0.0.0.0", 6000)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", kernel, env={}, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0 and out == b"24\n", out
    # Streams that do not block, through the runtime's epoll.
    streams = [await asyncio.open_connection(*far) for _ in range(24)]
    for number, (reader, writer) in enumerate(streams):
        writer.write(b"echo" * (1000 + number))
    for number, (reader, writer) in enumerate(streams):
        assert await reader.readexactly(4 * (1000 + number)) == b"echo" * (1000 + number)
        writer.close()
asyncio.run(asyncio.wait_for(main(), 50))
print("all is well")
"#;

/// The peer, which uses the kernel's TCP: echoes data, and resets the connection on request.
const FAR: &str = r#"
import socket, struct, threading
def serve(stream):
    while data := stream.recv(65536):
        if data == b"reset":
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            break
        if data == b"late reset":
            assert stream.recv(1) == b""
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            break
        if data == b"big":
            assert stream.recv(1) == b""
            stream.sendall(bytes(3 << 20))
            break
        stream.sendall(data)
    stream.close()
listener = socket.create_server(("10.9.0.1", 5000), backlog=100)
while True:
    stream, _ = listener.accept()
    threading.Thread(target=serve, args=(stream,)).start()
"#;

/// A Python program that makes unusual socket calls.
const ODDITIES: &str = r#"
import errno, os, select, socket, subprocess, sys

far, nobody = ("10.9.0.1", 5000), ("10.9.0.1", 5999)

def caught(call):
    try:
        return call()
    except OSError as error:
        return error.errno

def kernel_calls(port):
    words = "import socket; s = socket.create_connection(('10.9.0.2', %d), timeout=20); s.sendall(b'hello'); s.recv(1)"
    return subprocess.Popen([sys.executable, "-c", words % port], env={})

def echoes(s):
    s.sendall(b"echo")
    assert s.recv(4, socket.MSG_WAITALL) == b"echo"

# Refused, and refused again, as often as one likes; then somebody is there.
s = socket.socket()
for _ in range(3):
    assert caught(lambda: s.connect(nobody)) == errno.ECONNREFUSED
    assert caught(s.getpeername) == errno.ENOTCONN
    assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
s.connect(far)
assert caught(lambda: s.connect(far)) == errno.EISCONN
echoes(s)
s.close()
# The same without blocking, as programs wait for it.
s = socket.socket()
s.setblocking(False)
for _ in range(3):
    error = s.connect_ex(nobody)
    if error == errno.EINPROGRESS:
        select.select([], [s], [], 20)
        error = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    assert error == errno.ECONNREFUSED, error
assert not os.get_blocking(s.fileno()), "it stays as it was set"
# And what was refused there can go to this host instead.
listener = socket.create_server(("127.0.0.1", 0))
s.setblocking(True)
s.connect(listener.getsockname())
peer, _ = listener.accept()
s.sendall(b"own")
assert peer.recv(3) == b"own"
for each in s, peer, listener:
    each.close()
# The port that it was bound to stays its own.
s = socket.socket()
s.bind(("10.9.0.2", 5555))
for _ in range(2):
    assert caught(lambda: s.connect(nobody)) == errno.ECONNREFUSED
s.connect(far)
assert s.getsockname() == ("10.9.0.2", 5555) and s.getpeername() == far
s.close()

# A listener has callers, and nothing to read; none of them is lost by that.
listener = socket.create_server(("10.9.0.2", 6001))
copy = listener.dup()
child = kernel_calls(6001)
select.select([listener], [], [], 20)
for call in (lambda: listener.recv(1), lambda: os.read(listener.fileno(), 1), lambda: listener.recvmsg(10),
             lambda: copy.recv(1)):
    assert caught(call) == errno.ENOTCONN
stream, peer = listener.accept()
assert peer[0] == "10.9.0.1"
assert stream.recv(5, socket.MSG_WAITALL) == b"hello"
stream.close()
assert child.wait() == 0
copy.close()
listener.close()

# A port that the board chooses, asked for before it is listened on, and after; and one for a caller.
for address in "", "10.9.0.2":
    for asks in True, False:
        listener = socket.socket()
        listener.bind((address, 0))
        if asks:
            port = listener.getsockname()[1]
            assert port != 0 and listener.getsockname() == (address or "0.0.0.0", port)
            assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 0
            assert caught(lambda: listener.recv(1)) == errno.ENOTCONN
        listener.listen()
        assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
        assert not asks or port == listener.getsockname()[1]
        port = listener.getsockname()[1]
        other = socket.socket()
        other.bind((address, port))
        assert caught(other.listen) == errno.EADDRINUSE
        other.close()
        child = kernel_calls(port)
        stream, _ = listener.accept()
        assert stream.getsockname() == ("10.9.0.2", port)
        assert stream.recv(5, socket.MSG_WAITALL) == b"hello"
        stream.close()
        assert child.wait() == 0
        listener.close()
    s = socket.socket()
    s.bind((address, 0))
    port = s.getsockname()[1]
    assert port != 0
    s.connect(far)
    assert s.getsockname() == ("10.9.0.2", port)
    echoes(s)
    s.close()
# What is bound and not the board's is the system's, port and all.
s = socket.socket()
s.bind(("10.9.0.1", 0))
port = s.getsockname()[1]
assert port != 0
s.listen()
assert s.getsockname() == ("10.9.0.1", port)
s.close()

# A reset is none of an end's, whoever finished first; and it is told once.
s = socket.create_connection(far, timeout=20)
s.sendall(b"late reset")
s.shutdown(socket.SHUT_WR)
assert caught(lambda: s.recv(1)) == errno.ECONNRESET
assert s.recv(1) == b""
s.close()
# The next with the same names is another.
s = socket.socket()
s.bind(("10.9.0.2", 5556))
s.connect(far)
s.sendall(b"late reset")
s.shutdown(socket.SHUT_WR)
assert caught(lambda: s.recv(1)) == errno.ECONNRESET
s.close()
s = socket.socket()
s.bind(("10.9.0.2", 5556))
s.connect(far)
echoes(s)
s.shutdown(socket.SHUT_WR)
assert s.recv(1) == b"" and s.recv(1) == b""
s.close()
print("all is well")
"#;

/// A Python program that connects to the board through the kernel.
const PEER: &str = r#"
import socket
streams = [socket.create_connection(("10.9.0.2", 6000), timeout=20) for _ in range(24)]
done = 0
for number, stream in enumerate(streams):
    stream.sendall(b"call" * number)
    stream.shutdown(socket.SHUT_WR)
    got = b""
    while data := stream.recv(65536):
        got += data
    done += got == b"call" * number
print(done)
"#;

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
fn silent_peer() {
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
const LATE: &str = r#"
import errno, os, select, signal, socket, struct, sys

def line():
    sys.stdout.flush()
    return sys.stdin.readline()

def begin(to, bound=None):
    s = socket.socket()
    if bound:
        s.bind(bound)
    s.setblocking(False)
    error = s.connect_ex(to)
    print(errno.errorcode.get(error, error))
    return s

def outcome(s):
    poll = select.poll()
    poll.register(s, select.POLLOUT)
    poll.poll(20000)
    return s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)

far = ("10.9.0.1", 5000)
children = len(os.listdir("/proc/self/task"))
print("ready")
line()
good, bound = begin(far), begin(far, ("10.9.0.2", 5678))
refused, own = begin(("10.9.0.1", 5999)), begin(("10.99.0.1", 5000))
dropped = begin(far)
# Whoever waits with epoll is told, too, though it has begun before the board has answered.
waits = select.epoll()
waits.register(good, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
# None is open, and nobody is told that one is.
assert select.select([], [good, bound, refused, own], [], 0) == ([], [], [])
assert good.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
for call in (lambda: good.connect(far), lambda: good.getpeername(), lambda: good.recv(1)):
    try:
        call()
        assert False
    except OSError as error:
        print(errno.errorcode[error.errno])
dropped.close()
# A connect() that blocks waits no longer than SO_SNDTIMEO, and a handler ends it.
timed = socket.socket()
timed.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 50000))
print(errno.errorcode[timed.connect_ex(far)])
ended = socket.socket()
def handler(*_):
    raise InterruptedError
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
try:
    ended.connect(far)
except InterruptedError:
    print("EINTR")
signal.setitimer(signal.ITIMER_REAL, 0)
print("stopped still")
line()
assert refused.fileno() >= 0 and outcome(refused) == errno.ECONNREFUSED
refused.close()
events = 0
while not events & select.EPOLLOUT:
    events = dict(waits.poll(20)).get(good.fileno(), 0)
assert outcome(good) == 0
assert outcome(bound) == 0 and bound.getsockname() == ("10.9.0.2", 5678), bound.getsockname()
assert outcome(own) == 0 and own.getpeername() == ("10.99.0.1", 5000), own.getpeername()
for s in good, timed, ended:
    assert outcome(s) == 0
    name = s.getsockname()
    assert name[0] == "10.9.0.2" and name[1] != 0, name
for s in good, bound, own, timed, ended:
    s.setblocking(True)
    s.sendall(b"echo" * 50000)
    got = b""
    while len(got) < 200000:
        got += s.recv(65536)
    assert got == b"echo" * 50000
    s.shutdown(socket.SHUT_WR)
    assert s.recv(1) == b""
    s.close()
print("echoed")
# A reset is none of an end's.
line()
s = begin(far)
line()
assert outcome(s) == 0
s.setblocking(True)
s.sendall(b"reset")
try:
    assert s.recv(100) != b"", "a reset"
    assert False
except ConnectionResetError:
    pass
s.close()
# No child of the program's is left, nor another thread.
try:
    os.waitpid(-1, os.WNOHANG)
    assert False
except ChildProcessError:
    pass
assert len(os.listdir("/proc/self/task")) == children
print("all is well")
"#;

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
const TOOLS: &str = r#"
import ctypes, errno, fcntl, os, select, signal, socket, sys, threading

far, nobody = ("10.9.0.1", 5000), ("10.9.0.1", 5999)
libc = ctypes.CDLL(None, use_errno=True)

def caught(call):
    try:
        return call()
    except OSError as error:
        return error.errno

class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_char_p), ("length", ctypes.c_size_t)]

class Message(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("name_length", ctypes.c_uint32), ("parts", ctypes.POINTER(Part)),
                ("count", ctypes.c_size_t), ("control", ctypes.c_void_p), ("control_length", ctypes.c_size_t),
                ("flags", ctypes.c_int), ("done", ctypes.c_uint)]

def call(name, *arguments):
    result = getattr(libc, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result
"#;

const FAST_OPEN: &str = r#"
fast = 0x20000000 # MSG_FASTOPEN
name = (socket.AF_INET).to_bytes(2, sys.byteorder) + far[1].to_bytes(2, "big")
name += socket.inet_aton(far[0]) + bytes(8)
message = Message(name, 16, ctypes.pointer(Part(b"x", 1)), 1)
for send in (lambda s: s.sendto(b"x", fast, far), lambda s: s.sendmsg([b"x"], [], fast, far),
             lambda s: call("sendmmsg", s.fileno(), ctypes.byref(message), 1, fast)):
    s = socket.socket()
    assert caught(lambda: send(s)) == errno.EOPNOTSUPP
    s.connect(far)
    s.close()
# A listener that was not bound listens at the wildcard address, which is the board's.
listener = socket.socket()
listener.listen()
assert listener.getsockname()[0] == "0.0.0.0" and listener.getsockname()[1] != 0
assert str(os.fstat(listener.fileno()).st_ino) not in open("/proc/net/tcp").read().split()
print("all is well")
"#;

/// The library's tables have room for 64 descriptors in this test.
const HIGH_NUMBERS: &str = r#"
def high(file):
    return socket.socket(fileno=fcntl.fcntl(file.fileno(), fcntl.F_DUPFD_CLOEXEC, 64))
kept = [socket.socket() for _ in range(3)]
assert caught(lambda: high(kept[0]).connect(far)) == errno.EMFILE
assert caught(lambda: high(kept[1]).bind(("10.9.0.2", 6003))) == errno.EMFILE
assert caught(lambda: high(kept[2]).listen()) == errno.EMFILE
# Sockets of this host need no place in the table.
listener = high(socket.create_server(("127.0.0.1", 0)))
own = high(socket.create_connection(listener.getsockname()))
assert own.getpeername() == listener.getsockname()
# A duplicate is recognised by its file.
s = socket.create_connection(far)
copy = high(s)
assert copy.getpeername() == far and copy.getsockname() == s.getsockname()
# No stream is accepted that could not be told from one of this host.
listener = socket.create_server(("10.9.0.2", 6004))
client = socket.create_connection(("10.9.0.2", 6004))
while (filler := os.dup(0)) < 63:
    pass
assert caught(listener.accept) == errno.EMFILE
print("all is well")
"#;

/// Runs a program on the board, with a library in a folder. Asserts that all its connections to this host
/// came from the board.
#[track_caller]
fn stays_on_board(name: &str, program: &str, library: &PathBuf) {
    let dir = TestDir::new(name);
    run("ip", &["link", "set", "lo", "up"]);
    let _board = dir.up(&format!("{PORT}{SOCKETS}"));
    let listener = std::net::TcpListener::bind("10.9.0.1:5000").expect("it is the host's");
    listener.set_nonblocking(true).expect("a flag");
    let mut command = on_board(&dir, &["python3", "-c", &format!("{TOOLS}{program}")]);
    command.env("KIBAN_VERBS_LIB", library);
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
        stays_on_board("run-fast-open", FAST_OPEN, &LIBRARY);
    }
}

#[test]
fn descriptors_beyond_the_table_do_not_use_the_hosts_network() {
    if !enter() {
        return;
    }
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("sockets-small");
    let build = concat!(env!("CARGO_MANIFEST_DIR"), "/../../preload/build");
    let mut build = Command::new(build);
    build.arg(&folder).arg("board").env("CFLAGS", "-DFILES=64");
    let output = told(build);
    assert!(output.status.success(), "{}", text(&output));
    stays_on_board("run-high", HIGH_NUMBERS, &folder);
}

const RESETS: &str = r#"
buffer = ctypes.create_string_buffer(16)
empty_first = (Part * 2)(Part(None, 0), Part(ctypes.cast(buffer, ctypes.c_char_p), 16))
messages = (Message * 2)(Message(None, 0, empty_first, 2), Message(None, 0, empty_first, 2))
end, pipe = os.pipe()
ways = {
    "readv": lambda s: os.readv(s.fileno(), [bytearray(0), bytearray(8)]),
    "preadv2": lambda s: os.preadv(s.fileno(), [bytearray(0), bytearray(8)], -1),
    "recvmsg": lambda s: s.recvmsg_into([bytearray(0), bytearray(8)])[0],
    "recvmmsg": lambda s: call("recvmmsg", s.fileno(), messages, 2, 0x10000, None), # MSG_WAITFORONE
    "splice": lambda s: os.splice(s.fileno(), pipe, 100),
}
for name, read in ways.items():
    s = socket.create_connection(far, timeout=None)
    s.sendall(b"reset")
    assert caught(lambda: read(s)) == errno.ECONNRESET, name
    s.close()
    # The end of a stream is not an error.
    s = socket.create_connection(far, timeout=None)
    s.sendall(b"x")
    assert read(s) == 1 or messages[0].done == 1, name
    s.shutdown(socket.SHUT_WR)
    assert read(s) == 0 or messages[0].done == 0, name
    s.close()
# Options that ask for protection are refused, before the socket is connected and after.
options = [(socket.IPPROTO_TCP, 14), (socket.IPPROTO_TCP, 31), (socket.IPPROTO_TCP, 32), (socket.IPPROTO_TCP, 38),
           (socket.IPPROTO_IP, 21), (socket.IPPROTO_IP, 17), (socket.IPPROTO_IPV6, 73)]
for s in socket.socket(), socket.create_connection(far):
    for level, option in options:
        assert caught(lambda: s.setsockopt(level, option, bytes(256))) == errno.ENOPROTOOPT, (level, option)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
print("all is well")
"#;

#[test]
fn every_read_reports_a_reset_and_options_for_protection_are_refused() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("run-resets");
    let _board = dir.up(&format!("{PORT}{SOCKETS}"));
    let mut far = Command::new("python3");
    far.args(["-c", FAR]);
    let _far = Server::begin(far, || text(&run("ss", &["-Hltn", "sport", "=", ":5000"])).contains(":5000"));
    let output = told(on_board(&dir, &["python3", "-c", &format!("{TOOLS}{RESETS}")]));
    assert_eq!(text(&output), "all is well\n", "{}", dir.log());
}

/// Connects in a parent and in its child while the board's process is stopped, and makes calls that do not
/// block with the system's TCP.
const STOPPED: &str = r#"
def line():
    sys.stdout.flush()
    return sys.stdin.readline()

def begin(to):
    s = socket.socket()
    s.setblocking(False)
    assert s.connect_ex(to) == errno.EINPROGRESS
    return s

def outcome(s):
    poll = select.poll()
    poll.register(s, select.POLLOUT)
    poll.poll()
    return s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)

print("ready")
line()
shared = begin(far)
has_begun, tell = os.pipe()
child = os.fork()
own = begin(nobody if child else far)
if child == 0:
    os.write(tell, b"x")
    for s in own, shared:
        error = outcome(s)
        assert error == 0, error
    assert own.getsockname() != shared.getsockname()
    os._exit(0)
os.read(has_begun, 1)
heard = {}
def asks(name, port, ask):
    s = socket.socket()
    s.bind(("10.9.0.2", port))
    heard[name] = caught(lambda: ask(s))
name, length = ctypes.create_string_buffer(128), ctypes.byref(ctypes.c_uint32(128))
# Python's getsockname() keeps other threads from running.
threads = [threading.Thread(target=asks, args=arguments) for arguments in (
    ("listen", 6002, lambda s: call("listen", s.fileno(), 5)),
    ("getsockname", 0, lambda s: call("getsockname", s.fileno(), name, length)))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert heard == {"listen": errno.ENETDOWN, "getsockname": errno.ENETDOWN}, heard
print("stopped still")
line()
assert outcome(own) == errno.ECONNREFUSED
assert outcome(shared) == 0 and shared.getpeername() == far
assert os.waitpid(child, 0)[1] == 0
print("all is well")
"#;

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
