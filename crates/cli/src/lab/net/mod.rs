//! `kiban lab serve`, `sweep`, `delay` and `trace`: real networks.

mod delay;
mod numbers;
pub(super) mod peer;
mod serve;
mod sweep;
mod trace;

use clap::Subcommand;
use std::process::ExitCode;

/// Verbs that measure real networks.
#[derive(Subcommand)]
pub(super) enum Net {
    Serve(serve::Serve),
    Sweep(sweep::SweepHost),
    Delay(delay::Delay),
    Trace(trace::TraceHost),
}

impl Net {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        match self {
            Net::Serve(serve) => serve.run(),
            Net::Sweep(sweep) => sweep.run(),
            Net::Delay(delay) => delay.run(),
            Net::Trace(trace) => trace.run(),
        }
    }
}

/// Prints one JSON object, if that is wanted, or the tables.
fn put(json: bool, made: &(impl serde::Serialize + std::fmt::Display)) -> Result<(), String> {
    crate::print(&if json { crate::json(made)? } else { made.to_string() })
}

/// Writes files, each by its name, into a folder.
fn write(folder: &std::path::Path, files: &[(String, Vec<u8>)]) -> Result<(), String> {
    let say = |error: std::io::Error| {
        format!("{} cannot be written ({error}): make room, or name another folder", folder.display())
    };
    std::fs::create_dir_all(folder).map_err(say)?;
    files.iter().try_for_each(|(name, bytes)| std::fs::write(folder.join(name), bytes)).map_err(say)
}
