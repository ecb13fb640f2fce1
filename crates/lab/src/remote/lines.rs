//! Lines of JSON on a control connection, each of bounded length and within a time limit.

use super::tcp::Stream;
use kiban_base::Instant;
use kiban_os::Clock;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::Duration;

/// The longest line that a client may send, bytes.
pub const LINE_BYTES_MAX: u64 = 65_536;
/// The longest line that a client may send before it has presented the token, bytes.
pub const HELLO_BYTES_MAX: u64 = 1024;
/// The longest line that a server may send, bytes. It may report 200 flows.
pub const REPLY_BYTES_MAX: u64 = 1 << 20;
/// The longest time between the first and the last byte of a client's line.
pub const LINE_TIME: Duration = Duration::from_secs(5);

/// Writes a message as one line; returns its length.
///
/// # Errors
/// Returns the errors of the writer.
pub fn write_message(writer: &mut impl Write, line: &impl Serialize) -> io::Result<usize> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    // Write the whole line at once: the second of two writes would wait for the peer's delayed
    // acknowledgement.
    writer.write_all(&text).map(|()| text.len())
}

/// A socket that is read until a fixed deadline: a peer that sends one byte at a time cannot extend it.
pub struct DeadlineReader {
    stream: Stream,
    clock: Clock,
    until: Instant,
    bytes: u64,
}

impl DeadlineReader {
    /// Creates a reader of `stream` that times out after `length`.
    pub fn new(stream: Stream, length: Duration) -> DeadlineReader {
        let clock = Clock::new();
        let until = clock.now() + length;
        DeadlineReader { stream, clock, until, bytes: 0 }
    }

    /// Waits for at most `timeout` until a read would not block.
    pub(crate) fn readable(&self, timeout: Duration) -> io::Result<bool> {
        self.stream.readable(timeout)
    }

    /// Returns the number of bytes read since the last call.
    pub(super) fn take_count(&mut self) -> u64 {
        std::mem::take(&mut self.bytes)
    }
}

impl Read for DeadlineReader {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let left = self.until.since(self.clock.now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the message did not arrive in time"));
        }
        self.stream.set_read_timeout(Some(left))?;
        let count = self.stream.read(room)?;
        self.bytes += count as u64;
        Ok(count)
    }
}

/// A line reader with a deadline.
pub type Lines = BufReader<DeadlineReader>;

/// Reads a line that must be complete within `length`.
///
/// # Errors
/// See [`read_message`]; also `TimedOut` or `WouldBlock` if the message is not complete in time.
pub fn read_message_until<T: DeserializeOwned>(
    reader: &mut Lines,
    bytes_max: u64,
    length: Duration,
) -> io::Result<T> {
    let punctual = reader.get_mut();
    punctual.until = punctual.clock.now() + length;
    read_message(reader, bytes_max)
}

/// Returns a peer's text for display: shortened, and without control characters, which a terminal would
/// execute.
pub fn plain(text: &str) -> String {
    const CHARS_MAX: usize = 500;
    let shown = text.chars().take(CHARS_MAX);
    shown.map(|char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char }).collect()
}

/// Reads a line of at most `bytes_max`.
///
/// # Errors
/// Returns the errors of the reader; `UnexpectedEof` at the end of the connection; `InvalidData` for a line
/// that is too long or cannot be parsed.
pub fn read_message<T: DeserializeOwned>(reader: &mut impl BufRead, bytes_max: u64) -> io::Result<T> {
    let mut line = Vec::new();
    let length = reader.take(bytes_max).read_until(b'\n', &mut line)?;
    if length == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if line.last() != Some(&b'\n') {
        let why = if length as u64 == bytes_max { "the line is too long" } else { "the line was cut off" };
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    // The line may contain a token, so the error does not repeat it.
    serde_json::from_slice(&line)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the line is not of this protocol"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::protocol::{Nonce, Request, Work};
    use kiban_measure::Settings;

    #[test]
    fn a_line_times_out_even_if_bytes_keep_arriving() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let mut peer =
            std::net::TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (stream, _) = listener.accept().expect("the client connects");
        let length = Duration::from_millis(300);
        let mut lines = BufReader::new(DeadlineReader::new(Stream::Host(stream), length));
        std::thread::scope(|scope| {
            let drips = scope.spawn(move || {
                // Wait until the other end has closed.
                while peer.write_all(b" ").is_ok() {
                    kiban_measure::pause::pace(Duration::from_millis(20));
                }
            });
            let clock = Clock::new();
            let error =
                read_message_until::<Request>(&mut lines, LINE_BYTES_MAX, length).expect_err("no line came");
            assert!(matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{error}");
            assert!(clock.now().since(Instant::ZERO) >= length);
            drop(lines);
            drips.join().expect("it ends");
        });
    }

    #[test]
    fn text_from_a_peer_cannot_control_the_terminal() {
        assert_eq!(plain("no\x1b[2J\r\nmore"), "no\u{fffd}[2J\u{fffd}\u{fffd}more");
        assert_eq!(plain(&"x".repeat(10_000)).len(), 500);
    }

    #[test]
    fn lines_round_trip_and_long_ones_are_rejected() {
        let ask = Request::Trial {
            nonce: Nonce::random().expect("random bytes"),
            settings: Settings { send_bytes: Some(4000), no_delay: true, ..Settings::default() },
            work: Work::Reply { message_bytes: 1000, reply_bytes: 1 },
            millis: 500,
        };
        let mut line = Vec::new();
        write_message(&mut line, &ask).expect("writing to memory succeeds");
        assert_eq!(read_message::<Request>(&mut line.as_slice(), LINE_BYTES_MAX).expect("as written"), ask);
        for (bytes, bytes_max, expected) in [
            (&b""[..], 100, io::ErrorKind::UnexpectedEof),
            (b"{\"Trial\"", 100, io::ErrorKind::InvalidData),
            (b"\"Go\"\n", 2, io::ErrorKind::InvalidData),
            (b"GET / HTTP/1.1\r\n", 100, io::ErrorKind::InvalidData),
        ] {
            let error = read_message::<Request>(&mut { bytes }, bytes_max).expect_err("not a line");
            assert_eq!(error.kind(), expected, "{bytes:?}");
        }
    }
}
