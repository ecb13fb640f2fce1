//! Programs on boards, and terminals without a board.

pub mod program;
pub mod rdma;
pub(crate) mod terminal;
