//! The C programs of `tests/c` and `examples/c`: compiled as strictly as compilers can, linked to the library, run.
//!
//! Goal      what `vipl.h` promises is kept by the library that programs link to, from C and from C++.
//! How       `cc` and `c++` (or `CC` and `CXX`), warnings being errors; every program tells stories and ends with 0.
//! Limits    a program has a time to end in; one that does not is stopped, and its story is the last it printed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const WARNINGS: [&str; 5] = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-Wstrict-aliasing"];

fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every C file of a folder, in order.
fn sources(folder: &str) -> Vec<PathBuf> {
    let folder = home().join(folder);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let files = entries.map(|entry| entry.expect("an entry of a readable folder").path());
    let mut files: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|end| end == "c")).collect();
    files.sort();
    assert!(!files.is_empty(), "no C file in {}", folder.display());
    files
}

fn every_source() -> Vec<PathBuf> {
    [sources("tests/c"), sources("../../examples/c")].concat()
}

fn compiler(variable: &str, otherwise: &str) -> Command {
    let mut command = Command::new(std::env::var(variable).unwrap_or_else(|_| otherwise.into()));
    command.args(WARNINGS).arg("-I").arg(home().join("include"));
    command
}

fn output(mut command: Command) -> Output {
    command
        .output()
        .unwrap_or_else(|error| panic!("{command:?} cannot be started ({error}): install gcc and g++"))
}

#[track_caller]
fn succeeds(command: Command) {
    let told = format!("{command:?}");
    let output = output(command);
    assert!(
        output.status.success(),
        "{told}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn every_program_compiles_in_every_dialect_without_a_warning() {
    for source in every_source() {
        for dialect in ["-std=c99", "-std=c11"] {
            let mut command = compiler("CC", "cc");
            command.args([dialect, "-fsyntax-only"]).arg(&source);
            succeeds(command);
        }
        for dialect in ["-std=c++98", "-std=c++17"] {
            let mut command = compiler("CXX", "c++");
            command.args(["-x", "c++", dialect, "-fsyntax-only"]).arg(&source);
            succeeds(command);
        }
    }
}

#[test]
fn a_header_alone_compiles_and_may_be_included_twice() {
    for header in ["vipl.h", "vipl_kiban.h"] {
        let mut command = compiler("CC", "cc");
        let header = home().join("include").join(header);
        command
            .args(["-std=c99", "-fsyntax-only", "-x", "c", "-include"])
            .arg(&header)
            .arg("-include")
            .arg(&header);
        command.arg("/dev/null");
        let output = output(command);
        // An empty translation unit is the one thing to complain of, in a strict dialect: the headers fill it.
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_header_whose_layout_was_touched_does_not_compile() {
    let source = home().join("tests/c/layout.c");
    let mut command = compiler("CC", "cc");
    // A struct with one more field, made by a macro where the header says uint16_t: the checks have to notice.
    command.args(["-std=c99", "-fsyntax-only", "-Duint16_t=uint32_t"]).arg(source);
    let output = output(command);
    assert!(!output.status.success());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("vip_layout_control_"), "{told}");
}
