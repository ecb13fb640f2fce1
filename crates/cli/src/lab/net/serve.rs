//! `kiban lab serve`: the server for measurements from other hosts.

use super::peer::{tcp, token_of};
use crate::osi::peer::cannot_listen;
use crate::output::note;
use clap::Args;
use ipnet::IpNet;
use kiban_lab::net::admission::{Token, network};
use kiban_lab::net::protocol::PORT;
use kiban_lab::net::server::Event;
use kiban_lab::net::{Limits, Server};
use kiban_lab::table::counted;
use kiban_measure::pause::readable;
use kiban_os::unix::names::folders_of_boards;
use kiban_sandbox::{Need, OnRefusal, Sandbox};
use serde_json::json;
use std::io::{BufRead, Read};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The maximum length of the line with the token on standard input, bytes.
const TOKEN_LINE_MAX: u64 = 4096;
/// How long standard input may be silent between two lines after the token.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// The interval at which a program that starts this server sends lines.
pub(super) const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Serve measurements from `kiban lab sweep`, `delay`, `latency`, `udp`, `check`, `trace` and `mix --to`.
///
/// Only clients that know the token are served, and only measurements. The token is sent unencrypted: use
/// this on trusted networks, restrict addresses with --allow, and stop it when you are done. Each trial opens
/// another port, chosen by the system or from --data-ports, for that client's address only.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban lab serve                                  prints a token, and serves until ctrl-c\
        \n  kiban lab serve --allow 192.0.2.0/24 --allow 2001:db8::7\
        \n  kiban lab serve --listen 192.0.2.7:4195 --token-file token --rate 1000 --sessions 1\
        \n  kiban lab serve --board peer                     on the addresses of the running board peer\
        \n  kiban lab serve --data-ports 4200-4203           behind a firewall that allows these ports and 4195\
        \n\nExit status: 1 if it cannot listen, 2 for invalid arguments.")]
pub(crate) struct Serve {
    /// Address to listen on; port 0 chooses a port and prints it.
    #[arg(long, default_value = "[::]:4195", value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// Use the TCP of this running board (`kiban up`, with a service of kind "attach") instead of the
    /// host's; only for `sweep` and `delay`.
    #[arg(long, value_name = "NAME")]
    board: Option<String>,
    /// Read the token from the first line of this file [default: a random token].
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Read the token from the first line of standard input, and exit at its end; for a server that another
    /// program starts, as `kiban lab hosts` does over ssh. If further lines arrive, it also exits once none
    /// has arrived for a minute.
    #[arg(long, conflicts_with = "token_file")]
    stdin: bool,
    /// Range of ports for data connections, one per trial [default: chosen by the system].
    #[arg(long, value_name = "FIRST-LAST", value_parser = ports)]
    data_ports: Option<Ports>,
    /// Allow connections only from these addresses; can be repeated.
    #[arg(long, value_name = "NETWORK", value_parser = network)]
    allow: Vec<IpNet>,
    /// Maximum number of concurrent sessions; a sweep has one for each of its connections.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1000))]
    sessions: u32,
    /// Maximum duration of a trial, in seconds.
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    trial: u32,
    /// Maximum duration of a session, in seconds.
    #[arg(long, default_value_t = 21_600, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    session: u32,
    /// Maximum rate of each session in each direction, in Mbit/s.
    #[arg(long, default_value_t = 100_000, value_name = "MBPS", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    rate: u64,
    /// Maximum size of a socket buffer, in bytes.
    #[arg(long, default_value_t = 64 << 20, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(4096..))]
    buffer: u32,
    /// Do not drop privileges after start, for debugging.
    #[arg(long)]
    no_sandbox: bool,
    /// Print events on standard output, as one JSON object per line.
    #[arg(long)]
    json: bool,
    /// Do not report sessions.
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
}

impl Serve {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let token = match &self.token_file {
            Some(path) => token_of(path)?,
            None if self.stdin => token_of_stdin()?,
            None => Token::random()
                .map_err(|error| format!("cannot get random numbers from the system: {error}"))?,
        };
        let limits = Limits {
            sessions: self.sessions as usize,
            trial_seconds: self.trial,
            session_seconds: self.session,
            buffer_bytes: self.buffer,
            bytes_per_second: self.rate * 125_000,
            data_ports: self.data_ports.map_or(Limits::default().data_ports, |ports| ports.0),
            ..Limits::default()
        };
        let (json, quiet) = (self.json, self.quiet);
        let on_event = move |event| tell(event, json, quiet);
        let server = Server::bind(
            tcp(self.board.as_deref())?,
            self.listen,
            token.clone(),
            self.allow,
            limits,
            on_event,
        )
        .map_err(|error| cannot_listen(self.listen, &error))?;
        let at = server.address().map_err(|error| cannot_listen(self.listen, &error))?;
        if self.stdin {
            note!("listening on {at} until standard input ends");
        } else {
            note!("listening on {at}; press ctrl-c to stop");
        }
        if json {
            print_line(&json!({"event": "listening", "address": at, "kiban": env!("CARGO_PKG_VERSION")}));
        }
        if self.token_file.is_none() && !self.stdin {
            // Print the token at the start only, so that it can be used on the other host.
            let port = if at.port() == PORT { String::new() } else { format!(":{}", at.port()) };
            note!("token: {}", token.reveal());
            note!("on the other host: KIBAN_LAB_TOKEN={} kiban lab sweep HOST{port}", token.reveal());
        }
        if !self.no_sandbox {
            // Measurements read the host's TCP counters and settings.
            let mut needs = vec![
                Need::buffers(),
                Need::read(Path::new("/proc/self")),
                Need::read(Path::new("/proc/sys")),
            ];
            if self.board.is_some() {
                // The board's counters are read through its control socket.
                needs.extend(folders_of_boards().iter().map(|folder| Need::read(folder)));
            }
            Sandbox::enter(&needs, OnRefusal::Error)
                .map_err(|error| format!("cannot drop privileges: {error}; --no-sandbox keeps them"))?;
        }
        if self.stdin {
            let stop = server.stopper();
            let wait = move || {
                wait_for_end(&mut std::io::stdin().lock(), SILENCE_MAX);
                stop();
            };
            std::thread::Builder::new()
                .name("input".into())
                .spawn(wait)
                .map_err(|error| format!("cannot create a thread: {error}"))?;
        }
        server.run().map_err(|error| format!("can no longer accept connections on {at}: {error}"))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Waits until the input ends or, once a line has arrived, until it has been silent for too long: the program
/// that started this server may be gone without a trace.
fn wait_for_end(input: &mut (impl Read + AsFd), silence_max: Duration) {
    let mut has_lines = false;
    loop {
        match readable(input, silence_max) {
            Ok(false) if has_lines => return,
            Ok(false) => continue,
            Ok(true) | Err(_) => {}
        }
        match input.read(&mut [0; 64]) {
            Ok(0) => return,
            Ok(_) => has_lines = true,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// A range of ports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ports(RangeInclusive<u16>);

pub(super) fn ports(text: &str) -> Result<Ports, String> {
    let ends = text.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    match ends {
        Some((first, last)) if (1..=last).contains(&first) => Ok(Ports(first..=last)),
        _ => Err("write the first and the last port, such as 4200-4203".into()),
    }
}

/// Prints an event, and continues even if the reader has closed standard output.
fn print_line(line: &serde_json::Value) {
    let _ = crate::output::print(&format!("{line}\n"));
}

/// Reads a token from the first line of standard input.
fn token_of_stdin() -> Result<Token, String> {
    let mut line = String::new();
    let read = std::io::stdin().lock().take(TOKEN_LINE_MAX).read_line(&mut line);
    read.map_err(|error| format!("cannot read standard input: {error}"))?;
    Token::of_text(&line).map_err(|why| format!("standard input: {why}"))
}

fn tell(event: Event, json: bool, quiet: bool) {
    if json {
        let line = match event {
            Event::Began(address) => json!({"event": "began", "address": address}),
            Event::Ended(address, trials, how) => {
                json!({"event": "ended", "address": address, "trials": trials, "how": how})
            }
            Event::Refused { address, why, more } => {
                json!({"event": "refused", "address": address, "why": why.to_string(), "more": more})
            }
            Event::RefusedOthers(others) => json!({"event": "refused", "others": others}),
        };
        print_line(&line);
    } else if !quiet {
        match event {
            Event::Began(address) => note!("{address}: session started"),
            Event::Ended(address, trials, how) => {
                note!("{address}: session ended after {}: {how}", counted(trials, "trial"));
            }
            Event::Refused { address, why, more: 0 } => note!("{address}: refused: {why}"),
            Event::Refused { address, why, more } => {
                note!("{address}: refused {more} more times in the last 10 s: {why}");
            }
            Event::RefusedOthers(others) => note!("{others} more clients were refused in the last 10 s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_server_that_has_had_lines_ends_when_they_stop() {
        let (mut near, mut far) = std::os::unix::net::UnixStream::pair().expect("two ends");
        near.write_all(b"\n").expect("it is open");
        // This returns although the other end stays open.
        wait_for_end(&mut far, Duration::from_millis(1));
        let (near, mut far) = std::os::unix::net::UnixStream::pair().expect("two ends");
        drop(near);
        wait_for_end(&mut far, Duration::from_secs(3600));
    }

    #[test]
    fn a_port_range_includes_both_ends() {
        assert_eq!(ports("4200-4203"), Ok(Ports(4200..=4203)));
        for text in ["", "4200", "4203-4200", "4200-70000", "a-b", "-1-5", "0-5"] {
            assert!(ports(text).is_err_and(|why| why.contains("4200-4203")), "{text}");
        }
    }
}
