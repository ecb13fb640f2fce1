//! `kiban vi tune`: chooses the wait policy and the receive buffer on this machine.

use crate::nic::messages::bar;
use clap::{Args, ValueEnum};
use kiban_lab::tune::{self, Plan, plan::Link};
use std::env::current_exe;
use std::process::{Command, ExitCode};

/// The argument by which the receiving process knows its task.
const RECEIVER: &str = "tune-receiver";

/// Measure loss and CPU use on this machine, and recommend a wait policy and a number of descriptors.
///
/// Another process receives messages of 1 to 65 KB at 62.5 MB/s with unreliable delivery, over shared memory
/// and UDP, while a thread computes on the same processor. As the paper did (Murayama et al. 2000), the
/// measurement varies the wait policy and the receive buffer. The tables show the paper's values beside this
/// machine's. A full run takes about seven minutes, --quick fifteen seconds; nothing leaves this machine.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban vi tune                    all policies, sizes and buffers\
        \n  kiban vi tune --quick            a first impression\
        \n  kiban vi tune --link udp --json  every cell over UDP, for scripts")]
pub(super) struct Tune {
    /// Use fewer and shorter measurements.
    #[arg(long)]
    quick: bool,
    /// Measure only this link.
    #[arg(long, value_enum)]
    link: Option<Choice>,
    /// Leave out the computing thread beside the receiver.
    #[arg(long)]
    without_workload: bool,
    /// Print one JSON object instead of the tables.
    #[arg(long)]
    json: bool,
    /// Do not show a progress bar.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Choice {
    /// Shared memory.
    Shm,
    /// UDP through the loopback.
    Udp,
}

impl Tune {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let mut plan = if self.quick { Plan::quick() } else { Plan::full() };
        plan.workload = !self.without_workload;
        match self.link {
            Some(Choice::Shm) => plan.links = vec![Link::Shm],
            Some(Choice::Udp) => plan.links = vec![Link::Udp],
            None => {}
        }
        let own = current_exe().map_err(|error| format!("cannot find the path of this program: {error}"))?;
        let mut receiver = Command::new(own);
        receiver.args(["vi", RECEIVER]);
        let bar = bar(plan.cells().len() as u64, self.quiet);
        let tuned = tune::measure(&plan, receiver, &mut || bar.inc(1));
        bar.finish_and_clear();
        let tuned = tuned?;
        let text = if self.json { crate::output::json(&tuned)? } else { tuned.to_string() };
        crate::output::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Receives for `kiban vi tune` in another process.
pub(super) fn receive() -> Result<ExitCode, String> {
    tune::receiver::serve(std::io::stdin().lock(), std::io::stdout().lock())?;
    Ok(ExitCode::SUCCESS)
}
