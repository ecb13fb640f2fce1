//! File transfers through a running board's OSI stack: `kiban ftam --board` and `kiban ftam serve --board`.
//! The protocol machines run in the board's process, and the users of the file service in other processes.
//! The peer is an FTAM program that uses the kernel's TCP. Everything is in the test's own network namespace.

use crate::common::{Board, LONG, PORT, TestDir, enter, is_clean, text};
use kiban_tokio::{Attachment, Settings};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const OSI: &str = "[[service]]\nkind = \"osi\"\n";
/// Sizes of the file: several TPDUs and checkpoints; enough to be in transfer when a process is killed.
const FILE_BYTES: usize = 9 << 20;
const LARGE_BYTES: u64 = 1 << 30;

/// An FTAM server, with its filestore in `root`.
struct Server(Child);

impl Server {
    fn start(dir: &TestDir, more: &[&str]) -> Server {
        std::fs::create_dir_all(dir.0.join("root")).expect("there is disk space");
        if !dir.0.join("users.toml").exists() {
            let made = ftam(dir, &["passwd", "users.toml", "ann"]).output().expect("it was built");
            assert!(made.status.success(), "{}", text(&made));
            let users = std::fs::read_to_string(dir.0.join("users.toml")).expect("it is there");
            let all = |line: &str| {
                if line.starts_with("rights") { "rights = \"all\"".into() } else { line.to_owned() }
            };
            dir.write("users.toml", &users.lines().map(all).collect::<Vec<_>>().join("\n"));
        }
        let serve = ["serve", "--json", "--root", "root", "--users", "users.toml", "--fsync", "never"];
        let mut command = ftam(dir, &[&serve[..], more].concat());
        let mut child = command.stderr(Stdio::piped()).spawn().expect("it was built");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
        let said: Vec<String> = lines.by_ref().take_while(|line| !line.contains("serving FTAM")).collect();
        assert!(child.try_wait().expect("a child").is_none(), "{said:?}");
        // Read the rest, so that the server can write it.
        std::thread::spawn(move || lines.for_each(drop));
        Server(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ftam(dir: &TestDir, arguments: &[&str]) -> Command {
    let mut command = dir.command(&[&["ftam"], arguments].concat());
    command.env("KIBAN_FTAM_PASSWORD", "secret");
    command
}

fn run(dir: &TestDir, arguments: &[&str]) -> Output {
    ftam(dir, arguments).output().expect("it was built")
}

fn succeeds(dir: &TestDir, arguments: &[&str]) -> String {
    let output = run(dir, arguments);
    assert!(output.status.success(), "{arguments:?}: {}\n{}", text(&output), dir.log());
    text(&output)
}

fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}

fn same(dir: &TestDir, one: &str, other: &str) {
    let read = |name: &str| std::fs::read(dir.0.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(read(one) == read(other), "{one} and {other} differ");
}

#[test]
fn files_go_through_a_boards_layers_as_initiator_and_as_responder() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("osi");
    std::fs::write(dir.0.join("file"), noise(FILE_BYTES)).expect("there is disk space");
    let board = dir.up(&format!("{PORT}{OSI}"));
    let idle = board.status();
    let kernel = Server::start(&dir, &["--listen", "10.9.0.1:4102"]);
    let there = "ftam://ann@10.9.0.1:4102";
    // The client's layers run on the board; the server uses the kernel's TCP.
    let said = succeeds(&dir, &["put", "--board", "lab", "file", &format!("{there}/one")]);
    assert!(said.contains(&format!("{FILE_BYTES} bytes")), "{said}");
    same(&dir, "file", "root/one");
    succeeds(&dir, &["get", "-q", "--board", "lab", &format!("{there}/one"), "back"]);
    same(&dir, "file", "back");
    // Short units, and F-DATA that do not fit into the pipes in shared memory.
    let small = ["--fdata-bytes", "2000", "--tpdu-bytes", "2048"];
    let large = ["--fdata-bytes", "1048576", "--checkpoint-bytes", "3000000"];
    let two = format!("{there}/two");
    for sizes in [&small[..], &large] {
        succeeds(&dir, &[&["put", "-q", "--board", "lab"], sizes, &["file", &two]].concat());
        same(&dir, "file", "root/two");
        succeeds(&dir, &["rm", "--board", "lab", &two]);
    }
    succeeds(&dir, &["mkdir", "--board", "lab", &format!("{there}/old")]);
    succeeds(&dir, &["mv", "--board", "lab", &format!("{there}/one"), "old/one"]);
    let listed = succeeds(&dir, &["ls", "-r", "--board", "lab", &format!("{there}/")]);
    assert!(listed.contains("old/one") && listed.contains(&FILE_BYTES.to_string()), "{listed}");
    let missing = run(&dir, &["get", "-q", "--board", "lab", &format!("{there}/none"), "none"]);
    assert!(text(&missing).contains("3004") && missing.status.code() == Some(1), "{}", text(&missing));
    let mut wrong = ftam(&dir, &["ls", "--board", "lab", &format!("{there}/")]);
    let wrong = wrong.env("KIBAN_FTAM_PASSWORD", "guess").output().expect("it was built");
    assert!(text(&wrong).contains("it refused: 2020"), "{}", text(&wrong));
    let refused = text(&run(&dir, &["ls", "--board", "lab", "ftam://ann@10.9.0.1:5999/"]));
    assert!(refused.contains("cannot connect: ") && refused.contains("refused"), "{refused}");
    drop(kernel);
    // The responder's layers run on the board; its clients use the kernel's TCP, and the board itself.
    let served = Server::start(&dir, &["--board", "lab", "--listen", "0.0.0.0:4103"]);
    for (name, client) in [("three", &["-q"][..]), ("four", &["-q", "--board", "lab"])] {
        let at = format!("ftam://ann@10.9.0.2:4103/{name}");
        succeeds(&dir, &[&["put"], client, &["file", &at]].concat());
        same(&dir, "file", &format!("root/{name}"));
        succeeds(&dir, &[&["get"], client, &[&at, name]].concat());
        same(&dir, "file", name);
    }
    let taken = Command::new(env!("CARGO_BIN_EXE_kiban"))
        .args([
            "ftam",
            "serve",
            "--board",
            "lab",
            "--listen",
            "0.0.0.0:4103",
            "--root",
            "root",
            "--users",
            "users.toml",
        ])
        .env("XDG_RUNTIME_DIR", &dir.0)
        .current_dir(&dir.0)
        .output()
        .expect("it was built");
    assert!(text(&taken).contains("cannot listen on 0.0.0.0:4103 of board lab"), "{}", text(&taken));
    drop(served);
    is_clean(&board, &idle);
    assert!(!dir.log().contains("panicked"), "{}", dir.log());
}

#[test]
fn what_cannot_work_is_refused_in_plain_words() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("osi-refuses");
    let _board = dir.up(&format!("{PORT}[[service]]\nkind = \"attach\"\n"));
    let list = |board: &str| run(&dir, &["ls", board, "lab", "ftam://ann@10.9.0.1:4102/"]);
    let told = text(&list("--board"));
    let words =
        "no board lab accepts users of its OSI stack: add a service of kind \"osi\" to its configuration";
    assert!(told.contains(words), "{told}");
    // The TCP of the same board can be used; there is no server.
    let told = text(&list("--board-tcp"));
    assert!(told.contains("cannot connect: ") && !told.contains("service of kind"), "{told}");
    let usage = run(&dir, &["ls", "--board", "lab", "--tls", "ftam://ann@10.9.0.1:4102/"]);
    assert_eq!(usage.status.code(), Some(2), "{}", text(&usage));
}

/// Starts to send a large file through the board, and waits until a part of it has arrived.
fn sending(dir: &TestDir, name: &str) -> Child {
    let large = std::fs::File::create(dir.0.join("large")).expect("there is disk space");
    large.set_len(LARGE_BYTES).expect("there is disk space");
    let new = dir.0.join("root/.kiban-ftam/new");
    let (before, clock) = (arrived(&new), kiban_os::Clock::new());
    let remote = format!("ftam://ann@10.9.0.1:4102/{name}");
    let put = ["put", "-q", "--retries", "0", "--board", "lab", "large", &remote];
    let child = ftam(dir, &put).stderr(Stdio::piped()).spawn().expect("it was built");
    while arrived(&new) < before + (1 << 20) {
        assert!(clock.now().as_secs_f64() < LONG.as_secs_f64(), "nothing arrives: {}", dir.log());
        std::thread::yield_now();
    }
    child
}

fn arrived(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}

#[test]
fn a_killed_client_leaves_nothing_on_the_board_and_a_killed_board_is_reported() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("osi-killed");
    let board = dir.up(&format!("{PORT}{OSI}"));
    let idle = board.status();
    let _server = Server::start(&dir, &["--listen", "10.9.0.1:4102"]);
    let mut client = sending(&dir, "one");
    sessions(&board, 1);
    client.kill().expect("it is a child of this process");
    client.wait().expect("it is a child of this process");
    sessions(&board, 0);
    is_clean(&board, &idle);
    let client = sending(&dir, "two");
    let mut served = Server::start(&dir, &["--board", "lab", "--listen", "0.0.0.0:4103"]);
    board.signal("-KILL");
    assert_eq!(served.0.wait().expect("it is a child of this process").code(), Some(1), "its board is gone");
    let output = client.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("use --resume to continue"), "{}", text(&output));
}

#[test]
fn a_client_that_sends_an_invalid_message_is_disconnected_and_affects_no_other() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("osi-hostile");
    let board = dir.up(&format!("{PORT}{OSI}"));
    let idle = board.status();
    let _server = Server::start(&dir, &["--listen", "10.9.0.1:4102"]);
    let other = sending(&dir, "large");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let rude = async {
        let settings = Settings { streams: 2, ..Settings::default() };
        let lab = Attachment::attach_at(&dir.0.join("kiban/lab.osi"), settings).await.expect("it is there");
        let peer = "10.9.0.1:4102".parse().expect("an address");
        let mut stream = lab.connect(peer).await.expect("there is a listener");
        // A message of a kind that does not exist.
        stream.write_all(&[99, 0, 0, 0, 0]).await.expect("there is room");
        let heard = stream.read(&mut [0; 64]).await;
        assert!(heard.is_err(), "the board must disconnect the client: {heard:?}");
    };
    runtime.block_on(async { tokio::time::timeout(LONG, rude).await }).expect("in time");
    board.until("the fault is counted", |status| status["services"][0]["counters"]["errors"] == 1);
    let other = other.wait_with_output().expect("it ends");
    assert!(other.status.success(), "the other client transfers its file: {}", text(&other));
    is_clean(&board, &idle);
    assert!(dir.log().contains("protocol error") && !dir.log().contains("panicked"), "{}", dir.log());
}

fn sessions(board: &Board<'_>, count: usize) {
    board.until("the number of associations", |status| status["services"][0]["sessions"] == count);
}

/// Returns the CPU time of a transfer's client, in seconds.
fn cpu_of(dir: &TestDir, more: &[&str]) -> f64 {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    let put = [&["put", "-q", "large", "ftam://ann@10.9.0.1:4102/large"][..], more].concat();
    let mut child = ftam(dir, &put).spawn().expect("it was built");
    let pid = Pid::from_child(&child);
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).expect("it ends");
    // The process has ended, but its parent has not waited for it yet, so its times can still be read.
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("it is a zombie");
    assert!(child.wait().expect("a child").success());
    // proc(5): after the name, utime and stime are fields 14 and 15 of the line.
    let fields: Vec<&str> = stat.rsplit(") ").next().expect("the fields").split(' ').collect();
    let ticks = |at: usize| fields[at - 3].parse::<u64>().expect("a number");
    (ticks(14) + ticks(15)) as f64 / 100.0
}

#[test]
fn a_client_of_the_boards_layers_uses_a_fraction_of_the_processor_time() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("osi-cpu");
    let _board = dir.up(&format!("{PORT}{OSI}"));
    let _server = Server::start(&dir, &["--listen", "10.9.0.1:4102"]);
    let large = std::fs::File::create(dir.0.join("large")).expect("there is disk space");
    large.set_len(LARGE_BYTES / 2).expect("there is disk space");
    let units = ["--fdata-bytes", "2000", "--tpdu-bytes", "2048"];
    let alone = cpu_of(&dir, &units);
    let on_board = cpu_of(&dir, &[&units[..], &["--board", "lab"]].concat());
    println!("CPU time of the client: {alone:.2} s alone, {on_board:.2} s with the layers on the board");
    assert!(on_board < 0.7 * alone, "{on_board:.2} s with the board, {alone:.2} s alone");
}
