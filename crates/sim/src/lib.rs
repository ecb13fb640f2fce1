//! Virtual time: the boards that we ship, in a world that we make up.
//!
//! A [`World`] joins boards and ATM switches by lines. Nothing here reads a clock or draws chance of its own: the same
//! configuration and seed give the same run, byte for byte. What the world does to traffic is in [`Harm`]; what must
//! hold afterwards is checked by [`check`], apart from the code that it judges.
#![forbid(unsafe_code)]

pub mod check;
pub mod cost;
mod harm;
mod line;
mod pair;
mod processor;
pub mod program;
mod tap;
mod world;

pub use harm::{Harm, HarmCounters};
pub use line::Line;
pub use pair::{Pair, Plan};
pub use program::Program;
pub use tap::{Sink, Tap};
pub use world::{BoardNumber, Cost, LineNumber, Plug, SwitchNumber, World};
