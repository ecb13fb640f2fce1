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
//! Transmit path    [`Spdu::into_rope`], [`with_give_tokens`], and [`data`], which handles the most frequent
//!                  case by prepending four bytes.
//! Receive path     [`Tsdu::read`] takes the TSDU's rope and cuts the user data out of it; only parameters
//!                  are copied.
//! Tolerance        unknown parameters are skipped (X.225 §A.4.3.1.1), and reserved bits ignored. Neither the
//!                  order of parameters nor their grouping is checked. If a parameter is repeated, the last
//!                  one counts. An empty value means the default (X.225 §8.2.6).
//! Not implemented  extended concatenation, which may be sent only to an end that proposed it; the expedited
//!                  flow, which transport class 0 lacks; the parameters of symmetric synchronisation.

mod code;
mod items;
mod read;
mod spdu;
#[cfg(test)]
mod tests;
mod write;

pub use items::{
    Enclosure, RefuseReason, Resynchronisation, TokenSetting, TokenSettings, Tokens, Units, Versions,
};
pub use read::Tsdu;
pub use spdu::{
    ADDITIONAL_BYTES_MAX, Abort, Accept, Connect, EXTENDED_BYTES_MAX, Enclosed, Identifier, OverflowAccept,
    PARAMETERS_BYTES_MAX, REFERENCE_BYTES_MAX, Refuse, SELECTOR_BYTES_MAX, SERIAL_MAX, Spdu, TsduSizes,
    USER_DATA_BYTES_MAX,
};
pub use write::{data, with_give_tokens};
