//! The arguments of `kiban atm`, and its subcommands.

use super::{bridge, ping, switch};
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Ping ATM circuits, switch cells between links, and bridge Ethernet over a circuit.
#[derive(Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Atm {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Ping(ping::Ping),
    Bridge(bridge::Bridge),
    Switch(switch::Switch),
}

impl Atm {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        match self.verb {
            Verb::Ping(ping) => ping.run(),
            Verb::Bridge(bridge) => bridge.run(),
            Verb::Switch(switch) => switch.run(),
        }
    }
}
