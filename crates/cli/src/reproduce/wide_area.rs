//! `kiban reproduce wide-area-atm`: paper \[2\].

use clap::Args;
use kiban_lab::reproduce::wide_area::{self, Effort};
use std::path::PathBuf;
use std::process::ExitCode;

/// TCP over a wide-area ATM network, 1996: delays, the throughput map, two sequences.
///
/// Two workstations of 1995 with the TCP rules of Solaris 2.3, one set of constants for all cells, beside today's
/// rules on the same workstations. Nothing leaves this machine.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  kiban reproduce wide-area-atm                   tables, maps and sequences\n  kiban reproduce wide-area-atm --csv > map.csv   the maps' cells\n  kiban reproduce wide-area-atm --svg /tmp/maps   the maps as pictures"
)]
pub(crate) struct WideArea {
    /// Print one JSON object in place of the tables.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print the maps' cells as comma-separated values in place of the tables.
    #[arg(long)]
    csv: bool,
    /// Half a second a cell in place of two, and no map of long messages.
    #[arg(long)]
    quick: bool,
    /// Write the maps into this folder, one SVG each.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

impl WideArea {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        let effort = if self.quick { Effort::QUICK } else { Effort::FULL };
        let bar = super::bar(effort.cells());
        let made = wide_area::make(effort, &|| bar.inc(1));
        bar.finish_and_clear();
        if let Some(folder) = &self.svg {
            let maps = made.maps.iter().map(|map| (map.name, map.svg()));
            super::write_pictures(made.report.paper, maps, folder)?;
        }
        crate::print(&if self.json {
            super::json(&made)?
        } else if self.csv {
            made.csv()
        } else {
            made.to_string()
        })?;
        Ok(if made.report.came_out() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
