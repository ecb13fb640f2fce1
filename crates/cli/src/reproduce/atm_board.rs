//! `kiban reproduce atm-board`.

use super::output::Output;
use clap::{Args, ValueEnum};
use kiban_lab::Options;
use kiban_lab::reproduce::atm_board::{self, Effort};
use kiban_lab::reproduce::mechanisms;
use kiban_sim::cost::Mechanism;
use std::process::ExitCode;

/// The ATM board of 1995: its table 2, figure 6 and figure 7.
///
/// The board that kiban ships runs under a modelled processor and memory of 1995, with one set of constants
/// for all points, and beside it as it is today. Nothing leaves this machine.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  kiban reproduce atm-board                   the tables\n  kiban reproduce atm-board --csv > fig.csv   the figures' points\n  kiban reproduce atm-board --svg /tmp/figs   the figures\n  kiban reproduce atm-board --without sum     what one of the paper's mechanisms was worth, and is here"
)]
pub(super) struct AtmBoard {
    #[command(flatten)]
    output: Output,
    /// Shorter runs and fewer points.
    #[arg(long)]
    quick: bool,
    /// Compare with and without a mechanism of the paper, modelled and as measured now on this machine, in
    /// place of the figures; there are no points to write then, so it goes with --json and --quick, but
    /// neither with --csv nor with --svg.
    #[arg(long, value_name = "MECHANISM", conflicts_with_all = ["csv", "svg"])]
    without: Option<Without>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Without {
    /// Headers and contents in memories of their own.
    Separation,
    /// The checksum formed while data move.
    Sum,
    /// Window scaling.
    Scaling,
    /// What arrives is handled between two PDUs.
    Deferral,
    /// Transfers in chains.
    Chaining,
    /// Each of the five.
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
