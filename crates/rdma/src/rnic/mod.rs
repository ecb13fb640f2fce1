//! The RNIC core: an RDMA NIC, held as an ordinary Rust value and structured like the blocks in paper \[3\].
//!
//! Purpose          lets programs read and write each other's memory. No byte is accessed unless its owner
//!                  has exposed it.
//! Host side        the methods of [`Rnic`] are its registers and doorbells: protection domains, memory,
//!                  queues, work requests. The host refers to objects by numbers, which the core assigns and
//!                  checks (the paper's address decoder).
//! Transmit path    [`Rnic::pop_tx_queue`] returns a queue pair with something to send,
//!                  [`Rnic::next_segment`] builds its next DDP segment; the lower layer reports segments that
//!                  it no longer holds ([`Rnic::confirm`]).
//! Receive path     [`Rnic::validate`] validates the header of a segment and decides where the payload goes.
//!                  The lower layer passes the payload in ([`Rnic::place`]) or stores it there itself
//!                  ([`Rnic::placement_buffers`]), then calls [`Rnic::deliver`].
//! Streams          a connected queue pair runs over one reliable, ordered stream of segments: MPA on TCP, or
//!                  EFE. Stream setup is outside the core; [`Rnic::connect`] reports its result.
//! Packets          a queue pair may speak RoCEv2 instead ([`Rnic::connect_roce`]). It makes its own packets
//!                  ([`Rnic::next_packet`]), takes its peer's ([`Rnic::packet`]), and retransmits, so packets
//!                  may be lost, duplicated and reordered.
//! Datagrams        datagram queue pairs have no stream. [`Rnic::next_datagram`] builds the next outgoing
//!                  datagram, including its header; [`Rnic::datagram`] takes an incoming one. Both ends must
//!                  be kiban NICs: no iWARP standard defines datagrams.
//! Limits           every table and queue has a bound in [`Config`].
//! Not implemented  PCI Express (host memory is accessed by copying). Multicast groups are the caller's
//!                  ([`crate::roce::Endpoint::take_multicast`]).
//!
//! ```text
//! paper [3]                                     here
//! RNIC REGs, QP REGs, address decoder           device.rs, queue_pairs.rs; numbers by kiban_base::Slab
//! SMT, STag management table                    host/smt.rs
//! CMT, completion management table              host/cmt.rs
//! PBLMT, physical buffer lists                  host/pblmt.rs
//! DMAC, DMA READ/WRITE DATA FIFO                host/dmac.rs: gather, scatter, placement
//! QP function: SQ, RQ, ORRQ, IRRQ, states       control/{send_queue, receive_queue, reads, qp, state}.rs
//! Completion manager                            control/completion.rs
//! Send module: acceptor, resolver, generator    executor/send.rs
//! (none: datagrams)                             control/datagram.rs, executor/datagram.rs
//! (none: RoCEv2)                                control/roce.rs, executor/roce, packets.rs, xrc.rs
//! Receive module: receiver, resolver            executor/receive.rs
//! TO LLP FIFO, FROM LLP FIFO                    lower.rs: ToLlp, and validate/place/deliver
//! PCI Express interface                         not implemented
//! EFE                                           crate::efe
//! clocks of table 2                             clocks.rs
//! ```
//!
//! \[3\]: Uchiyama and others, *Implementation of the RDMA communication mechanism on ExpEther*, 2008.

pub mod clocks;
mod config;
mod control;
mod counters;
mod device;
mod error;
mod event;
mod executor;
mod host;
mod lower;
mod outbox;
mod packets;
mod queue_pairs;
mod work;
mod xrc;

pub use config::Config;
pub use control::datagram::DatagramState;
pub use control::dcqcn::CNP_INTERVAL;
pub use control::roce::{RoceSending, RoceTraits};
pub use control::state::{QpAttributes, QpState, StreamAction, StreamTraits};
pub use counters::RnicCounters;
pub use device::Rnic;
pub use error::RequestError;
pub use event::Event;
pub use executor::datagram::GRH_BYTES;
pub use executor::receive::{Placement, SegmentResult, Validation};
pub use executor::send::ToLlp;
pub use host::cmt::Notify;
pub use host::dmac::{Payload, Piece};
pub use lower::{Outgoing, PlacementBuffers};
pub use work::{
    Access, Binding, Completion, Data, Kind, Operation, ReceiveWork, SendWork, Sge, Sges, Status,
    TaggedAddress,
};
