//! The effect of an FPDU on state and group, passed between the machine's parts.

use super::group::Group;
use super::state::State;
use crate::wire::ftam::{Pdu, StateResult};

/// The effect of an FPDU.
pub(super) enum Change {
    /// A new state and a new position in a group.
    To(State, Group),
    /// None: it crossed with a cancel.
    Void,
}

/// Returns whether the state changes as requested.
pub(super) fn is_positive(pdu: &Pdu) -> bool {
    pdu.state_result().unwrap_or(StateResult::SUCCESS) == StateResult::SUCCESS
}
