//! The session protocol (X.225), versions 1 and 2: kernel, duplex, minor synchronise, resynchronise, typed
//! data.
//!
//! Purpose          provides a dialogue with synchronisation points to which both users can return, and an
//!                  orderly release.
//! Transmit path    each TSDU carries one SPDU; an SPDU of category 2 is preceded by a GIVE TOKENS without
//!                  tokens. A data SSDU gets a header of four bytes.
//! Receive path     SPDUs become indications and confirmations, whose user data shares the memory of the
//!                  received TSDUs.
//! Versions         both are proposed, or only version 2 if there is more user data than version 1 can carry;
//!                  version 2 is preferred. Version 1 limits user data to 512 octets, or 9 in an ABORT, and
//!                  does not segment it.
//! Segmenting       data is segmented if a maximum TSDU size was negotiated. In version 2, other user data is
//!                  segmented too, for example if it is too long for one SPDU. User data of a CONNECT beyond
//!                  10240 octets is sent in CONNECT DATA OVERFLOW SPDUs.
//! Options chosen   a transport connection carries one session connection and is then closed. Half-duplex is
//!                  never proposed or accepted. A protocol error is answered with ABORT (§A.4.1.2 a); after
//!                  ABORT, DISCONNECT or REFUSE, the peer has `abort_timeout` (TIM) to close the transport
//!                  connection.
//! Limits           `ssdu_bytes_max` for data, `user_data_bytes_max` for the user data of other SPDUs,
//!                  `connect_timeout` for a connection being established.
//! Not implemented  half-duplex, major synchronisation, activities, expedited data, exceptions, negotiated
//!                  release, symmetric synchronisation, data separation; extended concatenation, which is
//!                  never proposed.

mod act;
mod cause;
mod config;
mod counters;
mod machine;
mod primitives;
mod receive;
mod send;
mod state;
#[cfg(test)]
mod tests;

pub use crate::wire::session::{
    RefuseReason, Resynchronisation, TokenSetting, TokenSettings, Tokens, Units, Versions,
};
pub use config::{Config, OFFERED, TSDU_BYTES_MIN};
pub use counters::SessionCounters;
pub use machine::Session;
pub use primitives::{
    AbortReason, Accept, Answer, Connect, ConnectionId, Indication, Refuse, Request, SERIAL_MAX,
};
