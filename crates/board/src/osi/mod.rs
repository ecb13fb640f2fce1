//! The OSI board: the wiring of the seven layers (paper \[5\]).
//!
//! ```text
//!   paper [5]'s task     here
//!   HIF                  whoever holds this: reads and writes files, and asks the file service
//!   FTAM                 files::Files, around ftam::Machine
//!   ACSE + PL, SL, TL    tower::Tower
//!   LIF                  stream::Stream over TCP; line::Line, X.25; loopback::Loop: the internal loopback
//! ```
//!
//! The paper's operating system passed buffers between tasks and chose who runs. Here tasks are values, what passes is moved,
//! and the order is that of two loops: [`tower`]'s and [`files`]'. [`meter`] tells how long each of them works.

pub mod below;
pub mod end;
pub mod files;
pub mod line;
pub mod loopback;
pub mod meter;
pub mod stream;
pub mod tower;
