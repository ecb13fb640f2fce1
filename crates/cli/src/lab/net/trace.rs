//! `kiban lab trace`: shows a slow and a fast case as sequence diagrams.

use super::peer::TokenArgs;
use super::sweep::{Nagle, PatternName, patterns, seconds};
use crate::osi::peer::Host;
use clap::Args;
use kiban_lab::net::SlowBelow;
use kiban_lab::net::setup::Setup;
use kiban_lab::net::trace::Trace;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show the packets of a slow and a fast case as sequence diagrams.
///
/// The given case is captured; if it is slow, it is captured again with the first remedy applied. Needs
/// CAP_NET_RAW.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  KIBAN_LAB_TOKEN=... kiban lab trace HOST --message 1000 --buffer 16000\
        \n  kiban lab trace HOST --message 1000 --svg pictures --pcap captures\
        \n  kiban lab trace HOST --message 1000 --both-directions   also with messages from HOST\
        \n  kiban lab trace HOST --message 4400 --buffer 9500 --pattern stream --json\
        \n\nExit status: 0 if packets were captured, 1 if the host is unreachable or the capture failed, 2 for invalid arguments.")]
pub(crate) struct TraceHost {
    /// Host that runs `kiban lab serve` [default port: 4195].
    #[arg(value_name = "HOST[:PORT]")]
    host: Host,
    #[command(flatten)]
    key: TokenArgs,
    /// Size of a message in bytes.
    #[arg(long, default_value_t = 1000, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=16 << 20))]
    message: u32,
    /// Socket buffer sizes at both ends, in bytes; 0 keeps the system's default.
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    buffer: u32,
    /// Write pattern.
    #[arg(long, value_enum, default_value = "write-write-read")]
    pattern: PatternName,
    /// Trace the pattern in both directions; the names of cases from the server begin with 'back-'.
    #[arg(long)]
    both_directions: bool,
    /// Rate below which a stream is slow, such as 10Mbit/s [default: none; three stalls make it slow].
    #[arg(long, value_name = "RATE")]
    slow_below: Option<SlowBelow>,
    /// Nagle's algorithm.
    #[arg(long, value_enum, default_value = "on")]
    nagle: Nagle,
    /// MSS in bytes; 0 uses the path's.
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    mss: u32,
    /// Congestion control algorithm [default: the system's].
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Duration of each capture, in seconds.
    #[arg(long, default_value_t = 0.3, value_name = "SECONDS", value_parser = seconds)]
    seconds: f64,
    /// Write the diagrams into this directory, one SVG each.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Write the captures into this directory, one pcap file each.
    #[arg(long, value_name = "DIR")]
    pcap: Option<PathBuf>,
    /// Print one JSON object instead of the diagrams.
    #[arg(long)]
    json: bool,
}

impl TraceHost {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let some = |bytes: u32| (bytes > 0).then_some(bytes);
        let setup = Setup {
            buffer_bytes: some(self.buffer),
            no_delay: self.nagle.no_delay(),
            mss_bytes: some(self.mss),
            congestion: self.congestion.clone(),
            seconds: self.seconds,
            ..Setup::new(self.pattern.pattern(), self.message)
        };
        let session = self.key.session(&self.host, None)?;
        let patterns = patterns(&[self.pattern], self.both_directions);
        let trace = Trace::of(&session, &setup, &patterns, self.slow_below.unwrap_or_default())
            .map_err(|failure| failure.to_string())?;
        let cases = || trace.cases.iter();
        if let Some(folder) = &self.svg {
            let files: Vec<_> =
                cases().map(|case| (format!("{}.svg", case.name), case.svg().into_bytes())).collect();
            super::output::write(folder, &files)?;
        }
        if let Some(folder) = &self.pcap {
            let files: Vec<_> = cases().map(|case| (format!("{}.pcap", case.name), case.pcap())).collect();
            super::output::write(folder, &files)?;
        }
        super::output::put(self.json, &trace)?;
        Ok(ExitCode::SUCCESS)
    }
}
