//! Control unit: queue pairs, their queues, and the completion manager (paper \[3\] §5.2.2).

pub(super) mod completion;
pub(super) mod datagram;
pub(super) mod dcqcn;
pub(super) mod job;
pub(super) mod psn;
pub(super) mod qp;
pub(super) mod reads;
pub(super) mod receive_queue;
pub(super) mod reorder;
pub(super) mod roce;
pub(super) mod scoreboard;
pub(super) mod send_queue;
pub(super) mod state;
