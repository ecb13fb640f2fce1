//! Stories of EFE-like endpoints: two of them, a path between, and a clock that the test turns.

mod hostile;
mod life;
mod pair;
mod setup;
