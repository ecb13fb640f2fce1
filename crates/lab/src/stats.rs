//! Order statistics of small samples.
//!
//! Medians are used because an outlier moves a mean but hardly a median. They are accompanied by minimum and
//! maximum, because with seven samples these say more than a standard deviation.

use serde::{Deserialize, Serialize};

/// Median, minimum, maximum and number of some values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The median.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// The number of values.
    pub count: usize,
}

impl Summary {
    /// Summarizes `figures`; returns `None` if there are none.
    pub fn of(figures: &[f64]) -> Option<Self> {
        let sorted = sorted(figures);
        Some(Self {
            median: quantile(&sorted, 0.5)?,
            min: *sorted.first()?,
            max: *sorted.last()?,
            count: sorted.len(),
        })
    }
}

/// Returns the median of unsorted `figures`; with an even number of values, the mean of the middle two.
pub fn median(figures: &[f64]) -> Option<f64> {
    quantile(&sorted(figures), 0.5)
}

/// Returns the quantile `q` (0 to 1) of `sorted`, interpolated linearly between neighbours.
///
/// `sorted` must be in ascending order. This is definition 7 of Hyndman and Fan (1996), the default of R and
/// NumPy.
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let place = q.clamp(0.0, 1.0) * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    Some(below + (above - below) * place.fract())
}

/// Returns the values in ascending order.
pub fn sorted(figures: &[f64]) -> Vec<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value() {
        for (figures, expected) in [
            (&[][..], None),
            (&[3.0], Some(3.0)),
            (&[4.0, 2.0], Some(3.0)),
            (&[9.0, 1.0, 5.0], Some(5.0)),
            (&[1.0, 1.0, 1.0, 1000.0], Some(1.0)),
        ] {
            assert_eq!(median(figures), expected, "{figures:?}");
        }
    }

    #[test]
    fn quantiles_are_interpolated_between_neighbours() {
        let figures = [10.0, 20.0, 30.0, 40.0, 50.0];
        for (q, expected) in [(0.0, 10.0), (0.25, 20.0), (0.9, 46.0), (1.0, 50.0), (-1.0, 10.0), (2.0, 50.0)]
        {
            assert_eq!(quantile(&figures, q), Some(expected), "{q}");
        }
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn a_summary_names_middle_ends_and_number() {
        let summary = Summary { median: 2.0, min: 1.0, max: 7.0, count: 3 };
        assert_eq!(Summary::of(&[7.0, 1.0, 2.0]), Some(summary));
        assert_eq!(Summary::of(&[]), None);
    }
}
