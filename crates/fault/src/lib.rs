//! Runs a program and makes chosen system calls fail, return short counts, stall, or kill the process.
//!
//! Purpose          show how programs behave when the operating system refuses: no descriptors or memory
//!                  left, a full disk, EINTR, short counts, a stalled thread, a process that is killed
//!                  between two steps.
//! Operation        uses ptrace(2), because kiban calls the kernel through rustix, without libc, so that a
//!                  preloaded library would not see the calls. A seccomp filter (SECCOMP_RET_TRACE) stops the
//!                  program only at the calls of [`calls`]; all other calls run at full speed. strace(1)
//!                  has `--inject`, but it can neither shorten counts nor choose calls by a seed.
//! Plan             a value: [`Plan::decide`] returns what happens to the n-th intercepted call. The same
//!                  plan makes the same choice for the same call, but the scheduler decides which thread
//!                  reaches the kernel first.
//! Legal faults     a fault is injected only where a real kernel could return it; `calls` has the table. No
//!                  short count or EAGAIN is injected on a file that epoll watches edge-triggered, because
//!                  there it would mean that no data is left (epoll(7)).
//! Limits           Linux on x86-64. Calls through the vDSO are not seen. The program runs with no_new_privs.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

pub mod calls;
pub mod plan;
mod tracer;

pub use calls::{Call, Injection};
pub use plan::{Kind, Plan};
pub use tracer::{End, Traced, available};
