//! The tracer: a thread that starts a program, stops its system calls, and injects faults as planned.
//!
//! State            the tracer keeps the number of intercepted calls, the stalled threads, and whether each
//!                  process's dynamic linker has finished (the linker's own calls do not belong to kiban).
//! Stalls           a stall is measured in intercepted calls of other threads. If no call has been
//!                  intercepted for [`IDLE`], no other thread will release the stalled one, so it continues.
//! Limits           ptrace(2) works only from the thread that started the tracing, so each traced program has
//!                  its own tracer thread in this process.

use crate::calls::{CALLS, Call, Family, File, Injection, find};
use crate::plan::{Plan, mix};
use nix::sys::pthread::{Pthread, pthread_kill, pthread_self};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, PidfdGetfdFlags};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// If no call has been intercepted for this time, stalled threads continue.
const IDLE: Duration = Duration::from_millis(20);
/// Maximum number of faults that are recorded.
const NOTES_MAX: usize = 200;
/// Maximum number of parts that are inspected in an I/O vector.
const PARTS_MAX: u64 = 64;

/// How a program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The program exited with this status.
    Code(i32),
    /// The program was killed by this signal.
    Signal(i32),
}

/// A program that runs under a plan; it is killed when this value is dropped.
#[derive(Debug)]
pub struct Traced {
    /// Its process ID.
    pub process: u32,
    /// The program's standard input, if it is piped.
    pub stdin: Option<ChildStdin>,
    /// The program's standard output, if it is piped.
    pub stdout: Option<ChildStdout>,
    /// The program's standard error, if it is piped.
    pub stderr: Option<ChildStderr>,
    shared: Arc<Shared>,
    ended: Receiver<End>,
    end: Option<End>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    is_armed: AtomicBool,
    calls: AtomicU64,
    stops: AtomicU64,
    injections: AtomicU64,
    memory_refused: AtomicBool,
    stalled: AtomicUsize,
    notes: Mutex<Vec<String>>,
    processes: Mutex<HashSet<i32>>,
}

struct Started {
    process: u32,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
}

/// Checks whether programs can be traced on this system; the error gives the reason.
pub fn available() -> Result<(), String> {
    let mut traced = Traced::spawn(Command::new("true"), Plan::Watch).map_err(|error| {
        format!("cannot trace programs: {error} (needs ptrace and seccomp filters; in a container, CAP_SYS_PTRACE)")
    })?;
    traced.arm();
    match traced.wait(Duration::from_secs(60)) {
        Some(End::Code(0)) if traced.stops() > 0 => Ok(()),
        end => Err(format!("traced programs do not stop at system calls ({end:?})")),
    }
}

impl Traced {
    /// Starts a program. The plan takes effect, and calls are counted, once it is armed.
    ///
    /// # Errors
    /// If the program could not be started or traced.
    pub fn spawn(command: Command, plan: Plan) -> io::Result<Traced> {
        let shared = Arc::new(Shared::default());
        let (tell_started, started) = mpsc::channel();
        let (tell_end, ended) = mpsc::channel();
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name("tracer".into()).spawn(move || {
            let shared = of_thread;
            let begun = start(command);
            let process = begun.as_ref().ok().map(|begun| begun.process);
            let is_heard = tell_started.send(begun).is_ok();
            if let Some(process) = process.filter(|_| is_heard) {
                let root = process as i32;
                let told = |end| tell_end.send(end).unwrap_or_default();
                Tracer::new(root, plan, shared).run(told);
            }
        })?;
        let begun: io::Result<Started> = started.recv().map_err(io::Error::other)?;
        let Started { process, stdin, stdout, stderr } = begun?;
        shared.processes.lock().unwrap_or_else(PoisonError::into_inner).insert(process as i32);
        Ok(Traced { process, stdin, stdout, stderr, shared, ended, end: None, thread: Some(thread) })
    }

    /// Starts a program with its plan armed from the start: the first call after those of the dynamic linker
    /// has number 0.
    ///
    /// # Errors
    /// Same as for [`Traced::spawn`].
    pub fn spawn_armed(command: Command, plan: Plan) -> io::Result<Traced> {
        // It does not matter whether the dynamic linker has finished, because its calls are never counted.
        let traced = Traced::spawn(command, plan)?;
        traced.arm();
        Ok(traced)
    }

    /// Starts the plan: the next call is number 0.
    pub fn arm(&self) {
        self.shared.is_armed.store(true, Ordering::SeqCst);
    }

    /// Stops injecting faults.
    pub fn disarm(&self) {
        self.shared.is_armed.store(false, Ordering::SeqCst);
    }

    /// Returns how many calls the plan has seen.
    pub fn calls(&self) -> u64 {
        self.shared.calls.load(Ordering::SeqCst)
    }

    /// Returns how many calls have been intercepted, including those before the plan was armed.
    pub fn stops(&self) -> u64 {
        self.shared.stops.load(Ordering::SeqCst)
    }

    /// Returns how many faults were injected.
    pub fn injections(&self) -> u64 {
        self.shared.injections.load(Ordering::SeqCst)
    }

    /// Returns whether a call that maps or changes memory has failed.
    pub fn memory_refused(&self) -> bool {
        self.shared.memory_refused.load(Ordering::SeqCst)
    }

    /// Returns the injected faults, at most the first two hundred.
    pub fn notes(&self) -> Vec<String> {
        self.shared.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the program ends, for at most `patience`.
    pub fn wait(&mut self, patience: Duration) -> Option<End> {
        if self.end.is_none() {
            self.end = self.ended.recv_timeout(patience).ok();
        }
        self.end
    }

    /// Kills the program and its children (SIGKILL).
    pub fn kill(&self) {
        for process in self.shared.processes.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            // The process may have exited already.
            let _ = nix::sys::signal::kill(Pid::from_raw(*process), Signal::SIGKILL);
        }
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        self.kill();
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the message was printed then.
            let _ = thread.join();
        }
    }
}

fn start(mut command: Command) -> io::Result<Started> {
    let filter = filter();
    // SAFETY: between fork and exec the closure only makes three system calls; it allocates nothing and takes
    // no lock, and owns the filter that the second and third read.
    unsafe {
        command.pre_exec(move || {
            ptrace::traceme()?;
            install(&filter)
        });
    }
    let mut child = command.spawn()?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    // The tracer waits for the process, not this handle.
    Ok(Started { process: child.id(), stdin, stdout, stderr })
}

/// Returns a seccomp filter that stops the program at the calls in the table, and at the call that indicates
/// that the dynamic linker has finished.
fn filter() -> Vec<libc::sock_filter> {
    // AUDIT_ARCH_X86_64. The offsets are those in seccomp_data.
    const ARCHITECTURE: u32 = 0xC000_003E;
    let load = |at| code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, 0, 0);
    let equals =
        |value, to, past| code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, to as u8, past as u8);
    let give = |value| code(libc::BPF_RET | libc::BPF_K, value, 0, 0);
    let numbers: Vec<u32> =
        CALLS.iter().map(|call| call.0 as u32).chain([libc::SYS_prlimit64 as u32]).collect();
    let mut filter = vec![load(4), equals(ARCHITECTURE, 0, numbers.len() + 1), load(0)];
    for (at, number) in numbers.iter().enumerate() {
        // Jumps over the remaining checks and the allow instruction.
        filter.push(equals(*number, numbers.len() - at, 0));
    }
    filter.extend([give(libc::SECCOMP_RET_ALLOW), give(libc::SECCOMP_RET_TRACE)]);
    filter
}

fn code(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

fn install(filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: this prctl option takes only integers.
    let refused = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0
        // SAFETY: the program and its filter live until the call returns; the kernel copies them.
        || unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) } != 0;
    if refused { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A word of the program's memory that is changed during a call: its address, and its original value.
type Restore = (u64, u64);

struct Tracer {
    root: i32,
    plan: Plan,
    shared: Arc<Shared>,
    is_ready: bool,
    /// The process of each thread, by thread ID.
    threads: HashMap<i32, i32>,
    /// Processes whose dynamic linker has finished.
    loaded: HashSet<i32>,
    /// For each thread, the state to be restored after its call: words of memory, and the argument registers,
    /// which a system call preserves.
    restores: HashMap<i32, (Vec<Restore>, [u64; 6])>,
    /// The stalled threads, each with the number of the call that releases it.
    stalled: Vec<(i32, u64)>,
    is_done: bool,
}

impl Tracer {
    fn new(root: i32, plan: Plan, shared: Arc<Shared>) -> Tracer {
        Tracer {
            root,
            plan,
            shared,
            is_ready: false,
            threads: HashMap::from([(root, root)]),
            loaded: HashSet::new(),
            restores: HashMap::new(),
            stalled: Vec::new(),
            is_done: false,
        }
    }

    fn run(mut self, told: impl Fn(End)) {
        let ticks = Ticks::begin(self.shared.clone());
        let mut stops_seen = u64::MAX;
        loop {
            let stops = self.shared.stops.load(Ordering::SeqCst);
            self.release(stops);
            let mut status = 0;
            // SAFETY: the status is a local variable that outlives the call.
            let thread = unsafe { libc::waitpid(-1, &mut status, libc::__WALL | libc::__WNOTHREAD) };
            if thread < 0 {
                match io::Error::last_os_error().raw_os_error() {
                    Some(libc::EINTR) => {
                        if stops == stops_seen {
                            self.release(u64::MAX);
                        }
                        stops_seen = stops;
                        continue;
                    }
                    // No traced child or thread is left.
                    _ => break,
                }
            }
            if libc::WIFSTOPPED(status) {
                self.on_stop(thread, libc::WSTOPSIG(status), status >> 16);
                continue;
            }
            self.threads.remove(&thread);
            self.lock_processes(|processes| processes.remove(&thread));
            if thread == self.root {
                let end = match libc::WIFEXITED(status) {
                    true => End::Code(libc::WEXITSTATUS(status)),
                    false => End::Signal(libc::WTERMSIG(status)),
                };
                told(end);
            }
        }
        drop(ticks);
    }

    fn lock_processes(&self, change: impl FnOnce(&mut HashSet<i32>) -> bool) {
        change(&mut self.shared.processes.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn release(&mut self, stops: u64) {
        let due: Vec<i32> =
            self.stalled.iter().filter(|stalled| stalled.1 <= stops).map(|stalled| stalled.0).collect();
        self.stalled.retain(|stalled| stalled.1 > stops);
        self.shared.stalled.store(self.stalled.len(), Ordering::SeqCst);
        for thread in due {
            resume(thread, libc::PTRACE_CONT, 0);
        }
    }

    fn on_stop(&mut self, thread: i32, signal: i32, event: i32) {
        let is_new = !self.threads.contains_key(&thread);
        if is_new {
            let process = process_of(thread);
            self.threads.insert(thread, process);
            self.lock_processes(|processes| processes.insert(process));
            // After fork, the dynamic linker of the child has finished if the parent's had.
            if process == thread {
                self.loaded.insert(process);
            }
        }
        match (signal, event) {
            (libc::SIGTRAP, libc::PTRACE_EVENT_SECCOMP) => return self.on_call(thread),
            (libc::SIGTRAP, libc::PTRACE_EVENT_EXEC) => {
                // Whichever thread called execve, the process continues in its first thread.
                self.loaded.remove(&thread);
                self.restores.remove(&thread);
            }
            (libc::SIGTRAP, 0) if !self.is_ready => {
                let options = Options::PTRACE_O_EXITKILL
                    | Options::PTRACE_O_TRACESECCOMP
                    | Options::PTRACE_O_TRACECLONE
                    | Options::PTRACE_O_TRACEFORK
                    | Options::PTRACE_O_TRACEVFORK
                    | Options::PTRACE_O_TRACEEXEC
                    | Options::PTRACE_O_TRACESYSGOOD;
                ptrace::setoptions(Pid::from_raw(thread), options).expect("it has just stopped at exec");
                self.is_ready = true;
            }
            (stop, _) if stop == libc::SIGTRAP | 0x80 => {
                if let Some((words, arguments)) = self.restores.remove(&thread) {
                    words.into_iter().for_each(|(at, word)| poke(thread, at, word));
                    if let Ok(mut registers) = ptrace::getregs(Pid::from_raw(thread)) {
                        (registers.rdi, registers.rdx) = (arguments[0], arguments[2]);
                        let _ = ptrace::setregs(Pid::from_raw(thread), registers);
                    }
                }
            }
            (libc::SIGTRAP, 1..) => {}
            (libc::SIGSTOP, _) if is_new => {}
            (signal, _) => return resume(thread, libc::PTRACE_CONT, signal),
        }
        resume(thread, libc::PTRACE_CONT, 0);
    }

    fn on_call(&mut self, thread: i32) {
        self.shared.stops.fetch_add(1, Ordering::SeqCst);
        let request = self.meddle(thread);
        if let Some(request) = request {
            resume(thread, request, 0);
        }
    }

    /// Applies the plan to a call. Returns how its thread should proceed, or `None` if the call is delayed.
    fn meddle(&mut self, thread: i32) -> Option<u32> {
        let go_on = Some(libc::PTRACE_CONT);
        let pid = Pid::from_raw(thread);
        // The thread may have been killed in the meantime. In that case, it has no registers.
        let Ok(mut registers) = ptrace::getregs(pid) else { return go_on };
        let number = registers.orig_rax as libc::c_long;
        let process = self.threads.get(&thread).copied().unwrap_or(thread);
        if number == libc::SYS_prlimit64 {
            // glibc's dynamic linker reads the stack limit when it has loaded all libraries.
            self.loaded.insert(process);
            return go_on;
        }
        if !self.shared.is_armed.load(Ordering::SeqCst) || !self.loaded.contains(&process) {
            return go_on;
        }
        let index = self.shared.calls.fetch_add(1, Ordering::SeqCst);
        if self.is_done || !self.plan.concerns(index) {
            return go_on;
        }
        let Some((name, family)) = find(number) else { return go_on };
        let arguments =
            [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9];
        let seen = Seen { process, thread, number, family, arguments };
        let call = seen.call();
        let Some(injection) = self.plan.decide(index, &call) else { return go_on };
        self.is_done = self.plan.is_single();
        self.note(format!(
            "call {index}: {name}({}) in thread {thread}, {:?}: {injection:?}",
            arguments[0] as i32, call.file
        ));
        if family == Family::Memory && matches!(injection, Injection::Errno(_)) {
            self.shared.memory_refused.store(true, Ordering::SeqCst);
        }
        match injection {
            Injection::Errno(_) if number == libc::SYS_brk => {
                // brk returns no error. On failure it returns the current end of the heap, as it does for 0.
                registers.rdi = 0;
                let _ = ptrace::setregs(pid, registers);
                self.restores.insert(thread, (Vec::new(), arguments));
                return Some(libc::PTRACE_SYSCALL);
            }
            Injection::Errno(error) => {
                registers.orig_rax = u64::MAX;
                registers.rax = i64::from(-error) as u64;
                let _ = ptrace::setregs(pid, registers);
            }
            Injection::Short => {
                let bytes = 1 + mix(index, call.bytes) % (call.bytes - 1);
                let (words, third) = match seen.has_length() {
                    true => (Vec::new(), Some(bytes)),
                    false => seen.shorten(bytes),
                };
                if let Some(third) = third {
                    registers.rdx = third;
                    let _ = ptrace::setregs(pid, registers);
                }
                self.restores.insert(thread, (words, arguments));
                return Some(libc::PTRACE_SYSCALL);
            }
            Injection::Stall(stops) => {
                let until = self.shared.stops.load(Ordering::SeqCst) + u64::from(stops);
                self.stalled.push((thread, until));
                self.shared.stalled.store(self.stalled.len(), Ordering::SeqCst);
                return None;
            }
            Injection::Kill => {
                let _ = nix::sys::signal::kill(Pid::from_raw(process), Signal::SIGKILL);
                return None;
            }
        }
        go_on
    }

    fn note(&self, note: String) {
        self.shared.injections.fetch_add(1, Ordering::SeqCst);
        let mut notes = self.shared.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() < NOTES_MAX {
            notes.push(note);
        }
    }
}

/// Resumes a stopped thread, which may have been killed in the meantime.
fn resume(thread: i32, request: u32, signal: i32) {
    let none: *mut libc::c_void = std::ptr::null_mut();
    // SAFETY: the request reads no memory; the fourth argument is a signal's number.
    unsafe { libc::ptrace(request, thread, none, i64::from(signal)) };
}

fn peek(thread: i32, at: u64) -> u64 {
    ptrace::read(Pid::from_raw(thread), at as *mut libc::c_void).map_or(0, |word| word as u64)
}

fn poke(thread: i32, at: u64, word: u64) {
    let _ = ptrace::write(Pid::from_raw(thread), at as *mut libc::c_void, word as i64);
}

/// Returns the process of a thread.
fn process_of(thread: i32) -> i32 {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(thread)
}

/// A system call, as read from the registers.
struct Seen {
    process: i32,
    thread: i32,
    number: libc::c_long,
    family: Family,
    arguments: [u64; 6],
}

impl Seen {
    fn call(&self) -> Call {
        let has_file = matches!(
            self.family,
            Family::Read
                | Family::Write
                | Family::Receive
                | Family::Send
                | Family::Accept
                | Family::Sync
                | Family::Size
        );
        let file = if has_file { self.file() } else { File::Other };
        let flags_of_call = match self.number {
            libc::SYS_recvfrom | libc::SYS_sendto | libc::SYS_recvmmsg | libc::SYS_sendmmsg => {
                self.arguments[3]
            }
            libc::SYS_recvmsg | libc::SYS_sendmsg => self.arguments[2],
            _ => 0,
        };
        let never_waits = has_file
            && (flags_of_call & libc::MSG_DONTWAIT as u64 != 0
                || self.flags() & u64::from(libc::O_NONBLOCK as u32) != 0);
        let by_edges = never_waits && self.is_watched_by_edges();
        let bytes = if has_file { self.bytes() } else { 0 };
        let Seen { number, family, arguments, .. } = *self;
        Call { number, family, arguments, file, never_waits, by_edges, bytes }
    }

    fn file(&self) -> File {
        let link = std::fs::read_link(format!("/proc/{}/fd/{}", self.process, self.arguments[0] as i32));
        let link = link.unwrap_or_default();
        let name = link.to_string_lossy();
        if name.starts_with("socket:") {
            self.socket().unwrap_or(File::Other)
        } else if name.starts_with("pipe:") {
            File::Pipe
        } else if name.starts_with('/') && !name.starts_with("/dev/") {
            File::Regular
        } else {
            File::Other
        }
    }

    fn socket(&self) -> Option<File> {
        let process = rustix::process::Pid::from_raw(self.process)?;
        let process = rustix::process::pidfd_open(process, PidfdFlags::empty()).ok()?;
        let descriptor = self.arguments[0] as i32;
        let socket = rustix::process::pidfd_getfd(process, descriptor, PidfdGetfdFlags::empty()).ok()?;
        let is_stream = rustix::net::sockopt::socket_type(&socket).ok()? == rustix::net::SocketType::STREAM;
        Some(if is_stream { File::Stream } else { File::Message })
    }

    fn flags(&self) -> u64 {
        let path = format!("/proc/{}/fdinfo/{}", self.process, self.arguments[0] as i32);
        let info = std::fs::read_to_string(path).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        flags.and_then(|octal| u64::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0)
    }

    /// Returns whether an epoll set of the process watches the descriptor with EPOLLET (proc(5), fdinfo).
    fn is_watched_by_edges(&self) -> bool {
        const EPOLLET: u64 = 1 << 31;
        let folder = format!("/proc/{}/fd", self.process);
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .filter(|entry| {
                std::fs::read_link(entry.path())
                    .is_ok_and(|link| link.to_string_lossy().contains("eventpoll"))
            })
            .any(|entry| {
                let path = format!("/proc/{}/fdinfo/{}", self.process, entry.file_name().to_string_lossy());
                std::fs::read_to_string(path).unwrap_or_default().lines().any(|line| {
                    let mut words = line.split_whitespace();
                    words.next() == Some("tfd:")
                        && words.next().and_then(|word| word.parse().ok()) == Some(self.arguments[0] as i32)
                        && words
                            .nth(1)
                            .and_then(|word| u64::from_str_radix(word, 16).ok())
                            .is_some_and(|events| events & EPOLLET != 0)
                })
            })
    }

    /// Returns whether the third argument is a length in bytes.
    fn has_length(&self) -> bool {
        matches!(
            self.number,
            libc::SYS_read
                | libc::SYS_write
                | libc::SYS_pread64
                | libc::SYS_pwrite64
                | libc::SYS_recvfrom
                | libc::SYS_sendto
        )
    }

    /// Returns the address of a call's vector, and its number of parts.
    fn vector(&self) -> Option<(u64, u64)> {
        match self.number {
            libc::SYS_readv | libc::SYS_writev | libc::SYS_preadv | libc::SYS_pwritev => {
                Some((self.arguments[1], self.arguments[2]))
            }
            // Read msg_iov and msg_iovlen of a msghdr.
            libc::SYS_recvmsg | libc::SYS_sendmsg => {
                let header = self.arguments[1];
                Some((peek(self.thread, header + 16), peek(self.thread, header + 24)))
            }
            _ => None,
        }
    }

    fn bytes(&self) -> u64 {
        match self.vector() {
            _ if self.has_length() => self.arguments[2],
            Some((at, count)) => {
                (0..count.min(PARTS_MAX)).map(|part| peek(self.thread, at + part * 16 + 8)).sum()
            }
            None => 0,
        }
    }

    /// Shortens a vector to `bytes` bytes. Returns the words to restore later, and the number of parts left
    /// if a register holds that number.
    fn shorten(&self, bytes: u64) -> (Vec<Restore>, Option<u64>) {
        let Some((at, count)) = self.vector() else { return (Vec::new(), None) };
        let (mut left, mut restores) = (bytes, Vec::new());
        let mut parts = count.min(PARTS_MAX);
        for part in 0..parts {
            let place = at + part * 16 + 8;
            let length = peek(self.thread, place);
            if length >= left {
                restores.push((place, length));
                poke(self.thread, place, left);
                parts = part + 1;
                break;
            }
            left -= length;
        }
        if matches!(self.number, libc::SYS_recvmsg | libc::SYS_sendmsg) {
            let place = self.arguments[1] + 24;
            restores.push((place, count));
            poke(self.thread, place, parts);
            return (restores, None);
        }
        (restores, Some(parts))
    }
}

/// Interrupts the tracer's waitpid(2) regularly while a thread is stalled.
struct Ticks {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticks {
    fn begin(shared: Arc<Shared>) -> Ticks {
        static HANDLER: Once = Once::new();
        extern "C" fn nothing(_: i32) {}
        HANDLER.call_once(|| {
            let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::empty(), SigSet::empty());
            // SAFETY: the handler is empty, so it is async-signal-safe; no other code in the test process
            // uses this signal.
            unsafe { sigaction(Signal::SIGUSR2, &action) }.expect("the signal can be caught");
        });
        let tracer: Pthread = pthread_self();
        let (stop, stopped) = mpsc::channel::<()>();
        let tick = move || {
            while stopped.recv_timeout(IDLE) == Err(RecvTimeoutError::Timeout) {
                if shared.stalled.load(Ordering::SeqCst) > 0 {
                    // The tracer joins this thread before it ends, so the thread ID is valid.
                    let _ = pthread_kill(tracer, Signal::SIGUSR2);
                }
            }
        };
        let thread = std::thread::Builder::new().name("ticks".into()).spawn(tick);
        Ticks { stop: Some(stop), thread: thread.ok() }
    }
}

impl Drop for Ticks {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
