//! Wait policies in real time: latency, CPU time, and cost relative to an optimal policy that knows every
//! arrival in advance.
//!
//! Claim     one adaptive policy is as fast as polling in bursts, as cheap as sleeping when messages are
//!           rare, never costs more than twice the optimum, and is as good as sleeping when other processes
//!           want the core.
//! Sides     the adaptive policy is compared with sleeping at once, with spinning 20 to 300 us before
//!           sleeping (as in paper \[4\]), and with polling.
//! Fair      all policies of a row see the same gaps between messages, one policy right after another in each
//!           round, in rotating order. Each row starts with policies without history; the first part of every
//!           cell is not counted.
//! Cost      CPU time of the receiver, plus the duration of the calls that woke it, plus the latency of every
//!           message at price 1. The optimum knows all arrivals; each of its sleeps costs as much as a sleep
//!           of the policy that sleeps at once, in the same row and round (it has no timed sleeps: see
//!           `base/src/wait/optimum.rs`). With hogs (busy threads on both CPUs), the scheduler causes most of
//!           the cost, independently of the arrivals, so in those rows costs are relative to sleeping at
//!           once.
//! Guard     a cell is repeated if other processes used more than 2 % of a core and a millisecond, or if the
//!           producer was off its core for half a millisecond. After a limited number of repetitions, the
//!           least disturbed attempt counts, and the row is marked noisy. Before each cell the run waits
//!           until the machine is idle, so a run of about two minutes may take up to ten on a busy machine.

mod policies;
mod stage;

pub(crate) use policies::run;
