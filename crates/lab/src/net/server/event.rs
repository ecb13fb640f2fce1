//! What happens at a server, for its log, and why it refuses.

use super::limits::{STRANGER_TIME, STRANGERS_MAX, STRANGERS_PER_NETWORK_MAX};
use std::net::IpAddr;

/// What happened, for a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A session begins.
    Began(IpAddr),
    /// It ended, after so many trials; how.
    Ended(IpAddr, u64, String),
    /// Somebody was not let in; why. With `more`, so many others for the same reason since the line before.
    Refused {
        /// Who; the last of them.
        address: IpAddr,
        /// The cause.
        why: Refusal,
        /// How many others had no line.
        more: u64,
    },
    /// So many others were not let in, for whatever reason.
    RefusedOthers(u64),
}

/// Why somebody was not let in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Refusal {
    /// `--allow` leaves it out.
    NotAllowed,
    /// It has said nothing, or not enough.
    Silent,
    /// Others that came later have its place.
    Displaced,
    /// What it said is nothing of ours.
    Nonsense,
    /// It knows another token.
    Token,
    /// It is of another version.
    Version,
    /// All sessions are taken: so many.
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
            Refusal::Version => "the client speaks another version of the protocol",
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
