//! The nonce of a measurement, and the version of the protocol, with which data connections begin.

use crate::mix::real::wire::NONCE_OCTETS;
use kiban_os::random;
use serde::{Deserialize, Serialize};
use std::io;

/// The version of the protocol, which must be the same on both sides.
pub const VERSION: u32 = 7;

/// The secret of a measurement: 128 random bits, which the client draws for each request. A stranger cannot
/// guess it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Nonce([u8; 16]);

impl Nonce {
    /// Draws a nonce.
    ///
    /// # Errors
    /// The system cannot provide random numbers.
    pub fn random() -> io::Result<Nonce> {
        random::bytes().map(Nonce)
    }

    /// Returns the first octets of a data connection, and of a datagram with a cookie: the name of the
    /// protocol (9 octets), its version (4), and the nonce (16).
    pub fn greeting(&self) -> Vec<u8> {
        [&b"kiban-lab"[..], &VERSION.to_be_bytes(), &self.0].concat()
    }

    /// Returns the part of the nonce with which a datagram of cells begins.
    pub(crate) fn prefix(&self) -> [u8; NONCE_OCTETS] {
        *self.0.first_chunk().expect("a nonce has 16 octets")
    }
}
