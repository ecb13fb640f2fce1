//! The table of a run, and the remarks that qualify its results.

use super::options::Options;
use super::record::{Record, Round};
use crate::environment::Environment;
use crate::stats::Summary;
use crate::table::{Table, figure};

/// Returns the remarks that qualify the results.
pub(super) fn notes(rounds: &[Round], gave_up: bool, options: &Options) -> Vec<String> {
    let mut notes = Vec::new();
    if options.quick {
        notes.push("quick run: checks only that the benchmark works; do not quote the results".to_owned());
    }
    let limit = options.foreign_cores_max;
    let rejected = rounds.iter().filter(|round| !round.quiet).count();
    if gave_up {
        let worst = rounds.iter().filter(|round| round.counts).map(Round::foreign_cores_worst);
        notes.push(format!(
            "GAVE UP waiting for an idle machine: in {rejected} of {} rounds, other processes used more \
             than {limit} cores; the {} quietest rounds are reported, with up to {:.2} cores",
            rounds.len(),
            rounds.iter().filter(|round| round.counts).count(),
            worst.fold(0.0, f64::max),
        ));
    } else if rejected > 0 {
        notes.push(format!("{rejected} disturbed rounds were repeated"));
    }
    if rounds.iter().any(|round| round.foreign_cores.iter().any(Option::is_none)) {
        notes.push("cannot read CPU times from /proc: load from other processes was not detected".to_owned());
    }
    notes
}

pub(super) fn table(name: &str, environment: &Environment, records: &[Record]) -> Table {
    let mut table = Table::new(format!("{name}: {}", environment.line()))
        .text_column("benchmark")
        .text_column("side")
        .number_column("median")
        .number_column("min")
        .number_column("max")
        .text_column("unit")
        .text_column("target")
        .text_column("");
    for record in records {
        let marks: String = record.notes.iter().map(|note| table.note(note)).collect();
        let title = format!("{} {marks}", record.title);
        let wanted = record.target.to_string();
        let noisy = if record.gave_up { ", noisy" } else { "" };
        let verdict = record.verdict.map_or(String::new(), |verdict| format!("{verdict}{noisy}"));
        let mut lines: Vec<(&str, &str, Summary)> = Vec::new();
        for side in &record.sides {
            lines.push((&side.name, &record.unit, side.figures));
        }
        if let Some(ratio) = record.ratio {
            lines.push(("ratio", "x", ratio));
        }
        // Show the target in the row that it applies to.
        let judged = if record.target.is_ratio() { lines.len() - 1 } else { 0 };
        for (at, (side, unit, figures)) in lines.into_iter().enumerate() {
            let (wanted, verdict) = if at == judged { (&*wanted, &*verdict) } else { ("", "") };
            table.row([
                if at == 0 { title.trim_end() } else { "" },
                side,
                &figure(figures.median),
                &figure(figures.min),
                &figure(figures.max),
                unit,
                wanted,
                verdict,
            ]);
        }
    }
    table
}
