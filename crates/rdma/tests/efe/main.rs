//! Tests of EFE-like endpoints: two endpoints, a path between them, and virtual time.

mod hostile;
mod life;
mod pair;
mod setup;
mod trains;
