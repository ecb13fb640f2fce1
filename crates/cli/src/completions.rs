//! `kiban completions`: scripts that complete kiban's words in a shell.

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::process::ExitCode;

/// Print a completion script for a shell.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  kiban completions bash > /etc/bash_completion.d/kiban\n  kiban completions fish > ~/.config/fish/completions/kiban.fish"
)]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::Kiban::command(), "kiban", &mut script);
        crate::print(&String::from_utf8_lossy(&script))?;
        Ok(ExitCode::SUCCESS)
    }
}
