//! RDMA and VI NICs on running boards.

mod board_nic;
mod board_verbs;
pub(crate) mod rdma;
pub(crate) mod vi;
