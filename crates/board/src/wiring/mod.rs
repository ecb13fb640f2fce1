//! The wiring: which protocol stands on which, one file a family. All control flow between protocols is here.

pub(crate) mod ip;
pub(crate) mod rdma;
