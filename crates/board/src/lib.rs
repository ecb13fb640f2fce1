//! The board: ports, protocol stacks and the host edge, assembled into one value.
//!
//! ```
//! use kiban_base::{Instant, RngKey};
//! use kiban_board::{Board, BoardConfig, Input, IpPortConfig, Output, PortConfig};
//! use std::collections::VecDeque;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Two boards with an IP port each, and a stream from the first to the second.
//! let mut boards = [1, 2].map(|side| {
//!     let port = IpPortConfig {
//!         address: [10, 0, 0, side].into(),
//!         prefix: "10.0.0.0/24".parse().unwrap(),
//!         mtu_bytes: 1500,
//!         packets_max: 64,
//!         cuts: false,
//!         merges: false,
//!         believe_sums: false,
//!     };
//!     let config = BoardConfig { ports: vec![PortConfig::Ip(port)], ..BoardConfig::default() };
//!     Board::new(&config, RngKey::for_simulation(side.into()))
//! });
//! boards[1].host().listen("10.0.0.2:80".parse()?)?;
//! boards[0].host().open("10.0.0.2:80".parse()?)?;
//!
//! // The handshake: what leaves one board arrives at the other.
//! let mut cable = VecDeque::new();
//! for side in [0, 1, 0, 1] {
//!     let board = &mut boards[side];
//!     board.handle(Input::Packets { port: 0, packets: &mut cable }, Instant::ZERO);
//!     loop {
//!         match board.poll() {
//!             Output::Transmit { pdu, .. } => cable.push_back(pdu),
//!             Output::Completions => while board.host().completion().is_some() {},
//!             Output::Idle { .. } => break,
//!         }
//!     }
//! }
//! assert_eq!(boards.map(|board| board.sessions()), [1, 1]);
//! # Ok(())
//! # }
//! ```
//!
//! ```text
//!          host          Host: listen, open, write, read, ping …   Completion: what has happened
//!   ──────────────────────────────────────────────────────────────────────────────────────────
//!          board         wiring/ip: TCP UDP ICMP on IP on circuits or packets; wiring/rdma: RDMA on TCP
//!   ──────────────────────────────────────────────────────────────────────────────────────────
//!          ports         Input: cells, packets, time        Output: packets, completions, deadline
//! ```
//!
//! A driver, in `link` or `sim`, passes in arrived units and the time ([`Board::handle`]), then calls
//! [`Board::poll`] until the board is idle and returns a deadline. Completions are output before ACKs are
//! settled, so that if the host reads its data at once, a single ACK carries the open window. Cells are
//! fetched, not pushed: the line requests as many as it has slots for ([`Board::cells`]).
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod assembly;
mod board;
mod bridge;
mod config;
mod edge;
mod error;
mod host;
pub mod impairment;
pub mod pace;
mod port;
mod program;
pub mod recorder;
mod shard;
mod stack;
pub mod streams;
mod view;
mod wiring;

pub use board::{Board, Input, Output};
pub use config::{
    AtmPortConfig, BoardConfig, BridgePortConfig, BridgedCircuit, CircuitConfig, EfePortConfig,
    EthernetPortConfig, HostPortConfig, IpPortConfig, MemoryConfig, PortAddress, PortConfig, RdmaConfig,
    RoceConfig, ShardConfig,
};
pub use edge::{Completion, Consumer, DatagramInfo, Intercepted, InterceptedKind, StreamId};
pub use error::HostError;
pub use host::{Host, MEMBERSHIPS_MAX};
pub use kiban_tcpip::ip::IcmpErrorKind;
pub use kiban_tcpip::steering::Steering;
pub use kiban_tcpip::tcp::{KeepAlive, Owner, Reason};
pub use kiban_tcpip::udp::SocketId;
pub use program::Program;
pub use shard::{Parcel, ShardCounters};
pub use wiring::rdma::RdmaHost;
