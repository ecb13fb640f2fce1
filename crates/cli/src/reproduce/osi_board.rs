//! `kiban reproduce osi-board`: paper \[5\].

use super::output::Output;
use clap::{Args, ValueEnum};
use kiban_lab::Options;
use kiban_lab::reproduce::osi_board::measured::{self, Plan};
use kiban_lab::reproduce::osi_board::{self, Effort, mechanisms};
use kiban_sim::osi::Mechanism;
use std::process::ExitCode;

/// Reproduce the OSI 7-layer board of 1992: file transfer by F-DATA and TPDU size, time of each task.
///
/// kiban's board runs with a model of a 1992 processor and lower module, with one set of constants for all
/// points. For comparison, the same stack is measured on this machine. Nothing leaves this machine.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban reproduce osi-board                   the verdicts\
        \n  kiban reproduce osi-board --csv > fig.csv   the figures' points\
        \n  kiban reproduce osi-board --svg /tmp/figs   the figures\
        \n  kiban reproduce osi-board --without no-copy the benefit of one mechanism, then and now\
        \n\nOther sizes, windows and lines: kiban lab questions osi-board")]
pub(crate) struct OsiBoard {
    #[command(flatten)]
    output: Output,
    /// Use fewer points and shorter measurements.
    #[arg(long)]
    quick: bool,
    /// Instead of printing the figures, compare the board with and without a mechanism of the paper, in the
    /// model and measured on this machine. Cannot be combined with --csv or --svg.
    #[arg(long, value_name = "MECHANISM", conflicts_with_all = ["csv", "svg"])]
    without: Option<Without>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Without {
    /// Building and parsing PDUs without copying user data.
    NoCopy,
    /// Service primitives as structures with pointers. Modelled only.
    Primitives,
    /// Buffers that tasks share.
    SharedBuffers,
    /// All three, one after the other.
    All,
}

impl OsiBoard {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        if let Some(without) = self.without {
            return self.compare(without);
        }
        let (effort, plan) = match self.quick {
            true => (Effort::QUICK, Plan::QUICK),
            false => (Effort::FULL, Plan::FULL),
        };
        let bar = super::output::bar(effort.points());
        let mut made = osi_board::make(effort, &mut || bar.inc(1));
        bar.finish_and_clear();
        if self.output.shows_values() {
            made.measured = measured::measure(plan);
        }
        self.output.put(&made)
    }

    fn compare(&self, without: Without) -> Result<ExitCode, String> {
        let chosen = match without {
            Without::NoCopy => vec![Mechanism::NoCopy],
            Without::Primitives => vec![Mechanism::Primitives],
            Without::SharedBuffers => vec![Mechanism::SharedBuffers],
            Without::All => Mechanism::ALL.to_vec(),
        };
        let options = if self.quick { Options::quick() } else { Options::full() };
        let modelled = mechanisms::modelled(&chosen);
        let measured = mechanisms::measured(&chosen, Options { dir: None, ..options });
        let object = serde_json::json!({ "modelled": modelled, "measured": measured });
        self.output.print(&object, || match measured.is_empty() {
            true => mechanisms::modelled_table(&modelled).to_string(),
            false => format!(
                "{}\n{}",
                mechanisms::modelled_table(&modelled),
                mechanisms::measured_table(&measured)
            ),
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
