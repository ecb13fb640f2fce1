//! Runs a program and makes chosen system calls fail, return short counts, stall, or kill the process.
//!
//! Purpose          show what the runtimes do when the operating system refuses: descriptors or memory
//!                  exhausted, a full disk, EINTR, short counts, a stalled thread, a process that
//!                  is killed between two steps.
//! Operation        ptrace(2), since kiban calls the kernel through rustix, without libc: a library that is
//!                  preloaded would not see those calls. A seccomp filter (SECCOMP_RET_TRACE) stops the
//!                  program at the calls of [`calls`] only; all others run at full speed. strace(1) has
//!                  `--inject`, but neither short counts nor a choice that is a function of a seed.
//! Plan             a value: for the n-th call that stops, [`Plan::decide`] says what happens to it. The same
//!                  plan makes the same choice for the same call; which thread reaches the kernel first is
//!                  still the scheduler's choice.
//! Legal faults     a fault is injected only where a real kernel could return it: `calls` has the table. A
//!                  short count or EAGAIN on a file that epoll watches by edges is left out: there it means
//!                  that nothing is left (epoll(7)).
//! Limits           Linux on x86-64. vDSO calls are not seen. The program runs with no_new_privs.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

pub mod calls;
pub mod plan;
mod tracer;

pub use calls::{Call, Injection};
pub use plan::{Kind, Plan};
pub use tracer::{End, Traced, available};
