//! Ctrl-C in commands that measure.

use crate::output::note;
use std::path::Path;

/// Starts handling Ctrl-C: the first one calls `first`, the second one ends the program.
pub(super) fn on_interrupt(first: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let say = |error: std::io::Error| format!("cannot handle signals: {error}");
    let runtime = kiban_tokio::runtime::build(tokio::runtime::Builder::new_current_thread().enable_io())
        .map_err(say)?;
    let hear = move || {
        runtime.block_on(async {
            if tokio::signal::ctrl_c().await.is_ok() {
                first();
                if tokio::signal::ctrl_c().await.is_ok() {
                    std::process::exit(INTERRUPTED);
                }
            }
        });
    };
    std::thread::Builder::new().name("signals".into()).spawn(hear).map_err(say)?;
    Ok(())
}

/// The exit status after Ctrl-C, as used by shells: 128 + SIGINT.
pub(super) const INTERRUPTED: i32 = 130;

/// Starts handling Ctrl-C, which prints that the records in `folder` are kept, and ends the program. Each
/// record is written as soon as its trial ends.
pub(super) fn keep_at_interrupt(folder: &Path) -> Result<(), String> {
    let folder = folder.display().to_string();
    on_interrupt(move || {
        note!("\nkiban: interrupted; the records so far are in {folder}: run the same command to resume");
        std::process::exit(INTERRUPTED);
    })
}
