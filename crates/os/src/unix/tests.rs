//! Tests with peers that send files whose close(2) would block for an hour.

#[path = "../../tests/common/lingering.rs"]
mod lingering;

use super::closing::Closer;
use super::names::Whose;
use super::*;
use crate::channel::{ChannelListener, PendingChannel, make};
use lingering::lingering;
use rustix::fs::{FileType, Mode};
use rustix::io::{Errno, IoSlice};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use std::io::{self, Read as _};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// A time limit that a step exceeds only if it waits for a peer, which it must not do.
const LONG: Duration = Duration::from_secs(60);
const BYTES: usize = 8192;

/// Reads to the end of the stream, which is reached once the other socket is closed in all processes. Returns
/// whether the end was reached.
fn is_closed(mut far: TcpStream) -> bool {
    far.read_to_end(&mut Vec::new()).is_ok()
}

fn send(
    socket: impl AsFd,
    bytes: &[u8],
    files: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)
}

/// Sends a lingering socket and closes it here; returns the lingering socket's peer.
fn send_lingering(socket: impl AsFd, bytes: &[u8], flags: SendFlags) -> TcpStream {
    let (near, far) = lingering(LONG);
    send(socket, bytes, &[near.as_fd()], flags).expect("a good message");
    // If the receiver has already closed its copy, this close is the last one and would linger.
    closing::close(near);
    far
}

/// Runs work that must not wait for any peer.
fn at_once<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, done) = mpsc::channel();
    std::thread::spawn(move || tell.send(work()));
    done.recv_timeout(LONG).expect("it waits for a peer")
}

/// Returns a pair of sockets, ours and the peer's, as on a system that does not refuse files.
fn pair(kind: SocketType) -> (Peer, OwnedFd) {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("a pair");
    (Peer::with(ours, true, Closer::of_called()).expect("a socket"), theirs)
}

fn place(name: &str) -> PathBuf {
    names::own_folder().expect("a directory").join(format!("test-{}-{name}", std::process::id()))
}

#[test]
fn an_unexpected_file_is_rejected_without_blocking() {
    for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
        let (peer, theirs) = pair(kind);
        let far = send_lingering(&theirs, b"x", SendFlags::empty());
        let error = at_once(move || peer.receive(&mut [0; 9]).expect_err("a file"));
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(is_closed(far));
    }
    // Files that follow ordinary bytes, and files that follow out-of-band data, which recv(2) drops while
    // reading.
    for (first, flags) in [(&b"ab"[..], SendFlags::empty()), (b"", SendFlags::OOB), (b"ab", SendFlags::OOB)] {
        let (peer, theirs) = pair(SocketType::STREAM);
        if !first.is_empty() {
            send(&theirs, first, &[], SendFlags::empty()).expect("bytes");
        }
        let far = send_lingering(&theirs, b"x", flags);
        send(&theirs, b"later", &[], SendFlags::empty()).expect("bytes");
        at_once(move || {
            let mut heard = 0;
            while heard < 16 {
                match peer.receive(&mut [0; 9]) {
                    Ok(length) => heard += length,
                    Err(error) => return assert_eq!(error.kind(), io::ErrorKind::InvalidData),
                }
            }
            panic!("more was received than was sent");
        });
        assert!(is_closed(far));
    }
}

#[test]
fn a_refused_datagram_is_discarded_without_blocking() {
    let (peer, theirs) = pair(SocketType::DGRAM);
    let far = send_lingering(&theirs, b"x", SendFlags::empty());
    send(&theirs, b"next", &[], SendFlags::empty()).expect("a datagram");
    at_once(move || {
        assert_eq!(peer.receive(&mut [0; 9]).expect_err("a file").kind(), io::ErrorKind::InvalidData);
        peer.discard_datagram().expect("it is there");
        assert_eq!(peer.receive(&mut [0; 9]).expect("the next datagram"), 4);
    });
    assert!(is_closed(far));
}

#[test]
fn a_socket_with_files_unread_is_closed_without_waiting() {
    for (kind, first) in [
        (SocketType::STREAM, &b""[..]),
        (SocketType::STREAM, b"bytes before"),
        (SocketType::SEQPACKET, b"a packet before"),
    ] {
        let (peer, theirs) = pair(kind);
        if !first.is_empty() {
            send(&theirs, first, &[], SendFlags::empty()).expect("bytes");
        }
        // recv(2) returns 0 for an empty packet, as at the end of the stream.
        if kind == SocketType::SEQPACKET {
            send(&theirs, b"", &[], SendFlags::empty()).expect("a packet");
        }
        let far = send_lingering(&theirs, b"x", SendFlags::empty());
        at_once(move || drop(peer));
        assert!(is_closed(far), "{kind:?} {first:?}");
    }
}

#[test]
fn a_listener_with_callers_unaccepted_is_closed_without_waiting() {
    for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
        let path = place("unaccepted");
        let listener = Listener::open_with(&path, kind, |_| false).expect("there is no listener");
        let caller = || Peer::connect(&path, kind, false).expect("it listens");
        let (one, _silent, two) = (caller(), caller(), caller());
        let far = [one, two].map(|caller| send_lingering(&caller, b"x", SendFlags::empty()));
        at_once(move || drop(listener));
        assert!(far.into_iter().all(is_closed));
        assert!(!path.exists());
    }
}

#[test]
fn a_file_instead_of_memory_is_rejected_without_blocking() {
    let (near, far) = lingering(LONG);
    let memory = [make(4096).expect("memory"), make(4096).expect("memory"), make(4096).expect("memory")];
    let memory = memory.each_ref().map(AsFd::as_fd);
    for files in [&[near.as_fd()][..], &[memory[0], near.as_fd()], &[memory[0], memory[1], memory[2]]] {
        let (peer, theirs) = pair(SocketType::STREAM);
        send(&theirs, b"kiban-s5", files, SendFlags::empty()).expect("a good message");
        drop(theirs);
        at_once(move || {
            let error = peer.receive_memory(&mut [0; 99]).expect_err("not what is wanted");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        });
    }
    // If the receivers have already closed their copies, this close is the last one and would linger.
    closing::close(near);
    assert!(is_closed(far));
    let (peer, theirs) = pair(SocketType::STREAM);
    send(&theirs, b"hello", &memory[..1], SendFlags::empty()).expect("a good message");
    let (length, received) = peer.receive_memory(&mut [0; 99]).expect("memory");
    assert!(received.is_some());
    assert_eq!(
        (length, peer.receive(&mut [0; 9]).map_err(|error| error.kind())),
        (5, Err(io::ErrorKind::WouldBlock))
    );
    send(&theirs, b"a reason", &[], SendFlags::empty()).expect("bytes");
    assert!(matches!(peer.receive_memory(&mut [0; 99]), Ok((8, None))));
}

#[test]
fn an_honest_caller_is_served_beside_hundreds_that_linger() {
    let path = place("crowd");
    let listener = Listener::open_with(&path, SocketType::STREAM, |_| false).expect("there is no listener");
    let listener = ChannelListener { listener };
    let mut far = Vec::new();
    // More sockets than the limits on closing threads (`THREADS_MAX`) and on files that may wait for one
    // (`WAITING_MAX`) allow.
    for round in 0..200 {
        let caller = Peer::connect(&path, SocketType::STREAM, false).expect("it listens");
        far.push(send_lingering(&caller, b"kiban-s5", SendFlags::empty()));
        if round % 2 == 0 {
            drop(caller);
        }
        let mut half = listener.try_accept().expect("a caller is waiting");
        assert!(at_once(move || half.complete(0..=BYTES).is_err()));
    }
    // Nothing has been read from these sockets yet, so closing any of them would still linger.
    let mut honest = PendingChannel::connect_at(&path, b"me", BYTES).expect("it listens");
    let mut half = listener.accept().expect("it accepts").expect("a caller is waiting");
    let callee = half.complete(BYTES..=BYTES).expect("a correct caller").expect("its hello has arrived");
    let caller = honest.complete(BYTES..=BYTES).expect("a correct callee").expect("its hello has arrived");
    // An established channel may also be sent such a file.
    far.push(send_lingering(caller.socket(), b"\0", SendFlags::empty()));
    assert!(at_once(move || callee.is_gone()), "no descriptor is wanted there");
    assert!(far.into_iter().all(is_closed));
}

#[test]
fn pending_file_closes_pause_only_their_own_listener() {
    let (one, other) = (place("shut"), place("open"));
    let listener = Listener::open_with(&one, SocketType::STREAM, |_| false).expect("there is no listener");
    let beside = Listener::open_with(&other, SocketType::STREAM, |_| false).expect("there is no listener");
    let call = |path: &Path| Peer::connect(path, SocketType::STREAM, false).expect("it listens");
    listener.closer.refuse_threads(true);
    let mut far = Vec::new();
    let shut = loop {
        let caller = call(&one);
        match listener.accept() {
            Ok(peer) => {
                far.push(send_lingering(&caller, b"x", SendFlags::empty()));
                drop(peer.expect("a caller is waiting"));
            }
            Err(error) => break error,
        }
    };
    assert!(shut.to_string().contains("waiting to be closed"), "{shut}");
    let _honest = call(&other);
    assert!(beside.accept().expect("it accepts").is_some());
    // The refused caller remains in the backlog, and is accepted once threads can be started again.
    listener.closer.refuse_threads(false);
    let clock = crate::Clock::new();
    while listener.accept().is_err() {
        assert!(clock.now().as_secs_f64() < LONG.as_secs_f64(), "it is shut for good");
        std::thread::yield_now();
    }
    assert!(far.into_iter().all(is_closed));
}

#[test]
fn files_left_without_a_thread_are_closed_at_the_next_accept() {
    let (one, other) = (place("short"), place("asks"));
    let listener = Listener::open_with(&one, SocketType::STREAM, |_| false).expect("there is no listener");
    let beside = Listener::open(&other, SocketType::STREAM).expect("there is no listener");
    listener.closer.refuse_threads(true);
    let caller = Peer::connect(&one, SocketType::STREAM, false).expect("it listens");
    let peer = listener.accept().expect("it accepts").expect("a caller is waiting");
    let far = send_lingering(&caller, b"x", SendFlags::empty());
    drop(peer);
    drop(caller);
    listener.closer.refuse_threads(false);
    // No process calls the first listener again; the accept on the second one starts the thread.
    assert!(beside.accept().is_ok_and(|caller| caller.is_none()));
    assert!(is_closed(far));
}

#[test]
fn files_are_not_sent_where_the_system_refuses_them() {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .expect("a pair");
    let peer = Peer::new(ours).expect("a socket");
    if peer.may_hold_files {
        return println!("skipped: this kernel has no SO_PASSRIGHTS (Linux 6.16)");
    }
    let path = place("refuses");
    let listener = Listener::open(&path, SocketType::SEQPACKET).expect("there is no listener");
    let caller = Peer::connect(&path, SocketType::SEQPACKET, false).expect("it listens");
    let accepted = listener.accept().expect("it accepts").expect("a caller is waiting");
    let (near, _far) = lingering(LONG);
    for socket in [theirs.as_fd(), caller.as_fd()] {
        assert_eq!(send(socket, b"x", &[near.as_fd()], SendFlags::empty()), Err(Errno::PERM));
    }
    for (socket, peer) in [(theirs.as_fd(), peer), (caller.as_fd(), accepted)] {
        send(socket, b"words", &[], SendFlags::empty()).expect("bytes");
        assert_eq!(peer.receive(&mut [0; 9]).expect("they are there"), 5);
    }
    rustix::net::sockopt::set_socket_linger(&near, None).expect("an option");
}

#[test]
fn a_path_has_one_listener_and_a_killed_one_is_replaced() {
    let path = place("one");
    // A killed process leaves its socket behind, and a lock file without a lock.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
    std::fs::write(path.with_extension("kiban-lock"), "").expect("a file");
    let open = || Listener::open(&path, SocketType::STREAM);
    for _ in 0..20 {
        // Eight threads open the listener at the same time; exactly one succeeds.
        let opened: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let (good, bad): (Vec<_>, Vec<_>) = opened.into_iter().partition(Result::is_ok);
        assert_eq!((good.len(), bad.len()), (1, 7));
        for error in bad.into_iter().filter_map(Result::err) {
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        }
        // Callers reach the listener that is open.
        let listener = good.into_iter().flatten().next().expect("one of them");
        let _caller = Peer::connect(&path, SocketType::STREAM, false).expect("it listens");
        assert!(listener.accept().expect("it accepts").is_some());
    }
    assert!(!path.exists(), "it goes with its listener");
    let _ = std::fs::remove_file(path.with_extension("kiban-lock"));
}

#[test]
fn the_files_of_ended_processes_are_removed_and_those_of_listeners_are_kept() {
    let folder = place("stale");
    std::fs::create_dir_all(&folder).expect("temporary files can be created");
    let lock = |path: &Path| PathBuf::from(format!("{}.kiban-lock", path.display()));
    let age = |path: &Path| {
        let file = std::fs::File::options().write(true).open(lock(path)).expect("it is there");
        file.set_modified(std::time::UNIX_EPOCH).expect("it is ours");
    };
    let [alive, dead, new, board] =
        ["alive.1.shm", "dead.1.shm", "new.1.shm", "lab.sock"].map(|name| folder.join(name));
    let listener = Listener::open(&alive, SocketType::STREAM).expect("there is no listener");
    for path in [&dead, &new, &board] {
        // An ended process leaves its socket, and a lock file without a lock.
        drop(std::os::unix::net::UnixListener::bind(path).expect("a socket"));
        std::fs::write(lock(path), "").expect("a file");
    }
    [&alive, &dead, &board].into_iter().for_each(|path| age(path));
    super::remove_stale(&folder);
    let there = [&alive, &dead, &new, &board].map(|path| (path.exists(), lock(path).exists()));
    assert_eq!(there, [(true, true), (false, false), (true, true), (true, true)]);
    drop(listener);
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn paths_longer_than_a_socket_address_work() {
    let folder = place(&"long-".repeat(30));
    std::fs::create_dir_all(&folder).expect("temporary files can be created");
    let path = folder.join("door");
    let listener = Listener::open(&path, SocketType::STREAM).expect("there is no listener");
    let _caller = Peer::connect(&path, SocketType::STREAM, false).expect("it listens");
    assert!(listener.accept().expect("it accepts").is_some());
    drop(listener);
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn a_directory_that_others_can_enter_or_replace_is_rejected() {
    let folder = place("folders");
    let own = rustix::process::geteuid().as_raw();
    let make = |name: &str, mode: u32| {
        let path = folder.join(name);
        std::fs::create_dir_all(&path).expect("temporary files can be created");
        rustix::fs::chmod(&path, Mode::from_raw_mode(mode)).expect("it is ours");
        path
    };
    std::fs::create_dir_all(&folder).expect("temporary files can be created");
    let good = make("good", 0o700);
    let validate = |path: &Path| names::validate(path, Whose::Own(own)).map_err(|error| error.to_string());
    let refused = |path: &Path, words: &str| {
        let error = validate(path).expect_err("it is not safe");
        assert!(error.contains(words) && error.contains(&*path.to_string_lossy()), "{words}: {error}");
    };
    assert_eq!(validate(&good), Ok(()));
    refused(&make("open", 0o750), "has mode 0750, not 0700: chmod 700 ");
    let theirs = names::validate(&good, Whose::Own(own + 1)).expect_err("another user's").to_string();
    assert!(theirs.contains(&format!("belongs to user {own}: set XDG_RUNTIME_DIR")), "{theirs}");
    std::os::unix::fs::symlink(&good, folder.join("link")).expect("a link");
    refused(&folder.join("link"), "is a symbolic link: remove it");
    let mode = Mode::RWXU;
    rustix::fs::mknodat(rustix::fs::CWD, folder.join("fifo"), FileType::Fifo, mode, 0).expect("a FIFO");
    refused(&folder.join("fifo"), "is not a directory: remove it");
    let shared = make("shared", 0o777);
    let inside = make("shared/kiban", 0o700);
    refused(&inside, "writable by others: set XDG_RUNTIME_DIR");
    make("shared", 0o1777);
    assert_eq!(validate(&inside), Ok(()), "as in /tmp");
    // Root may query the boards of any user, provided that only that user can have created the directory.
    if own == 0 {
        let give =
            |path: &Path, uid: u32| std::os::unix::fs::chown(path, Some(uid), None).expect("we are root");
        let asks = |uid: u32| names::validate(&inside, Whose::Asked(uid)).map_err(|error| error.to_string());
        give(&inside, 7);
        assert_eq!((asks(0), asks(7)), (Ok(()), Ok(())));
        assert!(asks(8).is_err_and(|error| error.contains("query its boards as root")));
        give(&shared, 8);
        assert!(asks(0).is_err() && asks(7).is_err(), "user 8 may put another one there");
        give(&shared, 0);
        make("shared/kiban", 0o755);
        assert!(asks(0).is_err(), "users other than 7 may enter");
    }
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn names_are_local_to_a_network_namespace() {
    let file = |name: &[u8]| names::file(name).expect("a good name");
    assert!(file(b"lab").starts_with("lab.") && file(b"lab").ends_with(".shm"));
    assert!(file(b"../a/\0").starts_with("..%2fa%2f%00."));
    assert_ne!(file(b"a%2f"), file(b"a/"));
    for name in [&b""[..], &[b'/'; 64]] {
        assert_eq!(names::file(name).expect_err("no name").kind(), io::ErrorKind::InvalidInput);
    }
    let here = file(b"lab");
    let there = std::thread::spawn(|| {
        crate::interface::enter_new_namespace().map(|()| names::file(b"lab").expect("a good name"))
    });
    match there.join().expect("no panic") {
        Ok(there) => assert_ne!(here, there),
        Err(error) => println!("skipped: {error}"),
    }
}
