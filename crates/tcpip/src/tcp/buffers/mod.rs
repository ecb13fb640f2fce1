//! A session's data: the send queue, and the data that was received beyond a gap.

pub(super) mod out_of_order;
pub(super) mod send_queue;
