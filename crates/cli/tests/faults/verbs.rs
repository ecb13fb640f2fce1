//! Programs that use the drop-in verbs libraries: verbs programs, and ordinary socket programs over rsockets.
//! Faults are injected into the server or its clients.

#[path = "../../../verbs/tests/common/libraries.rs"]
mod libraries;

use crate::place::compile;
use crate::serving::Service;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

const VERBS: Service = Service {
    server: |_| verbs(&["server", "127.0.0.1"]),
    says: ("ready ", "\n"),
    client: |_, port| verbs(&["client", "127.0.0.1", port, "20"]),
    is_patient: false,
};

const RSOCKETS: Service = Service {
    server: |_| rsockets(&["serve"]),
    says: ("ready ", "\n"),
    client: |_, port| rsockets(&["127.0.0.1", port, "100000"]),
    is_patient: false,
};

static LIBRARIES: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = libraries::linked("faults-verbs");
    let search = format!("-L{}", folder.display());
    compile(
        "tests/faults/verbs.c",
        &folder.join("verbs"),
        &[&search, "-l:librdmacm.so.1", "-l:libibverbs.so.1"],
    );
    compile("tests/faults/echo.c", &folder.join("echo"), &[]);
    folder
});

fn program(name: &str, words: &[&str], preload: &str) -> Command {
    let mut command = Command::new(LIBRARIES.join(name));
    command.args(words).env("LD_LIBRARY_PATH", &*LIBRARIES).env("LD_PRELOAD", preload);
    command
}

fn verbs(words: &[&str]) -> Command {
    program("verbs", words, "libkiban_paths.so")
}

fn rsockets(words: &[&str]) -> Command {
    program("echo", words, "librspreload.so")
}

#[test]
fn a_verbs_server_whose_calls_fail_goes_on_or_says_why_not() {
    VERBS.bears_faults("verbs server");
}

#[test]
fn a_verbs_client_that_fails_or_dies_at_any_call_leaves_a_server_that_serves() {
    VERBS.bears_clients("verbs client");
}

#[test]
fn a_verbs_client_whose_nth_allocation_fails_leaves_a_server_that_serves() {
    VERBS.bears_refused_clients("verbs client");
}

#[test]
fn a_server_over_rsockets_whose_calls_fail_goes_on_or_says_why_not() {
    RSOCKETS.bears_faults("rsocket server");
}

#[test]
fn a_client_over_rsockets_that_fails_or_dies_at_any_call_leaves_a_server_that_serves() {
    RSOCKETS.bears_clients("rsocket client");
}

#[test]
fn a_client_over_rsockets_whose_nth_allocation_fails_leaves_a_server_that_serves() {
    RSOCKETS.bears_refused_clients("rsocket client");
}

#[test]
fn a_verbs_server_whose_nth_allocation_fails_goes_on_or_says_why_not() {
    VERBS.bears_refused_allocations("verbs server");
}

#[test]
fn a_server_over_rsockets_whose_nth_allocation_fails_goes_on_or_says_why_not() {
    RSOCKETS.bears_refused_allocations("rsocket server");
}
