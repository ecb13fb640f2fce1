//! The binary interface: types and numbers of `infiniband/verbs.h` and `rdma/rdma_cma.h`, as C lays them out
//! on 64-bit Linux.
//!
//! Purpose         the same layout as in C, for programs built against rdma-core 44 or older; newer releases
//!                 only append fields (rdma-core, Documentation/versioning.md).
//! Names           are those of the headers and manual pages.
//! Enums           of C are integer constants here, because a program may pass any value.
//! Unions          that are anonymous in C have a name here, or are a single field if all members have the
//!                 same size. Their comments say so.
//! Tests           `tests.rs` compares every size, offset and constant with the installed headers.
//! Not implemented types that no function here reads or writes: flow specifications, ESP keys, other
//!                 vendors' headers.

#![expect(missing_docs, reason = "the manual pages of rdma-core document these names")]
#![expect(non_camel_case_types, non_snake_case, reason = "C knows them by these names")]

pub mod address;
pub mod cm;
pub mod completion;
pub mod context;
mod declare;
pub mod device;
pub mod events;
pub mod extra;
pub mod kernel;
pub mod memory;
pub mod queue;
pub mod shared;
#[cfg(test)]
mod tests;
pub mod work;

pub use address::*;
pub use cm::*;
pub use completion::*;
pub use context::*;
pub use device::*;
pub use events::*;
pub use extra::*;
pub use kernel::*;
pub use memory::*;
pub use queue::*;
pub use shared::*;
pub use work::*;
