//! The C programs of `tests/c`: compiled as strictly as compilers can, run with our libraries in the place of rdma-core's.
//!
//! Goal      what `verbs.h` promises is kept from C, through the tables and through the library's own functions.
//! How       programs are linked to the installed libibverbs, as any program is, and find ours by `LD_LIBRARY_PATH`; `link` makes
//!           the libraries of this crate's archive.
//! Limits    a program has a time to end in; one that does not is stopped, and its story is the last it printed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"];

fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn output(mut command: Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"))
}

#[track_caller]
fn succeeds(command: Command) -> String {
    let told = format!("{command:?}");
    let output = output(command);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}: {}\n{text}{errors}", output.status);
    text
}

/// The archive of this build: cargo puts it beside the tests that depend on it.
fn archive() -> PathBuf {
    let test = std::env::current_exe().expect("a test is a file");
    let folder = test.parent().expect("in a folder");
    let files = std::fs::read_dir(folder).expect("the folder can be read");
    files
        .map(|file| file.expect("an entry of a readable folder").path())
        .filter(|file| {
            let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with("libkiban_verbs") && name.ends_with(".a")
        })
        .max_by_key(|file| file.metadata().and_then(|data| data.modified()).expect("files have times"))
        .expect("the archive: run this through cargo")
}

/// A folder with the libraries.
static LIBRARIES: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("verbs");
    let mut link = Command::new(home().join("link"));
    link.arg(archive()).arg(&folder);
    succeeds(link);
    folder
});

/// Builds a test program and has it tell its stories.
fn tell(name: &str) {
    let program = LIBRARIES.join(name);
    let mut compiler = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    compiler.args(WARNINGS).args(["-std=c11", "-D_GNU_SOURCE", "-g", "-o"]).arg(&program);
    compiler.arg(home().join("tests/c").join(name).with_extension("c")).args(["-libverbs", "-lrdmacm"]);
    succeeds(compiler);
    let mut run = Command::new("timeout");
    run.args(["--kill-after=5", "60"]).arg(&program);
    run.env("LD_LIBRARY_PATH", &*LIBRARIES).env_remove("KIBAN_TRANSPORT");
    let told = succeeds(run);
    let stories = told.lines().filter(|line| line.starts_with("ok ")).count();
    assert!(stories > 0 && told.contains(&format!("{stories} stories")), "{told}");
}

#[test]
fn objects_are_made_asked_about_and_refused() {
    tell("objects");
}

#[test]
fn everything_that_verbs_can_do_is_done() {
    tell("traffic");
}

#[test]
fn signals_end_calls_as_they_end_reads() {
    tell("signals");
}
