//! Tests of VI NICs: two NICs, a path between them, and virtual time.

mod errors;
mod lossy;
mod pair;
mod transfers;
