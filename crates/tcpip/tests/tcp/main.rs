//! TCP tests that are not packet scripts (those are in `talks`).

mod common;

mod attacks;
mod cookies;
mod cost;
mod fairness;
mod flow;
mod hardening;
mod hostile;
mod loss;
mod opening;
mod options;
mod patience;
mod profiles;
mod recovery;
mod segments;
mod sharing;
mod starvation;
mod tuning;
mod urgent;
mod worlds;
