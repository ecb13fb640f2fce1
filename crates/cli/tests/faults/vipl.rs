//! VIPL programs that use a NIC through shared memory, with faults in the server or its clients.

use crate::place::{Place, compile};
use crate::serving::Service;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

const VIPL: Service = Service {
    server: |place| program(place, &["server", "shm:vipl"]),
    says: ("ready ", "\n"),
    client: |place, at| program(place, &["client", at, "20"]),
    is_patient: false,
};

/// The directory that contains `libvipl.so.1` and the test program.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    // Cargo puts the library in the same directory as the tests that depend on it.
    let test = std::env::current_exe().expect("a test is a file");
    let library = test.parent().expect("in a folder").join("libvipl.so");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults-vipl");
    std::fs::create_dir_all(&folder).expect("the target folder can be written");
    std::fs::copy(&library, folder.join("libvipl.so.1")).expect("cargo has built the library");
    let include = format!("-I{}/../vipl/include", env!("CARGO_MANIFEST_DIR"));
    compile(
        "tests/faults/vipl.c",
        &folder.join("vipl"),
        &[&include, &format!("-L{}", folder.display()), "-l:libvipl.so.1"],
    );
    folder
});

fn program(place: &Place, words: &[&str]) -> Command {
    let mut command = Command::new(FOLDER.join("vipl"));
    command.args(words).env("LD_LIBRARY_PATH", &*FOLDER).env("XDG_RUNTIME_DIR", &place.0);
    command.env_remove("KIBAN_VI_DEVICE").env_remove("KIBAN_VI_HOSTS");
    command
}

#[test]
fn a_vipl_server_whose_calls_fail_goes_on_or_says_why_not() {
    VIPL.bears_faults("vipl server");
}

#[test]
fn a_vipl_client_that_fails_or_dies_at_any_call_leaves_a_server_that_serves() {
    VIPL.bears_clients("vipl client");
}

#[test]
fn a_vipl_client_whose_nth_allocation_fails_leaves_a_server_that_serves() {
    VIPL.bears_refused_clients("vipl client");
}

#[test]
fn a_vipl_server_whose_nth_allocation_fails_goes_on_or_says_why_not() {
    VIPL.bears_refused_allocations("vipl server");
}
