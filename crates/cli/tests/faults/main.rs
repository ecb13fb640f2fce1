//! What kiban does when the operating system refuses: system calls that fail, fall short, stall, or are a
//! process's last.
//!
//! Purpose          no panic, no hang, no leak, nothing lost that was confirmed, and the next honest client
//!                  is served.
//! How              programs run under `kiban_fault`, which injects the faults of a plan; a plan is derived
//!                  from a seed, or is "the n-th call fails". A *scenario* is a short run with an outcome
//!                  that can be checked.
//! Seeds            `make test` runs 200, and a few values of n; `make soak TIME=600` (or SEEDS=10000) runs
//!                  more; a failure names its seed, and `make soak SEED=17` runs it alone. Scenarios share
//!                  the seeds in turn. Of a time that is given, half is for seeds, half for every n.
//! Skipped          where programs cannot be traced, unless KIBAN_FAULTS=required: then the tests fail.
//! Limits           which thread reaches the kernel first is the scheduler's choice: a seed that fails once
//!                  may have to run a few times. A process that is refused memory may end: by Rust's global
//!                  allocator (SIGABRT, "memory allocation of"), where std gets no signal stack for a new
//!                  thread (SIGABRT, "alternative stack", then "failed to initiate panic"), or where glibc
//!                  cannot note the destructor of a thread's variable (SIGABRT, "failed to register TLS
//!                  destructor"). That is the rule of Rust and glibc, and no failure here, as long as peers
//!                  and confirmed data are whole; [`place::Ended::judge`] knows it by those words, and only
//!                  where a call that maps memory was let fail.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod board;
mod files;
mod lab;
mod links;
mod memory;
mod place;
mod rdma;
mod serving;
mod soak;
mod verbs;
mod vi;
mod vipl;
