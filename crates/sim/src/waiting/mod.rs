//! A process that waits for packets: the cost of its wait policy, and its losses when the operating system
//! stalls it.
//!
//! Goal      compute CPU use, losses, latency and sleeps of a wait policy for given arrivals and stalls; 10^7
//!           packets take a second or two.
//! Decision  made by the real [`Waiter`](kiban_base::Waiter). The model only supplies the costs of polling,
//!           sleeping, waking up and being stalled.
//! Queue     each arrival consumes one receive descriptor, whatever its length; the process reposts the
//!           descriptor after it has handled the packet. The reliability level ([`Level`]) decides what
//!           happens when none is left. The queue is a trait: the same process runs over the counters here
//!           ([`Posted`]) and over the NIC that we ship (`tests/waiting_nic.rs`), and both must give the same
//!           result.
//! Process   the process polls. If there is a packet, it handles the packet; if not, it waits according to
//!           its policy. While it spins, it finds an arrival at once. A sleep costs CPU time at both ends
//!           (`Costs::both_ends`; both are on this host, because it also serves the NIC's interrupt), and
//!           ends `Costs::wake` after the arrival.
//! Stalls    the operating system keeps the process from running ([`Stall`]): when it is about to wake up, or
//!           while it runs.
//! Limits    there is one process, one processor and one sender; times are whole nanoseconds.
//! Left out  stalls of the sender, and the transmission time, which shifts all arrivals equally.

mod arrivals;
mod outcome;
mod process;
mod queue;
mod stalls;

pub use arrivals::{ArrivalPattern, Arrivals};
pub use outcome::{Latencies, Outcome};
pub use process::Process;
pub use queue::{Level, Packet, Posted, Posting, ReceiveQueue};
pub use stalls::{Stall, StallLength, StallTiming};
