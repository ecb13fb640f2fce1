//! `kiban lab check`: looks for path MTU black holes, removed ECN marks and forged resets.

use super::peer::TokenArgs;
use crate::osi::peer::Host;
use clap::Args;
use kiban_lab::net::check::{CheckRequest, check};
use std::process::ExitCode;
use std::time::Duration;

/// Check a path for faults: path MTU black holes, ECN bleaching, and devices that reset connections.
///
/// A fault is named only with its evidence: for example, that all packets above some length vanish while
/// shorter ones arrive, and that no ICMP message came. Losses that do not depend on the length are not
/// measured: 'kiban lab udp' does that.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  KIBAN_LAB_TOKEN=... kiban lab check HOST\
        \n  kiban lab check HOST --idle 40                       a pause of 40 s within a connection\
        \n  kiban lab check HOST --json | jq .findings\
        \n\nExit status: 0 if the path was checked, 1 if not or, with --strict, if a fault was found, 2 for invalid arguments.")]
pub(crate) struct Check {
    /// Host that runs `kiban lab serve` [default port: 4195].
    #[arg(value_name = "HOST[:PORT]")]
    host: Host,
    #[command(flatten)]
    key: TokenArgs,
    /// How long a connection pauses before it is used again, in seconds.
    #[arg(long, default_value_t = 2, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(0..=3500))]
    idle: u16,
    /// Exit with status 1 if a fault was found.
    #[arg(long)]
    strict: bool,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
    /// Do not show the progress.
    #[arg(long, short)]
    quiet: bool,
}

impl Check {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let mut client = self.key.client(&self.host)?;
        let request = CheckRequest { idle: Duration::from_secs(self.idle.into()) };
        let bar = super::output::spinner(self.quiet);
        let command = super::output::command(&self.host);
        let report = check(&mut client, &self.host.name, &request, &command, &|what| bar.set_message(what));
        bar.finish_and_clear();
        let report = report.map_err(|failure| failure.to_string())?;
        super::output::put(self.json, &report)?;
        Ok(if self.strict && !report.findings.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}
