//! Restricts every thread, because capabilities, no_new_privs and Landlock rules apply per thread.
//!
//! Method           every thread except the caller receives a signal. The signal handler makes the system
//!                  calls for that thread, as in libc's implementation of setuid(2).
//! Race             a restricted thread can create only restricted threads. So the search for threads ends
//!                  when it finds no unrestricted thread: after that, new threads can be created only by
//!                  restricted threads, or by the caller, which is restricted last.
//! Limits           if a thread blocks the signal for [`PATIENCE`], the operation fails.

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, futex};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

/// How long to wait for one thread.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval between checks whether the thread has exited instead of responding.
const LOOK: Duration = Duration::from_millis(50);

/// The restrictions that each thread applies.
pub(super) struct Job {
    pub(super) kept: CapabilitySet,
    /// The caller's capability sets.
    pub(super) sets: CapabilitySets,
    /// The Landlock rules. `None` if the system has no Landlock.
    pub(super) ruleset: Option<OwnedFd>,
}

/// The restrictions that the signal handlers apply; set once per process.
static JOB: OnceLock<Job> = OnceLock::new();
/// The number of threads that have run the handler.
static DONE: AtomicU32 = AtomicU32::new(0);
/// The errno of a thread that failed. It is 0 if no thread failed.
static FAILED: AtomicI32 = AtomicI32::new(0);

impl Job {
    /// Applies the restrictions to the calling thread. The function runs in signal handlers, so it makes only
    /// system calls.
    fn apply(&self) -> Result<(), Errno> {
        if self.sets.effective.contains(CapabilitySet::SETPCAP) {
            for capability in CapabilitySet::all().iter().filter(|its| !self.kept.contains(*its)) {
                match rustix::thread::remove_capability_from_bounding_set(capability) {
                    // EINVAL: this kernel does not support the capability.
                    Ok(()) | Err(Errno::INVAL) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        rustix::thread::clear_ambient_capability_set()?;
        let effective = self.sets.effective & self.kept;
        let inheritable = CapabilitySet::empty();
        let sets = CapabilitySets { effective, permitted: self.kept, inheritable };
        match rustix::thread::set_capabilities(None, sets) {
            // Dropping capabilities is always allowed, unless an inherited filter refuses the call. In that
            // case, the capabilities remain, and are reported as kept.
            Ok(()) | Err(Errno::PERM) => {}
            Err(error) => return Err(error),
        }
        rustix::thread::set_no_new_privs(true)?;
        let Some(ruleset) = &self.ruleset else { return Ok(()) };
        // SAFETY: the call takes two numbers and accesses no memory.
        match unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) } {
            0 => Ok(()),
            _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
        }
    }
}

/// Signal handler: restricts the thread that it interrupts.
extern "C" fn on_signal(_: libc::c_int) {
    // SAFETY: the pointer to this thread's errno is valid as long as the thread. The interrupted code may
    // still read errno, so the handler restores it below.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: `errno` points to this thread's errno.
    let before = unsafe { *errno };
    if let Some(Err(error)) = JOB.get().map(Job::apply) {
        FAILED.store(error.raw_os_error(), Ordering::Release);
    }
    DONE.fetch_add(1, Ordering::Release);
    // A lost wake-up only delays the waiting thread, because it also polls.
    let _ = futex::wake(&DONE, futex::Flags::PRIVATE, 1);
    // SAFETY: `errno` points to this thread's errno.
    unsafe { *errno = before };
}

/// Restricts every thread of this process, the caller last.
pub(super) fn restrict_all(job: Job) -> io::Result<()> {
    JOB.set(job).map_err(|_| io::Error::other("this process is already in a sandbox"))?;
    let signal = libc::SIGRTMIN() + 7;
    handle(signal, on_signal as *const () as libc::sighandler_t)?;
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    let mut done = BTreeSet::from([own]);
    loop {
        let found: Vec<i32> = tasks()?.into_iter().filter(|thread| !done.contains(thread)).collect();
        if found.is_empty() {
            break;
        }
        for thread in found {
            restrict(thread, signal)?;
            done.insert(thread);
        }
    }
    handle(signal, libc::SIG_IGN)?;
    let job = JOB.get().expect("it was set above");
    job.apply()?;
    Ok(())
}

/// Makes one thread restrict itself.
fn restrict(thread: i32, signal: libc::c_int) -> io::Result<()> {
    let before = DONE.load(Ordering::Acquire);
    // SAFETY: the call takes three numbers; the signal's handler is ours.
    if unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) } != 0 {
        let error = io::Error::last_os_error();
        // ESRCH: the thread has exited.
        return if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) };
    }
    let look = futex::Timespec { tv_sec: 0, tv_nsec: LOOK.as_nanos() as _ };
    let mut looks = PATIENCE.as_millis() / LOOK.as_millis();
    while DONE.load(Ordering::Acquire) == before {
        match futex::wait(&DONE, futex::Flags::PRIVATE, before, Some(&look)) {
            Err(Errno::TIMEDOUT) if !tasks()?.contains(&thread) => return Ok(()),
            Err(Errno::TIMEDOUT) if looks == 0 => {
                let name = std::fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
                let name = name.unwrap_or_default();
                return Err(io::Error::other(format!(
                    "thread {} blocks the signal that restricts it",
                    name.trim_end()
                )));
            }
            Err(Errno::TIMEDOUT) => looks -= 1,
            _ => {}
        }
    }
    match FAILED.load(Ordering::Acquire) {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Returns the threads of this process.
fn tasks() -> io::Result<Vec<i32>> {
    let entries = std::fs::read_dir("/proc/self/task")?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

fn handle(signal: libc::c_int, handler: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: an all-zero `sigaction` is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler is a function that makes system calls only, or SIG_IGN.
    match unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
