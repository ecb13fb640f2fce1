//! What goes wrong around a filestore: full disks, forbidden files, files that change, peers that stop,
//! guess, crowd and lie.
//!
//! Each time: the standard's diagnostic at the client, a line in the server's log, and files that are as they
//! were.

use super::place::{Fate, Place, Relay, kiban, noise, remote, said, same};
use kiban_ftam::client::{Client, ClientConfig};
use kiban_ftam::disk::Settings;
use kiban_osi::ftam::initiator;
use kiban_osi::stack::layers::StackConfig;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The words that run a command where it may mount, or none where that is not allowed.
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

#[test]
fn a_full_disk_is_told_and_the_old_file_stands() {
    let place = Place::new();
    let root = place.at("root");
    let Some(before) =
        namespace("mount -t tmpfs -o size=2m none \"$0\" && exec \"$@\"", root.to_str().expect("text"))
    else {
        return;
    };
    let server = place.serve(&before, &[]);
    // The mount is the server's alone.
    let inside = std::path::PathBuf::from(format!("/proc/{}/root{}", server.pid(), root.display()));
    let there = remote(server.port, "there");
    fs::write(place.at("old"), b"old").expect("written");
    place.run(&["put", "-q", "old", &there]);
    fs::write(place.at("large"), noise(6_000_000)).expect("written");
    for command in ["put", "append"] {
        place.fails(&[command, "-q", "large", &there], "5029 local failure, file space exhausted");
        same(&inside.join("there"), b"old");
        let line = server.log.refused(5029, "there");
        assert_eq!((line["user"].as_str(), line["said"].as_str()), (Some("eve"), Some("F-CANCEL request")));
        assert_eq!(fs::read_dir(inside.join(".kiban-ftam/new")).expect("there").count(), 0);
    }
    // It fits beside what is there, but not a second time behind it.
    fs::write(place.at("half"), noise(1_200_000)).expect("written");
    place.fails(&["append", "-q", "half", &there], "5029 local failure, file space exhausted");
    server.log.wait("that the transfer's end was refused", |line| {
        line["diagnostic"] == 5029 && line["said"] == "F-TRANSFER-END response"
    });
    same(&inside.join("there"), b"old");
    // There is room again.
    place.run(&["put", "-q", "half", &there]);
    same(&inside.join("there"), &noise(1_200_000));
}

#[test]
fn what_the_host_does_not_allow_is_refused_and_left_alone() {
    let place = Place::new();
    let root = place.at("root");
    fs::create_dir(root.join("fixed")).expect("made");
    fs::write(root.join("fixed/there"), b"old").expect("written");
    fs::write(root.join("closed"), b"nobody's").expect("written");
    fs::set_permissions(root.join("closed"), fs::Permissions::from_mode(0o0)).expect("set");
    // Errors that root gets, too: a read-only mount, and a process without capabilities.
    let script = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec setpriv --bounding-set=-all --inh-caps=-all \"$@\"";
    let Some(before) = namespace(script, root.join("fixed").to_str().expect("text")) else { return };
    let server = place.serve(&before, &[]);
    let fixed = remote(server.port, "fixed/there");
    fs::write(place.at("new"), b"new").expect("written");
    let local_security = "11 access request violates local security";
    for arguments in [
        &["put", "-q", "new", &fixed][..],
        &["append", "-q", "new", &fixed],
        &["rm", &fixed],
        &["mv", &fixed, "fixed/elsewhere"],
        &["chattr", "--legal", "ours", &fixed],
        &["mkdir", &remote(server.port, "fixed/made")],
    ] {
        place.fails(arguments, local_security);
    }
    place.fails(&["get", "-q", &remote(server.port, "closed"), "stolen"], local_security);
    for file in ["fixed/there", "fixed/made", "closed"] {
        server.log.refused(11, file);
    }
    same(&root.join("fixed/there"), b"old");
    assert!(!place.at("stolen").exists());
    place.run(&["get", "-q", &fixed, "back"]);
    same(&place.at("back"), b"old");
}

#[test]
fn a_get_is_of_one_state_of_the_file_or_of_none() {
    let place = Place::new();
    let server = place.serve(&[], &[]);
    let contents = noise(8_000_000);
    let file = place.at("root/there");
    // Truncated, extended, overwritten: reported. Replaced by another file: the old one is read to its end.
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
        let child = place.command(&get).stderr(Stdio::piped()).spawn().expect("it was built");
        relay.wait_held();
        change(&file);
        relay.go_on();
        said(child.wait_with_output().expect("it ends"), "5030 local failure, data corrupted");
        server.log.wait_count("refused", number + 1);
        server.log.refused(5030, "there");
        assert_eq!(server.log.count("refused"), number + 1, "{how}");
        assert!(!place.at("back").exists(), "{how}");
    }
    fs::write(&file, &contents).expect("written");
    let relay = Relay::new(server.port, vec![Fate::Hold { up: u64::MAX, down: 1_000_000 }]);
    let get = ["get", "-q", "--retries", "0", &remote(relay.port, "there"), "back"];
    let child = place.command(&get).stderr(Stdio::piped()).spawn().expect("it was built");
    relay.wait_held();
    fs::write(place.at("root/other"), b"another").expect("written");
    fs::rename(place.at("root/other"), &file).expect("renamed");
    relay.go_on();
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    same(&place.at("back"), &contents);
}

#[test]
fn a_peer_that_stops_in_the_middle_is_cut_and_can_go_on() {
    let place = Place::new();
    let server = place.serve(&[], &["--silence-max", "1"]);
    let contents = noise(4_000_000);
    fs::write(place.at("here"), &contents).expect("written");
    fs::write(place.at("root/there"), b"old").expect("written");
    let relay = Relay::new(server.port, vec![Fate::Hold { up: 2_500_000, down: u64::MAX }]);
    let there = remote(relay.port, "there");
    let put = ["put", "-q", "--retries", "0", "--checkpoint-bytes", "200000", "here", &there];
    let child = place.command(&put).stderr(Stdio::piped()).spawn().expect("it was built");
    relay.wait_held();
    let line =
        server.log.wait("that it was cut", |line| line["message"] == "idle for too long: disconnected");
    assert_eq!((line["user"].as_str(), line["file"].as_str()), (Some("eve"), Some("there")));
    server.log.wait("that it ended", |line| line["message"] == "ended" && line["files"] == 1);
    same(&place.at("root/there"), b"old");
    assert_eq!(place.left(), 1, "what came waits to be gone on with");
    // The file is not locked any more.
    place.run(&["stat", &remote(server.port, "there")]);
    relay.go_on();
    said(child.wait_with_output().expect("it ends"), "1011 lower layer failure; use --resume to continue");
    let again =
        ["put", "--resume", "--json", "--retries", "0", "--checkpoint-bytes", "200000", "here", &there];
    assert!(place.run(&again).contains("\"resumed\":true"));
    same(&place.at("root/there"), &contents);
    assert_eq!(place.left(), 0);
}

#[test]
fn a_peer_that_dies_without_recovery_leaves_nothing() {
    let place = Place::new();
    let server = place.serve(&[], &[]);
    fs::write(place.at("here"), noise(4_000_000)).expect("written");
    fs::write(place.at("root/there"), b"old").expect("written");
    let relay = Relay::new(server.port, vec![Fate::Cut { up: 2_500_000, down: u64::MAX }]);
    let there = remote(relay.port, "there");
    place
        .fails(&["put", "-q", "--no-recovery", "--retries", "0", "here", &there], "1011 lower layer failure");
    server.log.wait("that it ended", |line| line["message"] == "ended" && line["files"] == 1);
    same(&place.at("root/there"), b"old");
    assert_eq!(place.left(), 0);
}

#[test]
fn guesses_are_few_however_many_come_at_once() {
    let place = Place::new();
    let server = place.serve(&[], &[]);
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
    // Three are free, four are judged at a time; and each doubles the wait, which ends at four seconds.
    assert!((3..=12).contains(&wrong), "{wrong} guesses were judged");
    server.log.wait_count("login refused", wrong);
    assert_eq!(server.log.count("login refused"), wrong);
    server.log.wait("that some were not judged", |line| line["message"] == "too many failures: not verified");
    // The right one is not judged from here either, as long as the wait lasts. On a busy machine that may be
    // over before it comes, and begins anew with another guess.
    let is_held = (0..5).any(|_| {
        guess().wait_with_output().expect("it ends");
        let output = place.try_run(&["ls", &home]);
        String::from_utf8_lossy(&output.stderr).contains("2000 association with user not allowed")
    });
    assert!(is_held, "whoever knows the password is judged right after guesses");
    let line = server.log.wait("who guessed", |line| line["message"] == "login refused");
    assert_eq!((line["user"].as_str(), line["refusal"].as_str()), (Some("eve"), Some("Password")));
}

#[test]
fn who_comes_after_others_costs_no_more_than_they_did() {
    let place = Place::new();
    let server = place.serve(&[], &[]);
    let home = remote(server.port, "");
    (0..2).for_each(|_| drop(place.run(&["ls", &home])));
    let before = server.status_kib("VmRSS");
    (0..10).for_each(|_| drop(place.run(&["ls", &home])));
    let grown = server.status_kib("VmRSS").saturating_sub(before);
    // Judging one password takes 19 MiB.
    assert!(grown < 16 << 10, "ten associations one after another left {grown} KiB");
}

#[test]
fn who_speaks_tls_and_who_does_not_are_told_of_when_they_meet() {
    let place = Place::new();
    let certificate = rcgen::generate_simple_self_signed(vec!["127.0.0.1".into()]).expect("a certificate");
    fs::write(place.at("cert.pem"), certificate.cert.pem()).expect("written");
    fs::write(place.at("key.pem"), certificate.signing_key.serialize_pem()).expect("written");
    let secure = place.serve(&[], &["--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    place.fails(
        &["ls", "--timeout", "20", &remote(secure.port, "")],
        "it closed the connection before it answered",
    );
    let line = secure.log.wait("that there is no TLS", |line| line["message"] == "TLS handshake failed");
    assert!(line["error"].as_str().is_some_and(|error| error.contains("InvalidContentType")), "{line}");
    let plain = place.serve(&[], &[]);
    place.fails(
        &["ls", "--tls", "--tls-ca", "cert.pem", "--timeout", "20", &remote(plain.port, "")],
        "cannot connect",
    );
    let line =
        plain.log.wait("what was broken", |line| line["message"] == "ended" && !line["broken"].is_null());
    assert_eq!((line["files"].as_u64(), line["broken"].as_str()), (Some(0), Some("version")));
    // Both still serve.
    place.run(&["ls", "--tls", "--tls-ca", "cert.pem", &remote(secure.port, "")]);
    place.run(&["ls", &remote(plain.port, "")]);
}

/// Lets this process have as many descriptors as it may: how many that is.
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
fn a_crowd_that_says_nothing_keeps_nobody_out() {
    let crowd = descriptors().saturating_sub(200).min(10_000);
    if crowd < 10_000 {
        eprintln!("REDUCED: only {crowd} connections, as the limit of descriptors has it");
    }
    let place = Place::new();
    let server = place.serve(&[], &[]);
    fs::write(place.at("here"), noise(1_000_000)).expect("written");
    // A connection request, whole; and behind it the half of a TPKT that says it has 1000 bytes.
    let request = [3, 0, 0, 11, 6, 0xe0, 0, 0, 0, 1, 0];
    let half = [&request[..], &[3, 0, 3, 0xe8, 2, 0xf0, 0x80, 13, 0xff]].concat();
    let says: [&[u8]; 4] = [&[], &request[..5], &request, &half];
    let before = server.status_kib("VmRSS");
    let mut all = Vec::with_capacity(crowd);
    for number in 0..crowd {
        let mut socket = TcpStream::connect(("127.0.0.1", server.port)).expect("it listens");
        // A client that was disconnected already cannot be written to.
        let _ = socket.write_all(says[number % says.len()]);
        all.push(socket);
        if number % (crowd / 4) == crowd / 8 {
            place.run(&["put", "-q", "--timeout", "20", "here", &remote(server.port, "there")]);
        }
    }
    place.run(&["get", "-q", "--timeout", "20", &remote(server.port, "there"), "back"]);
    same(&place.at("back"), &noise(1_000_000));
    let grown = server.status_kib("VmRSS").saturating_sub(before);
    assert!(grown < 200 << 10, "{crowd} connections took {grown} KiB");
    // 1024 unauthenticated connections with two descriptors each, and the server's own.
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
fn no_spelling_of_a_name_leads_out_and_each_attempt_is_told() {
    let place = Place::new();
    fs::write(place.at("secret"), b"not for peers").expect("written");
    fs::create_dir(place.at("root/d")).expect("made");
    symlink("../secret", place.at("root/link")).expect("linked");
    symlink("..", place.at("root/up")).expect("linked");
    symlink("../secret", place.at("root/d/link")).expect("linked");
    let server = place.serve(&[], &[]);
    fs::write(place.at("here"), b"new").expect("written");
    let long = "x/".repeat(600) + "secret";
    let wide = "x".repeat(256);
    // The name as the server sees it, and as it is written in the address.
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
            let output = place.try_run(arguments);
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
    // Names that look like a path upwards, but are ordinary names.
    for written in ["..%5csecret", "%252e%252e", "%ef%bc%8e%ef%bc%8e", "...", "~", "$HOME"] {
        place.run(&["put", "-q", "here", &remote(server.port, written)]);
        place.run(&["rm", &remote(server.port, written)]);
    }
    same(&place.at("secret"), b"not for peers");
    assert!(!place.at("stolen").exists());
    let mut beside: Vec<_> =
        fs::read_dir(&place.folder).expect("there").map(|entry| entry.expect("read").file_name()).collect();
    beside.sort();
    assert_eq!(beside, ["here", "root", "secret", "users.toml"]);
}

/// Bytes of a long transfer: more with `KIBAN_HARM_BYTES`.
fn long_bytes() -> usize {
    std::env::var("KIBAN_HARM_BYTES").ok().and_then(|text| text.parse().ok()).unwrap_or(64_000_000)
}

#[test]
fn a_long_transfer_that_is_cut_anywhere_does_not_send_all_again() {
    const CHECKPOINT_BYTES: u64 = 4 << 20;
    let place = Place::new();
    let server = place.serve(&[], &[]);
    let bytes = long_bytes();
    let contents = noise(bytes);
    fs::write(place.at("here"), &contents).expect("written");
    fs::write(place.at("root/there"), b"old").expect("written");
    let of = |parts: u64| bytes as u64 * parts / 100;
    // In the first piece, early, in the middle, and just before the end.
    let cuts = [1, 12, 37, 49];
    // Three checkpoints may be unanswered, one is being made, and sockets and the relay hold some.
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
            said(place.try_run(&words), "1011 lower layer failure; use --resume to continue");
            // Until the server knows of the cut, the lost association has the file.
            server.log.wait_count("ended", ended + 1);
        }
        let done = place.run(&words);
        let (up, down) = relay.passed();
        let passed = if put { up } else { down };
        eprintln!("{way:?}: {bytes} bytes, {passed} passed; {done}");
        same(&place.at(if put { "root/there" } else { "back" }), &contents);
        assert!(passed < most(cuts.len() as u64), "{passed} bytes passed of a file of {bytes}");
        assert_eq!(place.left(), 0);
    }
}

/// A file longer than 4 GiB, with `KIBAN_HARM_LARGE` set: needs 9 GiB of space and a minute.
#[test]
fn a_file_of_more_than_four_gib_goes_there_and_comes_back_and_is_gone_on_with() {
    if std::env::var_os("KIBAN_HARM_LARGE").is_none() {
        eprintln!("SKIPPED: KIBAN_HARM_LARGE is not set");
        return;
    }
    const BYTES: u64 = (4 << 30) + (64 << 20);
    let place = Place::new();
    let server = place.serve(&[], &[]);
    let tail = noise(48 << 20);
    let local = fs::File::create(place.at("here")).expect("made");
    local.set_len(BYTES).expect("room");
    local.write_all_at(b"front", 0).expect("written");
    local.write_all_at(&tail, BYTES - tail.len() as u64).expect("written");
    let check = |name: &str| {
        let file = fs::File::open(place.at(name)).expect("there");
        assert_eq!(file.metadata().expect("known").len(), BYTES);
        let mut read = vec![0; tail.len()];
        file.read_exact_at(&mut read, BYTES - tail.len() as u64).expect("read");
        assert!(read == tail, "{name}: another tail");
        // On both sides of 2^32: no offset has lost its upper half.
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
        let first = place.try_run(&[&way[..1], &options, &way[1..]].concat());
        said(first, "use --resume to continue");
        let (up, down) = relay.passed();
        let before = if put { up } else { down };
        let second = place.run(&[&way[..1], &options, &["--resume"], &way[1..]].concat());
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
    // Each has a socket at either end, and the server a directory.
    assert!(descriptors() > 2 * ASSOCIATIONS, "the limit of descriptors is too low for this test");
    let place = Place::new();
    // A hash of "secret" that costs nothing to compare with: what is looked at is what associations hold.
    let cheap =
        "$argon2id$v=19$m=8,t=1,p=1$a2liYW4tdGVzdHMtc2FsdA$Jvf1PpJ6DVMpBPguhtcFSR+A3s8zvbMdkICkAIoEVlA";
    fs::write(place.at("users.toml"), format!("[users.eve]\npassword = \"{cheap}\"\nrights = \"all\"\n"))
        .expect("written");
    let server = place.serve(&[], &[]);
    let config = ClientConfig {
        host: "127.0.0.1".into(),
        port: server.port,
        local: place.at("root"),
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
        timing: false,
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("events can be had");
    runtime.block_on(async {
        let mut clients = Vec::with_capacity(ASSOCIATIONS);
        for _ in 0..ASSOCIATIONS {
            clients.push(Client::connect(&config).await.expect("there is room"));
        }
        let held = server.status_kib("VmHWM");
        assert!(held < 256 << 10, "{ASSOCIATIONS} associations take {held} KiB");
        eprintln!("{ASSOCIATIONS} associations: {held} KiB");
        // The first and the last of them are there.
        for client in [clients.swap_remove(0), clients.pop().expect("the last")] {
            client.close().await;
        }
    });
    server.log.wait_count("ended", 2);
}

#[test]
fn every_thread_of_a_server_is_confined_and_users_are_still_read_again() {
    let place = Place::new();
    let server = place.serve(&[], &[]);
    let dropped = server.log.wait("what it drops", |line| line["message"] == "privileges dropped");
    assert_eq!(
        (&dropped["capabilities"], &dropped["landlock"], &dropped["seccomp"]),
        (&"none".into(), &"on".into(), &"on".into())
    );
    let confined = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).expect("it runs");
        let texts = tasks.map(|task| fs::read_to_string(task.expect("it runs").path().join("status")));
        // A thread may end meanwhile.
        let texts: Vec<String> = texts.filter_map(Result::ok).collect();
        assert!(texts.len() >= 2, "it has several threads");
        for text in &texts {
            for line in ["CapPrm:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n"] {
                assert!(text.contains(line), "{text}");
            }
        }
    };
    confined();
    fs::write(place.at("own"), "words").expect("room");
    place.run(&["put", "own", &remote(server.port, "theirs")]);
    place.run(&["passwd", "users.toml", "joe"]);
    let hang_up = Command::new("kill").args(["-HUP", &server.pid().to_string()]).status().expect("kill");
    assert!(hang_up.success());
    let read = server.log.wait("users", |line| line["message"] == "users file reloaded");
    assert_eq!(read["users"], 3);
    place.run(&["get", &remote(server.port, "theirs"), "back"]);
    same(&place.at("back"), b"words");
    confined();
}
