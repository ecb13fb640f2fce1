//! `kiban reproduce rdma-nic`: paper \[3\].

use super::output::Output;
use clap::Args;
use kiban_lab::reproduce::rdma_nic;
use std::process::ExitCode;

/// Reproduce the RDMA NIC of 2008: latencies, clock cycles of each step, throughput by message size.
///
/// kiban's RNIC core sends and receives the segments; each step takes the clock cycles that the paper gives,
/// once with sequential and once with overlapped look-ups. Nothing leaves this machine.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban reproduce rdma-nic                   the verdicts\
        \n  kiban reproduce rdma-nic --csv > fig.csv   the figure's points\
        \n  kiban reproduce rdma-nic --svg /tmp/figs   the figure")]
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
