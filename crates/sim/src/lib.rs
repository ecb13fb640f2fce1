//! The boards of this project in virtual time, in simulated worlds.
//!
//! A [`World`] connects boards and ATM switches by lines of cells, and boards and Ethernet switches by
//! cables. Nothing here reads a clock or a source of entropy: the same configuration and seed give the same
//! run, byte for byte. [`ImpairmentConfig`] configures the impairments; [`check`] verifies the results,
//! independently of the code under test.
//!
//! ```
//! use core::time::Duration;
//! use kiban_base::{Instant, ethernet::Mac};
//! use kiban_board::{BoardConfig, EthernetPortConfig, PortConfig};
//! use kiban_sim::{Attachment, CableConfig, World};
//! use kiban_tcpip::ethernet::LinkConfig;
//!
//! // Two boards, and an Ethernet cable of 100 Mbit/s and 10 ms each way between their ports.
//! let mut world = World::new(1);
//! let [here, there] = [1, 2].map(|side| {
//!     let link = LinkConfig::new(Mac([2, 0, 0, 0, 0, side]));
//!     let ports = vec![PortConfig::Ethernet(EthernetPortConfig::on(link))];
//!     Attachment::Board(world.add_board(&BoardConfig { ports, ..BoardConfig::default() }), 0)
//! });
//! world.connect_packets(here, there, &CableConfig::ethernet(100_000_000, Duration::from_millis(10)))?;
//! world.settle(Instant::ZERO + Duration::from_secs(5));
//! assert!(world.now() <= Instant::ZERO + Duration::from_secs(5));
//! # Ok::<(), kiban_sim::AttachError>(())
//! ```
#![forbid(unsafe_code)]

pub mod check;
mod models;
mod network;
pub mod osi;
pub mod predict;
mod programs;
pub mod traffic;
pub mod waiting;
mod world;

pub use kiban_board::impairment::{ImpairmentConfig, ImpairmentCounters};
pub use models::pair::Pair;
pub use models::plan::Plan;
pub use models::{cost, rnic_both_ways, rnic_clocks};
pub use network::cable::{Cable, CableConfig, CableCounters, ETHERNET_FRAMING_BYTES, Middlebox};
pub use network::ecn::EcnConfig;
pub use network::line::{Line, delay_of};
pub use network::pfc::PfcConfig;
pub use network::plug::{
    AttachError, Attachment, BoardNumber, CableNumber, EthernetSwitchNumber, LineNumber, PortKind,
    SwitchNumber, TerminalNumber,
};
pub use network::star::{QueueWatch, Star, StarConfig, Stream};
pub use network::switch::{Switch, SwitchCounters};
pub use network::tap::{Sink, Tap};
pub use programs::program::Program;
pub use programs::terminal::Terminal;
pub use programs::{program, rdma};
pub use world::{Cost, World};
