//! An exchange that a Rust program drives: lines of script in turn with code, for tests that loop over
//! thousands of packets, draw them at random, or measure.

use crate::parse::packet;
use crate::run::{Failure, Runner};
use crate::script::{Packet, Talk};
use crate::words::Words;
use kiban_base::Instant;
use kiban_board::{Board, Input, StreamId};
use kiban_tcpip::tcp;
use std::time::Duration;

/// The number of log entries that are kept for failures.
const LOG_MAX: usize = 100;

/// A board, its host and a peer, driven step by step.
///
/// ```
/// use kiban_talk::Exchange;
/// # fn main() -> Result<(), Box<kiban_talk::Failure>> {
/// let mut exchange = Exchange::new();
/// exchange.run("established mss 1460")?;
/// for byte in 1..=1000 {
///     exchange.run(&format!("<- seq {byte}:{} ack 1", byte + 1))?;
///     exchange.sent();
/// }
/// exchange.run("got 1000")?;
/// # exchange.end()
/// # }
/// ```
pub struct Exchange {
    runner: Runner,
}

impl Default for Exchange {
    fn default() -> Exchange {
        Exchange::new()
    }
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Exchange")
    }
}

impl Exchange {
    /// Returns an exchange in which nothing has happened yet.
    pub fn new() -> Exchange {
        Exchange { runner: Runner::new() }
    }

    /// Runs lines of a script. Times without `+` count from the exchange's beginning. What the board has sent
    /// and reported before must have been expected, or taken with [`sent`](Self::sent) and
    /// [`told`](Self::told).
    ///
    /// # Errors
    /// The first line that fails, or that is no line of a script.
    pub fn run(&mut self, lines: &str) -> Result<(), Box<Failure>> {
        let talk = Talk::read("exchange", lines, &|_| None).map_err(|error| Failure {
            file: error.file,
            line: error.line,
            message: error.message,
            expected: error.text,
            came: String::new(),
            recent: String::new(),
        })?;
        for line in &talk.lines {
            self.runner.line(line).map_err(|mismatch| self.runner.failure(line, mismatch))?;
        }
        self.forget();
        Ok(())
    }

    /// Bounds what is kept of the past.
    fn forget(&mut self) {
        let world = self.runner.world();
        if world.log.len() > 2 * LOG_MAX {
            world.log.drain(..LOG_MAX);
        }
        world.wire.clear();
    }

    /// Returns a segment of the default connection's peer, in the notation of scripts, as an IP packet. The
    /// peer's own count of what it has sent does not change.
    ///
    /// # Panics
    /// If `words` do not describe a segment.
    pub fn packet(&mut self, words: &str) -> Vec<u8> {
        let mut cursor = Words::of("exchange", 1, words).expect("words");
        let segment = match packet(&mut cursor) {
            Ok(Packet::Tcp { segment, .. }) => segment,
            other => panic!("{words} is not a segment: {other:?}"),
        };
        let world = self.runner.world();
        let index = world.connection(None).expect("the default connection always exists");
        world.encode(index, &segment)
    }

    /// Delivers an IP packet to the board. It is processed, but not answered before
    /// [`settle`](Self::settle).
    ///
    /// # Panics
    /// If the board has no memory for it.
    pub fn arrive(&mut self, packet: Vec<u8>) {
        let world = self.runner.world();
        world.deliver(vec![packet]).expect("the board has memory for received packets");
        world.wire.clear();
    }

    /// Lets the board answer what has arrived.
    pub fn settle(&mut self) {
        self.runner.world().drain();
        self.forget();
    }

    /// Advances the time, from deadline to deadline.
    ///
    /// # Panics
    /// If the board never becomes idle.
    pub fn pass(&mut self, length: Duration) {
        let world = self.runner.world();
        let until = world.now + length;
        world.pass(until, |_| false).expect("the board becomes idle");
        self.runner.mark = until;
        self.forget();
    }

    /// Advances the time in one step, past all deadlines on the way.
    pub fn jump(&mut self, length: Duration) {
        let world = self.runner.world();
        let until = world.now + length;
        world.now = until;
        world.board.handle(Input::Timeout, until);
        self.runner.mark = until;
        self.settle();
    }

    /// Returns the time.
    pub fn now(&mut self) -> Instant {
        self.runner.world().now
    }

    /// Takes the packets that the board has sent and no line has expected, in the notation of scripts.
    pub fn sent(&mut self) -> Vec<String> {
        self.runner.world().transmitted.drain(..).map(|seen| seen.packet.to_string()).collect()
    }

    /// Takes the completions that no line has expected, without the word `told`.
    pub fn told(&mut self) -> Vec<String> {
        self.runner.world().host_events.drain(..).map(|event| event.words).collect()
    }

    /// Returns TCP's view of the default connection; `None` if it does not exist.
    pub fn info(&mut self) -> Option<tcp::Info> {
        let world = self.runner.world();
        let index = world.connection(None).ok()?;
        world.info(index)
    }

    /// Returns the stream of the default connection, also after its end.
    pub fn stream(&mut self) -> Option<StreamId> {
        let world = self.runner.world();
        let index = world.connection(None).ok()?;
        world.connections[index].stream
    }

    /// Returns the board, for counters, memory, and calls that scripts do not have.
    pub fn board(&mut self) -> &mut Board {
        &mut self.runner.world().board
    }

    /// Ends the exchange like a script: streams are aborted, and all packet memory must then be free.
    ///
    /// # Errors
    /// A failure if memory is not free, or something that was not expected.
    pub fn end(mut self) -> Result<(), Box<Failure>> {
        let talk = Talk::read("exchange", "silence", &|_| None).expect("a line of a script");
        let end = self.runner.line(&talk.lines[0]).and_then(|()| self.runner.end());
        end.map_err(|mismatch| self.runner.failure(&talk.lines[0], mismatch).into())
    }
}
