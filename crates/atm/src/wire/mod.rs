//! Wire formats: a decoder and encoder for every header of this family.
//!
//! One file per header, all with the same interface:
//!
//! ```text
//! X::read(&[u8]) -> Result<(X, header bytes), Malformed>    validates; the result can be trusted
//! x.length()     -> usize                                   number of bytes that `write` fills
//! x.write(&mut [u8]) -> usize                               writes to the front of the slice
//! ```
//!
//! If a peer's bytes violate a rule, the error is a [`Malformed`](kiban_base::Malformed). A target slice that
//! is too short is the caller's fault, and causes a panic.

pub mod aal1;
pub mod aal5;
pub mod atm;
pub mod atmarp;
pub mod llc_snap;
pub mod oam;
