//! Speed of the simulator: virtual time compared with CPU time.
//!
//! Claim     one direction of an OC-3c line, exact to the cell, with kiban's boards at both ends and a switch
//!           between them, runs at least 30 times faster than the line itself on one core.
//! Work      paper \[1\]'s set-up (figure 5): payloads of 8192 bytes, windows of 256 KB, and 8 MB of memory
//!           in each direction. One session runs, or sixty that share the line.
//! Counted   virtual seconds per second of CPU time, from the first SYN to the last FIN. This includes the
//!           comparison of every received byte, but not the construction of the simulated world.

use crate::worlds::{LIMIT_MBIT_PER_SECOND, Transfer};
use kiban_lab::{Bench, Options, Target, Trial, Unit};
use kiban_sim::Plan;

const WINDOW_BYTES: u32 = 256 << 10;

fn sample(trial: &mut Trial, sessions: usize) -> f64 {
    // Choose the amount of data so that a sample has its intended duration if the simulation runs 40 times
    // faster than the line.
    let virtual_seconds = trial.span_nanos() as f64 * 1e-9 * 40.0;
    let bytes = virtual_seconds * LIMIT_MBIT_PER_SECOND * 1e6 / 8.0;
    let bytes_each = (bytes / sessions as f64) as u64;
    let mut transfer = Transfer::new(&Plan::with_window(WINDOW_BYTES), [sessions, 0], bytes_each);
    let span = trial.measure_once(|| {
        transfer.run(&mut |_| {});
        transfer.pair.world.now().as_secs_f64()
    });
    assert!(transfer.tallies[0].borrow().iter().all(|count| *count == bytes_each));
    span.per_cpu_second()
}

pub(crate) fn run(options: &Options) {
    let mut bench = Bench::new("sim", options.clone());
    for sessions in [1, 60] {
        let plural = if sessions == 1 { "session" } else { "sessions" };
        bench.single(
            &format!("one OC-3c direction, {sessions} {plural}"),
            Unit::Times,
            ("faster than real time", |trial: &mut Trial| sample(trial, sessions)),
            Target::at_least(30.0),
        );
    }
    bench.finish();
}
