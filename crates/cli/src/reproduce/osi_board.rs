//! `kiban reproduce osi-board`: paper \[5\].

use super::output::Output;
use clap::Args;
use kiban_lab::reproduce::osi_board::measured::{self, Plan};
use kiban_lab::reproduce::osi_board::{self, Effort};
use std::process::ExitCode;

/// Reproduce the OSI 7-layer board of 1992: file transfer by F-DATA and TPDU size, time of each task.
///
/// kiban's board runs with a model of a 1992 processor and lower module, with one set of constants for all
/// points. For comparison, the same stack is measured on this machine. Nothing leaves this machine.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban reproduce osi-board                   the tables\
        \n  kiban reproduce osi-board --csv > fig.csv   the figures' points\
        \n  kiban reproduce osi-board --svg /tmp/figs   the figures")]
pub(crate) struct OsiBoard {
    #[command(flatten)]
    output: Output,
    /// Use fewer points and shorter measurements.
    #[arg(long)]
    quick: bool,
}

impl OsiBoard {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        let (effort, plan) = match self.quick {
            true => (Effort::QUICK, Plan::QUICK),
            false => (Effort::FULL, Plan::FULL),
        };
        let bar = super::output::bar(effort.points());
        let mut made = osi_board::make(effort, &mut || bar.inc(1));
        bar.finish_and_clear();
        if !self.output.csv {
            made.measured = measured::measure(plan);
        }
        self.output.put(&made)
    }
}
