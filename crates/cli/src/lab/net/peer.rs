//! Connects to a measurement server, using its token.

use crate::board::control::unavailable_reason;
use crate::osi::peer::Host;
use clap::Args;
use kiban_lab::net::admission::Token;
use kiban_lab::net::client::Client;
use kiban_lab::net::protocol::PORT;
use kiban_lab::net::{BoardTcp, Session, TcpStack};
use kiban_measure::Counters;
use kiban_service::control::{ControlClient, Question, Reply};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Environment variable that may contain the token.
pub(super) const TOKEN_VARIABLE: &str = "KIBAN_LAB_TOKEN";

/// Argument for the token.
#[derive(Args, Clone)]
pub(in crate::lab) struct TokenArgs {
    /// Read the server's token from the first line of this file [default: from KIBAN_LAB_TOKEN].
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl TokenArgs {
    /// Returns a session with a host over a board's TCP or, without a board, over the host's.
    pub(super) fn session(&self, host: &Host, board: Option<&str>) -> Result<Session, String> {
        Ok(Session::new(tcp(board)?, &host.name, host.port.unwrap_or(PORT), self.token()?))
    }

    /// Connects to a host.
    pub(in crate::lab) fn client(&self, host: &Host) -> Result<Client, String> {
        let client = Client::connect(&TcpStack::Host, &host.name, host.port.unwrap_or(PORT), &self.token()?);
        client.map_err(|failure| failure.to_string())
    }

    fn token(&self) -> Result<Token, String> {
        match (&self.token_file, std::env::var(TOKEN_VARIABLE)) {
            (Some(path), _) => token_of(path),
            (None, Ok(text)) if !text.is_empty() => Token::of_text(&text),
            (None, _) => Err(format!(
                "no token: set {TOKEN_VARIABLE} to the token that `kiban lab serve` printed, or name a file \
                 with --token-file"
            )),
        }
    }
}

/// Returns the TCP of a running board or, without a name, the host's.
pub(super) fn tcp(board: Option<&str>) -> Result<TcpStack, String> {
    let Some(name) = board else { return Ok(TcpStack::Host) };
    let counted = name.to_owned();
    let board = BoardTcp::attach(name, Arc::new(move || counters(&counted)));
    board.map(TcpStack::Board).map_err(|error| unavailable_reason(Some(name), "attach", &error.to_string()))
}

/// The counters of a board's TCP that explain stalls, and Linux's names for them.
const COUNTERS: [(&str, &str); 5] = [
    ("delayed_acks", "DelayedACKs"),
    ("dsacks_in", "TCPDSACKRecv"),
    ("retransmits", "RetransSegs"),
    ("tail_loss_probes", "TCPLossProbes"),
    ("timeouts", "TCPTimeouts"),
];

/// Reads the counters of a board's TCP. If the board does not answer, there are none.
fn counters(board: &str) -> Counters {
    let status = ControlClient::call(Some(board)).and_then(|mut client| client.ask(&Question::Status {}));
    let Ok(Reply::Status(status)) = status else { return Counters::default() };
    let tcp = status.counters.get("tcp");
    let count = |(own, linux): (&str, &str)| Some((linux.to_owned(), *tcp?.get(own)?));
    Counters(COUNTERS.into_iter().filter_map(count).collect())
}

/// Reads a token from the first line of a file.
pub(super) fn token_of(path: &Path) -> Result<Token, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Token::of_text(&text).map_err(|why| format!("{}: {why}", path.display()))
}
