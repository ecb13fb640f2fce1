//! Session protocol data units (X.225 §8).
//!
//! Purpose          encodes and decodes the SPDUs of kernel, duplex, minor synchronise, resynchronise and
//!                  typed data; other SPDUs are recognised, but their parameters are not decoded.
//!
//! ```text
//!   TSDU      one SPDU, or a token SPDU (GT, PT) and an SPDU of category 2: basic concatenation (X.225 §6.3.7)
//!   SPDU      SI 8, LI, parameters of LI bytes; in DT and TD, user information follows up to the end
//!   PGI, PI   code 8, LI, value; the value of a group (PGI) is again parameters
//!   LI        8 bits up to 254; otherwise FF and 16 bits
//! ```
//!
//! Transmit path    [`Spdu::into_rope`], [`with_give_tokens`], and [`data`] for the most frequent case, which
//!                  prepends four bytes.
//! Receive path     [`Tsdu::read`] takes the TSDU's rope and cuts the user data out of it; only parameters
//!                  are copied.
//! Tolerance        unknown parameters are skipped (X.225 §A.4.3.1.1), and reserved bits ignored. The order
//!                  of parameters, and whether each is in its group, are not checked. If a parameter is
//!                  repeated, the last one counts. An empty value means the default (X.225 §8.2.6).
//! Not implemented  extended concatenation, which may be sent only to an end that proposed it; the expedited
//!                  flow, which class 0 lacks; the parameters of symmetric synchronisation.

mod items;
mod read;
mod write;

#[cfg(test)]
mod tests;

pub use items::{
    Enclosure, RefuseReason, Resynchronisation, TokenSetting, TokenSettings, Tokens, Units, Versions,
};
pub use read::Tsdu;
pub use write::{data, with_give_tokens};

use alloc::boxed::Box;
use alloc::vec::Vec;
use kiban_base::Rope;

/// Maximum length of parameters in bytes that a length indicator can express.
pub const PARAMETERS_BYTES_MAX: usize = 65535;
/// Maximum length of a user reference, and of a common reference, in bytes.
pub const REFERENCE_BYTES_MAX: usize = 64;
/// Maximum length of additional reference information in bytes.
pub const ADDITIONAL_BYTES_MAX: usize = 4;
/// Maximum length of a session selector in bytes.
pub const SELECTOR_BYTES_MAX: usize = 16;
/// Maximum length of plain User Data in a CONNECT in bytes.
pub const USER_DATA_BYTES_MAX: usize = 512;
/// Maximum length of Extended User Data in a CONNECT in bytes; more is sent in CONNECT DATA OVERFLOW SPDUs.
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
        /// Whether the transport connection is to be kept.
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
    /// GT: gives tokens; without tokens, it only precedes another SPDU.
    GiveTokens {
        /// The tokens; `None` if the parameter is absent.
        tokens: Option<Tokens>,
        /// User data.
        data: Enclosed,
    },
    /// PT: asks for tokens, or for none.
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
        /// The sides of the tokens afterwards.
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
    /// An SPDU of a functional unit that is not supported, by its SI. Its parameters are not decoded.
    Other(u8),
}

/// User data with its Enclosure Item.
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
    /// The calling user's reference in a CONNECT, otherwise the called user's.
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
    /// User data. More than [`USER_DATA_BYTES_MAX`] is written as Extended User Data.
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
    /// Tokens that the acceptor asks for at once.
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
    /// Abort by a session machine for a protocol error.
    pub protocol_error: bool,
    /// Abort without a reason.
    pub no_reason: bool,
    /// Abort for a restriction of the implementation.
    pub restriction: bool,
    /// Reflected parameter values, at most nine octets.
    pub reflect: Vec<u8>,
    /// User data.
    pub data: Enclosed,
}

/// SPDU identifiers (X.225 §8.3).
pub(crate) mod si {
    pub(crate) const GT_DT: u8 = 1;
    pub(crate) const PT: u8 = 2;
    pub(crate) const NF: u8 = 8;
    pub(crate) const FN: u8 = 9;
    pub(crate) const DN: u8 = 10;
    pub(crate) const RF: u8 = 12;
    pub(crate) const CN: u8 = 13;
    pub(crate) const AC: u8 = 14;
    pub(crate) const CDO: u8 = 15;
    pub(crate) const OA: u8 = 16;
    pub(crate) const AB_AI: u8 = 25;
    pub(crate) const AA_AIA: u8 = 26;
    pub(crate) const TD: u8 = 33;
    pub(crate) const RA: u8 = 34;
    pub(crate) const MIP: u8 = 49;
    pub(crate) const MIA: u8 = 50;
    pub(crate) const RS: u8 = 53;
}

/// Codes of parameters and parameter groups (X.225 §8.3, Tables 11 to 33).
pub(crate) mod parameter {
    pub(crate) const IDENTIFIER: u8 = 1;
    pub(crate) const CONNECT_ACCEPT: u8 = 5;
    pub(crate) const CALLED_REFERENCE: u8 = 9;
    pub(crate) const CALLING_REFERENCE: u8 = 10;
    pub(crate) const COMMON_REFERENCE: u8 = 11;
    pub(crate) const ADDITIONAL: u8 = 12;
    pub(crate) const SYNC_TYPE: u8 = 15;
    pub(crate) const TOKEN_ITEM: u8 = 16;
    pub(crate) const TRANSPORT_DISCONNECT: u8 = 17;
    pub(crate) const PROTOCOL_OPTIONS: u8 = 19;
    pub(crate) const REQUIREMENTS: u8 = 20;
    pub(crate) const TSDU_SIZES: u8 = 21;
    pub(crate) const VERSION: u8 = 22;
    pub(crate) const INITIAL_SERIAL: u8 = 23;
    pub(crate) const ENCLOSURE: u8 = 25;
    pub(crate) const TOKEN_SETTING: u8 = 26;
    pub(crate) const RESYNC_TYPE: u8 = 27;
    pub(crate) const SERIAL: u8 = 42;
    pub(crate) const REFLECT: u8 = 49;
    pub(crate) const REASON: u8 = 50;
    pub(crate) const CALLING_SELECTOR: u8 = 51;
    pub(crate) const CALLED_SELECTOR: u8 = 52;
    pub(crate) const LARGE_INITIAL_SERIAL: u8 = 57;
    pub(crate) const OVERFLOW: u8 = 60;
    pub(crate) const USER_DATA: u8 = 193;
    pub(crate) const EXTENDED_USER_DATA: u8 = 194;
}
