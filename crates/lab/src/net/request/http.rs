//! A response of HTTP/1.1 as it arrives: when is it complete, and is the connection kept (RFC 9112)?

/// The maximum length of the head, bytes.
const HEAD_MAX: usize = 64 << 10;
/// The maximum number of header fields.
const FIELDS_MAX: usize = 128;
/// The maximum length of a line that begins a chunk, bytes.
const CHUNK_LINE_MAX: usize = 4096;

/// Where the body ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Body {
    /// After this many more bytes.
    Length(u64),
    /// After the last chunk (RFC 9112 §7.1).
    Chunked(Chunk),
    /// With the connection.
    Close,
}

/// The part of a chunked body that is read next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Chunk {
    /// The line with its length.
    Size,
    /// This many more bytes, with the line end after them.
    Data(u64),
    /// Lines up to an empty one.
    Trailer,
}

/// A response that is being received.
#[derive(Debug, Default)]
pub(super) struct Response {
    head: Vec<u8>,
    /// The beginning of a line of a chunked body.
    line: Vec<u8>,
    body: Option<Body>,
    pub(super) status: u16,
    pub(super) is_kept: bool,
    /// Bytes of the body, as they were sent.
    pub(super) bytes: u64,
    pub(super) is_complete: bool,
}

impl Response {
    /// Takes what has arrived.
    ///
    /// # Errors
    /// It is not HTTP/1.1, or exceeds a limit.
    pub(super) fn take(&mut self, octets: &[u8]) -> Result<(), String> {
        if self.body.is_some() {
            return self.take_body(octets);
        }
        self.head.extend_from_slice(octets);
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut parsed = httparse::Response::new(&mut fields);
        let length = match parsed.parse(&self.head) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if self.head.len() < HEAD_MAX => return Ok(()),
            Ok(httparse::Status::Partial) => return Err("the head of the response is too long".to_owned()),
            Err(error) => return Err(format!("the response is not HTTP/1.1: {error}")),
        };
        self.status = parsed.code.unwrap_or(0);
        let field = |name: &str| {
            let found = parsed.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
            found.map(|field| String::from_utf8_lossy(field.value).to_ascii_lowercase())
        };
        let connection = field("connection").unwrap_or_default();
        let is_kept = match parsed.version {
            Some(1) => !connection.contains("close"),
            _ => connection.contains("keep-alive"),
        };
        // RFC 9112 §6.3.
        let body = match (self.status, field("transfer-encoding"), field("content-length")) {
            (100..=199 | 204 | 304, _, _) => Body::Length(0),
            (_, Some(coding), _) if coding.trim_end().ends_with("chunked") => Body::Chunked(Chunk::Size),
            (_, None, Some(length)) => {
                Body::Length(length.trim().parse().map_err(|_| format!("invalid Content-Length: {length}"))?)
            }
            _ => Body::Close,
        };
        let rest = self.head.split_off(length);
        if (100..200).contains(&self.status) {
            // An interim response; the final one follows.
            self.head.clear();
            return if rest.is_empty() { Ok(()) } else { self.take(&rest) };
        }
        self.is_kept = is_kept && body != Body::Close;
        self.body = Some(body);
        self.take_body(&rest)
    }

    fn take_body(&mut self, mut octets: &[u8]) -> Result<(), String> {
        self.bytes += octets.len() as u64;
        loop {
            match self.body.as_mut().expect("the head is complete") {
                Body::Close => return Ok(()),
                Body::Length(left) => {
                    *left = left.saturating_sub(octets.len() as u64);
                    self.is_complete = *left == 0;
                    return Ok(());
                }
                Body::Chunked(Chunk::Data(left)) => {
                    let part = (*left).min(octets.len() as u64);
                    *left -= part;
                    octets = &octets[part as usize..];
                    if *left > 0 {
                        return Ok(());
                    }
                    self.body = Some(Body::Chunked(Chunk::Size));
                }
                Body::Chunked(chunk) => {
                    let Some(end) = octets.iter().position(|octet| *octet == b'\n') else {
                        self.line.extend_from_slice(octets);
                        let is_long = self.line.len() > CHUNK_LINE_MAX;
                        return if is_long {
                            Err("a line of a chunk is too long".to_owned())
                        } else {
                            Ok(())
                        };
                    };
                    self.line.extend_from_slice(&octets[..end]);
                    octets = &octets[end + 1..];
                    let line = std::mem::take(&mut self.line);
                    let line = String::from_utf8_lossy(&line);
                    let line = line.trim_end();
                    if *chunk == Chunk::Trailer {
                        if line.is_empty() {
                            self.is_complete = true;
                            return Ok(());
                        }
                        continue;
                    }
                    let digits = line.split(';').next().unwrap_or_default().trim();
                    let size =
                        u64::from_str_radix(digits, 16).map_err(|_| format!("invalid chunk: {line}"))?;
                    // The data end with CR LF.
                    *chunk = if size == 0 { Chunk::Trailer } else { Chunk::Data(size.saturating_add(2)) };
                }
            }
        }
    }

    /// Takes the end of the connection.
    ///
    /// # Errors
    /// The response is not complete.
    pub(super) fn end(&mut self) -> Result<(), String> {
        if self.body != Some(Body::Close) && !self.is_complete {
            return Err("the server closed the connection before the end of its response".to_owned());
        }
        self.is_complete = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, piece: usize) -> Result<Response, String> {
        let mut response = Response::default();
        for part in text.as_bytes().chunks(piece) {
            response.take(part)?;
        }
        Ok(response)
    }

    #[test]
    fn responses_end_where_they_say_in_pieces_of_any_length() {
        for (text, status, is_complete, is_kept) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, true, true),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", 200, false, true),
            ("HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 404, true, false),
            ("HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 204 No\r\n\r\n", 204, true, true),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\nA\r\n0123456789\r\n0\r\n\r\n",
                200,
                true,
                true,
            ),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\nA: b\r\n\r\n", 200, true, true),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", 200, false, true),
            ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, true, false),
            ("HTTP/1.1 200 OK\r\n\r\nuntil the end", 200, false, false),
        ] {
            for piece in [1, 3, 7, 1000] {
                let response = read(text, piece).unwrap_or_else(|why| panic!("{text}: {why}"));
                let found = (response.status, response.is_complete, response.is_kept);
                assert_eq!(found, (status, is_complete, is_kept), "{piece}: {text}");
            }
        }
    }

    #[test]
    fn the_end_of_the_connection_ends_only_a_response_without_a_length() {
        let mut open = read("HTTP/1.1 200 OK\r\n\r\nuntil the end", 100).expect("valid");
        assert!(open.end().is_ok() && open.is_complete);
        let mut short = read("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", 100).expect("valid");
        assert!(short.end().is_err());
        assert!(Response::default().end().is_err());
    }

    #[test]
    fn what_is_not_http_is_refused() {
        let long = format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(HEAD_MAX));
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        for text in [
            "SSH-2.0-x\r\n".to_owned(),
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n".to_owned(),
            long,
            format!("{chunked}zz\r\n"),
            format!("{chunked}{}", "1".repeat(CHUNK_LINE_MAX + 1)),
        ] {
            assert!(read(&text, 1000).is_err(), "{text:.60}");
        }
    }
}
