//! Routes, which map calls to the TCP targets to which they are relayed.

use kiban_osi::x25::{Call, network};
use std::fmt;
use std::str::FromStr;

/// A pattern for calls. For a target that speaks TPKT, all patterns except [`Called::UserData`] match only
/// calls for the transport layer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Called {
    /// All calls.
    Any,
    /// Calls to this X.121 address or, with `true`, to all addresses with this prefix.
    Address(String, bool),
    /// Calls to this NSAP address or, with `true`, to all addresses with this prefix.
    Nsap(Vec<u8>, bool),
    /// Calls whose user data begins with these octets.
    UserData(Vec<u8>),
}

impl Called {
    /// Returns whether a call matches the pattern.
    pub fn has(&self, call: &Call, via: Via) -> bool {
        let is_relayed = via == Via::Xot || network::is_for_transport(call);
        match self {
            Called::UserData(begin) => call.user_data.starts_with(begin),
            _ if !is_relayed => false,
            Called::Any => true,
            Called::Address(digits, begins) => {
                let called = call.addresses.called.to_string();
                if *begins { called.starts_with(digits) } else { called == *digits }
            }
            Called::Nsap(octets, begins) => {
                let called = call.facilities.called_extension.as_deref().unwrap_or_default();
                if *begins { called.starts_with(octets) } else { called == octets }
            }
        }
    }
}

/// The text is not a valid pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PatternError;

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "write *, an X.121 address such as 45678901 or 4567*, nsap:470005 or nsap:4700*, or user-data:03010100",
        )
    }
}

impl std::error::Error for PatternError {}

impl FromStr for Called {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Called, PatternError> {
        let split = |text: &str| match text.strip_suffix('*') {
            Some(begin) => (begin.to_owned(), true),
            None => (text.to_owned(), false),
        };
        if text == "*" {
            return Ok(Called::Any);
        }
        if let Some(digits) = text.strip_prefix("user-data:") {
            return octets(digits).map(Called::UserData).ok_or(PatternError);
        }
        if let Some(rest) = text.strip_prefix("nsap:") {
            let (digits, begins) = split(rest);
            return octets(&digits).map(|octets| Called::Nsap(octets, begins)).ok_or(PatternError);
        }
        let (digits, begins) = split(text);
        let is_address =
            !digits.is_empty() && digits.len() <= 15 && digits.bytes().all(|b| b.is_ascii_digit());
        if is_address { Ok(Called::Address(digits, begins)) } else { Err(PatternError) }
    }
}

/// Parses one or more pairs of hexadecimal digits.
fn octets(digits: &str) -> Option<Vec<u8>> {
    if digits.is_empty() || !digits.is_ascii() || !digits.len().is_multiple_of(2) {
        return None;
    }
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
}

/// The protocol on the TCP connection to a route's target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Via {
    /// TPKTs (RFC 1006): the transport layer alone.
    #[default]
    Tpkt,
    /// XOT: packets of any protocol above X.25, unchanged, such as those of a PAD (X.29).
    Xot,
}

/// A route: a pattern for calls, and the target of the calls that match.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// The calls that take this route.
    pub called: Called,
    /// The protocol spoken with the target.
    pub via: Via,
    /// Target host.
    pub host: String,
    /// Target port.
    pub port: u16,
}
