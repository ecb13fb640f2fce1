//! Reads and validates the configuration file.

use crate::config::{Kind, Plan};
use kiban_os::exposure::{self, Private};
use kiban_os::regular;
use kiban_os::unix::names;
use kiban_sandbox as sandbox;
use std::fs::File;
use std::io;
use std::path::Path;

/// Size limit of a configuration, in bytes. It is large enough for ten thousand circuits, and small enough to
/// be parsed on the board's own thread.
const CONFIG_BYTES_MAX: usize = 1 << 20;

/// Reads a plan from a file when the board starts. From a pipe (`kiban up <(…)`, `/dev/stdin`), reads to the
/// end.
///
/// # Errors
/// If the file cannot be read, or is invalid; the message names the line.
pub fn read(file: &Path) -> Result<Plan, String> {
    validate(file, File::open(file), false)
}

/// Reads a plan for a reload. Accepts only a regular file, because the board's thread must not block.
pub(super) fn read_again(file: &Path, is_confined: bool) -> Result<Plan, String> {
    validate(file, regular::open(file), is_confined)
}

fn validate(file: &Path, opened: io::Result<File>, is_confined: bool) -> Result<Plan, String> {
    // If the file is a pipe or a terminal, relative paths are resolved against the working directory.
    let is_regular = opened.as_ref().is_ok_and(|opened| opened.metadata().is_ok_and(|about| about.is_file()));
    let folder = file.parent().filter(|_| is_regular).unwrap_or(Path::new(""));
    let text = opened.and_then(|opened| regular::text(opened, CONFIG_BYTES_MAX));
    let text = text.map_err(|error| {
        let hint = if is_confined { sandbox::hint(&error) } else { "" };
        format!("{}: {error}{hint}", file.display())
    })?;
    let name = file.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
    let plan =
        Plan::read_in(&text, &name, folder).map_err(|mistake| format!("{}: {mistake}", file.display()))?;
    let folders = names::paths();
    let sockets = folders.iter().map(|path| Private { what: "the directory of kiban's sockets", path });
    let private: Vec<_> =
        [Private { what: "the configuration", path: file }].into_iter().chain(sockets).collect();
    for service in &plan.services {
        if let Kind::Http { root, .. } = &service.kind {
            exposure::check(root, &private).map_err(|error| format!("service {}: {error}", service.name))?;
        }
    }
    Ok(plan)
}
