//! Virtual time: the boards that we ship, in a world that we make up.
//!
//! A [`World`] joins boards and ATM switches by lines of cells, and boards by cables of packets. Nothing here reads a clock or draws chance of its own: the same
//! configuration and seed give the same run, byte for byte. What the world does to traffic is in [`Harm`]; what must
//! hold afterwards is checked by [`check`], apart from the code that it judges.
#![forbid(unsafe_code)]

mod cable;
pub mod check;
pub mod cost;
mod line;
pub mod osi;
mod pair;
mod plug;
pub mod predict;
mod processor;
pub mod program;
pub mod rdma;
pub mod rnic_clocks;
mod star;
mod switch;
mod tap;
mod terminal;
pub mod traffic;
pub mod waiting;
mod world;

pub use cable::{Cable, CableConfig, CableCounters, ETHERNET_FRAMING_BYTES};
pub use kiban_board::harm::{Harm, HarmCounters};
pub use line::{Line, delay_of};
pub use pair::{Pair, Plan};
pub use plug::{BoardNumber, CableNumber, LineNumber, Misfit, Plug, PortKind, SwitchNumber, TerminalNumber};
pub use program::Program;
pub use star::{QueueWatch, Star, StarConfig, Stream};
pub use switch::{Switch, SwitchCounters};
pub use tap::{Sink, Tap};
pub use terminal::Terminal;
pub use world::{Cost, World};
