//! The assembly: a communications board as a value.
//!
//! ```text
//!          host          Host: listen, open, write, read, ping …   Completion: what has happened
//!   ──────────────────────────────────────────────────────────────────────────────────────────
//!          board         wiring/ip: TCP UDP ICMP on IP on circuits or packets
//!   ──────────────────────────────────────────────────────────────────────────────────────────
//!          ports         Input: cells, packets, time        Output: packets, completions, deadline
//! ```
//!
//! A driver, `real` or `sim`, hands over what has arrived and the time ([`Board::handle`]), then drains
//! ([`Board::poll`]) until the board is idle until a deadline. Completions come out before answers are settled, so that a host that
//! takes its data at once gets one acknowledgement with an open window. Cells are fetched, not pushed: the line asks
//! for as many as it has slots ([`Board::cells`]).
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod board;
mod bridge;
mod config;
mod cut;
mod edge;
pub mod harm;
mod host;
mod merge;
pub mod osi;
pub mod pace;
mod port;
mod program;
pub mod queues;
pub mod recorder;
pub mod streams;
mod view;
mod wiring;

pub use board::{Board, Input, Output};
pub use config::{
    AtmPortConfig, BoardConfig, BridgePortConfig, BridgedCircuit, CircuitConfig, EthernetPortConfig,
    HostPortConfig, IpPortConfig, MemoryConfig, PortAddress, PortConfig,
};
pub use edge::{Completion, StreamId};
pub use host::{Host, Refused};
pub use kiban_stack::ip::TroubleKind;
pub use kiban_stack::tcp::{Owner, Reason};
pub use kiban_stack::udp::SocketId;
pub use program::Program;
pub use wiring::rdma::{EfePortConfig, RdmaConfig, RdmaHost, RdmaSettings};
