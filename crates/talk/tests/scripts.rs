//! Runs every script under `talks`; all must pass.

use std::path::Path;

#[test]
fn every_script_passes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../talks");
    let files = kiban_talk::find(&[folder.canonicalize().expect("the folder talks")]).expect("scripts");
    let mut failures = Vec::new();
    let mut run = 0;
    for file in &files {
        match kiban_talk::load(file) {
            Ok(talk) => {
                assert!(!talk.head.is_empty(), "{}: the script has no comment at its top", talk.file);
                let report = kiban_talk::run(&talk);
                run += usize::from(report.waits_for.is_none());
                failures.extend(report.failures.iter().map(ToString::to_string));
            }
            Err(error) => failures.push(error),
        }
    }
    assert!(failures.is_empty(), "{} of {run} scripts failed\n\n{}", failures.len(), failures.join("\n\n"));
    assert!(run > 200, "only {run} scripts were run");
}

/// The index must have the right number of scripts for each topic.
#[test]
fn the_index_counts_the_scripts_of_every_topic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../talks");
    let index = std::fs::read_to_string(folder.join("README.md")).expect("the index");
    let mut all = 0;
    for entry in std::fs::read_dir(&folder).expect("the folder talks") {
        let path = entry.expect("an entry").path();
        let Some(topic) = path.file_name().and_then(|name| name.to_str()).filter(|_| path.is_dir()) else {
            continue;
        };
        let scripts = kiban_talk::find(std::slice::from_ref(&path)).expect("scripts").len();
        let row = format!("| [{topic}]({topic}) | {scripts} | ");
        assert!(index.contains(&row), "talks/README.md has no row `{row}`");
        all += scripts;
    }
    assert_eq!(index.matches("\n| [").count(), index.matches("](").count() - 1, "rows and links");
    assert!(
        index.contains(&format!("\n{all} timelines")),
        "talks/README.md does not say that there are {all}"
    );
    assert!(all >= 200, "only {all} scripts");
}

/// Checks that a script fails if any one of its expected events is removed.
#[test]
fn a_script_without_one_of_its_expectations_fails() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../talks");
    let mut left_out = 0;
    for file in kiban_talk::find(&[folder]).expect("scripts") {
        let text = std::fs::read_to_string(&file).expect("a script");
        let lines: Vec<&str> = text.lines().collect();
        for at in 0..lines.len() {
            let expects = lines[at].contains("-> ") || lines[at].contains("told ");
            if !expects || lines[at].trim_start().starts_with('#') || text.contains("waits-for") {
                continue;
            }
            let mut others = lines.clone();
            // Keep the time of the removed event.
            let when = lines[at].split_whitespace().next().filter(|word| word.starts_with(['+', '0']));
            let silence = format!("{} silence", when.unwrap_or_default());
            others[at] = &silence;
            let talk = kiban_talk::Talk::read("t", &others.join("\n"), &|_| None).expect("a script");
            let failures = kiban_talk::run(&talk).failures;
            assert!(!failures.is_empty(), "{} passes without line {}", file.display(), at + 1);
            left_out += 1;
        }
    }
    assert!(left_out > 100, "only {left_out} lines were left out");
}

/// Checks that every number in a script is compared.
#[test]
fn a_failure_shows_the_expected_and_the_actual_event() {
    let begin = "established mss 1460\n0ms <- seq 1:1461 ack 1\n";
    for (lines, line, message, came) in [
        ("+40ms -> ack 1460", 3, "the acknowledgment differs", "40ms -> seq 1 ack 1461 win 65535"),
        ("+40ms -> ack 1461 win 1", 3, "the window differs", "40ms -> seq 1 ack 1461 win 65535"),
        ("+40ms -> seq 2 ack 1461", 3, "the sequence number differs", "40ms -> seq 1 ack 1461 win 65535"),
        (
            "+40ms -> FIN ack 1461",
            3,
            "the flags differ: FIN ACK expected, ACK received",
            "40ms -> seq 1 ack 1461 win 65535",
        ),
        ("+40ms -> seq 1:2 ack 1461", 3, "the length differs", "40ms -> seq 1 ack 1461 win 65535"),
        ("+40ms -> ack 1461 sack 1:2", 3, "the SACK blocks differ", "40ms -> seq 1 ack 1461 win 65535"),
        ("+40ms b: -> ack 1461", 3, "the packet belongs to ``", "40ms -> seq 1 ack 1461 win 65535"),
        ("+39ms -> ack 1461", 3, "no packet by 39ms", ""),
        ("+41ms -> ack 1461", 3, "the packet is too early", "40ms -> seq 1 ack 1461 win 65535"),
        ("within 10ms..30ms -> ack 1461", 3, "no packet by 30ms", ""),
        ("+1s silence", 3, "unexpected packet", "40ms -> seq 1 ack 1461 win 65535"),
        ("+1s told opened", 3, "no completion by 1s", ""),
        ("info outstanding 7", 3, "the session's outstanding differs", "outstanding 0"),
        ("got 7", 3, "the host has read 1460 bytes", ""),
        ("counter tcp.nonsense 0", 3, "there is no counter tcp.nonsense", ""),
        ("write 5 refused no room", 3, "the call did not fail", ""),
        ("set tcp.nagle off", 3, "settings must come before the first event", ""),
    ] {
        let text = format!("{begin}{lines}");
        let talk = kiban_talk::Talk::read("t", &text, &|_| None).expect("a script");
        let failures = kiban_talk::run(&talk).failures;
        let failure = failures.first().unwrap_or_else(|| panic!("{lines} passed"));
        assert_eq!(
            (failure.line, failure.message.as_str(), failure.came.as_str()),
            (line, message, came),
            "{lines}"
        );
    }
}

/// After a mistake, the script goes on, so that one run shows all of them.
#[test]
fn all_mistakes_of_a_script_are_reported() {
    let text = "established mss 1460\n0ms <- seq 1:1461 ack 1\n+40ms -> ack 1460\ninfo outstanding 7\n\
                <- seq 1461:2921 ack 1\n+1s write 10\n-> seq 1:11 ack 2920\n+1ms <- ack 11\n+1s silence";
    let talk = kiban_talk::Talk::read("t", text, &|_| None).expect("a script");
    let failures = kiban_talk::run(&talk).failures;
    let told: Vec<_> = failures.iter().map(|failure| (failure.line, failure.message.as_str())).collect();
    let expected = [
        (3, "the acknowledgment differs"),
        (4, "the session's outstanding differs"),
        (6, "unexpected packet"),
        (7, "the acknowledgment differs"),
    ];
    assert_eq!(told, expected, "{failures:#?}");
    let coloured = failures[0].coloured();
    assert!(coloured.contains("-> ack \x1b[32m1460\x1b[0m"), "{coloured}");
    assert!(coloured.contains("ack \x1b[31m1461\x1b[0m"), "{coloured}");
    let beside = "\n  expected           actual\n  +40ms -> ack 1460  40ms -> seq 1 ack 1461 win 65535\n";
    assert!(failures[0].to_string().contains(beside), "{}", failures[0]);
    let wide = kiban_talk::Failure { expected: "-> ".repeat(30), ..failures[0].clone() }.to_string();
    assert!(wide.contains("\n  expected  -> -> ") && wide.contains("\n  actual    40ms -> "), "{wide}");
    assert!(failures[0].to_string().contains("the conversation so far"));
    assert!(!failures[3].to_string().contains("the conversation so far"));
}

/// Syntax errors are found before anything runs, and all of them are reported.
#[test]
fn all_syntax_errors_of_a_script_are_reported() {
    let text = "established mss 1460\n0ms <- sec 1:1461 ack 1\n& FIN ack 1\n+40ms -> ack 1461\ntolt opened";
    let errors = kiban_talk::Talk::read_all("t", text, &|_| None).expect_err("two lines are wrong");
    let lines: Vec<usize> = errors.iter().map(|error| error.line).collect();
    // Line 3 continues the wrong line 2, and is correct itself.
    assert_eq!(lines, [2, 5], "{errors:#?}");
    let first = kiban_talk::Talk::read("t", text, &|_| None).expect_err("two lines are wrong");
    assert_eq!(first, errors[0]);
}

/// `close` gives up the stream, so nothing tells the host of its end.
#[test]
fn a_close_is_followed_by_no_completion() {
    let text = "established mss 1460\n0ms <- FIN seq 1 ack 1\ntold finished\n-> ack 2\nCALL\n-> FIN seq 1 ack 2\n\
                +10ms <- seq 2 ack 2\nEND";
    let failures = |call: &str, end: &str| {
        let text = text.replace("CALL", call).replace("END", end);
        kiban_talk::run(&kiban_talk::Talk::read("t", &text, &|_| None).expect("a script")).failures
    };
    assert_eq!(failures("finish", "told ended closed\nsessions 0"), []);
    assert_eq!(failures("close", "sessions 0"), []);
    let told = failures("close", "told ended closed");
    assert!(told[0].message.contains("use `finish`, or check `sessions 0`"), "{told:?}");
}

/// For an unknown setting or profile, the error must list the known ones.
#[test]
fn an_unknown_name_is_reported_with_the_known_ones() {
    for (line, message) in [
        ("profile bsd", "unknown profile `bsd`: known are modern, bsd43, solaris23"),
        ("set tcp.rtomin 1s", "unknown setting `tcp.rtomin`: did you mean `tcp.rto_min`?"),
        ("set ip.mtuu 1500", "unknown setting `ip.mtuu`: did you mean `ip.mtu`?"),
        ("set colour red", "and those in docs/tcp.md"),
        ("set tcp.nagle of", "nagle cannot be of: write off or on or minshall or limit"),
    ] {
        let talk = kiban_talk::Talk::read("t", line, &|_| None).expect("a script");
        let failures = kiban_talk::run(&talk).failures;
        let failure = failures.first().unwrap_or_else(|| panic!("{line} passed"));
        assert!(failure.message.ends_with(message), "{line}: {}", failure.message);
    }
}

/// The trace of a run is itself a script, and must pass when it is run.
#[test]
fn a_trace_can_be_run_again() {
    let text = "0ms listen 80\n<- SYN seq 0 win 65535 mss 1000\n-> SYN seq 0 ack 1\n+5ms <- ack 1\n\
                told accepted\nwrite 3000\n-> seq 1:3001 by 1000 ack 1\n+9ms <- seq 1:101 ack 3001\n+40ms -> ack 101";
    let read = |text: &str| kiban_talk::Talk::read("t", text, &|_| None).expect("a script");
    let report = kiban_talk::run(&read(text));
    assert_eq!(report.failures, []);
    assert!(report.trace.lines().count() > 9, "{}", report.trace);
    let again = kiban_talk::run(&read(&report.trace));
    assert_eq!(again.failures, [], "{}", report.trace);
    assert_eq!(again.trace, report.trace);
    assert_eq!(again.capture, report.capture);
}

/// The trace of every script must pass when it is run.
#[test]
fn every_trace_can_be_run_again() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../talks");
    let mut failures = Vec::new();
    let files = kiban_talk::find(&[folder]).expect("scripts");
    for file in &files {
        let report = kiban_talk::run(&kiban_talk::load(file).expect("a script"));
        let again =
            kiban_talk::Talk::read("trace", &report.trace, &|_| None).map(|talk| kiban_talk::run(&talk));
        match again {
            Err(error) => failures.push(format!("{}: {error}", file.display())),
            Ok(again) => {
                let told = |failure: &kiban_talk::Failure| format!("{}: {failure}", file.display());
                failures.extend(again.failures.iter().map(told));
            }
        }
    }
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), files.len(), failures.join("\n\n"));
}
