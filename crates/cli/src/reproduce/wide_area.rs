//! `kiban reproduce wide-area-atm`: paper \[2\].

use super::output::Output;
use clap::Args;
use kiban_lab::reproduce::wide_area::{self, Effort};
use std::process::ExitCode;

/// TCP over a wide-area ATM network, 1996: delays, the throughput map, two sequences.
///
/// Two workstations of 1995 with the TCP rules of Solaris 2.3, one set of constants for all cells, beside
/// today's rules on the same workstations. Nothing leaves this machine.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  kiban reproduce wide-area-atm                   tables, maps and sequences\n  kiban reproduce wide-area-atm --csv > map.csv   the maps' cells\n  kiban reproduce wide-area-atm --svg /tmp/maps   the maps as pictures"
)]
pub(crate) struct WideArea {
    #[command(flatten)]
    output: Output,
    /// Half a second a cell in place of two, and no map of long messages.
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
