//! Links over Unix sockets: peers that end and start again, and what is at a path before.

use super::*;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

/// Sends a frame from the link, and returns what the peer reads of a stream.
fn read_one(end: &mut End, peer: &mut UnixStream, frame: &[u8]) -> Vec<u8> {
    end.send(frame).expect("the link is up");
    let mut bytes = vec![0; 4 + frame.len()];
    peer.read_exact(&mut bytes).expect("it was sent");
    bytes
}

#[test]
fn a_listener_at_a_path_serves_one_peer_after_another() {
    let path = path("restart");
    let mut end = End::with(&format!("unix-frames:listen:{path}"));
    let (frame, message) = (vec![7; 60], [&60u32.to_be_bytes()[..], &[7; 60]].concat());
    // How the peer ends: by closing, within a frame, with a length that no frame has, without reading.
    for last in [&b""[..], &message[..30], &[0; 4], &[0xff; 64]] {
        end.send(&frame).expect("no peer is not an error");
        let mut peer = UnixStream::connect(&path).expect("it listens");
        let mut next = UnixStream::connect(&path).expect("it listens");
        peer.write_all(&message).expect("it reads");
        let before = end.came.len();
        end.take_until(|end| end.came.len() > before).expect("the link is up");
        assert_eq!(end.came.pop().as_ref(), Some(&frame));
        assert_eq!(read_one(&mut end, &mut peer, &frame), message);
        // The second peer waits until the first has ended.
        next.write_all(&message).expect("the system takes it");
        end.pull().expect("the link is up");
        assert_eq!(end.came.len(), 0);
        peer.write_all(last).expect("it reads");
        drop(peer);
        end.take_until(|end| !end.came.is_empty()).expect("the link is up");
        assert_eq!(end.came.pop().as_ref(), Some(&frame), "after {last:?}");
        assert_eq!(read_one(&mut end, &mut next, &frame), message);
        drop(next);
        let refused = end.counters().no_peer;
        end.take_until(|_| true).expect("the link is up");
        while end.counters().no_peer == refused {
            end.pull().expect("the link is up");
            end.send(&frame).expect("the link is up");
        }
    }
    let counters = end.counters();
    assert_eq!((counters.malformed, counters.units_in), (2, 8), "{counters:?}");
    drop(end);
    assert!(!std::fs::exists(&path).expect("the directory is there"));
}

#[test]
fn a_peer_of_datagrams_may_end_and_start_again() {
    let (own, peers) = (path("own"), path("peer"));
    let mut end = End::with(&format!("unix-datagrams:{own}:{peers}"));
    let frame = vec![9; 60];
    for round in 1..3 {
        end.send(&frame).expect("no peer is not an error");
        assert_eq!(end.counters().no_peer, round);
        let peer = UnixDatagram::bind(&peers).expect("a path");
        peer.send_to(&frame, &own).expect("it receives");
        peer.send_to(&[], &own).expect("it receives");
        end.take_until(|end| end.counters().malformed == round).expect("the link is up");
        assert_eq!(end.came.pop().as_ref(), Some(&frame));
        // The queue of the peer is shorter than this; the rest waits, and nothing is lost.
        let count = 1000;
        for _ in 0..count {
            end.send(&frame).expect("the link is up");
        }
        assert!(!end.packets.is_empty(), "the system's queue holds {count} datagrams");
        for _ in 0..count {
            let mut bytes = [0; 100];
            assert_eq!(peer.recv(&mut bytes).expect("it was sent"), frame.len());
            end.wait();
            end.push().expect("the link is up");
        }
        assert!(end.packets.is_empty());
        drop(peer);
        std::fs::remove_file(&peers).expect("it is there");
    }
    assert_eq!(end.counters().units_out, 2000);
}

#[test]
fn only_a_stale_socket_at_the_path_is_replaced() {
    let (file, socket) = (path("file"), path("socket"));
    std::fs::write(&file, "a thesis").expect("written");
    for address in [format!("unix-frames:listen:{file}"), format!("unix-datagrams:{file}:{socket}")] {
        let error = End::open(&address).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("a file that is not a socket is there"), "{error}");
    }
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), "a thesis");
    std::fs::remove_file(&file).expect("it is there");
    for address in [format!("unix-frames:listen:{socket}"), format!("unix-datagrams:{socket}:{file}")] {
        // A socket whose process has ended.
        drop(UnixDatagram::bind(&socket).expect("a path"));
        let first = End::with(&address);
        assert!(End::open(&address).is_err(), "another process has {address}");
        drop(first);
    }
}

#[test]
fn sockets_and_files_of_other_programs_are_kept() {
    let (own, peers) = (path("others"), path("others-peer"));
    for address in [format!("unix-frames:listen:{own}"), format!("unix-datagrams:{own}:{peers}")] {
        let is_refused = || {
            let error = End::open(&address).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains("another process listens there"), "{address}: {error}");
        };
        let stream = UnixListener::bind(&own).expect("a path");
        stream.set_nonblocking(true).expect("a socket");
        is_refused();
        assert!(stream.accept().is_err(), "the listener notices nothing");
        UnixStream::connect(&own).expect("the listener is still there");
        std::fs::remove_file(&own).expect("it is there");
        let datagrams = UnixDatagram::bind(&own).expect("a path");
        is_refused();
        UnixDatagram::unbound().expect("a socket").connect(&own).expect("the socket is still there");
        std::fs::remove_file(&own).expect("it is there");
        drop(datagrams);
        // Another program replaces the link's socket, and has its own lock file.
        let lock = format!("{own}.lock");
        std::fs::write(&lock, "").expect("written");
        let end = End::with(&address);
        let mode = std::fs::metadata(&own).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::remove_file(&own).expect("it is there");
        let _other = UnixListener::bind(&own).expect("a path");
        drop(end);
        UnixStream::connect(&own).expect("the listener is still there");
        for path in [&own, &lock] {
            std::fs::remove_file(path).expect("it is there");
        }
    }
}

#[test]
fn a_datagram_with_a_file_descriptor_does_not_end_the_link() {
    let (own, peers) = (path("files"), path("files-peer"));
    let mut end = End::with(&format!("unix-datagrams:{own}:{peers}"));
    let peer = UnixDatagram::unbound().expect("a socket");
    peer.connect(&own).expect("it receives");
    let frame = [9; 60];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [peer.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&files));
    // Linux 6.16 does not let it through.
    let sent = rustix::net::sendmsg(&peer, &[IoSlice::new(&frame)], &mut control, SendFlags::empty());
    peer.send(&frame).expect("it receives");
    end.take_until(|end| !end.came.is_empty()).expect("the link is up");
    assert_eq!(end.came.pop().as_deref(), Some(&frame[..]));
    assert_eq!(end.counters().malformed, u64::from(sent.is_ok()));
}
