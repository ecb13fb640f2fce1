//! Events of a server, for its log, and reasons for refusals.

use super::limits::{STRANGER_TIME, STRANGERS_MAX, STRANGERS_PER_NETWORK_MAX};
use std::net::IpAddr;

/// An event for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A session has started.
    Began(IpAddr),
    /// A session has ended, after this many trials, for this reason.
    Ended(IpAddr, u64, String),
    /// A connection was refused for this reason. `more`: the number of others refused for the same reason
    /// since the last line.
    Refused {
        /// The address; the last one, if there are several.
        address: IpAddr,
        /// The cause.
        why: Refusal,
        /// The number of others without a line.
        more: u64,
    },
    /// This many others were refused, for any reason.
    RefusedOthers(u64),
}

/// Why a connection was refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Refusal {
    /// `--allow` does not include the address.
    NotAllowed,
    /// The client sent nothing, or too little, in time.
    Silent,
    /// Later connections needed its place.
    Displaced,
    /// Its first line is not of this protocol.
    Nonsense,
    /// Its token is wrong.
    Token,
    /// It has another protocol version.
    Version,
    /// All sessions are in use: this many.
    Full(usize),
    /// This host lends no thread.
    NoThread,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self {
            Refusal::NotAllowed => "the address is not allowed",
            Refusal::Silent => {
                let seconds = STRANGER_TIME.as_secs();
                return write!(f, "no token was shown within {seconds} s");
            }
            Refusal::Displaced => {
                return write!(
                    f,
                    "too many connections wait that have not shown the token ({STRANGERS_PER_NETWORK_MAX} of an address, \
                     {STRANGERS_MAX} in all), and this was the oldest: try again"
                );
            }
            Refusal::Nonsense => "the client does not speak this protocol",
            Refusal::Token => "the token is not this server's",
            Refusal::Version => "the client uses another version of the protocol",
            Refusal::Full(most) => {
                return write!(
                    f,
                    "the server is full: {most} of {most} sessions are open; try again later, or start it with more \
                     (--sessions)"
                );
            }
            Refusal::NoThread => "the server has no thread to spare: try again later",
        };
        f.write_str(text)
    }
}
