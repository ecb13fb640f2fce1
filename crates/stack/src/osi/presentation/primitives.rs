//! The presentation service (X.216), as much of it as session offers.

use alloc::boxed::Box;
use alloc::vec::Vec;

use kiban_wire::presentation::{AbortReason, ContextDefinition, ContextResult, Event, Pdv, ProviderReason};

use crate::osi::{Selector, session};

/// P-CONNECT request and indication.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Connect {
    /// What session's S-CONNECT has; its user data belong to presentation and are empty here.
    pub session: session::Connect,
    /// PSEL of who calls.
    pub calling: Selector,
    /// PSEL of who is called.
    pub called: Selector,
    /// The contexts that are wanted.
    pub contexts: Vec<ContextDefinition>,
    /// In an indication, one for each context: acceptance proposes the transfer syntax that can be had, provider-rejection
    /// says that there is none. In a request empty.
    pub results: Vec<ContextResult>,
    /// User data.
    pub user_data: Vec<Pdv>,
}

/// P-CONNECT response and confirm: accepted.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Accept {
    /// What session's S-CONNECT has; its user data are empty here.
    pub session: session::Accept,
    /// PSEL of who answers.
    pub responding: Selector,
    /// The answer to each context, in order: those of the indication, some of them perhaps made user-rejections.
    pub results: Vec<ContextResult>,
    /// User data.
    pub user_data: Vec<Pdv>,
}

/// P-CONNECT response and confirm: rejected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refuse {
    /// The session connection's references.
    pub id: session::ConnectionId,
    /// Who rejects. A response is always the user's.
    pub by: Refuser,
    /// PSEL of who answers.
    pub responding: Selector,
    /// The answer to each context, in order; in a confirm perhaps empty.
    pub results: Vec<ContextResult>,
    /// User data; none of the provider's.
    pub user_data: Vec<Pdv>,
}

/// Who rejects a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refuser {
    /// The peer's user: "user-rejection".
    User,
    /// The peer's presentation machine: "provider-rejection".
    Provider(ProviderReason),
    /// Session, or what stood above it but is no presentation machine: "provider-rejection".
    Session(session::RefuseReason),
}

/// The answer to P-CONNECT.
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
    /// P-CONNECT request.
    Connect(Box<Connect>),
    /// P-CONNECT response.
    ConnectResponse(Answer),
    /// P-DATA request: at least one value.
    Data(Vec<Pdv>),
    /// P-TYPED-DATA request: at least one value.
    TypedData(Vec<Pdv>),
    /// P-TOKEN-GIVE request.
    GiveTokens {
        /// Those to give.
        tokens: session::Tokens,
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-TOKEN-PLEASE request.
    PleaseTokens {
        /// Those to ask for.
        tokens: session::Tokens,
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-SYNC-MINOR request.
    SyncMinor {
        /// Whether a confirmation is asked for.
        explicit: bool,
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-SYNC-MINOR response.
    SyncMinorResponse {
        /// The point.
        serial: u32,
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-RESYNCHRONIZE request.
    Resynchronise {
        /// How.
        kind: session::Resynchronisation,
        /// To where.
        serial: Option<u32>,
        /// Where the tokens are to be.
        tokens: session::TokenSettings,
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-RESYNCHRONIZE response.
    ResynchroniseResponse {
        /// To where.
        serial: Option<u32>,
        /// Where tokens are whose place was left to the acceptor.
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
    /// P-U-ABORT request. User data that session's version cannot carry are left out (X.226 §6.4.2.2).
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
        /// Those that are now here.
        tokens: session::Tokens,
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-TOKEN-PLEASE indication.
    PleaseTokens {
        /// Those that the peer asks for.
        tokens: session::Tokens,
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-SYNC-MINOR indication.
    SyncMinor {
        /// Whether the peer asks for a confirmation.
        explicit: bool,
        /// The point.
        serial: u32,
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-SYNC-MINOR confirm.
    SyncMinorConfirm {
        /// The point.
        serial: u32,
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-RESYNCHRONIZE indication.
    Resynchronise {
        /// How.
        kind: session::Resynchronisation,
        /// To where.
        serial: u32,
        /// Where the tokens are to be.
        tokens: session::TokenSettings,
        /// User data.
        user_data: Vec<Pdv>,
    },
    /// P-RESYNCHRONIZE confirm.
    ResynchroniseConfirm {
        /// To where.
        serial: u32,
        /// Where the tokens are.
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

/// Who ended a connection that no user ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PAbort {
    /// This presentation machine: the peer broke the protocol.
    Here {
        /// How.
        reason: AbortReason,
        /// With what.
        event: Option<Event>,
    },
    /// The peer's presentation machine.
    Peer {
        /// What it says of us.
        reason: Option<AbortReason>,
        /// And of what.
        event: Option<Event>,
    },
    /// Session or what is below.
    Session(session::AbortReason),
}
