//! Which calls go where.

use kiban_stack::x25::{Call, network};
use std::fmt;
use std::str::FromStr;

/// Which calls are meant. All but [`Called::UserData`] mean calls for transport alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Called {
    /// All.
    Any,
    /// To this X.121 address, or with `true` to all that begin with it.
    Address(String, bool),
    /// To this NSAP address, or with `true` to all that begin with it.
    Nsap(Vec<u8>, bool),
    /// Whose user data begin with this.
    UserData(Vec<u8>),
}

impl Called {
    /// Whether a call is meant.
    pub fn has(&self, call: &Call) -> bool {
        if let Called::UserData(begin) = self {
            return call.user_data.starts_with(begin);
        }
        if !network::is_for_transport(call) {
            return false;
        }
        match self {
            Called::Any | Called::UserData(_) => true,
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

/// It is no pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAPattern;

impl fmt::Display for NotAPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "say *, an X.121 address such as 45678901 or 4567*, nsap:470005 or nsap:4700*, or user-data:03010100",
        )
    }
}

impl std::error::Error for NotAPattern {}

impl FromStr for Called {
    type Err = NotAPattern;

    fn from_str(text: &str) -> Result<Called, NotAPattern> {
        let split = |text: &str| match text.strip_suffix('*') {
            Some(begin) => (begin.to_owned(), true),
            None => (text.to_owned(), false),
        };
        if text == "*" {
            return Ok(Called::Any);
        }
        if let Some(digits) = text.strip_prefix("user-data:") {
            return octets(digits).map(Called::UserData).ok_or(NotAPattern);
        }
        if let Some(rest) = text.strip_prefix("nsap:") {
            let (digits, begins) = split(rest);
            return octets(&digits).map(|octets| Called::Nsap(octets, begins)).ok_or(NotAPattern);
        }
        let (digits, begins) = split(text);
        let is_address =
            !digits.is_empty() && digits.len() <= 15 && digits.bytes().all(|b| b.is_ascii_digit());
        if is_address { Ok(Called::Address(digits, begins)) } else { Err(NotAPattern) }
    }
}

/// Octets of pairs of hexadecimal digits, at least one.
fn octets(digits: &str) -> Option<Vec<u8>> {
    if digits.is_empty() || !digits.is_ascii() || !digits.len().is_multiple_of(2) {
        return None;
    }
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
}

/// A route: which calls, and where to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// Which calls.
    pub called: Called,
    /// To which host.
    pub host: String,
    /// To which port.
    pub port: u16,
}
