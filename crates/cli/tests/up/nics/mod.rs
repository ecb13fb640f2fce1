//! RDMA and VI NICs on running boards.

mod board_nic;
mod board_verbs;
mod nic_hostile;
pub(crate) mod rdma;
mod rude_program;
pub(crate) mod vi;
