//! The wheel: built, installed in a clean virtual environment, and used by its own tests (python/tests).
//!
//! Requires  python3-venv, the RDMA programs of `make test`, and a package index (hatchling, pytest, pandas).

#[path = "../../verbs/tests/common/libraries.rs"]
mod libraries;

use libraries::{linked, stdout_of};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

#[test]
fn the_wheel_works_in_a_clean_environment() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wheel");
    let _ = fs::remove_dir_all(&built);
    linked("wheel/verbs");
    symlink(env!("CARGO_BIN_EXE_kiban"), built.join("kiban")).expect("the folder is new");
    let environment = built.join("environment");
    stdout_of(Command::new("/usr/bin/python3").args(["-m", "venv"]).arg(&environment));
    let python = environment.join("bin/python");
    let wheel = stdout_of(
        Command::new(root.join("scripts/wheel"))
            .arg(&built)
            .arg(built.join("made"))
            .arg("linux_x86_64")
            .env("PYTHON", &python),
    );
    let pip = |words: &[&str]| {
        stdout_of(
            Command::new(&python).args(["-m", "pip", "--quiet", "--disable-pip-version-check"]).args(words),
        )
    };
    pip(&["install", wheel.trim(), "pytest", "pandas"]);
    // Nothing but the environment: neither the repository nor an installed kiban.
    let tests = built.join("tests");
    stdout_of(Command::new("cp").arg("-r").arg(root.join("python/tests")).arg(&tests));
    let mut pytest = Command::new(&python);
    pytest.args(["-m", "pytest", "-q"]).arg(&tests).current_dir(&tests);
    for name in ["KIBAN_VERBS_LIB", "KIBAN_TRANSPORT", "KIBAN_FTAM_PASSWORD", "PYTHONPATH"] {
        pytest.env_remove(name);
    }
    let said = stdout_of(&mut pytest);
    assert!(said.contains(" passed") && !said.contains("skipped"), "{said}");
}
