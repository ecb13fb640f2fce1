//! Tests of the RNIC core: two NICs that exchange segments directly.

mod captures;
mod crowd;
mod datagrams;
mod dissected;
mod expected;
mod host;
mod immediate;
mod messages;
mod midway;
mod operations;
mod pair;
mod progress;
mod protection;
mod rows;
mod stand;
mod station;
mod steps;
mod streams;
mod worlds;
