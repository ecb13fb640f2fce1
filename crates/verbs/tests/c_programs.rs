//! Compiles the C programs of `tests/c` with all warnings, and runs them with our libraries instead of
//! rdma-core's.
//!
//! Purpose   tests the C API, both through the function tables of `verbs.h` and through the library's own
//!           functions.
//! How       the programs are linked against the installed libibverbs, like any other program, and find ours
//!           through `LD_LIBRARY_PATH`. The script `link` builds the libraries from this crate's archive.
//! Limits    a program that does not end in time is killed. If a test hangs, it is the one after the last
//!           test that the program printed.

#[path = "common/libraries.rs"]
mod libraries;

use libraries::{home, linked, stdout_of};
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"];

/// A folder with the libraries.
static LIBRARIES: LazyLock<PathBuf> = LazyLock::new(|| linked("c-programs"));

/// Builds a test program and runs its test cases.
fn run_tests(name: &str) {
    run_tests_with(name, Command::new("timeout").env_remove("KIBAN_TRANSPORT"));
}

/// Builds a test program and runs its test cases in a network namespace, whose addresses a command sets up.
fn run_tests_in_namespace(name: &str, setup: &str, transport: Option<&str>) {
    let mut namespace = Command::new("unshare");
    namespace.args(["--user", "--map-root-user", "--net", "sh", "-c"]);
    namespace.arg(format!("ip link set lo up && {setup} && exec timeout \"$@\"")).arg("sh");
    match transport {
        Some(transport) => namespace.env("KIBAN_TRANSPORT", transport),
        None => namespace.env_remove("KIBAN_TRANSPORT"),
    };
    run_tests_with(name, &mut namespace);
}

/// Builds a test program and runs its test cases by a command, which gets the time limit as arguments.
fn run_tests_with(name: &str, run: &mut Command) {
    let program = LIBRARIES.join(name);
    let mut compiler = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    compiler.args(WARNINGS).args(["-std=c11", "-D_GNU_SOURCE", "-g", "-o"]).arg(&program);
    compiler.arg(home().join("tests/c").join(name).with_extension("c")).args(["-libverbs", "-lrdmacm"]);
    stdout_of(&mut compiler);
    run.args(["--kill-after=5", "60"]).arg(&program).env("LD_LIBRARY_PATH", &*LIBRARIES);
    let stdout = stdout_of(run);
    let passed = stdout.lines().filter(|line| line.starts_with("ok ")).count();
    assert!(passed > 0 && stdout.contains(&format!("{passed} tests passed")), "{stdout}");
}

// Where there is only the loopback interface, its address is the first device, whose MTU is known.
#[test]
fn objects_are_created_queried_and_destroyed() {
    run_tests_in_namespace("objects", "true", None);
}

#[test]
fn all_operations_of_verbs_work() {
    run_tests_in_namespace("traffic", "true", None);
}

#[test]
fn files_of_devices_are_found_in_sys_and_dev() {
    run_tests_in_namespace("paths", "export LD_PRELOAD=libkiban_paths.so", None);
}

#[test]
fn signals_interrupt_calls_as_they_interrupt_read() {
    run_tests("signals");
}

#[test]
fn children_can_wait_whenever_their_parent_forks() {
    run_tests("fork");
}

#[test]
fn memory_that_a_program_unmaps_fails_its_queue_pairs_and_not_the_process() {
    for (transport, shared_memory) in [("ib", "1"), ("ib", "0"), ("roce", "1"), ("roce", "0")] {
        println!("transport {transport}, shared memory {shared_memory}");
        let mut run = Command::new("timeout");
        run.env("KIBAN_TRANSPORT", transport).env("KIBAN_SHARED_MEMORY", shared_memory);
        run_tests_with("unmapped", run.env("LD_PRELOAD", "libkiban_paths.so"));
    }
}

#[test]
fn the_connection_manager_sets_the_attributes_of_queue_pairs() {
    for transport in ["ib", "iwarp", "roce"] {
        run_tests_with("connections", Command::new("timeout").env("KIBAN_TRANSPORT", transport));
    }
}

/// Runs a program's test cases with RoCE devices, in a network namespace of their own.
fn run_tests_over_roce(name: &str) {
    let addresses = "ip address add 192.0.2.1/32 dev lo && ip address add 192.0.2.2/32 dev lo";
    run_tests_in_namespace(name, addresses, Some("roce"));
}

#[test]
fn datagrams_resolve_services_and_reach_groups_over_roce() {
    run_tests_over_roce("datagrams");
}

#[test]
fn extended_reliable_connections_work_over_roce() {
    run_tests_over_roce("xrc");
    run_tests_over_roce("xrc_connections");
}

#[test]
fn a_process_that_exits_ends_its_connections_over_roce() {
    run_tests_over_roce("left_open");
}

/// The end with the default transport says what is wrong. The other one only waits.
#[test]
fn a_peer_with_another_transport_is_reported() {
    const SCRIPT: &str = "ip link set lo up && ip address add 192.0.2.1/32 dev lo || exit 1
        export KIBAN_LOG=info
        KIBAN_TRANSPORT=roce timeout 60 ibv_rc_pingpong -g 0 &
        for attempt in $(seq 200); do                # the client does not wait for its server
            timeout 60 ibv_rc_pingpong -g 0 192.0.2.1 > said 2>&1
            grep -q 'connect to' said || break
        done
        kill $!
        cat said";
    let mut run = Command::new("unshare");
    run.args(["--user", "--map-root-user", "--net", "sh", "-c", SCRIPT]).current_dir(&*LIBRARIES);
    let said = stdout_of(run.env_remove("KIBAN_TRANSPORT").env("LD_LIBRARY_PATH", &*LIBRARIES));
    assert!(said.contains("kiban: transport ib\n"), "{said}");
    assert!(said.contains("peer at 192.0.2.1 does not answer"), "{said}");
    assert!(said.contains("kiban verbs --transport roce"), "{said}");
}
