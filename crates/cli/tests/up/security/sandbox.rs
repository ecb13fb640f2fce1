//! The privileges that a board drops after start, checked from outside in every thread, for boards run by
//! root and by the user `nobody`; and reloads that need a dropped privilege.

use crate::common::{ECHO, PORT, TestDir, connect, echo, enter, ip, run, text};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

/// The configuration of a port that needs no privileges.
const UDP: &str = "[[port]]\nname = \"far\"\nlink = \"udp-frames:127.0.0.1:7010-127.0.0.1:7011\"\naddress = \"10.8.0.2/24\"\n";
const ATTACH: &str = "[[service]]\nkind = \"attach\"\n";
const METRICS: &str = "[metrics]\nlisten = \"127.0.0.1:9464\"\n";
const NET_BIND_SERVICE: u64 = 1 << 10;
pub(crate) const NET_ADMIN: u64 = 1 << 12;
pub(crate) const NET_RAW: u64 = 1 << 13;

/// The capabilities, filters and other state of a process's threads; they must be the same in all threads.
pub(crate) struct Threads {
    pub(crate) count: usize,
    pub(crate) permitted: u64,
    pub(crate) effective: u64,
    pub(crate) bounding: u64,
    pub(crate) no_new_privs: u64,
    pub(crate) seccomp: u64,
}

pub(crate) fn threads(process: u32) -> Threads {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let texts: Vec<String> = tasks
        .map(|task| std::fs::read_to_string(task.expect("it runs").path().join("status")).expect("it runs"))
        .collect();
    let value = |name: &str, base: u32| {
        let each = texts.iter().map(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
            u64::from_str_radix(line.expect("Linux has it"), base).expect("a number")
        });
        let all: Vec<u64> = each.collect();
        assert!(all.iter().all(|its| *its == all[0]), "{name} differs: {all:x?}");
        all[0]
    };
    assert_eq!((value("CapInh", 16), value("CapAmb", 16)), (0, 0));
    Threads {
        count: texts.len(),
        permitted: value("CapPrm", 16),
        effective: value("CapEff", 16),
        bounding: value("CapBnd", 16),
        no_new_privs: value("NoNewPrivs", 10),
        seccomp: value("Seccomp", 10),
    }
}

#[test]
fn every_thread_of_a_board_keeps_only_the_capabilities_to_reopen_its_links() {
    if !enter() {
        return;
    }
    ip("link add lab0 type veth peer name lab1");
    let port = |name: &str, link: &str, net: u8| {
        format!("[[port]]\nname = \"{name}\"\nlink = \"{link}\"\naddress = \"10.{net}.0.2/24\"\n")
    };
    let low = "udp-frames:127.0.0.1:701-127.0.0.1:7011";
    for (ports, kept, names) in [
        (UDP.to_owned(), 0, "none"),
        (port("a", "tap:kiban0", 1), NET_ADMIN, "CAP_NET_ADMIN"),
        (port("a", "packet:lab0", 1), NET_RAW, "CAP_NET_RAW"),
        (port("a", low, 1), NET_BIND_SERVICE, "CAP_NET_BIND_SERVICE"),
        (
            port("a", "tun:kiban1", 1) + &port("b", "packet:lab0", 2),
            NET_ADMIN | NET_RAW,
            "CAP_NET_ADMIN CAP_NET_RAW",
        ),
        // If a link's interface does not exist yet, the board keeps the privilege to open the link later.
        (port("a", "packet:lab7", 1) + "retry = true\n", NET_RAW, "CAP_NET_RAW"),
    ] {
        let dir = TestDir::new("sandbox-kept");
        let mut board = dir.up(&format!("name = \"lab\"\n{ports}{ATTACH}{METRICS}"));
        let its = threads(board.child.id());
        assert!(its.count >= 2, "the board's and that of control");
        assert_eq!([its.permitted, its.effective, its.bounding], [kept; 3], "{ports}");
        assert_eq!((its.no_new_privs, its.seccomp), (1, 2));
        let status = text(&dir.kiban(&["status", "lab"]));
        let line = format!("sandbox: capabilities {names}, Landlock on, seccomp on");
        assert!(status.contains(&line), "{status}");
        assert!(dir.log().contains("privileges dropped"), "{}", dir.log());
        assert_eq!(text(&dir.kiban(&["down"])), "board lab is stopping\n");
        assert_eq!(board.wait(), Some(0));
        assert!(!dir.0.join("kiban/lab.sock").exists(), "it can still take its socket away");
    }
    // With the sandbox off, no privilege is dropped, and the log says so.
    let dir = TestDir::new("sandbox-off");
    let board = dir.up(&format!("name = \"lab\"\n{UDP}[sandbox]\nenabled = false\n"));
    let its = threads(board.child.id());
    assert_eq!((its.no_new_privs, its.seccomp), (0, 0));
    assert_ne!(its.effective & NET_ADMIN, 0);
    assert!(text(&dir.kiban(&["status", "lab"])).contains("sandbox: off"));
    assert!(dir.log().contains("all privileges are kept"), "{}", dir.log());
}

#[test]
fn a_link_that_appears_later_opens_inside_the_sandbox() {
    if !enter() {
        return;
    }
    for link in ["packet:lab7", "xdp:lab7"] {
        let dir = TestDir::new("sandbox-later");
        let port =
            format!("[[port]]\nname = \"lan\"\nlink = \"{link}\"\naddress = \"10.9.0.2/24\"\nretry = true\n");
        let board = dir.up(&format!("name = \"lab\"\n{port}{ECHO}[sandbox]\nkill = true\n"));
        assert_eq!(board.status()["ports"][0]["state"], "down");
        ip("link add lab6 type veth peer name lab7");
        ip("addr add 10.9.0.1/24 dev lab6");
        ip("link set lab6 up");
        ip("link set lab7 up");
        board.until("it has come", |status| status["ports"][0]["state"] == "up");
        echo(&mut connect("10.9.0.2:7"), b"hello");
        drop(board);
        ip("link del lab6");
    }
}

#[test]
fn root_can_reload_a_configuration_that_only_its_owner_may_read() {
    if !enter() || !rustix::process::geteuid().is_root() {
        println!("skipped: it takes root to read what is another user's");
        return;
    }
    let dir = TestDir::new("sandbox-owner");
    let own = dir.0.join("own");
    std::fs::create_dir(&own).expect("room");
    let config = format!("name = \"lab\"\n{UDP}");
    std::fs::write(own.join("real.toml"), &config).expect("room");
    std::os::unix::fs::symlink(own.join("real.toml"), dir.0.join("board.toml")).expect("room");
    for path in [own.join("real.toml"), own.clone()] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).expect("it is ours");
        std::os::unix::fs::chown(&path, Some(65534), Some(65534)).expect("we are root");
    }
    let board = dir.up(&config);
    let told = text(&dir.kiban(&["status", "lab"]));
    assert!(told.contains("sandbox: capabilities CAP_DAC_READ_SEARCH, "), "{told}");
    dir.write("board.toml", &format!("{config}{ATTACH}"));
    assert_eq!(text(&dir.kiban(&["reload", "lab"])), "services: 0 kept, 1 new, 0 closed\n");
    assert_eq!(threads(board.child.id()).effective, 1 << 2);
}

/// Copies the program to a place where every user may run it, and creates a directory owned by the user
/// `nobody`.
pub(crate) fn nobodys(
    dir: &TestDir,
    grants: &[String],
) -> impl FnOnce(Command) -> std::process::Child + use<> {
    let program = dir.0.join("kiban-program");
    crate::common::copy_program(&program);
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    std::os::unix::fs::chown(&dir.0, Some(65534), Some(65534)).expect("we are root");
    let (folder, grants) = (dir.0.clone(), grants.to_owned());
    move |command: Command| {
        for file in ["board.toml", "notify.sock"] {
            std::os::unix::fs::chown(folder.join(file), Some(65534), Some(65534)).expect("we are root");
        }
        let mut other = Command::new("setpriv");
        other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).args(grants).arg(program);
        other.args(command.get_args()).stdout(Stdio::null()).current_dir(&folder);
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => other.env(name, value),
                None => other.env_remove(name),
            };
        }
        other.stderr(std::fs::File::create(folder.join("log")).expect("room"));
        other.spawn().expect("setpriv is there (util-linux)")
    }
}

#[test]
fn a_board_of_user_nobody_is_sandboxed_too() {
    if !enter() || !rustix::process::geteuid().is_root() {
        println!("skipped: it takes root to become somebody else");
        return;
    }
    let dir = TestDir::new("sandbox-nobody");
    let begin = nobodys(&dir, &[]);
    let config = format!("name = \"lab\"\n{UDP}{ATTACH}{METRICS}");
    let mut board = dir.up_by(&config, begin);
    let its = threads(board.child.id());
    assert_eq!([its.permitted, its.effective], [0; 2]);
    assert_eq!((its.no_new_privs, its.seccomp), (1, 2));
    // A reload that needs a dropped privilege is refused, and the reason is given; this also applies to the
    // user `nobody`.
    let http = "[[service]]\nkind = \"http\"\nlisten = \"10.8.0.2:80\"\nroot = \"/usr/share\"\n";
    dir.write("board.toml", &format!("{config}{http}"));
    let told = text(&dir.kiban(&["reload", "lab"]));
    assert!(
        told.contains("service http: reading /usr/share is outside the directories that kiban kept"),
        "{told}"
    );
    dir.write("board.toml", &config);
    assert_eq!(text(&dir.kiban(&["reload", "lab"])), "services: 1 kept, 0 new, 0 closed\n");
    let told = text(&dir.kiban(&["capture", "far", "--board", "lab", "/etc/far.pcap"]));
    assert!(told.contains("writing /etc/far.pcap is outside the directories"), "{told}");
    assert_eq!(text(&dir.kiban(&["down"])), "board lab is stopping\n");
    assert_eq!(board.wait(), Some(0));
}

#[test]
fn a_reload_that_needs_a_dropped_privilege_is_refused_with_that_reason() {
    if !enter() {
        return;
    }
    ip("link add lab0 type veth peer name lab1");
    ip("link set lo up");
    let dir = TestDir::new("sandbox-reload");
    let later = dir.0.join("later");
    std::fs::create_dir(&later).expect("room");
    let ready = format!("[sandbox]\nread = \"{}\"\n", later.display());
    let config = format!("{PORT}{UDP}{ECHO}{METRICS}{ready}");
    let board = dir.up(&config);
    let mut session = connect("10.9.0.2:7");
    echo(&mut session, b"before");
    let udp = "udp-frames:127.0.0.1:7010-127.0.0.1:7011";
    let forward = "[[service]]\nkind = \"forward\"\nlisten = \"kernel:127.0.0.1:80\"\nto = \"10.9.0.1:7\"\n";
    let http =
        |root: &str| format!("[[service]]\nkind = \"http\"\nlisten = \"10.9.0.2:80\"\nroot = \"{root}\"\n");
    let remedy = "restart the board to apply this (kiban down, then kiban up)";
    for (changed, why) in [
        (
            config.replace(udp, "packet:lab0"),
            "port far: opening packet:lab0 needs CAP_NET_RAW, which kiban dropped after start",
        ),
        (
            config.replace("7010-", "710-"),
            "port far: opening udp-frames:127.0.0.1:710-127.0.0.1:7011 needs CAP_NET_BIND_SERVICE, which kiban dropped \
             after start",
        ),
        (
            format!("{config}{forward}"),
            "service forward: listening at 127.0.0.1:80 needs CAP_NET_BIND_SERVICE, which kiban dropped after start",
        ),
        (
            config.replace(":9464", ":946"),
            "metrics: listening at 127.0.0.1:946 needs CAP_NET_BIND_SERVICE, which kiban dropped after start",
        ),
        (
            format!("{config}{}", http("/usr/share")),
            "service http: reading /usr/share is outside the directories that kiban kept open after start",
        ),
    ] {
        dir.write("board.toml", &changed);
        let output = dir.kiban(&["reload", "lab"]);
        let told = text(&output);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains(why) && told.trim_end().ends_with(remedy), "{told}");
        // The refused reload changed nothing.
        let status = board.status();
        assert_eq!((&status["reloads"], &status["ports"][1]["link"]), (&0.into(), &udp.into()), "{status}");
        assert_eq!(status["services"].as_array().map(Vec::len), Some(1), "{status}");
        echo(&mut session, b"it goes on");
        drop(connect("127.0.0.1:9464"));
    }
    // A change that needs no dropped privilege is applied. So is a change to a directory that the
    // configuration permitted from the start.
    dir.write("board.toml", &format!("{config}{}", http(&later.display().to_string())));
    assert_eq!(text(&dir.kiban(&["reload", "lab"])), "services: 1 kept, 1 new, 0 closed\n");
    std::fs::write(later.join("page"), "found").expect("room");
    assert_eq!(text(&run("curl", &["-sSf", "http://10.9.0.2/page"])), "found");
    echo(&mut session, b"to the end");
}

#[test]
fn normal_operation_triggers_no_seccomp_refusal() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("sandbox-life");
    let root = dir.0.join("www");
    std::fs::create_dir(&root).expect("room");
    std::fs::write(root.join("page"), "found").expect("room");
    let http = format!(
        "[[service]]\nkind = \"http\"\nlisten = \"10.9.0.2:80\"\nroot = \"{}\"\nlist = true\n",
        root.display()
    );
    let sockets = "[[service]]\nkind = \"sockets\"\n";
    let forward =
        "[[service]]\nkind = \"forward\"\nlisten = \"kernel:127.0.0.1:8080\"\nto = \"10.9.0.2:80\"\n";
    // With `kill = true`, a forbidden system call kills the board.
    let rest = "[sandbox]\nkill = true\n";
    let config = format!("{PORT}{ECHO}{ATTACH}{sockets}{http}{forward}{METRICS}{rest}");
    let mut board = dir.up(&config);
    assert_eq!(threads(board.child.id()).seccomp, 2);
    echo(&mut connect("10.9.0.2:7"), b"traffic");
    assert_eq!(text(&run("curl", &["-sSf", "http://10.9.0.2/page"])), "found");
    assert!(text(&run("curl", &["-sSf", "http://10.9.0.2/"])).contains("page"));
    assert!(text(&run("curl", &["-sSf", "http://127.0.0.1:9464/metrics"])).contains("kiban_info"));
    assert_eq!(text(&run("curl", &["-sSf", "http://127.0.0.1:8080/page"])), "found");
    let mut attached = dir.command(&["connect", "10.9.0.2:7"]);
    let mut attached = attached.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it was built");
    attached.stdin.take().expect("a pipe").write_all(b"attached").expect("the peer reads it");
    let output = attached.wait_with_output().expect("it ends");
    assert_eq!(output.stdout, b"attached", "{}", dir.log());
    let output = dir.kiban(&["capture", "lan", "--board", "lab", "lan.pcap", "--seconds", "100ms"]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(dir.0.join("lan.pcap").exists());
    let discard = "[[service]]\nkind = \"discard\"\nlisten = \"10.9.0.2:9\"\n";
    dir.write("board.toml", &format!("{config}{discard}").replace(ATTACH, ""));
    assert_eq!(text(&dir.kiban(&["reload", "lab"])), "services: 4 kept, 1 new, 1 closed\n");
    dir.write("board.toml", &format!("{config}{discard}"));
    board.signal("-HUP");
    board.expect("RELOADING=1");
    board.expect("READY=1");
    assert!(run("ip", &["link", "del", "kiban0"]).status.success());
    board.until("it is made again", |status| {
        (&status["ports"][0]["losses"], &status["ports"][0]["state"]) == (&1.into(), &"up".into())
    });
    echo(&mut connect("10.9.0.2:7"), b"traffic again");
    let status = board.status();
    assert_eq!(status["services"].as_array().map(Vec::len), Some(6), "{status}");
    assert_eq!(text(&dir.kiban(&["down"])), "board lab is stopping\n");
    assert_eq!(board.wait(), Some(0), "{}", dir.log());
    for socket in ["lab.sock", "lab.streams", "lab.sockets"] {
        assert!(!dir.0.join("kiban").join(socket).exists(), "{socket} goes with the board");
    }
}

#[test]
fn captures_are_written_where_allowed_and_refused_elsewhere_with_a_reason() {
    if !enter() {
        return;
    }
    // Do not use a directory for temporary files, because it is always writable.
    let folder = std::path::PathBuf::from(format!("/run/kiban-records-{}", std::process::id()));
    let other = std::path::PathBuf::from(format!("/run/kiban-others-{}", std::process::id()));
    for folder in [&folder, &other] {
        std::fs::create_dir(folder).expect("root has the right");
    }
    let dir = TestDir::new("sandbox-records");
    let board = dir.up(&format!("{PORT}{ECHO}[sandbox]\nwrite = \"{}\"\n", folder.display()));
    let record = |folder: &std::path::Path| {
        let file = folder.join("lan.pcap").display().to_string();
        dir.kiban(&["capture", "lan", "--board", "lab", &file, "--seconds", "100ms"])
    };
    let (there, elsewhere) = (record(&folder), record(&other));
    for folder in [&folder, &other] {
        std::fs::remove_dir_all(folder).expect("root has the right");
    }
    assert!(there.status.success(), "{}", text(&there));
    let told = text(&elsewhere);
    assert!(
        !elsewhere.status.success() && told.contains("lan.pcap is outside the directories that kiban kept"),
        "{told}"
    );
    assert!(told.contains(&folder.display().to_string()) && told.contains("`write` in [sandbox]"), "{told}");
    assert!(told.contains(&format!("write = \"{}\"", other.display())), "{told}");
    echo(&mut connect("10.9.0.2:7"), b"it goes on");
    assert_eq!(threads(board.child.id()).bounding, NET_ADMIN);
}

#[test]
fn a_reload_that_cannot_open_a_file_names_the_sandbox_as_the_reason() {
    if !enter() {
        return;
    }
    ip("link set lo up");
    let dir = TestDir::new("sandbox-denied");
    // Do not use a directory for temporary files, because existing files in it can be opened.
    let outside = std::path::PathBuf::from(format!("/run/kiban-outside-{}", std::process::id()));
    std::fs::create_dir(&outside).expect("root has the right");
    let config = format!("name = \"lab\"\n{UDP}");
    let board = dir.up(&config);
    let file = dir.0.join("board.toml");
    std::fs::write(outside.join("board.toml"), &config).expect("root has the right");
    std::fs::remove_file(&file).expect("it is ours");
    std::os::unix::fs::symlink(outside.join("board.toml"), &file).expect("room");
    let linked = text(&dir.kiban(&["reload", "lab"]));
    std::fs::remove_dir_all(&outside).expect("root has the right");
    std::fs::remove_file(&file).expect("it is ours");
    dir.write("board.toml", &config);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
    std::os::unix::fs::chown(&file, Some(65534), None).expect("we are root");
    let owned = text(&dir.kiban(&["reload", "lab"]));
    for told in [linked, owned] {
        let words = ["board.toml: Permission denied", "kiban dropped privileges after start", "put it back"];
        assert!(words.iter().all(|words| told.contains(words)), "{told}");
    }
    std::os::unix::fs::chown(&file, Some(0), None).expect("we are root");
    assert_eq!(text(&dir.kiban(&["reload", "lab"])), "services: 0 kept, 0 new, 0 closed\n");
    assert_eq!(board.status()["reloads"], 1);
}

#[test]
fn a_root_whose_symlink_changed_is_reloaded_or_refused() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("sandbox-roots");
    // Do not use a directory below that of the configuration file, because everything there is readable.
    let base = std::path::PathBuf::from(format!("/run/kiban-roots-{}", std::process::id()));
    for folder in ["one", "two", "three"] {
        std::fs::create_dir_all(base.join(folder)).expect("root has the right");
        std::fs::write(base.join(folder).join("page"), folder).expect("root has the right");
    }
    let link = |to: &str| {
        let _ = std::fs::remove_file(base.join("www"));
        std::os::unix::fs::symlink(to, base.join("www")).expect("root has the right");
    };
    let page = || text(&run("curl", &["-sSf", "http://10.9.0.2/page"]));
    let reload = || text(&dir.kiban(&["reload", "lab"]));
    link("one");
    let http = format!(
        "[[service]]\nkind = \"http\"\nlisten = \"10.9.0.2:80\"\nroot = \"{}/www\"\n",
        base.display()
    );
    let sandbox = format!("[sandbox]\nread = \"{}/two\"\n", base.display());
    let _board = dir.up(&format!("{PORT}{ECHO}{http}{sandbox}"));
    let mut said = vec![page(), reload()];
    link("two");
    said.extend([reload(), page()]);
    link("three");
    let outside = reload();
    said.push(page());
    // Replace the directory at this path with another one.
    std::fs::rename(base.join("two"), base.join("old")).expect("root has the right");
    std::fs::create_dir(base.join("two")).expect("root has the right");
    link("two");
    let replaced = reload();
    said.push(page());
    std::fs::remove_dir_all(&base).expect("root has the right");
    let (kept, changed) = ("services: 2 kept, 0 new, 0 closed\n", "services: 1 kept, 1 new, 1 closed\n");
    assert_eq!(said, ["one", kept, changed, "two", "two", "two"]);
    assert!(outside.contains("www is outside the directories that kiban kept open"), "{outside}");
    let words = ["service http: ", "Permission denied", "its directory was replaced"];
    assert!(words.iter().all(|words| replaced.contains(words)), "{replaced}");
}

/// Here the capture is refused because of file permissions, not by the sandbox.
#[test]
fn a_capture_that_cannot_be_written_names_the_user() {
    if !enter() || !rustix::process::geteuid().is_root() {
        println!("skipped: it takes root to become somebody else");
        return;
    }
    let dir = TestDir::new("sandbox-user");
    let folder = dir.0.join("roots");
    std::fs::create_dir(&folder).expect("room");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let far = "name = \"lab\"\n[[port]]\nname = \"far\"\nlink = \"udp-frames:127.0.0.1:7010-127.0.0.1:7011\"\n\
        address = \"10.8.0.2/24\"\n[sandbox]\nenabled = false\n";
    let _board = dir.up_by(far, nobodys(&dir, &[]));
    let file = folder.join("far.pcap").display().to_string();
    let told = text(&dir.kiban(&["capture", "far", "--board", "lab", &file, "--seconds", "10ms"]));
    let words = ["Permission denied", "the board's process writes the file as user "];
    assert!(words.iter().all(|words| told.contains(words)), "{told}");
}
