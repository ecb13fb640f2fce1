//! Paper \[3\]: the RDMA NIC of 2008: table 1 (latency), table 2 (clocks of a Write), figure 10 (throughput
//! by size).
//!
//! Set-up    RDMA Writes between two of kiban's RNIC cores in the paper's segments ([`work`]). The cores log
//!           their steps, and [`kiban_sim::rnic_clocks`] assigns clock cycles to them.
//! Fitted    two pauses between segments are fitted to the two maxima of figure 10. All other constants are
//!           from table 2.
//! Today     the same blocks and clocks, but pipelined: each block works on the next segment while the
//!           payload of the current one is transferred.
//! Units     the paper's MB are MiB; only then do its percentages of 953.6 match 881 and 795.
//! Not implemented  PCI Express: data are available without delay, as in the paper.

mod reproduction;
pub mod work;

pub use reproduction::{Gain, RdmaNic, StepRow, make};
