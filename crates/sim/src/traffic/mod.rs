//! Traffic without feedback: constant-rate streams over AAL1; pictures, audio and data over AAL5.
//!
//! Goal      the flows of a remote lecture (paper \[2\], §4), each generated from a seed, with a ledger that
//!           records what happened to each cell.
//!
//! ```text
//! program (when, how many octets) ► FrameSource ► cells ...  network ... FrameSink ► units that came whole
//! a constant rate ► StreamSource ► aal1::Sender ► cells ...  network ... StreamSink ► aal1::Receiver ► octets
//!                                        └────────► Ledger: sent ◄──────────┘ arrived, lost, how late
//! ```
//!
//! Shape     each end is a [`Terminal`](crate::Terminal) with its own line. A source sends at the rate of its
//!           line, or is shaped to a contract.
//! Left out  real sound and pictures: the contents are numbers chosen so that all cells differ.

mod frames;
mod ledger;
mod outlet;
mod playout;
mod programs;
mod stream;

pub use frames::{FrameSink, FrameSource, Units};
pub use ledger::{CellLog, Shared, Tally};
pub use outlet::Outlet;
pub use playout::{Playout, Recovered};
pub use programs::{Jpeg, JpegConfig, Periodic, Sporadic, Unit, line_octets};
pub use stream::{StreamConfig, StreamSink, StreamSource};
