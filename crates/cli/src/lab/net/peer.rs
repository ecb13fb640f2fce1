//! Whom to measure, and the token that lets in there.

use crate::way::Host;
use clap::Args;
use kiban_lab::net::Session;
use kiban_lab::net::admission::Token;
use kiban_lab::net::protocol::PORT;
use std::path::{Path, PathBuf};

/// The variable that a token is read from.
const TOKEN_VARIABLE: &str = "KIBAN_LAB_TOKEN";

/// The token.
#[derive(Args, Clone)]
pub(super) struct Key {
    /// Read the server's token from the first line of this file; else it is read from KIBAN_LAB_TOKEN.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl Key {
    /// A session with a host.
    pub(super) fn session(&self, host: &Host) -> Result<Session, String> {
        let token = match (&self.token_file, std::env::var(TOKEN_VARIABLE)) {
            (Some(path), _) => token_of(path)?,
            (None, Ok(text)) => Token::of_text(&text)?,
            (None, Err(_)) => {
                return Err(format!(
                    "no token: set {TOKEN_VARIABLE} to what `kiban lab serve` printed, or name a file with --token-file"
                ));
            }
        };
        Ok(Session::new(&host.name, host.port.unwrap_or(PORT), token))
    }
}

/// A file's first line.
pub(super) fn token_of(path: &Path) -> Result<Token, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    Token::of_text(&text).map_err(|why| format!("{}: {why}", path.display()))
}
