//! Shared memory as a byte stream between two processes of one user on one host, in place of the TCP connection that brought
//! them together.
//!
//! Goal      what TCP over the loopback carries, at the speed of copying and without a system call while both are awake.
//! Meeting   who connects opens a door named after both ends of the TCP connection before it says anything there; who is
//!           connected to calls when it has heard the first bytes. A caller that finds no door, or is not answered, stays with
//!           TCP, and nothing on the wire differs. One end would not do as a name: a port serves several destinations.
//! Memory    a [`Channel`] with a [`pipe`] for each direction behind its front: first the caller's.
//! Death     a peer that has ended said so in its pipe; one that hangs up without has died.
//! Trust     the shape is fixed by the version. Numbers of the peer's are judged by the pipe; bytes are copied out before they
//!           are looked at, and meet the same checks as those of a wire.

use super::channel::{Channel, Door, FRONT_BYTES, Half};
use crate::clock::machine_nanos;
use kiban_ground::pipe::{self, Reader, Writer};
use kiban_ground::ring::Condemned;
use kiban_ground::{Region, SharedBytes};
use kiban_stack::iwarp::stream::Chunk;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

/// Room of each direction: more than a core's own cache holds, so that what is read comes from the cache that cores share.
const ROOM_BYTES: usize = 1 << 20;

/// Where the pipes begin, and all bytes together.
const LAYOUT: (usize, usize, usize) = {
    let pipe = pipe::bytes(ROOM_BYTES).next_multiple_of(64);
    (FRONT_BYTES, FRONT_BYTES + pipe, (FRONT_BYTES + 2 * pipe).next_multiple_of(4096))
};

fn name(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let mut name = Vec::new();
    for end in [from, to] {
        // As who connects sees them, whatever kind of socket it came to. Two of IPv6 as text are longer than names may be.
        match end.ip().to_canonical() {
            IpAddr::V4(ip) => name.extend(ip.octets()),
            IpAddr::V6(ip) => name.extend(ip.octets()),
        }
        name.extend(end.port().to_be_bytes());
    }
    [b"rdma-", &letters(&name)[..]].concat()
}

/// Bytes as letters that a name takes as they are, four of three bytes (RFC 4648 §5, base64url without padding).
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

/// A door for whom the connection `from` our end reaches.
///
/// # Errors
/// Somebody has it.
pub fn open_door(from: SocketAddr, to: SocketAddr) -> io::Result<Door> {
    Door::open(&name(from, to))
}

/// Calls whoever has connected `from` its end to ours.
///
/// # Errors
/// There is no door, or it is another user's.
pub fn call(from: SocketAddr, to: SocketAddr) -> io::Result<Half> {
    Half::call(&name(from, to), b"", LAYOUT.2)
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

fn broken(_: Condemned) -> io::Error {
    io::ErrorKind::InvalidData.into()
}

impl SharedLink {
    /// The stream, once the other side has spoken; nothing before that.
    ///
    /// # Errors
    /// It hung up, or said what is not understood.
    pub fn complete(half: &mut Half) -> io::Result<Option<SharedLink>> {
        let (there, back, bytes) = LAYOUT;
        let Some(channel) = half.complete(bytes..=bytes)? else { return Ok(None) };
        let (out, into) = if channel.is_caller() { (there, back) } else { (back, there) };
        let out = Writer::new(channel.region(), out, ROOM_BYTES);
        let into = Reader::new(channel.region(), into, ROOM_BYTES);
        Ok(Some(SharedLink { channel, out, into, hung_up: false }))
    }

    /// Writes as much of a burst as there is room for: how many bytes.
    ///
    /// # Errors
    /// The other side has gone, or broke the memory.
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
        self.out.show();
        if sent > 0 {
            self.channel.ring(machine_nanos);
        }
        Ok(sent)
    }

    /// Reads what is here into the places, then into `room`: how many bytes; `None`: nothing is here now, and zero: the peer
    /// has ended.
    ///
    /// # Errors
    /// The peer has died, or broke the memory.
    pub fn receive(&mut self, places: &[Region], room: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(here) = self.here()? else { return Ok(None) };
        let mut read = 0;
        for place in places {
            let mut at = place.address();
            let taken = self.into.take(place.len(), |run| {
                // It is no longer than the place.
                let _ = place.write(at, run);
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
        Ok(Some(read))
    }

    /// The same into room of the caller's own.
    ///
    /// # Errors
    /// As [`SharedLink::receive`].
    pub fn receive_into(&mut self, first: &mut [u8], room: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(here) = self.here()? else { return Ok(None) };
        let mut read = self.read_into(first);
        if read == first.len() && read < here {
            read += self.read_into(room);
        }
        self.make_room_known(read);
        Ok(Some(read))
    }

    /// Bytes that are here; none: nothing is; zero: the end.
    #[inline]
    fn here(&mut self) -> io::Result<Option<usize>> {
        let (ended, hung_up) = (self.into.has_ended(), self.hung_up);
        match self.into.here().map_err(broken)? {
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

    /// A writer that waits for room learns of it.
    #[inline]
    fn make_room_known(&self, read: usize) {
        if read > 0 {
            self.channel.ring(machine_nanos);
        }
    }

    /// Whether the other side sends no more.
    pub fn has_ended(&self) -> bool {
        self.into.has_ended()
    }

    /// Whether there is something to read, or the end.
    pub fn has_news(&mut self) -> bool {
        self.hung_up || self.into.has_ended() || self.into.here() != Ok(0)
    }

    /// Whether bytes can be written.
    pub fn has_room(&mut self) -> bool {
        self.out.room(1) != Ok(0)
    }

    /// Sends no more.
    pub fn finish(&mut self) {
        self.out.end();
        self.channel.ring(machine_nanos);
    }

    /// The file has something: whoever sleeps was rung, or the other side has hung up; whether it has.
    pub fn is_hung_up(&mut self) -> bool {
        self.hung_up |= self.channel.is_gone();
        self.hung_up
    }

    /// About to sleep.
    pub fn arm(&self) {
        self.channel.own_bell().arm();
    }

    /// Whether nobody has rung since.
    pub fn is_armed(&self) -> bool {
        self.channel.own_bell().is_armed()
    }

    /// Awake.
    pub fn disarm(&self) -> Option<u64> {
        self.channel.own_bell().disarm()
    }

    /// What becomes readable when the other side rings or hangs up.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.channel.socket()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(port: u16) -> [SharedLink; 2] {
        let [own, to] = [port, 7].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let door = open_door(own, to).expect("nobody has it");
        let mut caller = call(own, to).expect("the door is open");
        let mut callee = door.caller().expect("somebody calls");
        let callee = SharedLink::complete(&mut callee).expect("decent").expect("its hello is here");
        let caller = SharedLink::complete(&mut caller).expect("decent").expect("its hello is here");
        [caller, callee]
    }

    #[test]
    fn bytes_cross_both_ways_and_land_where_they_belong() {
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
            assert!(to.has_news());
            assert_eq!(to.receive(&[], &mut room).expect("alive"), Some(0));
        }
    }

    #[test]
    fn connections_from_one_port_have_a_door_each() {
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let long = "[2001:db8:1111:2222:3333:4444:5555:6666]:65535";
        for (from, to, others) in [
            ("127.0.0.1:5", "127.0.0.1:6", ["127.0.0.1:7", "127.0.0.2:6"]),
            (long, "[2001:db8:1111:2222:3333:4444:5555:7777]:65535", [long, "[::1]:65535"]),
        ] {
            let door = open_door(at(from), at(to)).expect("nobody has it");
            for other in others {
                assert!(call(at(from), at(other)).is_err(), "{from} {other}");
                drop(open_door(at(from), at(other)).expect("nobody has it"));
            }
            assert!(call(at(to), at(from)).is_err(), "it has a direction");
            assert!(door.caller().is_none());
            assert!(call(at(from), at(to)).is_ok());
        }
        // A socket of IPv6 sees a caller of IPv4 in other clothes.
        let _door = open_door(at("127.0.0.1:8"), at("127.0.0.1:9")).expect("nobody has it");
        assert!(call(at("[::ffff:127.0.0.1]:8"), at("[::ffff:127.0.0.1]:9")).is_ok());
    }

    #[test]
    fn who_hangs_up_without_a_word_has_died() {
        let [mut caller, callee] = pair(3);
        drop(callee);
        assert!(caller.is_hung_up() && caller.has_news());
        assert!(caller.receive(&[], &mut [0; 9]).is_err());
        assert!(caller.send([Chunk::Own(b"x")].into_iter()).is_err());
    }

    #[test]
    fn a_full_pipe_takes_no_more_until_a_piece_is_read() {
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
