//! The transport of an end's bytes: a socket, or a stream of a board.
//!
//! Purpose      gives the core one interface through which to move bytes.
//! Differences  a socket has a file, which epoll watches. A board's stream has no file and is polled
//!              (`board_streams.rs`).

use crate::shared::SharedLink;
use crate::tcp::TcpLink;
use kiban_base::{Region, SharedBytes};
use kiban_rdma::iwarp::stream::Chunk;
use kiban_streams::nonblocking::Stream;
use std::io;
use std::net::SocketAddr;

/// The transport of an end's bytes.
pub(super) enum Transport {
    Socket {
        link: TcpLink,
        /// The shared memory that has replaced the socket.
        shared: Option<SharedLink>,
    },
    Board(Stream),
}

/// Returns whether an operation failed because a part of the host's memory is not mapped.
pub(super) fn is_unmapped(error: &io::Error) -> bool {
    rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::FAULT)
}

impl From<TcpLink> for Transport {
    fn from(link: TcpLink) -> Transport {
        Transport::Socket { link, shared: None }
    }
}

impl Transport {
    /// Returns the socket, even if shared memory has replaced it.
    pub(super) fn socket(&self) -> Option<&TcpLink> {
        match self {
            Transport::Socket { link, .. } => Some(link),
            Transport::Board(_) => None,
        }
    }

    pub(super) fn shared(&self) -> Option<&SharedLink> {
        match self {
            Transport::Socket { shared, .. } => shared.as_ref(),
            Transport::Board(_) => None,
        }
    }

    pub(super) fn shared_mut(&mut self) -> Option<&mut SharedLink> {
        match self {
            Transport::Socket { shared, .. } => shared.as_mut(),
            Transport::Board(_) => None,
        }
    }

    /// Returns whether epoll reports the transport's events.
    pub(super) fn is_announced(&self) -> bool {
        matches!(self, Transport::Socket { shared: None, .. })
    }

    /// Returns whether there is more data, or an end of stream, that no event will report.
    pub(super) fn has_more_unsaid(&self) -> bool {
        match self {
            Transport::Socket { shared, .. } => shared.as_ref().is_some_and(SharedLink::has_ended),
            Transport::Board(stream) => stream.is_readable(),
        }
    }

    /// Returns whether the connection is established.
    pub(super) fn is_connected(&mut self) -> io::Result<bool> {
        match self {
            Transport::Socket { link, .. } => link.is_connected(),
            Transport::Board(stream) => stream.is_connected(),
        }
    }

    /// Returns our address, once it is known.
    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Transport::Socket { link, .. } => link.local_address().ok(),
            Transport::Board(stream) => stream.local_addr(),
        }
    }

    /// Returns the addresses of both ends, ours first, once it is connected.
    pub(super) fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        match self {
            Transport::Socket { link, .. } => link.addresses().ok(),
            Transport::Board(stream) => Some((stream.local_addr()?, stream.peer_addr())),
        }
    }

    /// Writes as much of a burst as fits. Returns the number of bytes; zero if nothing fits now.
    pub(super) fn send<'a>(&mut self, chunks: impl Iterator<Item = Chunk<'a>>) -> io::Result<usize> {
        match self {
            Transport::Socket { shared: Some(shared), .. } => shared.send(chunks),
            Transport::Socket { link, shared: None } => link.send(chunks),
            Transport::Board(stream) => stream.write_runs(chunks.map(|chunk| match chunk {
                Chunk::Own(bytes) => SharedBytes::from(bytes),
                Chunk::Memory(region) => {
                    region.bytes(region.address(), region.len()).expect("a region has its own bytes")
                }
            })),
        }
    }

    /// Reads available bytes into the memory in `places`, and then into `room`. Returns how many were read:
    /// `None` if nothing is available now, zero if the peer has closed. The error is EFAULT if a part of the
    /// memory in `places` is not mapped ([`is_unmapped`]).
    pub(super) fn receive(&mut self, places: &[Region], room: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            Transport::Socket { shared: Some(shared), .. } => shared.receive(places, room),
            Transport::Socket { link, shared: None } => link.receive(places, room),
            Transport::Board(stream) => {
                let most = places.iter().map(Region::len).sum::<usize>() + room.len();
                let (mut places, mut at, mut filled, mut is_mapped) = (places, 0, 0, true);
                let read = stream.read(most, |mut run| {
                    while let [place, rest @ ..] = places
                        && !run.is_empty()
                    {
                        let part = run.part(0, place.len() - at);
                        let length = part.len();
                        // A part is no longer than its memory.
                        is_mapped &= place.write(place.address() + at as u64, part).is_some();
                        at += length;
                        run = run.after(length);
                        if at == place.len() {
                            (places, at) = (rest, 0);
                        }
                    }
                    filled += run.copy_to(0, &mut room[filled..]);
                })?;
                if is_mapped { Ok(read) } else { Err(rustix::io::Errno::FAULT.into()) }
            }
        }
    }

    /// Like [`Transport::receive`], but reads into a buffer of the caller first.
    pub(super) fn receive_into(&mut self, first: &mut [u8], room: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            Transport::Socket { shared: Some(shared), .. } => shared.receive_into(first, room),
            Transport::Socket { link, shared: None } => link.receive_into(first, room),
            Transport::Board(stream) => {
                let (mut begun, mut filled) = (0, 0);
                stream.read(first.len() + room.len(), |run| {
                    let copied = run.copy_to(0, &mut first[begun..]);
                    begun += copied;
                    filled += run.copy_to(copied, &mut room[filled..]);
                })
            }
        }
    }

    /// Returns whether the peer has closed its direction, even if received data is still unread. For a plain
    /// socket, epoll reports this instead.
    pub(super) fn has_ended(&self) -> bool {
        match self {
            Transport::Socket { shared, .. } => shared.as_ref().is_some_and(SharedLink::has_ended),
            Transport::Board(stream) => stream.has_ended(),
        }
    }

    /// Returns whether everything written has been acknowledged by the peer's system, or accepted by the
    /// board.
    pub(super) fn is_acknowledged(&self) -> bool {
        match self {
            Transport::Socket { link, .. } => link.is_acknowledged(),
            Transport::Board(stream) => stream.is_drained(),
        }
    }

    /// Ends our direction: written bytes are still sent, then the end.
    pub(super) fn finish(&mut self) {
        match self {
            Transport::Socket { shared: Some(shared), .. } => shared.finish(),
            Transport::Socket { link, shared: None } => link.finish(),
            Transport::Board(stream) => stream.finish(),
        }
    }

    /// Aborts the stream with a reset.
    pub(super) fn abort(self) {
        match self {
            Transport::Socket { link, .. } => link.abort(),
            Transport::Board(stream) => stream.abort(),
        }
    }
}
