//! `kiban x25 call`: makes a call, and connects it to standard input and output.

use super::access::{Access, CallArgs};
use super::drive;
use crate::output::note;
use clap::Args;
use kiban_osi::wire::x25::{clearing_cause, diagnostic};
use kiban_osi::wire::x29::Message;
use kiban_osi::x25::xot::CHANNEL;
use kiban_osi::x25::{Address, Call, Cause, Indication, Request};
use kiban_osi_runtime::x25::Circuit;
use std::collections::VecDeque;
use std::io;
use std::process::ExitCode;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Maximum length of a unit read from the input.
const UNIT_BYTES_MAX: usize = 4096;

/// Make a call, and connect it to standard input and output.
///
/// Standard input is sent as it is read; what arrives is written to standard output. At the end of the input,
/// the call is cleared when all data is acknowledged, or with --wait when the peer clears it.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban x25 call --line serial:/dev/ttyS0,9600 45678901 < request\
        \n  kiban x25 call --xot router.example.net 45678901 --user-data 01000000\
        \n  kiban x25 call --line ether:eth0 --role dce --packet-bytes 1024 --window 7 45678901\
        \n  echo hello | kiban x25 call --xot 127.0.0.1 --wait 45678901\
        \n\nExit status: 0 if the call was cleared normally, 1 if it failed, 2 for invalid arguments.")]
pub(super) struct CallCommand {
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    call: CallArgs,
    /// After the end of the input, wait until the peer clears the call.
    #[arg(long)]
    wait: bool,
    /// Do not report the call.
    #[arg(long, short)]
    quiet: bool,
    /// Called X.121 address.
    #[arg(value_name = "ADDRESS")]
    called: Address,
}

impl CallCommand {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let call = self.access.with_sizes(self.call.call(self.called))?;
        drive(false, async {
            let (stream, line) = self.access.open().await?;
            let mut circuit = Circuit::calling(stream, self.access.config());
            let placed = place(&mut circuit, call).await;
            if placed.is_err() {
                line.close().await;
            }
            placed?;
            if !self.quiet {
                note!("connected to {}", self.called);
            }
            let end = carry(circuit, tokio::io::stdin(), tokio::io::stdout(), self.wait).await?;
            line.close().await;
            if !self.quiet {
                note!("{}", end.text());
            }
            Ok(if end.is_normal() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        })
    }
}

/// How a call ended.
pub(super) enum End {
    /// This end cleared it, and the clear was confirmed.
    Here,
    /// The other side cleared it.
    ByPeer(Cause),
    /// The connection failed.
    Failed,
}

impl End {
    pub(super) fn is_normal(&self) -> bool {
        match self {
            End::Here => true,
            // The first bit marks the codes of a private network; 0 means that the DTE cleared.
            End::ByPeer(cause) => cause.cause & 0x7f == 0 && cause.diagnostic != Some(diagnostic::ABNORMAL),
            End::Failed => false,
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            End::Here => "cleared".into(),
            End::ByPeer(cause) => describe("cleared by the peer", *cause),
            End::Failed => "the connection failed".into(),
        }
    }
}

/// Describes a clear, with X.25's words for the cause.
pub(super) fn describe(what: &str, cause: Cause) -> String {
    let Cause { cause, diagnostic } = cause;
    // The first bit marks the codes of a private network.
    let words = clearing_cause(cause & 0x7f);
    format!("{what}: {words} (cause 0x{cause:02x}, diagnostic {})", diagnostic.unwrap_or(0))
}

/// Makes the call and waits until it is accepted.
pub(super) async fn place(circuit: &mut Circuit, call: Call) -> Result<(), String> {
    let request = Request::Call { channel: CHANNEL, call };
    circuit.request(request).map_err(|misuse| format!("the call is not possible: {misuse:?}"))?;
    loop {
        match circuit.next().await {
            Indication::Accepted { .. } => return Ok(()),
            Indication::Cleared { cause, by_peer: true, .. } => {
                return Err(describe("the call was refused", cause));
            }
            Indication::Cleared { cause, .. } if cause.diagnostic == Some(diagnostic::CALL_TIME) => {
                return Err("the call timed out without an answer".into());
            }
            Indication::Cleared { .. } | Indication::Down => {
                return Err("the connection failed before the call was answered".into());
            }
            _ => {}
        }
    }
}

/// Carries data both ways until the call ends. Clears the call at the end of the input, unless `waits`, and
/// when a PAD at the other end invites it to.
///
/// While the output takes nothing, received data stays in the packet layer and its window stops the peer; the
/// input and the circuit continue. Otherwise an output whose reader writes the input, and waits for it, would
/// wait forever.
///
/// # Errors
/// The output cannot be written.
pub(super) async fn carry(
    mut circuit: Circuit,
    mut input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
    mut waits: bool,
) -> Result<End, String> {
    let mut buffer = vec![0; UNIT_BYTES_MAX];
    let (mut is_open, mut is_clearing) = (true, false);
    // Received data that the output has not taken yet, and whether it has taken data that waits for a flush:
    // standard output keeps an incomplete line.
    let (mut pending, mut is_unflushed) = (VecDeque::<u8>::new(), false);
    let end = loop {
        if !is_open && !waits && !is_clearing && circuit.is_quiet() {
            is_clearing = true;
            let cause = Cause { cause: 0, diagnostic: Some(diagnostic::NORMAL) };
            let clear = Request::Clear { channel: CHANNEL, cause, user_data: Vec::new() };
            if circuit.request(clear).is_err() {
                break End::Failed;
            }
        }
        let reads = is_open && circuit.room() >= UNIT_BYTES_MAX;
        let is_blocked = !pending.is_empty();
        let indication = tokio::select! {
            read = input.read(&mut buffer), if reads => {
                match read {
                    Ok(count) if count > 0 => {
                        let data = buffer[..count].to_vec().into();
                        let unit = Request::Data { channel: CHANNEL, data, qualifier: false, delivery: false };
                        if circuit.request(unit).is_err() {
                            break End::Failed;
                        }
                    }
                    _ => is_open = false,
                }
                continue;
            }
            written = write_or_flush(&mut output, &mut pending), if is_blocked || is_unflushed => {
                is_unflushed = written?;
                continue;
            }
            indication = circuit.advance_holding(is_blocked) => indication,
        };
        match indication {
            Some(Indication::Data { data, qualifier: false, .. }) => {
                pending.extend(data.to_vec());
            }
            // X.29 §3.3.5: what is on its way is still sent.
            Some(Indication::Data { data, qualifier: true, .. })
                if Message::read(&data.to_vec()) == Ok(Message::InvitationToClear) =>
            {
                (is_open, waits) = (false, false);
            }
            Some(Indication::Cleared { by_peer, cause, .. }) => {
                circuit.finish().await;
                break if by_peer { End::ByPeer(cause) } else { End::Failed };
            }
            Some(Indication::ClearConfirmed { .. }) => {
                circuit.finish().await;
                break End::Here;
            }
            Some(Indication::Reset { .. }) => note!("the circuit was reset: data may be lost"),
            Some(Indication::Down) => break End::Failed,
            _ => {}
        }
    };
    // The call has ended: the rest of the input is dropped, so that its writer can read the output.
    while !pending.is_empty() {
        tokio::select! {
            written = write_or_flush(&mut output, &mut pending) => drop(written?),
            read = input.read(&mut buffer), if is_open => is_open = read.is_ok_and(|count| count > 0),
        }
    }
    output.flush().await.map_err(cannot_write)?;
    Ok(end)
}

/// Writes a part of the data, or flushes the output if there is none. Returns whether another flush is
/// needed.
///
/// # Errors
/// The output cannot be written.
async fn write_or_flush(
    output: &mut (impl AsyncWrite + Unpin),
    pending: &mut VecDeque<u8>,
) -> Result<bool, String> {
    if pending.is_empty() {
        output.flush().await.map_err(cannot_write)?;
        return Ok(false);
    }
    match output.write_buf(pending).await {
        Ok(0) => Err(cannot_write(io::ErrorKind::WriteZero.into())),
        Ok(_) => Ok(true),
        Err(error) => Err(cannot_write(error)),
    }
}

fn cannot_write(error: io::Error) -> String {
    format!("cannot write the output: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiban_osi::x25::{Config, Role};
    use std::time::Duration;
    use tokio::io::{duplex, split};
    use tokio::time::timeout;

    #[test]
    fn an_echo_ends_with_a_call_whose_caller_takes_nothing() {
        let config =
            || Config { unit_bytes_max: 64 << 10, outgoing_bytes_max: 128 << 10, ..Config::new(Role::Dte) };
        crate::osi::peer::runtime(true).expect("a runtime").block_on(async {
            let (near, far) = duplex(64 << 10);
            let serves = tokio::spawn(async move {
                let mut circuit = Circuit::called(Box::new(far), config());
                while !matches!(circuit.next().await, Indication::Incoming { .. }) {}
                let accept = Request::Accept { channel: CHANNEL, call: Call::default() };
                circuit.request(accept).expect("a call");
                let (here, there) = duplex(1024);
                let ((from, to), (mut back, mut forth)) = (split(here), split(there));
                tokio::spawn(async move { tokio::io::copy(&mut back, &mut forth).await });
                carry(circuit, from, to, true).await
            });
            let mut caller = Circuit::calling(Box::new(near), config());
            place(&mut caller, Call::default()).await.expect("it is accepted");
            // The caller sends until every queue is full.
            loop {
                while caller.room() >= UNIT_BYTES_MAX {
                    let data = vec![7; UNIT_BYTES_MAX].into();
                    let unit = Request::Data { channel: CHANNEL, data, qualifier: false, delivery: false };
                    caller.request(unit).expect("there is room");
                }
                if timeout(Duration::from_millis(200), caller.advance_holding(true)).await.is_err() {
                    break;
                }
            }
            drop(caller);
            let ended = timeout(Duration::from_secs(120), serves).await.expect("it ends with the call");
            assert!(matches!(ended, Ok(Ok(End::Failed))));
        });
    }
}
