//! The libraries that tests preload into programs.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds a library of `preload/`, as `make verbs` does, in a folder of the target directory. Returns the
/// folder.
pub(crate) fn built(folder: &str, library: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let build = concat!(env!("CARGO_MANIFEST_DIR"), "/../../preload/build");
    let output = Command::new(build).arg(&folder).arg(library).output().expect("it is a script");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    folder
}
