//! The messages by which a client and a board set up the channels of an attachment.
//!
//! Greeting     of the first channel: the number of streams, and the size of their buffers. Of a further one
//!              also the number of its shard, and the token of the attachment.
//! Answer       of a board that is divided into shards: their number, and the attachment's token. An
//!              undivided board answers with nothing.
//! Streams      a hash distributes connections over the shards at random. So the channel of each shard has
//!              room for more than its even part of the streams: for four times the square root of that more,
//!              which is at least four standard deviations, or for all.

use kiban_attach::Layout;
use kiban_os::channel::FRONT_BYTES;
use std::io;

/// Length of an attachment's token in bytes.
pub const TOKEN_BYTES: usize = 16;

/// A client's greeting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// The number of streams of the attachment.
    pub streams: usize,
    /// The buffer size of each direction of a stream in bytes.
    pub room_bytes: usize,
    /// For a further channel: the number of its shard, and the token of the attachment.
    pub further: Option<(u16, [u8; TOKEN_BYTES])>,
}

impl Greeting {
    /// Encodes the greeting.
    pub fn to_bytes(&self) -> Vec<u8> {
        let numbers = [self.streams as u32, self.room_bytes as u32].map(u32::to_be_bytes);
        let mut bytes = numbers.concat();
        if let Some((shard, token)) = self.further {
            bytes.extend(shard.to_be_bytes());
            bytes.extend(token);
        }
        bytes
    }

    /// Decodes a greeting.
    ///
    /// # Errors
    /// If it is malformed or exceeds the limits.
    pub fn from_bytes(bytes: &[u8]) -> io::Result<Greeting> {
        let read = || {
            let (streams, rest) = number(bytes)?;
            let (room_bytes, rest) = number(rest)?;
            let further = match rest {
                [] => None,
                [high, low, token @ ..] => Some((u16::from_be_bytes([*high, *low]), token.try_into().ok()?)),
                _ => return None,
            };
            let greeting = Greeting { streams, room_bytes, further };
            greeting.layout(1).map(|_| greeting)
        };
        read().ok_or_else(|| invalid("invalid greeting: the client uses another version"))
    }

    /// Returns the layout of a channel of a board with `shards` shards; `None` if the greeting exceeds the
    /// limits.
    pub fn layout(&self, shards: usize) -> Option<Layout> {
        let even = self.streams.div_ceil(shards);
        let more = if shards > 1 { 4 * (1 + even.saturating_sub(1).isqrt()) } else { 0 };
        Layout::new(FRONT_BYTES, self.streams.min(even + more), self.room_bytes)
    }
}

/// A divided board's answer to a greeting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The number of shards.
    pub shards: u16,
    /// The attachment's token.
    pub token: [u8; TOKEN_BYTES],
}

impl Answer {
    /// Encodes the answer.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.shards.to_be_bytes()[..], &self.token].concat()
    }

    /// Decodes an answer; returns `None` for that of an undivided board.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn from_bytes(bytes: &[u8]) -> io::Result<Option<Answer>> {
        let malformed = || invalid("invalid answer: the board uses another version");
        let Some((shards, token)) = bytes.split_first_chunk() else {
            return if bytes.is_empty() { Ok(None) } else { Err(malformed()) };
        };
        let shards = u16::from_be_bytes(*shards);
        let token = token.try_into().ok().filter(|_| (2..=SHARDS_MAX).contains(&shards));
        Ok(Some(Answer { shards, token: token.ok_or_else(malformed)? }))
    }
}

/// Maximum number of shards that a client believes a board to have.
const SHARDS_MAX: u16 = 64;

fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u32::from_be_bytes(*number) as usize, rest))
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_and_answers_are_read_as_they_were_written_and_not_otherwise() {
        for further in [None, Some((3, [7; TOKEN_BYTES]))] {
            let greeting = Greeting { streams: 64, room_bytes: 4096, further };
            let bytes = greeting.to_bytes();
            assert_eq!(Greeting::from_bytes(&bytes).expect("it is valid"), greeting);
            for length in (0..bytes.len()).filter(|length| *length != 8) {
                assert!(Greeting::from_bytes(&bytes[..length]).is_err(), "{length} bytes");
            }
            assert!(Greeting::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
        }
        for (streams, room_bytes) in [(0, 4096), (16_385, 4096), (1, 2048), (1, 5000), (1, 32 << 20)] {
            let bytes = Greeting { streams, room_bytes, further: None }.to_bytes();
            assert!(Greeting::from_bytes(&bytes).is_err(), "{streams} streams, {room_bytes} bytes");
        }
        let answer = Answer { shards: 16, token: [9; TOKEN_BYTES] };
        let bytes = answer.to_bytes();
        assert_eq!(Answer::from_bytes(&bytes).expect("it is valid"), Some(answer));
        assert_eq!(Answer::from_bytes(&[]).expect("it is valid"), None);
        assert!((1..bytes.len()).all(|length| Answer::from_bytes(&bytes[..length]).is_err()));
        for shards in [0, 1, 65] {
            let bytes = Answer { shards, ..answer }.to_bytes();
            assert!(Answer::from_bytes(&bytes).is_err(), "{shards} shards");
        }
    }

    #[test]
    fn each_shard_has_room_for_more_streams_than_its_even_part() {
        for (streams, shards, slots) in
            [(64, 1, 64), (1, 16, 1), (16, 2, 16), (64, 2, 56), (64, 4, 32), (128, 2, 96), (1000, 16, 95)]
        {
            let greeting = Greeting { streams, room_bytes: 4096, further: None };
            let its = greeting.layout(shards).expect("within the limits").slots();
            assert_eq!(its, slots, "{streams} streams on {shards} shards");
        }
    }
}
