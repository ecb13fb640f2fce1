//! Attached programs on boards of several shards. The peer is this host's kernel.

use super::shards::{CONNECTIONS, board, of_shards};
use crate::common::{LONG, TestDir, connect, echo, enter, is_clean};
use crate::programs::attach::{ATTACH, at, run_in_namespace};
use kiban_os::channel::{Channel, PendingChannel};
use kiban_streams::call::{complete, memory_bytes};
use kiban_streams::shards::Shards;
use kiban_streams::{Answer, Greeting, Settings, TOKEN_BYTES, blocking, nonblocking};
use kiban_tokio::Attachment;
use rustix::event::{PollFd, PollFlags};
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const BOARD: &str = "10.9.0.2";
const KERNEL: &str = "10.9.0.1";

fn settings(streams: usize) -> Settings {
    Settings { streams, room_bytes: 16 << 10, ..Settings::default() }
}

/// Accepts connections, and sends back what they send.
fn echoing(connections: usize) -> (SocketAddr, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind((KERNEL, 0)).expect("the kernel has the address");
    let address = listener.local_addr().expect("bound");
    let serve = move || {
        let streams: Vec<TcpStream> =
            (0..connections).map(|_| listener.accept().expect("it connects").0).collect();
        for mut stream in streams {
            let mut all = Vec::new();
            stream.read_to_end(&mut all).expect("a FIN comes");
            stream.write_all(&all).expect("it listens");
        }
    };
    (address, std::thread::spawn(serve))
}

/// Returns the sum over all shards, and whether each has some.
fn on_each_shard(counts: &[u64]) -> (u64, bool) {
    (counts.iter().sum(), counts.iter().all(|count| *count > 0))
}

#[test]
fn an_attached_program_uses_every_shard() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("shards-attached");
    let board = dir.up(&format!("{}{ATTACH}", board("tun:kiban0", 2)));
    let idle = board.status();
    let (peer, serving) = echoing(3 * CONNECTIONS);
    run_in_namespace(async {
        let lab = Attachment::attach_at(&dir.0.join("kiban/lab.streams"), settings(6 * CONNECTIONS))
            .await
            .expect("it accepts the client");
        // From a port at which the board listens, and from others.
        let listener = lab.listen(at(BOARD, 0)).await.expect("a free port");
        let port = listener.local_addr().port();
        assert_ne!(port, 0);
        let taken = lab.listen(at(BOARD, port)).await.expect_err("it is taken");
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
        let mut opened = Vec::new();
        for n in 0..CONNECTIONS as u16 {
            let ends = [
                None,
                Some(at(BOARD, 20_000 + n)),
                Some(SocketAddr::from((Ipv4Addr::UNSPECIFIED, if n == 0 { port } else { 21_000 + n }))),
            ];
            for from in ends {
                let stream = lab.connect_from(from, peer).await.expect("it accepts everybody");
                let local = stream.local_addr();
                assert!(from.is_none_or(|from| local == at(BOARD, from.port())), "{local} for {from:?}");
                opened.push(stream);
            }
        }
        let again = lab.connect_from(Some(at(BOARD, 20_000)), peer).await.expect_err("the same connection");
        assert_eq!(again.kind(), ErrorKind::AddrInUse);
        // Some of the connections wait until the program offers streams for them.
        let mut callers: Vec<TcpStream> =
            (0..CONNECTIONS).map(|_| connect(&format!("{BOARD}:{port}"))).collect();
        let mut accepted = Vec::new();
        for _ in 0..CONNECTIONS {
            let (stream, _) = listener.accept().await.expect("it has connected");
            assert_eq!(stream.local_addr(), at(BOARD, port));
            accepted.push(stream);
        }
        let status = board.status();
        assert_eq!(status["services"][1]["sessions"], 4 * CONNECTIONS, "{status}");
        assert_eq!(status["services"][1]["counters"]["accepted"], 4 * CONNECTIONS, "{status}");
        let sessions = of_shards(&status, |shard| &shard["sessions"]);
        assert_eq!(on_each_shard(&sessions), (4 * CONNECTIONS as u64, true), "{sessions:?}");
        let unexpected = of_shards(&status, |shard| &shard["counters"]["unexpected"]);
        assert_eq!(unexpected, [0, 0], "each stream is on the shard of its flow: {status}");
        let words: Vec<Vec<u8>> = (0..opened.len()).map(|n| vec![n as u8; 1000 + n]).collect();
        // The peer may accept the connections in another order.
        for (stream, words) in opened.iter_mut().zip(&words) {
            stream.write_all(words).await.expect("the peer reads it");
            stream.shutdown().await.expect("the board is there");
        }
        for (mut stream, words) in opened.into_iter().zip(words) {
            let mut heard = Vec::new();
            stream.read_to_end(&mut heard).await.expect("it comes back");
            assert_eq!(heard, words);
        }
        // After its first packets, the kernel uses the queue of the flow's shard.
        let counts = |status: &Value| {
            let arrived = of_shards(status, |shard| &shard["units_in"]);
            let handed_on = of_shards(status, |shard| &shard["counters"]["handed_on"]);
            [arrived, handed_on].map(|counts| on_each_shard(&counts).0)
        };
        let ([arrived, handed_on], then) = (counts(&board.status()), counts(&status));
        let (arrived, handed_on) = (arrived - then[0], handed_on - then[1]);
        assert!(handed_on < arrived / 2, "{handed_on} of {arrived} handed on");
        for (n, stream) in accepted.iter_mut().enumerate() {
            stream.write_all(&[n as u8; 100]).await.expect("the peer reads it");
        }
        // The shards' listeners take turns, so the order may differ.
        let mut heard: Vec<u8> = callers
            .iter_mut()
            .map(|caller| {
                let mut words = [0; 100];
                caller.read_exact(&mut words).expect("it comes");
                assert!(words.iter().all(|word| *word == words[0]));
                words[0]
            })
            .collect();
        heard.sort_unstable();
        assert_eq!(heard, (0..CONNECTIONS as u8).collect::<Vec<u8>>());
        drop(accepted);
        drop((callers, listener));
        // No shard listens any more.
        let mut refused = 0;
        while refused < CONNECTIONS {
            let result = lab.connect(at(BOARD, port)).await.map_err(|error| error.kind());
            refused =
                if result.is_err_and(|kind| kind == ErrorKind::ConnectionRefused) { refused + 1 } else { 0 };
        }
    });
    serving.join().expect("all have connected");
    is_clean(&board, &idle);
    assert!(!dir.log().contains("panicked"), "{}", dir.log());
}

/// Waits until a file is readable.
fn wait_for(file: BorrowedFd<'_>) {
    let patience = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
    let mut files = [PollFd::from_borrowed_fd(file, PollFlags::IN)];
    assert_eq!(rustix::event::poll(&mut files, Some(&patience)), Ok(1), "nobody rang");
}

/// Waits on the board's file until `look` returns something.
fn until<T>(board: &nonblocking::Board, mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        board.arm();
        if let Some(found) = look() {
            board.disarm();
            return found;
        }
        wait_for(board.file());
        board.disarm();
        board.is_gone();
    }
}

#[test]
fn drivers_and_threads_wait_for_all_shards() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("shards-waiting");
    let mut up = dir.up(&format!("{}{ATTACH}", board("tun:kiban0", 2)));
    let door = dir.0.join("kiban/lab.streams");
    let (peer, serving) = echoing(CONNECTIONS);
    // A driver, which polls.
    let driver = nonblocking::Board::attach_at(&door, settings(4 * CONNECTIONS)).expect("it accepts clients");
    let listener = driver.listen(at(BOARD, 0)).expect("a free port");
    let mut streams: Vec<nonblocking::Stream> = Vec::new();
    for n in 0..CONNECTIONS as u16 {
        let from = Some(at(BOARD, 20_000 + n));
        let mut stream = driver.connect(from, peer).expect("there is a slot");
        until(&driver, || stream.is_connected().expect("it accepts everybody").then_some(()));
        assert_eq!(stream.local_addr(), from);
        streams.push(stream);
    }
    for stream in &streams {
        assert_eq!(stream.write(b"hello"[..].into()).expect("it is open"), 5);
        stream.finish();
    }
    for stream in &streams {
        let mut heard = Vec::new();
        until(&driver, || {
            stream.arm();
            stream.read(100, |run| run.append_to(&mut heard)).expect("it sends back")
        });
        assert_eq!(heard, b"hello");
    }
    serving.join().expect("all have connected");
    let mut callers: Vec<TcpStream> =
        (0..CONNECTIONS).map(|_| connect(&listener.local_addr().to_string())).collect();
    for _ in 0..CONNECTIONS {
        let stream = until(&driver, || listener.accept().expect("the board is there"));
        stream.abort();
    }
    for caller in &mut callers {
        assert_eq!(caller.read(&mut [0]).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    }
    // Threads, which block.
    let blocks = blocking::Board::attach_at(&door, settings(4 * CONNECTIONS)).expect("it accepts clients");
    let listener = blocks.listen(at(BOARD, 0)).expect("a free port");
    let address = listener.local_addr().to_string();
    let threads: Vec<_> = (0..8u8)
        .map(|n| {
            let board = blocks.clone();
            std::thread::spawn(move || {
                let stream = board.connect(at(BOARD, 7), LONG).expect("it listens");
                for _ in 0..50 {
                    (&stream).write_all(&[n; 3000]).expect("the peer reads it");
                    let mut heard = [0; 3000];
                    (&stream).read_exact(&mut heard).expect("it comes back");
                    assert_eq!(heard, [n; 3000]);
                }
            })
        })
        .collect();
    let mut callers: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(&address)).collect();
    let mut accepted: Vec<blocking::Stream> = Vec::new();
    while accepted.len() < CONNECTIONS {
        match listener.accept().expect("the board is there") {
            Some(stream) => accepted.push(stream),
            None => assert!(listener.ready(&[], LONG).expect("the board is there")[0]),
        }
    }
    for caller in &mut callers {
        caller.write_all(b"x").expect("it is open");
        let all: Vec<&blocking::Stream> = accepted.iter().collect();
        let ready = listener.ready(&all, LONG).expect("the board is there");
        let heard = ready.iter().position(|ready| *ready).expect("one has sent something");
        let stream = accepted.swap_remove(heard);
        let mut words = [0];
        assert_eq!((&stream).read(&mut words).expect("it is open"), 1);
        (&stream).write_all(&words).expect("it is open");
        assert_eq!(caller.read(&mut words).expect("it is open"), 1);
    }
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    // When the board exits, all streams end.
    let streams: Vec<_> = (0..4).map(|_| blocks.connect(at(BOARD, 7), LONG).expect("it listens")).collect();
    up.signal("-KILL");
    up.wait();
    for stream in &streams {
        let lost = (&*stream).read(&mut [0]).expect_err("the board has ended");
        assert_eq!(lost.kind(), ErrorKind::ConnectionAborted);
    }
    until(&driver, || driver.is_gone().then_some(()));
}

/// Sends a greeting. Returns the channel, or the reason for the refusal.
fn greet(dir: &TestDir, greeting: &Greeting) -> std::io::Result<Channel> {
    let layout = greeting.layout(if greeting.further.is_some() { 3 } else { 1 });
    let bytes = memory_bytes(layout.expect("within the limits"));
    let door = dir.0.join("kiban/lab.streams");
    complete(PendingChannel::connect_at(&door, &greeting.to_bytes(), bytes)?, bytes)
}

fn answer(channel: &Channel) -> Answer {
    Answer::from_bytes(channel.answer()).expect("it is valid").expect("the board is divided")
}

#[test]
fn a_client_gets_one_channel_for_each_shard_and_loses_all_together() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("shards-hostile");
    let up = dir.up(&format!("{}{ATTACH}", board("tun:kiban0", 3)));
    let first = Greeting { streams: 8, room_bytes: 4096, further: None };
    let further = |shard: u16, token| Greeting { further: Some((shard, token)), ..first };
    let (one, other) = (greet(&dir, &first).expect("a client"), greet(&dir, &first).expect("a client"));
    let (token, others) = (answer(&one).token, answer(&other).token);
    assert!(token != others && answer(&one).shards == 3);
    let refused = |greeting: Greeting| {
        let error = greet(&dir, &greeting).expect_err("it is refused").to_string();
        assert!(error.starts_with("invalid greeting: there is no such channel"), "{error}");
    };
    let mut wrong = token;
    wrong[0] ^= 1;
    for (shard, token) in [(1, wrong), (1, [0; TOKEN_BYTES]), (0, token), (3, token), (u16::MAX, token)] {
        refused(further(shard, token));
    }
    // A client whose greeting does not arrive holds up nobody.
    let silent = std::os::unix::net::UnixStream::connect(dir.0.join("kiban/lab.streams")).expect("a socket");
    let second = greet(&dir, &further(1, token)).expect("the first time");
    refused(further(1, token));
    let third = greet(&dir, &further(2, token)).expect("the first time");
    refused(further(2, token));
    let others = [greet(&dir, &further(1, others)), greet(&dir, &further(2, others))];
    let others = others.map(|channel| channel.expect("each client has its own"));
    // This client is disconnected from all shards for what it writes into the memory of one.
    let region = second.region().clone().with_address(0);
    for at in (128..region.len() as u64).step_by(64) {
        region.write(at, [1u32.to_ne_bytes(), u32::MAX.to_ne_bytes()].concat()[..].into());
    }
    second.ring(|| 0);
    for channel in [&one, &second, &third] {
        wait_for(channel.socket());
        assert!(channel.is_gone());
    }
    refused(further(1, token));
    assert!(!other.is_gone() && others.iter().all(|channel| !channel.is_gone()));
    let counters = &up.status()["services"][1]["counters"];
    assert_eq!(counters["errors"], 1, "{counters}");
    assert_eq!(counters["refused"], 8, "{counters}");
    drop(silent);
    // More streams than a shard's part of `sessions` has left: 1024 / 3, less those of the client.
    let error = greet(&dir, &Greeting { streams: 1000, ..first }).expect_err("too many").to_string();
    assert_eq!(error, "too many streams: 410 requested, 334 free: raise `sessions`");
    assert!(!dir.log().contains("panicked"), "{}", dir.log());
}

#[test]
fn a_refused_request_to_listen_is_undone_on_every_shard() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("shards-refused");
    let up = dir.up(&format!("{}{ATTACH}", board("tun:kiban0", 3)));
    let door = dir.0.join("kiban/lab.streams");
    let attach = || {
        let mut attaching = settings(32).call(&door).expect("it listens");
        loop {
            match attaching.complete().expect("it accepts clients") {
                Some(shards) => return shards,
                None => wait_for(attaching.file()),
            }
        }
    };
    // Listens on one shard only, which the library does not do.
    let listen_on = |shards: &Shards, shard: usize| {
        let shared = &shards.channels()[shard];
        let number = shared.with(|core| core.listen(at(BOARD, 8000))).expect("a listener");
        loop {
            shards.arm();
            match shared.with(|core| core.listening(number)) {
                Some(result) => return result,
                None => {
                    wait_for(shards.file());
                    assert!(!shards.is_gone());
                }
            }
        }
    };
    let hog = attach();
    listen_on(&hog, 2).expect("the address is free");
    let board = nonblocking::Board::attach_at(&door, settings(32)).expect("it accepts clients");
    let refused = board.listen(at(BOARD, 8000)).expect_err("one shard refuses");
    assert_eq!(refused.kind(), ErrorKind::AddrInUse);
    // The address is still free on the other shards.
    let other = attach();
    listen_on(&other, 0).expect("the address is free");
    listen_on(&other, 1).expect("the address is free");
    drop((other, hog));
    up.until("the clients have gone", |_| board.listen(at(BOARD, 8000)).is_ok());
    let listener = board.listen(at(BOARD, 8000)).expect("the address is free");
    let mut stream = connect("10.9.0.2:8000");
    drop(until(&board, || listener.accept().expect("the board is there")));
    assert_eq!(stream.read(&mut [0]).expect("a FIN"), 0);
    echo(&mut connect("10.9.0.2:7"), b"still there");
}
