//! `kiban lab merge`: merges the records of shards.

use crate::output::note;
use clap::Args;
use kiban_lab::engine::{Merged, merge};
use std::path::PathBuf;
use std::process::ExitCode;

/// Merge the records of shards into one directory.
///
/// Records are sorted in the order of the plan, so the same records give the same bytes, however they were
/// sharded. Existing records are kept: merging more shards later adds to them.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban lab merge map shards/*\
        \n\nExit status: 0 if every trial has a record, 1 if some are missing, 2 for invalid arguments.")]
pub(super) struct Merge {
    /// Output directory; created if it does not exist.
    out: PathBuf,
    /// Directories of the shards.
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

impl Merge {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let merged = merge(&self.out, &self.dirs).map_err(|error| error.to_string())?;
        for broken in &merged.broken {
            note!("kiban: skipped: {broken}");
        }
        let Merged { trials, records, twice, .. } = merged;
        if self.json {
            super::output::json(&merged)?;
        } else {
            let mut words = format!("{}: {records} of {trials} trials have a record", self.out.display());
            if twice > 0 {
                words += &format!("; {twice} were run twice, so their first record is used");
            }
            crate::output::print(&(words + "\n"))?;
        }
        if records == trials {
            super::output::tell_next(&self.out);
        }
        Ok(super::output::status(records == trials))
    }
}
