//! Configuration of a presentation machine.

use crate::AcceptedSelectors;
use crate::wire::ber::Oid;
use crate::wire::presentation::BER;
use alloc::vec::Vec;

/// Configuration of a presentation machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The called presentation selectors that are accepted.
    pub attached: AcceptedSelectors,
    /// The supported transfer syntaxes, in order of preference.
    pub transfer_syntaxes: Vec<Oid>,
    /// Maximum number of contexts.
    pub contexts_max: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config { attached: AcceptedSelectors::Any, transfer_syntaxes: [BER].to_vec(), contexts_max: 32 }
    }
}
