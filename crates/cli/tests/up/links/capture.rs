//! Captures on a running board. Each ends at its limit or when its command exits, and its file is complete.

use crate::common::{ECHO, LONG, PORT, TestDir, connect, echo, enter, text};
use std::io::{BufRead, BufReader, Read, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStderr, Command, Stdio};

/// Starts a capture and waits until it is running.
fn begin(dir: &TestDir, arguments: &[&str]) -> (Child, BufReader<ChildStderr>) {
    let mut command = dir.command(&[&["capture"], arguments].concat());
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program was built");
    let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    said.read_line(&mut line).expect("it says something");
    assert!(line.starts_with("capturing port "), "{line}");
    (child, said)
}

/// Waits until the capture command exits; returns the rest of its output and whether it succeeded.
fn ended((mut child, mut said): (Child, BufReader<ChildStderr>)) -> (String, bool) {
    let mut told = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut told).expect("text");
    said.read_to_string(&mut told).expect("text");
    (told, child.wait().expect("it is a child of this process").success())
}

fn signal(name: &str, child: &Child) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill");
    assert!(status.success());
}

/// Returns the number of packets in a capture file, and how often a word occurs in it. The file must end with
/// a complete packet.
fn records(dir: &TestDir, name: &str, word: &[u8]) -> (usize, usize) {
    let bytes = std::fs::read(dir.0.join(name)).expect("it was written");
    let (file, _) = kiban_capture::FileHeader::read(&bytes).expect("a capture");
    assert_eq!(file.link_type, kiban_capture::LINK_TYPE_ETHERNET);
    let records: Result<Vec<_>, _> = file.records(&bytes).collect();
    let count = records.unwrap_or_else(|broken| panic!("{name} is not whole: {broken:?}")).len();
    (count, bytes.windows(word.len()).filter(|window| *window == word).count())
}

#[test]
fn a_timed_capture_ends_and_prints_its_packet_count() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("capture");
    let _board = dir.up(&format!("{PORT}{ECHO}"));
    let clock = kiban_os::Clock::new();
    let running = begin(&dir, &["lan", "lan.pcap", "--seconds", "500ms"]);
    let again = dir.kiban(&["capture", "lan", "other.pcap"]);
    assert!(text(&again).contains("port lan is already being captured into"), "{}", text(&again));
    let word = b"a rare word";
    echo(&mut connect("10.9.0.2:7"), word);
    let (told, is_well) = ended(running);
    assert!(is_well && clock.now().as_secs_f64() >= 0.5, "{told}");
    let mode = std::fs::metadata(dir.0.join("lan.pcap")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "traffic is for nobody else");
    // The word appears in one packet per direction.
    let (count, found) = records(&dir, "lan.pcap", word);
    assert_eq!(found, 2);
    assert!(
        told.starts_with(&format!("{count} packets on port lan captured into lan.pcap, ")),
        "{count}: {told}"
    );
    for (arguments, words) in [
        (&["wan", "other.pcap"][..], "no port wan; the ports are lan"),
        (&["lan", "lan.pcap"], "lan.pcap already exists: name another file"),
        (&["lan", "-"], "name a file"),
        (&["lan", "a.pcap", "--seconds", "0"], "must be more than 0 and at most 24 h"),
        (&["lan", "a.pcap", "--seconds", "25h"], "must be more than 0 and at most 24 h"),
        (&["lan", "a.pcap", "--seconds", "soon"], "write a time such as 10 (seconds), 500ms, 2s or 5m"),
        (&["lan", "a.pcap", "--packets", "0"], "--packets"),
    ] {
        let output = dir.kiban(&[&["capture"], arguments].concat());
        assert!(!output.status.success() && text(&output).contains(words), "{words}: {}", text(&output));
    }
    assert!(!dir.0.join("a.pcap").exists() && !dir.0.join("other.pcap").exists());
}

#[test]
fn a_capture_ends_after_the_requested_packets() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("capture-count");
    let _board = dir.up(&format!("{PORT}{ECHO}"));
    let running = begin(&dir, &["lan", "lan.pcap", "--packets", "5"]);
    let mut session = connect("10.9.0.2:7");
    // Two packets per word, after the packets of the handshakes.
    (0..5).for_each(|_| echo(&mut session, b"hello"));
    let (told, is_well) = ended(running);
    assert!(is_well && told.starts_with("5 packets on port lan"), "{told}");
    assert_eq!(records(&dir, "lan.pcap", b"hello").0, 5);
}

#[test]
fn a_capture_ends_when_its_command_is_interrupted_or_killed() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("capture-end");
    let mut board = dir.up(&format!("{PORT}{ECHO}"));
    let mut session = connect("10.9.0.2:7");
    for name in ["-INT", "-TERM"] {
        let file = format!("{name}.pcap");
        let running = begin(&dir, &["lan", &format!("./{file}")]);
        echo(&mut session, b"a rare word");
        signal(name, &running.0);
        let (told, is_well) = ended(running);
        let (count, found) = records(&dir, &file, b"a rare word");
        assert!(is_well && told.starts_with(&format!("{count} packets")), "{name}: {told}");
        assert_eq!(found, 2, "{name}");
    }
    let (mut child, _) = begin(&dir, &["lan", "killed.pcap"]);
    echo(&mut session, b"a rare word");
    child.kill().expect("it is a child of this process");
    child.wait().expect("it is a child of this process");
    let clock = kiban_os::Clock::new();
    while !dir.log().contains("killed.pcap\" packets=") {
        assert!(clock.now().as_secs_f64() < LONG.as_secs_f64(), "{}", dir.log());
        board.status();
    }
    assert_eq!(records(&dir, "killed.pcap", b"a rare word").1, 2);
    // When a board shuts down, its capture files are complete.
    let last = begin(&dir, &["lan", "last.pcap"]);
    echo(&mut session, b"a rare word");
    drop(session);
    board.until("the session has gone", |status| status["services"][0]["sessions"] == 0);
    assert!(dir.kiban(&["down", "lab"]).status.success());
    assert_eq!(board.wait(), Some(0));
    let (told, is_well) = ended(last);
    assert!(is_well && told.contains("packets on port lan captured into last.pcap"), "{told}");
    assert_eq!(records(&dir, "last.pcap", b"a rare word").1, 2);
}

#[test]
fn a_file_name_cannot_forge_log_lines() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("capture-name");
    let _board = dir.up(&format!("{PORT}{ECHO}"));
    let file = dir.0.join("a\nERROR forged\u{1b}[2J.pcap");
    // Send the request directly to the control socket, as any program run by this user can.
    let question = serde_json::json!({ "verb": "capture", "port": "lan", "file": file });
    let mut control = UnixStream::connect(dir.0.join("kiban/lab.sock")).expect("it listens");
    writeln!(control, "{question}").expect("the peer reads it");
    let mut answers = BufReader::new(control.try_clone().expect("a socket"));
    let mut line = String::new();
    answers.read_line(&mut line).expect("it answers");
    // A second capture on the same port is refused; the error names the file of the first one.
    let again = dir.kiban(&["capture", "lan", "other.pcap"]);
    assert!(text(&again).contains("a\\nERROR forged\\u{1b}[2J.pcap"), "{}", text(&again));
    control.shutdown(std::net::Shutdown::Write).expect("a socket");
    answers.read_line(&mut line).expect("it answers");
    assert!(line.contains("captured"), "{line}");
    let log = dir.log();
    assert!(log.lines().any(|line| line.contains("capture complete") && line.contains("forged")), "{log}");
    assert!(!log.contains("\nERROR forged") && !log.contains('\u{1b}'), "{log:?}");
}
