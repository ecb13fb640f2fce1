//! Stories of the RNIC core: two NICs whose segments travel as they are.

mod operations;
mod pair;
mod steps;
mod streams;
