//! The wiring connects protocols to those below and above them, with one file or folder per family. All
//! control flow between protocols is here.

pub(crate) mod ip;
pub(crate) mod rdma;
