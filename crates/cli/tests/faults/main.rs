//! What kiban does when the operating system refuses: system calls fail, transfer fewer bytes than requested,
//! stall, or the process is killed at one of them.
//!
//! Purpose          no panic, no hang, no leak; no confirmed data is lost, and the next client without
//!                  faults is served.
//! Operation        programs run under `kiban_fault`, which injects the faults of a plan; a plan is derived
//!                  from a seed, or is "the n-th call fails". A *scenario* is a short run whose result can
//!                  be checked.
//! Seeds            `make test` runs 200 seeds, and a few values of n; `make soak TIME=600` (or SEEDS=10000)
//!                  runs more. A failure prints its seed, and `make soak SEED=17` runs that seed alone. The
//!                  seeds are divided among the scenarios. If a time is given, half of it is used for seeds,
//!                  half for values of n.
//! Skipped          on systems where programs cannot be traced; with KIBAN_FAULTS=required the tests fail.
//! Limits           the scheduler decides which thread reaches the kernel first, so a failing seed may have
//!                  to be run a few times. A process whose memory allocation fails may abort: in Rust's
//!                  global allocator (SIGABRT, "memory allocation of"), where std cannot allocate a new
//!                  thread's signal stack (SIGABRT, "alternative stack", then "failed to initiate panic"),
//!                  or where glibc cannot register the destructor of a thread-local variable (SIGABRT,
//!                  "failed to register TLS destructor"). Rust and glibc do this by design, so it is no
//!                  failure of the test, as long as peers work and confirmed data is complete.
//!                  [`place::Ended::judge`] accepts these messages only if a call that maps memory failed.

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
