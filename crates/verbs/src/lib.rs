//! Drop-in verbs: `libibverbs.so.1` and `librdmacm.so.1`, for programs that were built against rdma-core.
//!
//! Purpose         runs unmodified RDMA programs on hosts without RDMA hardware: they load these libraries
//!                 instead of rdma-core's.
//! Implementation  a C function checks its arguments and calls kiban's RDMA NIC (`kiban_rdma_runtime`).
//! Libraries       all code is in `libibverbs.so.1`; `librdmacm.so.1` consists of jumps into it, so that both
//!                 share one state. `exports/*.map` assign versions to symbols; the script `link` builds both
//!                 libraries from this crate's archive.
//! Not implemented the functions listed in `absent.rs`. They are exported, because programs do not load if a
//!                 symbol is missing, but return EOPNOTSUPP.

pub mod abi;
pub mod absent;
mod addrinfo;
mod ah;
mod atomic;
mod cm;
mod context;
mod device;
mod device_memory;
mod engine;
mod ffi;
mod log;
mod memory;
mod queue;
#[cfg(test)]
mod reference_library;
mod rsocket;
mod sync;
