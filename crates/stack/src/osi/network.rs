//! The network service below transport, as much of X.213 as class 0 uses.
//!
//! Goal      one set of primitives for two ways down: a TCP connection with TPKTs (RFC 1006) and an X.25 virtual call.
//! Data      one network service data unit: over RFC 1006 what one TPKT carries, over X.25 a sequence of packets joined
//!           by their M bits. Class 0 puts one TPDU into it, never more.
//! Left out  expedited data, receipt confirmation, reset: class 0 uses none, and a reset ends its connection
//!           (X.224 §6.15), so it comes up as [`Indication::Disconnected`].

use kiban_ground::Rope;

/// What transport asks of the network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// N-CONNECT request: the wiring knows to whom.
    Connect,
    /// N-CONNECT response: the call that came in is taken.
    Accept,
    /// N-DATA request: one NSDU.
    Data(Rope),
    /// N-DISCONNECT request: the TCP connection is closed after all that was asked to be sent, the call is cleared.
    Disconnect {
        /// Why.
        reason: Reason,
    },
}

/// What the network says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Indication {
    /// N-CONNECT confirm to whom asked for the connection, N-CONNECT indication to whom did not.
    Connected,
    /// N-DATA indication: one NSDU.
    Data(Rope),
    /// N-DISCONNECT indication, or an N-RESET indication, which class 0 does not survive.
    Disconnected {
        /// Who ended it.
        origin: Origin,
        /// Why.
        reason: Reason,
    },
}

/// Who ended a network connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The other end: its TCP end was closed, it cleared the call.
    User,
    /// What lies between: a broken TCP connection, a network that cleared or reset.
    Provider,
    /// Nobody knows.
    Unknown,
}

/// Why a network connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// As things go.
    Normal,
    /// In the midst of things.
    Abnormal,
    /// Nobody there takes calls.
    Refused,
    /// There is no way to there.
    Unreachable,
    /// What arrived on it broke a rule.
    Protocol,
}
