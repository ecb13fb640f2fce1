//! Precision and recall per cause.

use kiban_explain::Cause;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Counts verdicts by label; `None` is healthy.
#[derive(Default)]
pub(crate) struct Score {
    counts: BTreeMap<(Option<Cause>, Option<Cause>), usize>,
}

impl Score {
    pub(crate) fn add(&mut self, label: Option<Cause>, verdict: Option<Cause>) {
        *self.counts.entry((label, verdict)).or_default() += 1;
    }

    fn sum(&self, filter: impl Fn(Option<Cause>, Option<Cause>) -> bool) -> usize {
        self.counts
            .iter()
            .filter(|((label, verdict), _)| filter(*label, *verdict))
            .map(|(_, count)| count)
            .sum()
    }

    /// Returns precision and recall of a verdict; `None` if there are no cases.
    pub(crate) fn of(&self, one: Option<Cause>) -> (Option<f64>, Option<f64>) {
        let right = self.sum(|label, verdict| label == one && verdict == one);
        let ratio = |whole: usize| (whole > 0).then(|| right as f64 / whole as f64);
        (ratio(self.sum(|_, verdict| verdict == one)), ratio(self.sum(|label, _| label == one)))
    }
}

pub(crate) fn words(cause: Option<Cause>) -> &'static str {
    cause.map_or("healthy", Cause::words)
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<24} {:>5} {:>9} {:>6}  mistaken for", "cause", "cases", "precision", "recall")?;
        let labels: BTreeSet<Option<Cause>> = self.counts.keys().map(|(label, _)| *label).collect();
        for one in labels {
            let cases = self.sum(|label, _| label == one);
            let (precision, recall) = self.of(one);
            let show = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
            let mistakes =
                self.counts.iter().filter(|((label, verdict), _)| *label == one && *verdict != one);
            let mistakes: Vec<String> =
                mistakes.map(|((_, verdict), count)| format!("{count} {}", words(*verdict))).collect();
            let mistakes = mistakes.join(", ");
            writeln!(
                f,
                "{:<24} {cases:>5} {:>9} {:>6}  {mistakes}",
                words(one),
                show(precision),
                show(recall)
            )?;
        }
        Ok(())
    }
}
