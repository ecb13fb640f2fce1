//! Wire formats: a decoder and an encoder for every header of the OSI and X.25 protocols.
//!
//! There is one file per header, and all have the same interface:
//!
//! ```text
//! X::read(&[u8]) -> Result<(X, header bytes), Malformed>    validates everything
//! x.length()     -> usize                                   the number of bytes that `write` writes
//! x.write(&mut [u8]) -> usize                               writes to the front of the slice
//! ```
//!
//! If received bytes break a rule, the error is a [`Malformed`](kiban_base::Malformed) that names the rule. A
//! slice that is too short for `write` is the caller's error and causes a panic.

pub mod acse;
pub mod ber;
pub mod cotp;
pub mod ftam;
pub mod hif;
pub mod lapb;
pub mod lapb_framing;
pub mod presentation;
pub mod session;
pub mod tpkt;
pub mod x25;
pub mod x29;
pub mod xot;
