//! `kiban reproduce rdma-nic`: paper \[3\].

use super::output::Output;
use clap::Args;
use kiban_lab::reproduce::rdma_nic;
use std::process::ExitCode;

/// The RDMA NIC of 2008: its latencies, its clocks step by step, throughput by message size.
///
/// The RNIC core that kiban ships makes and takes the segments; each step of its blocks gets the clocks of
/// the paper, one step after another and with look-ups overlapped. Nothing leaves this machine.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  kiban reproduce rdma-nic                   the tables\n  kiban reproduce rdma-nic --csv > fig.csv   the figure's points\n  kiban reproduce rdma-nic --svg /tmp/figs   the figure"
)]
pub(crate) struct RdmaNic {
    #[command(flatten)]
    output: Output,
}

impl RdmaNic {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        let made = rdma_nic::make();
        self.output.put(&made)
    }
}
