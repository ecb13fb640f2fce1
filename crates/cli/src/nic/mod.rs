//! Commands that run RDMA and VI NICs.

pub(crate) mod messages;
pub(crate) mod rdma;
mod tune;
pub(crate) mod verbs;
pub(crate) mod vi;
