//! `kiban tour` as a user runs it.

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

fn kiban(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kiban")).args(arguments).output().expect("the program starts")
}

/// Creates an empty directory for this test.
fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a folder for the test");
    path
}

fn rows(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    value["rows"].as_array().expect("an object with rows").clone()
}

#[test]
fn a_given_file_is_transferred_intact_in_both_directions() {
    let file = folder("own").join("file");
    std::fs::write(&file, b"a small file\n".repeat(10_000)).unwrap();
    let output = kiban(&["tour", "--json", file.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let rows = rows(&output);
    let boards: Vec<&str> = rows.iter().filter_map(|row| row["board"].as_str()).collect();
    assert_eq!(boards[..5], ["atm", "atm", "atm", "atm", "vi"]);
    assert_eq!(boards[5..13], ["rdma"; 8]);
    assert_eq!(boards[13..], ["osi"; 3]);
    for row in &rows {
        assert_eq!(row["sha256_equal"], true);
        assert_eq!(row["bytes"], 130_000);
        // In real time there is no percentage if the row was faster than what limits it.
        let percent = row["limit_percent"].as_f64();
        assert!(percent.map_or(row["clock"] == "real", |percent| percent <= 100.0), "{row}");
        for range in ["mbps_range", "limit_mbps_range"] {
            assert_eq!(row[range].is_array(), row["clock"] == "real", "{row}");
        }
    }
    // Check the hash with sha256sum.
    let expected = Command::new("sha256sum").arg(&file).output().expect("sha256sum is part of every Debian");
    let expected = String::from_utf8_lossy(&expected.stdout);
    assert_eq!(rows[0]["sha256"], expected.split(' ').next().unwrap());
}

#[test]
fn the_table_is_readable() {
    let output = kiban(&["tour", "--quiet"]);
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.matches("equal").count(), 16, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert_eq!(text.matches(" Mbit/s in 3 transfers; ").count(), 3, "{text}");
    assert!(output.stderr.is_empty());
}

#[test]
fn an_empty_file_works_and_has_no_rate() {
    let file = folder("empty").join("empty");
    std::fs::write(&file, b"").unwrap();
    let rows = rows(&kiban(&["tour", "--json", file.to_str().unwrap()]));
    assert!(rows.iter().all(|row| row["sha256_equal"] == true && row["mbps"].is_null()));
}

#[test]
fn a_file_that_cannot_be_read_is_a_clear_error() {
    for (path, word) in [("/nonexistent/file", "No such file"), ("/", "directory")] {
        let output = kiban(&["tour", path]);
        assert!(!output.status.success());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(path) && text.contains(word), "{text}");
        assert!(output.stdout.is_empty());
    }
}

/// Runs tshark on a capture, with options for AAL5; returns the lines that it prints.
fn tshark(capture: &std::path::Path, arguments: &[&str]) -> Vec<String> {
    let output = Command::new("tshark")
        .args(["-o", "erf.aal5_type:llc multiplexed", "-r"])
        .arg(capture)
        .args(arguments)
        .output()
        .expect("tshark reads the captures: apt-get install tshark, or run make test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn wireshark_finds_correct_checksums_and_nothing_malformed() {
    let folder = folder("pcap");
    let file = folder.join("file");
    std::fs::write(&file, (0..400_000u32).map(|n| (n * 7 / 3) as u8).collect::<Vec<_>>()).unwrap();
    let captures = folder.join("captures");
    let output = kiban(&["tour", "--json", "--pcap", captures.to_str().unwrap(), file.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let mut captured: Vec<_> =
        std::fs::read_dir(&captures).unwrap().map(|entry| entry.unwrap().path()).collect();
    captured.sort();
    assert_eq!(captured.len(), 8, "a capture for each board in each of four transfers: {captured:?}");
    let mut payload = 0;
    for capture in &captured {
        let frames = tshark(capture, &["-T", "fields", "-e", "frame.number"]).len();
        assert!(frames > 10, "{capture:?}");
        let verdicts = tshark(capture, &["-V"]);
        let count = |what: &str| verdicts.iter().filter(|line| line.contains(what)).count();
        assert_eq!(count("AAL5 CRC: 0x"), frames, "a checksum for each frame in {capture:?}");
        assert_eq!(count("(correct)"), frames, "all AAL5 checksums of {capture:?}");
        assert_eq!(count("(incorrect"), 0);
        let bad = tshark(
            capture,
            &[
                "-o",
                "ip.check_checksum:TRUE",
                "-o",
                "tcp.check_checksum:TRUE",
                "-Y",
                "_ws.malformed || ip.checksum.status == 0 || tcp.checksum.status == 0 || tcp.analysis.retransmission",
            ],
        );
        assert!(bad.is_empty(), "{capture:?}: {bad:?}");
        let lengths = tshark(capture, &["-T", "fields", "-e", "tcp.len"]);
        payload +=
            lengths.iter().map(|length| length.parse::<usize>().expect("every frame is TCP")).sum::<usize>();
    }
    assert_eq!(payload, 4 * 400_000, "tshark sees every byte of four transfers");
}

#[test]
fn captures_end_at_a_size_and_a_note_has_the_directory_and_the_size() {
    let folder = folder("limited");
    let file = folder.join("file");
    std::fs::write(&file, vec![7; 400_000]).unwrap();
    let captures = folder.join("captures");
    let to = captures.to_str().unwrap();
    let output = kiban(&["tour", "--quiet", "--pcap", to, "--pcap-max", "50000", file.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{output:?}");
    let (mut full, mut total) = (0, 0);
    for capture in std::fs::read_dir(&captures).unwrap() {
        let bytes = std::fs::read(capture.unwrap().path()).unwrap();
        let (header, _) = kiban_capture::FileHeader::read(&bytes).expect("a capture");
        assert!(header.records(&bytes).all(|record| record.is_ok()), "no record is cut");
        assert!(bytes.len() <= 50_000, "{} bytes", bytes.len());
        full += usize::from(bytes.len() > 40_000);
        total += bytes.len();
    }
    assert!(full >= 4, "{full} captures were limited");
    let total = format!("{:.2} KiB", total as f64 / 1024.0);
    let expected = format!(
        "captures of the first 4 rows: {to}: {total} in 8 files, {full} of them cut at 50000 bytes\n"
    );
    assert_eq!(told, expected);
}

#[test]
fn a_capture_that_cannot_be_written_is_an_error_with_its_name() {
    let folder = folder("full");
    let file = folder.join("file");
    std::fs::write(&file, b"ten bytes\n").unwrap();
    let capture = "atm-1-sessions-0-to-1-at-board-0.pcap";
    std::os::unix::fs::symlink("/dev/full", folder.join(capture)).unwrap();
    let output = kiban(&["tour", "--pcap", folder.to_str().unwrap(), file.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains(capture), "{text}");
}

#[test]
fn a_file_with_contents_but_size_zero_is_read() {
    let output = kiban(&["tour", "--json", "/proc/self/status"]);
    assert!(rows(&output).iter().all(|row| row["bytes"].as_u64() > Some(100)), "{output:?}");
}

#[test]
fn completions_and_manual_pages_are_generated() {
    for shell in ["bash", "zsh", "fish"] {
        let script = kiban(&["completions", shell]);
        assert!(String::from_utf8_lossy(&script.stdout).contains("tour"), "{shell}");
    }
    let folder = folder("man");
    assert!(kiban(&["man", folder.to_str().unwrap()]).status.success());
    let page = std::fs::read_to_string(folder.join("kiban-tour.1")).unwrap();
    assert!(page.contains("sixty"), "{page}");
    for section in ["EXAMPLES", "EXIT STATUS", "SEE ALSO"] {
        assert!(page.contains(&format!(".SH {section}\n")), "{section}: {page}");
    }
    assert!(page.contains("\"kiban ") && page.contains("[\\-\\-pcap DIR]"), "{page}");
    let page = std::fs::read_to_string(folder.join("kiban-verbs.1")).unwrap();
    let variables =
        page.split(".SH ENVIRONMENT\n.nf\n").nth(1).expect(&page).split(".SH ").next().unwrap_or_default();
    for variable in ["KIBAN_TRANSPORT", "KIBAN_SHARED_MEMORY", "KIBAN_VERBS_LIB"] {
        assert!(variables.contains(variable), "{variable}: {page}");
    }
}
