//! The OSI board: the wiring of the OSI layers (paper \[5\], see docs/reproduce-osi-board.md).
//!
//! ```text
//!   paper [5]'s task     module
//!   HIF                  the owner of the stack: reads and writes files, and uses the file service
//!   FTAM                 files::Files, around ftam::Machine
//!   ACSE + PL, SL, TL    layers::Stack
//!   LIF                  stream::Stream over TCP; line::Line, X.25; loopback::Loop: the internal loopback
//! ```
//!
//! In the paper, an operating system passed buffers between tasks and scheduled them. Here a task is a Rust
//! value, and the wiring moves data between tasks. Two step functions, in [`layers`] and [`files`], determine
//! the order; [`end`] repeats them until no layer has output. [`meter`] measures how long each task works.

pub mod below;
pub mod end;
pub mod files;
pub mod layers;
pub mod line;
pub mod loopback;
pub mod meter;
pub mod stream;
