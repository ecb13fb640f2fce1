//! The comforts of the client: a hosts file, wildcards, standard input and output, dates, parallel transfers
//! and `mirror`.

use super::common::{Fate, Relay, TestDir, noise, remote, said, same};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

/// Writes a hosts file that names this port `here`.
fn hosts(dir: &TestDir, port: u16, more: &str) {
    let text = format!("[hosts.here]\naddress = \"127.0.0.1:{port}\"\nuser = \"eve\"\n{more}");
    fs::write(dir.at("hosts.toml"), text).expect("written");
    fs::set_permissions(dir.at("hosts.toml"), fs::Permissions::from_mode(0o600)).expect("ours");
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("listed").file_name();
    let listed =
        fs::read_dir(folder).expect("a folder").map(|entry| name(entry).into_string().expect("text"));
    // A server keeps its state beside the files.
    let mut names: Vec<String> = listed.filter(|name| name != ".kiban-ftam").collect();
    names.sort();
    names
}

fn set_modified(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    File::options().write(true).open(path).and_then(|file| file.set_modified(time)).expect("ours");
}

#[test]
fn a_name_of_the_hosts_file_stands_for_address_user_and_password() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    fs::write(dir.at("root/note"), "a note").expect("written");
    hosts(&dir, server.port, "password-command = \"echo secret; echo second line\"\ntsel = \"0x0103\"\n");
    let run = |arguments: &[&str]| {
        let mut command = dir.command(arguments);
        command
            .env_remove("KIBAN_FTAM_PASSWORD")
            .args(["--hosts", "hosts.toml"])
            .output()
            .expect("it was built")
    };
    let listed = run(&["ls", "--json", "here:"]);
    assert!(listed.status.success(), "{listed:?}");
    assert_eq!(json(&String::from_utf8_lossy(&listed.stdout))["entries"][0]["name"], "note");
    assert!(run(&["get", "-q", "here:note", "."]).status.success());
    same(&dir.at("note"), b"a note");
    said(run(&["ls", "there:"]), "unknown host 'there': hosts.toml has here");
    let shown = run(&["hosts", "--json"]);
    let shown = json(&String::from_utf8_lossy(&shown.stdout));
    assert_eq!(shown["hosts"][0]["address"], format!("127.0.0.1:{}", server.port));
    let offered = run(&["hosts", "--names"]);
    assert_eq!(String::from_utf8_lossy(&offered.stdout), "here:\n");
    // The file may contain commands, so nobody else may write it; errors name the line.
    hosts(&dir, server.port, "tsell = \"1\"\n");
    said(run(&["ls", "here:"]), "hosts.toml:4: ");
    fs::set_permissions(dir.at("hosts.toml"), fs::Permissions::from_mode(0o666)).expect("ours");
    said(run(&["ls", "here:"]), "is writable by group or others (mode 666), who could make you run commands");
    // The variable takes precedence over the entry.
    fs::write(dir.at("wrong"), "wrong\n").expect("written");
    hosts(&dir, server.port, "password-file = \"wrong\"\n");
    dir.run(&["ls", "--hosts", "hosts.toml", "here:"]);
    hosts(&dir, server.port, "password-command = \"exit 3\"\n");
    said(run(&["ls", "here:"]), "password command 'exit 3' failed");
}

#[test]
fn wildcards_choose_files_on_both_sides() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    let there = |path: &str| remote(server.port, path);
    for name in ["a.cdr", "b.cdr", "c.txt", "*.odd"] {
        fs::write(dir.at(name), name).expect("written");
    }
    dir.run(&["mkdir", &there("calls")]);
    dir.run(&["put", "-q", "*.cdr", "c.txt", &there("calls/")]);
    dir.fails(&["put", "-q", "*.none", &there("calls/")], "*.none: no file matches");
    assert_eq!(names(&dir.at("root/calls")), ["a.cdr", "b.cdr", "c.txt"]);
    fs::create_dir(dir.at("root/calls/d.cdr")).expect("made");
    fs::create_dir(dir.at("got")).expect("made");
    dir.run(&["get", "-q", &there("c*/*.cdr"), "got"]);
    assert_eq!(names(&dir.at("got")), ["a.cdr", "b.cdr"], "directories are left out");
    let listed = json(&dir.run(&["ls", "--json", &there("calls/[bc].*")]));
    let listed: Vec<_> = listed["entries"].as_array().expect("entries").iter().map(|e| &e["name"]).collect();
    assert_eq!(listed, ["calls/b.cdr", "calls/c.txt"]);
    dir.fails(&["get", &there("calls/*.none"), "got"], "no file matches");
    // A name with wildcards that exists is not expanded; in a remote name, they are encoded.
    dir.run(&["put", "-q", "*.odd", &there("")]);
    dir.run(&["get", "-q", &there("%2A.odd"), "odd"]);
    same(&dir.at("odd"), b"*.odd");
    let removed = json(&dir.run(&["rm", "--json", &there("calls/*.txt"), &there("calls/a*")]));
    assert_eq!(removed["actions"].as_array().map(Vec::len), Some(2), "{removed}");
    assert_eq!(names(&dir.at("root/calls")), ["b.cdr", "d.cdr"]);
}

#[test]
fn a_get_replaces_no_local_file_unless_told_and_keeps_the_date() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    let there = |path: &str| remote(server.port, path);
    for name in ["one", "two"] {
        fs::write(dir.at("root").join(name), name).expect("written");
        set_modified(&dir.at("root").join(name), 1_700_000_000);
    }
    fs::write(dir.at("one"), "mine").expect("written");
    dir.fails(&["get", "-q", &there("one"), "."], "one: exists; use --overwrite or --skip-existing");
    same(&dir.at("one"), b"mine");
    let skipped = json(&dir.run(&["get", "--json", "--skip-existing", &there("one"), &there("two"), "."]));
    assert_eq!(skipped["skipped"][0], "./one", "{skipped}");
    same(&dir.at("one"), b"mine");
    same(&dir.at("two"), b"two");
    dir.run(&["get", "-q", "--overwrite", &there("one"), "."]);
    same(&dir.at("one"), b"one");
    // Both from a file's own attributes and from a listing.
    dir.run(&["get", "-q", "-r", &there(""), "all"]);
    for path in ["one", "two", "all/one"] {
        assert_eq!(dir.at(path).metadata().expect("there").mtime(), 1_700_000_000, "{path}");
    }
    fs::create_dir(dir.at("root/d")).expect("made");
    fs::write(dir.at("root/d/one"), "other").expect("written");
    fs::create_dir(dir.at("into")).expect("made");
    let same_name = ["get", "-q", "--overwrite", &there("one"), &there("d/one"), "into"];
    dir.fails(&same_name, "another file of this command has the same local name");
    same(&dir.at("into/one"), b"one");
}

#[test]
fn a_dash_is_standard_input_and_output() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    let there = |path: &str| remote(server.port, path);
    let contents = noise(300_000);
    let put = |verb: &str, contents: &[u8]| {
        let mut command = dir.command(&[verb, "-q", "-", &there("piped")]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it was built");
        child.stdin.take().expect("piped").write_all(contents).expect("read");
        let output = child.wait_with_output().expect("ended");
        assert!(output.status.success(), "{output:?}");
    };
    put("put", &contents);
    same(&dir.at("root/piped"), &contents);
    put("append", b"more");
    let output = dir.try_run(&["get", &there("piped"), "-"]);
    assert!(output.status.success() && output.stdout == [&contents[..], b"more"].concat());
    dir.fails(&["put", "-", &there("")], "standard input needs a remote file name");
    dir.fails(&["get", "--then-delete", &there("piped"), "-"], "cannot be combined");
    dir.fails(&["get", "--json", &there("piped"), "-"], "--json");
}

#[test]
fn parallel_associations_transfer_every_file_once() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    fs::create_dir(dir.at("many")).expect("made");
    for number in 0..100 {
        fs::write(dir.at("many").join(format!("{number:03}")), format!("line {number}\n")).expect("written");
    }
    let put = json(&dir.run(&["put", "--json", "-r", "-j", "4", "many", &remote(server.port, "many")]));
    assert_eq!(put["transfers"].as_array().map(Vec::len), Some(100));
    let got = json(&dir.run(&["get", "--json", "-j", "4", &remote(server.port, "many/*"), "."]));
    assert_eq!(got["transfers"].as_array().map(Vec::len), Some(100));
    for number in [0, 50, 99] {
        same(&dir.at(&format!("{number:03}")), format!("line {number}\n").as_bytes());
    }
    // One association for the directory, four for the files, and for each command.
    let ended = |line: &&Value| line["fields"]["message"] == "ended";
    server.log.wait_count("ended", 9);
    let lines = server.log.lines();
    let busy =
        lines.iter().filter(ended).filter(|line| line["fields"]["transfers"].as_u64() > Some(0)).count();
    assert_eq!(busy, 8, "{lines:#?}");
}

#[test]
fn a_transfer_without_recovery_is_repeated_from_its_beginning() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    let contents = noise(3_000_000);
    fs::write(dir.at("here"), &contents).expect("written");
    let lost = |fate| Relay::new(server.port, vec![fate]);
    let cut = || lost(Fate::Cut { up: 1_000_000, down: u64::MAX });
    let plain = ["-q", "--no-recovery", "--json"];
    dir.fails(&[&["put", "--retries", "0"], &plain[..], &["here", &remote(cut().port, "x")]].concat(), "x: ");
    assert!(!dir.at("root/x").exists());
    let put = dir.run(&[&["put"], &plain[..], &["here", &remote(cut().port, "there")]].concat());
    assert!(put.contains("\"resumed\":false"), "{put}");
    same(&dir.at("root/there"), &contents);
    let relay = lost(Fate::Cut { up: u64::MAX, down: 1_000_000 });
    dir.run(&[&["get"], &plain[..], &[&remote(relay.port, "there"), "back"]].concat());
    same(&dir.at("back"), &contents);
    // Nobody knows how much of an append was carried out.
    let there = remote(cut().port, "there");
    let append = [&["append"], &plain[..], &["here", &there]].concat();
    assert_eq!(dir.try_run(&append).status.code(), Some(1));
    same(&dir.at("root/there"), &contents);
}

#[test]
fn mirror_transfers_what_is_missing_or_newer_in_both_directions() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    let there = remote(server.port, "calls");
    for folder in ["calls", "calls/old", "calls/sub"] {
        fs::create_dir(dir.at(folder)).expect("made");
    }
    for name in ["calls/a.cdr", "calls/sub/b.cdr", "calls/note.txt", "calls/old/c.cdr"] {
        fs::write(dir.at(name), name).expect("written");
        set_modified(&dir.at(name), 1_700_000_000);
    }
    let up = ["mirror", "--json", "--include", "*.cdr", "--exclude", "old"];
    let plan = json(&dir.run(&[&up[..], &["--dry-run", "calls", &there]].concat()));
    let planned: Vec<_> =
        plan["actions"].as_array().expect("actions").iter().map(|act| &act["action"]).collect();
    assert_eq!(planned, ["mkdir", "put", "put"], "{plan}");
    assert!(!dir.at("root/calls").exists());
    let count = |report: &str| json(report)["transfers"].as_array().map_or(0, Vec::len);
    assert_eq!(count(&dir.run(&[&up[..], &["calls", &there]].concat())), 2);
    assert_eq!(names(&dir.at("root/calls")), ["a.cdr", "sub"]);
    assert_eq!(count(&dir.run(&[&up[..], &["calls", &there]].concat())), 0, "nothing has changed");
    fs::write(dir.at("calls/a.cdr"), "longer than before").expect("written");
    set_modified(&dir.at("calls/a.cdr"), 1_700_000_000);
    assert_eq!(count(&dir.run(&[&up[..], &["calls", &there]].concat())), 1, "another size");
    // Down, with deletion; excluded files stay.
    fs::write(dir.at("root/calls/new"), "new").expect("written");
    set_modified(&dir.at("root/calls/new"), 1_600_000_000);
    let down = ["mirror", "--json", "-j", "2", "--exclude", "old"];
    assert_eq!(count(&dir.run(&[&down[..], &[&there, "copy"]].concat())), 3);
    same(&dir.at("copy/sub/b.cdr"), b"calls/sub/b.cdr");
    assert_eq!(dir.at("copy/new").metadata().expect("there").mtime(), 1_600_000_000);
    assert_eq!(count(&dir.run(&[&down[..], &[&there, "copy"]].concat())), 0);
    fs::create_dir_all(dir.at("copy/old")).expect("made");
    fs::create_dir_all(dir.at("copy/gone/deep")).expect("made");
    for name in ["copy/old/kept", "copy/gone/deep/file", "copy/stale"] {
        fs::write(dir.at(name), name).expect("written");
    }
    fs::write(dir.at("root/calls/sub/b.cdr"), "newer").expect("written");
    let report = dir.run(&[&down[..], &["--delete", &there, "copy"]].concat());
    assert_eq!(count(&report), 1, "{report}");
    assert_eq!(names(&dir.at("copy")), ["a.cdr", "new", "old", "sub"]);
    same(&dir.at("copy/old/kept"), b"copy/old/kept");
    same(&dir.at("copy/sub/b.cdr"), b"newer");
    // A source that cannot be listed deletes nothing.
    let missing = remote(server.port, "nothing");
    assert_eq!(dir.try_run(&["mirror", "--delete", &missing, "copy"]).status.code(), Some(1));
    assert_eq!(names(&dir.at("copy")), ["a.cdr", "new", "old", "sub"]);
    // Deletion at the peer.
    fs::remove_dir_all(dir.at("calls/sub")).expect("removed");
    dir.run(&["mirror", "-q", "--delete", "--exclude", "old", "calls", &there]);
    assert_eq!(names(&dir.at("root/calls")), ["a.cdr", "note.txt"]);
    dir.fails(&["mirror", "calls", "copy"], "must be remote");
}

#[test]
fn mirror_deletes_nothing_that_the_source_has() {
    let dir = TestDir::new();
    dir.limit("[\"read\", \"read-attribute\", \"replace\"]");
    let server = dir.serve(&[], &[]);
    fs::create_dir_all(dir.at("calls/.kiban-collect")).expect("made");
    fs::create_dir_all(dir.at("root/linked/below")).expect("made");
    for name in ["calls/a.cdr", "calls/.kiban-collect/journal", "root/linked/below/b.cdr", "root/linked.cdr"]
    {
        fs::write(dir.at(name), name).expect("written");
    }
    symlink("/nonexistent", dir.at("calls/linked")).expect("linked");
    // An empty path is the home directory, which is not created.
    dir.run(&["mirror", "-q", "--delete", "calls", &remote(server.port, "")]);
    assert_eq!(names(&dir.at("root")), ["a.cdr", "linked"]);
    same(&dir.at("root/linked/below/b.cdr"), b"root/linked/below/b.cdr");
    // A directory that cannot be removed is reported, unless it holds files that are left out.
    let there = format!("ftam://ann@127.0.0.1:{}/", server.port);
    fs::create_dir(dir.at("root/empty")).expect("made");
    dir.fails(&["mirror", "-q", "--delete", "calls", &there], "/empty: ");
    fs::write(dir.at("root/empty/kept"), "kept").expect("written");
    dir.run(&["mirror", "-q", "--delete", "--exclude", "kept", "calls", &there]);
}

#[test]
fn a_shell_runs_commands_over_one_association() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    fs::create_dir_all(dir.at("root/calls/old")).expect("made");
    fs::write(dir.at("root/calls/a.cdr"), "a").expect("written");
    let script = "# a comment\ncd calls\npwd\nls --json\nget a.cdr\nput 'a.cdr' old/b.cdr\nmv old/b.cdr c.cdr\n\
        rm a.cdr\ncd ..\nls calls\nexit\nrm calls/c.cdr\n";
    let run_with = |option: &str, script: &str| {
        let mut command = dir.command(&["shell", option, &remote(server.port, "")]);
        command.env("XDG_STATE_HOME", dir.at("state"));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("built");
        child.stdin.take().expect("piped").write_all(script.as_bytes()).expect("read");
        child.wait_with_output().expect("ended")
    };
    let run = |script: &str| run_with("-q", script);
    let output = run(script);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains(&remote(server.port, "calls")) && text.contains("\"name\":\"a.cdr\""), "{text}");
    same(&dir.at("a.cdr"), b"a");
    same(&dir.at("root/calls/c.cdr"), b"a");
    assert!(!dir.at("root/calls/a.cdr").exists(), "removed in the shell's directory");
    server.log.wait_count("ended", 1);
    assert_eq!(server.log.count("ended"), 1, "one association for all commands: {:#?}", server.log.lines());
    // A failed line makes a script fail, but does not end it.
    let output = run("cd nowhere\nget nothing\nget 10:30.cdr\nls 'calls\nserve\nls --nonsense\npwd\n");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    for words in [
        "nowhere",
        "nothing",
        "write ./10:30.cdr",
        "a quote is not closed",
        "not possible in a shell",
        "--nonsense",
    ] {
        assert!(error.contains(words), "{words}: {error}");
    }
    assert!(String::from_utf8_lossy(&output.stdout).contains("ftam://"), "{output:?}");
    let output = run_with("--json", "mkdir z\nrm z\n");
    let lines: Vec<serde_json::Value> = output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    assert_eq!(lines.len(), 2, "{output:?}");
    let text = String::from_utf8(run("help\n").stdout).expect("text");
    assert!(text.contains("  get ") && !text.contains("  mirror ") && !text.contains("  serve "), "{text}");
}

#[test]
fn a_file_is_listed_fetched_into_a_new_directory_and_collected_by_its_name() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    let there = |path: &str| remote(server.port, path);
    fs::create_dir_all(dir.at("root/calls")).expect("made");
    fs::write(dir.at("root/calls/a.cdr"), "a").expect("written");
    let listed = dir.run(&["ls", &there("calls/a.cdr")]);
    assert!(listed.contains("a.cdr"), "{listed}");
    dir.fails(&["ls", &there("calls/none")], "3004 non-existent file\n");
    dir.run(&["get", "-q", &there("calls/a.cdr"), "new/below/"]);
    same(&dir.at("new/below/a.cdr"), b"a");
    dir.run(&["collect", "-q", "--min-age", "0", &there("calls/a.cdr"), "in"]);
    same(&dir.at("in/a.cdr"), b"a");
    assert!(!dir.at("root/calls/a.cdr").exists());
}

#[test]
fn rm_removes_a_tree_only_if_it_is_told_to() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    let there = |path: &str| remote(server.port, path);
    fs::create_dir_all(dir.at("root/calls/old/older")).expect("made");
    for name in ["root/calls/a.cdr", "root/calls/old/b.cdr", "root/calls/old/older/c.cdr", "root/kept"] {
        fs::write(dir.at(name), name).expect("written");
    }
    dir.fails(&["rm", &there("calls")], "3007 file cannot be deleted (the directory is not empty)\n");
    dir.fails(&["rm", "-r", "--directories-max", "1", &there("calls")], "more than 1 directories");
    dir.run(&["rm", "-r", &there("calls/*"), &there("calls")]);
    assert_eq!(names(&dir.at("root")), ["kept"]);
}

#[test]
fn an_empty_password_file_is_named() {
    let dir = TestDir::new();
    fs::write(dir.at("empty"), "\n").expect("written");
    let ls = ["ls", "--password-file", "empty", "ftam://eve@127.0.0.1:1/"];
    dir.fails(&ls, "empty: the first line is empty");
}
