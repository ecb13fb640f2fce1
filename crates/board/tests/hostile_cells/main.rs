//! Hostile cells, frames and packets at an ATM port that also carries a stream. For each kind, a counter
//! increases, memory stays bounded and is freed, and the stream loses no byte.

mod circuits;
#[path = "../common/mod.rs"]
mod common;
mod damage;
mod floods;
mod helpers;
