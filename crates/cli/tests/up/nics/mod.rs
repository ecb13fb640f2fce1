//! RDMA and VI NICs on running boards.

pub(crate) mod rdma;
pub(crate) mod vi;
