//! Packet formats: a plain, validated struct for every header in this protocol family.
//!
//! Each header has its own file, and all have the same interface:
//!
//! ```text
//! X::read(&[u8]) -> Result<(X, header bytes), Malformed>    validate once, trust afterwards
//! x.length()     -> usize                                   number of bytes that `write` fills
//! x.write(&mut [u8]) -> usize                               writes to the front of the slice
//! ```
//!
//! Received bytes that break a rule are a [`Malformed`](kiban_base::Malformed). A slice too short to write
//! into is the caller's error and panics.

pub mod datagram;
pub mod ddp;
pub mod efe;
pub mod mpa;
pub mod oob_setup;
pub mod rdmap;
pub mod roce;
