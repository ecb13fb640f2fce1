//! The HTTP server: its sessions and their requests.

use super::request::{self, Bad, HEAD_BYTES_MAX, Request};
use super::response::{Sending, encoded, file, listing, plain, plain_for, stay};
use super::store::{Found, Store};
use crate::services::counters::ServiceCounters;
use crate::services::pace::Pace;
use crate::services::service::{PIECE_BYTES, Service, SessionLimits, close_unread};
use crate::services::sessions::Sessions;
use crate::services::slots::SessionSlot;
use kiban_base::Instant;
use kiban_board::{Completion, Host, StreamId};
use std::net::SocketAddr;
use std::time::Duration;

/// Settings of the service.
#[derive(Clone, Copy, Debug)]
pub struct HttpConfig {
    /// Whether to list directories without `index.html`.
    pub list: bool,
    /// Timeout of a request head.
    pub head_time: Duration,
    /// Limits on the number of sessions and on idle time.
    pub bounds: SessionLimits,
}

/// A session.
struct Session {
    /// The part of the next request head that has been received so far.
    head: Vec<u8>,
    /// When the first byte of the head arrived, or when the session began.
    head_at: Instant,
    /// The response being sent.
    sending: Option<Sending>,
    /// Measures how fast the peer reads the response being sent.
    pace: Option<Pace>,
    peer_finished: bool,
    moved_at: Instant,
    slot: SessionSlot,
}

/// The service.
pub struct Http {
    store: Box<dyn Store>,
    config: HttpConfig,
    /// Whether the service has stopped listening; in that case connections close after each response.
    closed: bool,
    sessions: Sessions<Session>,
    counters: ServiceCounters,
    piece: Vec<u8>,
}

/// What to do with a session.
enum Next {
    /// Wait for data from the peer, or for room to send.
    Wait,
    /// Close the connection with a FIN.
    Close,
    /// Reset the connection: the announced body cannot be sent, and the peer must not mistake it for
    /// complete.
    Cut,
}

impl Http {
    /// Returns a service that will listen on `local`.
    pub fn new(local: SocketAddr, store: Box<dyn Store>, config: HttpConfig) -> Http {
        Http {
            store,
            sessions: Sessions::new(local, config.bounds.sessions_max),
            config,
            closed: false,
            counters: ServiceCounters::default(),
            piece: vec![0; PIECE_BYTES],
        }
    }

    fn pump(&mut self, stream: StreamId, host: &mut Host<'_>, now: Instant) {
        let Some(mut session) = self.sessions.open.remove(&stream) else { return };
        match self.work(&mut session, stream, host, now) {
            Next::Wait => {
                self.sessions.open.insert(stream, session);
            }
            Next::Close => {
                session.slot.read(stream, host);
                self.counters.ended += 1;
                // The peer may have sent the body of a request that was refused (RFC 9112 §9.6).
                close_unread(stream, host);
            }
            Next::Cut => {
                self.counters.aborted += 1;
                let _ = host.abort(stream);
            }
        }
    }

    fn work(&mut self, session: &mut Session, stream: StreamId, host: &mut Host<'_>, now: Instant) -> Next {
        loop {
            if let Some(sending) = &mut session.sending {
                let before = self.counters.bytes_out;
                let sent = sending.go_on(stream, host, &mut self.piece, &mut self.counters);
                if self.counters.bytes_out > before {
                    session.moved_at = now;
                }
                match sent {
                    Some(true) => {}
                    Some(false) => return Next::Wait,
                    None => return Next::Cut,
                }
                let stays = sending.stays && !self.closed;
                session.sending = None;
                session.head_at = now;
                if !stays {
                    return Next::Close;
                }
            }
            let Some(end) = request::head_end(&session.head) else {
                let room = HEAD_BYTES_MAX - session.head.len();
                if room == 0 {
                    session.sending = Some(plain("431 Request Header Fields Too Large", "", &[]));
                    self.counters.errors += 1;
                    continue;
                }
                let room = room.min(self.piece.len());
                let count = host.read(stream, &mut self.piece[..room]).unwrap_or(0);
                if count == 0 {
                    return if session.peer_finished { Next::Close } else { Next::Wait };
                }
                if session.head.is_empty() {
                    session.head_at = now;
                }
                self.counters.bytes_in += count as u64;
                session.moved_at = now;
                session.head.extend_from_slice(&self.piece[..count]);
                continue;
            };
            let request = request::read(&session.head[..end]);
            session.head.drain(..end);
            // If the peer has not yet read all of the previous response, measure the rate over both
            // responses.
            if let Ok(info) = host.info(stream)
                && info.queued_bytes == 0
            {
                session.pace = Some(Pace::new(info.bytes_acknowledged, now));
            }
            session.sending = Some(self.answer(request));
        }
    }

    fn answer(&mut self, request: Result<Request, Bad>) -> Sending {
        let answered = match request {
            Ok(request) => self.serve(&request),
            Err(bad) => Err(plain_for(bad)),
        };
        match answered {
            Ok(sending) => {
                self.counters.requests += 1;
                sending
            }
            Err(sending) => {
                self.counters.errors += 1;
                sending
            }
        }
    }

    /// Returns the response to a request, or an error response.
    fn serve(&mut self, request: &Request) -> Result<Sending, Sending> {
        let not_found = || stay(plain("404 Not Found", "not found\n", &[]), request);
        match self.store.find(&request.parts).ok_or_else(not_found)? {
            Found::File(_) if request.is_folder && !request.parts.is_empty() => Err(not_found()),
            Found::File(content) => file(request, content, request.parts.last().map_or("", |name| name)),
            Found::Folder if !request.is_folder => {
                let slot = format!(
                    "/{}/",
                    request.parts.iter().map(|part| encoded(part)).collect::<Vec<_>>().join("/")
                );
                Ok(stay(plain("301 Moved Permanently", "", &[("Location", &slot)]), request))
            }
            Found::Folder => {
                let mut index = request.parts.clone();
                index.push("index.html".into());
                match self.store.find(&index) {
                    Some(Found::File(content)) => file(request, content, "index.html"),
                    _ if self.config.list => {
                        Ok(stay(listing(&request.parts, &self.store.list(&request.parts)), request))
                    }
                    _ => Err(not_found()),
                }
            }
        }
    }
}

impl Session {
    /// Returns the slot, and when data was last transferred.
    fn holds(&self) -> (&SessionSlot, Instant) {
        (&self.slot, self.moved_at)
    }

    /// Returns whether the peer has sent nothing for `idle`, or reads responses too slowly.
    fn is_idle(&mut self, idle: Duration, stream: StreamId, host: &mut Host<'_>, now: Instant) -> bool {
        if let (Some(pace), Ok(info)) = (&mut self.pace, host.info(stream)) {
            if self.sending.is_some() || info.queued_bytes > 0 {
                return pace.is_slow(info.bytes_acknowledged, idle, now);
            }
            (self.pace, self.moved_at) = (None, now);
        }
        self.moved_at + idle <= now
    }
}

impl Service for Http {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) -> Result<(), String> {
        self.sessions.listen(host)
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        self.sessions.set_now(now);
        match completion {
            Completion::Accepted { stream, listener, remote } if self.sessions.is_listener(listener) => {
                let admitted = self.sessions.admit(stream, remote, Session::holds, &mut self.counters, host);
                let Some(slot) = admitted else { return };
                let session = Session {
                    head: Vec::new(),
                    head_at: now,
                    sending: None,
                    pace: None,
                    peer_finished: false,
                    moved_at: now,
                    slot,
                };
                self.sessions.open.insert(stream, session);
                self.pump(stream, host, now);
            }
            Completion::Readable { stream } | Completion::Writable { stream } => self.pump(stream, host, now),
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
        let Http { sessions, counters, config, .. } = self;
        sessions.set_now(now);
        sessions.open.retain(|stream, session| {
            // One timeout covers the whole head, so that a slow request cannot occupy a slot for long.
            let collects = session.sending.is_none() && !session.head.is_empty();
            let is_late = collects && session.head_at + config.head_time <= now;
            let is_idle = config.bounds.idle.is_some_and(|idle| session.is_idle(idle, *stream, host, now));
            if is_late || is_idle {
                counters.idle_timeouts += 1;
                counters.aborted += 1;
                let _ = host.abort(*stream);
            }
            !(is_late || is_idle)
        });
    }

    fn close(&mut self, host: &mut Host<'_>) {
        self.closed = true;
        self.sessions.unlisten(host);
        // Sessions that are waiting for a request can be closed at once.
        let Http { sessions, counters, .. } = self;
        sessions.open.retain(|stream, session| {
            let is_busy = session.sending.is_some() || !session.head.is_empty();
            if !is_busy {
                counters.ended += 1;
                close_unread(*stream, host);
            }
            is_busy
        });
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
