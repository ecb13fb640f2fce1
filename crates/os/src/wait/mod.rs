//! Waiting in real time: the driver of [`kiban_base::Waiter`].
//!
//! Purpose          achieve the latency of spinning if something arrives soon, and the CPU time of sleeping
//!                  if not.
//! Sleepers         [`EventSleeper`] sleeps on an eventfd; [`FutexSleeper`] on the bell's own word, which may
//!                  be in memory shared by two processes.
//! Order            arm the bell, look again, sleep, disarm, look ([`kiban_base::Bell`]), so that no wake-up
//!                  is lost.
//! Lost core        a jump of the tick counter inside the spin loop means that the core was lost, if the
//!                  thread has also been switched away involuntarily ([`switched_away`]). This is reported to
//!                  the decision code. As long as the counter does not jump, no system call is made.
//! Sharing          a thread that spins indefinitely or for a fixed time yields its processor from time to
//!                  time ([`YieldLimiter`]), because the thread that it waits for may need it. The adaptive
//!                  policy spins briefly, and learns from losing the core.
//! Costs            [`costs`] are measured once per process (a few ms); every wake-up updates the waiter's
//!                  estimates.
//! Limits           one thread at a time waits with one [`Waiting`]; it may move to another thread between
//!                  two waits.
//! Not implemented  waiting on a cache line (UMWAIT, MONITORX), which is not available to guests and saves
//!                  only one system call.

mod calibrate;
mod offers;
mod set;
mod sleepers;
#[cfg(test)]
mod tests;
mod waiting;

pub use calibrate::costs;
pub use offers::{LONG, YieldLimiter};
pub use set::{WaitSet, Waker};
pub use sleepers::{Doorbell, EventSleeper, FutexSleeper, Sleeper, ring, set_min_timer_slack, timespec};
pub use waiting::{Waiting, switched_away, waited_for_processor};
