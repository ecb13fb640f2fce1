//! iWARP: RDMA over byte streams.
//!
//! ```text
//! verbs       rnic    the NIC's core, in the blocks of paper [3]: memory, queues, work, completions
//! RDMAP, DDP  rnic/executor             RFC 5040, 5041, 7306; formats in crate::wire::{rdmap, ddp}
//! MPA         mpa     setup and framing on a byte stream; RFC 5044, 6581; formats in crate::wire::mpa
//! connections nic     the core with its connections, over byte streams or EFE (crate::efe)
//!             stream  one connection: MPA between a queue pair and a byte stream
//! ```

pub mod mpa;
pub mod nic;
pub mod rnic;
pub mod stream;
