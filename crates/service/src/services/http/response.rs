//! Responses: files, directory listings and error pages.

use super::request::{self, Bad, Request};
use super::store::{Content, Entry};
use crate::services::counters::ServiceCounters;
use kiban_board::{Host, StreamId};
use std::fmt::Write;

pub(super) struct Sending {
    /// The response head, or a complete short response. The first `front_sent` bytes have been sent.
    front: Vec<u8>,
    front_sent: usize,
    body: Option<Body>,
    /// Whether the connection stays open after the response.
    pub(super) stays: bool,
}

struct Body {
    content: Box<dyn Content>,
    at: u64,
    end: u64,
}

impl Sending {
    /// Sends as much as fits. Returns whether everything has been sent; `None` if the response cannot be
    /// completed.
    pub(super) fn go_on(
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
            // Read no more than fits. After a partial write, a completion reports when there is room again.
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

/// Returns a response that contains a file or the requested range of it.
pub(super) fn file(request: &Request, content: Box<dyn Content>, name: &str) -> Result<Sending, Sending> {
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

pub(super) fn listing(parts: &[String], entries: &[Entry]) -> Sending {
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
pub(super) fn plain(status: &str, text: &str, fields: &[(&str, &str)]) -> Sending {
    let has_type = fields.iter().any(|(name, _)| *name == "Content-Type");
    let mut all = fields.to_vec();
    if !has_type && !text.is_empty() {
        all.push(("Content-Type", "text/plain; charset=utf-8"));
    }
    let mut front = head(status, text.len() as u64, &all, false);
    front.extend_from_slice(text.as_bytes());
    Sending { front, front_sent: 0, body: None, stays: false }
}

/// Adjusts a response to the method and the connection option of the request.
pub(super) fn stay(mut sending: Sending, request: &Request) -> Sending {
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

pub(super) fn plain_for(bad: Bad) -> Sending {
    match bad {
        Bad::Malformed => plain("400 Bad Request", "malformed request\n", &[]),
        Bad::NotServed => plain("404 Not Found", "not found\n", &[]),
        Bad::Method => plain("405 Method Not Allowed", "use GET or HEAD\n", &[("Allow", "GET, HEAD")]),
        Bad::Body => plain("413 Content Too Large", "request bodies are not supported\n", &[]),
        Bad::Version => plain("505 HTTP Version Not Supported", "use HTTP/1.1\n", &[]),
    }
}

pub(super) fn head(status: &str, length: u64, fields: &[(&str, &str)], stays: bool) -> Vec<u8> {
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

pub(super) fn encoded(part: &str) -> String {
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
