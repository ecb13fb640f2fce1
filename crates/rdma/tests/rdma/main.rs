//! Tests of the RNIC core: two NICs that exchange segments directly.

mod captures;
mod crowd;
mod datagrams;
mod dissected;
mod expected;
mod fixture;
mod host;
mod immediate;
mod operations;
mod progress;
mod steps;
mod streams;
mod violations;
mod worlds;
