//! Raw TCP: streams of blocks, and round trips.

use super::measured::Measured;
use super::peer::{Peer, answer, own_address};
use super::setting::{BATCH_BYTES, PATIENCE, RING_BYTES, WARM};
use kiban_base::Wait;
use kiban_lab::Trial;
use kiban_os::clock::Clock;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

const PAGE_BYTES: usize = 4096;

/// A ring of blocks that begin on a page boundary, as the NIC's do.
struct Ring {
    bytes: Vec<u8>,
    start: usize,
}

impl Ring {
    fn new() -> Ring {
        let bytes = crate::noise::noise(1, RING_BYTES + PAGE_BYTES);
        let start = bytes.as_ptr().align_offset(PAGE_BYTES);
        Ring { bytes, start }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + RING_BYTES]
    }
}

struct Socket {
    stream: TcpStream,
    polls: bool,
}

impl Socket {
    fn new(stream: TcpStream, wait: Wait) -> Socket {
        let polls = wait == Wait::Poll;
        stream.set_nodelay(true).expect("a socket");
        stream.set_nonblocking(polls).expect("a socket");
        if !polls {
            stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        }
        Socket { stream, polls }
    }

    fn connect(address: &str, wait: Wait) -> Socket {
        Socket::new(TcpStream::connect(address).expect("the peer listens"), wait)
    }

    fn accept(wait: Wait) -> Socket {
        let listener = TcpListener::bind((own_address(), 0)).expect("a port");
        answer(listener.local_addr().expect("an address"));
        Socket::new(listener.accept().expect("the benchmark connects").0, wait)
    }

    /// Reads at most `room.len()` bytes; zero means that the connection has ended.
    fn read(&mut self, room: &mut [u8]) -> usize {
        loop {
            match self.stream.read(room) {
                Ok(read) => return read,
                Err(error) if self.polls && error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                // The other end has closed while bytes were in flight.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return 0,
                Err(error) => panic!("a read failed: {error}"),
            }
        }
    }

    /// Fills `room`; returns whether the bytes arrived.
    fn read_all(&mut self, mut room: &mut [u8]) -> bool {
        while !room.is_empty() {
            match self.read(room) {
                0 => return false,
                read => room = &mut room[read..],
            }
        }
        true
    }

    fn write_all(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if self.polls && error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(error) => panic!("a write failed: {error}"),
            }
        }
    }
}

/// Streams blocks in one direction. The result's unit of work is a byte.
pub(crate) fn stream(trial: &mut Trial, peer: &mut Peer, block_bytes: usize, wait: (&str, Wait)) -> Measured {
    let address = peer.ask(&format!("raw-sink {block_bytes} {}", wait.0));
    let mut socket = Socket::connect(&address, wait.1);
    let mut ring = Ring::new();
    let mut send = |batches: usize, nanos: u64| {
        let (clock, mut sent) = (trial.clock(), 0);
        let start = clock.now().as_nanos();
        while sent < batches || clock.now().as_nanos() - start < nanos {
            let rounds = BATCH_BYTES / RING_BYTES;
            for _ in 0..rounds {
                ring.bytes().chunks_exact(block_bytes).for_each(|block| socket.write_all(block));
            }
            sent += 1;
        }
        assert!(socket.read_all(&mut vec![0; sent]), "the peer has taken all");
        (sent * BATCH_BYTES) as f64
    };
    send(1, WARM.as_nanos() as u64);
    Measured::of(trial, peer, || send(1, trial.span_nanos()))
}

pub(super) fn sink(block_bytes: usize, wait: Wait) {
    let mut socket = Socket::accept(wait);
    let mut ring = Ring::new();
    let (mut at, mut taken) = (0, 0);
    loop {
        let room = &mut ring.bytes()[at..];
        // Do not read beyond the end of the current block, because a program that reads blocks would not do
        // so either.
        let most = block_bytes - at % block_bytes;
        let read = socket.read(&mut room[..most]);
        if read == 0 {
            return;
        }
        at = (at + read) % RING_BYTES;
        taken += read;
        if taken >= BATCH_BYTES {
            taken -= BATCH_BYTES;
            socket.write_all(&[1]);
        }
    }
}

/// Measures round trips; returns half of one in microseconds.
pub(super) fn ping_pong(trial: &mut Trial, peer: &mut Peer, bytes: usize, wait: (&str, Wait)) -> f64 {
    let mut trip = echoed(peer, bytes, wait);
    let mut turns = |count: usize| {
        (0..count).for_each(|_| trip());
        count as f64
    };
    turns(200);
    trial.measure(|| turns(100)).nanos_each() / 2e3
}

/// Returns a function that sends a block to a peer and waits until the peer has returned it.
fn echoed(peer: &mut Peer, bytes: usize, wait: (&str, Wait)) -> impl FnMut() + use<> {
    let address = peer.ask(&format!("raw-echo {bytes} {}", wait.0));
    let mut socket = Socket::connect(&address, wait.1);
    let mut block = vec![7; bytes];
    move || {
        socket.write_all(&block);
        assert!(socket.read_all(&mut block), "the peer answers");
    }
}

/// Returns half of the median round-trip time, microseconds; perftest calls this value typical.
pub(super) fn typical_trip(peer: &mut Peer, bytes: usize, wait: (&str, Wait), turns: usize) -> f64 {
    let mut trip = echoed(peer, bytes, wait);
    let clock = Clock::new();
    let mut trips: Vec<_> = (0..turns)
        .map(|_| {
            let begun = clock.now();
            trip();
            clock.now().since(begun)
        })
        .collect();
    trips.sort_unstable();
    trips[turns / 2].as_nanos() as f64 / 2e3
}

pub(super) fn echo(bytes: usize, wait: Wait) {
    let mut socket = Socket::accept(wait);
    let mut block = vec![0; bytes];
    while socket.read_all(&mut block) {
        socket.write_all(&block);
    }
}
