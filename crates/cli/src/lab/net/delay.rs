//! `kiban lab delay`: measures round-trip times and the share that is due to distance.

use super::numbers::Numbers;
use super::peer::TokenArgs;
use crate::nic::messages::bar;
use crate::osi::peer::Host;
use clap::Args;
use kiban_lab::net::delay::{DelayRequest, Delays, measure};
use std::fmt;
use std::process::ExitCode;

/// Measure TCP round trips with percentiles, and compare them with the propagation delay.
///
/// A message of N bytes over L metres of fibre at B bit/s takes L/c + 8N/B one way, with c = 2.1e8 m/s. If B
/// is not given, it is fitted to round trips of up to 1 MiB.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  KIBAN_LAB_TOKEN=... kiban lab delay HOST\
        \n  kiban lab delay HOST --distance 510 --rate 1000      subtract 510 km of fibre at 1 Gbit/s\
        \n  kiban lab delay 10.9.0.1 --board lab                  over the TCP of the running board lab\
        \n  kiban lab delay NEAR FAR --sizes 1,1000,9000 --json\
        \n\nExit status: 0 if all hosts were measured, 1 otherwise, 2 for invalid arguments.")]
pub(crate) struct Delay {
    /// Hosts that run `kiban lab serve` with the same token [default port: 4195].
    #[arg(value_name = "HOST[:PORT]", required = true)]
    hosts: Vec<Host>,
    #[command(flatten)]
    key: TokenArgs,
    /// Use the TCP of this running board (`kiban up`, with a service of kind "attach") instead of the host's.
    #[arg(long, value_name = "NAME")]
    board: Option<String>,
    /// Message sizes in each direction, in bytes.
    #[arg(long, default_value = "1,100,1000,4000,9000", value_name = "LIST")]
    sizes: Numbers,
    /// Number of round trips of each size.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,
    /// L, the length of the fibre in kilometres.
    #[arg(long, value_name = "KM", value_parser = positive)]
    distance: Option<f64>,
    /// B, the rate of the slowest link in Mbit/s [default: fitted to the measurements].
    #[arg(long, value_name = "MBPS", value_parser = positive)]
    rate: Option<f64>,
    /// Print one JSON object instead of the tables.
    #[arg(long)]
    json: bool,
    /// Do not show a progress bar.
    #[arg(long, short)]
    quiet: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(figure) if figure > 0.0 && figure < 1e9 => Ok(figure),
        _ => Err("must be a number above 0".into()),
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
            return Err("a message has at least 1 byte: remove 0 from --sizes".into());
        }
        let ask = DelayRequest {
            sizes: self.sizes.0.clone(),
            count: self.count,
            distance_km: self.distance,
            rate_mbps: self.rate,
        };
        let all = self.hosts.len() as u64 * self.sizes.0.len() as u64 * u64::from(self.count);
        let bar = bar(all, self.quiet);
        let mut hosts = Vec::new();
        for host in &self.hosts {
            let session = self.key.session(host, self.board.as_deref())?;
            hosts.push(measure(&session, &ask, &|| bar.inc(1)).map_err(|failure| failure.to_string())?);
        }
        bar.finish_and_clear();
        super::output::put(self.json, &All { hosts })?;
        Ok(ExitCode::SUCCESS)
    }
}
