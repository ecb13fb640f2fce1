//! Options and addresses of sockets on a board, as unmodified programs see them (`kiban run`).
//!
//! Requires  a C compiler for the preloaded library, python3.

use super::run::{SOCKETS, TOOLS, on_board, told};
use crate::common::{PORT, TestDir, enter, run, text};
use kiban_os::Clock;
use serde_json::Value;
use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

/// Runs a Python program on the board, with the kernel as its peer.
#[track_caller]
fn succeeds(name: &str, program: &str) {
    succeeds_with(name, program, "");
}

/// Runs a Python program like [`succeeds`], with further settings of the board. Returns the board's status at
/// the end.
#[track_caller]
fn succeeds_with(name: &str, program: &str, settings: &str) -> Value {
    succeeds_on(&format!("{PORT}{SOCKETS}{settings}"), name, program)
}

/// Runs a Python program like [`succeeds`], on a board with this configuration.
#[track_caller]
fn succeeds_on(config: &str, name: &str, program: &str) -> Value {
    let dir = TestDir::new(name);
    run("ip", &["link", "set", "lo", "up"]);
    let board = dir.up(config);
    let output = told(on_board(&dir, &["python3", "-c", &format!("{TOOLS}{program}")]));
    assert_eq!(text(&output), "all is well\n", "{}", dir.log());
    board.until("all streams have gone", |status| status["services"][0]["sessions"] == 0)
}

/// Sets a parameter of the kernel's TCP in this network namespace.
fn set_kernel(name: &str, value: &str) {
    let path = format!("/proc/sys/net/ipv4/{name}");
    std::fs::write(&path, value).unwrap_or_else(|error| panic!("{path}: {error}"));
}

#[test]
fn data_leaves_in_the_syn_with_the_kernel_as_server_and_as_client() {
    if enter() {
        // Both sides, client and server (tcp(7)).
        set_kernel("tcp_fastopen", "3");
        let status = succeeds_with("run-syn-data", include_str!("python/syn_data.py"), "");
        let tcp = &status["counters"]["tcp"];
        assert_eq!(tcp["fast_opens_out"], 7, "{tcp}");
        assert_eq!(tcp["fast_opens_in"], 3, "{tcp}");
    }
}

#[test]
fn ecn_is_negotiated_with_the_kernel_in_both_roles() {
    if enter() {
        set_kernel("tcp_ecn", "1");
        succeeds_with("run-ecn", include_str!("python/ecn.py"), "[tcp]\necn = \"on\"\n");
    }
}

#[test]
fn socket_options_act_on_the_boards_connection_are_stored_or_are_refused() {
    if enter() {
        succeeds("run-options", include_str!("python/options.py"));
    }
}

#[test]
fn options_that_are_set_before_connect_and_listen_keep_their_values() {
    if enter() {
        succeeds("run-kept", include_str!("python/kept.py"));
    }
}

#[test]
fn a_connection_whose_peer_does_not_answer_times_out() {
    if enter() {
        succeeds("run-timed-out", include_str!("python/timed_out.py"));
    }
}

#[test]
fn a_socket_for_ipv6_only_leaves_the_ipv4_addresses_to_others() {
    if !enter() {
        return;
    }
    let port = PORT.replace("\"10.9.0.2/24\"", "[\"10.9.0.2/24\", \"fd00:9::2/64\"]");
    let dir = TestDir::new("run-v6-only");
    run("ip", &["link", "set", "lo", "up"]);
    let _board = dir.up(&format!("{port}{SOCKETS}"));
    run("ip", &["-6", "addr", "add", "fd00:9::1/64", "dev", "kiban0", "nodad"]);
    // The board first makes sure that nobody else has its address.
    let clock = Clock::new();
    while !dir.kiban(&["ping", "fd00:9::1", "-c", "1"]).status.success() {
        assert!(clock.now().as_secs_f64() < 60.0, "{}", dir.log());
    }
    let program = format!("{TOOLS}{}", include_str!("python/v6_only.py"));
    let output = told(on_board(&dir, &["python3", "-c", &program]));
    assert_eq!(text(&output), "all is well\n", "{}", dir.log());
}

#[test]
fn short_segments_wait_while_more_data_is_announced() {
    if enter() {
        succeeds("run-more", include_str!("python/more.py"));
    }
}

#[test]
fn listeners_of_several_processes_share_a_port() {
    if enter() {
        succeeds("run-reuse-port", include_str!("python/reuse_port.py"));
    }
}

#[test]
fn datagram_sockets_of_several_processes_share_a_port() {
    if enter() {
        succeeds("run-reuse-port-datagrams", include_str!("python/reuse_port_datagrams.py"));
    }
}

#[test]
fn settings_of_datagram_sockets_do_not_queue_on_the_board() {
    if enter() {
        let config = format!("shards = 2\n{PORT}{SOCKETS}");
        succeeds_on(&config, "run-settings-flood", include_str!("python/settings_flood.py"));
    }
}

#[test]
fn datagram_sockets_join_and_leave_groups() {
    if enter() {
        succeeds("run-groups", include_str!("python/groups.py"));
    }
}

#[test]
fn urgent_data_passes_in_both_directions() {
    if enter() {
        succeeds("run-urgent", include_str!("python/urgent.py"));
    }
}

#[test]
fn inherited_and_passed_sockets_have_the_addresses_of_the_connection() {
    if enter() {
        succeeds("run-inherited", include_str!("python/inherited.py"));
    }
}

#[test]
fn programs_that_drop_root_keep_the_board() {
    if enter() {
        succeeds("run-drop-root", include_str!("python/drop_root.py"));
    }
}

/// Tools for programs that speak with the board themselves.
const RAW_TOOLS: &str = include_str!("python/raw_tools.py");

#[test]
fn idle_clients_of_a_channel_leave_places_for_others() {
    if enter() {
        let program = include_str!("python/channel_limits.py");
        succeeds("run-channel-limits", &format!("{RAW_TOOLS}{program}"));
    }
}

#[test]
fn over_a_channel_only_sockets_that_the_client_has_can_be_changed() {
    if !enter() {
        return;
    }
    for shards in [1, 2] {
        let config = format!("shards = {shards}\n{PORT}{SOCKETS}");
        let program = format!("{RAW_TOOLS}{}", include_str!("python/channel_access.py"));
        succeeds_on(&config, &format!("run-channel-access-{shards}"), &program);
    }
}

#[test]
fn connections_to_one_listener_leave_places_for_others() {
    if enter() {
        succeeds_with("run-crowd", include_str!("python/crowd.py"), "sessions = 128\n");
    }
}

/// Requests about a stream are for the shard that has it, and listeners are on all shards.
#[test]
fn sockets_behave_in_the_same_way_on_a_board_of_several_shards() {
    if !enter() {
        return;
    }
    for (name, program) in [
        ("options", include_str!("python/options.py")),
        ("more", include_str!("python/more.py")),
        ("reuse-port", include_str!("python/reuse_port.py")),
        ("reuse-port-datagrams", include_str!("python/reuse_port_datagrams.py")),
        ("urgent", include_str!("python/urgent.py")),
        ("inherited", include_str!("python/inherited.py")),
    ] {
        succeeds_on(&format!("shards = 3\n{PORT}{SOCKETS}"), &format!("shards-{name}"), program);
    }
}

/// Returns the options in the table of docs/attach.md whose results differ from those of Linux.
fn documented_differences() -> BTreeSet<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/attach.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let (_, section) = page.split_once("#### Results that differ from Linux\n").expect("the section");
    let table =
        section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let first_cells = table.filter_map(|line| line.split('|').nth(1));
    first_cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

#[test]
fn the_results_of_all_options_are_those_of_linux_except_for_the_documented_ones() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("run-table");
    run("ip", &["link", "set", "lo", "up"]);
    let _board = dir.up(&format!("{PORT}{SOCKETS}"));
    super::run::silent_peer();
    let program = dir.0.join("options").display().to_string();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/up/programs/options.c");
    let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    cc.args(["-Wall", "-Wextra", "-Werror", "-O1", source, "-o", &program]);
    let output = told(cc);
    assert!(output.status.success(), "{}", text(&output));
    let system = run(&program, &["10.9.0.1", "5000", "10.9.0.1"]);
    let board = told(on_board(&dir, &[&program, "10.9.0.1", "5000", "10.9.0.2"]));
    assert!(system.status.success() && board.status.success(), "{}{}", text(&system), text(&board));
    let (system, board) = (text(&system), text(&board));
    assert_eq!(system.lines().count(), board.lines().count());
    let different: Vec<_> =
        system.lines().zip(board.lines()).filter(|(system, board)| system != board).collect();
    let names: BTreeSet<String> =
        different.iter().filter_map(|(line, _)| line.split(' ').nth(1)).map(str::to_owned).collect();
    assert_eq!(names, documented_differences(), "the system, and the board: {different:#?}");
}

/// Connects to the host's listener. A statically linked program does so over the host's network.
const CONNECTS: &str = "
#include <arpa/inet.h>
#include <unistd.h>
int main(void) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(5000)};
    inet_pton(AF_INET, \"10.9.0.1\", &name.sin_addr);
    return connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&name, sizeof name) ? 1 : 0;
}
";

#[test]
fn programs_that_would_use_the_hosts_network_are_not_started() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("run-static");
    run("ip", &["link", "set", "lo", "up"]);
    let _board = dir.up(&format!("{PORT}{SOCKETS}"));
    let listener = std::net::TcpListener::bind("10.9.0.1:5000").expect("it is the host's");
    listener.set_nonblocking(true).expect("a flag");
    dir.write("connects.c", CONNECTS);
    for (name, flag) in [("static", "-static"), ("static-pie", "-static-pie"), ("dynamic", "-O1")] {
        let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
        let output = told({
            cc.args([flag, "connects.c", "-o", name]).current_dir(&dir.0);
            cc
        });
        assert!(output.status.success(), "{}", text(&output));
    }
    let path = |name: &str| dir.0.join(name).display().to_string();
    let program = path("static");
    let script = dir.write("script", &format!("#! {program} word\n"));
    let set_user = dir.0.join("set-user-id");
    std::fs::copy(dir.0.join("dynamic"), &set_user).expect("room");
    for (file, mode, owner) in [(&script, 0o755, 0), (&set_user, 0o4755, 65534)] {
        if rustix::process::geteuid().is_root() {
            chown(file, Some(owner), None).expect("we are root");
        }
        std::fs::set_permissions(file, PermissionsExt::from_mode(mode)).expect("it is ours");
    }
    let python = |call: &str| format!("import os, subprocess; p = '{program}'; {call}");
    let calls = [
        "os.execv(p, [p])",
        "os.execve(os.open(p, os.O_RDONLY), [p], os.environ)",
        "os.environ['PATH'] = os.path.dirname(p); os.execvp('static', [p])",
        "os.waitpid(os.posix_spawn(p, [p], os.environ), 0)",
        "subprocess.run([p], check=True)",
        "subprocess.run(p, shell=True, check=True)",
    ]
    .map(python);
    let mut rows: Vec<(Vec<&str>, &str)> =
        calls.iter().map(|call| (vec!["python3", "-c", call], "is statically linked")).collect();
    let all_open = python(
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (os.dup(0) + 1,) * 2)
try:
    while True: os.dup(0)
except OSError: os.execv(p, [p])",
    );
    let (pie, script, user) = (path("static-pie"), path("script"), path("set-user-id"));
    let by_interpreter = format!("{script}: its interpreter {program} is statically linked");
    // execvp() passes over a directory.
    std::fs::create_dir_all(dir.0.join("directories/static")).expect("it is ours");
    let folders = format!("PATH={}:{}", path("directories"), dir.0.display());
    rows.extend([
        (vec!["/usr/bin/env", &folders, "static"], "is statically linked"),
        (vec![&program[..]], "is statically linked"),
        (vec![&pie], "is statically linked"),
        (vec!["sh", "-c", &program], "is statically linked"),
        (vec![&script], &by_interpreter),
        (vec!["python3", "-c", &all_open], "cannot be examined: the process has too many open files"),
    ]);
    if rustix::process::geteuid().is_root() {
        rows.push((vec![&user], "runs with other privileges"));
    }
    for (words, why) in rows {
        let output = told(on_board(&dir, &words));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{words:?}: {said}");
        assert!(said.contains("kiban run --allow-host-network"), "{words:?}: {said}");
        assert!(listener.accept().is_err(), "{words:?} has used the host's network");
    }
    // If it is allowed, the program uses the host's network. A dynamically linked program uses the board.
    let started = |more: &[&str]| {
        let mut command = dir.command(&["run", "--board", "lab"]);
        command.args(more).env("KIBAN_VERBS_LIB", &*super::run::LIBRARY);
        command
    };
    let allowed = started(&["--allow-host-network", "--", "sh", "-c", &program]);
    for (command, from) in [(allowed, "10.9.0.1"), (on_board(&dir, &[&path("dynamic")]), "10.9.0.2")] {
        let output = told(command);
        assert!(output.status.success(), "{}", text(&output));
        assert_eq!(listener.accept().expect("it has connected").1.ip().to_string(), from);
    }
    // A shell that takes over the environment starts all programs. The user is told.
    for (more, is_told) in [(&["--env"][..], true), (&["--env", "--allow-host-network"], false)] {
        let output = told(started(more));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(said.contains("on the host's network; `kiban run -- sh`"), is_told, "{said}");
        assert!(output.status.success() && text(&output).contains("export KIBAN_SOCKETS="));
    }
}
