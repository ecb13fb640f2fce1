//! A running board: its links, services, control requests and shutdown.
//!
//! Start            links are opened before the board is built, because its configuration depends on the
//!                  segmentation offload that they support.
//! Links            the loss of a link is reported, and the board continues. The first attempt to reopen the
//!                  link is made after 1 s; the pauses then grow to 30 s.
//! Reload           changes only the services, routes and links that differ. A change that requires a new
//!                  board is refused; the message names the key.
//! Shards           a board may be divided; `shards` has the threads of all shards but the first.
//! Stop             services stop listening; sessions have a limited time to end, and are then reset.

mod board;
mod configuration;
mod part;
mod plan;
mod port_link;
mod shards;
mod status;

pub use board::Running;
pub use configuration::read;
