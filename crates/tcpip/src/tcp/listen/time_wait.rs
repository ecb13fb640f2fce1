//! The queue of sessions in TIME-WAIT, and the initial numbers of a session that reuses a 4-tuple.

use super::secret::Beginning;
use crate::tcp::indication::SessionId;
use crate::wire::tcp::Sequence;
use alloc::collections::VecDeque;

/// Distance of a reused 4-tuple's initial sequence number from the highest one used before (Linux: 65,535 +
/// 2).
pub(super) const APART: u32 = 65_537;

/// Sessions in TIME-WAIT, the oldest first. Some may have ended.
#[derive(Debug, Default)]
pub(crate) struct Resting {
    pub(super) line: VecDeque<SessionId>,
}

/// Returns initial numbers that do not begin before `least`.
pub(crate) fn behind(beginning: Beginning, least: Option<Sequence>) -> Beginning {
    let initial = least.map_or(beginning.initial, |least| beginning.initial.max(least));
    Beginning { initial, ..beginning }
}
