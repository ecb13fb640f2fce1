//! The effect of an FPDU on the machine's state and on the current group.

use super::group::Group;
use super::state::State;
use crate::wire::ftam::{Pdu, StateResult};

/// The effect of an FPDU.
pub(super) enum Change {
    /// The machine enters a new state and reaches a new position in a group.
    To(State, Group),
    /// The FPDU has no effect, because it crossed with a cancel.
    Void,
}

/// Returns whether the response lets the state change as requested.
pub(super) fn is_positive(pdu: &Pdu) -> bool {
    pdu.state_result().unwrap_or(StateResult::SUCCESS) == StateResult::SUCCESS
}
