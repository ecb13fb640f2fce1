//! Packet memory: pages and slices, PDUs, ropes, checksums, registered host memory, and slabs.
//!
//! The model checker (`crates/model`) also compiles `slot_pool` and `references`, so they import only
//! `crate::atomic`.

mod copy;
mod page;
mod pdu;
mod references;
pub(crate) mod region;
mod rope;
mod slab;
mod slot_pool;
mod sum;

pub use copy::recovery;
pub use page::{Page, PagePool, Slice};
pub use pdu::{HEAD_BYTES, Pdu, PduPool, SLICES_MAX, Slices, TAIL_BYTES};
pub use region::{Region, SharedBytes, SharedRoom};
pub use rope::{ROOM_BYTES, Rope, RopeQueue};
pub use slab::Slab;
pub use sum::{Sum, copy_and_sum};
