//! The summary of a run: statistics over the trials of each point.
//!
//! Values    for each metric: the number of values, minimum, quartiles (definition 7 of Hyndman and Fan
//!           1996), median and maximum.
//! Interval  a confidence interval of the median from order statistics: the true median lies between the k-th
//!           smallest and the k-th largest of n values with the probability that n tosses of a fair coin give
//!           k to n-k heads. This holds for every continuous distribution (Conover, Practical Nonparametric
//!           Statistics, 3.2). The narrowest interval with at least 95 % is used; it requires at least six
//!           values.
//! Input     only the records. Points are sorted by their values.
//! Limits    trials are assumed to be independent. In virtual time, each seed is an independent simulation;
//!           if a question does not use its seed, all values are equal and the interval has zero width.

use crate::engine::point::{Point, Value};
use crate::engine::records::record::Record;
use crate::engine::results::words::{described, label, metric_label, shown};
use crate::stats;
use crate::table::{Table, readable};
use serde::Serialize;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// The minimum confidence of an interval.
pub const CONFIDENCE: f64 = 0.95;

/// The statistics of all points of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// The question.
    pub question: String,
    /// The version of kiban that made the records.
    pub version: String,
    /// Parameters that have more than one value, with their values in ascending order.
    pub varying: BTreeMap<String, Vec<Value>>,
    /// Parameters that have only one value.
    pub fixed: Point,
    /// The names of the metrics.
    pub metrics: BTreeSet<String>,
    /// The machines of real-time records.
    pub environments: Vec<String>,
    /// The points.
    pub rows: Vec<Row>,
}

/// The statistics of one point.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The parameter values.
    pub point: Point,
    /// The number of trials.
    pub count: usize,
    /// The number of trials with foreign load.
    pub disturbed: usize,
    /// The statistics of each metric.
    pub metrics: BTreeMap<String, Spread>,
}

/// The statistics of one metric at one point.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// The number of values.
    pub count: usize,
    /// The minimum.
    pub min: f64,
    /// The first quartile.
    pub lower_quartile: f64,
    /// The median.
    pub median: f64,
    /// The third quartile.
    pub upper_quartile: f64,
    /// The maximum.
    pub max: f64,
    /// The confidence interval of the median; `None` with fewer than six values.
    pub interval: Option<Interval>,
}

/// A confidence interval of a median.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Interval {
    /// The lower bound, which is one of the values.
    pub low: f64,
    /// The upper bound, which is one of the values.
    pub high: f64,
    /// The confidence, at least [`CONFIDENCE`].
    pub confidence: f64,
}

impl Spread {
    /// Summarizes unsorted values; returns `None` if there are none.
    pub fn of(figures: &[f64]) -> Option<Spread> {
        let sorted = stats::sorted(figures);
        let interval = rank(sorted.len()).map(|(rank, confidence)| Interval {
            low: sorted[rank - 1],
            high: sorted[sorted.len() - rank],
            confidence,
        });
        Some(Spread {
            count: sorted.len(),
            min: *sorted.first()?,
            lower_quartile: stats::quantile(&sorted, 0.25)?,
            median: stats::quantile(&sorted, 0.5)?,
            upper_quartile: stats::quantile(&sorted, 0.75)?,
            max: *sorted.last()?,
            interval,
        })
    }
}

/// Returns the highest rank (counted from 1) whose interval has at least [`CONFIDENCE`], and the confidence
/// of that interval; `None` for too few values.
///
/// The interval from rank k to rank n+1-k has the confidence 1 - 2 P(B < k), where B is binomial with
/// parameters n and 1/2.
fn rank(count: usize) -> Option<(usize, f64)> {
    let n = count as f64;
    // The logarithm of the probability of exactly k heads, because 2^-n itself underflows for n >= 1075.
    let (mut log, mut below, mut best) = (-n * std::f64::consts::LN_2, 0.0, None);
    for k in 0..count / 2 {
        below += log.exp();
        let confidence = 1.0 - 2.0 * below;
        if confidence < CONFIDENCE {
            break;
        }
        best = Some((k + 1, confidence));
        log += ((n - k as f64) / (k as f64 + 1.0)).ln();
    }
    best
}

fn order_points(one: &Point, other: &Point) -> Ordering {
    let mut pairs = one.0.iter().zip(&other.0);
    let first = pairs.find_map(|((name, one), (other_name, other))| {
        Some(name.cmp(other_name).then_with(|| one.order(other))).filter(|order| order.is_ne())
    });
    first.unwrap_or_else(|| one.0.len().cmp(&other.0.len()))
}

impl Summary {
    /// Summarizes records in any order; returns `None` if there are none.
    pub fn of(records: impl Iterator<Item = Record>) -> Option<Summary> {
        let mut records: Vec<Record> = records.collect();
        records.sort_by(|one, other| order_points(&one.point, &other.point));
        let first = records.first()?;
        let (question, version) = (first.question.clone(), first.version.clone());
        let groups = records.chunk_by(|one, other| one.point == other.point);
        let rows: Vec<Row> = groups.map(Row::of).collect();
        let mut values: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for (name, value) in rows.iter().flat_map(|row| &row.point.0) {
            let values = values.entry(name.clone()).or_default();
            if let Err(place) = values.binary_search_by(|other| other.order(value)) {
                values.insert(place, value.clone());
            }
        }
        let (varying, fixed): (BTreeMap<_, _>, BTreeMap<_, _>) =
            values.into_iter().partition(|(_, values)| values.len() > 1);
        let fixed = fixed.into_iter().filter_map(|(name, mut values)| Some((name, values.pop()?))).collect();
        let environments = records.iter().filter_map(|record| record.environment.as_ref());
        let environments: BTreeSet<String> = environments.map(|environment| environment.line()).collect();
        Some(Summary {
            question,
            version,
            varying,
            fixed,
            metrics: rows.iter().flat_map(|row| row.metrics.keys().cloned()).collect(),
            environments: environments.into_iter().collect(),
            rows,
        })
    }

    /// Returns the number of trials with foreign load.
    pub fn disturbed(&self) -> usize {
        self.rows.iter().map(|row| row.disturbed).sum()
    }

    /// Returns a text table with a row for each point and metric, and the names of the figures.
    pub fn table(&self) -> Table {
        let many = self.rows.iter().any(|row| row.count > 1);
        let heads = self
            .varying
            .keys()
            .fold(Table::new(&self.question), |table, name| table.number_column(&label(name)));
        let mut table = heads.text_column("metric").number_column("median");
        if many {
            for head in ["from", "to", "quartiles", "", "least", "most", "trials"] {
                table = table.number_column(head);
            }
        }
        let mut disturbed = false;
        for row in &self.rows {
            for (name, spread) in &row.metrics {
                let value = |name: &String| {
                    row.point.get(name).map_or(String::new(), |value| shown(&self.question, name, value))
                };
                let mut cells: Vec<String> = self.varying.keys().map(value).collect();
                let mark = if row.disturbed > 0 { " *" } else { "" };
                disturbed |= row.disturbed > 0;
                cells.extend([metric_label(&self.question, name) + mark, readable(spread.median)]);
                if many {
                    let end = |end: fn(&Interval) -> f64| {
                        spread.interval.as_ref().map_or("-".to_owned(), |interval| readable(end(interval)))
                    };
                    cells.extend([end(|interval| interval.low), end(|interval| interval.high)]);
                    let rest = [spread.lower_quartile, spread.upper_quartile, spread.min, spread.max];
                    cells.extend(rest.map(readable));
                    cells.push(spread.count.to_string());
                }
                table.row(cells);
            }
        }
        if !self.fixed.0.is_empty() {
            table.remark(format!("constant: {}", described(&self.question, &self.fixed)));
        }
        if many {
            table.remark(
                "from, to: the 95 % confidence interval of the median, which requires at least six trials.",
            );
        }
        if disturbed {
            table.remark("*: other processes disturbed every attempt of a trial.");
        }
        table
    }
}

impl Row {
    fn of(records: &[Record]) -> Row {
        let mut figures: BTreeMap<&String, Vec<f64>> = BTreeMap::new();
        for (name, figure) in records.iter().flat_map(|record| &record.metrics) {
            figures.entry(name).or_default().push(*figure);
        }
        Row {
            point: records[0].point.clone(),
            count: records.len(),
            disturbed: records.iter().filter(|record| record.foreign_cores.is_some()).count(),
            metrics: figures
                .into_iter()
                .filter_map(|(name, figures)| Some((name.clone(), Spread::of(&figures)?)))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected ranks are those for 95 % in the table of the sign test (Conover, table A3).
    #[test]
    fn an_interval_is_as_narrow_as_the_confidence_allows() {
        for (count, expected) in [
            (5, None),
            (6, Some((1, 0.96875))),
            (8, Some((1, 0.9921875))),
            (9, Some((2, 0.9609375))),
            (10, Some((2, 0.978515625))),
            (20, Some((6, 0.958610535))),
            (100, Some((40, 0.964799799))),
        ] {
            let found = rank(count);
            assert_eq!(found.map(|(rank, _)| rank), expected.map(|(rank, _)| rank), "{count}");
            if let (Some((_, found)), Some((_, expected))) = (found, expected) {
                assert!((found - expected).abs() < 1e-6, "{count}: {found}");
            }
        }
        let (rank, confidence) = rank(100_000).expect("there are enough");
        assert!(
            (49_600..49_800).contains(&rank) && (0.95..0.951).contains(&confidence),
            "{rank} {confidence}"
        );
    }

    #[test]
    fn a_summary_does_not_depend_on_the_order() {
        let figures = [9.0, 1.0, 5.0, 3.0, 7.0, 11.0];
        let spread = Spread::of(&figures).expect("there are figures");
        let interval = Interval { low: 1.0, high: 11.0, confidence: 0.96875 };
        assert_eq!((spread.count, spread.min, spread.median, spread.max), (6, 1.0, 6.0, 11.0));
        assert_eq!((spread.lower_quartile, spread.upper_quartile), (3.5, 8.5));
        let found = spread.interval.expect("six are enough");
        assert_eq!((found.low, found.high), (interval.low, interval.high));
        assert_eq!(Spread::of(&[]), None);
    }
}
