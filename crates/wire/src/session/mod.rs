//! Session protocol data units (X.225 §8).
//!
//! Goal      the units of the kernel, duplex, minor synchronise, resynchronise and typed data; others are recognised.
//!
//! ```text
//!   TSDU      one SPDU, or a token SPDU (GT, PT) and one of category 2: basic concatenation (X.225 §6.3.7)
//!   SPDU      SI 8, LI, parameters of LI bytes; DT and TD: then user information to the end
//!   PGI, PI   code 8, LI, value; a group's value is parameters again
//!   LI        8 bits up to 254; else FF and 16 bits
//! ```
//!
//! Down      [`Spdu::into_rope`], [`with_give_tokens`], and [`data`] for what is sent most: four bytes are prepended.
//! Up        [`Tsdu::read`] takes the TSDU's rope and cuts user data out of it; only parameters are copied.
//! Liberal   parameters that are not known are skipped (X.225 §A.4.3.1.1), as reserved bits are; their order is not looked at,
//!           nor whether a parameter stands in its group; of one that is there twice the last counts. An empty value is the
//!           default (X.225 §8.2.6).
//! Left out  extended concatenation, which nobody may send to whom did not ask for it; the expedited flow, which class 0
//!           has not; the parameters of symmetric synchronisation.

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
use kiban_ground::Rope;

/// The most bytes of parameters that a length indicator can say.
pub const PARAMETERS_BYTES_MAX: usize = 65535;
/// The longest reference of a user, and the longest common reference.
pub const REFERENCE_BYTES_MAX: usize = 64;
/// The longest additional reference information.
pub const ADDITIONAL_BYTES_MAX: usize = 4;
/// The longest session selector.
pub const SELECTOR_BYTES_MAX: usize = 16;
/// The most user data in a CONNECT as plain User Data.
pub const USER_DATA_BYTES_MAX: usize = 512;
/// The most user data in a CONNECT as Extended User Data; the rest overflows.
pub const EXTENDED_BYTES_MAX: usize = 10240;
/// The largest number of a synchronisation point: six digits.
pub const SERIAL_MAX: u32 = 999_999;

/// A session protocol data unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Spdu {
    /// CN: asks for a connection.
    Connect(Box<Connect>),
    /// OA: asks for the rest of the user data.
    OverflowAccept(OverflowAccept),
    /// CDO: more of the user data.
    ConnectDataOverflow(Enclosed),
    /// AC: the connection is made.
    Accept(Box<Accept>),
    /// RF: it is refused.
    Refuse(Box<Refuse>),
    /// FN: asks for the release.
    Finish {
        /// Whether the transport connection is to be kept.
        keep: bool,
        /// User data.
        data: Enclosed,
    },
    /// DN: released.
    Disconnect(Enclosed),
    /// NF: not released.
    NotFinished(Enclosed),
    /// AB: aborts.
    Abort(Abort),
    /// AA: the abort has arrived.
    AbortAccept,
    /// DT: data.
    Data(Enclosed),
    /// TD: typed data.
    TypedData(Enclosed),
    /// GT: gives tokens, or none: then it only stands before another.
    GiveTokens {
        /// The tokens; `None`: the parameter is absent.
        tokens: Option<Tokens>,
        /// User data.
        data: Enclosed,
    },
    /// PT: asks for tokens, or for none.
    PleaseTokens {
        /// The tokens; `None`: the parameter is absent.
        tokens: Option<Tokens>,
        /// User data.
        data: Enclosed,
    },
    /// MIP: a minor synchronisation point.
    SyncMinor {
        /// Whether a confirmation is asked for.
        explicit: bool,
        /// Its number; `None` only in later segments.
        serial: Option<u32>,
        /// User data.
        data: Enclosed,
    },
    /// MIA: confirms one.
    SyncMinorAck {
        /// Its number; `None` only in later segments.
        serial: Option<u32>,
        /// User data.
        data: Enclosed,
    },
    /// RS: resynchronises.
    Resynchronise {
        /// Where the tokens are to be.
        tokens: TokenSettings,
        /// How; `None` only in later segments.
        kind: Option<Resynchronisation>,
        /// To where; `None` only in later segments.
        serial: Option<u32>,
        /// User data.
        data: Enclosed,
    },
    /// RA: has resynchronised.
    ResynchroniseAck {
        /// Where the tokens are.
        tokens: TokenSettings,
        /// To where; `None` only in later segments.
        serial: Option<u32>,
        /// User data.
        data: Enclosed,
    },
    /// Of a functional unit that is not offered here: its SI. Its parameters are not read.
    Other(u8),
}

/// User data with what says which part of a service data unit it is.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Enclosed {
    /// Absent: the whole.
    pub enclosure: Option<Enclosure>,
    /// The data.
    pub data: Rope,
}

impl Enclosed {
    /// The whole of a service data unit.
    pub fn whole(data: Rope) -> Enclosed {
        Enclosed { enclosure: None, data }
    }

    /// Whether it begins a service data unit.
    pub fn begins(&self) -> bool {
        self.enclosure.is_none_or(|enclosure| enclosure.begins)
    }

    /// Whether it ends one.
    pub fn ends(&self) -> bool {
        self.enclosure.is_none_or(|enclosure| enclosure.ends)
    }
}

/// The Connection Identifier.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Identifier {
    /// The calling user's reference in a CONNECT, the called user's else.
    pub user_reference: Vec<u8>,
    /// The common reference.
    pub common_reference: Vec<u8>,
    /// Additional reference information.
    pub additional: Vec<u8>,
}

/// The most bytes of a TSDU in each direction; 0: any.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct TsduSizes {
    /// From the session's initiator.
    pub initiator_bytes_max: u16,
    /// From its responder.
    pub responder_bytes_max: u16,
}

/// What is in a CONNECT SPDU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connect {
    /// The connection's references.
    pub identifier: Identifier,
    /// Whether its sender takes extended concatenations.
    pub extended_concatenation: bool,
    /// The most bytes of a TSDU.
    pub tsdu_sizes: TsduSizes,
    /// The versions of the protocol.
    pub versions: Versions,
    /// The first synchronisation point's number.
    pub initial_serial: Option<u32>,
    /// Where the tokens are to be.
    pub tokens: TokenSettings,
    /// The functional units.
    pub units: Units,
    /// The calling session selector.
    pub calling: Vec<u8>,
    /// The called session selector.
    pub called: Vec<u8>,
    /// Whether there is more user data to come.
    pub overflow: bool,
    /// User data. More than [`USER_DATA_BYTES_MAX`] is written as Extended User Data.
    pub user_data: Rope,
}

/// What is in an OVERFLOW ACCEPT SPDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OverflowAccept {
    /// The most bytes of a TSDU.
    pub tsdu_sizes: TsduSizes,
    /// The version of the protocol.
    pub versions: Versions,
}

/// What is in an ACCEPT SPDU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accept {
    /// The connection's references.
    pub identifier: Identifier,
    /// Whether its sender takes extended concatenations.
    pub extended_concatenation: bool,
    /// The most bytes of a TSDU.
    pub tsdu_sizes: TsduSizes,
    /// The versions of the protocol.
    pub versions: Versions,
    /// The first synchronisation point's number.
    pub initial_serial: Option<u32>,
    /// Where the tokens are.
    pub tokens: TokenSettings,
    /// Tokens that are asked for at once.
    pub please: Tokens,
    /// The functional units.
    pub units: Units,
    /// The calling session selector, if it is said again.
    pub calling: Vec<u8>,
    /// The responding session selector.
    pub responding: Vec<u8>,
    /// User data.
    pub data: Enclosed,
}

/// What is in a REFUSE SPDU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refuse {
    /// The connection's references.
    pub identifier: Identifier,
    /// Whether the transport connection is to be kept.
    pub keep: bool,
    /// The functional units that the user would have; with [`RefuseReason::UserData`] only.
    pub units: Option<Units>,
    /// The versions of the protocol.
    pub versions: Versions,
    /// Why; `None` only in later segments.
    pub reason: Option<RefuseReason>,
    /// User data, with [`RefuseReason::UserData`].
    pub data: Enclosed,
}

/// What is in an ABORT SPDU.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Abort {
    /// Whether the transport connection is to be kept.
    pub keep: bool,
    /// The user aborts.
    pub user: bool,
    /// A session machine does, for a protocol error.
    pub protocol_error: bool,
    /// For no reason that it says.
    pub no_reason: bool,
    /// For a restriction of its implementation.
    pub restriction: bool,
    /// Reflected values of whatever kind, at most nine octets.
    pub reflect: Vec<u8>,
    /// User data.
    pub data: Enclosed,
}

/// The identifiers of SPDUs (X.225 §8.3).
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

/// The codes of parameters and groups of them (X.225 §8.3, Tables 11 to 33).
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
