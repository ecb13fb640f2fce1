//! `kiban lab latency`: measures round trips while connections fill the path, and grades them.

use super::peer::TokenArgs;
use crate::osi::peer::Host;
use crate::output::note;
use clap::Args;
use kiban_lab::engine::store::write_atomically;
use kiban_lab::net::latency::{LatencyRequest, measure};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Measure latency under load in each direction, and grade it.
///
/// Probes measure round trips on the idle path, and while TCP connections fill it: to the host, from it, and
/// in both directions at once. The grade depends on the increase of the median round trip: A+ below 5 ms,
/// A below 30, B below 60, C below 200, D below 400, F from 400 ms on.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  KIBAN_LAB_TOKEN=... kiban lab latency HOST\
        \n  kiban lab latency HOST -P 8 --seconds 20             eight connections in each direction\
        \n  kiban lab latency HOST --html latency.html           also a page with the round trips over time\
        \n  kiban lab latency HOST --json | jq .grade\
        \n\nExit status: 0 if the path was measured, 1 otherwise, 2 for invalid arguments.")]
pub(crate) struct Latency {
    /// Host that runs `kiban lab serve` [default port: 4195].
    #[arg(value_name = "HOST[:PORT]")]
    host: Host,
    #[command(flatten)]
    key: TokenArgs,
    /// Number of TCP connections in each loaded direction.
    #[arg(long, short = 'P', default_value_t = 4, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=16))]
    parallel: u16,
    /// Duration of each of the three loads, in seconds; the idle path is measured for half as long, but
    /// at least for 5 seconds.
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS", value_parser = seconds)]
    seconds: f64,
    /// Write a page with the figures and curves to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
    /// Do not show the progress.
    #[arg(long, short)]
    quiet: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    checked_seconds(text.parse().unwrap_or(f64::NAN))
}

/// Returns the duration of a load if it is valid.
pub(super) fn checked_seconds(seconds: f64) -> Result<f64, String> {
    if (2.0..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("must be 2 to 3600".into()) }
}

impl Latency {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let mut client = self.key.client(&self.host)?;
        let request =
            LatencyRequest { connections: self.parallel, length: Duration::from_secs_f64(self.seconds) };
        let bar = super::output::spinner(self.quiet);
        let command = super::output::command(&self.host);
        let latency = measure(&mut client, &self.host.name, &request, &command, &|load| {
            bar.set_message(load.name());
        });
        bar.finish_and_clear();
        let latency = latency.map_err(|failure| failure.to_string())?;
        if let Some(page) = &self.html {
            let command = format!(
                "kiban lab latency {} -P {} --seconds {} --html {}",
                self.host,
                self.parallel,
                self.seconds,
                page.display()
            );
            write_atomically(page, latency.html(&command).as_bytes()).map_err(|error| error.to_string())?;
        }
        super::output::put(self.json, &latency)?;
        if let Some(page) = self.html.filter(|_| !self.quiet) {
            note!("wrote {}", page.display());
        }
        Ok(ExitCode::SUCCESS)
    }
}
