//! Connects to a measurement server, using its token.

use crate::osi::peer::Host;
use clap::Args;
use kiban_lab::net::Session;
use kiban_lab::net::admission::Token;
use kiban_lab::net::client::Client;
use kiban_lab::net::protocol::PORT;
use std::path::{Path, PathBuf};

/// Environment variable that may contain the token.
const TOKEN_VARIABLE: &str = "KIBAN_LAB_TOKEN";

/// Argument for the token.
#[derive(Args, Clone)]
pub(in crate::lab) struct TokenArgs {
    /// Read the server's token from the first line of this file [default: from KIBAN_LAB_TOKEN].
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl TokenArgs {
    /// Returns a session with a host.
    pub(super) fn session(&self, host: &Host) -> Result<Session, String> {
        Ok(Session::new(&host.name, host.port.unwrap_or(PORT), self.token()?))
    }

    /// Connects to a host, for a mix.
    pub(in crate::lab) fn client(&self, host: &Host) -> Result<Client, String> {
        let client = Client::connect(&host.name, host.port.unwrap_or(PORT), &self.token()?);
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

/// Reads a token from the first line of a file.
pub(super) fn token_of(path: &Path) -> Result<Token, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Token::of_text(&text).map_err(|why| format!("{}: {why}", path.display()))
}
