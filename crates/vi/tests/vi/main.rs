//! Stories of VI NICs: two of them, a path between, and a clock that the test turns.

mod errors;
mod lossy;
mod pair;
mod transfers;
