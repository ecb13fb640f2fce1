//! Boards under systemd: the units of docs/operations.md, and the watchdog.

use crate::common::{ECHO, PORT, TestDir, connect, echo, enter, run, spawn, text};
use crate::security::sandbox::{NET_ADMIN, NET_RAW, nobodys, threads};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Returns the systemd unit of the long-running service that is quoted on a documentation page.
fn unit(page: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let page = std::fs::read_to_string(path).expect("it is in the repository");
    let mut units = page.split("```ini\n").skip(1).filter_map(|rest| rest.split("```").next());
    units.find(|unit| unit.contains("Restart=")).expect("a unit").to_owned()
}

/// Writes the unit to a file, after changing the program's path to that of the built program.
fn unit_file(dir: &TestDir, page: &str, name: &str) -> PathBuf {
    dir.write(name, &unit(page).replace("/usr/local/bin/kiban", crate::common::KIBAN))
}

fn has_systemd() -> bool {
    let is_there = std::process::Command::new("systemd-analyze").arg("--version").output().is_ok();
    if !is_there {
        println!("skipped: systemd-analyze is not there (Debian: systemd)");
    }
    is_there
}

#[test]
fn systemd_accepts_the_documented_units() {
    if !has_systemd() {
        return;
    }
    let dir = TestDir::new("unit");
    for (page, name) in [("operations.md", "kiban@.service"), ("ftam.md", "kiban-ftam.service")] {
        let file = unit_file(&dir, page, name);
        let output = run("systemd-analyze", &["verify", "--man=no", &file.display().to_string()]);
        let told = text(&output);
        let about = |line: &&str| line.contains("kiban");
        assert_eq!(told.lines().find(about), None, "{told}");
        assert!(output.status.success(), "{told}");
    }
    // Verify the check itself: systemd-analyze must report an unknown key.
    let wrong =
        dir.write("kiban-wrong@.service", &unit("operations.md").replace("WatchdogSec", "WatchdagSec"));
    let output = run("systemd-analyze", &["verify", "--man=no", &wrong.display().to_string()]);
    assert!(text(&output).contains("WatchdagSec"), "{}", text(&output));
}

#[test]
fn the_units_have_a_low_exposure_score() {
    if !has_systemd() {
        return;
    }
    let dir = TestDir::new("unit-exposure");
    let judge = |file: &Path, tenths: u32| {
        let threshold = format!("--threshold={tenths}");
        run(
            "systemd-analyze",
            &["security", "--offline=true", "--no-pager", &threshold, &file.display().to_string()],
        )
    };
    // The expected exposure levels from `systemd-analyze security`, in tenths (its scale is 0 to 10). The
    // remaining exposure is due to the capabilities and the network access that boards need.
    for (page, name, tenths) in
        [("operations.md", "kiban@.service", 25), ("ftam.md", "kiban-ftam.service", 20)]
    {
        let output = judge(&unit_file(&dir, page, name), tenths);
        assert!(output.status.success(), "{}", text(&output));
        assert!(text(&output).contains("Overall exposure level"), "{}", text(&output));
    }
    // Verify the check itself: a unit that runs as root without the restrictions has a far higher level.
    let open = unit("operations.md")
        .replace("DynamicUser", "#")
        .replace("User=", "#")
        .replace("SystemCallFilter", "#");
    let output = judge(&dir.write("kiban-open@.service", &open), 25);
    assert!(!output.status.success(), "{}", text(&output));
}

/// Returns the system calls that a unit allows. This host's systemd expands the sets (@system-service, …).
fn allowed(unit: &str) -> BTreeSet<String> {
    fn expanded(word: &str) -> BTreeSet<String> {
        if !word.starts_with('@') {
            return [word.to_owned()].into();
        }
        let told = text(&run("systemd-analyze", &["syscall-filter", "--no-pager", word]));
        let words =
            told.lines().skip(1).map(str::trim).filter(|word| !word.is_empty() && !word.starts_with('#'));
        words.flat_map(expanded).collect()
    }
    let mut all = expanded("@default");
    for line in unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")) {
        for word in line.trim_start_matches('~').split_whitespace() {
            match line.starts_with('~') {
                true => all = &all - &expanded(word),
                false => all.extend(expanded(word)),
            }
        }
    }
    all
}

#[test]
fn the_unit_allows_every_system_call_of_a_board() {
    if !has_systemd() || !enter() {
        return;
    }
    if std::process::Command::new("strace").arg("--version").output().is_err() {
        println!("skipped: strace is not there (Debian: strace)");
        return;
    }
    let dir = TestDir::new("unit-calls");
    let trace = dir.0.join("trace");
    let services = "[[service]]\nkind = \"attach\"\n[[service]]\nkind = \"sockets\"\n";
    let config = format!("{PORT}{ECHO}{services}[metrics]\nlisten = \"127.0.0.1:9464\"\n");
    let mut board = dir.up_by(&config, |command| {
        let mut traced = std::process::Command::new("strace");
        traced.args(["-f", "-qq", "-o"]).arg(&trace).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => traced.env(name, value),
                None => traced.env_remove(name),
            };
        }
        let log = std::fs::File::create(dir.0.join("log")).expect("room");
        spawn({
            traced.current_dir(&dir.0).stderr(log);
            traced
        })
    });
    echo(&mut connect("10.9.0.2:7"), b"hello");
    assert!(text(&run("curl", &["-sSf", "http://127.0.0.1:9464/metrics"])).contains("kiban_info"));
    let output = dir.kiban(&["capture", "lan", "lan.pcap", "--seconds", "100ms"]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(dir.kiban(&["reload"]).status.success());
    assert!(run("ip", &["link", "del", "kiban0"]).status.success());
    board.until("it is made again", |status| {
        status["ports"][0]["state"] == "up" && status["ports"][0]["losses"] == 1
    });
    assert!(dir.kiban(&["down"]).status.success());
    assert_eq!(board.wait(), Some(0), "{}", dir.log());
    // Each line from strace contains a process and either a call with its arguments, a signal, or the end of
    // an interrupted call.
    let trace = std::fs::read_to_string(&trace).expect("it was written");
    let calls = trace.lines().filter_map(|line| {
        let call = line.split_once(char::is_whitespace)?.1.trim_start().split_once('(')?.0;
        call.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
            .then_some(call)
    });
    let calls: BTreeSet<String> = calls.map(str::to_owned).collect();
    assert!(calls.contains("capset") && calls.contains("landlock_restrict_self"), "{calls:?}");
    let refused: Vec<_> = calls.difference(&allowed(&unit("operations.md"))).cloned().collect();
    assert_eq!(refused, Vec::<String>::new());
}

/// Runs a board as an unprivileged user with the capabilities granted by the unit.
#[test]
fn a_board_runs_with_the_capabilities_of_the_unit_and_drops_them() {
    if !enter() || !rustix::process::geteuid().is_root() {
        println!("skipped: it takes root to become somebody else");
        return;
    }
    let unit = unit("operations.md");
    let set = |key: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(key)).expect("the unit says it");
        let each = line
            .split_whitespace()
            .map(|name| format!(",+{}", name.trim_start_matches("CAP_").to_lowercase()));
        format!("-all{}", each.collect::<String>())
    };
    let (ambient, bounding) = (set("AmbientCapabilities="), set("CapabilityBoundingSet="));
    let grants = [
        format!("--inh-caps={ambient}"),
        format!("--ambient-caps={ambient}"),
        format!("--bounding-set={bounding}"),
        "--no-new-privs".to_owned(),
    ];
    let dir = TestDir::new("unit-capabilities");
    let board = dir.up_by(&format!("{PORT}{ECHO}"), nobodys(&dir, &grants));
    let its = threads(board.child.id());
    assert_eq!([its.permitted, its.effective, its.bounding], [NET_ADMIN, NET_ADMIN, NET_ADMIN | NET_RAW]);
    assert_eq!((its.no_new_privs, its.seccomp), (1, 2));
    echo(&mut connect("10.9.0.2:7"), b"hello");
    // The capability that was kept is sufficient to recreate the device.
    assert!(run("ip", &["link", "del", "kiban0"]).status.success());
    board.until("it is made again", |status| {
        (&status["ports"][0]["losses"], &status["ports"][0]["state"]) == (&1.into(), &"up".into())
    });
    echo(&mut connect("10.9.0.2:7"), b"hello again");
}

#[test]
fn a_running_board_notifies_the_watchdog_and_a_stopped_one_does_not() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("watchdog");
    let board = dir.up_by(&format!("{PORT}{ECHO}"), |mut command| {
        command.env("WATCHDOG_USEC", "200000");
        spawn(command)
    });
    for _ in 0..3 {
        board.expect("WATCHDOG=1");
    }
    board.signal("-STOP");
    // Read the messages that were sent before the process was stopped; on a busy machine, there may be many.
    // After that, none may arrive for five intervals.
    let silence = Duration::from_millis(500);
    board.notify.set_read_timeout(Some(silence)).expect("a socket");
    let mut heard = 0;
    while board.notify.recv(&mut [0; 64]).is_ok() {
        heard += 1;
        assert!(heard < 100, "it is said that it works while it stands still");
    }
    board.signal("-CONT");
    board.notify.set_read_timeout(Some(crate::common::LONG)).expect("a socket");
    board.expect("WATCHDOG=1");
}
