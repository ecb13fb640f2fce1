//! VI packets over a TCP stream of a running board.
//!
//! ```text
//! hello     | "kiban-vi" | version 2 | port 2 | IP address 16 |        from the caller, once
//! packets   | length 4, highest byte first | packet |                  in both directions
//! ```
//!
//! Purpose          provide the same service between hosts as a link through shared memory does within one:
//!                  packets arrive in order and without loss, and no call blocks.
//! Hello            the caller sends the address at which it can itself be called, since two NICs that call
//!                  each other at the same time have two streams. The IP address must equal the stream's peer
//!                  address; the port is trusted. Port 0 means that the caller cannot be called. IPv4
//!                  addresses are sent in IPv4-mapped form.
//! Check            each packet has a CRC-32C, as over UDP: TCP's own 16-bit checksum misses one corruption
//!                  in 65,536. A packet that fails the check ends the link, because there is no
//!                  retransmission above TCP.
//! Limits           at most [`ROOM_BYTES`] are buffered in each direction. While the stream accepts no
//!                  bytes, no packets are fetched from the NIC. A caller has [`PATIENCE`] to send its hello.
//! End              the link ends with the stream, or on invalid data: an invalid hello, or a length that is
//!                  0 or exceeds the maximum.
//! Not implemented  detecting a peer whose host disappears silently; this is left to TCP's timeout.

use kiban_base::{Instant, SharedBytes};
use kiban_streams::nonblocking::Stream;
use kiban_vi::wire;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Maximum length of a packet in bytes.
pub(super) const PACKET_BYTES: usize = 64 << 10;
const LENGTH_BYTES: usize = 4;
const UNIT_BYTES: usize = LENGTH_BYTES + PACKET_BYTES;
/// Size of the buffer between the NIC and a stream, in each direction, in bytes.
const ROOM_BYTES: usize = 2 * UNIT_BYTES;
/// Maximum number of bytes taken from one stream before the next is served.
const TURN_BYTES: usize = 1 << 20;
/// How long a caller may take to send its hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(3);

const MAGIC: &[u8; 8] = b"kiban-vi";
const VERSION: u16 = 1;
const HELLO_BYTES: usize = 28;

fn hello(own: SocketAddr) -> [u8; HELLO_BYTES] {
    let ip = match own.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; HELLO_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_be_bytes());
    bytes[10..12].copy_from_slice(&own.port().to_be_bytes());
    bytes[12..].copy_from_slice(&ip.octets());
    bytes
}

/// Decodes the hello from a caller at `peer`. Returns `None` if the hello is invalid or has a different IP
/// address.
fn decode_hello(bytes: &[u8; HELLO_BYTES], peer: SocketAddr) -> Option<SocketAddr> {
    let (magic, rest) = bytes.split_first_chunk::<8>()?;
    let (version, rest) = rest.split_first_chunk::<2>()?;
    let (port, rest) = rest.split_first_chunk::<2>()?;
    let ip = IpAddr::V6(Ipv6Addr::from(*rest.first_chunk::<16>()?)).to_canonical();
    let is_good = magic == MAGIC && u16::from_be_bytes(*version) == VERSION;
    if !is_good || ip != peer.ip().to_canonical() {
        return None;
    }
    match u16::from_be_bytes(*port) {
        // A caller that cannot be called is identified by its source port.
        0 => Some(SocketAddr::new(ip, peer.port())),
        port => Some(SocketAddr::new(ip, port)),
    }
}

/// The stream contains invalid data.
#[derive(PartialEq, Eq, Debug)]
struct InvalidStream;

/// A FIFO buffer of bytes.
struct Buffer {
    room: Box<[u8]>,
    from: usize,
    to: usize,
}

impl Buffer {
    fn new() -> Buffer {
        Buffer { room: vec![0; ROOM_BYTES].into(), from: 0, to: 0 }
    }

    fn here(&self) -> &[u8] {
        &self.room[self.from..self.to]
    }

    fn take(&mut self, count: usize) {
        self.from += count;
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        }
    }

    /// Moves the contents to the front, so that all free room follows them.
    fn move_to_front(&mut self) {
        self.room.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
    }
}

/// Received bytes.
struct Inbox(Buffer);

impl Inbox {
    fn new() -> Inbox {
        Inbox(Buffer::new())
    }

    fn here(&self) -> &[u8] {
        self.0.here()
    }

    /// Returns the free room in bytes.
    fn free(&self) -> usize {
        self.0.room.len() - self.0.to
    }

    fn put(&mut self, run: SharedBytes<'_>) {
        self.0.to += run.copy_to(0, &mut self.0.room[self.0.to..]);
    }

    fn take(&mut self, count: usize) {
        self.0.take(count);
    }

    /// Passes complete packets to `hand`, and makes room for the rest of an incomplete one.
    fn packets(&mut self, mut hand: impl FnMut(&[u8])) -> Result<(), InvalidStream> {
        while let Some((length, rest)) = self.here().split_first_chunk::<LENGTH_BYTES>() {
            let length = u32::from_be_bytes(*length) as usize;
            if !(1..=PACKET_BYTES).contains(&length) {
                return Err(InvalidStream);
            }
            let Some(packet) = rest.get(..length) else { break };
            if wire::verify(packet).is_err() {
                return Err(InvalidStream);
            }
            hand(packet);
            self.take(LENGTH_BYTES + length);
        }
        if self.0.room.len() - self.0.from < UNIT_BYTES {
            self.0.move_to_front();
        }
        Ok(())
    }
}

/// Bytes to be sent.
struct Outbox(Buffer);

impl Outbox {
    fn new() -> Outbox {
        Outbox(Buffer::new())
    }

    fn waiting(&self) -> &[u8] {
        self.0.here()
    }

    fn left(&mut self, count: usize) {
        self.0.take(count);
    }

    fn append(&mut self, words: &[u8]) {
        self.0.room[self.0.to..][..words.len()].copy_from_slice(words);
        self.0.to += words.len();
    }

    /// Returns a buffer for the next packet, if there is room.
    fn place(&mut self) -> Option<&mut [u8]> {
        let Outbox(buffer) = self;
        if buffer.room.len() - buffer.to < UNIT_BYTES {
            if buffer.room.len() - buffer.here().len() < UNIT_BYTES {
                return None;
            }
            buffer.move_to_front();
        }
        Some(&mut buffer.room[buffer.to + LENGTH_BYTES..][..PACKET_BYTES])
    }

    /// Queues the packet of `length` bytes written to [`Outbox::place`].
    fn put(&mut self, length: usize) {
        let Outbox(buffer) = self;
        let unit = &mut buffer.room[buffer.to..][..LENGTH_BYTES + length];
        let (front, packet) = unit.split_at_mut(LENGTH_BYTES);
        front.copy_from_slice(&(length as u32).to_be_bytes());
        wire::fill(packet);
        buffer.to += LENGTH_BYTES + length;
    }
}

/// The state of a stream's set-up.
enum Stage {
    /// An outgoing call. Contains our own listening address.
    Calling(SocketAddr),
    /// An incoming call, whose hello must arrive before this time.
    Called(Instant),
    Open,
}

/// The result of [`Carried::step`].
pub(super) enum Step {
    Nothing,
    /// An outgoing call is open.
    Answered,
    /// An incoming call whose hello has arrived. Contains the caller's address.
    CalledBy(SocketAddr),
}

/// A link to another NIC over a board's TCP.
pub(super) struct BoardLink {
    stream: Stream,
    stage: Stage,
    is_ours: bool,
    into: Inbox,
    out: Outbox,
}

impl BoardLink {
    /// Creates the link of an outgoing call; `own` is our listening address.
    pub(super) fn calling(stream: Stream, own: SocketAddr) -> BoardLink {
        BoardLink::new(stream, Stage::Calling(own), true)
    }

    /// Creates the link of an incoming call.
    pub(super) fn called(stream: Stream, now: Instant) -> BoardLink {
        BoardLink::new(stream, Stage::Called(now + HELLO_TIMEOUT), false)
    }

    fn new(stream: Stream, stage: Stage, is_ours: bool) -> BoardLink {
        BoardLink { stream, stage, is_ours, into: Inbox::new(), out: Outbox::new() }
    }

    /// Returns whether this is an outgoing call.
    pub(super) fn is_ours(&self) -> bool {
        self.is_ours
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open)
    }

    /// Returns our address on the board, once it is known.
    pub(super) fn local_ip(&self) -> Option<IpAddr> {
        self.stream.local_addr().map(|local| local.ip())
    }

    /// Returns the deadline by which an incoming call's hello must arrive.
    pub(super) fn silent_until(&self) -> Option<Instant> {
        match self.stage {
            Stage::Called(until) => Some(until),
            Stage::Calling(_) | Stage::Open => None,
        }
    }

    /// Continues the set-up of a stream that is not open yet.
    ///
    /// # Errors
    /// The set-up failed.
    pub(super) fn step(&mut self, now: Instant) -> io::Result<Step> {
        match self.stage {
            Stage::Open => Ok(Step::Nothing),
            Stage::Calling(own) => {
                if !self.stream.is_connected()? {
                    return Ok(Step::Nothing);
                }
                let local = self.local_ip().filter(|_| own.ip().is_unspecified()).unwrap_or(own.ip());
                self.out.append(&hello(SocketAddr::new(local, own.port())));
                self.stage = Stage::Open;
                Ok(Step::Answered)
            }
            Stage::Called(until) => {
                let missing = HELLO_BYTES - self.into.here().len();
                let ended = self.stream.read(missing, |run| self.into.put(run))? == Some(0);
                let Some(words) = self.into.here().first_chunk::<HELLO_BYTES>() else {
                    let is_lost = ended || now >= until;
                    return if is_lost {
                        Err(io::ErrorKind::UnexpectedEof.into())
                    } else {
                        Ok(Step::Nothing)
                    };
                };
                let peer = decode_hello(words, self.stream.peer_addr()).ok_or(io::ErrorKind::InvalidData)?;
                self.into.take(HELLO_BYTES);
                self.stage = Stage::Open;
                Ok(Step::CalledBy(peer))
            }
        }
    }

    /// Returns whether [`Carried::take`] would return bytes or an error.
    pub(super) fn is_readable(&self) -> bool {
        self.is_open() && self.stream.is_readable()
    }

    /// Passes received packets to `hand` and returns whether any bytes arrived.
    ///
    /// # Errors
    /// The link has ended; everything received before has been passed on.
    pub(super) fn take(&mut self, mut hand: impl FnMut(&[u8])) -> io::Result<bool> {
        let mut taken = 0;
        while taken < TURN_BYTES {
            match self.stream.read(self.into.free(), |run| self.into.put(run))? {
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(count) => taken += count,
                None => break,
            }
            self.into.packets(&mut hand).map_err(|InvalidStream| io::ErrorKind::InvalidData)?;
        }
        Ok(taken > 0)
    }

    /// Returns whether fetched packets are waiting to be sent.
    pub(super) fn has_unsent(&self) -> bool {
        self.is_open() && !self.out.waiting().is_empty()
    }

    /// Returns a buffer for a packet, if there is room.
    pub(super) fn place(&mut self) -> Option<&mut [u8]> {
        if self.is_open() { self.out.place() } else { None }
    }

    /// Queues the packet of `length` bytes written to [`Carried::place`].
    pub(super) fn put(&mut self, length: usize) {
        self.out.put(length);
    }

    /// Writes as many queued bytes as the stream accepts; returns whether all were written.
    ///
    /// # Errors
    /// The stream is lost.
    pub(super) fn write_out(&mut self) -> io::Result<bool> {
        while !self.out.waiting().is_empty() {
            match self.stream.write(self.out.waiting().into())? {
                0 => return Ok(false),
                count => self.out.left(count),
            }
        }
        Ok(true)
    }

    /// Arms the stream's bell before waiting.
    pub(super) fn arm(&self) {
        self.stream.arm();
    }

    /// Aborts the stream.
    pub(super) fn end(self) {
        self.stream.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at * 31 + length) as u8).collect()
    }

    /// Returns packets of the given lengths as they appear on a stream.
    fn stream_of(lengths: &[usize]) -> Vec<u8> {
        let (mut out, mut all) = (Outbox::new(), Vec::new());
        for &length in lengths {
            let place = out.place().expect("all before have left");
            place[..length].copy_from_slice(&packet(length));
            out.put(length);
            all.extend_from_slice(out.waiting());
            out.left(out.waiting().len());
        }
        all
    }

    /// Returns the packets taken from a stream that arrives in pieces of `piece` bytes.
    fn taken(stream: &[u8], piece: usize) -> (Vec<Vec<u8>>, Result<(), InvalidStream>) {
        let (mut into, mut packets) = (Inbox::new(), Vec::new());
        let mut rest = stream;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(piece.min(rest.len()).min(into.free()));
            assert!(!now.is_empty(), "there is always room for the rest of a packet");
            into.put(now.into());
            let result = into.packets(|packet| packets.push(packet.to_vec()));
            if result.is_err() {
                return (packets, result);
            }
            rest = later;
        }
        (packets, Ok(()))
    }

    #[test]
    fn packets_round_trip_wherever_the_stream_is_cut() {
        let lengths = [32, 33, PACKET_BYTES, 1000, PACKET_BYTES, PACKET_BYTES, 32, 40_000, PACKET_BYTES];
        let stream = stream_of(&lengths);
        for piece in [1, 3, 4, 5, 35, 36, 1448, 65_535, UNIT_BYTES, UNIT_BYTES + 1, ROOM_BYTES, usize::MAX] {
            let (packets, result) = taken(&stream, piece);
            assert_eq!(result, Ok(()));
            assert_eq!(packets.iter().map(Vec::len).collect::<Vec<_>>(), lengths, "{piece}");
            for packet_in in &packets {
                let expected = packet(packet_in.len());
                // Compare everything except the fields that the check changes.
                assert!(packet_in[0] == expected[0] && packet_in[2..28] == expected[2..28]);
                assert!(packet_in[32..] == expected[32..]);
            }
        }
    }

    #[test]
    fn an_invalid_stream_ends_after_its_valid_packets() {
        let good = stream_of(&[32, 100]);
        let longest = (PACKET_BYTES as u32 + 1).to_be_bytes();
        let mut damaged = stream_of(&[1000]);
        damaged[LENGTH_BYTES + 500] ^= 1;
        // One packet has no check, and another is too short to have one.
        let unchecked = [&32u32.to_be_bytes()[..], &[0; 32]].concat();
        let short = [&31u32.to_be_bytes()[..], &[0; 31]].concat();
        let hello = hello(([127, 0, 0, 1], 7).into());
        for bad in
            [&[0; 4][..], &longest, &[0xff; 4], b"GET / HTTP/1.0", &hello, &damaged, &unchecked, &short]
        {
            for piece in [1, 7, usize::MAX] {
                let (packets, result) = taken(&[&good, bad, &good].concat(), piece);
                assert_eq!((packets.len(), result), (2, Err(InvalidStream)), "{bad:?}");
            }
        }
    }

    #[test]
    fn no_more_is_fetched_than_fits() {
        let mut out = Outbox::new();
        for _ in 0..2 {
            out.place().expect("room for two of the longest")[..32].fill(1);
            out.put(PACKET_BYTES);
        }
        assert_eq!(out.place(), None);
        out.left(UNIT_BYTES - 1);
        assert_eq!(out.place(), None);
        let last = out.waiting().to_vec();
        out.left(1);
        assert!(out.place().is_some() && out.waiting() == &last[1..], "what waits is as it was");
    }

    #[test]
    fn a_callers_listening_address_must_be_its_own() {
        let at = |word: &str| word.parse::<SocketAddr>().expect("an address");
        for (own, peer, heard) in [
            ("10.9.0.2:4808", "10.9.0.2:50000", Some("10.9.0.2:4808")),
            ("10.9.0.2:0", "10.9.0.2:50000", Some("10.9.0.2:50000")),
            ("10.9.0.2:4808", "10.9.0.3:50000", None),
            ("10.9.0.2:4808", "[::ffff:10.9.0.2]:50000", Some("10.9.0.2:4808")),
            ("[2001:db8::1]:9", "[2001:db8::1]:50000", Some("[2001:db8::1]:9")),
            ("[2001:db8::1]:9", "[2001:db8::2]:50000", None),
        ] {
            assert_eq!(decode_hello(&hello(at(own)), at(peer)), heard.map(at), "{own} from {peer}");
        }
        let (own, peer) = (at("10.9.0.2:4808"), at("10.9.0.2:50000"));
        for place in 0..10 {
            let mut bytes = hello(own);
            bytes[place] ^= 1;
            assert_eq!(decode_hello(&bytes, peer), None, "{place}");
        }
    }
}
