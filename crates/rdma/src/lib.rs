//! RDMA: an RNIC, held as an ordinary Rust value, and the transports below it.
//!
//! ```
//! use kiban_rdma::wire::ddp::{Header, Placing};
//!
//! // RFC 5041 §4.2: a tagged segment identifies the memory for its payload.
//! let header = Header { last: true, ulp: 0x40, placing: Placing::Tagged { stag: 0x1234_5678, offset: 4096 } };
//! let mut segment = [0; 14];
//! assert_eq!(header.write(&mut segment), 14);
//! assert_eq!(Header::read(&segment)?, (header, 14));
//! # Ok::<(), kiban_base::Malformed>(())
//! ```
//!
//! [`rnic`] is the RNIC core: memory tables, queue pairs, completion queues. [`nic`] is the core with its
//! connections. Below them, one module per transport: [`iwarp`] carries segments over a byte stream (MPA),
//! [`efe`] over Ethernet frames, which may be lost. RoCEv2's transport is part of the core; [`roce`] carries
//! its packets in UDP datagrams and sets up its connections. [`wire`] has the packet formats. [`hif`] is the
//! interface between a NIC on a board and the programs that use it.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod efe;
pub mod hif;
pub mod iwarp;
pub mod nic;
pub mod rnic;
pub mod roce;
pub mod wire;
