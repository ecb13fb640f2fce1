//! `kiban lab merge`.

use clap::Args;
use kiban_lab::engine::{Merged, merge};
use std::path::PathBuf;
use std::process::ExitCode;

/// Put the records of shards into one folder.
///
/// The records stand in the order of the plan, so that the same records give the same bytes, however they were shared. What
/// the folder has already stays: merging again with more shards adds to it.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  kiban lab merge map shards/*\n\nExit status: 0 when every trial has a record, 1 when some are missing."
)]
pub(super) struct Merge {
    /// The folder that gets them; it is made if it does not exist.
    out: PathBuf,
    /// The folders of the shards.
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Print what was done as JSON.
    #[arg(long)]
    json: bool,
}

impl Merge {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let merged = merge(&self.out, &self.dirs).map_err(|error| error.to_string())?;
        for broken in &merged.broken {
            eprintln!("kiban: skipped: {broken}");
        }
        let Merged { trials, records, twice, .. } = merged;
        if self.json {
            super::json(&merged)?;
        } else {
            let mut words = format!("{}: {records} of {trials} trials have a record", self.out.display());
            if twice > 0 {
                words += &format!("; {twice} were made twice, the first counts");
            }
            crate::print(&(words + "\n"))?;
        }
        Ok(super::status(records == trials))
    }
}
