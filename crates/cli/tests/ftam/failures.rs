//! Failures that affect a filestore: full disks, forbidden files, files that change, and peers that stall,
//! guess passwords, flood or send invalid data.
//!
//! Each test checks that the client gets the standard's diagnostic, that the server logs a line, and that
//! files are unchanged.

use super::common::{Fate, Relay, Server, TestDir, kiban, noise, remote, said, same};
use kiban_osi::ftam::initiator;
use kiban_osi::stack::layers::StackConfig;
use kiban_osi_runtime::ftam::client::{Client, ClientConfig};
use kiban_osi_runtime::ftam::disk::Settings;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Returns the words to put before a command so that it runs in a mount namespace; empty if that is not
/// permitted.
fn namespace(script: &str, argument: &str) -> Option<Vec<String>> {
    let ways: [&[&str]; 2] = [&["unshare", "-rm"], &["unshare", "-m"]];
    let can = |way: &&&[&str]| {
        let tried =
            Command::new(way[0]).args(&way[1..]).args(["mount", "-t", "tmpfs", "none", "/mnt"]).output();
        tried.is_ok_and(|tried| tried.status.success())
    };
    let Some(way) = ways.iter().find(can) else {
        eprintln!("SKIPPED: neither a user namespace nor a mount namespace can be made here");
        return None;
    };
    let shell = ["sh", "-c", script, argument];
    let words = way.iter().chain(&shell);
    Some(words.map(|word| (*word).to_owned()).collect())
}

/// Serves a directory on a disk of this size. Returns the server, and the directory's path; `None` if nothing
/// can be mounted here.
fn serve_small_disk(dir: &TestDir, size: &str) -> Option<(Server, PathBuf)> {
    let root = dir.at("root");
    let script = format!("mount -t tmpfs -o size={size} none \"$0\" && exec \"$@\"");
    let server = dir.serve(&namespace(&script, root.to_str().expect("text"))?, &[]);
    // The mount exists only in the server's namespace.
    let inside = format!("/proc/{}/root{}", server.pid(), root.display());
    Some((server, inside.into()))
}

#[test]
fn a_full_disk_is_reported_and_the_old_file_is_kept() {
    let dir = TestDir::new();
    let Some((server, inside)) = serve_small_disk(&dir, "2m") else { return };
    let there = remote(server.port, "there");
    fs::write(dir.at("old"), b"old").expect("written");
    dir.run(&["put", "-q", "old", &there]);
    fs::write(dir.at("large"), noise(6_000_000)).expect("written");
    for command in ["put", "append"] {
        dir.fails(&[command, "-q", "large", &there], "5029 local failure, file space exhausted");
        same(&inside.join("there"), b"old");
        let line = server.log.refused(5029, "there");
        assert_eq!((line["user"].as_str(), line["said"].as_str()), (Some("eve"), Some("F-CANCEL request")));
        assert_eq!(
            line["words"], "local failure, file space exhausted, later perhaps",
            "without the number, which it has too"
        );
        assert_eq!(fs::read_dir(inside.join(".kiban-ftam/new")).expect("there").count(), 0);
    }
    // The disk has room for the file, but not for a second copy.
    fs::write(dir.at("half"), noise(1_200_000)).expect("written");
    dir.fails(&["append", "-q", "half", &there], "5029 local failure, file space exhausted");
    server.log.wait("that the transfer's end was refused", |line| {
        line["diagnostic"] == 5029 && line["said"] == "F-TRANSFER-END response"
    });
    same(&inside.join("there"), b"old");
    // Now there is room again.
    dir.run(&["put", "-q", "half", &there]);
    same(&inside.join("there"), &noise(1_200_000));
}

#[test]
fn a_put_that_filled_the_disk_is_resumed_once_there_is_room() {
    let dir = TestDir::new();
    let Some((server, inside)) = serve_small_disk(&dir, "12m") else { return };
    fs::write(inside.join("ballast"), noise(7_000_000)).expect("written");
    let contents = noise(8_000_000);
    fs::write(dir.at("large"), &contents).expect("written");
    let there = remote(server.port, "there");
    let put = ["put", "-q", "--checkpoint-bytes", "200000"];
    let full = dir.try_run(&[&put[..], &["large", &there]].concat());
    let error = String::from_utf8_lossy(&full.stderr);
    assert!(error.contains("5029") && error.contains("--resume"), "{full:?}");
    fs::remove_file(inside.join("ballast")).expect("removed");
    let resume = [&put[..], &["--resume", "--json"]].concat();
    let said = dir.run(&[&resume[..], &["large", &there]].concat());
    assert!(said.contains("\"resumed\":true"), "{said}");
    same(&inside.join("there"), &contents);
}

/// ISODE's client selects a file before each put, to learn whether it exists.
#[test]
fn the_selection_of_a_missing_file_is_no_warning() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    dir.fails(&["stat", &remote(server.port, "nothing")], "3004");
    server.log.refused(3004, "nothing");
    let lines = server.log.lines();
    let line = lines.iter().find(|line| line["fields"]["diagnostic"] == 3004).expect("it is logged");
    assert_eq!(line["level"], "INFO");
}

#[test]
fn files_without_permission_are_refused_and_not_changed() {
    let dir = TestDir::new();
    let root = dir.at("root");
    fs::create_dir(root.join("fixed")).expect("made");
    fs::write(root.join("fixed/there"), b"old").expect("written");
    fs::write(root.join("closed"), b"nobody's").expect("written");
    fs::set_permissions(root.join("closed"), fs::Permissions::from_mode(0o0)).expect("set");
    // Errors that occur even for root: on a read-only mount, and in a process without capabilities.
    let script = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec setpriv --bounding-set=-all --inh-caps=-all \"$@\"";
    let Some(before) = namespace(script, root.join("fixed").to_str().expect("text")) else { return };
    let server = dir.serve(&before, &[]);
    let fixed = remote(server.port, "fixed/there");
    fs::write(dir.at("new"), b"new").expect("written");
    let local_security = "11 access request violates local security";
    for arguments in [
        &["put", "-q", "new", &fixed][..],
        &["append", "-q", "new", &fixed],
        &["rm", &fixed],
        &["mv", &fixed, "fixed/elsewhere"],
        &["chattr", "--legal", "ours", &fixed],
        &["mkdir", &remote(server.port, "fixed/made")],
    ] {
        dir.fails(arguments, local_security);
    }
    dir.fails(&["get", "-q", &remote(server.port, "closed"), "stolen"], local_security);
    for file in ["fixed/there", "fixed/made", "closed"] {
        server.log.refused(11, file);
    }
    same(&root.join("fixed/there"), b"old");
    assert!(!dir.at("stolen").exists());
    dir.run(&["get", "-q", &fixed, "back"]);
    same(&dir.at("back"), b"old");
}

#[test]
fn a_get_returns_one_consistent_state_of_the_file_or_fails() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    let contents = noise(8_000_000);
    let file = dir.at("root/there");
    // Truncated, extended and overwritten files are reported. If the file is replaced by another, the server
    // keeps reading the old file to its end.
    type Change = fn(&std::path::Path);
    let changes: [(&str, Change); 3] = [
        ("shortened", |file| {
            drop(fs::File::options().write(true).open(file).and_then(|file| file.set_len(100)))
        }),
        ("appended to", |file| {
            let opened = fs::File::options().append(true).open(file);
            opened.and_then(|mut file| file.write_all(b"!")).expect("written");
        }),
        ("written over", |file| {
            let opened = fs::File::options().write(true).open(file).expect("there");
            opened.write_all_at(b"!", 7_999_999).expect("written");
        }),
    ];
    for (number, (how, change)) in changes.into_iter().enumerate() {
        fs::write(&file, &contents).expect("written");
        let relay = Relay::new(server.port, vec![Fate::Hold { up: u64::MAX, down: 1_000_000 }]);
        let get = ["get", "-q", "--retries", "0", &remote(relay.port, "there"), "back"];
        let child = dir.command(&get).stderr(Stdio::piped()).spawn().expect("it was built");
        relay.wait_held();
        change(&file);
        relay.go_on();
        said(child.wait_with_output().expect("it ends"), "5030 local failure, data corrupted");
        server.log.wait_count("refused", number + 1);
        server.log.refused(5030, "there");
        assert_eq!(server.log.count("refused"), number + 1, "{how}");
        assert!(!dir.at("back").exists(), "{how}");
    }
    fs::write(&file, &contents).expect("written");
    let relay = Relay::new(server.port, vec![Fate::Hold { up: u64::MAX, down: 1_000_000 }]);
    let get = ["get", "-q", "--retries", "0", &remote(relay.port, "there"), "back"];
    let child = dir.command(&get).stderr(Stdio::piped()).spawn().expect("it was built");
    relay.wait_held();
    fs::write(dir.at("root/other"), b"another").expect("written");
    fs::rename(dir.at("root/other"), &file).expect("renamed");
    relay.go_on();
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    same(&dir.at("back"), &contents);
}

#[test]
fn a_peer_that_stalls_is_disconnected_and_can_resume() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &["--silence-max", "3"]);
    let contents = noise(4_000_000);
    fs::write(dir.at("here"), &contents).expect("written");
    fs::write(dir.at("root/there"), b"old").expect("written");
    // Soon after a checkpoint: on a busy machine, each one may take so long that the client seems to stall.
    let relay = Relay::new(server.port, vec![Fate::Hold { up: 300_000, down: u64::MAX }]);
    let there = remote(relay.port, "there");
    let put = ["put", "-q", "--retries", "0", "--checkpoint-bytes", "200000", "here", &there];
    let child = dir.command(&put).stderr(Stdio::piped()).spawn().expect("it was built");
    relay.wait_held();
    let line =
        server.log.wait("that it was cut", |line| line["message"] == "idle for too long: disconnected");
    assert_eq!((line["user"].as_str(), line["file"].as_str()), (Some("eve"), Some("there")));
    server.log.wait("that it ended", |line| line["message"] == "ended" && line["files"] == 1);
    same(&dir.at("root/there"), b"old");
    assert_eq!(dir.left(), 1, "what came waits to be gone on with");
    // The file is no longer locked.
    dir.run(&["stat", &remote(server.port, "there")]);
    relay.go_on();
    said(child.wait_with_output().expect("it ends"), "1011 lower layer failure; use --resume to continue");
    let again =
        ["put", "--resume", "--json", "--retries", "9", "--checkpoint-bytes", "200000", "here", &there];
    assert!(dir.run(&again).contains("\"resumed\":true"));
    same(&dir.at("root/there"), &contents);
    assert_eq!(dir.left(), 0);
}

#[test]
fn a_peer_that_dies_without_recovery_leaves_no_partial_file() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    fs::write(dir.at("here"), noise(4_000_000)).expect("written");
    fs::write(dir.at("root/there"), b"old").expect("written");
    let relay = Relay::new(server.port, vec![Fate::Cut { up: 2_500_000, down: u64::MAX }]);
    let there = remote(relay.port, "there");
    dir.fails(&["put", "-q", "--no-recovery", "--retries", "0", "here", &there], "1011 lower layer failure");
    server.log.wait("that it ended", |line| line["message"] == "ended" && line["files"] == 1);
    same(&dir.at("root/there"), b"old");
    assert_eq!(dir.left(), 0);
}

#[test]
fn a_refused_login_is_not_repeated_for_each_file() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    for number in 0..20 {
        fs::write(dir.at(&format!("{number}.cdr")), "call").expect("written");
    }
    let mut put = dir.command(&["put", "-j", "4", "*.cdr", &remote(server.port, "")]);
    said(put.env("KIBAN_FTAM_PASSWORD", "guess").output().expect("it was built"), "2020");
    let names = ["0.cdr", "1.cdr", "2.cdr"].map(|name| remote(server.port, name));
    let mut get = dir.command(&["get", &names[0], &names[1], &names[2], "got/"]);
    said(get.env("KIBAN_FTAM_PASSWORD", "guess").output().expect("it was built"), "2020");
    // The server has seen one login of each, and accepts the right password at once.
    dir.run(&["put", "-q", "*.cdr", &remote(server.port, "")]);
    assert_eq!(server.log.count("login refused"), 2);
}

#[test]
fn password_guesses_are_limited_over_all_connections() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    let home = remote(server.port, "");
    let guess = || {
        let mut command = kiban();
        command.env("KIBAN_FTAM_PASSWORD", "guess").args(["ls", &home]).stderr(Stdio::piped());
        command.spawn().expect("it was built")
    };
    let children: Vec<_> = (0..40).map(|_| guess()).collect();
    let (mut wrong, mut unjudged) = (0, 0);
    for child in children {
        let output = child.wait_with_output().expect("it ends");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        wrong += usize::from(error.contains("2020 invalid filestore password"));
        unjudged += usize::from(error.contains("2000 association with user not allowed"));
    }
    assert_eq!(wrong + unjudged, 40);
    // The first three attempts are not delayed, and up to four are verified at the same time. After that,
    // each failure doubles the delay, up to four seconds.
    assert!((3..=12).contains(&wrong), "{wrong} guesses were judged");
    server.log.wait_count("login refused", wrong);
    assert_eq!(server.log.count("login refused"), wrong);
    server.log.wait("that some were not judged", |line| {
        line["message"] == "too many failed logins: password not verified"
    });
    // During the delay, even the correct password is rejected without verification if it comes from this
    // address. On a busy machine the delay may be over when the attempt arrives; another wrong guess then
    // starts it again.
    let is_held = (0..5).any(|_| {
        guess().wait_with_output().expect("it ends");
        let output = dir.try_run(&["ls", &home]);
        String::from_utf8_lossy(&output.stderr).contains("2000 association with user not allowed")
    });
    assert!(is_held, "whoever knows the password is judged right after guesses");
    let line = server.log.wait("who guessed", |line| line["message"] == "login refused");
    assert_eq!((line["user"].as_str(), line["refusal"].as_str()), (Some("eve"), Some("Password")));
}

#[test]
fn repeated_associations_do_not_increase_memory_use() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    let home = remote(server.port, "");
    (0..2).for_each(|_| drop(dir.run(&["ls", &home])));
    let before = server.status_kib("VmRSS");
    (0..10).for_each(|_| drop(dir.run(&["ls", &home])));
    let grown = server.status_kib("VmRSS").saturating_sub(before);
    // Verifying a password takes 19 MiB.
    assert!(grown < 16 << 10, "ten associations one after another left {grown} KiB");
}

#[test]
fn a_mismatch_of_tls_and_plain_text_is_reported() {
    let dir = TestDir::new();
    let certificate = rcgen::generate_simple_self_signed(vec!["127.0.0.1".into()]).expect("a certificate");
    fs::write(dir.at("cert.pem"), certificate.cert.pem()).expect("written");
    fs::write(dir.at("key.pem"), certificate.signing_key.serialize_pem()).expect("written");
    let secure = dir.serve(&[], &["--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    dir.fails(
        &["ls", "--timeout", "20", &remote(secure.port, "")],
        "it closed the connection before it answered",
    );
    let line = secure.log.wait("that there is no TLS", |line| line["message"] == "TLS handshake failed");
    assert!(line["error"].as_str().is_some_and(|error| error.contains("InvalidContentType")), "{line}");
    let plain = dir.serve(&[], &[]);
    dir.fails(
        &["ls", "--tls", "--tls-ca", "cert.pem", "--timeout", "20", &remote(plain.port, "")],
        "cannot connect",
    );
    let line =
        plain.log.wait("what was broken", |line| line["message"] == "ended" && !line["broken"].is_null());
    assert_eq!((line["files"].as_u64(), line["broken"].as_str()), (Some(0), Some("version")));
    // Both servers still work.
    dir.run(&["ls", "--tls", "--tls-ca", "cert.pem", &remote(secure.port, "")]);
    dir.run(&["ls", &remote(plain.port, "")]);
}

/// Raises this process's file descriptor limit to the maximum, and returns it.
fn descriptors() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").expect("there");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a line");
    let hard: usize = line.split_whitespace().nth(4).and_then(|hard| hard.parse().ok()).unwrap_or(1 << 20);
    let wanted = hard.min(1 << 20);
    let raised = Command::new("prlimit")
        .args(["--pid", &std::process::id().to_string(), &format!("--nofile={wanted}:{hard}")])
        .status();
    assert!(raised.is_ok_and(|status| status.success()), "prlimit raises a limit up to the hard one");
    wanted
}

#[test]
fn silent_connections_do_not_keep_clients_out() {
    let crowd = descriptors().saturating_sub(200).min(10_000);
    if crowd < 10_000 {
        eprintln!("REDUCED: only {crowd} connections, as the limit of descriptors has it");
    }
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    fs::write(dir.at("here"), noise(1_000_000)).expect("written");
    // A complete connection request, followed by half of a TPKT that claims a length of 1000 bytes.
    let request = [3, 0, 0, 11, 6, 0xe0, 0, 0, 0, 1, 0];
    let half = [&request[..], &[3, 0, 3, 0xe8, 2, 0xf0, 0x80, 13, 0xff]].concat();
    let says: [&[u8]; 4] = [&[], &request[..5], &request, &half];
    let before = server.status_kib("VmRSS");
    let mut all = Vec::with_capacity(crowd);
    for number in 0..crowd {
        let mut socket = TcpStream::connect(("127.0.0.1", server.port)).expect("it listens");
        // The write fails if the server has already disconnected the client.
        let _ = socket.write_all(says[number % says.len()]);
        all.push(socket);
        if number % (crowd / 4) == crowd / 8 {
            dir.run(&["put", "-q", "--timeout", "20", "here", &remote(server.port, "there")]);
        }
    }
    dir.run(&["get", "-q", "--timeout", "20", &remote(server.port, "there"), "back"]);
    same(&dir.at("back"), &noise(1_000_000));
    let grown = server.status_kib("VmRSS").saturating_sub(before);
    assert!(grown < 200 << 10, "{crowd} connections took {grown} KiB");
    // Up to 1024 unauthenticated connections with two descriptors each, in addition to the descriptors of the
    // server itself.
    assert!(server.descriptors() < 2200, "{} descriptors", server.descriptors());
    let mut gone = 0;
    for socket in &mut all {
        socket.set_nonblocking(true).expect("set");
        let mut bytes = [0; 64];
        gone += usize::from(loop {
            match socket.read(&mut bytes) {
                Ok(0) => break true,
                Ok(_) => {}
                Err(error) => break error.kind() != std::io::ErrorKind::WouldBlock,
            }
        });
    }
    assert!(gone >= crowd.saturating_sub(1100), "only {gone} of {crowd} were sent away");
    let line = server.log.wait("that some made room", |line| {
        line["message"] == "too many unauthenticated connections: the oldest was closed"
    });
    assert_eq!(line["origin"], "127.0.0.1");
    let lines = server.log.lines().len();
    assert!(lines < 500, "{lines} lines for {crowd} connections");
}

#[test]
fn no_spelling_of_a_name_leaves_the_root_and_each_attempt_is_logged() {
    let dir = TestDir::new();
    fs::write(dir.at("secret"), b"not for peers").expect("written");
    fs::create_dir(dir.at("root/d")).expect("made");
    symlink("../secret", dir.at("root/link")).expect("linked");
    symlink("..", dir.at("root/up")).expect("linked");
    symlink("../secret", dir.at("root/d/link")).expect("linked");
    let server = dir.serve(&[], &[]);
    fs::write(dir.at("here"), b"new").expect("written");
    let long = "x/".repeat(600) + "secret";
    let wide = "x".repeat(256);
    // Each name in the form that the server receives, and as encoded in the address.
    let names = [
        ("../secret", "..%2fsecret"),
        ("d/..", "d%2f.."),
        ("d/../../secret", "d/..%2f..%2fsecret"),
        ("d/./link", "d/.%2flink"),
        ("d//link", "d%2f%2flink"),
        ("//etc/passwd", "%2f%2fetc/passwd"),
        ("d/\0", "d/%00"),
        ("secret\0", "secret%00"),
        ("d/\n/x", "d/%0a/x"),
        ("d/\u{9b}", "d/%c2%9b"),
        ("link", "link"),
        ("up/secret", "up/secret"),
        ("d/link", "d/link"),
        (".kiban-ftam/dockets/x", ".kiban-ftam/dockets/x"),
        ("d/.KIBAN-ftam/new/x", "d/.KIBAN-ftam/new/x"),
        (&wide, &wide),
        (&long, &long),
    ];
    for (name, written) in names {
        let there = remote(server.port, written);
        for arguments in [
            &["get", "-q", &there, "stolen"][..],
            &["put", "-q", "here", &there],
            &["append", "-q", "here", &there],
            &["rm", &there],
        ] {
            let output = dir.try_run(arguments);
            let error = String::from_utf8_lossy(&output.stderr);
            let refused =
                ["3000 filename not found", "3006 file cannot be created", "the address has no name"];
            assert!(
                output.status.code() == Some(1) && refused.iter().any(|words| error.contains(words)),
                "{arguments:?}: {output:?}"
            );
        }
        let told: String = name.chars().take(256).collect();
        server.log.refused(3000, &told);
    }
    // Ordinary names that look similar to a path to a parent directory.
    for written in ["..%5csecret", "%252e%252e", "%ef%bc%8e%ef%bc%8e", "...", "~", "$HOME"] {
        dir.run(&["put", "-q", "here", &remote(server.port, written)]);
        dir.run(&["rm", &remote(server.port, written)]);
    }
    same(&dir.at("secret"), b"not for peers");
    assert!(!dir.at("stolen").exists());
    let mut beside: Vec<_> =
        fs::read_dir(&dir.folder).expect("there").map(|entry| entry.expect("read").file_name()).collect();
    beside.sort();
    assert_eq!(beside, ["here", "root", "secret", "users.toml"]);
}

/// The length of a long transfer, in bytes; `KIBAN_HARM_BYTES` sets a larger one.
fn long_bytes() -> usize {
    std::env::var("KIBAN_HARM_BYTES").ok().and_then(|text| text.parse().ok()).unwrap_or(64_000_000)
}

#[test]
fn a_long_transfer_interrupted_anywhere_does_not_restart_from_zero() {
    const CHECKPOINT_BYTES: u64 = 4 << 20;
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    let bytes = long_bytes();
    let contents = noise(bytes);
    fs::write(dir.at("here"), &contents).expect("written");
    fs::write(dir.at("root/there"), b"old").expect("written");
    let of = |parts: u64| bytes as u64 * parts / 100;
    // Cut the transfer in the first block, early, in the middle, and just before the end.
    let cuts = [1, 12, 37, 49];
    // The data that may have to be retransmitted: three unacknowledged checkpoints, one that is being
    // prepared, and the data buffered by sockets and the relay.
    let window = 5 * CHECKPOINT_BYTES + (8 << 20);
    let most = |times: u64| bytes as u64 * 102 / 100 + times * window;
    for put in [true, false] {
        let fates = cuts.iter().map(|part| match put {
            true => Fate::Cut { up: of(*part), down: u64::MAX },
            false => Fate::Cut { up: u64::MAX, down: of(*part) },
        });
        let relay = Relay::new(server.port, fates.collect());
        let there = remote(relay.port, "there");
        let way: &[&str] = if put { &["put", "here", &there] } else { &["get", &there, "back"] };
        let options = ["-q", "--json", "--retries", "0", "--resume"];
        let words = [&way[..1], &options, &way[1..]].concat();
        for _ in cuts {
            let ended = server.log.count("ended");
            said(dir.try_run(&words), "1011 lower layer failure; use --resume to continue");
            // The lost association keeps the file locked until the server notices that it is lost.
            server.log.wait_count("ended", ended + 1);
        }
        let done = dir.run(&words);
        let (up, down) = relay.passed();
        let passed = if put { up } else { down };
        eprintln!("{way:?}: {bytes} bytes, {passed} passed; {done}");
        same(&dir.at(if put { "root/there" } else { "back" }), &contents);
        assert!(passed < most(cuts.len() as u64), "{passed} bytes passed of a file of {bytes}");
        assert_eq!(dir.left(), 0);
    }
}

/// Transfers a file longer than 4 GiB if `KIBAN_HARM_LARGE` is set. This takes 9 GiB of disk space and a
/// minute.
#[test]
fn a_file_of_more_than_four_gib_is_put_resumed_and_fetched() {
    if std::env::var_os("KIBAN_HARM_LARGE").is_none() {
        eprintln!("SKIPPED: KIBAN_HARM_LARGE is not set");
        return;
    }
    const BYTES: u64 = (4 << 30) + (64 << 20);
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    let tail = noise(48 << 20);
    let local = fs::File::create(dir.at("here")).expect("made");
    local.set_len(BYTES).expect("room");
    local.write_all_at(b"front", 0).expect("written");
    local.write_all_at(&tail, BYTES - tail.len() as u64).expect("written");
    let check = |name: &str| {
        let file = fs::File::open(dir.at(name)).expect("there");
        assert_eq!(file.metadata().expect("known").len(), BYTES);
        let mut read = vec![0; tail.len()];
        file.read_exact_at(&mut read, BYTES - tail.len() as u64).expect("read");
        assert!(read == tail, "{name}: another tail");
        // Change bytes on both sides of the 4 GiB boundary, to detect offsets that are truncated to 32 bits.
        for at in [5, (4 << 30) - 4096, 4 << 30] {
            let mut read = vec![1; 4096];
            file.read_exact_at(&mut read, at).expect("read");
            assert!(read.iter().all(|byte| *byte == 0), "{name} at {at}");
        }
    };
    let cut = (4 << 30) + (32 << 20);
    for put in [true, false] {
        let fate = match put {
            true => Fate::Cut { up: cut, down: u64::MAX },
            false => Fate::Cut { up: u64::MAX, down: cut },
        };
        let relay = Relay::new(server.port, vec![fate]);
        let there = remote(relay.port, "there");
        let way: &[&str] = if put { &["put", "here", &there] } else { &["get", &there, "back"] };
        let options = ["-q", "--json", "--retries", "0"];
        let first = dir.try_run(&[&way[..1], &options, &way[1..]].concat());
        said(first, "use --resume to continue");
        let (up, down) = relay.passed();
        let before = if put { up } else { down };
        let second = dir.run(&[&way[..1], &options, &["--resume"], &way[1..]].concat());
        let (up, down) = relay.passed();
        let after = (if put { up } else { down }) - before;
        eprintln!("{way:?}: {before} bytes, then {after}; {second}");
        assert!(second.contains("\"resumed\":true"));
        assert!(after < 100 << 20, "{after} bytes the second time");
        check(if put { "root/there" } else { "back" });
    }
}

#[test]
fn a_thousand_associations_at_once_take_little_memory() {
    const ASSOCIATIONS: usize = 1000;
    // Each association needs one socket in the client and one in the server; the server also opens a
    // directory.
    assert!(descriptors() > 2 * ASSOCIATIONS, "the limit of descriptors is too low for this test");
    let dir = TestDir::new();
    // A hash of "secret" that is cheap to verify, because the test measures only the memory used by
    // associations.
    let cheap =
        "$argon2id$v=19$m=8,t=1,p=1$a2liYW4tdGVzdHMtc2FsdA$Jvf1PpJ6DVMpBPguhtcFSR+A3s8zvbMdkICkAIoEVlA";
    fs::write(dir.at("users.toml"), format!("[users.eve]\npassword = \"{cheap}\"\nrights = \"all\"\n"))
        .expect("written");
    let server = dir.serve(&[], &[]);
    let config = ClientConfig {
        host: "127.0.0.1".into(),
        port: server.port,
        local: dir.at("root"),
        disk: Settings::default(),
        initiator: initiator::Config {
            user: Some("eve".into()),
            password: Some("secret".into()),
            ..initiator::Config::default()
        },
        stack: StackConfig::default(),
        board: None,
        tls: None,
        timeout: Duration::from_secs(60),
        idle_timeout: Duration::from_secs(900),
        timing: false,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("event polling is available");
    runtime.block_on(async {
        let mut clients = Vec::with_capacity(ASSOCIATIONS);
        for _ in 0..ASSOCIATIONS {
            clients.push(Client::connect(&config).await.expect("there is room"));
        }
        let held = server.status_kib("VmHWM");
        assert!(held < 256 << 10, "{ASSOCIATIONS} associations take {held} KiB");
        eprintln!("{ASSOCIATIONS} associations: {held} KiB");
        // The first and the last association still work.
        for client in [clients.swap_remove(0), clients.pop().expect("the last")] {
            client.close().await;
        }
    });
    server.log.wait_count("ended", 2);
}

#[test]
fn every_thread_of_a_server_is_sandboxed_and_users_can_still_be_reloaded() {
    let dir = TestDir::new();
    let server = dir.serve(&[], &[]);
    let dropped = server.log.wait("what it drops", |line| line["message"] == "privileges dropped");
    assert_eq!(
        (&dropped["capabilities"], &dropped["landlock"], &dropped["seccomp"]),
        (&"none".into(), &"on".into(), &"on".into())
    );
    let confined = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).expect("it runs");
        let texts = tasks.map(|task| fs::read_to_string(task.expect("it runs").path().join("status")));
        // A thread may exit between the listing and the read.
        let texts: Vec<String> = texts.filter_map(Result::ok).collect();
        assert!(texts.len() >= 2, "it has several threads");
        for text in &texts {
            for line in ["CapPrm:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n"] {
                assert!(text.contains(line), "{text}");
            }
        }
    };
    confined();
    fs::write(dir.at("own"), "words").expect("room");
    dir.run(&["put", "own", &remote(server.port, "theirs")]);
    dir.run(&["passwd", "users.toml", "joe"]);
    let hang_up = Command::new("kill").args(["-HUP", &server.pid().to_string()]).status().expect("kill");
    assert!(hang_up.success());
    let read = server.log.wait("users", |line| line["message"] == "users file reloaded");
    assert_eq!(read["users"], 3);
    dir.run(&["get", &remote(server.port, "theirs"), "back"]);
    same(&dir.at("back"), b"words");
    confined();
}
