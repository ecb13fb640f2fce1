//! TCP tests without a board: simulations of two TCP machines, floods from many addresses, and calls of the
//! bare machine. Tests in which one peer is driven segment by segment are packet scripts (`talks`,
//! `crates/talk/tests/tcp`).

mod attackers;
mod common;
mod resources;

mod flow;
mod loss;
mod opening;
mod patience;
mod profiles;
mod worlds;
