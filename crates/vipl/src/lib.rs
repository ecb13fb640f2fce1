//! VIPL: the C interface of the VI Architecture, as `libvipl.so`.
//!
//! Goal      programs written for the VI Architecture of 1998 compile against `include/vipl.h` and run on
//!           kiban's NIC.
//! Down      a call checks its arguments, copies what it needs from the program's memory once, and passes
//!           plain values to the NIC (`kiban_vi`, driven by `kiban_vi_runtime`).
//! Up        results are written to the program's memory just before a call returns them, and only while that
//!           memory is still registered.
//! Handles   are numbers that name a place, its kind and its generation (`handles.rs`): never an address.
//! Panics    end at the border: a call that panics answers `VIP_ERROR_RESOURCE` (`border.rs`).
//! Left out  cLAN's tags and deferred sends answer that they are not supported. `Next` of a descriptor is not
//!           used.

#![allow(non_snake_case, reason = "C knows calls and fields by these names")]
#![allow(clippy::missing_safety_doc, reason = "include/vipl.h says what each call asks of its pointers")]

pub mod abi;
mod border;
pub mod calls;
mod connect;
mod device;
mod errors;
mod handles;
mod memory;
mod names;
mod nic;
mod notify;
mod objects;
mod queue;
mod vi;
mod waiting;
mod work;
