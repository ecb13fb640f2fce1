//! Stories of the RNIC core: two NICs whose segments travel as they are.

mod host;
mod messages;
mod midway;
mod operations;
mod pair;
mod progress;
mod protection;
mod rows;
mod stand;
mod steps;
mod streams;
mod worlds;
