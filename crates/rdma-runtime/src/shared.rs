//! A byte stream through shared memory between two processes of the same user on the same host. It replaces
//! the TCP connection over which they met.
//!
//! Purpose   carries the same bytes as TCP over the loopback interface, but at memory-copy speed and without
//!           system calls while both processes are awake.
//! Setup     before the connecting side sends anything on the TCP connection, it opens a rendezvous socket
//!           (a [`ChannelListener`]) named after both ends of the connection. The accepting side connects to
//!           it after it has received the first bytes. If there is no such socket or no answer, the
//!           connection stays on TCP, with no difference on the wire. The name needs both ends, because a
//!           local port can serve several destinations.
//! Memory    a [`Channel`] that holds one [`pipe`] per direction after its front part. The first pipe is the
//!           one from the side that connected to the rendezvous socket.
//! Ports     the same memory can also connect two UDP ports, without any TCP connection ([`listen_at`],
//!           [`connect_port`]).
//! Failure   a peer that closes marks the end in its pipe. A peer that hangs up without this mark has died.
//! Trust     the layout is fixed by the version. The peer's indices are validated by the pipe; bytes are
//!           copied out before they are parsed, and undergo the same checks as bytes from the network.

use kiban_base::pipe::{self, Reader, Writer};
use kiban_base::ring::Poisoned;
use kiban_base::{Region, SharedBytes};
use kiban_os::channel::{Channel, ChannelListener, FRONT_BYTES, PendingChannel};
use kiban_os::clock::machine_nanos;
use kiban_rdma::iwarp::stream::Chunk;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

/// Capacity of each direction in bytes: larger than a core's private cache, so that data is read from the
/// cache that the cores share.
const ROOM_BYTES: usize = 1 << 20;

/// Offsets of the two pipes, and the total length.
const LAYOUT: (usize, usize, usize) = {
    let pipe = pipe::bytes(ROOM_BYTES).next_multiple_of(64);
    (FRONT_BYTES, FRONT_BYTES + pipe, (FRONT_BYTES + 2 * pipe).next_multiple_of(4096))
};

/// Returns the octets of addresses and ports.
fn octets(ends: &[SocketAddr]) -> Vec<u8> {
    let mut name = Vec::new();
    for end in ends {
        // Use the addresses as the connecting side sees them, no matter which kind of socket accepted the
        // connection. Two IPv6 addresses as text would exceed the maximum length of a name.
        match end.ip().to_canonical() {
            IpAddr::V4(ip) => name.extend(ip.octets()),
            IpAddr::V6(ip) => name.extend(ip.octets()),
        }
        name.extend(end.port().to_be_bytes());
    }
    name
}

fn name(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    [b"rdma-", &letters(&octets(&[from, to]))[..]].concat()
}

fn port_name(port: SocketAddr) -> Vec<u8> {
    [b"roce-", &letters(&octets(&[port]))[..]].concat()
}

/// Encodes bytes as characters allowed in a name, four for three bytes (RFC 4648 §5, base64url without
/// padding).
fn letters(bytes: &[u8]) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut letters = Vec::new();
    for piece in bytes.chunks(3) {
        let word = piece.iter().chain([&0; 2]).take(3).fold(0u32, |word, byte| word << 8 | u32::from(*byte));
        let places = [18, 12, 6, 0].into_iter().take(piece.len() + 1);
        letters.extend(places.map(|place| ALPHABET[(word >> place & 63) as usize]));
    }
    letters
}

/// Opens the rendezvous socket for the connection from our end, `from`, to the peer's end, `to`.
///
/// # Errors
/// The name is in use.
pub fn listen(from: SocketAddr, to: SocketAddr) -> io::Result<ChannelListener> {
    ChannelListener::open(&name(from, to))
}

/// Connects to the rendezvous socket of the peer whose end of the TCP connection is `from` and ours is `to`.
///
/// # Errors
/// There is no such socket, or it belongs to another user.
pub fn connect(from: SocketAddr, to: SocketAddr) -> io::Result<PendingChannel> {
    PendingChannel::connect(&name(from, to), b"", LAYOUT.2)
}

/// Opens the rendezvous socket of a UDP port of this process.
///
/// # Errors
/// The name is in use.
pub fn listen_at(port: SocketAddr) -> io::Result<ChannelListener> {
    ChannelListener::open(&port_name(port))
}

/// Connects one of our UDP ports, `own`, to the rendezvous socket of another process's port.
///
/// # Errors
/// There is no such socket, or it belongs to another user.
pub fn connect_port(own: SocketAddr, peer: SocketAddr) -> io::Result<PendingChannel> {
    PendingChannel::connect(&port_name(peer), &octets(&[own]), LAYOUT.2)
}

/// A byte stream through shared memory.
pub struct SharedLink {
    channel: Channel,
    out: Writer,
    into: Reader,
    /// The other side has hung up.
    hung_up: bool,
}

impl std::fmt::Debug for SharedLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedLink")
    }
}

fn broken(_: Poisoned) -> io::Error {
    io::ErrorKind::InvalidData.into()
}

impl SharedLink {
    /// Completes the stream once the other side has answered. Returns `None` before that.
    ///
    /// # Errors
    /// The other side hung up, or sent something invalid.
    pub fn complete(half: &mut PendingChannel) -> io::Result<Option<SharedLink>> {
        let (there, back, bytes) = LAYOUT;
        let Some(channel) = half.complete(bytes..=bytes)? else { return Ok(None) };
        let (out, into) = if channel.is_caller() { (there, back) } else { (back, there) };
        let out = Writer::new(channel.region(), out, ROOM_BYTES);
        let into = Reader::new(channel.region(), into, ROOM_BYTES);
        Ok(Some(SharedLink { channel, out, into, hung_up: false }))
    }

    /// Returns the UDP port from which the other side connected ([`connect_port`]).
    pub fn caller(&self) -> Option<SocketAddr> {
        let (address, port) = self.channel.caller().split_last_chunk()?;
        let v4 = || <[u8; 4]>::try_from(address).map(IpAddr::from);
        let address = <[u8; 16]>::try_from(address).map(IpAddr::from).or_else(|_| v4()).ok()?;
        Some(SocketAddr::new(address, u16::from_be_bytes(*port)))
    }

    /// Writes as much of a burst as fits. Returns the number of bytes written.
    ///
    /// # Errors
    /// The other side has ended or has corrupted the memory.
    pub fn send<'a>(&mut self, chunks: impl Iterator<Item = Chunk<'a>>) -> io::Result<usize> {
        if self.hung_up {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut sent = 0;
        for chunk in chunks {
            let bytes = match chunk {
                Chunk::Own(bytes) => SharedBytes::from(bytes),
                Chunk::Memory(region) => {
                    region.bytes(region.address(), region.len()).ok_or(io::ErrorKind::InvalidData)?
                }
            };
            let whole = bytes.len();
            let written = self.out.write(bytes).map_err(broken)?;
            sent += written;
            if written < whole {
                break;
            }
        }
        self.out.publish();
        if sent > 0 {
            self.channel.ring(machine_nanos);
        }
        Ok(sent)
    }

    /// Reads available bytes into the memory in `places`, and then into `room`. Returns how many were read:
    /// `None` if nothing is available now, zero if the peer has closed.
    ///
    /// # Errors
    /// The peer has died, or corrupted the memory. EFAULT: a part of the memory in `places` is not
    /// mapped; what was read is lost.
    pub fn receive(&mut self, places: &[Region], room: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(here) = self.here()? else { return Ok(None) };
        let (mut read, mut is_mapped) = (0, true);
        for place in places {
            let mut at = place.address();
            let taken = self.into.take(place.len(), |run| {
                // A run is no longer than its memory.
                is_mapped &= place.write(at, run).is_some();
                at += run.len() as u64;
            });
            read += taken;
            if taken < place.len() {
                break;
            }
        }
        if read < here {
            read += self.read_into(room);
        }
        self.make_room_known(read);
        if is_mapped { Ok(Some(read)) } else { Err(rustix::io::Errno::FAULT.into()) }
    }

    /// Like [`SharedLink::receive`], but reads into a buffer of the caller first.
    ///
    /// # Errors
    /// As for [`SharedLink::receive`].
    pub fn receive_into(&mut self, first: &mut [u8], room: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(here) = self.here()? else { return Ok(None) };
        let mut read = self.read_into(first);
        if read == first.len() && read < here {
            read += self.read_into(room);
        }
        self.make_room_known(read);
        Ok(Some(read))
    }

    /// Returns the number of available bytes; `None` if there are none, zero at the end of the stream.
    ///
    /// # Errors
    /// As for [`SharedLink::receive`].
    #[inline]
    pub fn here(&mut self) -> io::Result<Option<usize>> {
        let (ended, hung_up) = (self.into.has_ended(), self.hung_up);
        match self.into.readable().map_err(broken)? {
            0 if ended => Ok(Some(0)),
            0 if hung_up => Err(io::ErrorKind::ConnectionReset.into()),
            0 => Ok(None),
            here => Ok(Some(here)),
        }
    }

    fn read_into(&mut self, room: &mut [u8]) -> usize {
        let mut at = 0;
        self.into.take(room.len(), |run| at += run.copy_to(0, &mut room[at..]))
    }

    /// Wakes a writer that may be waiting for room.
    #[inline]
    fn make_room_known(&self, read: usize) {
        if read > 0 {
            self.channel.ring(machine_nanos);
        }
    }

    /// Returns whether the other side has finished sending.
    pub fn has_ended(&self) -> bool {
        self.into.has_ended()
    }

    /// Returns whether there is something to read: bytes, the end, or a hang-up.
    pub fn is_readable(&mut self) -> bool {
        self.hung_up || self.into.has_ended() || self.into.readable() != Ok(0)
    }

    /// Returns whether bytes can be written.
    pub fn has_room(&mut self) -> bool {
        self.has_room_for(1)
    }

    /// Returns whether this many bytes can be written: at most a sixteenth of the capacity.
    pub fn has_room_for(&mut self, bytes: usize) -> bool {
        // A write reports that the memory is corrupted.
        self.out.room(bytes).map_or(true, |room| room >= bytes)
    }

    /// Ends our direction: no more bytes are sent.
    pub fn finish(&mut self) {
        self.out.end();
        self.channel.ring(machine_nanos);
    }

    /// Checks, after the file became readable, whether the other side has hung up. Returns whether it has.
    pub fn is_hung_up(&mut self) -> bool {
        self.hung_up |= self.channel.is_gone();
        self.hung_up
    }

    /// Returns whether [`SharedLink::is_hung_up`] has found that the other side has hung up.
    pub fn has_hung_up(&self) -> bool {
        self.hung_up
    }

    /// Arms the doorbell before sleeping.
    pub fn arm(&self) {
        self.channel.own_bell().arm();
    }

    /// Returns whether the doorbell has not been rung since [`SharedLink::arm`].
    pub fn is_armed(&self) -> bool {
        self.channel.own_bell().is_armed()
    }

    /// Disarms the doorbell after sleeping.
    pub fn disarm(&self) -> Option<u64> {
        self.channel.own_bell().disarm()
    }

    /// Returns the file that becomes readable when the other side rings or hangs up.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.channel.socket()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(port: u16) -> [SharedLink; 2] {
        let [own, to] = [port, 7].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let listener = listen(own, to).expect("the name is free");
        let mut caller = connect(own, to).expect("the listener accepts");
        let mut callee = listener.try_accept().expect("a caller is waiting");
        let callee = SharedLink::complete(&mut callee).expect("valid").expect("its hello has arrived");
        let caller = SharedLink::complete(&mut caller).expect("valid").expect("its hello has arrived");
        [caller, callee]
    }

    #[test]
    fn bytes_cross_both_ways_and_are_placed_correctly() {
        for [mut from, mut to] in [pair(1), pair(2)].map(|[a, b]| [b, a]) {
            let memory = Region::new(4096, 100);
            let chunks = || [Chunk::Own(b"front"), Chunk::Memory(&memory)].into_iter();
            memory.write(4096, b"payload"[..].into()).expect("it fits");
            assert_eq!(from.send(chunks()).expect("room"), 105);
            let place = Region::new(0, 8);
            let mut room = [0; 200];
            assert_eq!(to.receive(std::slice::from_ref(&place), &mut room).expect("alive"), Some(105));
            assert_eq!(place.read(0, 8).expect("it fits"), b"frontpay");
            assert_eq!(&room[..4], b"load");
            assert_eq!(to.receive(&[], &mut room).expect("alive"), None);
            from.finish();
            assert!(to.is_readable());
            assert_eq!(to.receive(&[], &mut room).expect("alive"), Some(0));
        }
    }

    #[test]
    fn connections_from_one_port_have_separate_rendezvous_sockets() {
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let long = "[2001:db8:1111:2222:3333:4444:5555:6666]:65535";
        for (from, to, others) in [
            ("127.0.0.1:5", "127.0.0.1:6", ["127.0.0.1:7", "127.0.0.2:6"]),
            (long, "[2001:db8:1111:2222:3333:4444:5555:7777]:65535", [long, "[::1]:65535"]),
        ] {
            let listener = listen(at(from), at(to)).expect("the name is free");
            for other in others {
                assert!(connect(at(from), at(other)).is_err(), "{from} {other}");
                drop(listen(at(from), at(other)).expect("the name is free"));
            }
            assert!(connect(at(to), at(from)).is_err(), "it has a direction");
            assert!(listener.try_accept().is_none());
            assert!(connect(at(from), at(to)).is_ok());
        }
        // An IPv6 socket sees the mapped address of an IPv4 peer.
        let _door = listen(at("127.0.0.1:8"), at("127.0.0.1:9")).expect("the name is free");
        assert!(connect(at("[::ffff:127.0.0.1]:8"), at("[::ffff:127.0.0.1]:9")).is_ok());
    }

    #[test]
    fn a_hang_up_without_a_close_is_an_error() {
        let [mut caller, callee] = pair(3);
        drop(callee);
        assert!(caller.is_hung_up() && caller.is_readable());
        assert!(caller.receive(&[], &mut [0; 9]).is_err());
        assert!(caller.send([Chunk::Own(b"x")].into_iter()).is_err());
    }

    #[test]
    fn a_full_pipe_accepts_more_after_a_read() {
        let [mut caller, mut callee] = pair(4);
        let long = vec![7; ROOM_BYTES + 1];
        assert_eq!(caller.send([Chunk::Own(&long)].into_iter()).expect("alive"), ROOM_BYTES);
        assert!(!caller.has_room());
        assert_eq!(callee.receive(&[], &mut [0; 100]).expect("alive"), Some(100));
        assert!(!caller.has_room());
        assert_eq!(callee.receive(&[], &mut vec![0; ROOM_BYTES]).expect("alive"), Some(ROOM_BYTES - 100));
        assert!(caller.has_room());
    }
}
