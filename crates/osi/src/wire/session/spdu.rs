//! SPDUs and their limits.

use super::items::{Enclosure, RefuseReason, Resynchronisation, TokenSettings, Tokens, Units, Versions};
use alloc::boxed::Box;
use alloc::vec::Vec;
use kiban_base::Rope;

/// Maximum number of bytes of parameters that a length indicator can express.
pub const PARAMETERS_BYTES_MAX: usize = 65535;
/// Maximum length of a user reference, and of a common reference, in bytes.
pub const REFERENCE_BYTES_MAX: usize = 64;
/// Maximum length of additional reference information in bytes.
pub const ADDITIONAL_BYTES_MAX: usize = 4;
/// Maximum length of a session selector in bytes.
pub const SELECTOR_BYTES_MAX: usize = 16;
/// Maximum length in bytes of a CONNECT's User Data parameter.
pub const USER_DATA_BYTES_MAX: usize = 512;
/// Maximum length in bytes of a CONNECT's Extended User Data parameter; longer user data continues in CONNECT
/// DATA OVERFLOW SPDUs.
pub const EXTENDED_BYTES_MAX: usize = 10240;
/// The largest serial number of a synchronisation point: six digits.
pub const SERIAL_MAX: u32 = 999_999;

/// A session protocol data unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Spdu {
    /// CN: requests a connection.
    Connect(Box<Connect>),
    /// OA: asks for the rest of the user data.
    OverflowAccept(OverflowAccept),
    /// CDO: carries more of the user data.
    ConnectDataOverflow(Enclosed),
    /// AC: accepts the connection.
    Accept(Box<Accept>),
    /// RF: refuses the connection.
    Refuse(Box<Refuse>),
    /// FN: requests the release.
    Finish {
        /// Whether the transport connection is to be kept for reuse.
        keep: bool,
        /// User data.
        data: Enclosed,
    },
    /// DN: confirms the release.
    Disconnect(Enclosed),
    /// NF: refuses the release.
    NotFinished(Enclosed),
    /// AB: aborts.
    Abort(Abort),
    /// AA: confirms an abort.
    AbortAccept,
    /// DT: data.
    Data(Enclosed),
    /// TD: typed data.
    TypedData(Enclosed),
    /// GT: gives tokens. If it has no tokens, it only serves to precede another SPDU.
    GiveTokens {
        /// The tokens; `None` if the parameter is absent.
        tokens: Option<Tokens>,
        /// User data.
        data: Enclosed,
    },
    /// PT: asks for tokens, possibly for none.
    PleaseTokens {
        /// The tokens; `None` if the parameter is absent.
        tokens: Option<Tokens>,
        /// User data.
        data: Enclosed,
    },
    /// MIP: a minor synchronisation point.
    SyncMinor {
        /// Whether a confirmation is requested.
        explicit: bool,
        /// The serial number of the point; `None` only in later segments.
        serial: Option<u32>,
        /// User data.
        data: Enclosed,
    },
    /// MIA: confirms a minor synchronisation point.
    SyncMinorAck {
        /// The serial number of the point; `None` only in later segments.
        serial: Option<u32>,
        /// User data.
        data: Enclosed,
    },
    /// RS: requests resynchronisation.
    Resynchronise {
        /// The sides that hold the tokens afterwards.
        tokens: TokenSettings,
        /// The kind; `None` only in later segments.
        kind: Option<Resynchronisation>,
        /// The serial number; `None` only in later segments.
        serial: Option<u32>,
        /// User data.
        data: Enclosed,
    },
    /// RA: confirms resynchronisation.
    ResynchroniseAck {
        /// The sides of the tokens.
        tokens: TokenSettings,
        /// The serial number; `None` only in later segments.
        serial: Option<u32>,
        /// User data.
        data: Enclosed,
    },
    /// An SPDU of an unsupported functional unit, with its SI. Its parameters are not decoded.
    Other(u8),
}

/// User data, with its Enclosure Item.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Enclosed {
    /// The Enclosure Item; if absent, the data is a whole service data unit.
    pub enclosure: Option<Enclosure>,
    /// The data.
    pub data: Rope,
}

impl Enclosed {
    /// Encloses a whole service data unit.
    pub fn whole(data: Rope) -> Enclosed {
        Enclosed { enclosure: None, data }
    }

    /// Returns whether the data begins a service data unit.
    pub fn begins(&self) -> bool {
        self.enclosure.is_none_or(|enclosure| enclosure.begins)
    }

    /// Returns whether the data ends a service data unit.
    pub fn ends(&self) -> bool {
        self.enclosure.is_none_or(|enclosure| enclosure.ends)
    }
}

/// The Connection Identifier.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Identifier {
    /// The reference of the calling user in a CONNECT, and of the called user in other SPDUs.
    pub user_reference: Vec<u8>,
    /// The common reference.
    pub common_reference: Vec<u8>,
    /// Additional reference information.
    pub additional: Vec<u8>,
}

/// Maximum length of a TSDU in bytes in each direction; 0 means unlimited.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct TsduSizes {
    /// From the session initiator.
    pub initiator_bytes_max: u16,
    /// From the session responder.
    pub responder_bytes_max: u16,
}

/// The parameters of a CONNECT SPDU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connect {
    /// The connection's references.
    pub identifier: Identifier,
    /// Whether its sender accepts extended concatenation.
    pub extended_concatenation: bool,
    /// The maximum TSDU sizes.
    pub tsdu_sizes: TsduSizes,
    /// The versions of the protocol.
    pub versions: Versions,
    /// The initial serial number.
    pub initial_serial: Option<u32>,
    /// The sides of the tokens.
    pub tokens: TokenSettings,
    /// The functional units.
    pub units: Units,
    /// The calling session selector.
    pub calling: Vec<u8>,
    /// The called session selector.
    pub called: Vec<u8>,
    /// Whether more user data follows in CONNECT DATA OVERFLOW SPDUs.
    pub overflow: bool,
    /// User data. If it is longer than [`USER_DATA_BYTES_MAX`], it is written as Extended User Data.
    pub user_data: Rope,
}

/// The parameters of an OVERFLOW ACCEPT SPDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OverflowAccept {
    /// The maximum TSDU sizes.
    pub tsdu_sizes: TsduSizes,
    /// The version of the protocol.
    pub versions: Versions,
}

/// The parameters of an ACCEPT SPDU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accept {
    /// The connection's references.
    pub identifier: Identifier,
    /// Whether its sender accepts extended concatenation.
    pub extended_concatenation: bool,
    /// The maximum TSDU sizes.
    pub tsdu_sizes: TsduSizes,
    /// The versions of the protocol.
    pub versions: Versions,
    /// The initial serial number.
    pub initial_serial: Option<u32>,
    /// The sides of the tokens.
    pub tokens: TokenSettings,
    /// Tokens that the acceptor requests in its answer.
    pub please: Tokens,
    /// The functional units.
    pub units: Units,
    /// The calling session selector, if it is repeated.
    pub calling: Vec<u8>,
    /// The responding session selector.
    pub responding: Vec<u8>,
    /// User data.
    pub data: Enclosed,
}

/// The parameters of a REFUSE SPDU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refuse {
    /// The connection's references.
    pub identifier: Identifier,
    /// Whether the transport connection is to be kept.
    pub keep: bool,
    /// The functional units that the refusing user would accept; only with [`RefuseReason::UserData`].
    pub units: Option<Units>,
    /// The versions of the protocol.
    pub versions: Versions,
    /// The reason; `None` only in later segments.
    pub reason: Option<RefuseReason>,
    /// User data, with [`RefuseReason::UserData`].
    pub data: Enclosed,
}

/// The parameters of an ABORT SPDU.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Abort {
    /// Whether the transport connection is to be kept.
    pub keep: bool,
    /// Abort by the user.
    pub user: bool,
    /// A session machine aborts because of a protocol error.
    pub protocol_error: bool,
    /// Abort without a reason.
    pub no_reason: bool,
    /// A session machine aborts because of a restriction in its implementation.
    pub restriction: bool,
    /// Reflected parameter values, at most nine octets.
    pub reflect: Vec<u8>,
    /// User data.
    pub data: Enclosed,
}
