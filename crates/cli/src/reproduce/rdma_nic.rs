//! `kiban reproduce rdma-nic`: paper \[3\].

use clap::Args;
use kiban_lab::chart;
use kiban_lab::reproduce::rdma_nic;
use std::path::PathBuf;
use std::process::ExitCode;

/// The RDMA NIC of 2008: its latencies, its clocks step by step, throughput by message size.
///
/// The RNIC core that kiban ships makes and takes the segments; each step of its blocks gets the clocks of the paper, one
/// step after another and with look-ups overlapped. Nothing leaves this machine.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  kiban reproduce rdma-nic                   the tables\n  kiban reproduce rdma-nic --csv > fig.csv   the figure's points\n  kiban reproduce rdma-nic --svg /tmp/figs   the figure"
)]
pub(crate) struct RdmaNic {
    /// Print one JSON object in place of the tables.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print the figure's points as comma-separated values in place of the tables.
    #[arg(long)]
    csv: bool,
    /// Write the figure into this folder, as SVG.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

impl RdmaNic {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        let made = rdma_nic::make();
        if let Some(folder) = &self.svg {
            let pictures = made.report.figures.iter().map(|figure| (figure.name, chart::svg_log_x(figure)));
            super::write_pictures(made.report.paper, pictures, folder)?;
        }
        crate::print(&if self.json {
            super::json(&made)?
        } else if self.csv {
            made.report.figures.iter().map(|figure| format!("# {}\n{}", figure.name, figure.csv())).collect()
        } else {
            made.to_string()
        })?;
        Ok(if made.report.came_out() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
