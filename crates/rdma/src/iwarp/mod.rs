//! iWARP: RDMA over byte streams.
//!
//! ```text
//! verbs       crate::rnic             the RNIC core: memory, queues, work, completions
//! RDMAP, DDP  crate::rnic::executor   RFC 5040, 5041, 7306; formats in crate::wire::{rdmap, ddp}
//! MPA         mpa     setup and framing on a byte stream; RFC 5044, 6581; formats in crate::wire::mpa
//!             stream  one connection: MPA between a queue pair and a byte stream
//! ```

pub mod mpa;
pub mod stream;
