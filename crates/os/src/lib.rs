//! Operating-system services for the runtimes: clocks, waiting, wake-ups, descriptors and shared memory.
//!
//! The crates below this one take an `Instant` as an argument and make no system calls. This crate contains
//! no protocols.
//!
//! | module | contents |
//! |---|---|
//! | [`clock`], [`wait`] | time, CPU time, pinning; how to wait for work, and how long to spin first |
//! | [`WaitSet`], [`turn`] | a set of files and bells to sleep on; one machine that several threads drive in turns |
//! | [`channel`] | shared memory and doorbells between two processes |
//! | [`faults`] | copies of memory that a program has unmapped fail without ending the process |
//! | [`interface`], [`packet`], [`udp`] | network interfaces, packet sockets, UDP sockets |
//! | [`namespace`] | network namespaces of guests |
//! | [`resolver`] | this host's name servers |
//! | [`origin`] | which unauthenticated connection to close if there are too many |
//! | [`unix`] | Unix sockets with untrusted peers |
//! | [`lock`](lock()), [`Flag`] | locks whose holder may have panicked; a flag that is read without a lock |
//! | [`random`], [`regular`] | random keys from the system; reading only regular files |
//! | [`exposure`], [`lines`], [`thread`] | private files below a served directory; log rate limiting; threads
//! whose start can fail |
//! | [`journal`] | making a file and its name durable with one commit |
//! | [`limit`] | the limit of open files |
//! | [`text`] | untrusted text on a terminal |
//!
//! ```
//! use kiban_os::clock::Clock;
//!
//! // Time for the machines that take an `Instant`, and a key for their random numbers.
//! let clock = Clock::new();
//! let begin = clock.now();
//! let key = kiban_os::random::key()?;
//! let mut rng = kiban_base::SecureRng::new(key);
//! assert_ne!(rng.draw(), rng.draw());
//! assert!(clock.now() >= begin);
//! # Ok::<(), std::io::Error>(())
//! ```

mod atomic;
pub mod channel;
pub mod clock;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub mod faults;
mod files;
mod flag;
pub mod lines;
mod lock;
mod net;
pub mod random;
mod socket_option;
pub mod text;
pub mod thread;
pub mod turn;
pub mod unix;
pub mod wait;

pub use clock::Clock;
pub use files::{exposure, journal, limit, regular};
pub use flag::Flag;
pub use lock::{ignore_poison, lock, try_lock};
pub use net::{icmp, interface, namespace, origin, packet, resolver, udp};
pub use wait::{EventSleeper, FutexSleeper, Sleeper, WaitSet, Waiting, Waker, costs};
