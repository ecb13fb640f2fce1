//! Tests the sandbox from the inside: a child process enters the sandbox, then tries forbidden operations.
//!
//! Each test runs in a child process, because a process cannot leave the sandbox.

use kiban_sandbox::{Need, OnRefusal, Sandbox};
use std::io::{ErrorKind, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::mpsc;

const ROLE: &str = "KIBAN_TEST_SANDBOX";

/// Runs a test in a child process and returns its output; returns `None` in the child itself.
fn in_child(test: &str) -> Option<Output> {
    if std::env::var(ROLE).is_ok() {
        return None;
    }
    let own = std::env::current_exe().expect("a test is a program");
    let mut child = Command::new(own);
    child.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(ROLE, test);
    Some(child.output().expect("a test can be started"))
}

fn succeeded(output: &Output) {
    let printed = [&output.stdout[..], &output.stderr].concat();
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&printed));
}

/// Makes a system call, and returns its errno.
fn call(number: libc::c_long, arguments: [libc::c_long; 5]) -> i32 {
    let [a, b, c, d, e] = arguments;
    // SAFETY: the filter denies these calls before the kernel looks at their arguments, which are numbers,
    // not valid pointers.
    match unsafe { libc::syscall(number, a, b, c, d, e) } {
        -1 => std::io::Error::last_os_error().raw_os_error().unwrap_or(0),
        _ => 0,
    }
}

/// Checks that the calling thread cannot do anything that the sandbox denies.
fn try_everything() {
    let none = [0; 5];
    let user = [libc::c_long::from(libc::CLONE_NEWUSER), 0, 0, 0, 0];
    let socket = |family: libc::c_int| [family.into(), libc::SOCK_RAW.into(), 0, 0, 0];
    for (name, number, arguments, error) in [
        ("execve", libc::SYS_execve, none, libc::EPERM),
        ("ptrace", libc::SYS_ptrace, none, libc::EPERM),
        ("process_vm_readv", libc::SYS_process_vm_readv, none, libc::EPERM),
        ("kill", libc::SYS_kill, [1, 0, 0, 0, 0], libc::EPERM),
        ("pidfd_send_signal", libc::SYS_pidfd_send_signal, [-1, 0, 0, 0, 0], libc::EPERM),
        ("bpf", libc::SYS_bpf, none, libc::EPERM),
        ("mount", libc::SYS_mount, none, libc::EPERM),
        ("unshare", libc::SYS_unshare, user, libc::EPERM),
        ("clone", libc::SYS_clone, user, libc::EPERM),
        ("clone3", libc::SYS_clone3, none, libc::ENOSYS),
        ("setns", libc::SYS_setns, none, libc::EPERM),
        ("setuid", libc::SYS_setuid, none, libc::EPERM),
        ("keyctl", libc::SYS_keyctl, none, libc::EPERM),
        ("perf_event_open", libc::SYS_perf_event_open, none, libc::EPERM),
        ("userfaultfd", libc::SYS_userfaultfd, none, libc::EPERM),
        ("io_uring_setup", libc::SYS_io_uring_setup, none, libc::EPERM),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, none, libc::EPERM),
        ("kexec_load", libc::SYS_kexec_load, none, libc::EPERM),
        ("finit_module", libc::SYS_finit_module, none, libc::EPERM),
        ("AF_PACKET", libc::SYS_socket, socket(libc::AF_PACKET), libc::EPERM),
        ("AF_ALG", libc::SYS_socket, socket(libc::AF_ALG), libc::EPERM),
        ("AF_VSOCK", libc::SYS_socket, socket(libc::AF_VSOCK), libc::EPERM),
        ("TIOCSTI", libc::SYS_ioctl, [0, libc::TIOCSTI as libc::c_long, 0, 0, 0], libc::EPERM),
    ] {
        assert_eq!(call(number, arguments), error, "{name}");
    }
    let refused = std::fs::read("/etc/passwd").expect_err("it was not named");
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    let refused = std::fs::File::create("/var/tmp/kiban-sandbox").expect_err("it was not named");
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    Command::new("/bin/true").status().expect_err("nothing is executed");
    std::net::TcpListener::bind("127.0.0.1:0").expect("this stays possible");
    std::os::unix::net::UnixStream::pair().expect("this stays possible");
}

/// Returns the lines about privileges from the thread's status file in /proc.
fn lines() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/thread-self/status").expect("it was named");
    let names = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"];
    let value = |name: &str| {
        let line = text.lines().find(|line| line.split(':').next() == Some(name)).expect("Linux has it");
        line.replace('\t', " ")
    };
    names.into_iter().map(value).collect()
}

#[test]
fn earlier_and_later_threads_are_confined() {
    if let Some(output) = in_child("earlier_and_later_threads_are_confined") {
        return succeeded(&output);
    }
    let folder = std::env::temp_dir().join(format!("kiban-sandbox-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("room");
    std::fs::write(folder.join("old"), "old").expect("room");
    // One thread is blocked in a system call, and another runs without pause.
    let (go, gone) = mpsc::channel::<()>();
    let before = std::thread::spawn(move || {
        gone.recv().expect("it is printed");
        try_everything();
        lines()
    });
    let spins = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let on = spins.clone();
    let busy = std::thread::spawn(move || {
        while on.load(std::sync::atomic::Ordering::Acquire) {
            std::hint::spin_loop();
        }
        try_everything();
        lines()
    });
    let needs = [Need::create_in(&folder), Need::read(&PathBuf::from("/proc"))];
    let sandbox = Sandbox::enter(&needs, OnRefusal::Error).expect("it is possible");
    let report = sandbox.report();
    assert_eq!(report.capabilities, Vec::<String>::new());
    assert_eq!((report.landlock.as_str(), report.seccomp.as_str()), ("on", "on"));
    try_everything();
    // In this directory, new files can be created, but existing files can be neither read nor removed.
    let mut file =
        std::fs::File::options().write(true).create_new(true).open(folder.join("new")).expect("it was named");
    file.write_all(b"new").expect("it is ours");
    std::fs::read(folder.join("old")).expect_err("it may be written, not read");
    std::fs::remove_file(folder.join("old")).expect_err("it may not be removed");
    let own = lines();
    let zero = "0000000000000000";
    for (line, name) in own.iter().zip(["CapInh", "CapPrm", "CapEff"]) {
        assert_eq!(*line, format!("{name}: {zero}"));
    }
    assert_eq!(own[4..], [format!("CapAmb: {zero}"), "NoNewPrivs: 1".into(), "Seccomp: 2".into()]);
    if rustix::process::geteuid().is_root() {
        assert_eq!(own[3], format!("CapBnd: {zero}"));
    }
    go.send(()).expect("it waits");
    spins.store(false, std::sync::atomic::Ordering::Release);
    let after = std::thread::spawn(|| {
        try_everything();
        lines()
    });
    for thread in [before, busy, after] {
        assert_eq!(thread.join().expect("everything was refused"), own);
    }
    Sandbox::enter(&needs, OnRefusal::Error).err().expect("only once a process");
}

#[test]
fn refusals_name_dropped_capabilities_and_accessible_paths() {
    if let Some(output) = in_child("refusals_name_dropped_capabilities_and_accessible_paths") {
        return succeeded(&output);
    }
    let link = |text: &str| Need::link(&text.parse().expect("an address"));
    let needs = [Need::read(&std::env::temp_dir())].into_iter().chain(link("packet:eth7"));
    let sandbox = Sandbox::enter(&needs.collect::<Vec<_>>(), OnRefusal::Error).expect("it is possible");
    let said = |needs: Vec<Need>| needs.iter().find_map(|need| sandbox.refuses(need));
    assert_eq!(said(link("packet:eth8")), None);
    assert_eq!(said(link("udp-frames:127.0.0.1:7000-127.0.0.1:7001")), None);
    assert_eq!(said(vec![Need::read(&std::env::temp_dir())]), None);
    let why = said(vec![Need::read(&PathBuf::from("/etc"))]).expect("it was not named");
    let open = format!("after start ({})", std::env::temp_dir().display());
    assert!(why.starts_with("reading /etc is outside the directories") && why.ends_with(&open), "{why}");
    let why = said(vec![Need::create(&PathBuf::from("/etc/x"))]).expect("it was not named");
    assert!(why.starts_with("writing /etc/x is outside the directories"), "{why}");
    if !rustix::process::geteuid().is_root() {
        println!("skipped in part: without capabilities, none can be dropped");
        return;
    }
    assert_eq!(sandbox.report().capabilities, ["CAP_NET_RAW"]);
    for (address, capability) in [
        ("tap:kiban1", "CAP_NET_ADMIN"),
        ("xdp:eth7", "CAP_NET_ADMIN and CAP_IPC_LOCK and CAP_BPF"),
        ("udp-cells:0.0.0.0:700-127.0.0.1:7000", "CAP_NET_BIND_SERVICE"),
        ("tcp-cells:listen:0.0.0.0:700", "CAP_NET_BIND_SERVICE"),
    ] {
        let why = said(link(address)).expect("it was dropped");
        assert!(why.contains(&format!("needs {capability}, which kiban dropped after start")), "{why}");
        assert!(why.starts_with(&format!("opening {address}")), "{why}");
    }
}

#[test]
fn a_process_may_pass_signals_on_to_those_that_it_knows() {
    if let Some(output) = in_child("a_process_may_pass_signals_on_to_those_that_it_knows") {
        return succeeded(&output);
    }
    let mut child =
        Command::new("cat").stdin(std::process::Stdio::piped()).spawn().expect("a program of every system");
    let number = rustix::process::Pid::from_child(&child);
    let file = rustix::process::pidfd_open(number, rustix::process::PidfdFlags::empty()).expect("it runs");
    Sandbox::enter(&[Need::signals()], OnRefusal::Error).expect("it is possible");
    assert_eq!(call(libc::SYS_kill, [child.id().into(), libc::SIGTERM.into(), 0, 0, 0]), libc::EPERM);
    rustix::process::pidfd_send_signal(&file, rustix::process::Signal::TERM).expect("this is allowed");
    assert_eq!(child.wait().expect("it has ended").signal(), Some(libc::SIGTERM));
    Command::new("/bin/true").status().expect_err("nothing is executed");
    std::fs::read("/etc/passwd").expect_err("it was not named");
}

#[test]
fn denied_calls_kill_the_process_if_configured() {
    if let Some(output) = in_child("denied_calls_kill_the_process_if_configured") {
        assert_eq!(output.status.signal(), Some(libc::SIGSYS), "{output:?}");
        return;
    }
    Sandbox::enter(&[], OnRefusal::Kill).expect("it is possible");
    // Threads, memory and sockets remain available.
    std::thread::spawn(|| vec![1; 1 << 24]).join().expect("a thread");
    std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    println!("errno {}", call(libc::SYS_ptrace, [0; 5]));
}
