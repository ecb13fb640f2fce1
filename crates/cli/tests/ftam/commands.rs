//! `kiban ftam` as a user runs it: a server and its clients, over TCP and TLS.

use super::common::{Fate, Relay, TestDir, kiban, noise, remote, same};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

#[test]
fn a_users_file_is_private_and_contains_no_password() {
    let dir = TestDir::new();
    let users = dir.at("new.toml");
    let made = kiban().arg("passwd").arg(&users).arg("eve").output().expect("it was built");
    assert!(made.status.success(), "{made:?}");
    let told = String::from_utf8_lossy(&made.stderr);
    assert!(told.contains("taking the password from KIBAN_FTAM_PASSWORD"), "{told}");
    let mode = fs::metadata(&users).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = fs::read_to_string(&users).expect("text");
    assert!(text.contains("$argon2id$") && !text.contains("secret") && text.contains("rights"));
}

#[test]
fn passwd_takes_rights_home_and_a_password_from_a_pipe() {
    let dir = TestDir::new();
    fs::create_dir(dir.at("root/calls")).expect("a folder");
    fs::write(dir.at("root/calls/1.cdr"), b"a record").expect("written");
    let users = dir.at("users.toml");
    let mut made = kiban()
        .args(["passwd", "--rights", "read,read-attribute", "--home", "calls"])
        .arg(&users)
        .arg("eve")
        .env_remove("KIBAN_FTAM_PASSWORD")
        .stdin(Stdio::piped())
        .spawn()
        .expect("it was built");
    made.stdin.take().expect("piped").write_all(b"from a pipe\nnot this line\n").expect("it reads");
    assert!(made.wait().expect("it ends").success());
    let server = dir.serve(&[], &[]);
    let run = |command: &[&str]| {
        let mut client = kiban();
        client.args(command).env("KIBAN_FTAM_PASSWORD", "from a pipe").current_dir(dir.at(""));
        client.output().expect("it was built")
    };
    let got = run(&["get", "-q", &remote(server.port, "1.cdr"), "back"]);
    assert!(got.status.success(), "{got:?}");
    assert_eq!(fs::read(dir.at("back")).expect("it was fetched"), b"a record");
    let refused = run(&["rm", &remote(server.port, "1.cdr")]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("3028"), "{refused:?}");
}

#[test]
fn a_missing_home_directory_is_reported_at_the_start() {
    let dir = TestDir::new();
    let users = fs::read_to_string(dir.at("users.toml")).expect("text");
    fs::write(dir.at("users.toml"), users.replacen("rights", "home = \"calls\"\nrights", 1))
        .expect("written");
    let server = dir.serve(&[], &[]);
    let user = |line: &Value| line["home"] == "/calls" && line["user"].is_string();
    server.log.wait("that the home directory is missing", user);
    drop(server);
    fs::create_dir(dir.at("root/calls")).expect("made");
    let server = dir.serve(&[], &[]);
    let lines = server.log.lines();
    assert!(!lines.iter().any(|line| user(&line["fields"])), "{lines:#?}");
}

#[test]
fn a_probe_can_log_in_as_a_user() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    let there = |path: &str| remote(server.port, path);
    let at = there("").replace("ftam://eve@", "");
    let probe = |password: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiban"));
        command.env("KIBAN_FTAM_PASSWORD", password);
        let output =
            command.args(["osi", "probe", at.trim_end_matches('/'), "--user", "eve", "--json"]).output();
        let report: Value = serde_json::from_slice(&output.expect("it was built").stdout).expect("JSON");
        let findings = report["findings"].as_array().expect("findings").clone();
        let asked = findings.iter().find(|finding| finding["question"] == "F-INITIALIZE as eve");
        asked.unwrap_or_else(|| panic!("{report}"))["answer"].as_str().expect("words").to_owned()
    };
    assert!(probe("secret").starts_with("accepted"));
    assert!(probe("wrong").contains("refused"));
}

#[test]
fn files_of_every_size_survive_a_put_and_a_get() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    let there = |path: &str| remote(server.port, path);
    for bytes in [0, 1, 16_384, 3_000_001] {
        let contents = noise(bytes);
        fs::write(dir.at("here"), &contents).expect("written");
        dir.run(&["put", "-q", "here", &there("there")]);
        same(&dir.at("root/there"), &contents);
        dir.run(&["get", "-q", "--overwrite", &there("there"), "back"]);
        same(&dir.at("back"), &contents);
        assert!(!dir.at(".kiban-ftam").exists(), "nothing is left beside local files");
    }
    for sizes in
        [["--fdata-bytes", "100", "--tpdu-bytes", "128"], ["--fdata-bytes", "65000", "--tpdu-bytes", "2048"]]
    {
        let contents = noise(100_000);
        fs::write(dir.at("here"), &contents).expect("written");
        dir.run(&[&["put", "-q"], &sizes[..], &["here", &there("there")]].concat());
        same(&dir.at("root/there"), &contents);
    }
}

#[test]
fn append_rename_delete_and_attribute_changes_work() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    let there = |path: &str| remote(server.port, path);
    fs::write(dir.at("text"), "one\ntwo\n").expect("written");
    dir.run(&["mkdir", &there("a")]);
    dir.run(&["put", "-q", "--type", "text", "text", &there("a/")]);
    dir.run(&["append", "-q", "--type", "text", "text", &there("a/text")]);
    same(&dir.at("root/a/text"), b"one\ntwo\none\ntwo\n");
    dir.run(&["chattr", "--legal", "ours", "--future-size", "100", &there("a/text")]);
    let stat: Value = serde_json::from_str(&dir.run(&["stat", "--json", &there("a/text")])).expect("JSON");
    let said = &stat["attributes"];
    assert_eq!(said["type"], "FTAM-1 text");
    assert_eq!((said["bytes"].as_i64(), said["future_bytes"].as_i64()), (Some(16), Some(100)));
    assert_eq!((said["creator"].as_str(), said["legal"].as_str()), (Some("eve"), Some("ours")));
    dir.run(&["mv", &there("a/text"), "a/words"]);
    let list: Value = serde_json::from_str(&dir.run(&["ls", "-r", "--json", &there("")])).expect("JSON");
    let names: Vec<_> =
        list["entries"].as_array().expect("entries").iter().map(|entry| entry["name"].clone()).collect();
    assert_eq!(names, ["a", "a/words"]);
    assert!(dir.run(&["ls", &there("a")]).contains("words"));
    dir.run(&["get", "-q", "-r", &there(""), "all"]);
    same(&dir.at("all/a/words"), b"one\ntwo\none\ntwo\n");
    fs::create_dir(dir.at("all/b")).expect("made");
    fs::write(dir.at("all/b/file"), b"x").expect("written");
    dir.run(&["put", "-q", "-r", "all", &there("copy")]);
    same(&dir.at("root/copy/b/file"), b"x");
    dir.run(&["rm", &there("a/words"), &there("copy/b/file")]);
    assert!(!dir.at("root/a/words").exists() && !dir.at("root/copy/b/file").exists());
    let timing: Value =
        serde_json::from_str(&dir.run(&["put", "--json", "--timing", "text", &there("t")])).expect("JSON");
    let tasks: Vec<_> =
        timing["timing"].as_array().expect("tasks").iter().map(|layer| layer["task"].clone()).collect();
    assert_eq!(tasks, ["HIF", "FTAM", "ACSE+PL", "SL", "TL", "LIF"]);
}

#[test]
fn errors_use_the_diagnostics_of_the_standard() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    let there = |path: &str| remote(server.port, path);
    fs::write(dir.at("here"), b"x").expect("written");
    fs::write(dir.at("secret"), b"not for peers").expect("written");
    symlink("../secret", dir.at("root/link")).expect("linked");
    dir.fails(&["get", &there("nothing"), "."], "3004 non-existent file");
    dir.fails(&["put", "absent", &there("x")], "absent: No such file");
    for way in
        ["link", "%2e%2e/secret", "..%2fsecret", "a/%2e%2e/%2e%2e/secret", ".kiban-ftam/dockets", "%00"]
    {
        let output = dir.try_run(&["get", "-q", &there(way), "stolen"]);
        assert!(output.status.code() == Some(1) && !dir.at("stolen").exists(), "{way}: {output:?}");
    }
    let wrong = kiban().env("KIBAN_FTAM_PASSWORD", "guess").args(["ls", &there("")]).output().expect("built");
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("password"), "{wrong:?}");
    dir.fails(&["ls", "ftam://eve@127.0.0.1:1/"], "cannot connect: ");
    let twice = dir.try_run(&["get", "ftam://eve:secret@127.0.0.1/x", "."]);
    assert_eq!(twice.status.code(), Some(2));
}

/// The users file, the keys and other files used by the server itself must not be reachable through its root,
/// even through mounts.
#[test]
fn a_server_refuses_to_start_when_its_own_files_can_be_fetched() {
    let dir = TestDir::new();
    fs::create_dir(dir.at("keys")).expect("made");
    for name in ["users.toml", "hard.toml", "cert.pem", "key.pem", "ca.pem"] {
        fs::copy(dir.at("users.toml"), dir.at("root").join(name)).expect("copied");
        fs::copy(dir.at("users.toml"), dir.at("keys").join(name)).expect("copied");
    }
    fs::remove_file(dir.at("root/hard.toml")).expect("removed");
    fs::hard_link(dir.at("keys/hard.toml"), dir.at("root/innocent")).expect("linked");
    symlink("root", dir.at("root-link")).expect("linked");
    symlink("root/users.toml", dir.at("to-inside")).expect("linked");
    symlink("../users.toml", dir.at("root/to-outside")).expect("linked");
    symlink("../keys", dir.at("root/keys-link")).expect("linked");
    let inside = "is inside the served directory";
    let rows: [(&[&str], [&str; 3]); 11] = [
        (&["--root", ".", "--users", "users.toml"], ["the users file users.toml", inside, "move it out"]),
        (&["--root", "root", "--users", "root/users.toml"], ["the users file", inside, "directory root"]),
        (&["--root", "root-link", "--users", "root/users.toml"], ["the users file", inside, "move it out"]),
        (
            &["--root", "root", "--users", "root-link/users.toml"],
            ["the users file", inside, "root/users.toml"],
        ),
        (&["--root", "root", "--users", "to-inside"], ["users file to-inside", inside, "root/users.toml"]),
        (&["--root", "root", "--users", "root/to-outside"], ["the users file", inside, "move it out"]),
        (&["--root", "root", "--users", "root/keys-link/users.toml"], ["users file", inside, "keys-link)"]),
        (
            &["--root", "root", "--users", "keys/hard.toml"],
            ["keys/hard.toml", "2 names", "replace it with a copy"],
        ),
        (
            &[
                "--root",
                "root",
                "--users",
                "users.toml",
                "--tls-cert",
                "keys/cert.pem",
                "--tls-key",
                "root/key.pem",
            ],
            ["the TLS key root/key.pem", inside, "move it out"],
        ),
        (
            &[
                "--root",
                "root",
                "--users",
                "users.toml",
                "--tls-cert",
                "root/cert.pem",
                "--tls-key",
                "keys/key.pem",
            ],
            ["the TLS certificate root/cert.pem", inside, "move it out"],
        ),
        (&["--root", "/", "--users", "users.toml"], ["the users file", inside, "directory /"]),
    ];
    for (arguments, words) in rows {
        let told = dir.refuses(&[], arguments);
        assert!(words.iter().all(|word| told.contains(word)), "{arguments:?}: {told}");
    }
    // The directory contains no private file, but the board's sockets would be located in it.
    let runtime = format!("XDG_RUNTIME_DIR={}", dir.at("root").display());
    let told = dir.refuses(&["env", &runtime], &["--root", "root", "--users", "users.toml"]);
    assert!(told.contains("the directory of kiban's sockets") && told.contains(inside), "{told}");
    // If that variable is not set, the default directory of the sockets is private, too.
    let user = if rustix::process::geteuid().is_root() { "/run" } else { "/tmp" };
    let none = ["env", "-u", "XDG_RUNTIME_DIR"];
    let told = dir.refuses(&none, &["--root", user, "--users", "/etc/hostname"]);
    assert!(told.contains(&format!("the directory of kiban's sockets {user}/kiban")), "{told}");
    let told = dir.refuses(&none, &["--root", ".", "--users", "users.toml"]);
    assert_eq!(told.matches("users.toml").count(), 1, "{told}");
    // Files beside or above the root are allowed; symlinks that lead out of the root are not followed.
    fs::remove_file(dir.at("root/innocent")).expect("removed");
    fs::remove_file(dir.at("root/users.toml")).expect("removed");
    let server = dir.serve(&[], &[]);
    for way in ["to-outside", "keys-link/users.toml", "users.toml", "%2e%2e/users.toml"] {
        let output = dir.try_run(&["get", "-q", &remote(server.port, way), "stolen"]);
        assert!(output.status.code() == Some(1) && !dir.at("stolen").exists(), "{way}: {output:?}");
    }
}

#[test]
fn a_bind_mount_does_not_hide_that_the_users_file_is_in_the_root() {
    let dir = TestDir::new();
    for folder in ["keys", "root/in", "elsewhere"] {
        fs::create_dir(dir.at(folder)).expect("made");
        fs::copy(dir.at("users.toml"), dir.at(folder).join("users.toml")).expect("copied");
    }
    fs::write(dir.at("root/file"), b"").expect("written");
    let rows = [
        // Four cases: the whole root is mounted elsewhere; a directory in the root is mounted elsewhere;
        // another directory is mounted in the root; a single file is mounted in the root.
        ("root elsewhere", ["--root", "elsewhere", "--users", "root/in/users.toml"]),
        ("root/in elsewhere", ["--root", "root", "--users", "elsewhere/users.toml"]),
        ("keys root/in", ["--root", "root", "--users", "keys/users.toml"]),
        ("users.toml root/file", ["--root", "root", "--users", "users.toml"]),
    ];
    let enters = |way: &[&str]| {
        let tried =
            Command::new(way[0]).args(&way[1..]).args(["mount", "-t", "tmpfs", "none", "/mnt"]).output();
        tried.is_ok_and(|output| output.status.success())
    };
    let Some(enter) = [&["unshare", "-rm"][..], &["unshare", "-m"]].into_iter().find(|way| enters(way))
    else {
        println!("skipped: nothing can be mounted here");
        return;
    };
    for (mount, arguments) in rows {
        let script = format!("mount --bind {mount} && exec \"$@\"");
        let told = dir.refuses(&[enter, &["sh", "-c", &script, "sh"]].concat(), &arguments);
        assert!(told.contains("is inside the served directory"), "{mount}: {told}");
    }
    // Start the server with the same files but no mounts.
    fs::remove_dir_all(dir.at("root/in")).expect("removed");
    let _server = dir.serve(&[], &[]);
}

#[test]
fn a_reload_refuses_users_that_were_moved_into_the_root() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    fs::rename(dir.at("users.toml"), dir.at("root/users.toml")).expect("moved");
    symlink("root/users.toml", dir.at("users.toml")).expect("linked");
    let pid = server.pid().to_string();
    let signalled = Command::new("kill").args(["-HUP", &pid]).status().expect("kill is there");
    assert!(signalled.success());
    let told = server.log.wait("that the users stay", |line| line["message"] == "users file not reloaded");
    let error = told["error"].as_str().expect("words");
    assert!(error.contains("is inside the served directory"), "{error}");
}

/// Checks that a client can neither fetch nor change a file.
fn refuses_file(dir: &TestDir, tls: &[&str], there: &str) {
    for (verb, files) in [
        (&["get", "-q"][..], &[there, "stolen"][..]),
        (&["stat"], &[there]),
        (&["put", "-q"], &["mine", there]),
        (&["append", "-q"], &["mine", there]),
        (&["rm"], &[there]),
    ] {
        let arguments = [verb, tls, files].concat();
        let output = dir.try_run(&arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
        assert!(!dir.at("stolen").exists(), "{arguments:?}");
    }
}

/// Even if the server's own files are moved into the root, peers can neither read nor change them.
#[test]
fn a_private_file_moved_into_the_root_is_not_served() {
    let dir = TestDir::new();
    fs::copy(dir.at("users.toml"), dir.at("new.toml")).expect("copied");
    fs::write(dir.at("mine"), b"mine").expect("written");
    let server = dir.serve(&[], &[]);
    let refused = |name: &str| refuses_file(&dir, &[], &remote(server.port, name));
    let contents = fs::read(dir.at("users.toml")).expect("there");
    fs::hard_link(dir.at("users.toml"), dir.at("root/hard")).expect("linked");
    refused("hard");
    fs::rename(dir.at("users.toml"), dir.at("root/moved")).expect("moved");
    refused("moved");
    // Load a new users file; the old one is still protected.
    fs::rename(dir.at("new.toml"), dir.at("users.toml")).expect("moved");
    let pid = server.pid().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().expect("kill is there").success());
    server.log.wait("new users", |line| line["message"] == "users file reloaded");
    refused("moved");
    fs::rename(dir.at("users.toml"), dir.at("root/new")).expect("moved");
    refused("new");
    same(&dir.at("root/hard"), &contents);
    same(&dir.at("root/moved"), &contents);
    dir.run(&["put", "-q", "mine", &remote(server.port, "theirs")]);
    same(&dir.at("root/theirs"), b"mine");
}

/// Editors, certbot and `kiban ftam passwd` replace a file, and send a signal only later or not at all.
#[test]
fn a_private_file_replaced_without_a_signal_is_not_served() {
    let dir = TestDir::new();
    let certificate = rcgen::generate_simple_self_signed(vec!["127.0.0.1".into()]).expect("a certificate");
    let pem = certificate.cert.pem();
    // The file is in a directory in which the running server is not allowed to open files.
    fs::create_dir(dir.at("tls")).expect("made");
    fs::write(dir.at("tls/cert.pem"), &pem).expect("written");
    fs::write(dir.at("tls/key.pem"), certificate.signing_key.serialize_pem()).expect("written");
    fs::write(dir.at("clients-trust.pem"), pem).expect("written");
    fs::write(dir.at("mine"), b"mine").expect("written");
    let server = dir.serve(&[], &["--tls-cert", "tls/cert.pem", "--tls-key", "tls/key.pem"]);
    let tls = ["--tls", "--tls-ca", "clients-trust.pem"];
    let refused = |name: &str| refuses_file(&dir, &tls, &remote(server.port, name));
    for name in ["users.toml", "tls/cert.pem", "tls/key.pem"] {
        let last = name.trim_start_matches("tls/");
        let (linked, moved) = (format!("linked-{last}"), format!("moved-{last}"));
        fs::copy(dir.at(name), dir.at("new")).expect("copied");
        fs::hard_link(dir.at("new"), dir.at("root").join(&linked)).expect("linked");
        fs::rename(dir.at("new"), dir.at(name)).expect("moved");
        refused(&linked);
        // A file that the server once used under that name is still protected after it has been replaced by
        // another file.
        fs::rename(dir.at(name), dir.at("root").join(&moved)).expect("moved");
        fs::copy(dir.at("root").join(&moved), dir.at(name)).expect("copied");
        refused(&moved);
        refused(&linked);
        same(&dir.at("root").join(&moved), &fs::read(dir.at(name)).expect("there"));
    }
    let theirs = remote(server.port, "theirs");
    dir.run(&[&["put", "-q"], &tls[..], &["mine", &theirs]].concat());
    same(&dir.at("root/theirs"), b"mine");
}

fn cut_up(up: u64) -> Fate {
    Fate::Cut { up, down: u64::MAX }
}

#[test]
fn an_interrupted_transfer_resumes_from_its_last_checkpoint() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    let contents = noise(8_000_000);
    fs::write(dir.at("here"), &contents).expect("written");
    let checks = ["--checkpoint-bytes", "200000", "-q", "--json"];
    // The relay cuts the connection twice; the program reconnects automatically.
    let relay = Relay::new(server.port, [3_000_000, 2_500_000].map(cut_up).to_vec());
    let there = remote(relay.port, "there");
    let said = dir.run(&[&["put"], &checks[..], &["here", &there]].concat());
    same(&dir.at("root/there"), &contents);
    assert!(said.contains("\"transfers\""), "{said}");
    // The relay cuts the connection once, and the program does not retry; a second process resumes the
    // transfer.
    let cut_down = |down| Fate::Cut { up: u64::MAX, down };
    let relay = Relay::new(server.port, [5_000_000, 4_500_000].map(cut_down).to_vec());
    let there = remote(relay.port, "there");
    let first = dir.try_run(&[&["get", "--retries", "0"], &checks[..], &[&there, "back"]].concat());
    assert!(first.status.code() == Some(1), "{first:?}");
    assert!(String::from_utf8_lossy(&first.stderr).contains("--resume"), "{first:?}");
    assert!(!dir.at("back").exists(), "a get is not seen before it is whole");
    // The second process is not allowed to transfer as many bytes as the file has, so it succeeds only if it
    // does not start from the beginning.
    let said = dir.run(&[&["get", "--resume", "--retries", "0"], &checks[..], &[&there, "back"]].concat());
    same(&dir.at("back"), &contents);
    assert!(said.contains("\"resumed\":true"), "{said}");
}

#[test]
fn a_restarted_server_resumes_a_transfer_and_keeps_the_old_file_until_then() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    fs::write(dir.at("root/there"), b"old").expect("written");
    let contents = noise(6_000_000);
    fs::write(dir.at("here"), &contents).expect("written");
    let relay = Relay::new(server.port, vec![cut_up(4_000_000)]);
    let checks = ["--checkpoint-bytes", "200000", "-q", "--retries", "0"];
    let there = remote(relay.port, "there");
    let first = dir.try_run(&[&["put"], &checks[..], &["here", &there]].concat());
    assert_eq!(first.status.code(), Some(1), "{first:?}");
    let port = server.port;
    drop(server);
    same(&dir.at("root/there"), b"old");
    // A transfer is identified by the names of its files. They contain the relay's port, so the same relay
    // must be used.
    let _server = dir.serve_at(port, &[], &[]);
    let said = dir.run(&[&["put", "--resume", "--json"], &checks[..], &["here", &there]].concat());
    assert!(said.contains("\"resumed\":true"), "{said}");
    same(&dir.at("root/there"), &contents);
}

#[test]
fn a_resumed_put_has_the_type_and_creator_of_an_uninterrupted_one() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    let lines: String = (0..400_000).map(|line| format!("line {line}\n")).collect();
    fs::write(dir.at("here"), &lines).expect("written");
    let relay = Relay::new(server.port, vec![cut_up(3_000_000)]);
    let (cut, whole) = (remote(relay.port, "cut"), remote(server.port, "whole"));
    let put = ["put", "--type", "text", "-q", "--checkpoint-bytes", "200000", "--retries", "0"];
    assert_eq!(dir.try_run(&[&put[..], &["here", &cut]].concat()).status.code(), Some(1));
    let said = dir.run(&[&put[..], &["--resume", "--json", "here", &cut]].concat());
    assert!(said.contains("\"resumed\":true"), "{said}");
    dir.run(&[&put[..], &["here", &whole]].concat());
    let [cut, whole] = [cut, whole].map(|name| {
        let said: Value = serde_json::from_str(&dir.run(&["stat", "--json", &name])).expect("JSON");
        ["type", "bytes", "creator", "modifier"].map(|word| said["attributes"][word].clone())
    });
    assert_eq!(cut, whole);
    assert_eq!((whole[0].as_str(), whole[2].as_str()), (Some("FTAM-1 text"), Some("eve")));
}

#[test]
fn a_put_waits_for_a_restarting_server() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    let contents = noise(6_000_000);
    fs::write(dir.at("here"), &contents).expect("written");
    let (port, dir) = (server.port, &dir);
    let relay = Relay::new(port, vec![Fate::Hold { up: 3_000_000, down: u64::MAX }]);
    // The relay opens a connection to the server for each client. Once the server is gone, it immediately
    // disconnects clients that reconnect.
    std::thread::scope(|scope| {
        let there = remote(relay.port, "there");
        let checks = ["--checkpoint-bytes", "200000", "-q", "--retries", "6", "--json"];
        let put = scope.spawn(move || dir.run(&[&["put"], &checks[..], &["here", &there]].concat()));
        relay.wait_held();
        drop(server);
        relay.go_on();
        relay.wait_turned_away();
        let _server = dir.serve_at(port, &[], &[]);
        put.join().expect("the put ended well");
    });
    same(&dir.at("root/there"), &contents);
}

#[test]
fn transfers_work_over_tls_and_fail_without_it() {
    let dir = TestDir::new();
    let certificate = rcgen::generate_simple_self_signed(vec!["127.0.0.1".into()]).expect("a certificate");
    fs::write(dir.at("cert.pem"), certificate.cert.pem()).expect("written");
    fs::write(dir.at("key.pem"), certificate.signing_key.serialize_pem()).expect("written");
    let server = dir.serve(&[], &["--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    let there = |path: &str| remote(server.port, path);
    let contents = noise(500_000);
    fs::write(dir.at("here"), &contents).expect("written");
    dir.run(&["put", "-q", "--tls", "--tls-ca", "cert.pem", "here", &there("there")]);
    same(&dir.at("root/there"), &contents);
    dir.fails(&["ls", "--tls", &there("")], "certificate");
    dir.fails(&["ls", "--timeout", "5", &there("")], "");
}

/// Returns a self-signed certificate that has expired, and its key, as PEM.
fn expired() -> (String, String) {
    let mut parameters = rcgen::CertificateParams::new(vec!["127.0.0.1".into()]).expect("a name");
    parameters.not_before = rcgen::date_time_ymd(2020, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(2020, 2, 1);
    let key = rcgen::KeyPair::generate().expect("a key");
    (parameters.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
}

#[test]
fn expired_and_missing_certificates_are_reported_at_both_ends() {
    let dir = TestDir::new();
    let good = rcgen::generate_simple_self_signed(vec!["127.0.0.1".into()]).expect("a certificate");
    let (old_cert, old_key) = expired();
    for (name, text) in [
        ("good.pem", good.cert.pem()),
        ("good.key", good.signing_key.serialize_pem()),
        ("old.pem", old_cert),
        ("old.key", old_key),
    ] {
        fs::write(dir.at(name), text).expect("written");
    }
    let server = dir.serve(&[], &["--tls-cert", "old.pem", "--tls-key", "old.key"]);
    dir.fails(&["ls", "--tls", "--tls-ca", "old.pem", &remote(server.port, "")], "certificate expired");
    let more = ["--tls-cert", "good.pem", "--tls-key", "good.key", "--tls-ca", "old.pem"];
    let server = dir.serve(&[], &more);
    let there = remote(server.port, "");
    let ls = ["ls", "--tls", "--tls-ca", "good.pem"];
    // The server's refusal arrives after the client's handshake.
    dir.fails(&[&ls[..], &[&there]].concat(), "CertificateRequired");
    let own = ["--tls-cert", "old.pem", "--tls-key", "old.key"];
    dir.fails(&[&ls[..], &own, &[&there]].concat(), "CertificateExpired");
}

#[test]
fn an_address_without_a_user_is_explained() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    dir.fails(&["ls", &format!("ftam://127.0.0.1:{}/", server.port)], "names no user: write ftam://USER@");
}

#[test]
fn a_listing_is_retried_when_the_association_is_lost() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    for number in 0..200 {
        std::fs::write(dir.at("root").join(format!("file-{number}")), "x").expect("room");
    }
    // Cut the connection in the middle of the listing, after the association is established.
    let cut = || Relay::new(server.port, vec![Fate::Cut { up: u64::MAX, down: 3000 }]);
    let here = |relay: &Relay| remote(relay.port, "");
    dir.fails(&["ls", "--retries", "0", &here(&cut())], "1011 lower layer failure");
    let told = dir.run(&["ls", "--json", &here(&cut())]);
    let report: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(report["entries"].as_array().map(Vec::len), Some(200), "{told}");
    // A refusal by the server does not mean that the connection is lost, so the request is sent only once.
    let before = server.log.count("refused");
    dir.fails(&["stat", &remote(server.port, "nothing")], "nothing: ");
    server.log.wait_count("refused", before + 1);
    assert_eq!(server.log.count("refused"), before + 1);
}
