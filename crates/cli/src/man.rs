//! `kiban man`: manual pages.

use clap::{Args, CommandFactory};
use std::path::PathBuf;
use std::process::ExitCode;

/// Write the manual pages into a folder.
#[derive(Args)]
#[command(after_help = "Example:\n  kiban man /usr/local/share/man/man1 && man kiban")]
pub(crate) struct Man {
    /// The folder; it is made if it does not exist.
    folder: PathBuf,
}

impl Man {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        let say = |error: std::io::Error| {
            format!("the pages cannot be written to {}: {error}", self.folder.display())
        };
        std::fs::create_dir_all(&self.folder).map_err(say)?;
        clap_mangen::generate_to(crate::Kiban::command(), &self.folder).map_err(say)?;
        Ok(ExitCode::SUCCESS)
    }
}
