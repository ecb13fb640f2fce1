//! Echo (RFC 862), discard (RFC 863), and a character generator (after RFC 864).
//!
//! Echo             received data is sent back from the board's pages. The service holds at most one slice,
//!                  so the receive window closes if the peer does not read.
//! Source           the service sends the 95 printing characters in lines of 72, each line shifted by one, as
//!                  in RFC 864; it discards received data.

use super::counters::ServiceCounters;
use super::service::{PIECE_BYTES, Service, SessionLimits};
use super::sessions::Sessions;
use super::slots::SessionSlot;
use kiban_base::{Instant, Slice};
use kiban_board::{Completion, Host, StreamId};
use std::net::SocketAddr;

/// What to do with a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Send back what is received.
    Echo,
    /// Discard what is received.
    Discard,
    /// Send characters.
    Source {
        /// Number of bytes to send; `None` means to send until the peer closes.
        bytes: Option<u64>,
    },
}

/// One session.
struct Session {
    /// A slice that has not been sent back completely, and the number of its bytes that have been sent.
    held: Option<(Slice, usize)>,
    sent: u64,
    peer_finished: bool,
    /// When data last moved.
    moved_at: Instant,
    slot: SessionSlot,
}

/// The service.
pub struct Plain {
    role: Role,
    bounds: SessionLimits,
    sessions: Sessions<Session>,
    counters: ServiceCounters,
    pattern: Vec<u8>,
}

/// The period of the pattern in bytes: 95 lines of 72 characters plus CR LF.
const PATTERN_BYTES: usize = 95 * 74;

impl Plain {
    /// Returns a service that will listen on `local`.
    pub fn new(local: SocketAddr, role: Role, bounds: SessionLimits) -> Plain {
        let line = |first: usize| {
            let characters = (first..first + 72).map(|number| b' ' + (number % 95) as u8);
            characters.chain(*b"\r\n").collect::<Vec<u8>>()
        };
        let pattern = match role {
            // One piece more than the period, so that a piece can start at any offset of the pattern.
            Role::Source { .. } => (0..95).flat_map(line).cycle().take(PATTERN_BYTES + PIECE_BYTES).collect(),
            Role::Echo | Role::Discard => Vec::new(),
        };
        let sessions = Sessions::new(local, bounds.sessions_max);
        Plain { role, bounds, sessions, counters: ServiceCounters::default(), pattern }
    }

    /// Moves as much data as possible, and ends the session when everything has been sent.
    fn pump(&mut self, stream: StreamId, host: &mut Host<'_>, now: Instant) {
        let Plain { role, sessions, counters, pattern, .. } = self;
        let Some(session) = sessions.open.get_mut(&stream) else { return };
        let before = (counters.bytes_in, counters.bytes_out);
        let done = match *role {
            Role::Echo => session.echo(stream, host, counters),
            Role::Discard => {
                session.take_all(stream, host, counters);
                session.peer_finished
            }
            Role::Source { bytes } => {
                session.take_all(stream, host, counters);
                session.fill(stream, bytes, pattern, host, counters) || session.peer_finished
            }
        };
        if before != (counters.bytes_in, counters.bytes_out) {
            session.moved_at = now;
        }
        if done {
            session.slot.read(stream, host);
            sessions.open.remove(&stream);
            counters.ended += 1;
            // The stream may have ended just now.
            let _ = host.close(stream);
        }
    }
}

impl Session {
    /// Returns the slot, and when data was last transferred.
    fn holds(&self) -> (&SessionSlot, Instant) {
        (&self.slot, self.moved_at)
    }

    /// Sends received data back. Returns whether the peer has sent a FIN and everything has been sent back.
    fn echo(&mut self, stream: StreamId, host: &mut Host<'_>, counters: &mut ServiceCounters) -> bool {
        loop {
            let (slice, sent) = match self.held.take() {
                Some(held) => held,
                None => match host.take(stream) {
                    Ok(Some(slice)) => {
                        counters.bytes_in += slice.len() as u64;
                        (slice, 0)
                    }
                    _ => return self.peer_finished,
                },
            };
            let count = host.write(stream, &slice.bytes()[sent..]).unwrap_or(0);
            counters.bytes_out += count as u64;
            if sent + count < slice.len() {
                self.held = Some((slice, sent + count));
                return false;
            }
        }
    }

    fn take_all(&mut self, stream: StreamId, host: &mut Host<'_>, counters: &mut ServiceCounters) {
        while let Ok(Some(slice)) = host.take(stream) {
            counters.bytes_in += slice.len() as u64;
        }
    }

    /// Sends characters. Returns whether all have been sent.
    fn fill(
        &mut self,
        stream: StreamId,
        bytes: Option<u64>,
        pattern: &[u8],
        host: &mut Host<'_>,
        counters: &mut ServiceCounters,
    ) -> bool {
        loop {
            let left = bytes.map_or(u64::MAX, |bytes| bytes - self.sent);
            if left == 0 {
                return true;
            }
            let from = (self.sent % PATTERN_BYTES as u64) as usize;
            let piece = left.min(PIECE_BYTES as u64) as usize;
            let count = host.write(stream, &pattern[from..from + piece]).unwrap_or(0);
            self.sent += count as u64;
            counters.bytes_out += count as u64;
            if count < piece {
                return false;
            }
        }
    }
}

impl Service for Plain {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) -> Result<(), String> {
        self.sessions.listen(host)
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        self.sessions.set_now(now);
        match completion {
            Completion::Accepted { stream, listener, remote } if self.sessions.is_listener(listener) => {
                let admitted = self.sessions.admit(stream, remote, Session::holds, &mut self.counters, host);
                let Some(slot) = admitted else { return };
                let session = Session { held: None, sent: 0, peer_finished: false, moved_at: now, slot };
                self.sessions.open.insert(stream, session);
                self.pump(stream, host, now);
            }
            Completion::Readable { stream } | Completion::Writable { stream } => {
                self.pump(stream, host, now);
            }
            Completion::PeerFinished { stream } => {
                if let Some(session) = self.sessions.open.get_mut(&stream) {
                    session.peer_finished = true;
                    self.pump(stream, host, now);
                }
            }
            Completion::Ended { stream, reason } => {
                self.sessions.on_ended(stream, reason, &mut self.counters, host)
            }
            _ => {}
        }
    }

    fn look(&mut self, host: &mut Host<'_>, now: Instant) {
        self.sessions.set_now(now);
        let Some(idle) = self.bounds.idle else { return };
        let Plain { sessions, counters, .. } = self;
        sessions.open.retain(|stream, session| {
            let stays = session.moved_at + idle > now;
            if !stays {
                counters.idle_timeouts += 1;
                counters.aborted += 1;
                let _ = host.abort(*stream);
            }
            stays
        });
    }

    fn close(&mut self, host: &mut Host<'_>) {
        self.sessions.unlisten(host);
    }

    fn cut(&mut self, host: &mut Host<'_>) {
        self.sessions.cut(&mut self.counters, host);
    }

    fn sessions(&self) -> usize {
        self.sessions.open.len()
    }

    fn counters(&self) -> ServiceCounters {
        self.counters
    }
}
