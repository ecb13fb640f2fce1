//! Parses the parts of HTTP/1.1 requests (RFC 9112) that a file server needs.
//!
//! Limits           the caller limits the length of a request head ([`HEAD_BYTES_MAX`]).
//! Paths            percent-encoding is decoded once. A path is rejected if it leads above the root, or
//!                  contains an empty or hidden segment (a name that begins with a dot).
//! Ranges           a request may have one byte range (RFC 9110 §14.1.2). A request for several ranges gets
//!                  the whole file, which §14.2 allows.
//! Not implemented  request bodies, transfer codings, conditional requests. After the response to a request
//!                  with a body, the connection is closed.

/// Length limit of a request head, in bytes.
pub(crate) const HEAD_BYTES_MAX: usize = 8 << 10;

/// A parsed request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Request {
    pub(super) is_head: bool,
    /// Path segments from the root.
    pub(super) parts: Vec<String>,
    /// Whether the path ends with a slash.
    pub(super) is_folder: bool,
    pub(super) range: Option<Range>,
    /// Whether the connection persists.
    pub(super) stays: bool,
}

/// A byte range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Range {
    /// The bytes from one offset to another, inclusive.
    Within(u64, u64),
    /// The bytes from an offset to the end.
    From(u64),
    /// The last bytes, this many.
    Last(u64),
}

impl Range {
    /// Returns the start and the end (exclusive) of the range in a file of `length` bytes. Returns `None` if
    /// the range cannot be satisfied (RFC 9110 §15.5.17).
    pub(super) fn of(self, length: u64) -> Option<(u64, u64)> {
        match self {
            Range::Within(first, last) if first <= last && first < length => {
                Some((first, last.saturating_add(1).min(length)))
            }
            Range::From(first) if first < length => Some((first, length)),
            Range::Last(count) if count > 0 && length > 0 => Some((length.saturating_sub(count), length)),
            _ => None,
        }
    }
}

/// Why a request is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bad {
    /// 400: malformed.
    Malformed,
    /// 404: the path is never served.
    NotServed,
    /// 405: neither GET nor HEAD.
    Method,
    /// 413: it has a body.
    Body,
    /// 505: neither HTTP/1.0 nor 1.1.
    Version,
}

/// If the head is complete, returns its length, including the empty line.
pub(super) fn head_end(bytes: &[u8]) -> Option<usize> {
    // RFC 9112 §2.2: a single LF may be accepted as a line terminator.
    let mut line = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if *byte == b'\n' {
            let text = &bytes[line..at];
            // RFC 9112 §2.2: empty lines before a request are ignored.
            let is_empty = matches!(text, b"" | b"\r");
            if is_empty && bytes[..line].iter().any(|byte| !matches!(byte, b'\r' | b'\n')) {
                return Some(at + 1);
            }
            line = at + 1;
        }
    }
    None
}

/// Parses a complete head.
pub(super) fn read(head: &[u8]) -> Result<Request, Bad> {
    let text = std::str::from_utf8(head).map_err(|_| Bad::Malformed)?;
    let mut lines = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    let first = lines.by_ref().find(|line| !line.is_empty()).ok_or(Bad::Malformed)?;
    let words: Vec<&str> = first.split(' ').collect();
    let [method, target, version] = words[..] else { return Err(Bad::Malformed) };
    let is_1_1 = match version {
        "HTTP/1.1" => true,
        "HTTP/1.0" => false,
        other if other.starts_with("HTTP/") => return Err(Bad::Version),
        _ => return Err(Bad::Malformed),
    };
    let (mut stays, mut hosts, mut range, mut has_body) = (is_1_1, 0, None, false);
    for line in lines.take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or(Bad::Malformed)?;
        // RFC 9112 §5.1: no space is allowed before the colon. §5.2: folded lines are not allowed.
        if name.is_empty() || name.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(Bad::Malformed);
        }
        let value = value.trim_matches([' ', '\t']);
        match name.to_ascii_lowercase().as_str() {
            "host" => hosts += 1,
            "connection" => {
                for word in value.split(',').map(str::trim) {
                    if word.eq_ignore_ascii_case("close") {
                        stays = false;
                    } else if word.eq_ignore_ascii_case("keep-alive") && !is_1_1 {
                        stays = true;
                    }
                }
            }
            "range" => range = read_range(value),
            "content-length" => has_body |= value.parse::<u64>().map_err(|_| Bad::Malformed)? > 0,
            "transfer-encoding" => has_body = true,
            _ => {}
        }
    }
    // RFC 9112 §3.2: HTTP/1.1 requires exactly one Host field.
    if is_1_1 && hosts != 1 {
        return Err(Bad::Malformed);
    }
    if has_body {
        return Err(Bad::Body);
    }
    let is_head = match method {
        "GET" => false,
        "HEAD" => true,
        _ => return Err(Bad::Method),
    };
    let (parts, is_folder) = path_of(target)?;
    Ok(Request { is_head, parts, is_folder, range: range.filter(|_| !is_head), stays })
}

fn read_range(value: &str) -> Option<Range> {
    let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
    match (first.trim(), last.trim()) {
        ("", last) => Some(Range::Last(last.parse().ok()?)),
        (first, "") => Some(Range::From(first.parse().ok()?)),
        (first, last) => Some(Range::Within(first.parse().ok()?, last.parse().ok()?)),
    }
}

/// Returns the segments of a path, and whether the path names a directory.
fn path_of(target: &str) -> Result<(Vec<String>, bool), Bad> {
    // RFC 9112 §3.2.2: the absolute form is also accepted.
    let path = match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target,
    };
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let path = path.strip_prefix('/').ok_or(Bad::Malformed)?;
    let (path, is_folder) = match path.strip_suffix('/') {
        Some(path) => (path, true),
        None => (path, path.is_empty()),
    };
    let mut parts = Vec::new();
    for part in path.split('/').filter(|_| !path.is_empty()) {
        let part = decoded(part)?;
        if part.is_empty() || part.starts_with('.') || part.contains(['/', '\0']) {
            return Err(Bad::NotServed);
        }
        parts.push(part);
    }
    Ok((parts, is_folder))
}

fn decoded(part: &str) -> Result<String, Bad> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || rest.next().and_then(|digit| (digit as char).to_digit(16));
                let (high, low) = (digit().ok_or(Bad::Malformed)?, digit().ok_or(Bad::Malformed)?);
                (high * 16 + low) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| Bad::NotServed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(target: &str) -> Result<Request, Bad> {
        read(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
    }

    #[test]
    fn no_path_leads_out_of_the_root() {
        for (target, parts, is_folder) in [
            ("/", &[][..], true),
            ("/a", &["a"], false),
            ("/a/b/", &["a", "b"], true),
            ("/a%20b?x=/../y", &["a b"], false),
            ("http://host/a", &["a"], false),
            ("http://host", &[], true),
        ] {
            let request = get(target).expect(target);
            assert_eq!(
                (&request.parts[..], request.is_folder),
                (&parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>()[..], is_folder),
                "{target}"
            );
        }
        for (target, bad) in [
            ("/..", Bad::NotServed),
            ("/../etc/passwd", Bad::NotServed),
            ("/a/../../etc/passwd", Bad::NotServed),
            ("/%2e%2e/etc/passwd", Bad::NotServed),
            ("/..%2fetc", Bad::NotServed),
            ("/a%2f..%2f..", Bad::NotServed),
            ("/a//b", Bad::NotServed),
            ("//etc/passwd", Bad::NotServed),
            ("/.git/config", Bad::NotServed),
            ("/a%00b", Bad::NotServed),
            ("/%ff", Bad::NotServed),
            ("/%2", Bad::Malformed),
            ("/%zz", Bad::Malformed),
            ("etc", Bad::Malformed),
            ("*", Bad::Malformed),
        ] {
            assert_eq!(get(target), Err(bad), "{target}");
        }
    }

    #[test]
    fn invalid_request_heads_are_refused() {
        for (head, expected) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", Ok(true)),
            ("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", Ok(true)),
            ("GET / HTTP/1.1\nHost: a\n\n", Ok(true)),
            ("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", Ok(false)),
            ("GET / HTTP/1.0\r\n\r\n", Ok(false)),
            ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", Ok(true)),
            ("GET / HTTP/1.1\r\n\r\n", Err(Bad::Malformed)),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", Err(Bad::Malformed)),
            ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", Err(Bad::Malformed)),
            ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", Err(Bad::Malformed)),
            ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", Err(Bad::Version)),
            ("PUT / HTTP/1.1\r\nHost: a\r\n\r\n", Err(Bad::Method)),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n", Err(Bad::Body)),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", Err(Bad::Malformed)),
            ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", Err(Bad::Body)),
            ("nonsense\r\n\r\n", Err(Bad::Malformed)),
        ] {
            assert_eq!(head_end(head.as_bytes()), Some(head.len()), "{head}");
            assert_eq!(head_end(&head.as_bytes()[..head.len() - 1]), None, "{head}");
            assert_eq!(read(head.as_bytes()).map(|request| request.stays), expected, "{head}");
        }
        assert_eq!(read(b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n"), Err(Bad::Malformed));
    }

    #[test]
    fn ranges_are_clipped_to_the_file() {
        for (value, length, expected) in [
            ("bytes=0-0", 10, Some((0, 1))),
            ("bytes=2-5", 10, Some((2, 6))),
            ("bytes=2-99", 10, Some((2, 10))),
            ("bytes=9-", 10, Some((9, 10))),
            ("bytes=10-", 10, None),
            ("bytes=5-2", 10, None),
            ("bytes=-3", 10, Some((7, 10))),
            ("bytes=-99", 10, Some((0, 10))),
            ("bytes=-0", 10, None),
            ("bytes=-1", 0, None),
            ("bytes=0-18446744073709551615", 10, Some((0, 10))),
        ] {
            let range = read_range(value).expect(value);
            assert_eq!(range.of(length), expected, "{value}");
        }
        for value in ["bytes=a-b", "bytes=1-2,4-5", "lines=1-2", "bytes=-", "bytes"] {
            assert_eq!(read_range(value), None, "{value}");
        }
    }
}
