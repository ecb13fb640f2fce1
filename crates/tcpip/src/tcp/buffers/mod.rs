//! A session's data: sent and unacknowledged, or to be sent; and received beyond a hole.

pub(super) mod out_of_order;
pub(super) mod send_queue;
