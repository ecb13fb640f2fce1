//! Commands run by root query boards whose sockets are in another user's directory; the answers may be
//! hostile. Also tests directories whose paths are too long.

use crate::common::{ECHO, PORT, TestDir, enter, ip, text};
use crate::programs::run::LIBRARY;
use crate::security::files::DOORS;
use kiban_service::status::{Counters, Dhcp, Lease, Port, Service, Status};
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

const USER: u32 = 61_500;

/// A board that needs no privileges and has a socket of every kind.
const CONFIG: &str = "name = \"lab\"\n[[port]]\nname = \"far\"\nlink = \"udp-frames:127.0.0.1:7010-127.0.0.1:7011\"\n\
    address = \"10.8.0.2/24\"\n[[service]]\nkind = \"attach\"\n[[service]]\nkind = \"sockets\"\n";

/// Listens at a path. Answers each line with the given bytes in hexadecimal, or with endless letters
/// (`flood`); or keeps its backlog full and accepts no connection (`full`).
const IMPOSTOR: &str = "
import os, socket, sys
path, does, user = sys.argv[1:]
os.setgroups([]); os.setgid(int(user)); os.setuid(int(user))
door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
if os.path.exists(path): os.remove(path)
door.bind(path)
door.listen(0 if does == 'full' else 8)
callers = []
while does == 'full':
    caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    caller.setblocking(False)
    callers.append(caller)
    try: caller.connect(path)
    except BlockingIOError: break
print('ready', flush=True)
if does == 'full': sys.stdin.read()
while True:
    caller, _ = door.accept()
    callers.append(caller)
    if not caller.recv(4096): continue
    try:
        while does == 'flood': caller.sendall(b'x' * 65536)
        caller.sendall(bytes.fromhex(does))
    except OSError: pass
";

/// Another user's directory for board sockets, in which commands run by root look for boards.
struct Theirs {
    dir: TestDir,
    impostor: Option<Child>,
}

impl Theirs {
    /// Returns `None` if the test does not run as root.
    fn new(test: &str) -> Option<Theirs> {
        if !enter() || !rustix::process::geteuid().is_root() {
            println!("skipped: it takes root to become somebody else");
            return None;
        }
        ip("link set lo up");
        let dir = TestDir::new(test);
        let folder = dir.0.join("kiban");
        std::fs::create_dir(&folder).expect("room");
        for (path, mode) in [(&dir.0, 0o755), (&folder, 0o700)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
            chown(path, Some(USER), None).expect("we are root");
        }
        Some(Theirs { dir, impostor: None })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.0.join("kiban").join(name)
    }

    /// Starts an impostor as that user. It listens at the socket path of the board `lab`.
    fn listen(&mut self, does: &str) {
        self.end();
        let mut command = Command::new("python3");
        command.args(["-c", IMPOSTOR]).arg(self.path("lab.sock")).args([does, &USER.to_string()]);
        command.current_dir("/");
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it is installed");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a pipe");
        assert_eq!(line, "ready\n");
        self.impostor = Some(child);
    }

    fn end(&mut self) {
        if let Some(mut impostor) = self.impostor.take() {
            impostor.kill().expect("it is a child of this process");
            impostor.wait().expect("it is a child of this process");
        }
    }

    /// Runs a command as root and returns its output; the exit code is 124 if the command has not finished
    /// after 30 s.
    fn kiban(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("timeout");
        command.args(["30", crate::common::KIBAN]).args(arguments).env("XDG_RUNTIME_DIR", &self.dir.0);
        command.current_dir("/").output().expect("it is installed")
    }

    /// Checks that a command fails with this message and does not hang.
    fn fails(&self, arguments: &[&str], words: &[&str]) {
        let output = self.kiban(arguments);
        let told = text(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {told}");
        assert!(words.iter().all(|words| told.contains(words)), "{arguments:?}: {words:?}: {told}");
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        self.end();
    }
}

fn hex(line: &str) -> String {
    format!("{line}\n").bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// Characters that a terminal may interpret: an escape sequence, C1 control characters, and bidirectional
/// overrides.
const EVIL: &str = "\u{1b}]0;t\u{7}\r\u{9b}2J\u{7f}\u{202e}";
const SHOWN: &str = "\\u{1b}]0;t\\u{7}\\r\\u{9b}2J\\u{7f}\\u{202e}";

fn is_harmless(told: &str) -> bool {
    told.chars().all(|character| character == '\n' || !(character.is_control() || character == '\u{202e}'))
}

#[test]
fn output_of_a_board_cannot_control_the_terminal() {
    let Some(mut theirs) = Theirs::new("impostor-says") else { return };
    let said =
        |kind: &str| hex(&format!("{{\"{kind}\":{}}}", serde_json::json!(format!("{EVIL}one\n  two"))));
    let lines = format!("{SHOWN}one\n  two\n");
    theirs.listen(&said("done"));
    let output = theirs.kiban(&["reload", "lab"]);
    assert_eq!((text(&output), output.status.code()), (lines.clone(), Some(0)));
    assert_eq!(text(&theirs.kiban(&["down", "lab", "--no-wait"])), lines);
    theirs.listen(&said("refused"));
    for verb in ["reload", "down", "status", "top"] {
        let told = text(&theirs.kiban(&[verb, "lab"]));
        assert_eq!(told, format!("kiban: {lines}"), "{verb}");
    }
    for arguments in [
        &["capture", "--board", "lab", "far", "/tmp/x.pcap"][..],
        &["atm", "ping", "--board", "lab", "--port", "far", "0.100"],
    ] {
        let output = theirs.kiban(arguments);
        let told = text(&output);
        assert!(output.status.code() == Some(1) && told.contains(&lines) && is_harmless(&told), "{told}");
    }
    // Put the characters into a JSON key, both unescaped and escaped, and into a line that is not JSON.
    for line in [&format!("{{\"{EVIL}\":1}}")[..], &format!("{{\"{}\":1}}", EVIL.escape_debug()), EVIL] {
        theirs.listen(&hex(line));
        let told = text(&theirs.kiban(&["status", "lab"]));
        assert!(
            told.starts_with("kiban: board lab does not answer: ") && is_harmless(&told),
            "{line:?}: {told:?}"
        );
    }
    // Put them into every string of a status, including the keys. (A well-behaved board sends no line breaks
    // in strings.)
    let evil = format!("{EVIL}\nx");
    let evil = evil.as_str();
    let counters = Counters::from([(evil.to_owned(), 1)]);
    let lease = Lease {
        address: evil.into(),
        server: evil.into(),
        router: Some(evil.into()),
        name_servers: vec![evil.into()],
        ..Lease::default()
    };
    let port = Port {
        name: evil.into(),
        link: evil.into(),
        state: evil.into(),
        error: Some(evil.into()),
        addresses: vec![evil.into()],
        dhcp: Some(Dhcp { state: evil.into(), lease: Some(lease) }),
        ..Port::default()
    };
    let service = Service {
        name: evil.into(),
        kind: evil.into(),
        listen: evil.into(),
        state: evil.into(),
        ..Service::default()
    };
    let status = Status {
        name: evil.into(),
        state: evil.into(),
        config: evil.into(),
        sessions: counters,
        ports: vec![port],
        services: vec![service],
        ..Status::default()
    };
    theirs.listen(&hex(&serde_json::json!({ "status": status }).to_string()));
    for arguments in [&["status", "lab"][..], &["top", "lab"], &["status", "lab", "--json"]] {
        let told = String::from_utf8(theirs.kiban(arguments).stdout).expect("text");
        assert!(told.contains("\\u{9b}2J") && is_harmless(&told), "{arguments:?}: {told:?}");
        assert!(!told.contains("\nx"), "{arguments:?}: {told}");
    }
}

#[test]
fn an_impostor_board_neither_blocks_commands_nor_exhausts_memory() {
    let Some(mut theirs) = Theirs::new("impostor-waits") else { return };
    theirs.listen("flood");
    theirs.fails(&["status", "lab"], &["board lab does not answer: the answer is longer than "]);
    theirs.listen("full");
    theirs.fails(&["status", "lab"], &["board lab does not answer: too many clients are waiting"]);
    // If no name is given, the command queries every board.
    theirs.fails(&["status"], &["board lab does not answer: too many clients are waiting"]);
}

#[test]
fn root_does_not_follow_a_symlink_among_a_users_sockets() {
    let Some(theirs) = Theirs::new("impostor-links") else { return };
    let own = TestDir::new("impostor-roots");
    let board = own.up(CONFIG);
    let sockets = ["lab.sock", "lab.streams", "lab.sockets"];
    let commands: [&[&str]; 6] = [
        &["down", "lab"],
        &["status", "lab"],
        &["reload", "lab"],
        &["capture", "--board", "lab", "far", "/tmp/impostor.pcap"],
        &["connect", "--board", "lab", "10.8.0.1:7"],
        &["run", "--board", "lab", "true"],
    ];
    for name in sockets {
        symlink(own.0.join("kiban").join(name), theirs.path(name)).expect("room");
    }
    for arguments in commands {
        theirs.fails(arguments, &["lab.s", "is a symbolic link"]);
    }
    theirs.fails(&["status"], &["no board is running"]);
    // A hard link to a socket that root owns. Unlike a symlink or a socket created by the user, it belongs to
    // root.
    for name in sockets {
        std::fs::remove_file(theirs.path(name)).expect("it is there");
        std::fs::hard_link(own.0.join("kiban").join(name), theirs.path(name)).expect("we are root");
    }
    for arguments in commands {
        theirs.fails(arguments, &["lab.s", "belongs to user 0, but its directory belongs to user 61500"]);
    }
    // A socket that the user owns, but on which a service run by root listens.
    for name in sockets {
        std::fs::remove_file(theirs.path(name)).expect("it is there");
    }
    let roots = UnixListener::bind(theirs.path("lab.sock")).expect("room");
    chown(theirs.path("lab.sock"), Some(USER), None).expect("we are root");
    theirs.fails(&["down", "lab"], &["has a listener of user 0, but the directory belongs to user 61500"]);
    theirs.fails(&["status"], &["no board is running"]);
    drop(roots);
    assert_eq!(board.status()["state"], "running", "{}", own.log());
}

#[test]
fn socket_paths_longer_than_an_address_work_with_every_command() {
    if !enter() {
        return;
    }
    let mut dir = TestDir::new("impostor-long");
    let short = dir.0.clone();
    dir.0 = short.join("long-".repeat(30));
    std::fs::create_dir_all(&dir.0).expect("room");
    let config = dir.write("board.toml", &format!("{PORT}{ECHO}{DOORS}"));
    let log = std::fs::File::create(dir.0.join("log")).expect("room");
    let child = dir.command(&["up", &config.display().to_string()]).stderr(log).spawn();
    let mut board = Killed(child.expect("it was built"));
    while !dir.log().contains("ready") {
        assert!(board.0.try_wait().expect("it is a child of this process").is_none(), "{}", dir.log());
        std::thread::yield_now();
    }
    let good = |arguments: &[&str]| {
        let output = dir.command(arguments).env("KIBAN_VERBS_LIB", &*LIBRARY).stdin(Stdio::null()).output();
        let output = output.expect("it was built");
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        text(&output)
    };
    good(&["status"]);
    good(&["status", "lab"]);
    good(&["reload"]);
    let listener = TcpListener::bind("10.9.0.1:7").expect("it is this host's");
    let accepts = std::thread::spawn(move || listener.accept().map(drop));
    good(&["connect", "10.9.0.1:7"]);
    accepts.join().expect("no panic").expect("a client connected");
    let script = "import socket; s = socket.create_connection(('10.9.0.2', 7)); print(s.getpeername(), s.getsockname())";
    assert_eq!(good(&["run", "python3", "-c", script]).matches("10.9.0.2").count(), 2, "over the board");
    good(&["down"]);
    assert_eq!(board.0.wait().expect("it is a child of this process").code(), Some(0), "{}", dir.log());
    dir.0 = short;
}

/// A process that is killed when its test ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
