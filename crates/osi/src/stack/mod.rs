//! The OSI board: the wiring of the seven layers (paper \[5\]).
//!
//! ```text
//!   paper [5]'s task     here
//!   HIF                  the owner: reads and writes files, and uses the file service
//!   FTAM                 files::Files, around ftam::Machine
//!   ACSE + PL, SL, TL    layers::Stack
//!   LIF                  stream::Stream over TCP; line::Line, X.25; loopback::Loop: the internal loopback
//! ```
//!
//! The paper's operating system passed buffers between tasks and scheduled them. Here tasks are values, data
//! is moved, and the order is that of two steps: [`layers`]'s and [`files`]'; [`end`] repeats them until
//! nothing moves. [`meter`] tells how long each of them works.

pub mod below;
pub mod end;
pub mod files;
pub mod layers;
pub mod line;
pub mod loopback;
pub mod meter;
pub mod stream;
