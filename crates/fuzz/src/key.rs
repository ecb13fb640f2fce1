//! Random-number keys of the machines under attack.

use kiban_base::RngKey;

/// Returns the key of a board, NIC or endpoint under attack.
#[expect(clippy::disallowed_methods, reason = "the same input must give the same run")]
pub(crate) fn key(seed: u64) -> RngKey {
    RngKey::for_simulation(seed)
}
