//! The commands of `kiban lab` that measure real networks: `serve`, `sweep`, `delay`, `latency`, `udp`,
//! `check`, `hosts`, `request` and `trace`.

mod check;
mod command;
mod delay;
mod hosts;
mod latency;
mod numbers;
mod output;
pub(super) mod peer;
mod request;
mod serve;
mod ssh;
mod sweep;
mod trace;
mod udp;

pub(super) use command::Net;
pub(super) use hosts::hosts_hint;
pub(super) use output::put;
