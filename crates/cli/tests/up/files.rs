//! Files that would keep the board: descriptors of clients whose closing takes an hour, and pipes in place of files.

use crate::place::{ECHO, LONG, PORT, Place, connect, echo, enter, text};
use kiban_real::streams::{Attachment, Settings};
use kiban_real::unix::Peer;
use rustix::io::{Errno, IoSlice};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketType};
use std::io::{Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const DOORS: &str = "[[service]]\nkind = \"attach\"\n[[service]]\nkind = \"sockets\"\n";

/// A socket whose close(2) takes an hour, for its peer takes nothing; and that peer.
fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback is there");
    // A bound, so that hundreds of these take little memory.
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 256 << 10).expect("an option");
    let mut near = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    let (far, _) = listener.accept().expect("it called");
    rustix::net::sockopt::set_socket_send_buffer_size(&near, 256 << 10).expect("an option");
    near.set_nonblocking(true).expect("a socket");
    while near.write(&[7; 65536]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&near, Some(Duration::from_secs(3600))).expect("an option");
    far.set_read_timeout(Some(LONG)).expect("a socket");
    (near.into(), far)
}

/// Sends such a socket with some bytes, and lets go of it: its peer, or nothing where the system refuses it.
fn attack(socket: impl AsFd, bytes: &[u8]) -> Option<TcpStream> {
    let (near, far) = lingering();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [near.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&files));
    match rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
        Ok(_) => {
            // The board may have let go of it already: then this is the close that lingers.
            kiban_real::unix::closing::close(near);
            Some(far)
        }
        Err(error) => {
            // SO_PASSRIGHTS (Linux 6.16); and who has been cut off already.
            assert!(matches!(error, Errno::PERM | Errno::PIPE | Errno::CONNRESET), "{error}");
            rustix::net::sockopt::set_socket_linger(&near, None).expect("an option");
            None
        }
    }
}

/// Waits for the threads that close: a child that is forked meanwhile would hold the last of a socket, and linger in its exec.
fn settle() {
    let closes = || {
        let threads = std::fs::read_dir("/proc/self/task").expect("a list");
        let names =
            threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
        names.into_iter().any(|name| name.trim_end() == "kiban-closing")
    };
    let mut patience = std::iter::repeat_n((), 10_000_000);
    assert!(
        patience.any(|()| !closes() || {
            std::thread::yield_now();
            false
        }),
        "closing does not end"
    );
}

#[test]
#[ignore = "a child that the test forks may hold the last of a lingering socket, and hang in its exec: 3 runs of 8"]
fn descriptors_that_linger_hold_up_neither_the_board_nor_its_clients() {
    if !enter() {
        return;
    }
    let place = Place::new("linger");
    let mut board = place.up(&format!("{PORT}{ECHO}{DOORS}"));
    let door = |name: &str| place.0.join("kiban").join(name);
    let caller = |name: &str, kind| Peer::connect(&door(name), kind).expect("a door");
    let mut far = Vec::new();
    let mut kept = Vec::new();
    let mut attached = 0;
    for round in 0..30 {
        for (name, kind) in [
            ("lab.streams", SocketType::STREAM),
            ("lab.sockets", SocketType::SEQPACKET),
            ("lab.sock", SocketType::STREAM),
        ] {
            // In the place of memory, behind a line, and unread as the board hangs up.
            for bytes in [&b"kiban-s3\0\0\0\x04\0\0\x10\0"[..], b"{\"verb\":\"status\"}\n", b"x"] {
                let socket = caller(name, kind);
                let attacked = attack(&socket, bytes);
                attached += usize::from(attacked.is_some());
                far.extend(attacked);
                if round % 2 == 0 {
                    kept.push(socket);
                }
                if kept.len() > 20 {
                    kept.remove(0);
                }
            }
        }
        // Nothing has been read from any of them: every close that is waited for waits still.
        settle();
        assert_eq!(board.status()["name"], "lab");
    }
    assert!(attached > 0, "memory may be sent to one of them, so anything may");
    echo(&mut connect("10.9.0.2:7"), b"over the wire");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let honest = async {
            let lab =
                Attachment::attach_at(&door("lab.streams"), Settings::default()).await.expect("it takes us");
            let mut stream =
                lab.connect("10.9.0.2:7".parse().expect("an address")).await.expect("it is there");
            stream.write_all(b"through rings").await.expect("it takes it");
            let mut heard = [0; 13];
            stream.read_exact(&mut heard).await.expect("it sends it back");
            assert_eq!(&heard, b"through rings");
        };
        tokio::time::timeout(LONG, honest).await.expect("in time");
    });
    // Callers that are not accepted any more, and a board that stops.
    far.extend(attack(caller("lab.streams", SocketType::STREAM), b"kiban-s3"));
    let output = place.kiban(&["down", "lab"]);
    assert!(output.status.success(), "{}", text(&output));
    far.extend(kept.iter().filter_map(|socket| attack(socket, b"x")));
    assert_eq!(board.wait(), Some(0), "{}", place.log());
    // They were closed all the same: their peers hear the end behind what had been sent.
    for mut far in far {
        far.read_to_end(&mut Vec::new()).expect("the end");
    }
    assert!(!place.log().contains("panicked"), "{}", place.log());
}

#[test]
fn a_pipe_is_no_configuration_to_be_read_again() {
    if !enter() {
        return;
    }
    let place = Place::new("pipe");
    let board = place.up(&format!("{PORT}{ECHO}"));
    let file = place.0.join("board.toml");
    std::fs::remove_file(&file).expect("it is ours");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, mode, 0).expect("a FIFO");
    board.signal("-HUP");
    board.expect("RELOADING=1");
    board.expect("READY=1");
    let output = place.kiban(&["reload", "lab"]);
    assert!(
        !output.status.success() && text(&output).contains("board.toml: it is a pipe"),
        "{}",
        text(&output)
    );
    assert_eq!(board.status()["reloads"], 0);
    echo(&mut connect("10.9.0.2:7"), b"it runs on");
    // At the start, when nobody is served, one is waited for.
    let shell = format!("printf '%s' '{PORT}' | {} up --check /dev/stdin", crate::place::KIBAN);
    let output = crate::place::run("bash", &["-c", &shell]);
    assert!(output.status.success(), "{}", text(&output));
}
