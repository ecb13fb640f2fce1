//! `kiban reproduce via-library`: paper \[4\].

use super::output::Output;
use clap::Args;
use kiban_lab::reproduce::via_library::{self, Effort, measured};
use std::process::ExitCode;
use std::time::Duration;

/// Reproduce waiting for packets over VI (2000): CPU use and loss by polling time and buffer size.
///
/// kiban's waiting code runs on a model of a host from 2000, with one set of constants for all points, and is
/// compared with kiban's adaptive waiting. Nothing leaves this machine. --measure instead measures the
/// paper's tables 1 and 2 on this machine.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban reproduce via-library                   the verdicts (a minute or two)\
        \n  kiban reproduce via-library --csv > fig.csv   the figure's points\
        \n  kiban reproduce via-library --measure         polling and interrupts, measured now on this machine")]
pub(crate) struct ViaLibrary {
    #[command(flatten)]
    output: Output,
    /// Use fewer packets and sizes.
    #[arg(long)]
    quick: bool,
    /// Measure tables 1 and 2 on this machine, over VI through shared memory, instead of the model.
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
