//! VIPL: the C interface of the VI Architecture, as `libvipl.so`.
//!
//! Purpose         let programs that were written in 1998 for the VI Architecture compile against
//!                 `include/vipl.h` and run on kiban's NIC.
//! Requests        a call checks its arguments, copies what it needs from the program's memory once, and
//!                 passes plain values to the NIC (`kiban_vi`, driven by `kiban_vi_runtime`).
//! Completions     a completion is written to the program's memory just before a call returns it, and only
//!                 while that memory is still registered.
//! Handles         are numbers, never addresses: an index, a generation and a serial number (`handles.rs`).
//! Panics          a call that panics returns `VIP_ERROR_RESOURCE` (`border.rs`).
//! Not implemented cLAN's tags and deferred sends return `VIP_ERROR_NOT_SUPPORTED`. `Next` of a descriptor is
//!                 ignored.

#![allow(non_snake_case, reason = "these are the names of the C header")]
#![allow(clippy::missing_safety_doc, reason = "include/vipl.h documents the requirements of each call")]

pub mod abi;
mod border;
pub mod calls;
mod completion;
mod connect;
mod errors;
mod handles;
mod memory;
mod naming;
mod nic;
mod objects;
mod vi;
mod work;
