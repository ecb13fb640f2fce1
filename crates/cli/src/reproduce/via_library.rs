//! `kiban reproduce via-library`: paper \[4\].

use super::output::Output;
use clap::Args;
use kiban_lab::reproduce::via_library::{self, Effort, measured};
use std::process::ExitCode;
use std::time::Duration;

/// Waiting for packets over VI, 2000: CPU use by polling time, loss by polling time and buffer.
///
/// A process waits by the decision code that kiban ships, on a modelled host of 2000, with one set of
/// constants for all points, beside kiban's adaptive waiting. Nothing leaves this machine. With --measure,
/// the paper's tables 1 and 2 on this machine in real time.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  kiban reproduce via-library                   the tables (a minute or two)\n  kiban reproduce via-library --csv > fig.csv   the figure's points\n  kiban reproduce via-library --measure         polling and interrupts, measured now on this machine"
)]
pub(crate) struct ViaLibrary {
    #[command(flatten)]
    output: Output,
    /// Fewer packets and fewer sizes.
    #[arg(long)]
    quick: bool,
    /// Measure tables 1 and 2 on this machine, over VI through shared memory, in place of the model.
    #[arg(long, conflicts_with_all = ["csv", "svg"])]
    measure: bool,
}

impl ViaLibrary {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        if self.measure {
            let length = Duration::from_millis(if self.quick { 200 } else { 1000 });
            let tables = measured::measure(length)?;
            self.output.print(&tables, || tables.to_string())?;
            return Ok(ExitCode::SUCCESS);
        }
        let effort = if self.quick { Effort::quick() } else { Effort::full() };
        let bar = super::output::bar(effort.points());
        let made = via_library::make(&effort, &|| bar.inc(1));
        bar.finish_and_clear();
        self.output.put(&made)
    }
}
