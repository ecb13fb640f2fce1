//! Turns: a machine without its own thread, driven by the threads that call it.
//!
//! Purpose          allow calls to a NIC, including blocking ones, from any thread: the thread that waits for
//!                  data also receives it.
//! Turn             the [`Machine`] has no thread of its own. A thread that works, looks or waits briefly
//!                  holds the machine's lock and drives the machine. No thread blocks while holding the lock.
//! Wait             one of the waiting threads is the *driver*: it spins or sleeps on the wait set, according
//!                  to its queue's policy ([`crate::wait`]). The others are followers: they sleep until the
//!                  driver has a result for one of them.
//! Helper           if no thread has driven for a while, a helper thread does, so that peers are answered
//!                  while the program computes (`helper.rs`). It sleeps until something arrives.
//! Wait set         a sleeping driver is woken by files on an epoll, bells in shared memory, the machine's
//!                  deadline, and threads that change the machine (`WaitSet`). The file that caused the
//!                  wake-up is not reported: the machine checks all its files, or watches its own epoll.
//! Polling          the polls of a program sleep if other threads want its processor ([`Turn::poll`],
//!                  `polling.rs`).
//! Signals          signals to the program end an interruptible wait ([`Turn::wait_interruptibly`],
//!                  `signals.rs`).
//! Limits           there is one lock per turn, so a program that drives intensively from many threads
//!                  creates several turns.
//! Not implemented  fork (a child must not use its parent's turn); fairness among followers.

mod followers;
mod helper;
mod machine;
mod machine_driver;
mod polling;
mod queue_waiters;
mod shared;
mod signals;

pub use machine::{HelperPolicy, Machine, QueueKey, WaitError};
pub use machine_driver::{Turn, watch};
pub use signals::ends_this_call;
pub use signals::with_signals_blocked;

#[cfg(test)]
mod tests;
