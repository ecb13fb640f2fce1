//! The binary interface: types and numbers of `infiniband/verbs.h` and `rdma/rdma_cma.h`, as C lays them out
//! on 64-bit Linux.
//!
//! Goal      the same bytes on both sides of the border, for programs that were built against rdma-core 44 or
//!           an older one; newer releases added to the ends of what they share (rdma-core,
//!           Documentation/versioning.md).
//! Names     those of the headers, so that they can be looked up there and in the manual pages.
//! Numbers   are constants of the type that C passes, not Rust enums: a program may pass any value.
//! Unions    without a name in C have one here, or are one field where their members are of one size: their
//!           comment says so.
//! Checked   `tests.rs` has a C compiler print every size, offset and number of this module from the
//!           installed headers.
//! Left out  what no function of ours reads or writes: specifications of flows, keys of ESP, lists of other
//!           vendors' headers.

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
