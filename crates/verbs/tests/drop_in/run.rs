//! Starts, waits for and kills the processes of a case.
//!
//! Waiting   a server is ready when it listens on its port; there are no fixed delays.
//! Cleanup   each process leads a process group, which is killed when its [`Running`] is dropped; the kernel
//!           kills the process if the test dies first (setpriv(1), --pdeathsig). Threads read its output and
//!           end with it.

use kiban_base::Instant;
use kiban_os::Clock;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

static CLOCK: LazyLock<Clock> = LazyLock::new(Clock::new);
/// The interval between checks whether a process listens on a port.
const GLANCE: Duration = Duration::from_millis(5);

/// Returns the time `length` from now.
pub(crate) fn after(length: Duration) -> Instant {
    CLOCK.now() + length
}

/// Returns the time left until a deadline.
fn left(deadline: Instant) -> Duration {
    deadline.since(CLOCK.now())
}

/// Returns a free port on the loopback address, below the ephemeral range: the system might assign an
/// ephemeral port to another socket before the server listens.
pub(crate) fn free_port() -> u16 {
    const COUNT: u32 = 8000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let given_away = range.split_whitespace().next().and_then(|first| first.parse().ok());
    let end: u32 = given_away.unwrap_or(32_768).max(COUNT + 1024);
    let mut ports = (0..COUNT).map(|_| {
        let number = std::process::id().wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        (end - 1 - number % COUNT) as u16
    });
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("there are ports")
}

/// Returns whether a socket listens on a TCP port in a process's network namespace (/proc/PID/net/tcp).
fn is_listened_at(process: u32, port: u16) -> bool {
    let listens = |table: &str| {
        let text = std::fs::read_to_string(format!("/proc/{process}/net/{table}")).unwrap_or_default();
        text.lines().skip(1).any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let local = words.next().and_then(|local| local.rsplit(':').next());
            let state = words.nth(1);
            local.and_then(|local| u16::from_str_radix(local, 16).ok()) == Some(port) && state == Some("0A")
        })
    };
    listens("tcp") || listens("tcp6")
}

/// Finds a program as a shell does.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    program.contains('/') && Path::new(program).is_file()
        || std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// It exited with this code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// The process did not end in time and was killed.
    Late,
}

/// A message about a process, from the threads that read its output.
enum ProcessEvent {
    Words(Vec<u8>),
    Ended(End),
}

/// A process.
pub(crate) struct Running {
    process: u32,
    events: Receiver<ProcessEvent>,
    /// The process's output so far, including errors.
    pub(crate) output: String,
    end: Option<End>,
    is_over: bool,
}

/// Forwards whole lines, so that stdout and stderr do not mix within a line.
fn pass_on(from: impl Read + Send + 'static, to: Sender<ProcessEvent>) {
    std::thread::spawn(move || {
        let (mut from, mut line) = (BufReader::new(from), Vec::new());
        while let Ok(1..) = from.read_until(b'\n', &mut line) {
            if to.send(ProcessEvent::Words(std::mem::take(&mut line))).is_err() {
                return;
            }
        }
    });
}

fn await_end(mut child: Child, to: Sender<ProcessEvent>) {
    std::thread::spawn(move || {
        let end = match child.wait() {
            Ok(status) => status.code().map_or_else(|| End::Signal(status.signal().unwrap_or(0)), End::Code),
            Err(_) => End::Late,
        };
        // The receiver may be gone.
        let _ = to.send(ProcessEvent::Ended(end));
    });
}

impl Running {
    /// Starts a command: environment settings (`NAME=value`), a program, its arguments.
    pub(crate) fn start(words: &[String], settings: &[(&str, &str)]) -> Result<Running, String> {
        let is_setting = |word: &&String| {
            word.split_once('=').is_some_and(|(name, _)| {
                name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
            })
        };
        let count = words.iter().take_while(is_setting).count();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).args(&words[count..]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        command.envs(settings.iter().copied());
        command.envs(words[..count].iter().filter_map(|word| word.split_once('=')));
        let mut child = command.spawn().map_err(|error| format!("setpriv (package util-linux): {error}"))?;
        let process = child.id();
        let (sender, events) = channel();
        if let Some(stdout) = child.stdout.take() {
            pass_on(stdout, sender.clone());
        }
        if let Some(stderr) = child.stderr.take() {
            pass_on(stderr, sender.clone());
        }
        await_end(child, sender);
        Ok(Running { process, events, output: String::new(), end: None, is_over: false })
    }

    /// Handles the next event before the deadline. Returns false if no more events can come.
    fn take(&mut self, deadline: Instant) -> bool {
        match self.events.recv_timeout(left(deadline)) {
            Ok(ProcessEvent::Words(bytes)) => self.output += &String::from_utf8_lossy(&bytes),
            Ok(ProcessEvent::Ended(end)) => self.end = Some(end),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return false,
        }
        true
    }

    /// Waits until the process listens on a port.
    pub(crate) fn until_listening(&mut self, port: u16, deadline: Instant) -> Result<(), String> {
        while !is_listened_at(self.process, port) {
            let glance = after(GLANCE);
            self.take(if glance < deadline { glance } else { deadline });
            self.is_there_still(deadline, &format!("listens at port {port}"))?;
        }
        Ok(())
    }

    fn is_there_still(&self, deadline: Instant, what: &str) -> Result<(), String> {
        match self.end {
            Some(end) => Err(format!("{end:?}, and never {what}")),
            None if CLOCK.now() >= deadline => Err(format!("never {what}")),
            None => Ok(()),
        }
    }

    /// Waits until the process ends, or kills it at the deadline. Kills the rest of its group.
    pub(crate) fn end(&mut self, deadline: Instant) -> End {
        while self.end.is_none() && self.take(deadline) && CLOCK.now() < deadline {}
        let end = self.end.unwrap_or(End::Late);
        self.kill();
        // Read the rest of its output.
        let deadline = after(Duration::from_secs(2));
        while CLOCK.now() < deadline && self.take(deadline) {}
        self.end = Some(end);
        end
    }

    fn kill(&mut self) {
        // The process ID may be reused later, so kill only once.
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        if let Ok(group) = i32::try_from(self.process) {
            // SAFETY: kill(2) takes numbers only. The group is that of the process started here.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}
