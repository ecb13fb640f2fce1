//! Wait policies in real time: latency, CPU time, and cost relative to an optimal policy that knows every
//! arrival in advance.
//!
//! Claim     one adaptive policy is as fast as polling in bursts and as cheap as sleeping when messages are
//!           rare. It never costs more than twice the optimum, and is as good as sleeping when other
//!           processes need the core.
//! Sides     the adaptive policy is compared with sleeping at once, with spinning 20 to 300 us before
//!           sleeping (as in paper \[4\]), and with polling.
//! Fair      all policies in a row of the table have the same gaps between messages. In each round, the
//!           policies run one right after another, in rotating order. At the start of a row, the policies
//!           have no history; the first part of every cell is not counted.
//! Cost      the cost is the CPU time of the receiver, plus the duration of the calls that woke it, plus the
//!           latency of every message at price 1. The optimum knows all arrivals. Each of its sleeps costs as
//!           much as a sleep of the policy that sleeps at once, in the same row and round. It has no timed
//!           sleeps (see `base/src/wait/optimum.rs`). With hogs (busy threads on both CPUs), the scheduler
//!           causes most of the cost, whatever the arrivals are. In those rows, costs are therefore relative
//!           to sleeping at once.
//! Guard     a cell is repeated if other processes used more than 2 % of a core plus a millisecond, or if the
//!           producer was off its core for half a millisecond. After a limited number of repetitions, the
//!           least disturbed attempt counts, and the row is marked noisy. Before each cell the run waits
//!           until the machine is idle, so a run of about two minutes may take up to ten on a busy machine.

mod policies;
mod stage;

pub(crate) use policies::run;
