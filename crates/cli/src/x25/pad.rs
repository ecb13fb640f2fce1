//! `kiban x25 pad`: a terminal's access to hosts (X.3, X.28, X.29).

use super::access::{Access, Line};
use super::call::describe;
use super::drive;
use crate::output::note;
use clap::{Args, ValueEnum};
use kiban_base::Instant;
use kiban_os::Clock;
use kiban_osi::pad::{Command, Output, Pad, Profile};
use kiban_osi::wire::x25::diagnostic;
use kiban_osi::x25::xot::CHANNEL;
use kiban_osi::x25::{Address, Cause, Indication, Request};
use kiban_osi_runtime::x25::Circuit;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Size of a read from the terminal in bytes.
const READ_BYTES: usize = 1024;
/// ctrl-], the recall character that the host cannot disable.
const ESCAPE: u8 = 0x1d;

/// Talk to a host as a terminal on a PAD.
///
/// Commands are those of X.28: an address calls a host; CLR clears; ctrl-p begins a command in a call, and
/// ctrl-p ctrl-p sends ctrl-p; PAR?, SET 2:0, STAT, RESET, INT, BREAK; ctrl-d on an empty line ends. The host
/// may set the parameters (X.29), also the one for ctrl-p; on a terminal, ctrl-] always begins a command.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban x25 pad --xot router.example.net 45678901\
        \n  kiban x25 pad --line serial:/dev/ttyS0,9600\
        \n  printf 'show status\\n' | kiban x25 pad --xot 192.0.2.1 --profile transparent 45678901\
        \n\nExit status: 0 if the last call was cleared normally, 1 if it failed, 2 for invalid arguments.")]
pub(super) struct PadCommand {
    #[command(flatten)]
    access: Access,
    /// Initial parameters: simple (X.28's profile 90) or transparent (91).
    #[arg(long, value_enum, default_value = "simple")]
    profile: ProfileName,
    /// Calling address.
    #[arg(long, value_name = "DIGITS")]
    calling: Option<Address>,
    /// After the end of the input, wait until the host clears the call.
    #[arg(long)]
    wait: bool,
    /// Host to call at once, as in a selection command: `[R,]ADDRESS[Dtext]`.
    #[arg(value_name = "ADDRESS")]
    called: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum ProfileName {
    Simple,
    Transparent,
}

/// Raw mode of the terminal, for as long as this value exists.
struct Raw;

impl Raw {
    fn new() -> Result<Raw, String> {
        crossterm::terminal::enable_raw_mode()
            .map(|()| Raw)
            .map_err(|error| format!("cannot read single characters from the terminal: {error}"))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = crossterm::terminal::disable_raw_mode();
    }
}

impl PadCommand {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let profile = match self.profile {
            ProfileName::Simple => Profile::Simple,
            ProfileName::Transparent => Profile::Transparent,
        };
        let mut pad = Pad::new(profile);
        if let Some(called) = &self.called {
            match Command::parse(called) {
                Ok(Command::Select(call)) => pad.call(call),
                _ => return Err(format!("'{called}' is not an address: write [R,]DIGITS[Dtext]")),
            }
        }
        let is_terminal = std::io::stdin().is_terminal();
        drive(false, async {
            let raw = if is_terminal { Some(Raw::new()?) } else { None };
            if is_terminal {
                pad.set_escape(ESCAPE);
            }
            let mut session = Session {
                pad,
                access: &self.access,
                calling: self.calling,
                waits: self.wait,
                circuit: None,
                line: None,
                is_calling: false,
                clear_due: None,
                has_cleared: false,
                status: None,
            };
            let ended = session.run(is_terminal).await;
            drop(raw);
            ended?;
            let is_normal = session.status.is_none_or(|cause| cause.cause & 0x7f == 0);
            Ok(if is_normal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        })
    }
}

struct Session<'a> {
    pad: Pad,
    access: &'a Access,
    calling: Option<Address>,
    waits: bool,
    circuit: Option<Circuit>,
    line: Option<Line>,
    /// Whether a call has not been answered yet.
    is_calling: bool,
    /// When the call is cleared, even if data is not acknowledged; and whether a clear was requested before.
    clear_due: Option<Instant>,
    has_cleared: bool,
    /// How the last call ended.
    status: Option<Cause>,
}

impl Session<'_> {
    async fn run(&mut self, is_terminal: bool) -> Result<(), String> {
        let clock = Clock::new();
        let (mut input, mut output) = (tokio::io::stdin(), tokio::io::stdout());
        let mut buffer = vec![0; READ_BYTES];
        // Characters of a script that wait for their turn.
        let mut script = Vec::new();
        let mut has_input = true;
        loop {
            if !is_terminal {
                // Nobody reads page by page.
                self.pad.turn_page();
            } else if let Some(circuit) = &self.circuit {
                self.pad.set_room(circuit.room() >= READ_BYTES);
            }
            while let Some(next) = self.pad.poll() {
                self.act(next, &mut output, clock.now()).await?;
            }
            if let Some(due) = self.clear_due
                && (due <= clock.now() || self.circuit.as_ref().is_none_or(Circuit::is_quiet))
            {
                self.clear_due = None;
                self.clear().await;
                continue;
            }
            // A script waits until its call is answered, and while the circuit has no room.
            let is_open = !self.is_calling;
            let has_room =
                is_open && self.circuit.as_ref().is_none_or(|circuit| circuit.room() >= READ_BYTES);
            if has_room && !script.is_empty() {
                let end = script.iter().position(|octet| *octet == b'\r').map_or(script.len(), |at| at + 1);
                let line: Vec<u8> = script.drain(..end).collect();
                self.pad.on_terminal(&line, clock.now());
                continue;
            }
            if !has_input && script.is_empty() {
                if self.circuit.is_none() {
                    return Ok(());
                }
                if has_room && !self.waits {
                    self.waits = true;
                    self.pad.on_end();
                    continue;
                }
            }
            let deadline = self.pad.deadline().min(self.clear_due.unwrap_or(Instant::NEVER));
            let patience = deadline.since(clock.now());
            let reads = has_input && script.is_empty() && (has_room || is_terminal);
            // X-ON can come only while there is input.
            let holds_data = has_input && !self.pad.takes_data();
            tokio::select! {
                read = input.read(&mut buffer), if reads => {
                    let octets = &buffer[..read.unwrap_or(0)];
                    if octets.is_empty() || (is_terminal && self.pad.is_idle() && octets == [0x04]) {
                        has_input = false;
                    } else if is_terminal {
                        self.pad.on_terminal(octets, clock.now());
                    } else {
                        // X.28's lines end with a carriage return.
                        script.extend(octets.iter().map(|octet| if *octet == b'\n' { b'\r' } else { *octet }));
                    }
                }
                indication = advance(&mut self.circuit, holds_data) => {
                    if let Some(indication) = indication {
                        self.on_indication(indication).await;
                    }
                }
                () = tokio::time::sleep(patience), if deadline != Instant::NEVER => {
                    self.pad.settle(clock.now());
                }
            }
        }
    }

    async fn act(
        &mut self,
        next: Output,
        output: &mut tokio::io::Stdout,
        now: Instant,
    ) -> Result<(), String> {
        let data = |data: Vec<u8>, qualifier| Request::Data {
            channel: CHANNEL,
            data: data.into(),
            qualifier,
            delivery: false,
        };
        let request = match next {
            Output::Terminal(octets) => {
                let written = async {
                    output.write_all(&octets).await?;
                    output.flush().await
                };
                return written.await.map_err(|error| format!("cannot write the output: {error}"));
            }
            Output::Call(mut call) => {
                call.addresses.calling = self.calling.unwrap_or(Address::NONE);
                let call = self.access.with_sizes(call)?;
                match self.access.open().await {
                    Ok((stream, line)) => {
                        self.line = Some(line);
                        self.is_calling = true;
                        self.has_cleared = false;
                        self.circuit = Some(Circuit::calling(stream, self.access.config()));
                        Request::Call { channel: CHANNEL, call }
                    }
                    Err(error) => {
                        note!("{error}\r");
                        self.status = Some(Cause { cause: 0x09, diagnostic: None });
                        self.pad.on_indication(Indication::Down);
                        return Ok(());
                    }
                }
            }
            Output::Clear => {
                // The second clear, and the one after a time limit, do not wait for acknowledgements.
                let patience = if self.has_cleared { Duration::ZERO } else { self.access.patience() };
                self.has_cleared = true;
                self.clear_due = Some(now + patience);
                return Ok(());
            }
            Output::Data(octets, qualifier) => data(octets, qualifier),
            Output::Interrupt(data) => Request::Interrupt { channel: CHANNEL, data },
            Output::Reset => {
                let cause = Cause { cause: 0, diagnostic: Some(diagnostic::NONE) };
                Request::Reset { channel: CHANNEL, cause }
            }
        };
        if let Some(circuit) = &mut self.circuit
            && let Err(misuse) = circuit.request(request)
        {
            note!("not possible now: {misuse:?}\r");
        }
        Ok(())
    }

    async fn clear(&mut self) {
        let cause = Cause { cause: 0, diagnostic: Some(diagnostic::NORMAL) };
        let clear = Request::Clear { channel: CHANNEL, cause, user_data: Vec::new() };
        let is_clearing = self.circuit.as_mut().is_some_and(|circuit| circuit.request(clear).is_ok());
        if !is_clearing {
            self.is_calling = false;
            self.circuit = None;
            self.pad.on_indication(Indication::Down);
            self.close_line().await;
        }
    }

    async fn on_indication(&mut self, indication: Indication) {
        let ends = match &indication {
            Indication::Cleared { cause, by_peer, .. } => {
                self.status = Some(*cause);
                if *by_peer && cause.cause != 0 && !std::io::stdin().is_terminal() {
                    note!("{}", describe("the call was cleared", *cause));
                }
                true
            }
            Indication::ClearConfirmed { .. } => {
                self.status = None;
                true
            }
            Indication::Down => {
                self.status = Some(Cause { cause: 0x09, diagnostic: None });
                true
            }
            _ => false,
        };
        if ends || matches!(indication, Indication::Accepted { .. }) {
            self.is_calling = false;
        }
        if ends {
            self.clear_due = None;
        }
        self.pad.on_indication(indication);
        if ends && let Some(circuit) = self.circuit.take() {
            circuit.finish().await;
            self.close_line().await;
        }
    }

    async fn close_line(&mut self) {
        if let Some(line) = self.line.take() {
            line.close().await;
        }
    }
}

/// Advances a circuit; waits forever if there is none.
async fn advance(circuit: &mut Option<Circuit>, holds_data: bool) -> Option<Indication> {
    match circuit {
        Some(circuit) => circuit.advance_holding(holds_data).await,
        None => std::future::pending().await,
    }
}
