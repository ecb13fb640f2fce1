//! Errors returned for requests from the host.

/// Why a request was refused. A refused request changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The session was never opened, or it has ended.
    UnknownSession,
    /// The host has finished sending on this session.
    Finished,
    /// The slice is longer than the room that is left.
    NoRoom,
    /// Another listener has that address and port, or the connection already exists.
    AddressInUse,
    /// The addresses differ in family, one is unspecified or multicast, or a required port is zero.
    BadAddress,
    /// No session or no dynamic port is free.
    TooMany,
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Refusal::UnknownSession => "no such session: it was not opened, or it has ended",
            Refusal::Finished => "sending on this session is finished: nothing more can be written",
            Refusal::NoRoom => "not enough room in the session: wait until it is writable",
            Refusal::AddressInUse => "that address and port are in use: choose another port",
            Refusal::BadAddress => {
                "invalid address: use unicast addresses of the same family, and a port other than 0"
            }
            Refusal::TooMany => "no session number or port is free: close sessions first",
        })
    }
}

impl core::error::Error for Refusal {}
