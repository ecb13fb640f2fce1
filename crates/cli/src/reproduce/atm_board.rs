//! `kiban reproduce atm-board`: paper \[1\].

use super::output::Output;
use clap::{Args, ValueEnum};
use kiban_lab::Options;
use kiban_lab::reproduce::atm_board::{self, Effort};
use kiban_lab::reproduce::mechanisms;
use kiban_sim::cost::Mechanism;
use std::process::ExitCode;

/// Reproduce the ATM board of 1995: table 2, figures 6 and 7.
///
/// kiban's board runs with a model of a 1995 processor and memory, with one set of constants for all points,
/// and for comparison without the model. Nothing leaves this machine.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban reproduce atm-board                   the verdicts\
        \n  kiban reproduce atm-board --csv > fig.csv   the figures' points\
        \n  kiban reproduce atm-board --svg /tmp/figs   the figures\
        \n  kiban reproduce atm-board --without sum     the benefit of one mechanism, then and now")]
pub(super) struct AtmBoard {
    #[command(flatten)]
    output: Output,
    /// Use shorter runs and fewer points.
    #[arg(long)]
    quick: bool,
    /// Compare with and without a mechanism of the paper, in the model and measured on this machine, instead
    /// of printing the figures. Cannot be combined with --csv or --svg.
    #[arg(long, value_name = "MECHANISM", conflicts_with_all = ["csv", "svg"])]
    without: Option<Without>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Without {
    /// Separate memories for headers and payload.
    Separation,
    /// Computing the checksum while data is copied.
    Sum,
    /// TCP window scaling.
    Scaling,
    /// Handling received data between two PDUs.
    Deferral,
    /// Chained DMA transfers.
    Chaining,
    /// All five, one after the other.
    All,
}

impl AtmBoard {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let effort = if self.quick { Effort::QUICK } else { Effort::FULL };
        if let Some(without) = self.without {
            return self.compare(without, effort);
        }
        let bar = super::output::bar(effort.points());
        let report = atm_board::report(effort, &mut || bar.inc(1));
        bar.finish_and_clear();
        self.output.put(&report)
    }

    fn compare(&self, without: Without, effort: Effort) -> Result<ExitCode, String> {
        let chosen = match without {
            Without::Separation => vec![Mechanism::Separation],
            Without::Sum => vec![Mechanism::Sum],
            Without::Scaling => vec![Mechanism::Scaling],
            Without::Deferral => vec![Mechanism::Deferral],
            Without::Chaining => vec![Mechanism::Chaining],
            Without::All => Mechanism::ALL.to_vec(),
        };
        let options = if self.quick { Options::quick() } else { Options::full() };
        let modelled = mechanisms::modelled(&chosen, effort.interval);
        let measured = mechanisms::measured(&chosen, Options { dir: None, ..options });
        let object = serde_json::json!({ "modelled": modelled, "measured": measured });
        self.output.print(&object, || {
            format!("{}\n{}", mechanisms::modelled_table(&modelled), mechanisms::measured_table(&measured))
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
