//! Echo (RFC 862), discard (RFC 863), and a character generator (after RFC 864).
//!
//! Echo             received data is sent back from the board's pages. The service holds at most one slice,
//!                  so the receive window closes if the peer does not read.
//! Source           the service sends the 95 printing characters in lines of 72, each line shifted by one, as
//!                  in RFC 864; it discards received data.

use super::counters::ServiceCounters;
use super::service::{PIECE_BYTES, Service, SessionLimits};
use super::slots::{SessionSlot, SessionSlots};
use kiban_base::{Instant, Slice};
use kiban_board::{Completion, Host, Reason, StreamId};
use std::collections::BTreeMap;
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
    local: SocketAddr,
    role: Role,
    bounds: SessionLimits,
    slots: SessionSlots,
    listener: Option<u32>,
    sessions: BTreeMap<StreamId, Session>,
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
        let (listener, sessions, counters) = (None, BTreeMap::new(), ServiceCounters::default());
        let slots = SessionSlots::new(bounds.sessions_max);
        Plain { local, role, bounds, slots, listener, sessions, counters, pattern }
    }

    fn on_ended(&mut self, stream: StreamId, reason: Reason, host: &mut Host<'_>) {
        if self.sessions.remove(&stream).is_none() {
            return;
        }
        match reason {
            Reason::Closed => self.counters.ended += 1,
            _ => self.counters.aborted += 1,
        }
        let _ = host.close(stream);
    }

    /// Moves as much data as possible, and ends the session when everything has been sent.
    fn pump(&mut self, stream: StreamId, host: &mut Host<'_>, now: Instant) {
        let Plain { role, sessions, counters, pattern, .. } = self;
        let Some(session) = sessions.get_mut(&stream) else { return };
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
            sessions.remove(&stream);
            counters.ended += 1;
            // The stream may have ended just now.
            let _ = host.close(stream);
        }
    }
}

impl Session {
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
        let listener = host.listen(self.local).map_err(|refused| format!("{}: {refused}", self.local))?;
        self.listener = Some(listener);
        Ok(())
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        self.slots.set_now(now);
        match completion {
            Completion::Accepted { stream, listener, remote } if Some(listener) == self.listener => {
                let sessions =
                    self.sessions.iter().map(|(id, session)| (*id, &session.slot, session.moved_at));
                let found = self.slots.take(Some(remote.ip().into()), sessions, host);
                let Some((slot, displaced)) = found else {
                    self.counters.refused += 1;
                    let _ = host.abort(stream);
                    return;
                };
                if let Some(displaced) = displaced {
                    self.sessions.remove(&displaced);
                    self.counters.aborted += 1;
                    self.counters.displaced += 1;
                    let _ = host.abort(displaced);
                }
                self.counters.accepted += 1;
                let session = Session { held: None, sent: 0, peer_finished: false, moved_at: now, slot };
                self.sessions.insert(stream, session);
                self.pump(stream, host, now);
            }
            Completion::Readable { stream } | Completion::Writable { stream } => {
                self.pump(stream, host, now);
            }
            Completion::PeerFinished { stream } => {
                if let Some(session) = self.sessions.get_mut(&stream) {
                    session.peer_finished = true;
                    self.pump(stream, host, now);
                }
            }
            Completion::Ended { stream, reason } => self.on_ended(stream, reason, host),
            _ => {}
        }
    }

    fn look(&mut self, host: &mut Host<'_>, now: Instant) {
        self.slots.set_now(now);
        let Some(idle) = self.bounds.idle else { return };
        let Plain { sessions, counters, .. } = self;
        sessions.retain(|stream, session| {
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
        if let Some(listener) = self.listener.take() {
            let _ = host.unlisten(listener);
        }
    }

    fn cut(&mut self, host: &mut Host<'_>) {
        for stream in std::mem::take(&mut self.sessions).into_keys() {
            self.counters.aborted += 1;
            let _ = host.abort(stream);
        }
    }

    fn sessions(&self) -> usize {
        self.sessions.len()
    }

    fn counters(&self) -> ServiceCounters {
        self.counters
    }
}
