//! `kiban lab delay`: round trips, and what distance explains of them.

use super::numbers::Numbers;
use super::peer::Key;
use crate::messages::bar;
use crate::way::Host;
use clap::Args;
use kiban_lab::net::delay::{Ask, Delays, measure};
use std::fmt;
use std::process::ExitCode;

/// Measure round trips over TCP, with percentiles, and show the part that distance explains.
///
/// A message of N bytes over L metres of fibre at B bit/s takes L/c + 8N/B one way, with c = 2.1e8 m/s.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  KIBAN_LAB_TOKEN=... kiban lab delay HOST\n  kiban lab delay HOST --distance 510 --rate 1000      510 km of fibre, 1 Gbit/s: what is left?\n  kiban lab delay NEAR FAR --sizes 1,1000,9000 --json\n\nExit status: 1 when a host cannot be measured, 2 for a mistake in the arguments."
)]
pub(crate) struct Delay {
    /// Who runs `kiban lab serve`, with the same token; port 4195 where none is given.
    #[arg(value_name = "HOST[:PORT]", required = true)]
    hosts: Vec<Host>,
    #[command(flatten)]
    key: Key,
    /// Bytes each way.
    #[arg(long, default_value = "1,100,1000,4000,9000", value_name = "LIST")]
    sizes: Numbers,
    /// Round trips of each size.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,
    /// Kilometres of fibre between.
    #[arg(long, value_name = "KM", value_parser = positive)]
    distance: Option<f64>,
    /// Mbit/s of the slowest line between; else it is fitted.
    #[arg(long, value_name = "MBPS", value_parser = positive)]
    rate: Option<f64>,
    /// Print one JSON object in place of the tables.
    #[arg(long)]
    json: bool,
    /// Show no progress bar.
    #[arg(long, short)]
    quiet: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(figure) if figure > 0.0 && figure < 1e9 => Ok(figure),
        _ => Err("say a number above 0".into()),
    }
}

#[derive(serde::Serialize)]
struct All {
    hosts: Vec<Delays>,
}

impl fmt::Display for All {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hosts.iter().try_for_each(|delays| writeln!(f, "{delays}"))
    }
}

impl Delay {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        if self.sizes.0.contains(&0) {
            return Err("a message has a byte at least: leave 0 out of --sizes".into());
        }
        let ask = Ask {
            sizes: self.sizes.0.clone(),
            count: self.count,
            distance_km: self.distance,
            rate_mbps: self.rate,
        };
        let all = self.hosts.len() as u64 * self.sizes.0.len() as u64 * u64::from(self.count);
        let bar = bar(all, self.quiet);
        let mut hosts = Vec::new();
        for host in &self.hosts {
            let session = self.key.session(host)?;
            hosts.push(measure(&session, &ask, &|| bar.inc(1)).map_err(|failure| failure.to_string())?);
        }
        bar.finish_and_clear();
        super::put(self.json, &All { hosts })?;
        Ok(ExitCode::SUCCESS)
    }
}
