//! `kiban completions`: shell completion scripts.

use clap::{Args, Command};
use clap_complete::Shell;
use std::process::ExitCode;

/// Print a shell completion script.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban completions bash > /etc/bash_completion.d/kiban\
        \n  kiban completions fish > ~/.config/fish/completions/kiban.fish")]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    /// Prints the completion script for `kiban` and its subcommands.
    pub(crate) fn run(self, kiban: &mut Command) -> Result<ExitCode, String> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, kiban, "kiban", &mut script);
        crate::output::print(&String::from_utf8_lossy(&script))?;
        Ok(ExitCode::SUCCESS)
    }
}
