//! `kiban reproduce wide-area-atm`: paper \[2\].

use super::output::Output;
use clap::Args;
use kiban_lab::reproduce::wide_area::{self, Effort};
use std::process::ExitCode;

/// Reproduce TCP over a wide-area ATM network (1996): delays, the throughput map, two packet sequences.
///
/// Models two workstations of 1995 with the TCP of Solaris 2.3 and one set of constants for all cells of the
/// map, and compares them with today's TCP on the same workstations. Takes a few minutes of processor time;
/// with --quick, less than half a minute. Nothing leaves this machine.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban reproduce wide-area-atm                   the verdicts (a few minutes)\
        \n  kiban reproduce wide-area-atm --quick           shorter runs (less than half a minute)\
        \n  kiban reproduce wide-area-atm --csv > map.csv   every point of the maps\
        \n  kiban reproduce wide-area-atm --svg /tmp/maps   the maps as SVG images")]
pub(crate) struct WideArea {
    #[command(flatten)]
    output: Output,
    /// Run half a second per cell instead of two, without the map of long messages.
    #[arg(long)]
    quick: bool,
}

impl WideArea {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        let effort = if self.quick { Effort::QUICK } else { Effort::FULL };
        let bar = super::output::bar(effort.cells());
        let made = wide_area::make(effort, &|| bar.inc(1));
        bar.finish_and_clear();
        self.output.put(&made)
    }
}
