//! The two sides of a connection as a script describes them: with relative numbers, and with a payload byte
//! determined by its position in the stream.

use kiban_board::StreamId;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The peer's default initial sequence number, chosen so that its sequence numbers wrap soon.
pub(crate) const PEER_INITIAL: u32 = 0xffff_f000;
/// The peer's timestamp clock at the start of the script, chosen so that it wraps soon.
const PEER_STAMP: u32 = 0xffff_ff00;

/// The sequence numbers and timestamps of one side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Side {
    pub(crate) initial: Option<u32>,
    /// The next sequence number to send, relative to the SYN.
    pub(crate) next: i64,
    pub(crate) first_stamp: Option<u32>,
    pub(crate) last_stamp: u32,
    /// Whether the side's SYN had a timestamps option.
    pub(crate) stamps: bool,
}

impl Side {
    pub(crate) fn absolute(&self, relative: i64) -> u32 {
        self.initial.unwrap_or(0).wrapping_add(relative as u32)
    }

    pub(crate) fn relative(&self, absolute: u32) -> i64 {
        i64::from(absolute.wrapping_sub(self.initial.unwrap_or(0)) as i32)
    }

    pub(crate) fn stamp(&self, relative: i64) -> u32 {
        self.first_stamp.unwrap_or(0).wrapping_add(relative as u32)
    }

    pub(crate) fn relative_stamp(&self, absolute: u32) -> i64 {
        match self.first_stamp {
            // RFC 7323 §3.2: the field is zero if there is no value to echo.
            Some(first) if absolute != 0 => i64::from(absolute.wrapping_sub(first) as i32),
            _ => i64::from(absolute),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) label: String,
    pub(crate) remote: SocketAddr,
    /// Known from the start for a passive open; taken from the board's SYN for an active open.
    pub(crate) local_port: Option<u16>,
    pub(crate) board: Side,
    pub(crate) peer: Side,
    /// The window in those segments of the peer for which the script gives none.
    pub(crate) window: u16,
    pub(crate) stream: Option<StreamId>,
    /// The bytes that the host has written, and those that it wrote before the board's SYN.
    pub(crate) written: Vec<u8>,
    pub(crate) written_before_syn: Vec<u8>,
    /// Bytes of the peer's stream that the script gives literally, by position.
    pub(crate) literals: BTreeMap<i64, u8>,
    /// The position of the first byte of the peer's stream.
    pub(crate) begin: i64,
    pub(crate) got: u64,
}

impl Connection {
    pub(crate) fn new(label: &str, remote: SocketAddr, local_port: Option<u16>, initial: u32) -> Connection {
        Connection {
            label: label.into(),
            remote,
            local_port,
            board: Side::default(),
            peer: Side {
                initial: Some(initial),
                first_stamp: Some(PEER_STAMP),
                last_stamp: PEER_STAMP,
                ..Side::default()
            },
            window: u16::MAX,
            stream: None,
            written: Vec::new(),
            written_before_syn: Vec::new(),
            literals: BTreeMap::new(),
            begin: 1,
            got: 0,
        }
    }

    /// Returns whether both SYNs had a timestamps option (RFC 7323 §3.2).
    pub(crate) fn stamps(&self) -> bool {
        self.board.stamps && self.peer.stamps
    }

    /// Returns the byte of the peer's stream at a position.
    pub(crate) fn peer_byte(&self, place: i64) -> u8 {
        self.literals.get(&place).copied().unwrap_or_else(|| generated(place, 0x5a))
    }

    /// Returns the bytes of a datagram from the host or the peer.
    pub(crate) fn datagram(count: usize, of_host: bool) -> Vec<u8> {
        (1..=count as i64).map(|place| generated(place, if of_host { 0 } else { 0x5a })).collect()
    }

    /// Returns the next `count` bytes that the host writes.
    pub(crate) fn host_bytes(&self, count: usize) -> Vec<u8> {
        let begin = self.written.len() as i64 + 1;
        (begin..begin + count as i64).map(|place| generated(place, 0)).collect()
    }
}

/// Returns a byte that differs from the neighbouring bytes, from those 256 or 1460 positions away, and from
/// the other side's byte at this position.
fn generated(place: i64, side: u8) -> u8 {
    ((place as u32).wrapping_mul(0x9e37_79b1) >> 24) as u8 ^ side
}
