//! Files that are fetched and then deleted at the peer: `get --then-delete`, and `collect`, whose client is
//! killed at every step.

use super::common::{Fate, Relay, TestDir, noise, remote, same};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};

const FILES: [(&str, usize); 3] = [("a.cdr", 10), ("b.cdr", 70_000), ("c.cdr", 0)];

/// Writes the files into the server's directory `calls`.
fn deliver(dir: &TestDir) {
    fs::create_dir_all(dir.at("root/calls")).expect("made");
    for (name, bytes) in FILES {
        fs::write(dir.at("root/calls").join(name), noise(bytes)).expect("written");
    }
}

fn left(dir: &TestDir) -> usize {
    fs::read_dir(dir.at("root/calls")).expect("there").count()
}

#[test]
fn get_then_delete_removes_files_whose_local_copies_are_safe() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    let there = |path: &str| remote(server.port, path);
    deliver(&dir);
    fs::create_dir(dir.at("in")).expect("made");
    fs::write(dir.at("in/c.cdr"), "mine").expect("written");
    let output = dir.try_run(&[
        "get",
        "--json",
        "--then-delete",
        "--min-age",
        "0",
        "-j",
        "2",
        &there("calls/*"),
        "in",
    ]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    for (name, bytes) in &FILES[..2] {
        same(&dir.at("in").join(name), &noise(*bytes));
        assert!(!dir.at("root/calls").join(name).exists(), "{name}");
    }
    // A file that was not fetched is not deleted.
    same(&dir.at("root/calls/c.cdr"), b"");
    same(&dir.at("in/c.cdr"), b"mine");
    dir.run(&[
        "get",
        "-q",
        "--then-delete",
        "--min-age",
        "0",
        "--overwrite",
        &there("calls/c.cdr"),
        "in/c.cdr",
    ]);
    same(&dir.at("in/c.cdr"), b"");
    assert_eq!(left(&dir), 0);
}

#[test]
fn collect_moves_each_file_once() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    deliver(&dir);
    fs::create_dir(dir.at("root/calls/sub")).expect("made");
    let calls = remote(server.port, "calls");
    let collect = ["collect", "--once", "-q", "--min-age", "0", &calls, "in"];
    dir.run(&collect);
    for (name, bytes) in FILES {
        same(&dir.at("in").join(name), &noise(bytes));
    }
    assert_eq!(left(&dir), 1, "the subdirectory");
    dir.run(&collect);
    // Another file with the same name waits until the first one is taken away.
    fs::write(dir.at("root/calls/a.cdr"), "second").expect("written");
    dir.fails(&collect, "stays in .kiban-collect until this one is moved");
    dir.fails(&collect, "stays in .kiban-collect until this one is moved");
    assert_eq!(left(&dir), 2, "it is not deleted before it is in the directory");
    same(&dir.at("in/a.cdr"), &noise(10));
    fs::remove_file(dir.at("in/a.cdr")).expect("removed");
    dir.run(&collect);
    same(&dir.at("in/a.cdr"), b"second");
    assert_eq!(left(&dir), 1);
    let pattern = remote(server.port, "calls/*.none");
    assert_eq!(
        dir.run(&["collect", "--min-age", "0", &pattern, "in"]),
        "",
        "nothing to collect is no failure"
    );
}

#[test]
fn peers_that_share_a_local_directory_fetch_no_file_twice() {
    let dir = TestDir::new();
    // A user who may read but not delete leaves files in the journal.
    dir.limit("[\"read\", \"read-attribute\"]");
    let server = dir.serve(&[], &[]);
    deliver(&dir);
    fs::create_dir(dir.at("root/other")).expect("made");
    let calls = format!("ftam://ann@127.0.0.1:{}/calls", server.port);
    let collect = ["collect", "-q", "--min-age", "0", &calls, "in"];
    dir.fails(&collect, "it was fetched, but not deleted");
    for (name, _) in FILES {
        fs::remove_file(dir.at("in").join(name)).expect("it was placed");
    }
    dir.run(&["collect", "-q", "--min-age", "0", &remote(server.port, "other"), "in"]);
    dir.fails(&collect, "it was fetched, but not deleted");
    let names = fs::read_dir(dir.at("in")).expect("there").map(|entry| entry.expect("listed").file_name());
    assert_eq!(names.collect::<Vec<_>>(), [".kiban-collect"], "nothing was fetched again");
    // Once they are gone at the peer, the journal forgets them.
    fs::remove_dir_all(dir.at("root/calls")).expect("removed");
    fs::create_dir(dir.at("root/calls")).expect("made");
    dir.run(&collect);
    dir.run(&collect);
    assert_eq!(fs::read(dir.at("in/.kiban-collect/journal")).expect("there"), b"");
}

#[test]
fn a_file_that_two_arguments_mean_is_collected_once() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    deliver(&dir);
    let there = |path: &str| remote(server.port, path);
    let report = dir.run(&[
        "collect",
        "--json",
        "--min-age",
        "0",
        "-j",
        "2",
        &there("calls"),
        &there("calls/*.cdr"),
        "in",
    ]);
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["transfers"].as_array().map(Vec::len), Some(FILES.len()), "{report}");
    assert_eq!(left(&dir), 0);
}

#[test]
fn names_with_quotes_and_backslashes_are_collected_and_matched() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    let name = "it's \"a\\b\".cdr";
    fs::create_dir(dir.at("root/calls")).expect("made");
    fs::write(dir.at("root/calls").join(name), "call").expect("written");
    dir.run(&["get", "-q", &remote(server.port, "calls/*.cdr"), "."]);
    same(&dir.at(name), b"call");
    dir.run(&["mirror", "-q", &remote(server.port, "calls"), "copy"]);
    same(&dir.at("copy").join(name), b"call");
    dir.run(&["collect", "-q", "--min-age", "0", &remote(server.port, "calls"), "in"]);
    same(&dir.at("in").join(name), b"call");
    assert_eq!(left(&dir), 0);
}

#[test]
fn a_resumed_get_does_not_delete_what_may_be_another_version() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    let contents = noise(12 << 20);
    fs::write(dir.at("root/big"), &contents).expect("written");
    let relay = Relay::new(server.port, vec![Fate::Cut { up: u64::MAX, down: 9 << 20 }]);
    let big = remote(relay.port, "big");
    dir.fails(&["get", "-q", "--retries", "0", &big, "big"], "use --resume to continue");
    let again = ["get", "-q", "--resume", "--then-delete", "--min-age", "0", &big, "big"];
    dir.fails(&again, "it was fetched, but not deleted: the transfer was resumed");
    same(&dir.at("big"), &contents);
    same(&dir.at("root/big"), &contents);
}

/// Returns the first line of standard error that contains these words.
fn line_of(child: &mut Child, words: &str) -> String {
    let mut lines = BufReader::new(child.stderr.as_mut().expect("piped")).lines().map_while(Result::ok);
    lines.find(|line| line.contains(words)).unwrap_or_else(|| panic!("no line says {words}"))
}

/// Equipment that pauses while it writes a file.
#[test]
fn a_file_that_grows_between_two_looks_stays_at_the_peer() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    deliver(&dir);
    // The second look cannot begin before the file has grown.
    let relay = Relay::new(server.port, vec![Fate::Pass, Fate::Hold { up: 0, down: u64::MAX }]);
    let calls = remote(relay.port, "calls");
    let collect = ["collect", "--json", "--min-age", "500ms", "--timeout", "600", &calls, "in"];
    let child = dir.command(&collect).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("built");
    relay.wait_held();
    let mut file = fs::File::options().append(true).open(dir.at("root/calls/a.cdr")).expect("there");
    file.write_all(b"a late record").expect("written");
    fs::write(dir.at("root/calls/new.cdr"), "new").expect("written");
    relay.go_on();
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "a file that is still written is no failure: {output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["transfers"].as_array().map(Vec::len), Some(2), "{report}");
    assert_eq!(report["left"], serde_json::json!([format!("{calls}/a.cdr"), format!("{calls}/new.cdr")]));
    assert_eq!(left(&dir), 2);
    assert!(!dir.at("in/a.cdr").exists(), "a file that is not complete is not delivered");
    same(&dir.at("in/b.cdr"), &noise(70_000));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("a.cdr: not seen unchanged for 1 s: left for a later run"), "{text}");
    // A later run takes them, whole.
    dir.run(&collect);
    same(&dir.at("in/a.cdr"), &[&noise(10)[..], b"a late record"].concat());
    same(&dir.at("in/new.cdr"), b"new");
    assert_eq!(left(&dir), 0);
}

#[test]
fn by_default_nothing_is_deleted_before_it_was_unchanged_for_a_minute() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    deliver(&dir);
    let calls = remote(server.port, "calls");
    let start = |words: &[&str]| dir.command(words).stderr(Stdio::piped()).spawn().expect("built");
    let mut child = start(&["collect", &calls, "in"]);
    line_of(&mut child, "files that may still be written: 3; waiting 60 s");
    assert_eq!(left(&dir), FILES.len());
    // The wait ends with a signal.
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .expect("it runs");
    assert!(child.wait().expect("ended").success());
    let mut child = start(&["get", "--then-delete", &remote(server.port, "calls/a.cdr"), "."]);
    line_of(&mut child, "a.cdr: fetched; it is deleted in");
    same(&dir.at("a.cdr"), &noise(10));
    child.kill().expect("it is a child of this process");
    child.wait().expect("ended");
    assert_eq!(left(&dir), FILES.len());
}

/// Counts steps by the system calls of the program: it is killed at its n-th call, for many n.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_killed_collection_neither_loses_nor_repeats_a_file() {
    use kiban_fault::{End, Plan, Traced, available};
    use std::collections::BTreeSet;
    if let Err(why) = available() {
        println!("skipped: {why}");
        return;
    }
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    let calls = remote(server.port, "calls");
    let collect = ["collect", "-q", "--min-age", "0", &calls, "in"];
    // Returns how the program ended, and how many system calls it made.
    let under = |plan: Plan| {
        let mut traced = Traced::spawn_armed(dir.command(&collect), plan).expect("traced");
        let end = traced.wait(std::time::Duration::from_secs(600)).expect("it ends");
        (end, traced.calls())
    };
    deliver(&dir);
    let (end, count) = under(Plan::Watch);
    assert!(end == End::Code(0) && count > 100, "{end:?} after {count} calls");
    let mut killed = 0;
    for call in (0..count).step_by((count / 80).max(1) as usize) {
        deliver(&dir);
        let mut taken = BTreeSet::new();
        let _ = fs::remove_dir_all(dir.at("in"));
        fs::create_dir(dir.at("in")).expect("made");
        let mut take = || {
            for (name, bytes) in FILES {
                let path = dir.at("in").join(name);
                if path.exists() {
                    same(&path, &noise(bytes));
                    fs::remove_file(&path).expect("removed");
                    assert!(taken.insert(name), "{name} came twice, after a kill at call {call}");
                }
            }
        };
        killed += usize::from(matches!(under(Plan::Kill { call }).0, End::Signal(_)));
        take();
        dir.run(&collect);
        take();
        assert_eq!(taken.len(), FILES.len(), "after a kill at call {call}");
        assert_eq!(left(&dir), 0, "after a kill at call {call}");
    }
    // The number of calls varies, so a run may end before its last call.
    assert!(killed > 40, "{killed} runs were killed");
}
