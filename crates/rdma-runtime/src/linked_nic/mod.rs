//! The state behind an RDMA NIC's lock: the NIC and its links.
//!
//! Purpose  needs few system calls: one read and one write per burst. One or two connections are tried
//!          directly; with more, epoll reports which are ready.
//! Files    sockets are watched, level-triggered, by the NIC's own epoll, which the turn's epoll watches. A
//!          sleeping and a polling driver therefore do not consume each other's events. Streams in memory
//!          have no file of their own and are polled (`offer.rs`, `board_streams.rs`).
//! Budget   a connection moves a limited number of bytes per `drive` call, and then it is the next
//!          connection's turn. Remaining work is recorded.

mod board;
mod board_streams;
mod carrier;
mod drive;
mod efe_ports;
mod ends;
mod file;
mod line;
mod offer;
mod state;
mod transfer;

pub(crate) use line::{EndState, Route};
pub(crate) use state::LinkedNic;
