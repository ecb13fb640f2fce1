//! Compiles the C programs of `tests/c` and `examples/c` with all warnings, links them to the library, and
//! runs them.
//!
//! Purpose   tests the library through `vipl.h`, from C and from C++.
//! How       programs are compiled with `cc` and `c++` (or `CC` and `CXX`), with warnings as errors. Every
//!           program must run its test cases and exit with 0.
//! Limits    a program that does not end in time is killed, and the last test case that it printed is the one
//!           that hangs.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

const WARNINGS: [&str; 5] = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-Wstrict-aliasing"];

fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns every C file of a directory, in order.
fn sources(folder: &str) -> Vec<PathBuf> {
    let folder = home().join(folder);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let files = entries.map(|entry| entry.expect("an entry of a readable folder").path());
    let mut files: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|end| end == "c")).collect();
    files.sort();
    assert!(!files.is_empty(), "no C file in {}", folder.display());
    files
}

fn every_source() -> Vec<PathBuf> {
    [sources("tests/c"), sources("../../examples/c")].concat()
}

fn compiler(variable: &str, otherwise: &str) -> Command {
    let mut command = Command::new(std::env::var(variable).unwrap_or_else(|_| otherwise.into()));
    command.args(WARNINGS).arg("-I").arg(home().join("include"));
    command
}

fn output(mut command: Command) -> Output {
    command
        .output()
        .unwrap_or_else(|error| panic!("{command:?} cannot be started ({error}): install gcc and g++"))
}

#[track_caller]
fn succeeds(command: Command) {
    let shown = format!("{command:?}");
    let output = output(command);
    assert!(
        output.status.success(),
        "{shown}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A directory that contains the library under the names that linkers look for.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    // Cargo puts the library into the same directory as the tests that depend on it.
    let test = std::env::current_exe().expect("a test is a file");
    let library = test.parent().expect("in a folder").join("libvipl.so");
    assert!(library.exists(), "{} is missing: run this through cargo", library.display());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("vipl");
    std::fs::create_dir_all(&folder).expect("the target folder can be written");
    for name in ["libvipl.so", "libvipl.so.1"] {
        let _ = std::fs::remove_file(folder.join(name));
        symlink(&library, folder.join(name)).expect("the target folder can be written");
    }
    folder
});

/// Compiles and links a program, and returns its path. Each program is used by one test.
fn build(source: &Path) -> PathBuf {
    let program = LIBRARY.join(source.file_stem().expect("a C file has a name"));
    let mut command = compiler("CC", "cc");
    command.args(["-std=c99", "-g", "-o"]).arg(&program).arg(source);
    command.arg("-L").arg(&*LIBRARY).args(["-lvipl", "-lpthread"]);
    succeeds(command);
    program
}

/// Returns the command that runs a program with the library and a time limit.
fn start(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "120"]).arg(program).args(arguments);
    command.current_dir(&*LIBRARY).env("LD_LIBRARY_PATH", &*LIBRARY);
    command.env_remove("KIBAN_VI_DEVICE").env_remove("KIBAN_VI_HOSTS");
    command
}

/// Builds a test program and runs it on each device.
fn run_tests(name: &str, devices: &[&str]) {
    let program = build(&home().join("tests/c").join(name).with_extension("c"));
    for device in devices {
        let output = output(start(&program, &[device]));
        let stdout = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name} on {device}: {}\n{stdout}{errors}", output.status);
        let passed = stdout.lines().filter(|line| line.starts_with("ok ")).count();
        assert!(passed > 0 && stdout.contains(&format!("{passed} tests passed on {device}")), "{stdout}");
    }
}

const WITHIN: &[&str] = &["loopback", "shm", "udp:127.0.0.1"];
const BETWEEN: &[&str] = &["shm", "udp:127.0.0.1"];

#[test]
fn layouts_and_values_match_the_specification() {
    run_tests("layout", &["loopback"]);
}

#[test]
fn invalid_handles_and_pointers_are_refused() {
    run_tests("handles", WITHIN);
}

#[test]
fn nics_tags_and_memory_have_limits() {
    run_tests("nic_and_memory", WITHIN);
}

#[test]
fn vis_change_states() {
    run_tests("states", WITHIN);
}

#[test]
fn messages_arrive_whole_and_in_order_at_every_level() {
    run_tests("messages", WITHIN);
}

#[test]
fn errors_set_the_status_bits_of_the_guide() {
    run_tests("errors", WITHIN);
}

#[test]
fn rdma_works_within_its_permissions() {
    run_tests("rdma", WITHIN);
}

#[test]
fn connections_succeed_or_fail_with_the_right_code() {
    run_tests("connect", WITHIN);
}

#[test]
fn completion_queues_serve_many_vis() {
    run_tests("queues", WITHIN);
}

#[test]
fn callbacks_are_called_once() {
    run_tests("notify", WITHIN);
}

#[test]
fn names_and_giganet_s_additions_work() {
    run_tests("names", WITHIN);
}

#[test]
fn waiting_policies_work() {
    run_tests("waiting", WITHIN);
}

#[test]
fn misused_descriptors_and_memory_are_harmless() {
    run_tests("reuse", WITHIN);
}

#[test]
fn random_descriptors_complete_once_and_in_order() {
    run_tests("garbage", WITHIN);
}

#[test]
fn many_threads_share_a_nic_until_it_is_closed() {
    run_tests("threads", WITHIN);
}

#[test]
fn processes_connect_and_detect_a_killed_peer() {
    run_tests("processes", BETWEEN);
}

#[test]
fn the_ping_pong_example_runs_between_two_processes() {
    let program = build(&home().join("../../examples/c/vi_pingpong.c"));
    let name = format!("shm:pp{}", std::process::id());
    for (server, device) in [(&*name, "shm"), ("udp:127.0.0.1", "udp")] {
        let mut serving =
            start(&program, &["server", server]).stdout(Stdio::piped()).spawn().expect("timeout(1)");
        let mut line = String::new();
        let stdout = serving.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("text");
        let place = line.trim().strip_prefix("waiting at ").expect(&line);
        let (_, place) = place.split_once(':').expect("a device and a place");
        let output = output(start(&program, &["client", device, place, "60000", "200", "100"]));
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
        assert!(stdout.contains("200 round trips of 60000 bytes") && stdout.contains("waits: "), "{stdout}");
        assert!(serving.wait().expect("it ends").success());
    }
}

/// If the library exported more symbols, they could clash with those of other libraries.
#[test]
fn the_library_exports_the_calls_of_the_headers_and_nothing_else() {
    let headers = ["vipl.h", "vipl_kiban.h"].map(|header| {
        std::fs::read_to_string(home().join("include").join(header)).expect("the headers are there")
    });
    let mut declared: Vec<&str> = headers
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(|line| {
            let rest =
                ["VIP_RETURN ", "VIP_PVOID ", "void "].iter().find_map(|kind| line.strip_prefix(kind))?;
            rest.split('(').next().filter(|name| name.starts_with("Vip"))
        })
        .collect();
    declared.sort_unstable();
    let mut command = Command::new("nm");
    command.args(["-D", "--defined-only", "--format=posix"]).arg(LIBRARY.join("libvipl.so"));
    let stdout = output(command).stdout;
    let stdout = String::from_utf8(stdout).expect("names are ASCII");
    let mut exported: Vec<&str> = stdout.lines().filter_map(|line| line.split(' ').next()).collect();
    exported.sort_unstable();
    assert_eq!(exported, declared);
    let mut command = Command::new("objdump");
    command.arg("-p").arg(LIBRARY.join("libvipl.so"));
    let stdout = output(command).stdout;
    assert!(String::from_utf8_lossy(&stdout).contains("libvipl.so.1"), "SONAME");
}

#[test]
fn all_programs_compile_without_warnings_as_c_and_c_plus_plus() {
    for source in every_source() {
        for dialect in ["-std=c99", "-std=c11"] {
            let mut command = compiler("CC", "cc");
            command.args([dialect, "-fsyntax-only"]).arg(&source);
            succeeds(command);
        }
        for dialect in ["-std=c++98", "-std=c++17"] {
            let mut command = compiler("CXX", "c++");
            command.args(["-x", "c++", dialect, "-fsyntax-only"]).arg(&source);
            succeeds(command);
        }
    }
}

#[test]
fn headers_are_self_contained_and_may_be_included_twice() {
    for header in ["vipl.h", "vipl_kiban.h"] {
        let mut command = compiler("CC", "cc");
        let header = home().join("include").join(header);
        command
            .args(["-std=c99", "-fsyntax-only", "-x", "c", "-include"])
            .arg(&header)
            .arg("-include")
            .arg(&header);
        command.arg("/dev/null");
        let output = output(command);
        // In a strict dialect, a translation unit must not be empty; the headers' declarations make this one
        // valid.
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_changed_layout_does_not_compile() {
    let source = home().join("tests/c/layout.c");
    let mut command = compiler("CC", "cc");
    // The macro widens fields of type uint16_t, so the layout checks must fail.
    command.args(["-std=c99", "-fsyntax-only", "-Duint16_t=uint32_t"]).arg(source);
    let output = output(command);
    assert!(!output.status.success());
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("vip_layout_control_"), "{message}");
}
