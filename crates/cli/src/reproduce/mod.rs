//! `kiban reproduce`: reproduces the published results of five papers.

mod all;
mod atm_board;
mod command;
mod osi_board;
mod output;
mod rdma_nic;
mod via_library;
mod wide_area;

pub(crate) use command::Reproduce;
