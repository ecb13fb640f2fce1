//! The wiring: which protocol runs on which, one file or folder per family. All control flow between
//! protocols is here.

pub(crate) mod ip;
pub(crate) mod rdma;
