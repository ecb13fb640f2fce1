//! Wire formats common to all protocol families: checksums and CRCs, the Ethernet header, assigned numbers,
//! and the errors of malformed input.

pub mod checksum;
pub mod crc;
pub mod ethernet;
mod malformed;
pub mod numbers;

pub use malformed::Malformed;
