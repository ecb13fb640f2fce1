//! The transport service (X.214), as much of it as class 0 gives.

use crate::osi::Selector;
use alloc::vec::Vec;
use core::fmt;
use kiban_ground::Rope;

/// Requests and responses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// T-CONNECT request. Class 0 carries no user data with it.
    Connect {
        /// Who calls: TSEL, at most 32 octets.
        calling: Selector,
        /// Who is called: TSEL, at most 32 octets.
        called: Selector,
    },
    /// T-CONNECT response: accepted. To refuse, [`Request::Disconnect`].
    Respond {
        /// Who answers; [`Selector::NONE`] says that it is who was called.
        responding: Selector,
    },
    /// T-DATA request: one TSDU. An empty one cannot be carried (X.214 §13.1.2).
    Data(Rope),
    /// T-DISCONNECT request. As the answer to a T-CONNECT indication it refuses with a DR TPDU; later the network connection is
    /// ended, which is all that class 0 has, and neither reason nor text reach the peer.
    Disconnect {
        /// Why.
        reason: DisconnectReason,
        /// Text or other octets beside it, which only a refusal carries.
        additional: Vec<u8>,
    },
}

/// Indications and confirmations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Indication {
    /// T-CONNECT indication: answer with [`Request::Respond`] or [`Request::Disconnect`].
    Connect {
        /// Who calls.
        calling: Selector,
        /// Who is called.
        called: Selector,
    },
    /// T-CONNECT confirm.
    Confirm {
        /// Who answered, if it said so.
        responding: Selector,
    },
    /// T-DATA indication: one whole TSDU, in the pieces that arrived.
    Data(Rope),
    /// T-DISCONNECT indication: the connection is no more.
    Disconnect {
        /// Who ended it.
        origin: Origin,
        /// Why.
        reason: DisconnectReason,
        /// What a refusal said beside it.
        additional: Vec<u8>,
    },
}

/// Who ended a transport connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The other user: its reason says so, or its end of the network connection was closed as things go.
    User,
    /// A transport machine, or the network.
    Provider,
}

/// Why a transport connection ended: the reasons of X.224 §13.5.3, and those that no TPDU carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DisconnectReason {
    /// Not specified (0).
    NotSpecified,
    /// Congestion at the TSAP (1).
    Congestion,
    /// Nobody is attached to the TSAP (2).
    NotAttached,
    /// The address is unknown (3).
    AddressUnknown,
    /// A normal disconnect that the user asked for (128).
    Normal,
    /// The remote transport machine is congested at connect time (129).
    RemoteCongestion,
    /// Negotiation failed: no class or option in common (130).
    NegotiationFailed,
    /// A source reference stands for two connections (131).
    DuplicateReference,
    /// References do not match (132).
    MismatchedReferences,
    /// A protocol error (133).
    ProtocolError,
    /// Reference overflow (135).
    ReferenceOverflow,
    /// The connection request was refused on this network connection (136).
    NetworkRefused,
    /// A header or a parameter is too short or too long (138).
    HeaderLength,
    /// Another reason of the peer's.
    Other(u8),
    /// The network connection ended (no TPDU says so).
    Network,
    /// The peer did not answer in time (no TPDU says so).
    Timeout,
    /// A TSDU was longer than is taken here (no TPDU says so).
    Oversized,
}

impl DisconnectReason {
    /// The code in a DR TPDU; reasons that have none are "not specified".
    pub const fn code(self) -> u8 {
        match self {
            DisconnectReason::NotSpecified
            | DisconnectReason::Network
            | DisconnectReason::Timeout
            | DisconnectReason::Oversized => 0,
            DisconnectReason::Congestion => 1,
            DisconnectReason::NotAttached => 2,
            DisconnectReason::AddressUnknown => 3,
            DisconnectReason::Normal => 128,
            DisconnectReason::RemoteCongestion => 129,
            DisconnectReason::NegotiationFailed => 130,
            DisconnectReason::DuplicateReference => 131,
            DisconnectReason::MismatchedReferences => 132,
            DisconnectReason::ProtocolError => 133,
            DisconnectReason::ReferenceOverflow => 135,
            DisconnectReason::NetworkRefused => 136,
            DisconnectReason::HeaderLength => 138,
            DisconnectReason::Other(code) => code,
        }
    }

    /// That of a code.
    pub const fn of_code(code: u8) -> DisconnectReason {
        match code {
            0 => DisconnectReason::NotSpecified,
            1 => DisconnectReason::Congestion,
            2 => DisconnectReason::NotAttached,
            3 => DisconnectReason::AddressUnknown,
            128 => DisconnectReason::Normal,
            129 => DisconnectReason::RemoteCongestion,
            130 => DisconnectReason::NegotiationFailed,
            131 => DisconnectReason::DuplicateReference,
            132 => DisconnectReason::MismatchedReferences,
            133 => DisconnectReason::ProtocolError,
            135 => DisconnectReason::ReferenceOverflow,
            136 => DisconnectReason::NetworkRefused,
            138 => DisconnectReason::HeaderLength,
            code => DisconnectReason::Other(code),
        }
    }

    const fn words(self) -> &'static str {
        match self {
            DisconnectReason::NotSpecified => "no reason is given",
            DisconnectReason::Congestion => "who is called is congested",
            DisconnectReason::NotAttached => "nobody is attached to the selector",
            DisconnectReason::AddressUnknown => "the selector is unknown",
            DisconnectReason::Normal => "a normal disconnect",
            DisconnectReason::RemoteCongestion => "transport is congested",
            DisconnectReason::NegotiationFailed => "no class or option in common",
            DisconnectReason::DuplicateReference => "a reference stands for two connections",
            DisconnectReason::MismatchedReferences => "the references do not match",
            DisconnectReason::ProtocolError => "a protocol error",
            DisconnectReason::ReferenceOverflow => "no reference is left",
            DisconnectReason::NetworkRefused => "not on this network connection",
            DisconnectReason::HeaderLength => "a header or a parameter is too short or too long",
            DisconnectReason::Other(_) => "a reason that X.224 does not have",
            DisconnectReason::Network => "the network connection ended",
            DisconnectReason::Timeout => "the peer did not answer in time",
            DisconnectReason::Oversized => "a unit was longer than is taken",
        }
    }

    /// Whether a TPDU can say so.
    pub const fn is_of_tpdu(self) -> bool {
        !matches!(self, DisconnectReason::Network | DisconnectReason::Timeout | DisconnectReason::Oversized)
    }
}

/// In words, with the number that the TPDU had.
impl fmt::Display for DisconnectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())?;
        if self.is_of_tpdu() { write!(f, " ({})", self.code()) } else { Ok(()) }
    }
}

/// Why a transport connection was refused, or ended, and what was said beside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disconnected {
    /// Why.
    pub reason: DisconnectReason,
    /// Text or other octets.
    pub additional: Vec<u8>,
}

impl fmt::Display for Disconnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)?;
        if self.additional.is_empty() {
            return Ok(());
        }
        write!(f, ", saying \"{}\"", self.additional.escape_ascii())
    }
}
