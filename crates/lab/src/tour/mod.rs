//! The tour: transfers a file between two boards in both directions and reports throughput and cost.
//!
//! Purpose   one row per transfer: integrity, goodput in virtual time relative to the line's limit, bytes
//!           copied, CPU time, elapsed time.
//! Set-up    that of paper \[1\]: two boards with TCP/IP on board, OC-3c lines, and an ATM switch between
//!           them.
//! Accuracy  virtual-time figures are exact. CPU time is measured on the running machine. The percentage of a
//!           virtual limit is meaningful only if the simulation ran faster than real time; otherwise the
//!           table marks it. A limit in real time is measured between several transfers (`rounds`).

pub mod osi;
pub mod rdma;
mod rounds;
mod transfers;
pub mod vi;

pub use transfers::{Captures, Failure, GENERATED_BYTES, Payload, Row, TRANSFERS, Transfer, run, table};
use transfers::{PATIENCE, PORT, ROUNDS, Shared, copied, hex, source, watch};
