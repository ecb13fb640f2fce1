//! Primitives of the session service (X.215), for the supported functional units.
//!
//! Units     kernel, duplex, minor synchronise, resynchronise, typed data ([`super::OFFERED`]).
//! Serials   synchronisation points have serial numbers from 0 to [`SERIAL_MAX`]. The session machine numbers
//!           minor points; to learn the number of a point, call `serial_next` before requesting it.
//! Data      user data is always a rope. Its maximum length depends on the primitive: `ssdu_bytes_max` for
//!           data and typed data, otherwise the maximum of the selected version (version 1: 512 octets, or 9
//!           in an abort; version 2: unlimited).

use crate::Selector;
use crate::wire::session::{RefuseReason, Resynchronisation, TokenSettings, Tokens, Units};
use alloc::boxed::Box;
use alloc::vec::Vec;
use kiban_base::Rope;

/// The largest serial number of a synchronisation point.
pub const SERIAL_MAX: u32 = 999_999;

/// The Session Connection Identifier: references by which the users identify a connection. The session
/// machine does not interpret them.
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
    /// Calling SSEL, at most 16 octets.
    pub calling: Selector,
    /// Called SSEL, at most 16 octets.
    pub called: Selector,
    /// Session requirements: the proposed functional units.
    pub units: Units,
    /// Initial synchronisation point serial number; present with minor synchronise or resynchronise, and
    /// without activities.
    pub initial_serial: Option<u32>,
    /// The initial side of each of these units' tokens.
    pub tokens: TokenSettings,
    /// User data.
    pub user_data: Rope,
}

/// S-CONNECT response and confirm: accepted.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Accept {
    /// The connection's references.
    pub id: ConnectionId,
    /// Responding SSEL, at most 16 octets.
    pub responding: Selector,
    /// Session requirements: the units that both ends name are selected.
    pub units: Units,
    /// Initial synchronisation point serial number, if any.
    pub initial_serial: Option<u32>,
    /// The sides to which tokens are assigned, for tokens whose assignment was left to the acceptor.
    pub tokens: TokenSettings,
    /// User data.
    pub user_data: Rope,
}

/// S-CONNECT response and confirm: refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refuse {
    /// The connection's references.
    pub id: ConnectionId,
    /// The reason; in a response, one of those that a user may give.
    pub reason: RefuseReason,
    /// User data, with [`RefuseReason::UserData`].
    pub user_data: Rope,
}

/// The answer to S-CONNECT.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The connection is established.
    Accepted(Box<Accept>),
    /// The connection is refused.
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
        /// The tokens to give, which the caller must hold.
        tokens: Tokens,
        /// User data (version 2).
        user_data: Rope,
    },
    /// S-TOKEN-PLEASE request.
    PleaseTokens {
        /// The tokens to request, which the peer must hold.
        tokens: Tokens,
        /// User data.
        user_data: Rope,
    },
    /// S-SYNC-MINOR request; the point gets the serial number that `serial_next` returns before the call.
    SyncMinor {
        /// Whether a confirmation is requested.
        explicit: bool,
        /// User data.
        user_data: Rope,
    },
    /// S-SYNC-MINOR response: confirms this point and all earlier ones.
    SyncMinorResponse {
        /// Serial number of the point.
        serial: u32,
        /// User data.
        user_data: Rope,
    },
    /// S-RESYNCHRONIZE request.
    Resynchronise {
        /// Abandon, restart or set.
        kind: Resynchronisation,
        /// Serial number to resynchronise to: required for restart and set. For abandon, the machine chooses.
        serial: Option<u32>,
        /// Sides of the tokens afterwards.
        tokens: TokenSettings,
        /// User data.
        user_data: Rope,
    },
    /// S-RESYNCHRONIZE response.
    ResynchroniseResponse {
        /// Serial number to resynchronise to: the peer's proposal or, with [`Resynchronisation::Set`], one
        /// that the caller prefers. `None` means the proposal.
        serial: Option<u32>,
        /// The sides to which tokens are assigned, for tokens whose assignment was left to the acceptor.
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
        /// Must be true, because the negotiated release functional unit, which allows a refusal, is not
        /// supported.
        accepted: bool,
        /// User data.
        user_data: Rope,
    },
    /// S-U-ABORT request. Data requested earlier but not yet sent may be lost.
    Abort {
        /// User data: at most 9 octets in version 1.
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
        /// The tokens that this end holds now.
        tokens: Tokens,
        /// User data.
        user_data: Rope,
    },
    /// S-TOKEN-PLEASE indication.
    PleaseTokens {
        /// The tokens that the peer requests.
        tokens: Tokens,
        /// User data.
        user_data: Rope,
    },
    /// S-SYNC-MINOR indication.
    SyncMinor {
        /// Whether the peer requests a confirmation; the user may confirm either way.
        explicit: bool,
        /// Serial number of the point.
        serial: u32,
        /// User data.
        user_data: Rope,
    },
    /// S-SYNC-MINOR confirm.
    SyncMinorConfirm {
        /// The serial number of the point. The confirm covers this point and all earlier ones.
        serial: u32,
        /// User data.
        user_data: Rope,
    },
    /// S-RESYNCHRONIZE indication. It cancels a resynchronisation that this end had requested.
    Resynchronise {
        /// Abandon, restart or set.
        kind: Resynchronisation,
        /// Serial number to resynchronise to.
        serial: u32,
        /// Sides of the tokens afterwards.
        tokens: TokenSettings,
        /// User data.
        user_data: Rope,
    },
    /// S-RESYNCHRONIZE confirm.
    ResynchroniseConfirm {
        /// Serial number resynchronised to.
        serial: u32,
        /// Sides of the tokens.
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
    /// S-U-ABORT indication: the user at the other end ended the connection.
    UAbort {
        /// User data.
        user_data: Rope,
    },
    /// S-P-ABORT indication: a session machine or the transport service ended the connection.
    PAbort {
        /// The reason.
        reason: AbortReason,
    },
}

/// The reason for a provider abort of a session connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AbortReason {
    /// The transport connection ended.
    TransportDisconnect,
    /// One of the session machines received data that violates the protocol.
    ProtocolError,
    /// A restriction of a session machine's implementation.
    Restriction,
    /// No reason is given.
    Undefined,
}
