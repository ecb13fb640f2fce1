//! Code shared by the tests: a temporary directory, a server for its subdirectory `root`, the server's log,
//! and a relay that can stall or cut connections.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// A timeout that is longer than any step of these tests, even on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

static NEXT: AtomicU32 = AtomicU32::new(0);

/// The lines of a log, which are added as they are written.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<(Mutex<Vec<Value>>, Condvar)>);

impl Log {
    fn push(&self, line: Value) {
        self.0.0.lock().expect("no thread panics").push(line);
        self.0.1.notify_all();
    }

    /// Returns all lines so far.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.0.0.lock().expect("no thread panics").clone()
    }

    /// Waits for the first line for which `is_wanted` returns true, and returns the fields of the line.
    pub(crate) fn wait(&self, what: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let lines = self.0.0.lock().expect("no thread panics");
        let find =
            |lines: &[Value]| lines.iter().map(|line| &line["fields"]).find(|line| is_wanted(line)).cloned();
        let (lines, _) = self
            .0
            .1
            .wait_timeout_while(lines, PATIENCE, |lines| find(lines).is_none())
            .expect("no thread panics");
        find(&lines).unwrap_or_else(|| panic!("no line says {what}: {lines:#?}"))
    }

    /// Waits until the log contains this many lines with this message.
    pub(crate) fn wait_count(&self, message: &str, count: usize) {
        let is_one = |line: &&Value| line["fields"]["message"] == message;
        let few = |lines: &mut Vec<Value>| lines.iter().filter(is_one).count() < count;
        let lines = self.0.0.lock().expect("no thread panics");
        let (mut lines, _) = self.0.1.wait_timeout_while(lines, PATIENCE, few).expect("no thread panics");
        assert!(!few(&mut lines), "not {count} lines say {message}: {lines:#?}");
    }

    /// Returns the log line that reports the refusal of this file with this diagnostic.
    pub(crate) fn refused(&self, diagnostic: i64, file: &str) -> Value {
        self.wait(&format!("{diagnostic} of {file}"), |line| {
            line["message"] == "refused" && line["diagnostic"] == diagnostic && line["file"] == file
        })
    }

    /// Returns the number of lines with this message.
    pub(crate) fn count(&self, message: &str) -> usize {
        self.lines().iter().filter(|line| line["fields"]["message"] == message).count()
    }
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    pub(crate) log: Log,
}

impl Server {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns a value from `/proc/PID/status`, in KiB.
    pub(crate) fn status_kib(&self, key: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let line = status.lines().find(|line| line.starts_with(key)).expect("a line of it");
        line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
    }

    /// Returns the number of the server's file descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("it runs").count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A temporary directory that is removed at the end of the test.
pub(crate) struct TestDir {
    pub(crate) folder: PathBuf,
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn kiban() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiban"));
    command.env("KIBAN_FTAM_PASSWORD", "secret").env_remove("KIBAN_LOG");
    // The user's own hosts file must not matter.
    command.env("XDG_CONFIG_HOME", "/nonexistent").arg("ftam");
    command
}

impl TestDir {
    /// Limits the rights of `ann`, the last user.
    pub(crate) fn limit(&self, rights: &str) {
        let users = fs::read_to_string(self.at("users.toml")).expect("text");
        let (before, after) = users.rsplit_once("rights = \"all\"").expect("the last user's");
        fs::write(self.at("users.toml"), format!("{before}rights = {rights}{after}")).expect("written");
    }

    pub(crate) fn new() -> TestDir {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("kiban-cli-ftam-{}-{number}", std::process::id()));
        fs::create_dir_all(folder.join("root")).expect("a folder");
        let dir = TestDir { folder };
        let users = dir.at("users.toml");
        for user in ["eve", "ann"] {
            let made = kiban().arg("passwd").arg(&users).arg(user).output().expect("it was built");
            assert!(made.status.success(), "{made:?}");
        }
        let text = fs::read_to_string(&users).expect("text");
        let lines =
            text.lines().map(|line| if line.starts_with("rights") { "rights = \"all\"" } else { line });
        fs::write(&users, lines.collect::<Vec<_>>().join("\n")).expect("written");
        dir
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Starts a server. `before` is a command (and its arguments) that runs the server, such as a wrapper.
    pub(crate) fn serve(&self, before: &[String], more: &[&str]) -> Server {
        self.serve_at(0, before, more)
    }

    /// Like [`TestDir::serve`], but on this port.
    pub(crate) fn serve_at(&self, port: u16, before: &[String], more: &[&str]) -> Server {
        let mut words = before.iter().cloned();
        let kiban = env!("CARGO_BIN_EXE_kiban");
        let mut command = match words.next() {
            None => Command::new(kiban),
            Some(first) => {
                let mut command = Command::new(first);
                command.args(words).arg(kiban);
                command
            }
        };
        let mut child = command
            .args(["ftam", "serve", "--json", "--listen", &format!("127.0.0.1:{port}"), "--root"])
            .arg(self.at("root"))
            .arg("--users")
            .arg(self.at("users.toml"))
            .args(more)
            .current_dir(&self.folder)
            .env_remove("KIBAN_LOG")
            .stderr(Stdio::piped())
            .spawn()
            .expect("it was built");
        let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let log = Log::default();
        let told = log.clone();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let line = serde_json::from_str(&line).unwrap_or_else(|_| Value::String(line.clone()));
                told.push(line);
            }
        });
        let serving = log.wait("where it listens", |line| line["message"] == "serving FTAM");
        let address = serving["address"].as_str().expect("an address");
        let port = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        Server { child, port, log }
    }

    /// Starts a server that is expected to fail, and returns its error; `before` is as in [`TestDir::serve`].
    pub(crate) fn refuses(&self, before: &[&str], arguments: &[&str]) -> String {
        let mut words = before.iter().copied().chain([env!("CARGO_BIN_EXE_kiban")]).chain(["ftam", "serve"]);
        let mut child = Command::new(words.next().expect("one at least"))
            .args(words)
            .args(["--json", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .current_dir(&self.folder)
            .stderr(Stdio::piped())
            .spawn()
            .expect("it was built");
        let mut told = String::new();
        for line in BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok) {
            if line.contains("serving FTAM") {
                child.kill().expect("it is a child of this process");
                child.wait().expect("it is a child of this process");
                panic!("it serves: {before:?} {arguments:?}");
            }
            told.push_str(&line);
        }
        let status = child.wait().expect("it is a child of this process");
        assert_eq!(status.code(), Some(1), "{arguments:?}: {told}");
        told
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = kiban();
        command.args(arguments).current_dir(&self.folder);
        command
    }

    pub(crate) fn try_run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("it was built")
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let output = self.try_run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    pub(crate) fn fails(&self, arguments: &[&str], words: &str) {
        said(self.try_run(arguments), words);
    }

    /// Returns the number of files in the root that belong to unfinished or abandoned transfers.
    pub(crate) fn left(&self) -> usize {
        fs::read_dir(self.at("root/.kiban-ftam/new")).map_or(0, Iterator::count)
    }
}

/// Checks that the command failed with these words.
pub(crate) fn said(output: Output, words: &str) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && error.contains(words), "not «{words}»: {output:?}");
}

pub(crate) fn remote(port: u16, path: &str) -> String {
    format!("ftam://eve@127.0.0.1:{port}/{path}")
}

pub(crate) fn noise(bytes: usize) -> Vec<u8> {
    let mut rng = kiban_base::SimRng::from_seed(bytes as u64);
    (0..bytes.div_ceil(8)).flat_map(|_| rng.draw().to_le_bytes()).take(bytes).collect()
}

pub(crate) fn same(one: &Path, bytes: &[u8]) {
    assert!(fs::read(one).unwrap_or_else(|error| panic!("{}: {error}", one.display())) == bytes);
}

/// What the relay does to a connection.
#[derive(Clone, Copy)]
pub(crate) enum Fate {
    /// Passes all bytes.
    Pass,
    /// Closes both sides after passing this many bytes in one direction.
    Cut { up: u64, down: u64 },
    /// Stops passing bytes after this many, without closing, until [`Relay::go_on`] is called.
    Hold { up: u64, down: u64 },
}

/// A relay between clients and a server.
pub(crate) struct Relay {
    pub(crate) port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    up: AtomicU64,
    down: AtomicU64,
    /// The number of directions that are stalled, whether they may continue, and the number of clients that
    /// connected while the server was down.
    held: Mutex<(usize, bool, usize)>,
    bell: Condvar,
}

impl Relay {
    /// Creates a relay that applies one fate to each connection in turn. After the last fate, connections
    /// pass unchanged.
    pub(crate) fn new(server: u16, fates: Vec<Fate>) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let state = Arc::new(State::default());
        let shared = state.clone();
        thread::spawn(move || {
            let mut fates = fates.into_iter();
            for client in listener.incoming() {
                let client = client.expect("accepted");
                // Disconnect a client that connects while the server is down.
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else {
                    shared.held.lock().expect("no thread panics").2 += 1;
                    shared.bell.notify_all();
                    continue;
                };
                let fate = fates.next().unwrap_or(Fate::Pass);
                for upwards in [true, false] {
                    let (client, server) =
                        (client.try_clone().expect("cloned"), server.try_clone().expect("cloned"));
                    let state = shared.clone();
                    thread::spawn(move || match upwards {
                        true => pass(client, server, upwards, fate, &state),
                        false => pass(server, client, upwards, fate, &state),
                    });
                }
            }
        });
        Relay { port, state }
    }

    /// Returns the number of bytes passed from clients and the number passed from the server.
    pub(crate) fn passed(&self) -> (u64, u64) {
        (self.state.up.load(Ordering::Relaxed), self.state.down.load(Ordering::Relaxed))
    }

    /// Waits until a connection is held.
    pub(crate) fn wait_held(&self) {
        let held = self.state.held.lock().expect("no thread panics");
        let waited = self.state.bell.wait_timeout_while(held, PATIENCE, |held| held.0 == 0);
        assert!(waited.expect("no thread panics").0.0 > 0, "so many bytes never came");
    }

    /// Waits until a client has connected while the server is down.
    pub(crate) fn wait_turned_away(&self) {
        let held = self.state.held.lock().expect("no thread panics");
        let waited = self.state.bell.wait_timeout_while(held, PATIENCE, |held| held.2 == 0);
        assert!(waited.expect("no thread panics").0.2 > 0, "nobody came");
    }

    /// Lets all held bytes pass.
    pub(crate) fn go_on(&self) {
        self.state.held.lock().expect("no thread panics").1 = true;
        self.state.bell.notify_all();
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, upwards: bool, fate: Fate, state: &State) {
    let (up, down) = match fate {
        Fate::Pass => (u64::MAX, u64::MAX),
        Fate::Cut { up, down } | Fate::Hold { up, down } => (up, down),
    };
    let (mut rest, counter) = if upwards { (up, &state.up) } else { (down, &state.down) };
    let mut buffer = vec![0; 64 << 10];
    loop {
        if rest == 0 {
            match fate {
                Fate::Hold { .. } => {
                    let mut held = state.held.lock().expect("no thread panics");
                    held.0 += 1;
                    state.bell.notify_all();
                    drop(state.bell.wait_while(held, |held| !held.1).expect("no thread panics"));
                    rest = u64::MAX;
                }
                _ => break,
            }
        }
        let room = buffer.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
        let Ok(count @ 1..) = from.read(&mut buffer[..room]) else { break };
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
        counter.fetch_add(count as u64, Ordering::Relaxed);
        rest = rest.saturating_sub(count as u64);
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
