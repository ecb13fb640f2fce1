//! The engine on the NIC of a running board ([`crate::board_nic`]), instead of a NIC of this process.
//!
//! Objects        the board's NIC has the protection domains, regions, queues, queue pairs and connections;
//!                here are the program's names for them, as for a NIC of this process.
//! Memory         the program's pages become memory that is shared with the board (`pages.rs`).
//! Calls          a call that creates or changes an object waits for the board's reply. Posting and polling
//!                are accesses to shared memory.
//! Out of band    as without a board: a queue pair's number contains a port, at which the board listens, and
//!                the end with the greater address and number connects to the other's ([`super::oob`]). Both
//!                ends are on boards.
//! Not supported  RoCEv2 out of band; datagram queue pairs, extended reliable connections, queue pairs that
//!                are connected to themselves, and changing a region.

mod connections;
mod ends;
mod pages;
mod pairs;
mod requests;
mod state;

pub(super) use self::state::{BoardAccess, BoardVerbs};
