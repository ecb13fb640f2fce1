//! TCP against the limit of the line, in virtual time.
//!
//! Claim     the results of paper \[1\] (figures 6 and 7), but without losses in the boards. With a window of
//!           48 KB or more, one session reaches 99.8 % of the rate that cell and packet headers leave; the
//!           paper's board reached 133.4 of 134.58 Mbit/s at 256 KB. Up to sixty sessions together reach 99 %
//!           of this rate, and each session gets at least nine tenths of an equal share.
//! Limit     149.76 Mbit/s × 8192 / (172 × 53): [`crate::worlds::LIMIT_MBIT_PER_SECOND`].
//! Set-up    two boards and a switch, with 100 m of line to each board (figure 5). Payloads have 8192 bytes,
//!           and there are 8 MB of memory in each direction.
//! Counted   the payload bytes that the receiving program reads. One session is measured from its first byte
//!           to its last. Many sessions are measured while all of them are active: from the time when the
//!           last session has received its first half megabyte (or twice its window) until the first session
//!           has received everything.
//! Exact     virtual time has no noise, so each run is made only once. The same seed gives the same results
//!           on any machine.

use crate::worlds::{LIMIT_MBIT_PER_SECOND, Transfer};
use kiban_base::Instant;
use kiban_lab::table::figure;
use kiban_lab::{Options, Table};
use kiban_sim::Plan;

const ONE_WINDOWS_KIB: [u32; 8] = [8, 16, 24, 32, 48, 64, 128, 256];
const MANY_WINDOWS_KIB: [u32; 4] = [16, 24, 48, 256];
const MANY_SESSIONS: [usize; 6] = [2, 5, 10, 15, 30, 60];
/// The smallest window at which one session has a target.
const ONE_TARGET_FROM_KIB: u32 = 48;
const ONE_TARGET_PERCENT: f64 = 99.8;
const MANY_TARGET_PERCENT: f64 = 99.0;
const SHARE_TARGET: f64 = 0.9;

/// Returns the rate in one direction between two times, Mbit/s.
fn mbit_per_second(bytes: u64, from: Instant, to: Instant) -> f64 {
    bytes as f64 * 8.0 / to.since(from).as_secs_f64() / 1e6
}

fn percent(mbit_per_second: f64) -> f64 {
    mbit_per_second / LIMIT_MBIT_PER_SECOND * 100.0
}

/// Runs one session in each direction that `sessions` selects: either in one direction alone, or in both at
/// the same time. Returns the throughput of each direction in percent of the limit.
fn one(window_kib: u32, sessions: [usize; 2], bytes: u64) -> [Option<f64>; 2] {
    let mut transfer = Transfer::new(&Plan::with_window(window_kib << 10), sessions, bytes);
    let tallies = transfer.tallies.clone();
    // For each direction: bytes and time at the start of the measurement, and the time of the last bytes.
    let mut marks: [Option<(u64, Instant, Instant)>; 2] = [None; 2];
    transfer.run(&mut |world| {
        for (tally, mark) in tallies.iter().zip(&mut marks) {
            let count = tally.borrow().first().copied().unwrap_or(0);
            match mark {
                None if count > 0 => *mark = Some((count, world.now(), Instant::NEVER)),
                Some((_, _, last)) if count == bytes && *last == Instant::NEVER => *last = world.now(),
                _ => {}
            }
        }
    });
    marks.map(|mark| mark.map(|(first, from, to)| percent(mbit_per_second(bytes - first, from, to))))
}

/// The throughput of many sessions while all of them are active.
struct Together {
    percent: f64,
    /// The smallest and the largest share of a session; 1 is an equal share.
    least: f64,
    greatest: f64,
    seconds: f64,
    retransmissions: u64,
    starved: u64,
}

fn together(window_kib: u32, sessions: usize, bytes: u64) -> Together {
    let bytes_each = bytes / sessions as u64;
    let mut transfer = Transfer::new(&Plan::with_window(window_kib << 10), [sessions, 0], bytes_each);
    let tally = transfer.tallies[0].clone();
    let warm = (512 << 10).max(u64::from(window_kib) << 11).min(bytes_each / 8);
    let mut begin: Option<(Instant, Vec<u64>)> = None;
    let mut end: Option<(Instant, Vec<u64>)> = None;
    transfer.run(&mut |world| {
        let counts = tally.borrow();
        if begin.is_none() && counts.iter().all(|count| *count >= warm) {
            begin = Some((world.now(), counts.clone()));
        }
        if end.is_none() && counts.contains(&bytes_each) {
            end = Some((world.now(), counts.clone()));
        }
    });
    let (Some((from, before)), Some((to, after))) = (begin, end) else {
        panic!("{sessions} sessions at {window_kib} KB were never all active");
    };
    assert!(from < to, "{sessions} sessions at {window_kib} KB: one finished before another started");
    let moved: Vec<u64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    let total: u64 = moved.iter().sum();
    let share = total as f64 / sessions as f64;
    let counter = |name| transfer.pair.world.board(transfer.pair.boards[0]).counter("tcp", name);
    Together {
        percent: percent(mbit_per_second(total, from, to)),
        least: moved.iter().copied().min().unwrap_or(0) as f64 / share,
        greatest: moved.iter().copied().max().unwrap_or(0) as f64 / share,
        seconds: to.since(from).as_secs_f64(),
        retransmissions: counter("retransmits"),
        starved: counter("no_memory"),
    }
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

pub(crate) fn run(options: &Options) {
    let bytes: u64 = if options.quick { 8 << 20 } else { 64 << 20 };
    let mut table = Table::new(format!(
        "line: one session, {} MiB, percent of {LIMIT_MBIT_PER_SECOND:.4} Mbit/s, virtual time",
        bytes >> 20
    ))
    .number_column("window KB")
    .number_column("0 to 1")
    .number_column("1 to 0")
    .number_column("both at once: 0 to 1")
    .number_column("1 to 0")
    .text_column("target")
    .text_column("");
    let show = |percent: Option<f64>| percent.map_or("-".to_owned(), figure_percent);
    for window_kib in ONE_WINDOWS_KIB {
        let there = one(window_kib, [1, 0], bytes)[0];
        let back = one(window_kib, [0, 1], bytes)[1];
        let both = one(window_kib, [1, 1], bytes);
        let judged = window_kib >= ONE_TARGET_FROM_KIB;
        let met =
            [there, back].iter().all(|reached| reached.is_some_and(|reached| reached >= ONE_TARGET_PERCENT));
        table.row([
            window_kib.to_string(),
            show(there),
            show(back),
            show(both[0]),
            show(both[1]),
            if judged { format!(">= {ONE_TARGET_PERCENT} each way") } else { String::new() },
            if judged { verdict(met).to_owned() } else { String::new() },
        ]);
    }
    println!("{table}");

    let bytes = if options.quick { 32 << 20 } else { 256 << 20 };
    let mut table = Table::new(format!(
        "line: many sessions, {} MiB in total, while all are active, virtual time",
        bytes >> 20
    ))
    .number_column("window KB")
    .number_column("sessions")
    .number_column("total Mbit/s")
    .number_column("%")
    .number_column("min share")
    .number_column("max share")
    .number_column("seconds")
    .number_column("retransmits")
    .number_column("no memory")
    .text_column("99 %, 0.9");
    for window_kib in MANY_WINDOWS_KIB {
        for sessions in MANY_SESSIONS {
            let reached = together(window_kib, sessions, bytes);
            let met = reached.percent >= MANY_TARGET_PERCENT && reached.least >= SHARE_TARGET;
            table.row([
                &window_kib.to_string(),
                &sessions.to_string(),
                &figure(reached.percent / 100.0 * LIMIT_MBIT_PER_SECOND),
                &figure_percent(reached.percent),
                &format!("{:.3}", reached.least),
                &format!("{:.3}", reached.greatest),
                &format!("{:.2}", reached.seconds),
                &reached.retransmissions.to_string(),
                &reached.starved.to_string(),
                verdict(met),
            ]);
        }
    }
    println!("{table}");
}

/// Formats a percentage with the digits needed for a target of 99.8.
fn figure_percent(percent: f64) -> String {
    format!("{percent:.3}")
}
