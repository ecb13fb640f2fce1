//! Checkers: conditions that must hold after a run. They are independent of the code under test, and use only
//! its public interface.

use crate::network::plug::BoardNumber;
use crate::world::World;
use kiban_base::Instant;
use std::time::Duration;

/// A rule that a run broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// No event is left, but a program is not done.
    IdleWhileWorkWaits {
        /// The time of the last event.
        since: Instant,
    },
    /// Pages or blocks of a board have not been freed.
    MemoryAway {
        /// Which board.
        board: usize,
        /// Number of pages of transmit memory, pages of receive memory, and PDU blocks.
        missing: [usize; 3],
    },
    /// Sessions are left, although all programs are done and time has passed.
    SessionsLeft {
        /// Which board.
        board: usize,
        /// The number of sessions.
        sessions: usize,
    },
    /// A received stream differs from the one that was sent.
    StreamDiffers {
        /// Which stream.
        stream: usize,
        /// The offset of the first byte that differs. If there is none, the length of the shorter stream.
        at: u64,
    },
}

/// Compares a received stream with the bytes that were sent.
pub fn stream(number: usize, sent: &[u8], received: &[u8]) -> Vec<Violation> {
    if sent == received {
        return Vec::new();
    }
    let at = sent.iter().zip(received).position(|(one, other)| one != other);
    let at = at.unwrap_or(sent.len().min(received.len())) as u64;
    vec![Violation::StreamDiffers { stream: number, at }]
}

/// Lets all timers expire, then checks that the programs are done, all memory is free and all sessions are
/// gone.
pub fn check_idle(world: &mut World, boards: &[BoardNumber]) -> Vec<Violation> {
    let mut violations = Vec::new();
    if !world.is_done() {
        violations.push(Violation::IdleWhileWorkWaits { since: world.now() });
    }
    let until = world.now() + Duration::from_secs(3600);
    world.settle(until);
    for (index, board) in boards.iter().enumerate() {
        let sessions = world.board(*board).sessions();
        if sessions > 0 {
            violations.push(Violation::SessionsLeft { board: index, sessions });
        }
        let memory = world.board_mut(*board).memory_mut();
        let missing = [
            memory.transmit.capacity() - memory.transmit.available(),
            memory.receive.capacity() - memory.receive.available(),
            memory.pdus.capacity() - memory.pdus.available(),
        ];
        if missing != [0; 3] {
            violations.push(Violation::MemoryAway { board: index, missing });
        }
    }
    violations
}
