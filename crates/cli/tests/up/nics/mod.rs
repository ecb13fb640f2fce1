//! RDMA and VI NICs on running boards.

mod board_nic;
pub(crate) mod rdma;
pub(crate) mod vi;
