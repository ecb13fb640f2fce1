//! Benchmarks that compare two sides in one run.
//!
//! Purpose   produce results that can be quoted: the median of undisturbed rounds with minimum and maximum,
//!           the target and a record of every sample.
//! Round     one repetition: both sides, one after the other. The order alternates with every accepted round
//!           (A B, B A, A B, ...), so that a slow drift of the machine affects both sides equally. The ratio
//!           is computed within each round; the median of these paired ratios is reported.
//! Guard     the machine's CPU times are read before and after every sample ([`crate::load`]). A round in
//!           which other processes used more than `foreign_cores_max` is rejected and repeated in the same
//!           order.
//! Giving up  after more than `redos_max` rejected rounds, the rounds with the least foreign load are used,
//!           whatever their results; the table and the record say so.
//! Targets   are met or MISSED. A missed target is printed and recorded; it does not end the process.
//! Record    one line of JSON per benchmark, appended to `<dir>/<bench>.jsonl` as soon as it is measured. It
//!           contains every round in the order it ran, rejected ones too, so that the printed table can be
//!           computed from it.
//! Not implemented  statistics beyond order statistics (seven rounds do not support more); waiting for the
//!           machine to become idle.

mod options;
mod record;
mod run;
mod summary;

pub use options::Options;
pub use record::{Record, Round, Side, Target, Unit, Verdict};
pub use run::{Bench, Sample};

#[cfg(test)]
mod tests;
