//! The subcommands of `kiban x25`.

use super::call::CallCommand;
use super::listen::Listen;
use super::pad::PadCommand;
use super::switch::SwitchCommand;
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Make and accept X.25 calls, on lines and over XOT.
///
/// A line is a serial line or a TCP stream with octet-stuffed frames (RFC 1662), an Ethernet (the format of
/// Linux's lapbether), or a synchronous HDLC or X.25 device. LAPB and the packet layer run in this program;
/// the kernel needs no X.25.
#[derive(Args)]
pub(crate) struct X25 {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Call(CallCommand),
    Listen(Listen),
    Pad(PadCommand),
    Switch(SwitchCommand),
}

impl X25 {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        match self.verb {
            Verb::Call(call) => call.run(),
            Verb::Listen(listen) => listen.run(),
            Verb::Pad(pad) => pad.run(),
            Verb::Switch(switch) => switch.run(),
        }
    }
}
