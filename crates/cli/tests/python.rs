//! The wheel: built, installed in a clean virtual environment, and used by its own tests (python/tests).
//!
//! Requires  python3-venv, the RDMA programs of `make test`, and a package index (hatchling, pytest, pandas,
//!           matplotlib, polars).

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
    pip(&["install", wheel.trim(), "pytest", "pandas", "matplotlib", "polars"]);
    // Nothing but the environment: neither the repository nor an installed kiban.
    let tests = built.join("tests");
    stdout_of(Command::new("cp").arg("-r").arg(root.join("python/tests")).arg(&tests));
    fs::copy(root.join("examples/lab.ipynb"), tests.join("lab.ipynb")).expect("the notebook can be copied");
    let mut pytest = Command::new(&python);
    pytest.args(["-m", "pytest", "-q"]).arg(&tests).current_dir(&tests);
    for name in ["KIBAN_VERBS_LIB", "KIBAN_TRANSPORT", "KIBAN_FTAM_PASSWORD", "PYTHONPATH"] {
        pytest.env_remove(name);
    }
    let said = stdout_of(&mut pytest);
    assert!(said.contains(" passed") && !said.contains("skipped"), "{said}");
    the_action_installs(wheel.trim(), &root, &built);
}

/// Does what a workflow with `action.yml` does: its step, and a later step.
fn the_action_installs(wheel: &str, root: &Path, built: &Path) {
    let action = fs::read_to_string(root.join("action.yml")).expect("action.yml can be read");
    assert!(action.contains(r#""$GITHUB_ACTION_PATH/scripts/action" "$WHEEL""#), "{action}");
    let temporary = built.join("runner");
    fs::create_dir(&temporary).expect("it is new");
    let [paths, outputs] = ["paths", "outputs"].map(|name| temporary.join(name));
    stdout_of(
        Command::new(root.join("scripts/action"))
            .arg(wheel)
            .env("RUNNER_TEMP", &temporary)
            .env("GITHUB_PATH", &paths)
            .env("GITHUB_OUTPUT", &outputs),
    );
    assert_eq!(fs::read_to_string(outputs).expect("it was written"), format!("wheel={wheel}\n"));
    let folder = fs::read_to_string(paths).expect("it was written");
    let mut kiban = Command::new(Path::new(folder.trim()).join("kiban"));
    let devices = stdout_of(kiban.args(["verbs", "--", "ibv_devices"]).env_remove("KIBAN_VERBS_LIB"));
    assert!(devices.contains("kiban0"), "{devices}");
}
