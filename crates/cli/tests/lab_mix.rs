//! `kiban lab mix` as a user runs it. The tests of `lab` check the figures themselves.

mod browser;

use browser::are_sound;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const LECTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/mix/lecture.toml");

fn mix(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kiban"))
        .args(["lab", "mix"])
        .args(arguments)
        .output()
        .expect("the program starts")
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

#[test]
fn a_plan_is_reported_as_table_json_csv_and_pictures() {
    let folder = folder("mix");
    let output = mix(&[LECTURE, "--seconds", "1", "--json", "--svg", folder.to_str().expect("a plain name")]);
    assert!(output.status.success(), "{output:?}");
    let outcome: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let flows = outcome["flows"].as_array().expect("flows");
    assert_eq!((flows.len(), &flows[0]["kind"]), (25, &Value::from("mpeg2")));
    let picture = std::fs::read_to_string(folder.join("mix-waseda-musashino.svg")).expect("it was drawn");
    assert!(picture.starts_with("<svg") && picture.matches("<polygon").count() == 4);
    are_sound(&folder, "mix-browser");
    let table = mix(&[LECTURE, "--seconds", "1"]).stdout;
    assert!(String::from_utf8_lossy(&table).contains("mpeg2[1]"));
    let series = mix(&[LECTURE, "--seconds", "2", "--csv", "--seed", "3"]).stdout;
    // The heading, followed by one line per flow and second: 25 flows over two seconds.
    assert_eq!(String::from_utf8_lossy(&series).lines().count(), 1 + 2 * 25);
}

#[test]
fn a_plan_error_is_reported_with_file_and_line() {
    let folder = folder("mix-mistake");
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("plan.toml");
    std::fs::write(&path, "seconds = 1\nsed = 2\n").expect("a plan");
    let name = path.to_str().expect("a plain name");
    let output = mix(&[name]);
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("kiban: {name}: line 2: `sed` is unknown: did you mean 'seed'?\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
    let output = mix(&["/nowhere/plan.toml"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("docs/lab-mix.md"));
}
