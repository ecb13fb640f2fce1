//! Paper \[5\]: the OSI 7-layer board of 1992: figure 2 (throughput by F-DATA size and by TPDU size) and
//! figure 3 (time of each task).
//!
//! Set-up    kiban's OSI board in virtual time ([`kiban_sim::osi`]): a file of 2 MiB, FTAM-3, between
//!           in-memory filestores. There are either two boards on a line of 2 Mbit/s (packets of 2048 bytes,
//!           windows of 7, at most 7 outstanding frames), or one board in internal loopback, with both ends
//!           on its one processor.
//! Model     one set of constants for all points (`OSI_BOARD_1992`). Two of them were fitted to values in
//!           loopback, one to a value on the line.
//! Doubling  loopback values are twice the rate of the transfer, as in the paper, because one processor does
//!           the work of both ends.
//! Figures   the axes of the published figures are lost, so the verdicts use what the paper's text says about
//!           the figures.
//! Virtual time  is deterministic: each point is run once and gives the same values on every machine.
//!           Measurements on this machine ([`measured`]) are not part of the report.

pub mod measured;
pub mod mechanisms;
mod reproduction;
pub mod transfer;

pub(crate) use reproduction::LINE_BITS_PER_SECOND;
pub use reproduction::{Effort, LineUse, OsiBoard, Tasks, make, unhindered};
