//! `kiban lab sweep`: finds slow regions, their causes, and remedies.

use super::numbers::Numbers;
use super::peer::TokenArgs;
use crate::osi::peer::Host;
use crate::output::note;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kiban_lab::engine::Options;
use kiban_lab::net::Grid;
use kiban_lab::net::SlowBelow;
use kiban_lab::net::evidence::Pattern;
use kiban_lab::net::setup::SYSTEM;
use kiban_lab::net::sweep::Sweep;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Measure throughput over message length and socket buffer size, and explain slow regions.
///
/// Each point is a TCP connection with its own settings. Slow points are explained from both kernels' TCP
/// statistics and a short capture (with CAP_NET_RAW); remedies are tried on the worst points. Results are
/// kept in a directory, so the same command resumes an interrupted sweep. 'kiban lab live', 'summary' and
/// 'report' can read the directory while the sweep runs.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  KIBAN_LAB_TOKEN=... kiban lab sweep HOST         message and reply, header and body in two writes\
        \n  kiban lab sweep HOST --pattern stream,stream-back --out streams   bulk transfers in both directions\
        \n  kiban lab sweep HOST --pattern stream --buffers 4096..4194304*2 --seconds 3\
        \n  kiban lab sweep HOST --both-directions           also with messages from HOST, side by side\
        \n  kiban lab sweep HOST --pattern stream --connections 1,4,16   do several streams fill the path?\
        \n  kiban lab sweep HOST --pattern stream --both-directions --opposite 0,1   alone, and both at once\
        \n  kiban lab sweep HOST --pattern stream --slow-below 10Mbit/s\
        \n  kiban lab sweep HOST --nagle on,off --mss 0,1400 --congestion system,bbr\
        \n  kiban lab sweep 10.9.0.1 --board lab             over the TCP of the running board lab\
        \n  kiban lab sweep HOST --json --svg pictures --out folder\
        \n  kiban lab live lab-HOST                          watch it from another terminal\
        \n  kiban lab report lab-HOST                        a page with maps, causes and remedies\
        \n\nExit status: 0 if all points were measured, 1 if some could not be, or the\
        \nserver was lost or refused this client, 2 for invalid arguments.")]
pub(crate) struct SweepHost {
    /// Host that runs `kiban lab serve` [default port: 4195].
    #[arg(value_name = "HOST[:PORT]")]
    host: Host,
    #[command(flatten)]
    key: TokenArgs,
    /// Use the TCP of this running board (`kiban up`, with a service of kind "attach") instead of the host's.
    #[arg(long, value_name = "NAME")]
    board: Option<String>,
    /// Message lengths in bytes: numbers, and ranges such as 500..6000/500 or 1024..65536*2 [default:
    /// 100,500..6000/500; 1000,16000,65536 if all patterns are streams].
    #[arg(long, value_name = "LIST")]
    messages: Option<Numbers>,
    /// Socket buffer sizes at both ends, in bytes; 0 keeps the system's default [default: 2000..18000/2000;
    /// 0,65536,262144,1048576 for streams; 0 with --board].
    #[arg(long, value_name = "LIST")]
    buffers: Option<Numbers>,
    /// Write pattern; one map for each.
    #[arg(long, value_enum, default_value = "write-write-read", value_delimiter = ',')]
    pattern: Vec<PatternName>,
    /// Measure each pattern in both directions, one after the other, and show them side by side.
    #[arg(long)]
    both_directions: bool,
    /// Rate below which a stream is slow, such as 10Mbit/s [default: a quarter of the best stream in either
    /// direction].
    #[arg(long, value_name = "RATE")]
    slow_below: Option<SlowBelow>,
    /// Nagle's algorithm; one map for each.
    #[arg(long, value_enum, default_value = "on", value_delimiter = ',')]
    nagle: Vec<Nagle>,
    /// MSS in bytes; 0 uses the path's; one map for each.
    #[arg(long, default_value = "0", value_name = "LIST")]
    mss: Numbers,
    /// Congestion control algorithms; one map for each.
    #[arg(long, default_value = SYSTEM, value_name = "NAMES", value_delimiter = ',')]
    congestion: Vec<String>,
    /// Connections at once; figures are those of all of them together; one map for each count.
    #[arg(long, default_value = "1", value_name = "LIST", value_parser = connections)]
    connections: Numbers,
    /// Connections in the opposite direction at the same time; one map for each count.
    #[arg(long, default_value = "0", value_name = "LIST")]
    opposite: Numbers,
    /// Duration of each point, in seconds [default: 0.5; 2 if all patterns are streams, 5 if several run at
    /// once].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<f64>,
    /// Directory for the records [default: lab-HOST, or lab-NAME-HOST with --board].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the maps into this directory, one SVG each.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// How long to try to reconnect to a lost server, in seconds.
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=86_400))]
    patience: u64,
    /// CPU load of other programs, in cores, above which a point counts as disturbed and is repeated.
    #[arg(long, default_value_t = 0.5, value_name = "CORES", value_parser = cores)]
    foreign_cores: f64,
    /// Maximum number of repetitions of a disturbed point.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=100))]
    repeats: u32,
    /// Print one JSON object instead of the tables.
    #[arg(long)]
    json: bool,
    /// Do not show a progress bar.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum PatternName {
    /// Header and body in two writes, then wait for the reply.
    WriteWriteRead,
    /// The same bytes in one write.
    WriteRead,
    /// Like write-write-read, but the server sends the messages and this host replies.
    WriteWriteReadBack,
    /// Like write-read, but the server sends the messages and this host replies.
    WriteReadBack,
    /// Messages without replies.
    Stream,
    /// Messages without replies, from the server to this host.
    StreamBack,
}

impl PatternName {
    pub(super) fn pattern(self) -> Pattern {
        match self {
            PatternName::WriteWriteRead => Pattern::WriteWriteRead,
            PatternName::WriteRead => Pattern::WriteRead,
            PatternName::WriteWriteReadBack => Pattern::WriteWriteReadBack,
            PatternName::WriteReadBack => Pattern::WriteReadBack,
            PatternName::Stream => Pattern::Stream,
            PatternName::StreamBack => Pattern::StreamBack,
        }
    }
}

/// Returns the patterns, each followed by its counterpart in the other direction if both are requested.
pub(super) fn patterns(names: &[PatternName], both_directions: bool) -> Vec<Pattern> {
    let patterns = names.iter().map(|name| name.pattern());
    patterns.flat_map(|one| [Some(one), both_directions.then(|| one.reversed())]).flatten().collect()
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Nagle {
    /// Enabled, the default of TCP sockets.
    On,
    /// Disabled (TCP_NODELAY).
    Off,
}

impl Nagle {
    pub(super) fn no_delay(self) -> bool {
        matches!(self, Nagle::Off)
    }
}

pub(super) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("must be 0.01 to 3600".into()),
    }
}

fn connections(text: &str) -> Result<Numbers, String> {
    let numbers: Numbers = text.parse()?;
    if numbers.0.contains(&0) { Err("must be 1 or more".to_owned()) } else { Ok(numbers) }
}

fn cores(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(cores) if (0.0..=10_000.0).contains(&cores) => Ok(cores),
        _ => Err("must be a number of processor cores, such as 0.5".into()),
    }
}

impl SweepHost {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let session = Arc::new(self.key.session(&self.host, self.board.as_deref())?);
        // A host name may contain characters that do not belong in a directory name.
        let name = self.host.name.replace(['/', '%', ':'], "-");
        let over = self.board.as_ref().map_or(String::new(), |board| format!("{board}-"));
        let folder = self.out.clone().unwrap_or_else(|| PathBuf::from(format!("lab-{over}{name}")));
        let patterns = patterns(&self.pattern, self.both_directions);
        let at_once = self.connections.0.iter().max() > Some(&1) || self.opposite.0.iter().max() > Some(&0);
        let usual = Grid::usual(&patterns, self.board.is_some(), at_once);
        let list = |given: &Option<Numbers>| given.as_ref().map(|numbers| numbers.0.clone());
        let grid = Grid {
            messages: list(&self.messages).unwrap_or(usual.messages),
            buffers: list(&self.buffers).unwrap_or(usual.buffers),
            patterns,
            no_delay: self.nagle.iter().map(|nagle| nagle.no_delay()).collect(),
            mss: self.mss.0.clone(),
            congestion: self.congestion.clone(),
            connections: self.connections.0.clone(),
            opposite: self.opposite.0.clone(),
            seconds: self.seconds.unwrap_or(usual.seconds),
        };
        let options = Options {
            foreign_cores_max: self.foreign_cores,
            retries_max: self.repeats,
            peer_timeout: Some(Duration::from_secs(self.patience)),
            ..Options::default()
        };
        crate::lab::interrupt::keep_at_interrupt(&folder)?;
        let streams_slow_below = self.slow_below.unwrap_or_default();
        let sweep = Sweep { session, dir: folder.clone(), options, streams_slow_below };
        let target = if self.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}")
            .expect("the template is well formed");
        let bar = ProgressBar::with_draw_target(Some(1), target).with_style(style);
        let report = sweep.run(&grid, &|done, all, what| {
            bar.set_length(all);
            bar.set_position(done);
            bar.set_message(what.to_owned());
        });
        bar.finish_and_clear();
        let report = report.map_err(|error| error.to_string())?;
        for broken in &report.broken {
            note!("kiban: {}: skipped: {broken}", folder.display());
        }
        if let Some(folder) = &self.svg {
            let maps = &report.findings.maps;
            let files: Vec<_> = (1..)
                .zip(maps)
                .map(|(number, map)| (format!("map-{number}.svg"), map.svg(maps).into_bytes()))
                .collect();
            super::output::write(folder, &files)?;
        }
        super::output::put(self.json, &report)?;
        if !self.quiet {
            crate::lab::output::tell_next(&folder);
        }
        let is_whole = report.ended_early.is_none() && report.impossible.is_empty();
        Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
