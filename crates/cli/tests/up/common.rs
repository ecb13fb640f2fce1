//! Code shared by the tests: a temporary directory, a running board, a second host, and data transfers.

use kiban_os::interface::enter_new_namespace;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

pub(crate) const KIBAN: &str = env!("CARGO_BIN_EXE_kiban");
/// A timeout that is longer than any step of these tests.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A minimal configuration: a board with one port.
pub(crate) const PORT: &str = "name = \"lab\"\n[[port]]\nname = \"lan\"\nlink = \"tap:kiban0\"\naddress = \"10.9.0.2/24\"\n\
    host_address = \"10.9.0.1/24\"\n";
pub(crate) const ECHO: &str = "[[service]]\nkind = \"echo\"\nlisten = \"10.9.0.2:7\"\n";

/// Returns whether the test runs in its own network namespace; if not, prints why.
pub(crate) fn enter() -> bool {
    match enter_new_namespace() {
        Ok(()) => true,
        Err(error) => {
            println!("skipped: {error}");
            false
        }
    }
}

/// A directory for one test, with the configuration, the control socket and other files.
pub(crate) struct TestDir(pub(crate) PathBuf);

impl TestDir {
    pub(crate) fn new(test: &str) -> TestDir {
        let path = std::env::temp_dir().join(format!("kiban-up-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("there is disk space");
        TestDir(path)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("there is disk space");
        path
    }

    pub(crate) fn kiban(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the program was built")
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(KIBAN);
        command.args(arguments).env("XDG_RUNTIME_DIR", &self.0).current_dir(&self.0).env_remove("KIBAN_LOG");
        command
    }

    /// Starts a board and waits until it reports that it is ready.
    pub(crate) fn up(&self, config: &str) -> Board<'_> {
        self.up_by(config, spawn)
    }

    /// Like [`TestDir::up`], but starts the process with the given function.
    pub(crate) fn up_by(&self, config: &str, begin: impl FnOnce(Command) -> Child) -> Board<'_> {
        let file = self.write("board.toml", config);
        let path = self.0.join("notify.sock");
        let _ = std::fs::remove_file(&path);
        let notify = UnixDatagram::bind(&path).expect("a socket");
        notify.set_read_timeout(Some(LONG)).expect("a socket");
        let log = std::fs::File::create(self.0.join("log")).expect("a file");
        let mut command = self.command(&["up", &file.display().to_string()]);
        command.env("NOTIFY_SOCKET", &path).stderr(log).stdout(Stdio::null());
        let child = begin(command);
        let board = Board { dir: self, child, notify };
        board.expect("READY=1");
        board
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.0.join("log")).unwrap_or_default()
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        // Ignore errors: a leftover directory does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) struct Board<'a> {
    dir: &'a TestDir,
    pub(crate) child: Child,
    pub(crate) notify: UnixDatagram,
}

impl Board<'_> {
    /// Waits for the next sd_notify message, which must contain `what`.
    pub(crate) fn expect(&self, what: &str) {
        let mut bytes = [0; 64];
        let count = loop {
            match self.notify.recv(&mut bytes) {
                Ok(count) => break count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("{error}: {}", self.dir.log()),
            }
        };
        assert_eq!(std::str::from_utf8(&bytes[..count]), Ok(what));
    }

    pub(crate) fn status(&self) -> Value {
        let output = self.dir.kiban(&["status", "lab", "--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{error}: {} {}", String::from_utf8_lossy(&output.stderr), self.dir.log())
        })
    }

    /// Polls the status until a condition holds.
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let clock = kiban_os::Clock::new();
        loop {
            let status = self.status();
            if is_so(&status) {
                return status;
            }
            assert!(clock.now().as_secs_f64() < LONG.as_secs_f64(), "{what}: {status}\n{}", self.dir.log());
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status().expect("kill");
        assert!(status.success());
    }

    /// Stops the process until it receives SIGCONT.
    pub(crate) fn stop(&self) {
        self.signal("-STOP");
        let path = format!("/proc/{}/task", self.child.id());
        let is_stopped = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
        };
        while !std::fs::read_dir(&path).expect("it is a child of this process").flatten().all(is_stopped) {
            std::thread::yield_now();
        }
    }

    /// Waits for the process to end and returns its exit status.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.child.wait().expect("it is a child of this process").code()
    }
}

impl Drop for Board<'_> {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn spawn(mut command: Command) -> Child {
    command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

pub(crate) fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap_or_else(|error| panic!("{address}: {error}"));
    stream.set_read_timeout(Some(LONG)).expect("a socket");
    stream
}

/// Sends bytes and checks that the same bytes come back.
pub(crate) fn echo(stream: &mut TcpStream, text: &[u8]) {
    stream.write_all(text).expect("the peer reads it");
    let mut heard = vec![0; text.len()];
    stream.read_exact(&mut heard).expect("it sends it back");
    assert_eq!(heard, text);
}

pub(crate) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

pub(crate) fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// Copies the program, using another process. If this process wrote the copy, a child forked in the meantime
/// would hold it open for writing until the child's exec, and executing the copy would fail (ETXTBSY).
pub(crate) fn copy_program(to: &Path) {
    let output = run("cp", &[KIBAN, &to.display().to_string()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Returns the hash of all bytes read.
pub(crate) fn digest_of(from: &mut impl Read) -> [u8; 32] {
    let (mut hash, mut piece) = (Sha256::new(), vec![0; 1 << 20]);
    while let count @ 1.. = from.read(&mut piece).expect("it comes") {
        hash.update(&piece[..count]);
    }
    hash.finalize().into()
}

/// Runs `ip` or another iproute2 command, which must succeed.
pub(crate) fn ip(command: &str) {
    let output = run("ip", &command.split(' ').collect::<Vec<_>>());
    assert!(output.status.success(), "ip {command}: {}", text(&output));
}

/// Returns the configuration of a port on which the kernel has the address 10.9.0.1 and the board has
/// 10.9.0.2.
pub(crate) fn lan(link: &str, options: &str, mtu: usize) -> String {
    let host = match link {
        "packet:lab0" | "xdp:lab0" => {
            // Remove the interface left behind by an earlier test case.
            let _ = run("ip", &["link", "del", "lab0"]);
            let queues = if link == "xdp:lab0" { " numtxqueues 2 numrxqueues 2" } else { "" };
            ip(&format!("link add lab0 mtu {mtu}{queues} type veth peer name lab1 mtu {mtu}{queues}"));
            ip("addr add 10.9.0.1/24 dev lab1");
            if options.contains("loss") {
                // Limit segments to one packet: a veth would pass on large segments whole, and the impairment
                // would lose only a few of them.
                ip("link set lab1 gso_max_segs 1");
            }
            ip("link set lab0 up");
            ip("link set lab1 up");
            ""
        }
        _ => "host_address = \"10.9.0.1/24\"\n",
    };
    format!(
        "name = \"lab\"\n[[port]]\nname = \"lan\"\nlink = \"{link}{options}\"\naddress = \"10.9.0.2/24\"\nmtu = {mtu}\n{host}"
    )
}

/// Returns a link counter of the first port.
pub(crate) fn counted(status: &Value, name: &str) -> u64 {
    status["ports"][0]["link_counters"][name].as_u64().unwrap_or_else(|| panic!("no {name}: {status}"))
}

/// Waits until all sessions have ended and released their memory, that is, until memory use is the same as in
/// `idle`, the status of a newly started board.
pub(crate) fn is_clean(board: &Board<'_>, idle: &Value) -> Value {
    let used = |status: &Value, pool: &str| status["memory"][pool]["used"].as_u64().expect("a number");
    board.until("all is given back", |status| {
        let services = status["services"].as_array().expect("services");
        let same = |pool: &str| used(status, pool) == used(idle, pool);
        // A link keeps the unused remainder of the page that it last received data into. With the memory of
        // these boards, pages have up to 16 KiB.
        let landing = used(status, "receive_bytes").abs_diff(used(idle, "receive_bytes"));
        services.iter().all(|service| service["sessions"] == 0)
            && same("transmit_bytes")
            && same("pdus")
            && landing <= 2 * (16 << 10)
    })
}

/// A second host: a thread in a separate network namespace that executes closures.
pub(crate) struct Far {
    asked: mpsc::Sender<Box<dyn FnOnce() + Send>>,
    namespace: String,
}

impl Far {
    /// Creates a second host. The test itself must also be in a separate namespace.
    pub(crate) fn new() -> Far {
        let (asked, work) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            enter_new_namespace().expect("the test has one");
            let thread = std::fs::read_link("/proc/thread-self").expect("proc is there");
            tell.send(format!("/proc/{}/ns/net", thread.display())).expect("it is waited for");
            work.into_iter().for_each(|work| work());
        });
        Far { asked, namespace: told.recv().expect("it has begun") }
    }

    /// Runs a closure on the second host and returns its result.
    pub(crate) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = mpsc::channel();
        let work = move || {
            // The receiver is dropped early only if the test has failed.
            let _ = tell.send(work());
        };
        self.asked.send(Box::new(work)).expect("it is there");
        told.recv().expect("it was done")
    }

    /// Starts a program on the second host.
    pub(crate) fn spawn(&self, command: Command) -> Child {
        self.run(|| spawn(command))
    }

    /// Connects both hosts by a veth pair named `wire`. This host gets the address 10.7.0.1, the second host
    /// 10.7.0.2.
    pub(crate) fn wire(&self, mtu: usize) {
        ip(&format!("link add wire mtu {mtu} type veth peer name wire mtu {mtu} netns {}", self.namespace));
        ip("addr add 10.7.0.1/24 dev wire");
        ip("link set wire up");
        self.run(|| {
            ip("addr add 10.7.0.2/24 dev wire");
            ip("link set wire up");
        });
    }
}
