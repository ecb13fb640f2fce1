//! Runs a program and makes chosen system calls fail, return short counts, stall, or kill the process.
//!
//! Purpose          show how programs behave when descriptors or memory run out, the disk is full, calls
//!                  return EINTR or short counts, a thread stalls, or the process is killed between two
//!                  steps.
//! Operation        the tracer uses ptrace(2). A preloaded library could not intercept the calls, because
//!                  kiban calls the kernel through rustix, without libc. A seccomp filter (SECCOMP_RET_TRACE)
//!                  stops the program only at the calls of [`calls`]; all other calls run at full speed.
//!                  strace(1) has `--inject`, but it cannot shorten counts or choose calls by a seed.
//! Plan             a plan is an ordinary value: [`Plan::decide`] returns the fault, if any, for the n-th
//!                  intercepted call. The same plan makes the same choice for the same call, but the
//!                  scheduler determines which thread reaches the kernel first.
//! Legal faults     a fault is injected only where a real kernel could return it; the table is in `calls`.
//!                  Short counts and EAGAIN are not injected on a file that epoll watches edge-triggered,
//!                  because there they would mean that no data is left (epoll(7)).
//! Limits           Linux on x86-64. Calls through the vDSO are not intercepted. The program runs with
//!                  no_new_privs.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

pub mod calls;
pub mod plan;
mod tracer;

pub use calls::{Call, Injection};
pub use plan::{Kind, Plan};
pub use tracer::{End, Traced, available};
