//! Unmodified RDMA programs on the NICs of two running boards (`kiban verbs --board`).

use super::board_nic::RDMA;
use super::rdma::two_boards;
use crate::common::{KIBAN, TestDir, enter};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

#[path = "../../../../verbs/tests/common/libraries.rs"]
#[allow(dead_code, reason = "this test needs only the libraries")]
mod libraries;

/// How often a client is started before its server must have begun to listen.
const ATTEMPTS: usize = 200;

/// Returns a command that runs a program on a board's NIC.
fn on_board(dir: &TestDir, folder: &Path, transport: &str, program: &[&str]) -> Command {
    let mut command = Command::new(KIBAN);
    command.args(["verbs", "--board", "lab", "--transport", transport, "--"]).args(program);
    command.env("XDG_RUNTIME_DIR", &dir.0).env("KIBAN_VERBS_LIB", folder).env("KIBAN_LOG", "info");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// Runs a client until its server listens. Returns the output of both.
fn run(mut server: Child, mut client: impl FnMut() -> Command, what: &str) -> (Output, Output) {
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        let ended = client().output().expect("the program is installed");
        if ended.status.success() {
            return (server.wait_with_output().expect("it ends"), ended);
        }
        last = words(&ended);
        if server.try_wait().expect("it is a child of this process").is_some() {
            break;
        }
    }
    let _ = server.kill();
    let server = server.wait_with_output().expect("it ends");
    panic!("{what}: the client: {last}\nthe server: {}", words(&server));
}

/// Programs, and the arguments of the server and of the client; `HOST` is the address of the server's host,
/// and `BOARD` that of its board.
const PROGRAMS: [(&str, &str, &str, &str); 17] = [
    ("ib", "ibv_rc_pingpong -d kiban0 -g 0 -n 200", "", "HOST"),
    ("ib", "ibv_rc_pingpong -d kiban0 -g 0 -n 200 -e -s 70000", "", "HOST"),
    ("ib", "rping -C 20 -S 500", "-s -a BOARD", "-c -a BOARD -V"),
    ("ib", "ib_write_bw -d kiban0 -n 200 -s 65536", "", "HOST"),
    ("ib", "ib_write_bw -R -d kiban0 -n 200 -s 65536", "", "BOARD"),
    ("ib", "ib_read_bw -d kiban0 -n 200 -s 65536", "", "HOST"),
    ("ib", "ib_send_bw -d kiban0 -n 200 -s 65536", "", "HOST"),
    ("ib", "ib_send_lat -R -d kiban0 -n 200", "", "BOARD"),
    ("ib", "ib_atomic_bw -d kiban0 -n 100", "", "HOST"),
    ("iwarp", "ib_read_bw -R -d kiban0 -n 200 -s 65536", "", "BOARD"),
    ("iwarp", "rping -C 20 -S 500", "-s -a BOARD", "-c -a BOARD -V"),
    ("roce", "ib_write_bw -R -d kiban0 -n 200 -s 65536", "", "BOARD"),
    ("efe", "rping -C 20 -S 500", "-s -a BOARD", "-c -a BOARD -V"),
    ("efe", "ib_write_bw -R -d kiban0 -n 200 -s 65536", "", "BOARD"),
    ("efe", "ib_read_bw -d kiban0 -n 200 -s 65536", "", "HOST"),
    ("efe", "ib_send_bw -d kiban0 -n 200 -s 65536", "", "HOST"),
    ("efe", "ibv_rc_pingpong -d kiban0 -g 0 -n 200", "", "HOST"),
];

#[test]
fn unmodified_programs_use_the_nics_of_two_boards() {
    if !enter() {
        return;
    }
    let folder = libraries::linked("up-verbs");
    let (near, far) = (TestDir::new("verbs-near"), TestDir::new("verbs-far"));
    let [near_board, far_board] = two_boards(&near, &far, RDMA);
    let only = std::env::var("KIBAN_PROGRAMS").unwrap_or_default();
    for (transport, program, server, client) in PROGRAMS {
        if !program.contains(&only) {
            continue;
        }
        let filled = |more: &str| {
            let all = format!("{program} {more}").replace("HOST", "127.0.0.1").replace("BOARD", "10.1.0.2");
            all.split_whitespace().map(str::to_owned).collect::<Vec<String>>()
        };
        let command = |dir: &TestDir, arguments: &[String]| {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            on_board(dir, &folder, transport, &arguments)
        };
        let serving = command(&far, &filled(server)).spawn().expect("the program is installed");
        let what = format!("{program} ({transport})");
        let (served, asked) = run(serving, || command(&near, &filled(client)), &what);
        assert!(served.status.success(), "{what}: {}\n{}\n{}", words(&served), words(&asked), far.log());
        eprintln!("{what} works");
    }
    // The data went through the boards, and nothing is left of the programs.
    let counters = far_board.status()["counters"]["rdma"].clone();
    assert!(counters["placed_bytes"].as_u64().is_some_and(|bytes| bytes > 10 << 20), "{counters}");
    for (board, dir) in [(&near_board, &near), (&far_board, &far)] {
        board.until("the number of queue pairs", |status| status["services"][0]["sessions"] == 0);
        assert!(!dir.log().contains("panicked"), "{}", dir.log());
    }
}

/// Returns the processor time of the children of a shell whose last line of output is that of `times`, in
/// seconds.
fn seconds_of_children(output: &Output) -> f64 {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().last().unwrap_or_default();
    let seconds = |time: &str| {
        let (minutes, seconds) = time.trim_end_matches('s').split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
    };
    let times: Option<Vec<f64>> = line.split_whitespace().map(seconds).collect();
    times.unwrap_or_else(|| panic!("no times: {text}")).iter().sum()
}

#[test]
fn the_target_program_of_writes_uses_no_processor_time_for_them() {
    if !enter() {
        return;
    }
    let folder = libraries::linked("up-verbs-cpu");
    let (near, far) = (TestDir::new("verbs-cpu-near"), TestDir::new("verbs-cpu-far"));
    let [_near_board, far_board] = two_boards(&near, &far, RDMA);
    let measure = |count: &str, is_on_board: bool| {
        // Without `-R`, the server of ib_write_bw waits in read(2) until the client is done.
        let arguments = ["ib_write_bw", "-d", "kiban0", "-s", "65536", "-n", count];
        let mut kiban = vec![KIBAN, "verbs", "--transport", "ib"];
        if is_on_board {
            kiban.extend(["--board", "lab"]);
        }
        kiban.push("--");
        let serve = [&kiban[..], &arguments].concat().join(" ");
        let prepare = |command: &mut Command, dir: &TestDir| {
            command.env("XDG_RUNTIME_DIR", &dir.0).env("KIBAN_VERBS_LIB", &folder);
            command.env("KIBAN_SHARED_MEMORY", "0");
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        };
        let mut server = Command::new("sh");
        server.args(["-c", &format!("{serve}; code=$?; times; exit $code")]);
        prepare(&mut server, &far);
        let server = server.spawn().expect("there is a shell");
        let client = || {
            let mut client = Command::new(kiban[0]);
            client.args(&kiban[1..]).args(arguments).arg("127.0.0.1");
            prepare(&mut client, &near);
            client
        };
        let (served, asked) = run(server, client, "ib_write_bw");
        assert!(served.status.success(), "{}{}", words(&served), words(&asked));
        seconds_of_children(&served)
    };
    let is_less = || {
        let before = far_board.status()["counters"]["rdma"]["placed_bytes"].as_u64().unwrap_or(0);
        // What starting the program costs is the same in both runs.
        let on_board = measure("4000", true) - measure("5", true);
        let after = far_board.status()["counters"]["rdma"]["placed_bytes"].as_u64().unwrap_or(0);
        assert!(after - before > 200 << 20, "{before} to {after} bytes");
        let own = measure("4000", false) - measure("5", false);
        println!(
            "CPU time of the target of 4000 Writes of 64 KiB: {on_board:.3} s on the board's NIC, {own:.3} s on its own"
        );
        on_board < own / 2.0
    };
    // On a busy machine, starting the program does not always cost the same, so one of several runs counts.
    assert!((0..5).any(|_| is_less()), "the target's process handles Writes itself");
}

#[test]
fn what_a_boards_nic_does_not_have_is_refused_and_named() {
    if !enter() {
        return;
    }
    let folder = libraries::linked("up-verbs-refused");
    let dir = TestDir::new("verbs-refused");
    let config = format!("{}{RDMA}", crate::common::PORT);
    let _board = dir.up(&config);
    let told = |transport: &str, program: &[&str]| {
        let output = on_board(&dir, &folder, transport, program).output().expect("it is installed");
        (output.status.success(), words(&output))
    };
    let (is_well, text) = told("ib", &["ibv_devinfo", "-v"]);
    assert!(is_well && text.contains("::ffff:10.9.0.2") && !text.contains("kiban1"), "{text}");
    for (transport, program, reason) in [
        ("ib", &["ibv_ud_pingpong", "-g", "0"][..], "this type of queue pair on the NIC of a board"),
        ("roce", &["ibv_xsrq_pingpong", "-g", "0"], "extended reliable connections"),
    ] {
        let (is_well, text) = told(transport, program);
        assert!(!is_well && text.contains(reason), "{program:?}: {text}");
    }
    // A board that does not run.
    let mut absent = Command::new(KIBAN);
    absent.args(["verbs", "--", "ibv_devinfo"]).env("KIBAN_BOARD", "moon");
    absent.env("XDG_RUNTIME_DIR", &dir.0).env("KIBAN_VERBS_LIB", &folder);
    let text = words(&absent.output().expect("it is installed"));
    assert!(
        text.contains("cannot use the NIC of the board moon: no board moon accepts users of its RDMA NIC"),
        "{text}"
    );
}
