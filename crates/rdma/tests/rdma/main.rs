//! Stories of the RNIC core: two NICs whose segments travel as they are.

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
