//! The subcommands of `kiban lab` that measure real networks.

use super::{check, delay, hosts, latency, request, serve, sweep, trace, udp};
use clap::Subcommand;
use std::process::ExitCode;

/// Subcommands that measure real networks.
#[derive(Subcommand)]
pub(in crate::lab) enum Net {
    Serve(serve::Serve),
    Sweep(Box<sweep::SweepHost>),
    Delay(delay::Delay),
    Latency(latency::Latency),
    Udp(udp::Udp),
    Check(check::Check),
    Hosts(hosts::HostsCommand),
    Request(request::Request),
    Trace(trace::TraceHost),
}

impl Net {
    pub(in crate::lab) fn run(self) -> Result<ExitCode, String> {
        match self {
            Net::Serve(serve) => serve.run(),
            Net::Sweep(sweep) => sweep.run(),
            Net::Delay(delay) => delay.run(),
            Net::Latency(latency) => latency.run(),
            Net::Udp(udp) => udp.run(),
            Net::Check(check) => check.run(),
            Net::Hosts(hosts) => hosts.run(),
            Net::Request(request) => request.run(),
            Net::Trace(trace) => trace.run(),
        }
    }
}
