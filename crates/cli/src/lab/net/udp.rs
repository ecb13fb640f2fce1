//! `kiban lab udp`: one-way delays, jitter, losses and reordering of datagrams.

use super::peer::TokenArgs;
use crate::lab::rtp::{interval, length};
use crate::osi::peer::Host;
use clap::Args;
use kiban_lab::net::udp::{SIZES, UdpRequest, measure};
use std::process::ExitCode;
use std::time::Duration;

/// Measure one-way delay, jitter, loss and reordering of UDP datagrams in each direction.
///
/// The host returns each datagram. The offset between the clocks of both hosts is estimated from the shortest
/// delays and shown with its uncertainty.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  KIBAN_LAB_TOKEN=... kiban lab udp HOST               50 datagrams a second for ten seconds\
        \n  kiban lab udp HOST --interval 1ms --bytes 1200       9.6 Mbit/s in each direction\
        \n  kiban lab udp HOST --time 1m --json\
        \n\nExit status: 0 if datagrams returned, 1 otherwise, 2 for invalid arguments.")]
pub(crate) struct Udp {
    /// Host that runs `kiban lab serve` [default port: 4195].
    #[arg(value_name = "HOST[:PORT]")]
    host: Host,
    #[command(flatten)]
    key: TokenArgs,
    /// Payload of each datagram, in bytes; it is never fragmented.
    #[arg(long, default_value_t = 160, value_name = "BYTES", value_parser = bytes)]
    bytes: usize,
    /// Time between two datagrams.
    #[arg(long, default_value = "20ms", value_name = "TIME", value_parser = interval)]
    interval: Duration,
    /// How long to send.
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = length)]
    time: Duration,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

fn bytes(text: &str) -> Result<usize, String> {
    let bytes = text.parse().ok().filter(|bytes| SIZES.contains(bytes));
    bytes.ok_or_else(|| format!("must be {} to {}", SIZES.start(), SIZES.end()))
}

impl Udp {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let mut client = self.key.client(&self.host)?;
        let request = UdpRequest { bytes: self.bytes, interval: self.interval, length: self.time };
        let report = measure(&mut client, &self.host.name, &request, &super::output::command(&self.host))
            .map_err(|failure| failure.to_string())?;
        super::output::put(self.json, &report)?;
        Ok(ExitCode::SUCCESS)
    }
}
