//! Tests of kiban under faults of the operating system: system calls fail, transfer fewer bytes than
//! requested, or stall, or the process is killed during a system call.
//!
//! Purpose          check that nothing panics, hangs or leaks, that no confirmed data is lost, and that the
//!                  next client without faults is served.
//! Operation        programs run under `kiban_fault`, which injects the faults of a plan. A plan is derived
//!                  from a seed, or makes the n-th system call fail. A *scenario* is a short run whose result
//!                  can be checked.
//! Seeds            `make test` runs 200 seeds and a few values of n; `make soak TIME=600` (or SEEDS=10000)
//!                  runs more. A failure prints its seed, and `make soak SEED=17` runs only that seed. The
//!                  seeds are divided among the scenarios. If a time is given, half of it is used for seeds,
//!                  and half for values of n.
//! Skipped          the tests are skipped where programs cannot be traced; with KIBAN_FAULTS=required they
//!                  fail instead.
//! Timing           the scheduler decides which thread reaches the kernel first, so it may take several runs
//!                  of a failing seed to reproduce the failure.
//! Aborts           by design, Rust and glibc abort a process (SIGABRT) when some memory allocations fail:
//!                  in Rust's global allocator ("memory allocation of"); when std cannot allocate the signal
//!                  stack of a new thread ("alternative stack", then "failed to initiate panic"); and when
//!                  glibc cannot register the destructor of a thread-local variable ("failed to register TLS
//!                  destructor"). The test still passes if peers work and confirmed data is complete.
//!                  [`place::Ended::judge`] accepts these messages only if a call that maps memory failed.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod board;
mod files;
mod lab;
mod links;
mod memory;
mod place;
#[path = "../preload/mod.rs"]
mod preload;
mod rdma;
mod serving;
mod soak;
mod verbs;
mod vi;
mod vipl;
