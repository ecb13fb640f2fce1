//! Events of a server, for its log, and reasons for refusals.

use super::limits::{UNAUTHENTICATED_MAX, UNAUTHENTICATED_PER_NETWORK_MAX, UNAUTHENTICATED_TIMEOUT};
use crate::remote::protocol::VERSION;
use std::net::IpAddr;

/// An event for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A session has started.
    Began(IpAddr),
    /// A session has ended for this reason, after this number of trials.
    Ended(IpAddr, u64, String),
    /// A connection was refused for the reason `why`. `more` is the number of further connections from its
    /// network that were refused for the same reason since the last line.
    Refused {
        /// The address; if there were several, the last one.
        address: IpAddr,
        /// The cause.
        why: Refusal,
        /// The number of further refusals without a line of their own.
        more: u64,
    },
    /// This number of further connections were refused, for any reason.
    RefusedOthers(u64),
}

/// Why a connection was refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Refusal {
    /// `--allow` does not include the address.
    NotAllowed,
    /// The client did not send a complete first line in time.
    Silent,
    /// Later connections have displaced the connection.
    Displaced,
    /// The client's first line does not follow this protocol.
    Nonsense,
    /// The client's token is wrong.
    Token,
    /// The client uses this version of the protocol, which differs from the server's.
    Version(u32),
    /// All sessions are in use; there are this many.
    Full(usize),
    /// The host could not create a thread.
    NoThread,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self {
            Refusal::NotAllowed => "the address is not allowed",
            Refusal::Silent => {
                let seconds = UNAUTHENTICATED_TIMEOUT.as_secs();
                return write!(f, "no token was received within {seconds} s");
            }
            Refusal::Displaced => {
                return write!(
                    f,
                    "too many connections have not presented the token yet (limits: \
                     {UNAUTHENTICATED_PER_NETWORK_MAX} per address, {UNAUTHENTICATED_MAX} in all), and this was the \
                     oldest: try again"
                );
            }
            Refusal::Nonsense => "the client does not speak this protocol",
            Refusal::Token => "wrong token",
            Refusal::Version(version) => {
                return write!(
                    f,
                    "the client uses version {version} of the protocol, the server version {VERSION}: install the \
                     same kiban on both hosts"
                );
            }
            Refusal::Full(most) => {
                return write!(
                    f,
                    "the server is full: {most} of {most} sessions are open; try again later, or start it \
                     with more (--sessions)"
                );
            }
            Refusal::NoThread => "the server cannot create a thread: try again later",
        };
        f.write_str(text)
    }
}
