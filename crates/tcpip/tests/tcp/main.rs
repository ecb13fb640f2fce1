//! TCP tests that are not packet scripts (those are in `talks`).

mod attackers;
mod common;
mod resources;

mod flow;
mod loss;
mod opening;
mod options;
mod patience;
mod profiles;
mod recovery;
mod segments;
mod urgent;
mod worlds;
