//! `kiban lab serve`, `sweep`, `delay` and `trace`: measurements of real networks.

mod delay;
mod numbers;
mod output;
pub(super) mod peer;
mod serve;
mod sweep;
mod trace;

use clap::Subcommand;
use std::process::ExitCode;

/// Subcommands that measure real networks.
#[derive(Subcommand)]
pub(super) enum Net {
    Serve(serve::Serve),
    Sweep(sweep::SweepHost),
    Delay(delay::Delay),
    Trace(trace::TraceHost),
}

impl Net {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        match self {
            Net::Serve(serve) => serve.run(),
            Net::Sweep(sweep) => sweep.run(),
            Net::Delay(delay) => delay.run(),
            Net::Trace(trace) => trace.run(),
        }
    }
}
