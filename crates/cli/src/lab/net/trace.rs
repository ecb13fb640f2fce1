//! `kiban lab trace`: a slow and a fast case as a sequence diagram.

use super::peer::Key;
use super::sweep::{Nagle, PatternName, seconds};
use crate::way::Host;
use clap::Args;
use kiban_lab::net::setup::Setup;
use kiban_lab::net::trace::Trace;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show what goes over the network, packet by packet, in a slow case and in a fast one.
///
/// The case that is asked for is captured; if it is slow, also with what removes that. It needs CAP_NET_RAW.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  KIBAN_LAB_TOKEN=... kiban lab trace HOST --message 1000 --buffer 16000\n  kiban lab trace HOST --message 1000 --svg pictures --pcap captures\n  kiban lab trace HOST --message 4400 --buffer 9500 --pattern stream --json\n\nExit status: 0 when there are packets to show, 1 when the host or the capture is out of reach, 2 for a mistake in the arguments."
)]
pub(crate) struct TraceHost {
    /// Who runs `kiban lab serve`; port 4195 where none is given.
    #[arg(value_name = "HOST[:PORT]")]
    host: Host,
    #[command(flatten)]
    key: Key,
    /// Bytes of a message.
    #[arg(long, default_value_t = 1000, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=16 << 20))]
    message: u32,
    /// Socket buffers at both ends, bytes; 0: as the system has them.
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    buffer: u32,
    /// How to write.
    #[arg(long, value_enum, default_value = "write-write-read")]
    pattern: PatternName,
    /// Nagle's algorithm.
    #[arg(long, value_enum, default_value = "on")]
    nagle: Nagle,
    /// MSS, bytes; 0: the path's.
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    mss: u32,
    /// Congestion control; by default the system's.
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// How long each case is captured.
    #[arg(long, default_value_t = 0.3, value_name = "SECONDS", value_parser = seconds)]
    seconds: f64,
    /// Write the diagrams into this folder, one SVG each.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Write the captures into this folder, one pcap file each.
    #[arg(long, value_name = "DIR")]
    pcap: Option<PathBuf>,
    /// Print one JSON object in place of the diagrams.
    #[arg(long)]
    json: bool,
}

impl TraceHost {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let some = |bytes: u32| (bytes > 0).then_some(bytes);
        let setup = Setup {
            pattern: self.pattern.pattern(),
            message_bytes: self.message,
            buffer_bytes: some(self.buffer),
            no_delay: self.nagle.no_delay(),
            mss_bytes: some(self.mss),
            congestion: self.congestion.clone(),
            seconds: self.seconds,
        };
        let session = self.key.session(&self.host)?;
        let trace = Trace::of(&session, &setup).map_err(|failure| failure.to_string())?;
        let cases = || trace.cases.iter();
        if let Some(folder) = &self.svg {
            let files: Vec<_> =
                cases().map(|case| (format!("{}.svg", case.name), case.svg().into_bytes())).collect();
            super::write(folder, &files)?;
        }
        if let Some(folder) = &self.pcap {
            let files: Vec<_> = cases().map(|case| (format!("{}.pcap", case.name), case.pcap())).collect();
            super::write(folder, &files)?;
        }
        super::put(self.json, &trace)?;
        Ok(ExitCode::SUCCESS)
    }
}
