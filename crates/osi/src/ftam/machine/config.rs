//! Configuration of a machine.

use crate::ftam::Role;
use crate::wire::ber::Oid;
use alloc::vec::Vec;

/// Configuration of a machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The role of this end.
    pub role: Role,
    /// For a responder: the abstract syntaxes of file contents for which it accepts presentation contexts.
    pub abstract_syntaxes: Vec<Oid>,
}
