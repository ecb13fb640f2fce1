//! The VI Architecture (1.0, Compaq, Intel, Microsoft, 16 December 1997): a NIC with virtual interfaces, as a
//! state machine.
//!
//! ```
//! use kiban_base::{Region, RngKey};
//! use kiban_vi::{Config, MemoryAttributes, Nic, Reliability, ViAttributes};
//!
//! // A key of the operating system's random numbers, in a program: kiban_os::random.
//! let mut nic = Nic::new(Config::default(), RngKey::for_simulation(1));
//! let tag = nic.create_tag().expect("a new NIC has room for a protection tag");
//! let memory = Region::new(0x10_0000, 64 << 10);
//! let writable = MemoryAttributes { tag, rdma_write: true, rdma_read: false };
//! let handle = nic.register(memory, writable).expect("and for memory");
//! let attributes = ViAttributes {
//!     reliability: Reliability::Delivery,
//!     transfer_bytes_max: 32 << 10,
//!     qos: 0,
//!     tag,
//!     rdma_write: true,
//!     rdma_read: false,
//! };
//! let vi = nic.create_vi(attributes, None, None).expect("and for a VI");
//! # let _ = (handle, vi);
//! ```
//!
//! Purpose           lets programs move data between their memories without involving the operating system.
//!                   The reliability level determines how a loss is reported.
//! Host              owns VIs, each with a send queue and a receive queue, registered memory with protection
//!                   tags, completion queues, and client-server and peer-to-peer connections. Descriptors are
//!                   posted and dequeued; no call blocks.
//! Transmit path     a link that can send a packet requests one with [`Nic::fetch`] and provides a buffer.
//!                   The payload is copied once, from host memory into the link's buffer. VIs are served
//!                   round robin, one packet each.
//! Receive path      a link passes each packet to [`Nic::arrive`]. The payload is copied once, into the
//!                   descriptor's memory or the target of an RDMA Write. Headers in shared memory are copied
//!                   before they are validated.
//! Acknowledgements  [`Nic::settle`] sends pending acknowledgements, after the host has had the opportunity
//!                   to send an answer that carries them.
//! Paths             a path leads to one other NIC. A *lossless* path (a ring, a cLAN-like link) needs no
//!                   timers. On other paths, packets are retransmitted from the first missing one on
//!                   (go-back-N), within a window that is halved on each loss.
//! Levels
//!
//! ```text
//!                           unreliable delivery   reliable delivery          reliable reception
//! a descriptor completes    its data was sent     same, or is acknowledged*  its data is in peer's memory
//! lost, duplicate packets   message lost          recovered                  recovered
//! empty receive queue       message lost          connection lost**          sender waits
//! an error                  that descriptor's     connection lost            connection lost; see its status
//! RDMA Read                 no                    yes                        yes
//! ```
//!
//! (*) Acknowledged if the path may lose packets, since the data may have to be retransmitted. (**) After
//! [`Config::dry_patience`], which is zero by default, as in the VI Architecture.
//!
//! Limits            every table and queue has a limit in [`Config`]; a call that would exceed it fails.
//! Not implemented   quality of service: the two ends' values are compared, as the architecture requires,
//!                   but no quality of service is provided.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod queues;
pub mod wire;

mod config;
mod connection;
mod counters;
mod endpoint;
mod error;
mod memory;
mod nic;
mod traits;
mod transfer;
mod vi;

pub use config::Config;
pub use connection::request::{ConnectError, PeerAttributes, Request};
pub use counters::ViCounters;
pub use error::RequestError;
pub use memory::MemoryAttributes;
pub use nic::Nic;
pub use traits::{Event, PathTraits, Reliability, ViAttributes, ViState};
pub use transfer::work::{AddressSegment, Completion, CompletionKind, DataSegment, Operation, Status, Work};
