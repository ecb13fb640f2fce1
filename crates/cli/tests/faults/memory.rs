//! The n-th allocation fails. Rust aborts such a process (`handle_alloc_error`) unless the code uses a
//! fallible allocation. The tests check that its peers are not affected, that nothing confirmed is lost, and
//! that the next process serves.

use crate::place::compile;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The environment variable with the number of the allocation that fails.
pub(crate) const VARIABLE: &str = "KIBAN_REFUSE_ALLOCATION";

static REFUSER: LazyLock<PathBuf> = LazyLock::new(|| {
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libkiban_refuse.so");
    compile("tests/faults/malloc.c", &library, &["-shared", "-fPIC"]);
    library
});

/// Lets the n-th allocation of a program fail, from 1.
pub(crate) fn refuse(mut command: Command, n: u64) -> Command {
    command.env("LD_PRELOAD", &*REFUSER).env(VARIABLE, n.to_string());
    command
}

/// Values of n that reach from a program's first steps into its steady state; every one up to so many in
/// `make soak`.
pub(crate) fn steps() -> Vec<u64> {
    if std::env::var("KIBAN_SOAK_SEEDS").is_ok_and(|seeds| !seeds.is_empty()) {
        return (1..3000).collect();
    }
    (0..24).map(|step| (1.45f64.powi(step)) as u64 + step as u64).collect()
}
