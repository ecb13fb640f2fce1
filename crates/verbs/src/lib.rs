//! Drop-in verbs: `libibverbs.so.1` and `librdmacm.so.1`, for programs that were built against rdma-core.
//!
//! Goal      RDMA programs run unchanged where there is no RDMA hardware: they load these libraries in place
//!           of rdma-core's.
//! Down      a C function checks its arguments and calls kiban's RDMA NIC (`kiban_rdma_runtime`).
//! Libraries all code is in `libibverbs.so.1`; `librdmacm.so.1` is a list of jumps into it, so that both
//! share one state. Which
//!           symbol has which version stands in `exports/*.map`; `link` makes both libraries of this crate's
//!           archive.
//! Absent    functions that are not implemented report that (`absent.rs`): a missing name would keep programs
//!           from loading.

pub mod abi;
pub mod absent;
mod addrinfo;
mod ah;
mod atomic;
mod cm;
mod context;
mod device;
mod engine;
mod ffi;
mod memory;
mod queue;
#[cfg(test)]
mod reference_library;
mod rsocket;
mod sync;
