//! Waiting: when to poll, and when to sleep until a bell rings.
//!
//! Purpose          provide one kind of policy for every queue, as data ([`Wait`]), and one decision function
//!                  ([`Waiter`]) for both real and virtual time.
//! Input            the driver reports that it polled in vain, how it found an arrival, or that it lost the
//!                  core.
//! Output           a [`Step`]: spin until a time, or sleep until a time or the bell ([`Bell`](crate::Bell)).
//! Cost             CPU time spent spinning, plus for each sleep the CPU time of both ends, plus the price of
//!                  the time for which arrivals went unnoticed ([`Costs`]). [`optimum`] is the least cost if
//!                  all arrivals are known in advance.
//! Limits           nothing here reads a clock; a time recorded by the other side is trusted only if it lies
//!                  between the beginning of the wait and now.
//! Not implemented  batching (waking after n arrivals): a queue that needs it rings its bell less often.
//!
//! The receive call in the paper (Murayama et al. 2000) is `hybrid`: poll for a set time, then wait for an
//! interrupt, and return to polling when packets arrive.

mod adaptive;
mod costs;
mod evidence;
mod gaps;
mod guard;
mod optimum;
mod period;
mod policy;
mod waiter;

pub use costs::Costs;
pub use evidence::Evidence;
pub use guard::loss_guard;
pub use optimum::optimum;
pub use policy::{NoSuchWait, Wait};
pub use waiter::{Report, Step, Waiter};
