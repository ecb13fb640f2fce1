//! ATM: cells, circuits, AAL5 and a switch (I.361, I.363.5, I.371, I.432.1, I.610; RFC 2225, RFC 2684).
//!
//! ```
//! use core::time::Duration;
//! use kiban_atm::{Gcra, Interval};
//! use kiban_base::Instant;
//!
//! // I.371 Annex A: a thousand cells a second, with 250 µs of tolerance.
//! let mut gcra = Gcra::new(Interval::per_second(1000), Duration::from_micros(250));
//! gcra.record(Instant::ZERO);
//! assert!(!gcra.admits(Instant::ZERO + Duration::from_micros(749)));
//! assert!(gcra.admits(Instant::ZERO + Duration::from_micros(750)));
//! ```
//!
//! Purpose          carry IP packets over virtual circuits, like the board of paper 1: packets are segmented
//!                  into cells, interleaved cell by cell, and reassembled per circuit, with the Internet
//!                  checksum computed in the same pass.
//! Design           cells are real 53-byte cells processed in bulk: a *train* is a slice of [`TimedCell`]s,
//!                  each with its time. A line's slots run freely ([`SlotClock`]). A sender commits them in a
//!                  plain loop ([`Scheduler`]), which costs a few nanoseconds per cell and gives the same
//!                  result as one event per cell.
//!
//! ```text
//!   Encapsulation      LLC/SNAP or VC-mux                      InArp: peer address    Loopback: is it alive
//!   Segmentation  │                                         ▲  Reassembly
//!   Scheduler     │  slots, categories, weights, shaping      │  headers (HEC), circuits, pages, sums, CRC
//!                 ▼  train                           train  │
//!                 └──────────► Switch: table, policing, queues, discard ─────┘
//! ```
//!
//! Transmit path    packet → encapsulation → [`Segmentation::send`] → `advance` → train.
//! Receive path     train → [`Reassembly::cells`] → [`Arrival`]s → encapsulation, InARP, loopback.
//! AAL1             [`aal1`]: constant bit rate streams, which pass their cells to a line themselves.
//! Limits           each part documents its own limits; circuits are numbers ([`Circuit`]) assigned by the
//!                  board.
//! Not implemented  signalling (SVC, PNNI), ATMARP servers, LANE, MPOA, AAL2, ABR rate control.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod wire;

pub mod aal1;
mod cell;
mod counters;
mod encapsulation;
mod gcra;
mod inarp;
mod loopback;
mod output_queue;
mod reassembly;
mod scheduler;
mod segmentation;
mod service;
mod slots;
mod switch;
mod table;

pub use cell::{HeaderReceiver, Received, TimedCell};
pub use counters::{
    EncapsulationCounters, HecCounters, InArpCounters, LoopbackCounters, ReassemblyCounters, RouteCounters,
    SegmentationCounters, SwitchCounters,
};
pub use encapsulation::{Carried, Encapsulation, ProtocolMismatch};
pub use gcra::{Contract, Gcra, Meter, Sustained};
pub use inarp::{InArp, InArpConfig, InArpDue, InArpVerdict};
pub use loopback::{Loopback, LoopbackDue, LoopbackVerdict, PING_TIMEOUT};
pub use output_queue::SwitchPort;
pub use reassembly::{Arrival, Reassembly, RxCircuit};
pub use scheduler::{CellSource, Scheduler};
pub use segmentation::{MANAGEMENT_CELLS_MAX, RejectReason, RejectedFrame, Segmentation, TxCircuit};
pub use service::{Category, Service, WEIGHT_MAX};
pub use slots::{Interval, OC3C_BITS_PER_SECOND, OC12C_BITS_PER_SECOND, SlotClock};
pub use switch::{ConnectionId, FABRIC_DELAY, GroupId, Penalty, Route, RouteError, Switch};

/// The number of a circuit on a board's port: an index into the port's tables, assigned consecutively from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Circuit(pub u32);
