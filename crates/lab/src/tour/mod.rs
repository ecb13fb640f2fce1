//! The tour: transfers a file between two boards in both directions and reports throughput and cost.
//!
//! Purpose   one row per transfer: integrity, goodput in virtual time relative to the line's limit, bytes
//!           copied, CPU time, elapsed time.
//! Set-up    that of paper \[1\]: two boards with TCP/IP on board, OC-3c lines, and an ATM switch between
//!           them.
//! Accuracy  virtual-time figures are exact. CPU time is measured on the running machine. The percentage of a
//!           virtual limit is meaningful only if the simulation ran faster than real time; otherwise the
//!           table marks it.

pub mod osi;
pub mod rdma;
mod transfers;
pub mod vi;

pub use transfers::{Captures, Failure, GENERATED_BYTES, Payload, Row, TRANSFERS, Transfer, run, table};
use transfers::{PATIENCE, PORT, Shared, copied, hex, source, watch};
