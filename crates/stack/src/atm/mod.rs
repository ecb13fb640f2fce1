//! ATM: cells, circuits, AAL5 and a switch (I.361, I.363.5, I.371, I.432.1, I.610; RFC 2225, RFC 2684).
//!
//! Goal      IP packets over virtual circuits as the board of paper 1 carries them: cut into cells, interleaved per
//!           cell, put together again per circuit with the Internet checksum formed on the way.
//! Shape     cells are real 53-byte cells that travel in bulk: a *train* is a slice of [`TimedCell`]s, each with its
//!           moment. A line's slots run freely ([`SlotClock`]); whoever sends commits them in a plain loop
//!           ([`Scheduler`]), so that the cost is a few nanoseconds a cell and the result is that of an event per cell.
//!
//! ```text
//!   Encapsulation      LLC/SNAP or VC-mux: which protocol      InArp: whose circuit    Loopback: does it live
//!   Segmentation  │                                         ▲  Reassembly
//!   Scheduler     │  slots, round robin, shaping (Gcra)     │  headers (HEC), circuits, pages, sums, CRC
//!                 ▼  train                           train  │
//!                 └──────────► Switch: table, policing, queues, discard ─────┘
//! ```
//!
//! Down      packet → encapsulation → [`Segmentation::send`] → `advance` → train.
//! Up        train → [`Reassembly::cells`] → [`Arrival`]s → encapsulation, InARP, loopback.
//! AAL1      [`aal1`]: streams of a constant rate, which take their cells to a line themselves.
//! Limits    each part names its own; circuits are numbers ([`Circuit`]) that the board gives.
//! Left out  signalling (SVC, PNNI), ATMARP servers, LANE, MPOA, AAL2, ABR's rates.

pub mod aal1;
mod cell;
mod counters;
mod encapsulation;
mod gcra;
mod inarp;
mod loopback;
mod reassembly;
mod scheduler;
mod segmentation;
mod slots;
mod switch;
mod table;

pub use cell::{HeaderReceiver, Received, TimedCell};
pub use counters::{
    EncapsulationCounters, HecCounters, InArpCounters, LoopbackCounters, ReassemblyCounters, RouteCounters,
    SegmentationCounters, SwitchCounters,
};
pub use encapsulation::{Carried, Encapsulation, NotCarried};
pub use gcra::{Contract, Gcra, Meter, Sustained};
pub use inarp::{InArp, InArpConfig, InArpDue, InArpVerdict};
pub use loopback::{Loopback, LoopbackDue, LoopbackVerdict, PING_TIMEOUT};
pub use reassembly::{Arrival, Inlet, Reassembly};
pub use scheduler::{Scheduler, Supply};
pub use segmentation::{MANAGEMENT_CELLS_MAX, Outlet, Reason, Refused, Segmentation};
pub use slots::{Interval, OC3C_BITS_PER_SECOND, OC12C_BITS_PER_SECOND, SlotClock};
pub use switch::{FABRIC_DELAY, Name, Penalty, Route, RouteRefused, Switch, SwitchPort};

/// The number of a circuit of a board's port: an index into its tables, dense from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Circuit(pub u32);
