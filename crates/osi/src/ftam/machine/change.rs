//! The effect that an FPDU has on the machine's state and on the current group.

use super::group::Group;
use super::state::State;
use crate::wire::ftam::{Pdu, StateResult};

/// The effect of an FPDU.
pub(super) enum Change {
    /// A new state and a new position in a group.
    To(State, Group),
    /// No effect, because the FPDU crossed with a cancel.
    Void,
}

/// Returns whether the state changes as the request asked.
pub(super) fn is_positive(pdu: &Pdu) -> bool {
    pdu.state_result().unwrap_or(StateResult::SUCCESS) == StateResult::SUCCESS
}
