//! `kiban lab serve`, `sweep`, `delay` and `trace`: measurements of real networks.

mod command;
mod delay;
mod numbers;
mod output;
pub(super) mod peer;
mod serve;
mod sweep;
mod trace;

pub(super) use command::Net;
pub(super) use output::put;
