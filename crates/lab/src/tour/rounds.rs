//! Rounds of the rows in real time.
//!
//! Purpose  compare a transfer with what limits it (a bare TCP stream, a copy in memory) on a machine that
//!          other programs disturb.
//! Method   the limit is measured before, between and after several transfers, so that both meet the same
//!          disturbances. The row is that of the median transfer; the limit is the fastest measurement,
//!          because a disturbance only slows one down. The row has the range of both.
//! Limits   no percentage if the transfer was faster than every measurement of its limit.

use super::{Failure, ROUNDS, Row};

/// Runs the rounds. `limit` returns Mbit/s; `transfer` returns a row without a limit.
pub(super) fn run(
    limit: &mut dyn FnMut() -> Result<f64, Failure>,
    transfer: &mut dyn FnMut(u64) -> Result<Row, Failure>,
) -> Result<Row, Failure> {
    let mut limits = vec![limit()?];
    let mut rows = Vec::new();
    for round in 0..ROUNDS {
        rows.push(transfer(round)?);
        limits.push(limit()?);
    }
    Ok(median(rows, limits))
}

/// Returns the row of the median transfer, or of one that damaged the file, with the fastest of the limits.
fn median(mut rows: Vec<Row>, mut limits: Vec<f64>) -> Row {
    rows.sort_by(|one, other| one.mbps.unwrap_or(0.0).total_cmp(&other.mbps.unwrap_or(0.0)));
    limits.sort_by(f64::total_cmp);
    let mbps_range = rows[0].mbps.zip(rows[rows.len() - 1].mbps).map(<[f64; 2]>::from);
    let limit_mbps = limits[limits.len() - 1];
    let damaged = rows.iter().position(|row| !row.sha256_equal);
    let row = rows.swap_remove(damaged.unwrap_or(rows.len() / 2));
    Row {
        limit_mbps,
        limit_percent: row.mbps.map(|mbps| mbps / limit_mbps * 100.0).filter(|percent| *percent <= 100.0),
        limit_mbps_range: mbps_range.map(|_| [limits[0], limit_mbps]),
        mbps_range,
        ..row
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Payload, TRANSFERS, table, transfers};
    use super::*;

    fn rows(rates: &[f64]) -> Vec<Row> {
        let row = transfers::run(TRANSFERS[0], &Payload::generated(10), None, &mut |_| {}).expect("it ends");
        rates.iter().map(|mbps| Row { mbps: Some(*mbps), clock: "real", ..row.clone() }).collect()
    }

    #[test]
    fn a_percentage_never_exceeds_a_hundred() {
        for (rates, limits, percent) in [
            // One limit was measured while another program ran.
            ([70.0, 90.0, 80.0], [60.0, 100.0, 95.0, 90.0], Some(80.0)),
            ([80.0, 80.0, 80.0], [80.0, 80.0, 80.0, 80.0], Some(100.0)),
            ([113.9, 113.8, 99.0], [100.0, 90.0, 95.0, 90.0], None),
        ] {
            let row = median(rows(&rates), limits.to_vec());
            assert_eq!(row.limit_percent, percent, "{rates:?} {limits:?}");
            let ends = |values: &[f64]| {
                Some([
                    values.iter().copied().fold(f64::MAX, f64::min),
                    values.iter().copied().fold(0.0, f64::max),
                ])
            };
            assert_eq!((row.mbps_range, row.limit_mbps_range), (ends(&rates), ends(&limits)));
            let text = table(&[row]).to_string().split_whitespace().collect::<Vec<_>>().join(" ");
            let [low, high] = ends(&rates).expect("there are rates");
            let figure = crate::table::figure;
            let spread = format!("{} to {} Mbit/s in 3 transfers", figure(low), figure(high));
            assert!(text.contains(&spread), "{text}");
            assert_eq!(text.contains("no percentage"), percent.is_none(), "{text}");
        }
    }

    #[test]
    fn a_damaged_file_is_reported_however_fast_it_was() {
        let mut all = rows(&[70.0, 80.0, 90.0]);
        all[0].sha256_equal = false;
        assert!(!median(all, vec![100.0; 4]).sha256_equal);
    }
}
