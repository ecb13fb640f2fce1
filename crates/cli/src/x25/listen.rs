//! `kiban x25 listen`: accepts calls, for standard input and output, for a command, or as an echo.

use super::access::Access;
use super::call::{End, carry};
use super::drive;
use crate::output::note;
use clap::Args;
use kiban_osi::x25::xot::CHANNEL;
use kiban_osi::x25::{Call, Cause, Config, Indication, Request};
use kiban_osi_runtime::relay::{Called, Via};
use kiban_osi_runtime::x25::{BoxedStream, Circuit};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::unix::pipe;
use tokio::sync::Semaphore;

/// Accept calls.
///
/// Without COMMAND, one call at a time is connected to standard input and output. COMMAND is started for each
/// call, with the call as its standard input and output; X25_CALLING, X25_CALLED and X25_USER_DATA (in
/// hexadecimal) are in its environment.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban x25 listen --line serial:/dev/ttyS0,9600 --role dce > received\
        \n  kiban x25 listen --xot 127.0.0.1:1998 --echo\
        \n  kiban x25 listen --line ether:eth0 --called '4567*' -- cat\
        \n\nExit status: with --once, that of the call; otherwise 1 if it cannot listen, 2 for invalid arguments.")]
pub(super) struct Listen {
    #[command(flatten)]
    access: Access,
    /// Accept only calls that match PATTERN: an X.121 address, nsap:HEX (either may end with *), or
    /// user-data:HEX.
    #[arg(long, value_name = "PATTERN", default_value = "*")]
    called: Called,
    /// Send back what arrives.
    #[arg(long, conflicts_with = "command")]
    echo: bool,
    /// End after the first call.
    #[arg(long)]
    once: bool,
    /// Maximum number of concurrent calls for COMMAND or --echo.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1000))]
    calls: u16,
    /// Do not report calls.
    #[arg(long, short)]
    quiet: bool,
    /// Command to start for each call.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// What a call is connected to.
enum Service {
    Standard,
    Echo,
    Command(Vec<String>),
}

impl Listen {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        drive(true, async {
            let (mut calls, line) = self.access.listen(!self.quiet).await?;
            let service = Arc::new(match (self.echo, &self.command[..]) {
                (true, _) => Service::Echo,
                (false, []) => Service::Standard,
                (false, command) => Service::Command(command.to_vec()),
            });
            let is_single = self.once || matches!(*service, Service::Standard);
            let permits = Arc::new(Semaphore::new(if is_single { 1 } else { usize::from(self.calls) }));
            let (config, patience) = (self.access.config(), self.access.patience());
            let shown = !self.quiet;
            while let Some(stream) = calls.recv().await {
                let called = self.called.clone();
                let permit = permits.clone().acquire_owned().await.map_err(|error| error.to_string())?;
                let (service, config) = (service.clone(), config.clone());
                let serves = async move {
                    let served = serve(stream, config, patience, &called, &service, shown).await;
                    drop(permit);
                    served
                };
                if self.once {
                    let served = serves.await;
                    if served.is_some() {
                        line.close().await;
                    }
                    match served {
                        Some(Ok(end)) if end.is_normal() => return Ok(ExitCode::SUCCESS),
                        Some(Ok(_)) => return Ok(ExitCode::FAILURE),
                        Some(Err(error)) => return Err(error),
                        // The call was not for this service.
                        None => {}
                    }
                } else {
                    tokio::spawn(async move {
                        if let Some(Err(error)) = serves.await {
                            note!("{error}");
                        }
                    });
                }
            }
            Ok(ExitCode::SUCCESS)
        })
    }
}

/// Serves one call; returns `None` if it was refused, or if there was none.
async fn serve(
    stream: BoxedStream,
    config: Config,
    patience: Duration,
    called: &Called,
    service: &Service,
    shown: bool,
) -> Option<Result<End, String>> {
    let mut circuit = Circuit::called(stream, config);
    let waits = async {
        loop {
            match circuit.next().await {
                Indication::Incoming { call, .. } => return Some(call),
                Indication::Down => return None,
                _ => {}
            }
        }
    };
    let call = tokio::time::timeout(patience, waits).await.ok().flatten()?;
    if !called.has(&call, Via::Xot) {
        // Not obtainable.
        let cause = Cause { cause: 0x0d, diagnostic: Some(0) };
        let clear = Request::Clear { channel: CHANNEL, cause, user_data: Vec::new() };
        if circuit.request(clear).is_ok() {
            let confirmed = async {
                while !matches!(circuit.next().await, Indication::ClearConfirmed { .. } | Indication::Down) {}
            };
            // A peer that does not confirm is forgotten.
            let _ = tokio::time::timeout(patience, confirmed).await;
        }
        return None;
    }
    let accept = Request::Accept { channel: CHANNEL, call: Call::default() };
    circuit.request(accept).ok()?;
    let (from, to) = (call.addresses.calling.to_string(), call.addresses.called.to_string());
    if shown {
        note!("call from {} to {}", or_none(&from), or_none(&to));
    }
    let end = match service {
        Service::Standard => carry(circuit, tokio::io::stdin(), tokio::io::stdout(), true).await,
        Service::Echo => {
            let (here, there) = tokio::io::duplex(64 << 10);
            let ((from, to), (mut back, mut forth)) = (tokio::io::split(here), tokio::io::split(there));
            tokio::spawn(async move { tokio::io::copy(&mut back, &mut forth).await });
            carry(circuit, from, to, true).await
        }
        Service::Command(command) => run(circuit, command, &call).await,
    };
    if shown && let Ok(end) = &end {
        note!("call from {}: {}", or_none(&from), end.text());
    }
    Some(end)
}

fn or_none(address: &str) -> &str {
    if address.is_empty() { "no address" } else { address }
}

/// Runs a command with the call as its standard input and output.
async fn run(circuit: Circuit, command: &[String], call: &Call) -> Result<End, String> {
    let cannot = |error: std::io::Error| format!("cannot run {}: {error}", command[0]);
    let (to_command, stdin) = std::io::pipe().map(|(from, to)| (to, from)).map_err(cannot)?;
    let (from_command, stdout) = std::io::pipe().map_err(cannot)?;
    let user_data: String = call.user_data.iter().map(|octet| format!("{octet:02x}")).collect();
    let mut child = std::process::Command::new(&command[0])
        .args(&command[1..])
        .env("X25_CALLING", call.addresses.calling.to_string())
        .env("X25_CALLED", call.addresses.called.to_string())
        .env("X25_USER_DATA", user_data)
        .stdin(stdin)
        .stdout(stdout)
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(cannot)?;
    let output = pipe::Sender::from_owned_fd(to_command.into()).map_err(cannot)?;
    let input = pipe::Receiver::from_owned_fd(from_command.into()).map_err(cannot)?;
    // When the call ends, both pipes are closed, and a command that uses them ends.
    let end = carry(circuit, input, output, false).await;
    let waited = kiban_tokio::runtime::blocking(c"kiban-x25-wait", move || child.wait()).map_err(cannot)?;
    // The status of the command is its own affair.
    let _ = waited.await;
    end
}
