//! Tests of the RNIC core: two NICs that exchange segments directly.

mod captures;
mod crowd;
mod datagrams;
mod dissected;
mod expected;
mod fixture;
#[path = "../common/guarded.rs"]
mod guarded;
mod host;
mod immediate;
#[path = "../common/model.rs"]
mod model;
mod operations;
mod progress;
mod steps;
mod streams;
mod violations;
mod worlds;
