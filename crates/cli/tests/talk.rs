//! `kiban talk` as a user runs it.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn kiban(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiban"));
    command.args(arguments).current_dir(env!("CARGO_TARGET_TMPDIR")).output().expect("the program starts")
}

/// Writes a script for this test.
fn talk(name: &str, text: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("a file for the test");
    path.display().to_string()
}

const KEPT: &str = "# A story.\nestablished mss 1460\n0ms <- seq 1:11 ack 1\n+40ms -> ack 11\n";

#[test]
fn a_satisfied_script_passes() {
    let output = kiban(&["talk", &talk("kept.talk", KEPT)]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1 script: 1 passed, 0 skipped, 0 failed\n");
}

#[test]
fn a_violated_script_fails_with_the_line() {
    let file = talk("broken.talk", &KEPT.replace("ack 11", "ack 12"));
    let output = kiban(&["talk", &file]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(&format!("{file}:4: the acknowledgment differs")), "{text}");
    let beside = "  expected         actual\n  +40ms -> ack 12  40ms -> seq 1 ack 11 win 65525\n";
    assert!(text.contains(beside), "{text}");
}

#[test]
fn differences_have_colours_on_a_terminal_only() {
    let file = talk("colour.talk", &KEPT.replace("ack 11", "ack 12"));
    let command = format!("{} talk {file}", env!("CARGO_BIN_EXE_kiban"));
    for (no_color, expected) in [(None, true), (Some(""), true), (Some("1"), false)] {
        let mut terminal = Command::new("script");
        terminal.args(["-qec", &command, "/dev/null"]).stdin(Stdio::null()).env_remove("NO_COLOR");
        terminal.envs(no_color.map(|value| ("NO_COLOR", value)));
        let output = terminal.output().expect("util-linux is there");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let colours = text.contains("-> ack \x1b[32m12\x1b[0m") && text.contains("ack \x1b[31m11\x1b[0m");
        assert_eq!((colours, text.contains('\x1b')), (expected, expected), "{no_color:?}: {text}");
    }
    let piped = kiban(&["talk", &file]);
    assert!(!String::from_utf8_lossy(&piped.stdout).contains('\x1b'), "{piped:?}");
}

#[test]
fn a_syntax_error_fails_with_a_hint() {
    let output = kiban(&["talk", &talk("mistake.talk", "# A story.\nestablised mss 1460\n")]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("mistake.talk:2:1") && text.contains("did you mean `established`?"), "{text}");
}

#[test]
fn json_and_captures_contain_the_conversation() {
    let file = talk("json.talk", KEPT);
    let capture = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("json.pcap");
    let output = kiban(&["talk", "--json", "--pcap", capture.to_str().unwrap(), &file]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(value["talks"][0]["outcome"], "passed");
    assert_eq!(value["talks"][0]["story"], "A story.");
    let trace = value["talks"][0]["trace"].as_array().unwrap();
    assert!(trace.iter().any(|line| line.as_str().unwrap().contains("-> seq 1 ack 11")), "{trace:?}");
    // A pcap header for nanoseconds and link type 101 (raw IP), then five packets: the three of the
    // handshake, the data, and its acknowledgement.
    let bytes = std::fs::read(&capture).expect("the capture");
    assert_eq!((&bytes[..4], bytes[20]), (&[0x4d, 0x3c, 0xb2, 0xa1][..], 101));
    let (mut at, mut packets) = (24, 0);
    while at < bytes.len() {
        let kept = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
        assert_eq!((bytes[at + 16], bytes[at + 25]), (0x45, 6), "IPv4 and TCP");
        (at, packets) = (at + 16 + kept, packets + 1);
    }
    assert_eq!((at, packets), (bytes.len(), 5));
}

#[test]
fn the_trace_of_a_failed_script_is_a_valid_script() {
    let file = talk("failing.talk", &KEPT.replace("ack 11", "ack 12"));
    let output = kiban(&["talk", "--trace", &file]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("\n#   +40ms -> ack 12  40ms -> seq 1 ack 11 win 65525\n"), "{text}");
    // The trace ends at the failure. It contains the packet that arrived instead of the expected one, so it
    // passes when it is run as a script.
    let output = kiban(&["talk", &talk("again.talk", &text)]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn captures_of_several_scripts_need_a_directory() {
    let files = [talk("one.talk", KEPT), talk("two.talk", KEPT)];
    let there = talk("there.pcap", "not a folder");
    let output = kiban(&["talk", "--pcap", &there, &files[0], &files[1]]);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("there.pcap is a file") && told.contains("name a directory"), "{told}");
    assert_eq!(std::fs::read_to_string(&there).expect("it is still there"), "not a folder");
}

#[test]
fn without_the_source_tree_the_error_says_where_scripts_are() {
    let output = kiban(&["talk"]);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("source tree") && told.contains("name files"), "{told}");
}

/// Paths mentioned in help texts must exist in the source tree.
#[test]
fn paths_in_help_texts_exist() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut named = 0;
    for verb in [
        &[][..],
        &["tour"],
        &["talk"],
        &["reproduce"],
        &["reproduce", "atm-board"],
        &["reproduce", "wide-area-atm"],
        &["completions"],
        &["man"],
    ] {
        let output = kiban(&[verb, &["--help"]].concat());
        let text = String::from_utf8(output.stdout).expect("help is UTF-8");
        let paths = text.split(|c: char| c.is_whitespace() || "()[],;:".contains(c));
        for path in paths.filter(|word| ["talks/", "docs/", "crates/"].iter().any(|at| word.starts_with(at)))
        {
            assert!(root.join(path.trim_end_matches('.')).exists(), "{verb:?} names {path}");
            named += 1;
        }
    }
    assert!(named >= 3, "help texts name only {named} paths");
}
