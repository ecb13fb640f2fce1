//! Runs a program under a fault plan, collects its output, and checks whether it ended in a permitted way.

use kiban_fault::{End, Plan, Traced};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

pub(crate) const KIBAN: &str = env!("CARGO_BIN_EXE_kiban");
/// A timeout that is longer than any step, even on a busy machine; a program that takes longer counts as
/// hung.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A temporary directory, removed at the end of the test.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    pub(crate) fn new(name: &str) -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("kiban-faults-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("there is room for files of a while");
        Place(path)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).expect("there is room for files of a while");
        path
    }

    pub(crate) fn kiban(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(KIBAN);
        command.args(arguments).env("XDG_RUNTIME_DIR", &self.0).current_dir(&self.0);
        command.env_remove("KIBAN_LOG").env_remove("RUST_BACKTRACE").env("KIBAN_FTAM_PASSWORD", "secret");
        command
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Ignore errors: the directory is no longer needed.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns pseudo-random bytes that do not repeat.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}

type Bytes = Arc<Mutex<Vec<u8>>>;

/// A running program.
pub(crate) struct Running {
    pub(crate) traced: Traced,
    out: Bytes,
    err: Bytes,
    readers: Vec<JoinHandle<()>>,
    is_killed_by_plan: bool,
    /// Whether the plan makes one of the program's allocations fail ([`crate::memory`]).
    is_refused: bool,
}

/// How a program ended, and what it printed.
pub(crate) struct Ended {
    pub(crate) end: Option<End>,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
    /// Whether the kernel or the allocator refused memory to the program.
    pub(crate) lacked_memory: bool,
}

impl Running {
    /// Starts a program. Its plan begins immediately (`at_once`) or when it is armed; `input` becomes the
    /// program's standard input.
    pub(crate) fn start(mut command: Command, plan: Plan, at_once: bool, input: &[u8]) -> Running {
        let is_refused = command.get_envs().any(|(name, _)| name == crate::memory::VARIABLE);
        command.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut traced = Traced::spawn(command, plan).expect("a program can be traced: that was tried");
        if at_once {
            traced.arm();
        }
        let (out, err) = (Bytes::default(), Bytes::default());
        let mut readers = Vec::new();
        if let Some(stdout) = traced.stdout.take() {
            readers.push(keep(stdout, out.clone()));
        }
        if let Some(stderr) = traced.stderr.take() {
            readers.push(keep(stderr, err.clone()));
        }
        if let Some(mut stdin) = traced.stdin.take() {
            let input = input.to_vec();
            // The program may exit before it has read all of its input.
            readers.push(std::thread::spawn(move || drop(stdin.write_all(&input))));
        }
        let is_killed_by_plan = matches!(plan, Plan::Kill { .. });
        Running { traced, out, err, readers, is_killed_by_plan, is_refused }
    }

    /// Runs a program without faults.
    pub(crate) fn honest(command: Command, input: &[u8]) -> Running {
        Running::start(command, Plan::Watch, false, input)
    }

    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&self.err.lock().expect("nobody panics")).into_owned()
    }

    pub(crate) fn out(&self) -> Vec<u8> {
        self.out.lock().expect("nobody panics").clone()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        // After SIGKILL, a process may take a moment to disappear.
        let is_killed = self.is_killed_by_plan && self.traced.injections() > 0;
        self.traced.wait(if is_killed { PATIENCE } else { Duration::ZERO }).is_some()
    }

    /// Waits for the program to exit. A program that does not exit within `PATIENCE` is killed.
    pub(crate) fn ended(&mut self) -> Ended {
        let end = self.traced.wait(PATIENCE);
        if end.is_none() && std::env::var_os("KIBAN_SOAK_HOLD").is_some() {
            eprintln!("process {} hangs, and is held for a debugger", self.traced.process);
            self.traced.wait(Duration::from_secs(3600));
        }
        self.traced.kill();
        self.readers.drain(..).for_each(|reader| drop(reader.join()));
        let lacked_memory = self.is_refused || self.traced.memory_refused();
        Ended { end, out: self.out(), err: self.err(), lacked_memory }
    }

    /// Waits until the program exits, or until the board at the other end of its stream exits. In the second
    /// case there is nothing to check, because the program does not notice the board's exit until its own TCP
    /// gives up, minutes later.
    pub(crate) fn ended_beside(&mut self, board: &mut Running) -> Option<Ended> {
        until(|| self.has_ended() || board.has_ended());
        if board.has_ended() && !self.has_ended() {
            self.traced.kill();
            return None;
        }
        Some(self.ended())
    }

    pub(crate) fn signal(&self, signal: &str) {
        let process = self.traced.process.to_string();
        let done = Command::new("kill")
            .args([signal, &process])
            .stderr(Stdio::null())
            .status()
            .expect("kill is there");
        // The process may have exited already.
        let _ = done;
    }

    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.traced.process)).map_or(0, Iterator::count)
    }

    /// Lists the program's descriptors with their targets, for messages.
    pub(crate) fn listed(&self) -> String {
        let entries = std::fs::read_dir(format!("/proc/{}/fd", self.traced.process));
        let mut names: Vec<String> = entries
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| Some(std::fs::read_link(entry.path()).ok()?.display().to_string()))
            .collect();
        names.sort();
        names.join(" ")
    }
}

fn keep(mut from: impl Read + Send + 'static, to: Bytes) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut piece = [0; 1 << 14];
        loop {
            match from.read(&mut piece) {
                Ok(0) => return,
                Ok(count) => to.lock().expect("nobody panics").extend(&piece[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    })
}

impl Ended {
    /// Checks how the program ended: it must not have panicked or hung, and if it failed, it must have
    /// printed a reason.
    pub(crate) fn judge(&self, who: &str) -> Result<(), String> {
        let said = self.err.trim();
        // A process that runs out of memory may abort with one of three messages (docs/security.md): from the
        // global allocator (std::alloc::handle_alloc_error); from std if it cannot allocate the signal stack
        // of a new thread, which happens before any of kiban's code runs in the thread; or from glibc if it
        // cannot register the destructor of a thread-local variable (__cxa_thread_atexit_impl). The caller
        // also checks that confirmed data is complete and that the next process works.
        let count = |word| said.matches(word).count();
        // If a thread has no signal stack, the panic occurs outside the frame that would catch it, so Rust's
        // runtime aborts with its own message, "failed to initiate panic". Accept this message as well,
        // because the messages of several threads may be interleaved.
        let stacks = count("std/src/sys/pal/unix/stack_overflow.rs").max(count("failed to initiate panic"));
        let aborts = ["memory allocation of", "failed to register TLS destructor: out of memory"];
        let ends_for_memory =
            self.lacked_memory && (stacks > 0 || aborts.iter().any(|words| said.contains(words)));
        let excused = if self.lacked_memory { stacks } else { 0 };
        let panics = count("panicked at").saturating_sub(excused);
        let why = if panics > 0 {
            "panicked"
        } else {
            match self.end {
                None => "hangs",
                Some(End::Code(0) | End::Signal(libc_numbers::SIGKILL)) => return Ok(()),
                Some(End::Signal(libc_numbers::SIGABRT)) if ends_for_memory => return Ok(()),
                Some(End::Signal(_)) => "died",
                Some(End::Code(101)) => "panicked",
                Some(End::Code(_)) if said.is_empty() && self.out.is_empty() => "ended without a reason",
                Some(End::Code(_)) => return Ok(()),
            }
        };
        Err(format!("{who} {why} ({:?}): {said}", self.end))
    }

    pub(crate) fn is_well(&self) -> bool {
        self.end == Some(End::Code(0))
    }
}

mod libc_numbers {
    pub(super) const SIGABRT: i32 = 6;
    pub(super) const SIGKILL: i32 = 9;
}

/// Polls a condition; returns whether it became true before the timeout.
pub(crate) fn until(mut is_so: impl FnMut() -> bool) -> bool {
    let clock = kiban_os::Clock::new();
    let end = clock.now() + PATIENCE;
    while !is_so() {
        if clock.now() >= end {
            return false;
        }
        glance();
    }
    true
}

/// Sleeps briefly between two polls of a condition that has no notification.
pub(crate) fn glance() {
    let (_keep, never) = std::sync::mpsc::channel::<()>();
    let _ = never.recv_timeout(Duration::from_millis(2));
}

/// Compiles a C program from this directory.
pub(crate) fn compile(source: &str, to: &Path, flags: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    let output = cc.arg(source).args(["-O2", "-Wall", "-Wextra", "-o"]).arg(to).args(flags).output();
    let output = output.expect("there is a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_process_may_abort_for_lack_of_memory_and_not_otherwise() {
    // The messages of two threads without signal stacks, interleaved by the kernel.
    let stacks = "thread 'kiban-vi' (2) panicked at /rustc/library/std/src/sys/pal/unix/\nthread 'a' (3) panicked at \
        stack_overflow.rs:236:13:\nfailed to allocate an alternative stack: Cannot allocate memory (os error 12)\n\
        fatal runtime error: failed to initiate panic, error fatal runtime error: failed to initiate panic, error 5";
    let own = "thread 'main' (1) panicked at crates/lab/src/vi.rs:9:1:\nfailed to spawn thread";
    for (err, signal, lacked_memory, may) in [
        ("memory allocation of 16 bytes failed", 6, true, true),
        ("memory allocation of 16 bytes failed", 6, false, false),
        ("memory allocation of 16 bytes failed", 11, true, false),
        (stacks, 6, true, true),
        (stacks, 6, false, false),
        (own, 6, true, false),
        ("", 6, true, false),
    ] {
        let ended = Ended { end: Some(End::Signal(signal)), out: Vec::new(), err: err.into(), lacked_memory };
        assert_eq!(ended.judge("it").is_ok(), may, "{err}, signal {signal}, {lacked_memory}");
    }
}
