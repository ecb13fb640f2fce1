//! The primitives of the transport service (X.214) that class 0 provides.

use crate::Selector;
use alloc::vec::Vec;
use core::fmt;
use kiban_base::Rope;

/// Requests and responses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// T-CONNECT request. In class 0, it carries no user data.
    Connect {
        /// Calling TSEL, at most 32 octets.
        calling: Selector,
        /// Called TSEL, at most 32 octets.
        called: Selector,
    },
    /// T-CONNECT response: accepts the connection. To refuse it, use [`Request::Disconnect`].
    Respond {
        /// The responding TSEL; [`Selector::NONE`] means the called TSEL.
        responding: Selector,
    },
    /// T-DATA request: one TSDU, which must not be empty (X.214 §13.1.2).
    Data(Rope),
    /// T-DISCONNECT request. In answer to a T-CONNECT indication, it refuses the connection with a DR TPDU.
    /// Later, it closes the network connection, which is the only way to release a connection in class 0; the
    /// peer then receives neither reason nor text.
    Disconnect {
        /// The reason.
        reason: DisconnectReason,
        /// Additional information, which may be text or other octets; sent only with a refusal.
        additional: Vec<u8>,
    },
}

/// Indications and confirmations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Indication {
    /// T-CONNECT indication: answer with [`Request::Respond`] or [`Request::Disconnect`].
    Connect {
        /// Calling TSEL.
        calling: Selector,
        /// Called TSEL.
        called: Selector,
    },
    /// T-CONNECT confirm.
    Confirm {
        /// Responding TSEL, if given.
        responding: Selector,
    },
    /// T-DATA indication: one complete TSDU, in the pieces that arrived.
    Data(Rope),
    /// T-DISCONNECT indication: the connection has ended.
    Disconnect {
        /// The originator.
        origin: Origin,
        /// The reason.
        reason: DisconnectReason,
        /// Additional information of a refusal.
        additional: Vec<u8>,
    },
}

/// Originator of a transport disconnect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The remote user ended the connection: the DR's reason says so, or the remote end closed the network
    /// connection normally.
    User,
    /// A transport machine, or the network.
    Provider,
}

/// The reason why a transport connection ended: the reasons of X.224 §13.5.3, and local reasons, which no
/// TPDU carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DisconnectReason {
    /// Not specified (0).
    NotSpecified,
    /// Congestion at the TSAP (1).
    Congestion,
    /// No session entity is attached to the TSAP (2).
    NotAttached,
    /// The address is unknown (3).
    AddressUnknown,
    /// Normal disconnect, requested by the user (128).
    Normal,
    /// The remote transport machine is congested at connect time (129).
    RemoteCongestion,
    /// Negotiation failed: no class or option in common (130).
    NegotiationFailed,
    /// Duplicate source reference (131).
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
    /// Another code sent by the peer.
    Other(u8),
    /// The network connection ended (not in any TPDU).
    Network,
    /// The peer did not answer in time (not in any TPDU).
    Timeout,
    /// A received TSDU was too long (not in any TPDU).
    Oversized,
}

impl DisconnectReason {
    /// Returns the reason's code in a DR TPDU, or the code for "not specified" if it has none.
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

    /// Returns the reason with a code.
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
            DisconnectReason::NotSpecified => "no reason given",
            DisconnectReason::Congestion => "the called party is congested",
            DisconnectReason::NotAttached => "no user is attached to the selector",
            DisconnectReason::AddressUnknown => "the selector is unknown",
            DisconnectReason::Normal => "normal disconnect",
            DisconnectReason::RemoteCongestion => "the transport entity is congested",
            DisconnectReason::NegotiationFailed => "no class or option in common",
            DisconnectReason::DuplicateReference => "duplicate reference: two connections use it",
            DisconnectReason::MismatchedReferences => "the references do not match",
            DisconnectReason::ProtocolError => "protocol error",
            DisconnectReason::ReferenceOverflow => "no references are left",
            DisconnectReason::NetworkRefused => "refused on this network connection",
            DisconnectReason::HeaderLength => "invalid header or parameter length",
            DisconnectReason::Other(_) => "a reason that X.224 does not define",
            DisconnectReason::Network => "the network connection ended",
            DisconnectReason::Timeout => "the peer did not answer in time",
            DisconnectReason::Oversized => "a TSDU exceeded the maximum length",
        }
    }

    /// Returns whether a TPDU can carry this reason.
    pub const fn is_of_tpdu(self) -> bool {
        !matches!(self, DisconnectReason::Network | DisconnectReason::Timeout | DisconnectReason::Oversized)
    }
}

/// Formats the reason in words, followed by its code in the TPDU.
impl fmt::Display for DisconnectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())?;
        if self.is_of_tpdu() { write!(f, " ({})", self.code()) } else { Ok(()) }
    }
}

/// The reason why a transport connection was refused or ended, with additional information.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disconnected {
    /// The reason.
    pub reason: DisconnectReason,
    /// Additional information: text or other octets.
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
