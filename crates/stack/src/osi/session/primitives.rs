//! The session service (X.215), as much of it as the functional units that are offered have.
//!
//! Units     kernel, duplex, minor synchronise, resynchronise, typed data ([`super::OFFERED`]).
//! Serials   synchronisation points have numbers from 0 to [`SERIAL_MAX`]. The session machine gives a minor point its
//!           number: who asks for one reads it from `serial_next` before.
//! Data      is a rope everywhere. How long it may be is said where it is carried: data and typed data as long as
//!           `ssdu_bytes_max`, the rest as the selected version carries it (1: 512 octets, in an abort 9; 2: any).

use super::{RefuseReason, Resynchronisation, TokenSettings, Tokens, Units};
use crate::osi::Selector;
use alloc::boxed::Box;
use alloc::vec::Vec;
use kiban_ground::Rope;

/// The largest number of a synchronisation point.
pub const SERIAL_MAX: u32 = 999_999;

/// The Session Connection Identifier: references that the users know a connection by; the session machine reads none.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ConnectionId {
    /// The calling or called user's reference, at most 64 octets.
    pub user_reference: Vec<u8>,
    /// The common reference, at most 64 octets.
    pub common_reference: Vec<u8>,
    /// Additional reference information, at most 4 octets.
    pub additional: Vec<u8>,
}

/// S-CONNECT request and indication.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Connect {
    /// The connection's references.
    pub id: ConnectionId,
    /// SSEL of who calls, at most 16 octets.
    pub calling: Selector,
    /// SSEL of who is called, at most 16 octets.
    pub called: Selector,
    /// Session requirements: the functional units that are wanted.
    pub units: Units,
    /// The first synchronisation point's number: with minor synchronise or resynchronise, and without activities.
    pub initial_serial: Option<u32>,
    /// Where the tokens of these units are to be.
    pub tokens: TokenSettings,
    /// User data.
    pub user_data: Rope,
}

/// S-CONNECT response and confirm: accepted.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Accept {
    /// The connection's references.
    pub id: ConnectionId,
    /// SSEL of who answers, at most 16 octets.
    pub responding: Selector,
    /// Session requirements: what of the answerer's units both want is selected.
    pub units: Units,
    /// The first synchronisation point's number, if it has one.
    pub initial_serial: Option<u32>,
    /// Where tokens are whose place was left to the acceptor.
    pub tokens: TokenSettings,
    /// User data.
    pub user_data: Rope,
}

/// S-CONNECT response and confirm: refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refuse {
    /// The connection's references.
    pub id: ConnectionId,
    /// Why. A response says one of the user's reasons.
    pub reason: RefuseReason,
    /// User data, with [`RefuseReason::UserData`].
    pub user_data: Rope,
}

/// The answer to S-CONNECT.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The connection is made.
    Accepted(Box<Accept>),
    /// There is none.
    Refused(Box<Refuse>),
}

/// Requests and responses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// S-CONNECT request.
    Connect(Box<Connect>),
    /// S-CONNECT response.
    ConnectResponse(Answer),
    /// S-DATA request: one SSDU.
    Data(Rope),
    /// S-TYPED-DATA request: one SSDU.
    TypedData(Rope),
    /// S-TOKEN-GIVE request.
    GiveTokens {
        /// Those to give; the caller holds them.
        tokens: Tokens,
        /// User data (version 2).
        user_data: Rope,
    },
    /// S-TOKEN-PLEASE request.
    PleaseTokens {
        /// Those to ask for; the peer holds them.
        tokens: Tokens,
        /// User data.
        user_data: Rope,
    },
    /// S-SYNC-MINOR request: the point has the number that `serial_next` says before.
    SyncMinor {
        /// Whether a confirmation is asked for.
        explicit: bool,
        /// User data.
        user_data: Rope,
    },
    /// S-SYNC-MINOR response: this point and all before it are confirmed.
    SyncMinorResponse {
        /// The point.
        serial: u32,
        /// User data.
        user_data: Rope,
    },
    /// S-RESYNCHRONIZE request.
    Resynchronise {
        /// How.
        kind: Resynchronisation,
        /// To where: needed to restart and to set. To abandon, the machine chooses.
        serial: Option<u32>,
        /// Where the tokens are to be.
        tokens: TokenSettings,
        /// User data.
        user_data: Rope,
    },
    /// S-RESYNCHRONIZE response.
    ResynchroniseResponse {
        /// To where: the peer's proposal, or with [`Resynchronisation::Set`] what the caller prefers. `None`: the proposal.
        serial: Option<u32>,
        /// Where tokens are whose place was left to the acceptor.
        tokens: TokenSettings,
        /// User data.
        user_data: Rope,
    },
    /// S-RELEASE request.
    Release {
        /// User data.
        user_data: Rope,
    },
    /// S-RELEASE response.
    ReleaseResponse {
        /// Must be true: negotiated release is not offered.
        accepted: bool,
        /// User data.
        user_data: Rope,
    },
    /// S-U-ABORT request. What had been asked and not sent may be lost.
    Abort {
        /// User data: in version 1, at most 9 octets.
        user_data: Rope,
    },
}

/// Indications and confirmations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Indication {
    /// S-CONNECT indication.
    Connect(Box<Connect>),
    /// S-CONNECT confirm.
    ConnectConfirm(Answer),
    /// S-DATA indication: one SSDU.
    Data(Rope),
    /// S-TYPED-DATA indication: one SSDU.
    TypedData(Rope),
    /// S-TOKEN-GIVE indication.
    GiveTokens {
        /// Those that are now here.
        tokens: Tokens,
        /// User data.
        user_data: Rope,
    },
    /// S-TOKEN-PLEASE indication.
    PleaseTokens {
        /// Those that the peer asks for.
        tokens: Tokens,
        /// User data.
        user_data: Rope,
    },
    /// S-SYNC-MINOR indication.
    SyncMinor {
        /// Whether the peer asks for a confirmation; it may be given in any case.
        explicit: bool,
        /// The point.
        serial: u32,
        /// User data.
        user_data: Rope,
    },
    /// S-SYNC-MINOR confirm.
    SyncMinorConfirm {
        /// The point; it and all before it are confirmed.
        serial: u32,
        /// User data.
        user_data: Rope,
    },
    /// S-RESYNCHRONIZE indication. A request of the own that was under way has lost and is void.
    Resynchronise {
        /// How.
        kind: Resynchronisation,
        /// To where.
        serial: u32,
        /// Where the tokens are to be.
        tokens: TokenSettings,
        /// User data.
        user_data: Rope,
    },
    /// S-RESYNCHRONIZE confirm.
    ResynchroniseConfirm {
        /// To where.
        serial: u32,
        /// Where the tokens are.
        tokens: TokenSettings,
        /// User data.
        user_data: Rope,
    },
    /// S-RELEASE indication.
    Release {
        /// User data.
        user_data: Rope,
    },
    /// S-RELEASE confirm.
    ReleaseConfirm {
        /// Whether the connection has ended.
        accepted: bool,
        /// User data.
        user_data: Rope,
    },
    /// S-U-ABORT indication: the peer's user ended the connection.
    UAbort {
        /// User data.
        user_data: Rope,
    },
    /// S-P-ABORT indication: a session machine or the transport ended it.
    PAbort {
        /// Why.
        reason: AbortReason,
    },
}

/// Why a session connection was aborted, not by a user.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AbortReason {
    /// The transport connection ended.
    TransportDisconnect,
    /// Either end saw the other break the protocol.
    ProtocolError,
    /// A restriction of either end's implementation.
    Restriction,
    /// Nobody says why.
    Undefined,
}
