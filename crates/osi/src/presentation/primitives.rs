//! Primitives of the presentation service (X.216), as far as this session layer supports them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::wire::presentation::{AbortReason, ContextDefinition, ContextResult, Event, Pdv, ProviderReason};

use crate::{Selector, session};

/// P-CONNECT request and indication.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Connect {
    /// The S-CONNECT parameters. Their user data is empty here, because the machine fills it with the CP
    /// PPDU.
    pub session: session::Connect,
    /// Calling PSEL.
    pub calling: Selector,
    /// Called PSEL.
    pub called: Selector,
    /// The proposed contexts.
    pub contexts: Vec<ContextDefinition>,
    /// In an indication, one result for each context: acceptance with a usable transfer syntax, or
    /// provider-rejection if there is none. Empty in a request.
    pub results: Vec<ContextResult>,
    /// User data.
    pub user_data: Vec<Pdv>,
}

/// P-CONNECT response and confirm: accepted.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Accept {
    /// The S-CONNECT parameters; their user data is empty here.
    pub session: session::Accept,
    /// Responding PSEL.
    pub responding: Selector,
    /// The result for each context, in order: the results from the indication, some of which the user may
    /// change to user-rejection.
    pub results: Vec<ContextResult>,
    /// User data.
    pub user_data: Vec<Pdv>,
}

/// P-CONNECT response and confirm: rejected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refuse {
    /// The session connection's references.
    pub id: session::ConnectionId,
    /// The side that rejects; always the user in a response.
    pub by: Refuser,
    /// Responding PSEL.
    pub responding: Selector,
    /// The result for each context, in order; the list may be empty in a confirm.
    pub results: Vec<ContextResult>,
    /// User data; empty if the provider rejects.
    pub user_data: Vec<Pdv>,
}

/// The side that rejects a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refuser {
    /// The peer's user: "user-rejection".
    User,
    /// The peer's presentation machine ("provider-rejection").
    Provider(ProviderReason),
    /// The session layer, or an entity above it that is not a presentation machine ("provider-rejection").
    Session(session::RefuseReason),
}

impl core::fmt::Display for Refuser {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Refuser::User => f.write_str("the user above its presentation layer gave no reason"),
            Refuser::Provider(reason) => write!(f, "its presentation layer refused: {reason:?}"),
            Refuser::Session(reason) => write!(f, "its session layer refused: {reason}"),
        }
    }
}

/// The answer to P-CONNECT.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The connection is established.
    Accepted(Box<Accept>),
    /// The connection is rejected.
    Refused(Box<Refuse>),
}

/// Requests and responses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// P-CONNECT request.
    Connect(Box<Connect>),
    /// P-CONNECT response.
    ConnectResponse(Answer),
    /// P-DATA request, with at least one value.
    Data(Vec<Pdv>),
    /// P-TYPED-DATA request, with at least one value.
    TypedData(Vec<Pdv>),
    /// P-TOKEN-GIVE request.
    GiveTokens {
        /// The tokens to give.
        tokens: session::Tokens,
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-TOKEN-PLEASE request.
    PleaseTokens {
        /// The tokens to request.
        tokens: session::Tokens,
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-SYNC-MINOR request.
    SyncMinor {
        /// Whether a confirmation is requested.
        explicit: bool,
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-SYNC-MINOR response.
    SyncMinorResponse {
        /// Serial number of the point.
        serial: u32,
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-RESYNCHRONIZE request.
    Resynchronise {
        /// Abandon, restart or set.
        kind: session::Resynchronisation,
        /// Serial number to resynchronise to.
        serial: Option<u32>,
        /// Sides of the tokens afterwards.
        tokens: session::TokenSettings,
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-RESYNCHRONIZE response.
    ResynchroniseResponse {
        /// Serial number to resynchronise to.
        serial: Option<u32>,
        /// The sides to which tokens are assigned, for tokens whose assignment was left to the acceptor.
        tokens: session::TokenSettings,
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-RELEASE request.
    Release {
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-RELEASE response.
    ReleaseResponse {
        /// Whether the connection may end.
        accepted: bool,
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-U-ABORT request. User data that the session version cannot carry is omitted (X.226 §6.4.2.2).
    Abort {
        /// User data.
        user_data: Vec<Pdv>,
    },
}

/// Indications and confirmations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Indication {
    /// P-CONNECT indication.
    Connect(Box<Connect>),
    /// P-CONNECT confirm.
    ConnectConfirm(Answer),
    /// P-DATA indication.
    Data(Vec<Pdv>),
    /// P-TYPED-DATA indication.
    TypedData(Vec<Pdv>),
    /// P-TOKEN-GIVE indication.
    GiveTokens {
        /// The tokens that this end holds now.
        tokens: session::Tokens,
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-TOKEN-PLEASE indication.
    PleaseTokens {
        /// The tokens that the peer requests.
        tokens: session::Tokens,
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-SYNC-MINOR indication.
    SyncMinor {
        /// Whether the peer requests a confirmation.
        explicit: bool,
        /// Serial number of the point.
        serial: u32,
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-SYNC-MINOR confirm.
    SyncMinorConfirm {
        /// Serial number of the point.
        serial: u32,
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-RESYNCHRONIZE indication.
    Resynchronise {
        /// Abandon, restart or set.
        kind: session::Resynchronisation,
        /// Serial number to resynchronise to.
        serial: u32,
        /// Sides of the tokens afterwards.
        tokens: session::TokenSettings,
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-RESYNCHRONIZE confirm.
    ResynchroniseConfirm {
        /// Serial number resynchronised to.
        serial: u32,
        /// Sides of the tokens.
        tokens: session::TokenSettings,
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-RELEASE indication.
    Release {
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-RELEASE confirm.
    ReleaseConfirm {
        /// Whether the connection has ended.
        accepted: bool,
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-U-ABORT indication.
    UAbort {
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-P-ABORT indication.
    PAbort(PAbort),
}

/// The source of a provider abort.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PAbort {
    /// This presentation machine, because the peer violated the protocol.
    Here {
        /// The reason.
        reason: AbortReason,
        /// The event that caused it.
        event: Option<Event>,
    },
    /// The peer's presentation machine.
    Peer {
        /// The reason that the peer gives.
        reason: Option<AbortReason>,
        /// The event that the peer names as the cause.
        event: Option<Event>,
    },
    /// The session layer, or a layer below it.
    Session(session::AbortReason),
}
