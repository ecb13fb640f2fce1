//! Wire formats: a decoder and an encoder for every header of this protocol family.
//!
//! One file per header, all with the same interface:
//!
//! ```text
//! X::read(&[u8]) -> Result<(X, header bytes), Malformed>    validates everything
//! x.length()     -> usize                                   the number of bytes that `write` fills
//! x.write(&mut [u8]) -> usize                               writes to the front of the slice
//! ```
//!
//! A rule that a peer's bytes break is a [`Malformed`](kiban_base::Malformed). A slice too short to write
//! into is the caller's fault and panics.

pub mod acse;
pub mod ber;
pub mod cotp;
pub mod ftam;
pub mod lapb;
pub mod presentation;
pub mod session;
pub mod tpkt;
pub mod x25;
pub mod xot;
