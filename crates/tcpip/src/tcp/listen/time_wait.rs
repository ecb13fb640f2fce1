//! The queue of sessions in TIME-WAIT, and the initial sequence number and timestamp of a session that reuses
//! a 4-tuple.

use super::secret::InitialNumbers;
use crate::tcp::interface::indication::SessionId;
use crate::wire::tcp::Sequence;
use alloc::collections::VecDeque;

/// Distance between the initial sequence number for a reused 4-tuple and the highest number used before
/// (Linux: 65,535 + 2).
pub(super) const ISN_REUSE_GAP: u32 = 65_537;

/// Sessions in TIME-WAIT, oldest first. Some may have ended.
#[derive(Debug, Default)]
pub(crate) struct TimeWaitQueue {
    pub(super) sessions: VecDeque<SessionId>,
}

/// Returns initial numbers that do not begin before `least`.
pub(crate) fn isn_not_before(beginning: InitialNumbers, least: Option<Sequence>) -> InitialNumbers {
    let initial = least.map_or(beginning.isn, |least| beginning.isn.max(least));
    InitialNumbers { isn: initial, ..beginning }
}
