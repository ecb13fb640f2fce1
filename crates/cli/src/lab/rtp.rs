//! `kiban lab rtp`: streams with reports for each of them.

use crate::board::control::time_or_seconds;
use crate::osi::peer::{Host, cannot_listen};
use crate::output::note;
use clap::{Args, Subcommand};
use kiban_lab::rtp::Stream;
use kiban_lab::rtp::boards::{self, Plan};
use kiban_lab::rtp::receive::Receiver;
use kiban_lab::rtp::send::{SendRequest, send};
use kiban_sim::ImpairmentConfig;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The usual port of RTP (RFC 3551 §8).
const PORT: u16 = 5004;

/// Send and receive RTP streams, and report losses, reordering and jitter of each stream.
///
/// 'receive' runs on one host and 'send' on another; both exchange RTCP reports (RFC 3550). 'boards' runs
/// both on two simulated boards, over a cable whose losses and delays are known.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban lab rtp receive                            on one host\
        \n  kiban lab rtp send HOST --streams 4              on the other: four streams of PCMU audio\
        \n  kiban lab rtp receive --board lab                on the UDP of a running board (service \"sockets\")\
        \n  kiban lab rtp boards --loss 0.01 --jitter 5ms    on two simulated boards")]
pub(super) struct Rtp {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Send(Send),
    Receive(Receive),
    Boards(Boards),
}

impl Rtp {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        match self.verb {
            Verb::Send(send) => send.run(),
            Verb::Receive(receive) => receive.run(),
            Verb::Boards(boards) => boards.run(),
        }
    }
}

/// The packets of a stream.
#[derive(Args)]
struct StreamArgs {
    /// Payload type; 0 is PCMU audio (RFC 3551).
    #[arg(long, value_name = "TYPE", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=127))]
    payload_type: u8,
    /// Frequency of the payload's clock, in Hz; must be the same at both ends.
    #[arg(long, value_name = "HZ", default_value_t = 8000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    clock: u32,
    /// Payload of each packet, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 160, value_parser = clap::value_parser!(u16).range(1..=65_000))]
    payload: u16,
    /// Time between two packets.
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = interval)]
    interval: Duration,
    /// Number of streams.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    streams: u16,
}

impl StreamArgs {
    fn stream(&self) -> Stream {
        Stream {
            payload_type: self.payload_type,
            clock_hz: self.clock,
            payload_bytes: self.payload.into(),
            interval: self.interval,
        }
    }
}

pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let time = time_or_seconds(text)?;
    let allowed = Duration::from_micros(10)..=Duration::from_secs(10);
    if allowed.contains(&time) { Ok(time) } else { Err("must be from 10us to 10s".into()) }
}

pub(super) fn length(text: &str) -> Result<Duration, String> {
    let time = time_or_seconds(text)?;
    let allowed = Duration::from_millis(10)..=Duration::from_secs(24 * 3600);
    if allowed.contains(&time) { Ok(time) } else { Err("must be from 10ms to 24h".into()) }
}

/// Send RTP streams to a host that runs 'kiban lab rtp receive', or any other receiver.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban lab rtp send HOST                          PCMU audio for ten seconds\
        \n  kiban lab rtp send HOST:6000 --streams 8 --time 1min\
        \n  kiban lab rtp send 10.9.0.1 --board lab          from the running board `lab`\
        \n  kiban lab rtp send HOST --payload-type 96 --clock 90000 --payload 1200 --interval 2ms\
        \n\nExit status: 0 if everything was sent, 1 on an error, 2 for invalid arguments.")]
struct Send {
    /// Receiver [default port: 5004]. RTCP uses the next port.
    #[arg(value_name = "HOST[:PORT]")]
    host: Host,
    #[command(flatten)]
    stream: StreamArgs,
    /// Send from the running board NAME, whose configuration has a service of kind `sockets`, instead of from
    /// this host.
    #[arg(long, value_name = "NAME")]
    board: Option<String>,
    /// How long to send.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = length)]
    time: Duration,
    /// Canonical name in RTCP.
    #[arg(long, default_value = "kiban")]
    name: String,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

impl Send {
    fn run(self) -> Result<ExitCode, String> {
        let port = self.host.port.unwrap_or(PORT);
        if port == u16::MAX {
            return Err("RTP needs a port below 65535, because RTCP uses the next one".into());
        }
        let found = (self.host.name.as_str(), port).to_socket_addrs();
        let found = found.map_err(|error| format!("{}: {error}", self.host.name))?.next();
        let request = SendRequest {
            to: found.ok_or_else(|| format!("{} has no address", self.host.name))?,
            board: self.board,
            stream: self.stream.stream(),
            streams: self.stream.streams.into(),
            length: self.time,
            cname: canonical(self.name)?,
        };
        let sent = send(&request).map_err(|error| format!("cannot send to {}: {error}", request.to))?;
        super::net::put(self.json, &sent)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn canonical(name: String) -> Result<String, String> {
    if name.len() <= 255 { Ok(name) } else { Err("--name has at most 255 bytes".into()) }
}

/// Receive RTP streams, and report each.
///
/// Ends when all senders have said goodbye, or after --time. Jitter and losses are those of RFC 3550; a first
/// packet of each stream only announces it and is not counted.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban lab rtp receive                            on all addresses, port 5004\
        \n  kiban lab rtp receive --listen 127.0.0.1:6000 --time 30s --json\
        \n  kiban lab rtp receive --clock 90000              for video\
        \n  kiban lab rtp receive --board lab --listen 10.9.0.2:5004\
        \n\nExit status: 0 if a stream arrived, 1 if none did or on an error, 2 for invalid arguments.")]
struct Receive {
    /// Address for RTP; RTCP uses the next port.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "[::]:5004")]
    listen: SocketAddr,
    /// Receive on the running board NAME, whose configuration has a service of kind `sockets`, instead of on
    /// this host.
    #[arg(long, value_name = "NAME")]
    board: Option<String>,
    /// Frequency of the payloads' clock, in Hz.
    #[arg(long, value_name = "HZ", default_value_t = 8000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    clock: u32,
    /// Longest time to receive [default: until all senders have said goodbye].
    #[arg(long, value_name = "TIME", value_parser = length)]
    time: Option<Duration>,
    /// Canonical name in RTCP.
    #[arg(long, default_value = "kiban")]
    name: String,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

impl Receive {
    fn run(self) -> Result<ExitCode, String> {
        let receiver = Receiver::bind(self.board.as_deref(), self.listen)
            .map_err(|error| cannot_listen(self.listen, &error))?;
        note!("receiving RTP on {}, RTCP on the next port", self.listen);
        let received = receiver.run(self.clock, self.time, &canonical(self.name)?);
        let received = received.map_err(|error| format!("cannot receive on {}: {error}", self.listen))?;
        super::net::put(self.json, &received)?;
        Ok(super::output::status(!received.streams.is_empty()))
    }
}

/// Send RTP streams from one simulated board to another, over a cable with known impairments.
///
/// Everything happens in virtual time: the same arguments always give the same figures. The receiver's
/// figures can be compared with what the cable did.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban lab rtp boards --loss 0.01 --jitter 5ms\
        \n  kiban lab rtp boards --streams 8 --jitter 60ms       packets overtake each other\
        \n  kiban lab rtp boards --pcap streams.pcap             for Wireshark\
        \n\nExit status: 0, or 1 if the capture cannot be written, 2 for invalid arguments.")]
struct Boards {
    #[command(flatten)]
    stream: StreamArgs,
    /// Packets of each stream.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(3..=10_000_000))]
    packets: u32,
    /// Delay of the cable.
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = interval)]
    delay: Duration,
    /// Probability that the cable loses a packet.
    #[arg(long, value_name = "PROBABILITY", default_value_t = 0.0, value_parser = probability)]
    loss: f64,
    /// Probability that it duplicates a packet.
    #[arg(long, value_name = "PROBABILITY", default_value_t = 0.0, value_parser = probability)]
    duplicate: f64,
    /// Longest time for which it holds a packet back; the time is uniform [default: none].
    #[arg(long, value_name = "TIME", value_parser = interval)]
    jitter: Option<Duration>,
    /// Random seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the packets that arrive at the receiver into this file.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Print one JSON object instead of the tables.
    #[arg(long)]
    json: bool,
}

fn probability(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(part) if (0.0..1.0).contains(&part) => Ok(part),
        _ => Err("must be at least 0 and below 1".into()),
    }
}

impl Boards {
    fn run(self) -> Result<ExitCode, String> {
        let plan = Plan {
            stream: self.stream.stream(),
            streams: self.stream.streams.into(),
            packets: self.packets.into(),
            delay: self.delay,
            impairment: ImpairmentConfig {
                loss: self.loss,
                duplicate: self.duplicate,
                reorder: if self.jitter.is_some() { 1.0 } else { 0.0 },
                hold_back: self.jitter.unwrap_or_default(),
                ..ImpairmentConfig::NONE
            },
            seed: self.seed,
        };
        let (simulated, capture) = boards::run(&plan);
        if let Some(path) = &self.pcap {
            std::fs::write(path, capture).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        super::net::put(self.json, &simulated)?;
        Ok(ExitCode::SUCCESS)
    }
}
