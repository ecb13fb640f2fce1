//! Links the libraries from the archive that cargo builds for a test.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The directory of the crate `verbs`, also when a test in another crate runs.
pub(crate) fn home() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../verbs"))
}

/// Runs a command to its end.
pub(crate) fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"))
}

/// Returns the output of a command that must succeed.
#[track_caller]
pub(crate) fn stdout_of(command: &mut Command) -> String {
    let output = output(command);
    let (words, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{words}{errors}", output.status);
    String::from_utf8(output.stdout).expect("names are ASCII")
}

/// Returns the newest archive in the test's directory, where cargo puts it with a hash in its name.
pub(crate) fn archive() -> PathBuf {
    let test = std::env::current_exe().expect("a test is a file");
    let beside = test.parent().expect("in a folder");
    let entries = std::fs::read_dir(beside).expect("the folder of the test");
    let newest = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|end| end == "a"))
        .filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libkiban_verbs"))
        })
        .max_by_key(|path| path.metadata().and_then(|data| data.modified()).expect("a file"));
    newest.unwrap_or_else(|| panic!("no archive in {}: run this through cargo", beside.display()))
}

/// Links the libraries into a folder of the target directory. Returns its path.
pub(crate) fn linked(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    stdout_of(Command::new(home().join("link")).arg(archive()).arg(&folder));
    folder
}
