//! Paper \[3\]: the RDMA NIC of 2008: table 1 (latency), table 2 (clock cycles of a Write), figure 10
//! (throughput by message size).
//!
//! Set-up    two of kiban's RNIC cores exchange RDMA Writes in segments of the paper's format ([`work`]). The
//!           cores log their steps, and [`kiban_sim::rnic_clocks`] assigns clock cycles to them.
//! Fitted    two pauses between segments are fitted to the two maxima of figure 10. All other constants are
//!           from table 2.
//! Today     the same blocks with the same clock cycles, but pipelined: each block works on the next segment
//!           while the payload of the current one is transferred.
//! Units     the paper's MB are MiB: only with MiB do 881 and 795 match the percentages of 953.6 that it
//!           gives.
//! Beyond    both directions at once ([`Contention`]), and physical buffers that end within a message
//!           ([`Cuts`]).
//! Not implemented  the delay of PCI Express: data are available immediately, as in the paper.

mod reproduction;
mod shared_blocks;
pub mod work;

pub use reproduction::{Gain, RdmaNic, StepRow, make};
pub use shared_blocks::{Contention, Cuts};
