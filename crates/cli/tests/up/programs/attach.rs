//! Programs on this host that use a running board's TCP through shared memory. `kiban up` runs in a separate
//! process; the clients run in this process and in others. The peer is this host's kernel. Everything is in
//! the test's own network namespace.

use crate::common::{Board, ECHO, PORT, TestDir, enter, text};
use kiban_streams::{Settings, nonblocking};
use kiban_tokio::{Attachment, Stream};
use rustix::event::{PollFd, PollFlags};
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub(crate) const ATTACH: &str = "[[service]]\nkind = \"attach\"\n";
const BOARD: &str = "10.9.0.2";

async fn attached(dir: &TestDir) -> Attachment {
    Attachment::attach_at(&dir.0.join("kiban/lab.streams"), Settings::default())
        .await
        .expect("it accepts the client")
}

pub(crate) fn at(host: &str, port: u16) -> SocketAddr {
    SocketAddr::new(host.parse().expect("an address"), port)
}

fn noise(length: usize, seed: u32) -> Vec<u8> {
    (0..length as u32).map(|at| (at.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}

async fn echoes(stream: &mut Stream, words: &[u8]) {
    stream.write_all(words).await.expect("the peer reads it");
    let mut heard = vec![0; words.len()];
    stream.read_exact(&mut heard).await.expect("it sends it back");
    assert!(heard == words);
}

/// Runs a test on a runtime whose threads stay in this network namespace.
pub(crate) fn run_in_namespace(told: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(120), told).await }).expect("in time");
}

fn counter(board: &Board<'_>, name: &str) -> u64 {
    let status = board.status();
    let services = status["services"].as_array().expect("services").clone();
    let attach = services.iter().find(|service| service["kind"] == "attach").expect("it is there");
    attach["counters"][name].as_u64().expect("a number")
}

#[test]
fn streams_connect_client_and_kernel_both_ways_and_the_board_to_itself() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("attach");
    let mut board = dir.up(&format!("{PORT}{ECHO}{ATTACH}"));
    let kernel = TcpListener::bind("10.9.0.1:5000").expect("a socket");
    let bytes = noise(20 << 20, 1);
    let sent = bytes.clone();
    // The peer, which uses the kernel's TCP, echoes everything.
    let far = std::thread::spawn(move || {
        let (mut stream, peer) = kernel.accept().expect("it connects");
        assert_eq!(peer.ip().to_string(), BOARD);
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("a FIN comes");
        stream.write_all(&all).expect("it listens");
        all == sent
    });
    run_in_namespace(async {
        let lab = attached(&dir).await;
        let stream = lab.connect(at("10.9.0.1", 5000)).await.expect("there is a listener");
        assert_eq!(stream.local_addr().ip().to_string(), BOARD);
        let (mut from, mut to) = tokio::io::split(stream);
        to.write_all(&bytes).await.expect("the peer reads it");
        to.shutdown().await.expect("the peer reads it");
        let mut back = Vec::new();
        from.read_to_end(&mut back).await.expect("it comes back");
        assert!(back == bytes);
        // Connect to a service of the same board, so that no packet leaves the board.
        let mut own = lab.connect(at(BOARD, 7)).await.expect("it is there");
        echoes(&mut own, &bytes[..1 << 20]).await;
        drop(own);
        // Accept connections from the kernel; there are more in total than slots.
        let listener = lab.listen(at(BOARD, 6000)).await.expect("a free port");
        let taken = lab.listen(at(BOARD, 6000)).await.expect_err("it is taken");
        assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
        let not_ours = lab.listen(at("10.9.0.1", 6001)).await.expect_err("the kernel's");
        assert_eq!(not_ours.kind(), std::io::ErrorKind::AddrNotAvailable);
        let callers: Vec<_> = (0..40)
            .map(|number| {
                std::thread::spawn(move || {
                    let mut stream = TcpStream::connect((BOARD, 6000)).expect("it listens");
                    let words = noise(10_000 + number, number as u32);
                    stream.write_all(&words).expect("the peer reads it");
                    stream.shutdown(std::net::Shutdown::Write).expect("a socket");
                    let mut heard = Vec::new();
                    stream.read_to_end(&mut heard).expect("it answers");
                    heard == words
                })
            })
            .collect();
        for _ in 0..40 {
            let (mut stream, peer) = listener.accept().await.expect("it connects");
            assert_eq!(peer.ip().to_string(), "10.9.0.1");
            let mut words = Vec::new();
            stream.read_to_end(&mut words).await.expect("a FIN comes");
            stream.write_all(&words).await.expect("it listens");
        }
        assert!(callers.into_iter().all(|caller| caller.join().expect("no panic")));
        drop(listener);
        // Requests that must fail.
        let refused = lab.connect(at("10.9.0.1", 5999)).await.expect_err("there is no listener");
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        let lost = lab.connect(at("192.0.2.1", 80)).await.expect_err("no way");
        assert_eq!(lost.kind(), std::io::ErrorKind::NetworkUnreachable);
        let clock = kiban_os::Clock::new();
        let absent = lab.connect(at("10.9.0.77", 80)).await.expect_err("no host has this address");
        assert_eq!(absent.kind(), std::io::ErrorKind::HostUnreachable);
        assert!(clock.now() < kiban_base::Instant::from_nanos(10_000_000_000), "{:?}", clock.now());
    });
    assert!(far.join().expect("no panic"));
    board.until("all have ended", |status| status["services"][1]["sessions"] == 0);
    // Transfer 20 MiB and 1 MiB in each direction, and open forty short connections.
    assert!(counter(&board, "bytes_out") > 21 << 20);
    assert_eq!(counter(&board, "accepted"), 42);
    dir.kiban(&["down"]);
    assert_eq!(board.wait(), Some(0));
    assert!(!dir.0.join("kiban/lab.streams").exists());
}

/// Polls until a condition holds. Like a driver, arms the bells and then sleeps on the board's file
/// descriptor.
fn until<T>(
    board: &nonblocking::Board,
    stream: Option<&nonblocking::Stream>,
    mut look: impl FnMut() -> Option<T>,
) -> T {
    loop {
        board.arm();
        stream.into_iter().for_each(nonblocking::Stream::arm);
        if let Some(found) = look() {
            board.disarm();
            return found;
        }
        let mut files = [PollFd::from_borrowed_fd(board.file(), PollFlags::IN)];
        let patience = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut files, Some(&patience)), Ok(1), "nobody rang");
        board.disarm();
        board.is_gone();
    }
}

#[test]
fn a_nonblocking_driver_uses_streams_with_a_file_and_a_bell() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("driver");
    let mut up = dir.up(&format!("{PORT}{ECHO}{ATTACH}"));
    let settings = Settings { streams: 32, room_bytes: 64 << 10, ..Settings::default() };
    let board = nonblocking::Board::attach_at(&dir.0.join("kiban/lab.streams"), settings)
        .expect("it accepts the client");
    let mut stream = board.connect(None, at(BOARD, 7)).expect("there is a slot");
    until(&board, None, || stream.is_connected().expect("there is a listener").then_some(()));
    assert_eq!(stream.local_addr().expect("it is connected").ip().to_string(), BOARD);
    // Transfer far more than the pipes can hold, in both directions at the same time; each call moves as much
    // as fits.
    let words = noise(4 << 20, 3);
    let (mut sent, mut heard) = (0, Vec::new());
    until(&board, Some(&stream), || {
        // After `finish`, a write would fail.
        let rest = &words[sent..];
        let written = if rest.is_empty() { 0 } else { stream.write(rest.into()).expect("the peer reads it") };
        sent += written;
        if written > 0 && sent == words.len() {
            stream.finish();
        }
        let mut moved = written > 0;
        loop {
            match stream.read(1 << 20, |run| run.append_to(&mut heard)).expect("it sends back") {
                Some(0) => return Some(()),
                Some(_) => moved = true,
                None if moved => moved = false,
                None => return None,
            }
        }
    });
    assert!(heard == words && stream.is_drained());
    drop(stream);
    // The board connects to the client's listener; the client aborts the stream.
    let listener = board.listen(at(BOARD, 6000)).expect("a free port");
    let again = board.listen(at(BOARD, 6000)).expect_err("it is taken");
    assert_eq!(again.kind(), std::io::ErrorKind::AddrInUse);
    let mut caller = TcpStream::connect((BOARD, 6000)).expect("it listens");
    let accepted = until(&board, None, || listener.accept().expect("the board is there"));
    assert_eq!(accepted.peer_addr(), caller.local_addr().expect("a socket"));
    accepted.abort();
    assert_eq!(caller.read(&mut [0]).expect_err("it was reset").kind(), std::io::ErrorKind::ConnectionReset);
    let mut refused = board.connect(None, at("10.9.0.1", 5999)).expect("there is a slot");
    let why = until(&board, None, || refused.is_connected().err());
    assert_eq!(why.kind(), std::io::ErrorKind::ConnectionRefused);
    // When the board exits, its streams end.
    let mut stream = board.connect(None, at(BOARD, 7)).expect("there is a slot");
    until(&board, None, || stream.is_connected().expect("there is a listener").then_some(()));
    up.signal("-KILL");
    up.wait();
    until(&board, Some(&stream), || stream.read(1, |_| {}).is_err().then_some(()));
    assert!(board.is_gone() && listener.accept().is_err() && board.connect(None, at(BOARD, 7)).is_err());
}

#[test]
fn a_killed_or_corrupting_client_affects_no_other() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("killed");
    let board = dir.up(&format!("{PORT}{ECHO}{ATTACH}"));
    let kernel = TcpListener::bind("10.9.0.1:5000").expect("a socket");
    run_in_namespace(async {
        let lab = attached(&dir).await;
        let mut mine = lab.connect(at(BOARD, 7)).await.expect("it is there");
        // A client in another process, with requests in its rings.
        let mut other = dir
            .command(&["connect", "10.9.0.1:5000"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("the program was built");
        let (mut far, _) = kernel.accept().expect("it connects");
        let mut input = other.stdin.take().expect("piped");
        input.write_all(&noise(50_000, 3)).expect("it reads");
        let mut first = vec![0; 50_000];
        far.read_exact(&mut first).expect("it comes");
        other.kill().expect("it is a child of this process");
        other.wait().expect("it is a child of this process");
        assert_eq!(far.read(&mut first).expect("a FIN, as of any process that ends"), 0);
        drop(far);
        echoes(&mut mine, &noise(300_000, 4)).await;
        board.until("its stream has gone", |status| status["services"][1]["sessions"] == 1);
        // A client that corrupts its rings is disconnected; other clients are unaffected.
        scribble(&dir);
        board.until("it is cut off", |_| counter(&board, "errors") > 0);
        echoes(&mut mine, &noise(300_000, 5)).await;
        // A client that sends nothing, and one that sends invalid data.
        let silent =
            std::os::unix::net::UnixStream::connect(dir.0.join("kiban/lab.streams")).expect("a door");
        let mut rude =
            std::os::unix::net::UnixStream::connect(dir.0.join("kiban/lab.streams")).expect("a door");
        rude.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("a socket");
        assert_eq!(rude.read(&mut [0; 8]).unwrap_or(0), 0, "it is hung up on");
        echoes(&mut mine, &noise(1000, 6)).await;
        drop(silent);
    });
    assert!(!dir.log().contains("panicked"), "{}", dir.log());
}

/// A client that attaches correctly and then fills its shared memory with random data.
fn scribble(dir: &TestDir) {
    use kiban_os::channel::PendingChannel;
    use kiban_streams::Greeting;
    let hello = Greeting { streams: 4, room_bytes: 4096, further: None };
    let bytes = hello.layout(1).expect("a good greeting").bytes().next_multiple_of(4096);
    let mut half = PendingChannel::connect_at(&dir.0.join("kiban/lab.streams"), &hello.to_bytes(), bytes)
        .expect("a door");
    let channel = loop {
        match half.complete(bytes..=bytes).expect("it accepts the client") {
            Some(channel) => break channel,
            None => std::thread::yield_now(),
        }
    };
    let region = channel.region().clone().with_address(0);
    for at in (128..bytes as u64).step_by(64) {
        // A ring slot that is marked as full but has an impossible length.
        region.write(at, [1u32.to_ne_bytes(), u32::MAX.to_ne_bytes()].concat()[..].into());
    }
    channel.ring(|| 0);
    // The board closes the connection.
    while !channel.is_gone() {
        channel.own_bell().arm();
        std::thread::yield_now();
    }
}

#[test]
fn a_pipeline_sends_bytes_to_the_board_and_back() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("connect");
    let _board = dir.up(&format!("{PORT}{ECHO}{ATTACH}"));
    let file = dir.write("words", &"to and fro, ".repeat(100_000));
    let shell = format!(
        "{} connect {BOARD}:7 < {} | cmp - {}",
        env!("CARGO_BIN_EXE_kiban"),
        file.display(),
        file.display()
    );
    let output = std::process::Command::new("timeout")
        .args(["60", "bash", "-o", "pipefail", "-c", &shell])
        .env("XDG_RUNTIME_DIR", &dir.0)
        .output()
        .expect("a shell");
    assert!(output.status.success(), "{}", text(&output));
    // If port 0 is requested, the program prints the port that was chosen.
    let mut listens = dir.command(&["connect", "--listen", &format!("{BOARD}:0")]);
    let listens = listens.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut listens = listens.spawn().expect("the program was built");
    let mut line = String::new();
    BufReader::new(listens.stderr.take().expect("it is piped")).read_line(&mut line).expect("it says where");
    let local = line.trim_end().strip_prefix("kiban: listening on ").expect("it says where");
    TcpStream::connect(local).expect("it listens").write_all(b"whoever").expect("the peer reads it");
    let output = listens.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"whoever"[..]));
    let refused = dir.kiban(&["connect", "10.9.0.1:5999"]);
    assert_eq!(
        (refused.status.code(), text(&refused).as_str()),
        (Some(1), "kiban: 10.9.0.1:5999: connection refused\n")
    );
    let absent = text(&dir.kiban(&["connect", "10.9.0.77:80"]));
    assert!(absent.starts_with("kiban: 10.9.0.77:80: no route to host: "), "{absent}");
    let nobody = dir.kiban(&["connect", "--board", "moon", "10.9.0.1:80"]);
    let told = text(&nobody);
    assert!(told.contains("no board moon is running; running boards: lab"), "{told}");
}

#[test]
fn opening_too_many_streams_returns_an_error() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("attach-bounds");
    let board = dir.up(&format!("{PORT}{ECHO}{ATTACH}sessions = 8\n"));
    let door = dir.0.join("kiban/lab.streams");
    run_in_namespace(async {
        let ask = |streams| Attachment::attach_at(&door, Settings { streams, ..Settings::default() });
        let much = ask(9).await.expect_err("there are eight");
        assert_eq!(much.to_string(), "too many streams: 9 requested, 8 free: raise `sessions`");
        let seven = ask(7).await.expect("it accepts the client");
        // A pipeline takes one slot; after that, all slots are in use.
        let output = dir.kiban(&["connect", &format!("{BOARD}:7")]);
        assert_eq!((output.status.code(), text(&output).as_str()), (Some(0), ""));
        board.until("its stream has gone", |status| status["services"][1]["sessions"] == 0);
        let eighth = ask(1).await.expect("it accepts the client");
        let output = dir.kiban(&["connect", &format!("{BOARD}:7")]);
        let told = "kiban: board lab: too many streams: 1 requested, 0 free: raise `sessions`\n";
        assert_eq!((output.status.code(), text(&output).as_str()), (Some(1), told));
        assert_eq!(counter(&board, "refused"), 2);
        // Clients that already hold a slot keep it.
        for client in [seven, eighth] {
            echoes(&mut client.connect(at(BOARD, 7)).await.expect("it is there"), b"still here").await;
        }
    });
}
