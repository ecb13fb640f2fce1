//! Clients that send the board file descriptors on which it could block: sockets whose close lingers for an
//! hour, and pipes instead of files.

#[path = "../../../../os/tests/common/lingering.rs"]
mod lingering;

use crate::common::{ECHO, LONG, PORT, TestDir, connect, echo, enter, text};
use crate::security::fuse::Unanswered;
use kiban_os::unix::Peer;
use kiban_streams::Settings;
use kiban_tokio::Attachment;
use lingering::lingering;
use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, IoSlice};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketType};
use rustix::process::PidfdFlags;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

pub(crate) const DOORS: &str = "[[service]]\nkind = \"attach\"\n[[service]]\nkind = \"sockets\"\n";

/// Sends a file descriptor together with some bytes; returns whether the system permitted this.
fn send(socket: impl AsFd, bytes: &[u8], file: impl AsFd) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&files));
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
    if let Err(error) = sent {
        // The system refused it because of SO_PASSRIGHTS (Linux 6.16), or the client has already been
        // disconnected.
        assert!(matches!(error, Errno::PERM | Errno::PIPE | Errno::CONNRESET), "{error}");
    }
    sent.is_ok()
}

/// Sends a socket with SO_LINGER set and closes the local descriptor; returns the peer of that socket, or
/// `None` if the system refuses.
fn attack(socket: impl AsFd, bytes: &[u8]) -> Option<TcpStream> {
    let (near, far) = lingering(LONG);
    if send(socket, bytes, &near) {
        // The board may already have closed its descriptor; in that case this close is the last one, and
        // would linger.
        kiban_os::unix::closing::close(near);
        return Some(far);
    }
    rustix::net::sockopt::set_socket_linger(&near, None).expect("an option");
    None
}

/// The environment variable that contains the directory of the board to be attacked by [`attacker`].
const ATTACKED: &str = "KIBAN_ATTACKED";

/// An attacker process.
struct Attacker {
    child: std::process::Child,
    said: BufReader<std::process::ChildStderr>,
}

impl Attacker {
    /// Starts an attacker in this thread's network namespace.
    fn start(dir: &TestDir) -> Attacker {
        Attacker::start_by(dir, Command::new(std::env::current_exe().expect("a path")))
    }

    /// Like [`Attacker::start`], with a command that runs this program.
    fn start_by(dir: &TestDir, mut command: Command) -> Attacker {
        command
            .args(["--exact", "security::files::attacker", "--ignored", "--nocapture"])
            .env(ATTACKED, &dir.0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it is this program");
        let said = BufReader::new(child.stderr.take().expect("it is piped"));
        Attacker { child, said }
    }

    /// Makes the attacker execute a command and waits until it is done; returns the number of sockets that
    /// the board has received so far.
    fn attack(&mut self, what: &str) -> usize {
        self.may(what).unwrap_or_else(|why| panic!("{what}: {why}"))
    }

    /// Like [`Attacker::attack`]; returns an error if the attacker cannot execute the command.
    fn may(&mut self, what: &str) -> Result<usize, String> {
        let to = self.child.stdin.as_mut().expect("it is piped");
        // If the attacker has exited, it has printed the reason.
        let _ = writeln!(to, "{what}");
        let mut said = String::new();
        loop {
            let before = said.len();
            if self.said.read_line(&mut said).expect("a pipe") == 0 {
                return Err(format!("the attacker has ended: {said}"));
            }
            let line = said[before..].trim_end();
            if let Some(why) = line.strip_prefix("skipped: ") {
                return Err(why.into());
            }
            if let Some(count) = line.strip_prefix("taken: ") {
                return Ok(count.parse().expect("a number"));
            }
        }
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        // The attacker exits at the end of its input.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The attacker process. It executes commands from its standard input, one per line, and reports when each is
/// done. It does not fork.
#[test]
#[ignore = "lingering_descriptors_block_neither_the_board_nor_its_clients runs it in a process of its own"]
fn attacker() {
    let Some(folder) = std::env::var_os(ATTACKED) else { return };
    let door = |name: &str| PathBuf::from(&folder).join("kiban").join(name);
    let caller = |name: &str, kind| Peer::connect(&door(name), kind, false).expect("a door");
    let (mut far, mut kept) = (Vec::new(), Vec::new());
    let (mut round, mut unanswered, mut taken) = (0, None, 0);
    for what in std::io::stdin().lines() {
        match what.expect("a pipe").as_str() {
            "round" => {
                for (name, kind) in [
                    ("lab.streams", SocketType::STREAM),
                    ("lab.sockets", SocketType::SEQPACKET),
                    ("lab.sock", SocketType::STREAM),
                ] {
                    // Send the descriptor in three ways: instead of the shared memory; after a line; and in a
                    // message that the board has not yet read when it closes the connection.
                    for bytes in [&b"kiban-s5\0\0\0\x04\0\0\x10\0"[..], b"{\"verb\":\"status\"}\n", b"x"] {
                        let socket = caller(name, kind);
                        far.extend(attack(&socket, bytes));
                        if round % 2 == 0 {
                            kept.push(socket);
                        }
                        if kept.len() > 20 {
                            kept.remove(0);
                        }
                    }
                }
                round += 1;
            }
            // Sends a file from a FUSE mount instead of the shared memory. It is sent more often than there
            // are closing threads and places in their queue. The attacker never closes its own copy.
            "mount" => match Unanswered::mount(Path::new(&folder).join("fuse")) {
                Ok(mounted) => unanswered = Some(mounted),
                Err(error) => eprintln!("skipped: {error}"),
            },
            "flood" => {
                let Unanswered { file, .. } = unanswered.as_ref().expect("it is mounted");
                for _ in 0..300 {
                    let Ok(socket) = Peer::connect(&door("lab.streams"), SocketType::STREAM, false) else {
                        break;
                    };
                    taken += usize::from(send(&socket, b"kiban-s5\0\0\0\x04\0\0\x10\0", file));
                    kept.push(socket);
                }
            }
            "last" => far.extend(attack(caller("lab.streams", SocketType::STREAM), b"kiban-s5")),
            "kept" => far.extend(kept.iter().filter_map(|socket| attack(socket, b"x"))),
            // The board did close its descriptors: the peers receive a FIN after the data.
            "ends" => far.iter_mut().for_each(|far| {
                far.read_to_end(&mut Vec::new()).expect("the end");
            }),
            other => panic!("{other}: no such attack"),
        }
        eprintln!("taken: {}", far.len() + taken);
    }
}

/// The environment variable that contains the arguments, one per line, of the board into which
/// [`older_kernel`] turns.
const BOARD: &str = "KIBAN_ARGUMENTS";

/// Turns this process into a board that runs as if the kernel had no SO_PASSRIGHTS (added in Linux 6.16).
#[test]
#[ignore = "tests of this file become boards through it"]
fn older_kernel() {
    let Some(arguments) = std::env::var_os(BOARD) else { return };
    let is = |argument, value| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
            .expect("a condition")
    };
    let setsockopt = if cfg!(target_arch = "x86_64") { 54 } else { 208 };
    let (sol_socket, so_passrights, enoprotoopt) = (1, 83, 92);
    let arch = std::env::consts::ARCH.try_into().expect("it has seccomp");
    let rule = SeccompRule::new(vec![is(1, sol_socket), is(2, so_passrights)]).expect("a rule");
    let (allow, refuse) = (SeccompAction::Allow, SeccompAction::Errno(enoprotoopt));
    let rules = [(setsockopt, vec![rule])].into();
    let filter = SeccompFilter::new(rules, allow, refuse, arch).expect("a filter");
    let program: BpfProgram = filter.try_into().expect("a program");
    seccompiler::apply_filter(&program).expect("seccomp");
    let arguments = arguments.into_string().expect("they are text");
    panic!("{}", Command::new(crate::common::KIBAN).args(arguments.lines()).exec());
}

/// Starts a board that runs as if SO_PASSRIGHTS were missing.
fn begin_on_older_kernel(dir: &TestDir, board: &Command) -> std::process::Child {
    let arguments: Vec<_> = board.get_args().map(|argument| argument.to_string_lossy()).collect();
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.args(["--exact", "security::files::older_kernel", "--ignored", "--nocapture"]);
    command.env(BOARD, arguments.join("\n")).current_dir(&dir.0);
    for (name, value) in board.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let log = std::fs::File::create(dir.0.join("log")).expect("a file");
    command.stdout(Stdio::null()).stderr(log).spawn().expect("it is this program")
}

/// Checks that a well-behaved client is served.
fn honest(dir: &TestDir) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let honest = async {
            let door = dir.0.join("kiban/lab.streams");
            // Clients that send no greeting time out. Until then, they may occupy all of the board's client
            // slots, and further clients may occupy the socket's backlog.
            let lab = loop {
                match Attachment::attach_at(&door, Settings::default()).await {
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(error) if error.to_string().contains("too many clients") => {}
                    attached => break attached.expect("it accepts the client"),
                }
                tokio::task::yield_now().await;
            };
            let mut stream =
                lab.connect("10.9.0.2:7".parse().expect("an address")).await.expect("it is there");
            stream.write_all(b"through rings").await.expect("the peer reads it");
            let mut heard = [0; 13];
            stream.read_exact(&mut heard).await.expect("it sends it back");
            assert_eq!(&heard, b"through rings");
        };
        tokio::time::timeout(LONG, honest).await.expect("in time");
    });
}

#[test]
fn lingering_descriptors_block_neither_the_board_nor_its_clients() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("linger");
    let mut board =
        dir.up_by(&format!("{PORT}{ECHO}{DOORS}"), |command| begin_on_older_kernel(&dir, &command));
    let mut attacker = Attacker::start(&dir);
    let mut taken = 0;
    for _ in 0..30 {
        taken = attacker.attack("round");
        // No data has been read from any of these sockets, so all the close calls are still pending.
        assert_eq!(board.status()["name"], "lab");
    }
    assert!(taken > 0, "nothing is refused");
    echo(&mut connect("10.9.0.2:7"), b"over the wire");
    honest(&dir);
    // Attack once more, using connections that the board has not accepted when it shuts down.
    attacker.attack("last");
    let output = dir.kiban(&["down", "lab"]);
    assert!(output.status.success(), "{}", text(&output));
    attacker.attack("kept");
    assert_eq!(board.wait(), Some(0), "{}", dir.log());
    attacker.attack("ends");
    assert!(!dir.log().contains("panicked"), "{}", dir.log());
}

#[test]
fn a_hanging_close_blocks_neither_the_control_socket_nor_shutdown() {
    if !enter() {
        return;
    }
    unanswered("unanswered", |_, command| crate::common::spawn(command));
    unanswered("unanswered-older", |dir, command| begin_on_older_kernel(dir, &command));
}

fn unanswered(name: &str, begin: fn(&TestDir, Command) -> std::process::Child) {
    let dir = TestDir::new(name);
    let mut board = dir.up_by(&format!("{PORT}{ECHO}{DOORS}"), |command| begin(&dir, command));
    std::fs::create_dir(dir.0.join("fuse")).expect("there is disk space");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--"]).arg(std::env::current_exe().expect("a path"));
    let mut attacker = Attacker::start_by(&dir, command);
    if let Err(why) = attacker.may("mount") {
        return println!("skipped: no file system can be mounted: {why}");
    }
    attacker.attack("flood");
    for _ in 0..3 {
        assert_eq!(board.status()["name"], "lab");
    }
    honest(&dir);
    let output = dir.kiban(&["down", "lab"]);
    assert!(output.status.success(), "{}", text(&output));
    // The pidfd becomes readable once all threads of the process have exited.
    let pid = rustix::process::Pid::from_child(&board.child);
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).expect("it is a child of this process");
    let patience = rustix::event::Timespec { tv_sec: LONG.as_secs() as i64, tv_nsec: 0 };
    let ended = rustix::event::poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&patience));
    assert_eq!(ended, Ok(1), "the board cannot end: {}", dir.log());
    assert_eq!(board.wait(), Some(0), "{}", dir.log());
}

#[test]
fn a_configuration_from_a_pipe_cannot_be_reloaded() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("pipe");
    let board = dir.up(&format!("{PORT}{ECHO}"));
    let file = dir.0.join("board.toml");
    std::fs::remove_file(&file).expect("it is ours");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, mode, 0).expect("a FIFO");
    board.signal("-HUP");
    board.expect("RELOADING=1");
    board.expect("READY=1");
    let output = dir.kiban(&["reload", "lab"]);
    assert!(!output.status.success() && text(&output).contains("board.toml: is a pipe"), "{}", text(&output));
    assert_eq!(board.status()["reloads"], 0);
    echo(&mut connect("10.9.0.2:7"), b"it runs on");
    // When the board starts it has no clients yet, so it waits until the whole file has arrived.
    let shell = format!("printf '%s' '{PORT}' | {} up --check /dev/stdin", crate::common::KIBAN);
    let output = crate::common::run("bash", &["-c", &shell]);
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn a_configuration_is_read_up_to_its_size_limit() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("long-configuration");
    let board = dir.up(&format!("{PORT}{ECHO}"));
    let comments = |bytes: usize| "#".repeat(bytes - PORT.len() - ECHO.len());
    let longest = dir.write("board.toml", &format!("{PORT}{ECHO}{}", comments(1 << 20)));
    assert_eq!(text(&dir.kiban(&["reload", "lab"])), "services: 1 kept, 0 new, 0 closed\n");
    let longest = longest.display().to_string();
    assert!(dir.kiban(&["up", "--check", &longest]).status.success());
    // One file is a single byte too long. Another is much longer; the board does not read most of it.
    for bytes in [(1 << 20) + 1, 700 << 20] {
        dir.write("board.toml", &format!("{PORT}{ECHO}{}", comments((1 << 20) + 1)));
        std::fs::File::options()
            .write(true)
            .open(&longest)
            .and_then(|file| file.set_len(bytes))
            .expect("room");
        for arguments in [&["reload"][..], &["up", "--check", &longest], &["up", &longest]] {
            let output = dir.kiban(arguments);
            let told = text(&output);
            assert_eq!(output.status.code(), Some(1), "{bytes} {arguments:?}: {told}");
            assert!(
                told.contains("board.toml: the file is longer than 1048576 bytes"),
                "{bytes} {arguments:?}: {told}"
            );
        }
    }
    assert_eq!(board.status()["reloads"], 1);
}

#[test]
fn endless_reloads_leave_few_log_lines() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("reloads");
    let board = dir.up(&format!("{PORT}{ECHO}"));
    let socket = std::os::unix::net::UnixStream::connect(dir.0.join("kiban/lab.sock")).expect("it listens");
    let mut answers = BufReader::new(socket.try_clone().expect("a socket"));
    let mut ask = |count: usize, words: &str| {
        for _ in 0..count {
            (&socket).write_all(b"{\"verb\":\"reload\"}\n").expect("the peer reads it");
            let mut answer = String::new();
            answers.read_line(&mut answer).expect("it answers");
            assert!(answer.contains(words), "{answer}");
        }
    };
    let clock = kiban_os::Clock::new();
    ask(200, "done");
    dir.write("board.toml", "nothing\n");
    ask(200, "refused");
    let words = ["configuration reloaded", "reload failed, the configuration is unchanged"];
    let told = dir.log().lines().filter(|line| words.iter().any(|words| line.contains(words))).count();
    // The log is rate-limited: up to 32 lines at once, then one per second.
    let most = 33 + clock.now().as_secs_f64() as usize;
    assert!((32..=most).contains(&told), "{told} lines, at most {most}");
    assert_eq!(board.status()["reloads"], 200);
}

/// Connects to one of a board's sockets.
fn call(dir: &TestDir, name: &str, kind: SocketType) -> OwnedFd {
    let socket = rustix::net::socket(rustix::net::AddressFamily::UNIX, kind, None).expect("a socket");
    let address = rustix::net::SocketAddrUnix::new(dir.0.join("kiban").join(name)).expect("a short path");
    rustix::net::connect(&socket, &address).expect("it listens");
    socket
}

/// Sends bytes to one of the board's sockets, and waits until the board closes the connection.
fn offend(dir: &TestDir, name: &str, kind: SocketType, bytes: &[u8]) {
    let socket = call(dir, name, kind);
    rustix::net::send(&socket, bytes, SendFlags::NOSIGNAL).expect("the peer reads it");
    let mut room = vec![0; 1 << 16];
    while rustix::net::recv(&socket, &mut room, rustix::net::RecvFlags::empty())
        .is_ok_and(|(count, _)| count > 0)
    {}
}

#[test]
fn violations_by_clients_are_logged_one_by_one_up_to_a_limit() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("offences");
    let board = dir.up(&format!("{PORT}{ECHO}{DOORS}"));
    let (stream, packets) = (SocketType::STREAM, SocketType::SEQPACKET);
    let own = format!("pid={} uid={}", std::process::id(), rustix::process::geteuid().as_raw());
    // Connecting only to check whether the service exists is not a violation.
    for _ in 0..3 {
        board.status();
        for name in ["lab.streams", "lab.sockets"] {
            assert!(kiban_streams::has_listener(&dir.0.join("kiban").join(name)).expect("it is the board's"));
        }
    }
    assert!(!dir.log().contains("disconnected a client"), "{}", dir.log());
    let question = vec![b' '; 20 << 10];
    for (name, kind, bytes, socket, rule) in [
        ("lab.streams", stream, &b"GET / HTTP/1.0\r\n\r\n"[..], "attach", "invalid greeting"),
        ("lab.sockets", packets, b"GET / HTTP/1.0", "sockets", "invalid request"),
        ("lab.sock", stream, &question, "control", "the request is longer than 16384 bytes"),
    ] {
        let lines = || {
            dir.log().lines().filter(|line| line.contains("disconnected a client that broke a rule")).count()
        };
        let before = lines();
        offend(&dir, name, kind, bytes);
        let log = dir.log();
        let line = log
            .lines()
            .rfind(|line| line.contains("disconnected a client that broke a rule"))
            .expect("a line");
        let words = [&format!("socket=\"{socket}\""), own.as_str(), rule];
        assert!(words.iter().all(|words| line.contains(words)), "{words:?}: {line}");
        for _ in 0..200 {
            offend(&dir, name, kind, bytes);
        }
        // The log is rate-limited: up to 32 lines at once, then one per second.
        let told = lines() - before;
        assert!((2..100).contains(&told), "{told} lines");
    }
    // When there is one client too many, the error states the limit.
    let _clients: Vec<OwnedFd> = (0..256).map(|_| call(&dir, "lab.streams", stream)).collect();
    let mut said = [0; 256];
    let last = call(&dir, "lab.streams", stream);
    let (length, _) =
        rustix::net::recv(&last, &mut said, rustix::net::RecvFlags::empty()).expect("it says why");
    let said = String::from_utf8_lossy(&said[..length]);
    assert!(said.ends_with("too many clients: the limit of 256 is reached"), "{said}");
    echo(&mut connect("10.9.0.2:7"), b"it goes on");
}
