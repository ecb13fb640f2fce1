//! Faults in copies of host memory (SIGSEGV, SIGBUS): the copy fails instead of the process.
//!
//! Purpose      registered memory may have been unmapped, or the file behind it truncated. A copy from or to
//!              it must then fail ([`kiban_base::recovery`]).
//! Method       a handler for both signals resumes a faulting copy at its error exit. It forwards all other
//!              signals to the program's own action, with the signal mask and flags that the kernel would
//!              have used.
//! Later        Java, Go and Python's faulthandler install their own handlers later, which would replace this
//!   handlers   one. `libkiban_paths.so`, which `kiban verbs` preloads, therefore redirects the program's
//!              calls of sigaction(2) and signal(2) for these signals to `on_sigaction`, which stores the new
//!              action and keeps the handler installed.
//! Signal       handlers may call sigaction(2), and a fault can occur at any time. So the stored actions are
//!   safety     atomics behind a sequence lock: writers first block all signals, and readers retry.
//! Limits       a fault on a thread that has blocked these signals ends the process (the kernel does that). A
//!              program that is not started by `kiban verbs`, or that makes the system call directly, can
//!              replace the handler. A copy that faults always fails: a handler of the program that would map
//!              the page is not called.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// The signals.
const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// The program's action for a signal.
#[derive(Clone, Copy)]
struct Action {
    handler: usize,
    flags: c_int,
    /// The signals that are blocked while the handler runs: bit 0 is signal 1.
    mask: u64,
}

/// An action that signal handlers can read and write.
struct Slot {
    /// Odd while a writer changes the slot.
    sequence: AtomicU32,
    handler: AtomicUsize,
    flags: AtomicI32,
    mask: AtomicU64,
}

static ACTIONS: [Slot; 2] = [const { Slot::new() }; 2];
/// The process that has installed the handler; 0 if none has. A child process inherits the handler, but its
/// calls of sigaction(2) go to the kernel, because it may share this memory with its parent (vfork(2)).
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Returns whether this process has installed the handler. In a child, the thread that was changing a slot
/// when the process forked does not exist, so nobody may wait for it.
fn is_owner() -> bool {
    // getpid(2), because a child of vfork(2) has its own actions but its parent's memory.
    // SAFETY: the call has no arguments.
    OWNER.load(Ordering::Acquire) == unsafe { libc::getpid() }
}

impl Slot {
    const fn new() -> Slot {
        Slot {
            sequence: AtomicU32::new(0),
            handler: AtomicUsize::new(libc::SIG_DFL),
            flags: AtomicI32::new(0),
            mask: AtomicU64::new(0),
        }
    }

    fn load(&self) -> Action {
        loop {
            let before = self.sequence.load(Ordering::Acquire);
            let action = Action {
                handler: self.handler.load(Ordering::Relaxed),
                flags: self.flags.load(Ordering::Relaxed),
                mask: self.mask.load(Ordering::Relaxed),
            };
            fence(Ordering::Acquire);
            let is_whole = before & 1 == 0 && self.sequence.load(Ordering::Relaxed) == before;
            if is_whole || !is_owner() {
                return action;
            }
            std::hint::spin_loop();
        }
    }

    /// Replaces the action. The caller has blocked the thread's signals: otherwise, a handler could wait for
    /// the writer that it has interrupted.
    fn store(&self, action: Action) {
        let locked = loop {
            let now = self.sequence.load(Ordering::Relaxed);
            let before = if is_owner() { now & !1 } else { now };
            let taken =
                self.sequence.compare_exchange_weak(before, before | 1, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                break before | 1;
            }
            std::hint::spin_loop();
        };
        fence(Ordering::Release);
        self.handler.store(action.handler, Ordering::Relaxed);
        self.flags.store(action.flags, Ordering::Relaxed);
        self.mask.store(action.mask, Ordering::Relaxed);
        self.sequence.store(locked.wrapping_add(1), Ordering::Release);
    }
}

/// Runs `work` with all of this thread's signals blocked. (`with_signals_blocked` does not block these two.)
fn without_signals(work: impl FnOnce()) {
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: both are valid signal sets; `before` is written by the first call.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, &set(u64::MAX), before.as_mut_ptr());
        work();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut());
    }
}

/// Returns the action of one of the two signals.
fn slot(signal: c_int) -> Option<&'static Slot> {
    SIGNALS.iter().position(|of| *of == signal).map(|at| &ACTIONS[at])
}

/// Converts a set to the signals 1 to 64.
fn bits(set: &libc::sigset_t) -> u64 {
    // SAFETY: the set is initialised; sigismember(3) accepts these numbers.
    let has = |signal: &c_int| unsafe { libc::sigismember(set, *signal) } == 1;
    (1..=64).filter(has).fold(0, |bits, signal| bits | 1 << (signal - 1))
}

/// Converts the signals 1 to 64 to a set.
fn set(bits: u64) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the first call initialises the set; sigaddset(3) accepts these numbers.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        // glibc keeps 32 and 33 for itself: sigaddset(3) rejects them, and sets errno.
        for signal in (1..=64).filter(|n| bits & 1 << (n - 1) != 0 && !(32..=33).contains(n)) {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

impl Action {
    fn of(action: &libc::sigaction) -> Action {
        Action { handler: action.sa_sigaction, flags: action.sa_flags, mask: bits(&action.sa_mask) }
    }

    fn to_c(self) -> libc::sigaction {
        // SAFETY: sigaction is a C struct of integers and pointers, for which all zeros is a valid value.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        (action.sa_sigaction, action.sa_flags, action.sa_mask) = (self.handler, self.flags, set(self.mask));
        action
    }
}

/// The type of `on_sigaction`, and of sigaction(2).
pub type Sigaction = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;

/// Installs the handler in this process, unless it is already installed.
///
/// `redirect` is called once in each process. If possible, it redirects the program's later calls of
/// sigaction(2) for the two signals to its argument.
pub fn recover_from_faults(redirect: impl FnOnce(Sigaction)) {
    static INSTALLING: Mutex<()> = Mutex::new(());
    let process = std::process::id() as i32;
    if OWNER.load(Ordering::Acquire) == process {
        return;
    }
    let _alone = crate::lock(&INSTALLING);
    if OWNER.load(Ordering::Acquire) == process {
        return;
    }
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_fault;
    let ours = Action {
        handler: handler as usize,
        // On the thread's alternate stack, if it has one: Go requires that of every handler.
        flags: libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART,
        mask: 0,
    };
    without_signals(|| {
        for signal in SIGNALS {
            let mut before = MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: both are valid; `on_fault` does what a handler may do.
            let before = unsafe {
                libc::sigaction(signal, &ours.to_c(), before.as_mut_ptr());
                Action::of(before.assume_init_ref())
            };
            if before.handler != ours.handler
                && let Some(slot) = slot(signal)
            {
                slot.store(before);
            }
        }
    });
    OWNER.store(process, Ordering::Release);
    redirect(on_sigaction);
}

/// Changes and returns the program's action for SIGSEGV or SIGBUS, as sigaction(2) does. Returns -2 if the
/// caller must make the system call instead.
///
/// # Safety
/// Each pointer is null or valid.
unsafe extern "C" fn on_sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    let Some(slot) = slot(signal).filter(|_| is_owner()) else { return -2 };
    let before = slot.load();
    // SAFETY: the caller guarantees that `new` is null or valid.
    if let Some(new) = unsafe { new.as_ref() } {
        let new = Action::of(new);
        without_signals(|| slot.store(new));
    }
    // SAFETY: the caller guarantees that `old` is null or valid.
    if let Some(old) = unsafe { old.as_mut() } {
        *old = before.to_c();
    }
    0
}

/// Handles both signals.
extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the thread's state to a handler with SA_SIGINFO.
    let counter = unsafe { program_counter(context.cast()) };
    // SAFETY: as above.
    let code = unsafe { (*info).si_code };
    if let Some(exit) = kiban_base::recovery(*counter as usize).filter(|_| !was_sent(code)) {
        *counter = exit as _;
        return;
    }
    pass_on(signal, code, info, context);
}

#[cfg(target_arch = "x86_64")]
unsafe fn program_counter<'a>(context: *mut libc::ucontext_t) -> &'a mut i64 {
    // SAFETY: the caller passes the state of the interrupted thread, which lives until the handler returns.
    unsafe { &mut (*context).uc_mcontext.gregs[libc::REG_RIP as usize] }
}

#[cfg(target_arch = "aarch64")]
unsafe fn program_counter<'a>(context: *mut libc::ucontext_t) -> &'a mut u64 {
    // SAFETY: the caller passes the state of the interrupted thread, which lives until the handler returns.
    unsafe { &mut (*context).uc_mcontext.pc }
}

/// Returns whether a signal with this `si_code` is no fault of the interrupted instruction: a process has
/// sent it, or the kernel reports a memory error elsewhere.
fn was_sent(code: c_int) -> bool {
    code <= 0 || code == libc::BUS_MCEERR_AO
}

/// Performs the program's action for a signal.
fn pass_on(signal: c_int, code: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(slot) = slot(signal) else { return };
    let action = slot.load();
    match action.handler {
        libc::SIG_IGN if was_sent(code) => {}
        // The kernel does not ignore faults either.
        libc::SIG_DFL | libc::SIG_IGN => {
            // The system call, because sigaction(3) may be redirected to `on_sigaction`. All zeros is
            // SIG_DFL.
            let default = [0u64; 4];
            // SAFETY: the kernel reads a struct of four words and writes nothing.
            unsafe {
                libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), null_mut::<c_void>(), 8);
            }
            // A fault is raised again when the handler returns.
            if was_sent(code) {
                // SAFETY: the signal is raised for this thread, which takes it when the handler returns.
                unsafe { libc::pthread_kill(libc::pthread_self(), signal) };
            }
        }
        handler => {
            if action.flags & libc::SA_RESETHAND != 0 {
                let default = Action { handler: libc::SIG_DFL, flags: 0, mask: 0 };
                without_signals(|| slot.store(default));
            }
            // The kernel restores the mask when the handler returns.
            let own = 1 << (signal - 1);
            let again = action.flags & libc::SA_NODEFER != 0;
            // SAFETY: the sets are initialised.
            unsafe {
                libc::pthread_sigmask(libc::SIG_BLOCK, &set(action.mask), null_mut());
                if again && action.mask & own == 0 {
                    libc::pthread_sigmask(libc::SIG_UNBLOCK, &set(own), null_mut());
                }
            }
            type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
            // SAFETY: the program set this handler. One without SA_SIGINFO ignores the further arguments.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
            handler(signal, info, context);
        }
    }
}
