//! Files over HTTP/1.1: GET and HEAD, ranges, persistent connections (RFC 9110, RFC 9112).
//!
//! Session          receives a request head, sends the response head, then the body in pieces as the stream
//!                  has room; then the next request. Pipelined requests wait in the board's receive buffer.
//! Limits           8 KiB of head within `head_time`; `idle` between requests; while a response is sent, the
//!                  peer must take `MINIMUM_RATE` bytes per second, averaged over each `idle`.
//! Store            the source of files ([`Store`]): a directory, or memory in a test.
//! Content type     by the file name's extension; unknown ones are bytes.
//! Not implemented  conditional requests, compression, multiple ranges, TLS.

pub(super) mod disk;
mod request;

use super::pace::Pace;
use super::slots::{SessionSlot, SessionSlots};
use super::{PIECE_BYTES, Service, ServiceCounters, SessionLimits};
use kiban_base::Instant;
use kiban_board::{Completion, Host, Reason, StreamId};
use request::{Bad, HEAD_BYTES_MAX, Request};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

/// The source of files.
pub trait Store {
    /// Returns what a path refers to; `None` if nothing is served there. Path segments are never empty, and
    /// never begin with a dot.
    fn find(&mut self, parts: &[String]) -> Option<Found>;
    /// Returns the entries of a folder, in order.
    fn list(&mut self, parts: &[String]) -> Vec<Entry>;
}

/// What a path refers to.
pub enum Found {
    /// A file.
    File(Box<dyn Content>),
    /// A folder.
    Folder,
}

/// An open file.
pub trait Content {
    /// Returns its length in bytes.
    fn length(&self) -> u64;
    /// Reads from an offset and returns the number of bytes; zero at the end.
    fn read(&mut self, at: u64, into: &mut [u8]) -> usize;
}

/// An entry of a folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Whether it is a folder.
    pub is_folder: bool,
}

/// Settings of the service.
#[derive(Clone, Copy, Debug)]
pub struct HttpConfig {
    /// Whether folders without `index.html` are listed.
    pub list: bool,
    /// Timeout of a request head.
    pub head_time: Duration,
    /// Limits of sessions and idle time.
    pub bounds: SessionLimits,
}

/// A session.
struct Session {
    /// The bytes of the next request head that have been received so far.
    head: Vec<u8>,
    /// When its first byte arrived, or the session began.
    head_at: Instant,
    /// The response that is being sent.
    sending: Option<Sending>,
    /// The rate at which the peer takes the response that is being sent.
    pace: Option<Pace>,
    peer_finished: bool,
    moved_at: Instant,
    slot: SessionSlot,
}

struct Sending {
    /// The response head, or a complete short response; `front_sent` bytes of it have been sent.
    front: Vec<u8>,
    front_sent: usize,
    body: Option<Body>,
    /// Whether the connection stays open after the response.
    stays: bool,
}

struct Body {
    content: Box<dyn Content>,
    at: u64,
    end: u64,
}

/// The service.
pub struct Http {
    local: SocketAddr,
    store: Box<dyn Store>,
    config: HttpConfig,
    slots: SessionSlots,
    listener: Option<u32>,
    /// Whether the service has stopped listening; then connections close after each response.
    closed: bool,
    sessions: BTreeMap<StreamId, Session>,
    counters: ServiceCounters,
    piece: Vec<u8>,
}

/// What to do with a session.
enum Next {
    /// Wait for the peer, or for room.
    Wait,
    /// Close the connection with a FIN.
    Close,
    /// Reset the connection: the announced body cannot be sent, and the peer must not take it for complete.
    Cut,
}

impl Http {
    /// Returns a service that will listen on `local`.
    pub fn new(local: SocketAddr, store: Box<dyn Store>, config: HttpConfig) -> Http {
        Http {
            local,
            store,
            slots: SessionSlots::new(config.bounds.sessions_max),
            config,
            listener: None,
            closed: false,
            sessions: BTreeMap::new(),
            counters: ServiceCounters::default(),
            piece: vec![0; PIECE_BYTES],
        }
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

    fn pump(&mut self, stream: StreamId, host: &mut Host<'_>, now: Instant) {
        let Some(mut session) = self.sessions.remove(&stream) else { return };
        match self.work(&mut session, stream, host, now) {
            Next::Wait => {
                self.sessions.insert(stream, session);
            }
            // The stream may have ended just now.
            Next::Close => {
                session.slot.read(stream, host);
                self.counters.ended += 1;
                let _ = host.close(stream);
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
            // If the peer has not taken the previous response yet, measure the rate over both responses.
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
    /// Returns whether the peer has been silent for `idle`, or takes responses too slowly.
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

impl Sending {
    /// Sends as much as there is room for. Returns whether all is sent; `None` if the response cannot be
    /// completed.
    fn go_on(
        &mut self,
        stream: StreamId,
        host: &mut Host<'_>,
        piece: &mut [u8],
        counters: &mut ServiceCounters,
    ) -> Option<bool> {
        while self.front_sent < self.front.len() {
            let count = host.write(stream, &self.front[self.front_sent..]).ok()?;
            self.front_sent += count;
            counters.bytes_out += count as u64;
            if count == 0 {
                return Some(false);
            }
        }
        let Some(body) = &mut self.body else { return Some(true) };
        while body.at < body.end {
            // Read only what there is room for; after a partial write, a completion reports room.
            let room = host.room(stream).ok()?.max(1);
            let wanted = (body.end - body.at).min(piece.len() as u64).min(room as u64) as usize;
            let read = body.content.read(body.at, &mut piece[..wanted]);
            if read == 0 {
                return None;
            }
            let count = host.write(stream, &piece[..read]).ok()?;
            body.at += count as u64;
            counters.bytes_out += count as u64;
            if count < read {
                return Some(false);
            }
        }
        Some(true)
    }
}

/// Returns the response with a file, or with the requested range of it.
fn file(request: &Request, content: Box<dyn Content>, name: &str) -> Result<Sending, Sending> {
    let length = content.length();
    let (status, (at, end)) = match request.range {
        None => ("200 OK", (0, length)),
        Some(range) => match range.of(length) {
            Some(part) => ("206 Partial Content", part),
            None => {
                let of = format!("bytes */{length}");
                return Err(stay(plain("416 Range Not Satisfiable", "", &[("Content-Range", &of)]), request));
            }
        },
    };
    let part = format!("bytes {at}-{}/{length}", end.saturating_sub(1));
    let mut fields = vec![("Content-Type", content_type(name)), ("Accept-Ranges", "bytes")];
    if request.range.is_some() {
        fields.push(("Content-Range", &part));
    }
    let front = head(status, end - at, &fields, request.stays);
    let body = (!request.is_head).then_some(Body { content, at, end });
    Ok(Sending { front, front_sent: 0, body, stays: request.stays })
}

fn listing(parts: &[String], entries: &[Entry]) -> Sending {
    let title = escaped(&format!("/{}", parts.join("/")));
    let mut page = format!(
        "<!DOCTYPE html>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<h1>{title}</h1>\n<ul>\n"
    );
    for Entry { name, is_folder } in entries {
        let end = if *is_folder { "/" } else { "" };
        let _ = writeln!(page, "<li><a href=\"./{}{end}\">{}{end}</a></li>", encoded(name), escaped(name));
    }
    page += "</ul>\n";
    plain("200 OK", &page, &[("Content-Type", "text/html; charset=utf-8")])
}

/// Returns a short response, after which the connection closes.
fn plain(status: &str, text: &str, fields: &[(&str, &str)]) -> Sending {
    let has_type = fields.iter().any(|(name, _)| *name == "Content-Type");
    let mut all = fields.to_vec();
    if !has_type && !text.is_empty() {
        all.push(("Content-Type", "text/plain; charset=utf-8"));
    }
    let mut front = head(status, text.len() as u64, &all, false);
    front.extend_from_slice(text.as_bytes());
    Sending { front, front_sent: 0, body: None, stays: false }
}

/// Adjusts a response to the request's method and connection option.
fn stay(mut sending: Sending, request: &Request) -> Sending {
    let end = request::head_end(&sending.front).unwrap_or(sending.front.len());
    if request.is_head {
        sending.front.truncate(end);
    }
    if request.stays {
        const CLOSE: &[u8] = b"Connection: close\r\n";
        if let Some(at) = sending.front[..end].windows(CLOSE.len()).position(|line| line == CLOSE) {
            sending.front.drain(at..at + CLOSE.len());
        }
        sending.stays = true;
    }
    sending
}

fn plain_for(bad: Bad) -> Sending {
    match bad {
        Bad::Malformed => plain("400 Bad Request", "malformed request\n", &[]),
        Bad::NotServed => plain("404 Not Found", "not found\n", &[]),
        Bad::Method => plain("405 Method Not Allowed", "use GET or HEAD\n", &[("Allow", "GET, HEAD")]),
        Bad::Body => plain("413 Content Too Large", "request bodies are not supported\n", &[]),
        Bad::Version => plain("505 HTTP Version Not Supported", "use HTTP/1.1\n", &[]),
    }
}

fn head(status: &str, length: u64, fields: &[(&str, &str)], stays: bool) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status}\r\nServer: kiban\r\nContent-Length: {length}\r\n");
    for (name, value) in fields {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    if !stays {
        head += "Connection: close\r\n";
    }
    head += "\r\n";
    head.into_bytes()
}

fn encoded(part: &str) -> String {
    part.bytes().fold(String::new(), |mut text, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => text.push(byte.into()),
            other => {
                let _ = write!(text, "%{other:02X}");
            }
        }
        text
    })
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn content_type(name: &str) -> &'static str {
    let end = name.rsplit_once('.').map_or(String::new(), |(_, end)| end.to_ascii_lowercase());
    match end.as_str() {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "txt" | "md" | "toml" | "log" => "text/plain; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        "json" => "application/json",
        "xml" => "application/xml",
        "pdf" => "application/pdf",
        "wasm" => "application/wasm",
        "zip" => "application/zip",
        "gz" | "tgz" => "application/gzip",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "ico" => "image/x-icon",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        "mp3" => "audio/mpeg",
        "woff2" => "font/woff2",
        _ => "application/octet-stream",
    }
}

impl Service for Http {
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
                let session = Session {
                    head: Vec::new(),
                    head_at: now,
                    sending: None,
                    pace: None,
                    peer_finished: false,
                    moved_at: now,
                    slot,
                };
                self.sessions.insert(stream, session);
                self.pump(stream, host, now);
            }
            Completion::Readable { stream } | Completion::Writable { stream } => self.pump(stream, host, now),
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
        let Http { slots, sessions, counters, config, .. } = self;
        slots.set_now(now);
        sessions.retain(|stream, session| {
            // A slow request must not hold a slot, so there is one timeout for the whole head.
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
        if let Some(listener) = self.listener.take() {
            let _ = host.unlisten(listener);
        }
        // Sessions that wait for a request can be closed at once.
        let Http { sessions, counters, .. } = self;
        sessions.retain(|stream, session| {
            let is_busy = session.sending.is_some() || !session.head.is_empty();
            if !is_busy {
                counters.ended += 1;
                let _ = host.close(*stream);
            }
            is_busy
        });
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
