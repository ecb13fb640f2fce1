//! Measurements outside the grid of a sweep: slow cells that are measured again, and remedies.
//!
//! Again     a slow cell without slow neighbours may be a disturbance of the moment. It is measured a second
//!           time, in the folder `again/KEY`, and counts as slow only if it is slow both times.
//! Rounds    a remedy is measured in up to [`ROUNDS`] rounds, in the folders `proofs/KEY/1` to `3`. Each
//!           round measures the case without the remedy and then with it, so that a change of the network
//!           does not look like the effect of the remedy. A round that refutes the remedy is the last one.
//! Proved    in each round, the case is slow without the remedy and not with it, and the slowest result with
//!           the remedy is at least [`GAIN_MIN`] times the fastest one without it.

use super::cause::{Cause, is_lossy};
use super::judge::{Judge, Measured};
use super::map::Cell;
use crate::engine::{Manifest, Plan, Records, Shard, StoreError, Time};
use crate::net::trial::setup::{QUESTION, Setup};
use crate::stats::median;
use crate::table::{counted, readable};
use std::path::{Path, PathBuf};

/// The number of rounds that prove a remedy.
pub(in crate::net) const ROUNDS: usize = 3;
/// The least factor between the results with a remedy and those without.
pub(in crate::net) const GAIN_MIN: f64 = 1.2;

/// A measurement that has not been made yet.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::net) struct Open {
    /// The remedy in words; empty for a cell that is measured again.
    pub(in crate::net) advice: String,
    /// The folder of its run.
    pub(in crate::net) dir: PathBuf,
    /// The plan of its run.
    pub(in crate::net) plan: Plan,
}

/// Returns the plan that measures these points, which differ in one parameter at most, in this order.
fn plan(host: &str, setups: &[&Setup]) -> Plan {
    let mut parameters = std::collections::BTreeMap::new();
    for (name, value) in setups.iter().flat_map(|setup| setup.point(host).0) {
        let values: &mut Vec<_> = parameters.entry(name).or_default();
        if !values.contains(&value) {
            values.push(value);
        }
    }
    Plan { question: QUESTION.to_owned(), repetitions: 1, seeds: vec![1], parameters }
}

/// Returns the first digits of the keys of a plan's trials, which name its folder.
fn key(plan: &Plan, digits: usize) -> String {
    let manifest = Manifest::new(Time::Real, plan.clone(), Shard::ALL);
    (0..plan.trials()).map(|number| manifest.key(&plan.trial(number))[..digits].to_owned()).collect()
}

/// Returns the measurement that repeats a cell.
pub(super) fn again(dir: &Path, host: &str, setup: &Setup) -> Open {
    let plan = plan(host, &[setup]);
    Open { advice: String::new(), dir: dir.join("again").join(key(&plan, 12)), plan }
}

/// Returns a round of a remedy, which turns `before` into `after`.
fn round(dir: &Path, host: &str, advice: &str, [before, after]: [&Setup; 2], number: usize) -> Open {
    let plan = plan(host, &[before, after]);
    let folder = dir.join("proofs").join(key(&plan, 8)).join(number.to_string());
    Open { advice: advice.to_owned(), dir: folder, plan }
}

impl Open {
    /// Reads the results in the order of the plan; they are missing or incomplete before the measurement.
    pub(super) fn read(&self) -> Result<Vec<Measured>, StoreError> {
        // A folder without a readable manifest means that nothing has been measured. A damaged one is
        // reported when the run is opened for writing.
        let Ok(manifest) = Manifest::read(&self.dir) else { return Ok(Vec::new()) };
        let records = Records::read(&self.dir, &manifest)?;
        Ok(records.in_order(&manifest).filter_map(|record| Measured::of(&record)).collect())
    }
}

/// The rounds of a remedy that have been measured, and what follows from them.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// The results without the remedy and with it.
    results: Vec<[Measured; 2]>,
    /// Why the remedy is not proved.
    pub(super) refuted: Option<String>,
    /// The next round; `None` if the rounds are complete.
    pub(super) next: Option<Open>,
}

impl Rounds {
    /// Reads the rounds of a remedy for a cause.
    pub(super) fn read(
        dir: &Path,
        host: &str,
        advice: &str,
        setups: [&Setup; 2],
        (cause, judge): (Cause, &Judge),
    ) -> Result<Rounds, StoreError> {
        let mut rounds = Rounds::default();
        for number in 1..=ROUNDS {
            let round = round(dir, host, advice, setups, number);
            let Ok(pair) = <[Measured; 2]>::try_from(round.read()?) else {
                rounds.next = Some(round);
                break;
            };
            rounds.results.push(pair);
            rounds.refuted = refuted(cause, &rounds.results, judge);
            if rounds.refuted.is_some() {
                break;
            }
        }
        Ok(rounds)
    }

    /// Returns the number of rounds.
    pub(super) fn len(&self) -> usize {
        self.results.len()
    }

    /// Returns the best rate with the remedy, Mbit/s; zero before the first round.
    pub(super) fn best_mbps(&self) -> f64 {
        self.results.iter().map(|[_, after]| after.evidence.total_mbps()).fold(0.0, f64::max)
    }

    /// Returns the medians without the remedy and with it; `None` before the first round.
    pub(super) fn medians(&self) -> Option<[f64; 2]> {
        let of = |at: usize| {
            median(&self.results.iter().map(|pair: &[Measured; 2]| pair[at].figure).collect::<Vec<_>>())
        };
        Some([of(0)?, of(1)?])
    }
}

/// Returns why rounds do not prove a remedy; `None` if they agree with it so far.
fn refuted(cause: Cause, rounds: &[[Measured; 2]], judge: &Judge) -> Option<String> {
    for [before, after] in rounds {
        if judge.explanation(&before.evidence).is_none() {
            return Some(format!(
                "without the change, the repeated case has {} and is not slow",
                readable(before.figure)
            ));
        }
        if cause == Cause::Loss && is_lossy(&after.evidence) {
            let again = after.evidence.retransmits();
            return Some(format!("it still retransmits {}", counted(again, "segment")));
        }
        if judge.explanation(&after.evidence).is_some() {
            return Some(match &after.evidence.exchanges {
                Some(exchanges) => {
                    format!(
                        "it still waits for timers {} % of the time",
                        readable(100.0 * exchanges.stalled_part)
                    )
                }
                None if after.evidence.total_mbps() < judge.slow_mbps => {
                    format!("it is still below {} Mbit/s", readable(judge.slow_mbps))
                }
                None => "it is still limited".to_owned(),
            });
        }
    }
    let most = rounds.iter().map(|[before, _]| before.figure).fold(0.0, f64::max);
    let least = rounds.iter().map(|[_, after]| after.figure).fold(f64::INFINITY, f64::min);
    (least < GAIN_MIN * most).then(|| "measurements without the change differ by as much".to_owned())
}

/// Returns the row and column of each slow cell that has no slow neighbour, also not across a corner.
pub(super) fn isolated(cells: &[Vec<Cell>]) -> Vec<(usize, usize)> {
    let is_slow = |row: usize, column: usize| cells[row][column].cause.is_some();
    let around = |at: usize, count: usize| at.saturating_sub(1)..(at + 2).min(count);
    let mut isolated = Vec::new();
    for (row, line) in cells.iter().enumerate() {
        for column in 0..line.len() {
            let mut near = around(row, cells.len())
                .flat_map(|row| around(column, line.len()).map(move |column| (row, column)));
            let is_alone = near.all(|near| near == (row, column) || !is_slow(near.0, near.1));
            if is_slow(row, column) && is_alone {
                isolated.push((row, column));
            }
        }
    }
    isolated
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::diagnosis::cause::tests::{stalled, stream};
    use crate::net::trial::evidence::{Evidence, Pattern};

    /// A judge of streams that are slow below 50 Mbit/s.
    const JUDGE: Judge =
        Judge { slow_mbps: 50.0, best_mbps: 100.0, predicted_mbps: 50.0, is_lossy: false, is_relative: true };

    /// A stream with this rate.
    fn at(mbps: f64) -> Measured {
        let mut evidence = stream();
        evidence.receiver.bytes = (mbps * 125_000.0) as u64;
        Measured { figure: mbps, evidence }
    }

    fn setup() -> Setup {
        Setup::new(Pattern::Stream, 6000)
    }

    #[test]
    fn only_repeated_rounds_beyond_the_spread_prove_a_remedy() {
        let pairs = |rates: &[[f64; 2]]| rates.iter().map(|pair| pair.map(at)).collect::<Vec<_>>();
        let refuted = |rates: &[[f64; 2]]| refuted(Cause::CongestionWindow, &pairs(rates), &JUDGE);
        assert_eq!(refuted(&[[20.0, 90.0], [22.0, 88.0], [19.0, 91.0]]), None);
        for (rates, expected) in [
            // One lost segment made the first measurement slow; the remedy has no part in the difference.
            (&[[85.0, 90.0]][..], "without the change, the repeated case has 85 and is not slow"),
            (&[[20.0, 90.0], [80.0, 88.0]], "without the change, the repeated case has 80 and is not slow"),
            (&[[20.0, 90.0], [21.0, 45.0]], "it is still below 50 Mbit/s"),
            (&[[20.0, 90.0], [49.0, 55.0]], "measurements without the change differ by as much"),
        ] {
            assert_eq!(refuted(rates).as_deref(), Some(expected), "{rates:?}");
        }
    }

    #[test]
    fn a_remedy_that_does_not_count_has_its_reason() {
        let of = |evidence: Evidence, figure: f64| Measured { figure, evidence };
        let mut lossy = stream();
        lossy.info.total_retrans = 1000;
        for (cause, pair, expected) in [
            (
                Cause::NagleDelayedAck,
                [of(stalled(), 23.0), of(stalled(), 23.0)],
                "it still waits for timers 100 % of the time",
            ),
            (Cause::Loss, [at(20.0), of(lossy, 100.0)], "it still retransmits 1000 segments"),
        ] {
            assert_eq!(refuted(cause, &[pair], &JUDGE).as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_round_measures_the_case_first_without_the_remedy() {
        let dir = Path::new("lab");
        for after in [
            Setup { no_delay: true, ..setup() },
            Setup { buffer_bytes: Some(100), ..setup() },
            Setup { congestion: Some("bbr".to_owned()), ..setup() },
            Setup { message_bytes: 96_000, ..setup() },
        ] {
            let first = round(dir, "h", "change", [&setup(), &after], 1);
            let points: Vec<_> =
                (0..first.plan.trials()).map(|number| first.plan.trial(number).point).collect();
            assert_eq!(points, [setup().point("h"), after.point("h")]);
            let second = round(dir, "h", "change", [&setup(), &after], 2);
            assert_eq!((first.dir.parent(), &first.plan), (second.dir.parent(), &second.plan));
            assert_ne!(first.dir, second.dir);
        }
        assert_eq!(again(dir, "h", &setup()).plan.trials(), 1);
    }

    #[test]
    fn a_slow_cell_without_slow_neighbours_is_isolated() {
        let cells = |rows: &[&str]| -> Vec<Vec<Cell>> {
            let cell = |letter| Cell { cause: (letter == 'x').then_some(Cause::Loss), ..Cell::default() };
            rows.iter().map(|row| row.chars().map(cell).collect()).collect()
        };
        assert_eq!(isolated(&cells(&["x...", "...x", "x..."])), [(0, 0), (1, 3), (2, 0)]);
        assert_eq!(isolated(&cells(&["xx..", "....", "..x.", ".x.x"])), []);
        assert_eq!(isolated(&cells(&["x"])), [(0, 0)]);
        assert_eq!(isolated(&cells(&["."])), []);
    }
}
