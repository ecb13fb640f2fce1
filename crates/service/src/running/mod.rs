//! A running board: its links, services, control requests and shutdown.
//!
//! Start            links are opened first, then the board is built, because its configuration depends on
//!                  what the links can segment.
//! Links            a lost link is reported and reopened, after 1 s at first, then with growing pauses up to
//!                  30 s; the board continues.
//! Reload           only services, routes and links that differ are changed. A change that needs a new board
//!                  is refused; the message names the key.
//! Stop             services stop listening; sessions have a limited time to end, and are then reset.

mod board;
mod configuration;
mod plan;
mod port_link;
mod status;

pub use board::Running;
pub use configuration::read;
