//! What carries the bytes of an end: a socket, or a stream of a board.
//!
//! Goal      the core moves bytes, and does not ask by what.
//! Differs   a socket has a file, which the epoll watches. A stream of a board has none: it is looked at (`board.rs`).

use crate::link::shared::SharedLink;
use crate::link::tcp::TcpLink;
use crate::streams::nonblocking::Stream;
use kiban_ground::{Region, SharedBytes};
use kiban_stack::iwarp::stream::Chunk;
use std::io;
use std::net::SocketAddr;

/// What carries an end's bytes.
pub(super) enum Carrier {
    Socket {
        link: TcpLink,
        /// In its place.
        shared: Option<SharedLink>,
    },
    Board(Stream),
}

impl From<TcpLink> for Carrier {
    fn from(link: TcpLink) -> Carrier {
        Carrier::Socket { link, shared: None }
    }
}

impl Carrier {
    /// The socket, also when shared memory has taken its place.
    pub(super) fn socket(&self) -> Option<&TcpLink> {
        match self {
            Carrier::Socket { link, .. } => Some(link),
            Carrier::Board(_) => None,
        }
    }

    pub(super) fn shared(&self) -> Option<&SharedLink> {
        match self {
            Carrier::Socket { shared, .. } => shared.as_ref(),
            Carrier::Board(_) => None,
        }
    }

    pub(super) fn shared_mut(&mut self) -> Option<&mut SharedLink> {
        match self {
            Carrier::Socket { shared, .. } => shared.as_mut(),
            Carrier::Board(_) => None,
        }
    }

    /// Whether an event of its own file says what it has.
    pub(super) fn is_announced(&self) -> bool {
        matches!(self, Carrier::Socket { shared: None, .. })
    }

    /// Whether there is an end, or more, that no event of its own will say.
    pub(super) fn has_more_unsaid(&self) -> bool {
        match self {
            Carrier::Socket { shared, .. } => shared.as_ref().is_some_and(SharedLink::has_ended),
            Carrier::Board(stream) => stream.has_news(),
        }
    }

    /// Whether it has connected.
    pub(super) fn is_connected(&mut self) -> io::Result<bool> {
        match self {
            Carrier::Socket { link, .. } => link.is_connected(),
            Carrier::Board(stream) => stream.is_connected(),
        }
    }

    /// Our address, from the moment it is known.
    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Carrier::Socket { link, .. } => link.local_address().ok(),
            Carrier::Board(stream) => stream.local_addr(),
        }
    }

    /// The addresses of both ends, ours first, once it has connected.
    pub(super) fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        match self {
            Carrier::Socket { link, .. } => link.addresses().ok(),
            Carrier::Board(stream) => Some((stream.local_addr()?, stream.peer_addr())),
        }
    }

    /// Writes as much of a burst as it takes: how many bytes; zero: none now.
    pub(super) fn send<'a>(&mut self, chunks: impl Iterator<Item = Chunk<'a>>) -> io::Result<usize> {
        match self {
            Carrier::Socket { shared: Some(shared), .. } => shared.send(chunks),
            Carrier::Socket { link, shared: None } => link.send(chunks),
            Carrier::Board(stream) => stream.write_runs(chunks.map(|chunk| match chunk {
                Chunk::Own(bytes) => SharedBytes::from(bytes),
                Chunk::Memory(region) => {
                    region.bytes(region.address(), region.len()).expect("a region has its own bytes")
                }
            })),
        }
    }

    /// Reads what is here into the places, then into `room`: how many bytes; `None`: nothing is here now, and zero: the peer has
    /// ended.
    pub(super) fn receive(&mut self, places: &[Region], room: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            Carrier::Socket { shared: Some(shared), .. } => shared.receive(places, room),
            Carrier::Socket { link, shared: None } => link.receive(places, room),
            Carrier::Board(stream) => {
                let most = places.iter().map(Region::len).sum::<usize>() + room.len();
                let (mut places, mut at, mut filled) = (places, 0, 0);
                stream.read(most, |mut run| {
                    while let [place, rest @ ..] = places
                        && !run.is_empty()
                    {
                        let part = run.part(0, place.len() - at);
                        let length = part.len();
                        // It is no longer than the place.
                        let _ = place.write(place.address() + at as u64, part);
                        at += length;
                        run = run.after(length);
                        if at == place.len() {
                            (places, at) = (rest, 0);
                        }
                    }
                    filled += run.copy_to(0, &mut room[filled..]);
                })
            }
        }
    }

    /// The same into room of the caller's own.
    pub(super) fn receive_into(&mut self, first: &mut [u8], room: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            Carrier::Socket { shared: Some(shared), .. } => shared.receive_into(first, room),
            Carrier::Socket { link, shared: None } => link.receive_into(first, room),
            Carrier::Board(stream) => {
                let (mut begun, mut filled) = (0, 0);
                stream.read(first.len() + room.len(), |run| {
                    let copied = run.copy_to(0, &mut first[begun..]);
                    begun += copied;
                    filled += run.copy_to(copied, &mut room[filled..]);
                })
            }
        }
    }

    /// Whether the peer's half has ended, though not all that came may have been read. A socket's events say so of it.
    pub(super) fn has_ended(&self) -> bool {
        match self {
            Carrier::Socket { shared, .. } => shared.as_ref().is_some_and(SharedLink::has_ended),
            Carrier::Board(stream) => stream.has_ended(),
        }
    }

    /// Whether all that was written has left this host's memory: the peer's system has it; a board has it.
    pub(super) fn is_acknowledged(&self) -> bool {
        match self {
            Carrier::Socket { link, .. } => link.is_acknowledged(),
            Carrier::Board(stream) => stream.is_taken(),
        }
    }

    /// Sends no more: what is written still goes, then the end.
    pub(super) fn finish(&mut self) {
        match self {
            Carrier::Socket { shared: Some(shared), .. } => shared.finish(),
            Carrier::Socket { link, shared: None } => link.finish(),
            Carrier::Board(stream) => stream.finish(),
        }
    }

    /// Ends at once: the peer is reset.
    pub(super) fn abort(self) {
        match self {
            Carrier::Socket { link, .. } => link.abort(),
            Carrier::Board(stream) => stream.abort(),
        }
    }
}
