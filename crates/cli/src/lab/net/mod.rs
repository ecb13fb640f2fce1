//! `kiban lab serve`, `sweep`, `delay`, `latency`, `udp`, `check` and `trace`: measurements of real networks.

mod check;
mod command;
mod delay;
mod latency;
mod numbers;
mod output;
pub(super) mod peer;
mod serve;
mod sweep;
mod trace;
mod udp;

pub(super) use command::Net;
pub(super) use output::put;
