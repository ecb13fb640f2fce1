//! Parses a [`Talk`].
//!
//! A line is a flat sequence of words, and its first words determine its kind. The parser is therefore a
//! cursor over words and their columns. An error reports the unexpected word, its position, and the words
//! that would be valid.

use crate::script::{
    Bytes, Call, Content, Cookie, FLAGS, Line, Message, Number, Opening, Packet, ParseError, Pool, Quote,
    Segment, Talk, TcpOption, UNREACHABLE, What, When,
};
use crate::words::{Words, duration};
use kiban_base::Setting;
use kiban_tcpip::tcp::Nagle;
use kiban_tcpip::wire::tcp::Flags;
use std::time::Duration;

/// The maximum depth of includes.
const INCLUDES_MAX: usize = 8;

impl Talk {
    /// Parses a script; `include` returns the text of an included file.
    ///
    /// # Errors
    /// The first syntax error, with its position.
    pub fn read(
        file: &str,
        text: &str,
        include: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Talk, ParseError> {
        Talk::read_all(file, text, include).map_err(|mut errors| errors.swap_remove(0))
    }

    /// Parses a script like [`Talk::read`], and continues after a syntax error.
    ///
    /// # Errors
    /// All syntax errors, at least one, in the order of their lines.
    pub fn read_all(
        file: &str,
        text: &str,
        include: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Talk, Vec<ParseError>> {
        let head: Vec<&str> = text
            .lines()
            .take_while(|line| line.trim_start().starts_with('#'))
            .map(|line| line.trim_start().trim_start_matches('#').trim())
            .collect();
        let mut talk = Talk { file: file.into(), head: head.join("\n"), waits_for: None, lines: Vec::new() };
        let mut errors = Vec::new();
        talk.take_in(file, text, include, 0, &mut errors);
        if errors.is_empty() { Ok(talk) } else { Err(errors) }
    }

    fn take_in(
        &mut self,
        file: &str,
        text: &str,
        include: &dyn Fn(&str) -> Option<String>,
        depth: usize,
        errors: &mut Vec<ParseError>,
    ) {
        for (index, text) in text.lines().enumerate() {
            let taken = Words::of(file, index + 1, text)
                .and_then(|words| self.take_line(words, include, depth, errors));
            errors.extend(taken.err());
        }
    }

    fn take_line(
        &mut self,
        mut words: Words<'_>,
        include: &dyn Fn(&str) -> Option<String>,
        depth: usize,
        errors: &mut Vec<ParseError>,
    ) -> Result<(), ParseError> {
        match words.peek() {
            None => {}
            Some("waits-for") => {
                words.next();
                self.waits_for = Some(words.rest());
            }
            Some("include") => {
                words.next();
                let name = words.text_or_word("a file name")?;
                let inner = include(&name)
                    .filter(|_| depth < INCLUDES_MAX)
                    .ok_or_else(|| words.error_before("cannot read the file", None))?;
                words.end()?;
                self.take_in(&name, &inner, include, depth + 1, errors);
            }
            Some("&") => {
                words.next();
                let more = continuation(&mut words)?;
                words.end()?;
                match (self.lines.last_mut(), more) {
                    (Some(Line { what: What::Arrive(burst), .. }), What::Arrive(more)) => {
                        burst.extend(more);
                    }
                    (Some(last @ Line { what: What::Arrive(_) | What::Host { .. }, .. }), what) => {
                        last.more = true;
                        let label = last.label.clone();
                        self.lines.push(Line::new(&words, When::Same, label, what));
                    }
                    // The line before may be the one with an error.
                    _ if !errors.is_empty() => {}
                    _ => {
                        return Err(words.error_at(
                            0,
                            "`&` continues a burst, but no packet or call precedes it",
                            Some("write it after a line with `<-` or a call".into()),
                        ));
                    }
                }
            }
            Some(_) => {
                let line = line(words)?;
                self.lines.push(line);
            }
        }
        Ok(())
    }
}

impl Line {
    fn new(words: &Words<'_>, when: When, label: Option<String>, what: What) -> Line {
        Line {
            file: words.file.into(),
            number: words.number,
            text: words.text.trim_end().into(),
            when,
            label,
            what,
            more: false,
        }
    }
}

const EVENTS: [&str; 18] = [
    "->",
    "<-",
    "&",
    "set",
    "profile",
    "conn",
    "established",
    "told",
    "silence",
    "info",
    "got",
    "sessions",
    "counter",
    "host",
    "link",
    "hold",
    "include",
    "waits-for",
];

const CALLS: [&str; 19] = [
    "listen",
    "unlisten",
    "open",
    "write",
    "read",
    "urgent",
    "nagle",
    "quick-ack",
    "unsent-max",
    "dscp",
    "patience",
    "finish",
    "close",
    "abort",
    "ping",
    "bind",
    "unbind",
    "send",
    "receive",
];

/// Parses what follows `&`: a packet or a call.
fn continuation(words: &mut Words<'_>) -> Result<What, ParseError> {
    match words.peek().map(str::to_string) {
        Some(verb) if CALLS.contains(&verb.as_str()) => {
            words.next();
            host(&verb, words)
        }
        _ => Ok(What::Arrive(vec![packet(words)?])),
    }
}

fn host(verb: &str, words: &mut Words<'_>) -> Result<What, ParseError> {
    let call = call(verb, words)?;
    let refused = words.takes("refused").then(|| words.rest());
    Ok(What::Host { call, refused })
}

fn line(mut words: Words<'_>) -> Result<Line, ParseError> {
    let when = when(&mut words)?;
    let label = match words.peek().and_then(|word| word.strip_suffix(':')) {
        Some(label) => {
            let label = label.to_string();
            words.at += 1;
            Some(label)
        }
        None => None,
    };
    let verb = words.word("an event")?;
    let what = match verb.as_str() {
        "set" => What::Set { name: words.word("a setting name")?, value: words.text_or_word("a value")? },
        "profile" => What::Profile(words.word("a profile name")?),
        "conn" => {
            let (mut port, mut local, mut address) = (None, None, None);
            while let Some(word) = words.next() {
                match word.as_str() {
                    "port" => port = Some(words.number("a port")?),
                    "local" => local = Some(words.number("a port")?),
                    "host" => address = Some(words.number("a host's last byte")?),
                    _ => return Err(words.unknown("part of a connection", &["port", "local", "host"])),
                }
            }
            What::Connection { port, local, address }
        }
        "established" => What::Established(opening(&mut words)?),
        "<-" => What::Arrive(vec![packet(&mut words)?]),
        "->" => What::Transmit(packet(&mut words)?),
        "told" => What::Completion(words.rest()),
        "silence" => What::Silence,
        "info" => {
            let mut fields = Vec::new();
            while let Some(name) = words.next() {
                if name == "gone" {
                    fields.push((name, String::new()));
                } else {
                    fields.push((name, words.word("a value")?));
                }
            }
            What::Info(fields)
        }
        "got" => What::Got(words.number("a number of bytes")?),
        "sessions" => What::Sessions(words.number("a number of sessions")?),
        "counter" => What::Counter { name: words.word("family.name")?, value: words.number("a count")? },
        "host" => match words.word("`reads` or `waits`")?.as_str() {
            "reads" => What::Reads(true),
            "waits" => What::Reads(false),
            _ => return Err(words.unknown("a host mode", &["reads", "waits"])),
        },
        "link" => match words.word("`runs` or `stops`")?.as_str() {
            "runs" => What::Link(true),
            "stops" => What::Link(false),
            _ => return Err(words.unknown("a state of the link", &["runs", "stops"])),
        },
        "hold" => {
            let pool = match words.word("`transmit` or `receive`")?.as_str() {
                "transmit" => Pool::Transmit,
                "receive" => Pool::Receive,
                _ => return Err(words.unknown("a pool", &["transmit", "receive"])),
            };
            let all = words.takes("all");
            let pages = if all { usize::MAX } else { words.number::<u32>("a number of pages")? as usize };
            What::Hold { pool, pages }
        }
        _ => host(&verb, &mut words)?,
    };
    words.end()?;
    if matches!(when, When::Within(..) | When::Eventually)
        && !matches!(what, What::Transmit(_) | What::Completion(_))
    {
        return Err(words.error_at(
            0,
            "only an expected packet or completion may have a time range",
            Some("use `->` or `told`".into()),
        ));
    }
    Ok(Line::new(&words, when, label, what))
}

fn when(words: &mut Words<'_>) -> Result<When, ParseError> {
    let Some(word) = words.peek().map(str::to_string) else { return Ok(When::Same) };
    if let Some(length) = word.strip_prefix('+') {
        words.at += 1;
        return duration(length).map(When::After).ok_or_else(|| {
            words.error_before(&format!("`{word}` is not a duration"), Some("write +40ms".into()))
        });
    }
    if words.takes("eventually") {
        return Ok(When::Eventually);
    }
    if words.takes("within") {
        let word = words.word("A..B")?;
        return word
            .split_once("..")
            .and_then(|(from, to)| Some((duration(from)?, duration(to)?)))
            .filter(|(from, to)| from <= to)
            .map(|(from, to)| When::Within(from, to))
            .ok_or_else(|| words.error_before("invalid span", Some("write for example 30ms..50ms".into())));
    }
    match duration(&word) {
        Some(length) => {
            words.at += 1;
            Ok(When::At(length))
        }
        None => Ok(When::Same),
    }
}

fn call(verb: &str, words: &mut Words<'_>) -> Result<Call, ParseError> {
    Ok(match verb {
        "listen" => Call::Listen(if words.is_done() { 80 } else { words.number("a port")? }),
        "unlisten" => Call::Unlisten,
        "open" if words.takes("from") => {
            Call::Open { from: Some((words.number("a host's last byte")?, words.number("a port")?)) }
        }
        "open" if words.takes("with") => Call::OpenWith(words.number::<u32>("a number of bytes")? as usize),
        "open" => Call::Open { from: None },
        "write" => {
            let bytes = match words.literal() {
                Some(bytes) => Bytes::Literal(bytes),
                None => Bytes::Count(words.number("a number of bytes")?),
            };
            let takes = if words.takes("takes") { Some(words.number("a number of bytes")?) } else { None };
            Call::Write { bytes, takes }
        }
        "read" => Call::Read(words.number("a number of bytes")?),
        "urgent" => Call::Urgent,
        "nagle" => {
            let word = words.word("a Nagle mode")?;
            let expected = || words.error_before(&format!("write {}", Nagle::expects()), None);
            Call::Nagle(Nagle::read(&word).ok_or_else(expected)?)
        }
        "quick-ack" => match words.word("on or off")?.as_str() {
            "on" => Call::QuickAck(true),
            "off" => Call::QuickAck(false),
            _ => return Err(words.unknown("a state of quick acknowledgements", &["on", "off"])),
        },
        "unsent-max" => Call::UnsentMax(words.number("a number of bytes")?),
        "dscp" => Call::Dscp(words.number("a DSCP")?),
        "patience" => {
            let (mut keep_alive, mut user_timeout) = (None, None);
            loop {
                if words.takes("keep-alive") {
                    keep_alive = Some(words.length("a keep-alive interval")?);
                } else if words.takes("user-timeout") {
                    user_timeout = Some(words.length("a user timeout")?);
                } else {
                    break Call::Patience { keep_alive, user_timeout };
                }
            }
        }
        "finish" => Call::Finish,
        "close" => Call::Close,
        "abort" => Call::Abort,
        "ping" => Call::Ping { bytes: words.number("a number of bytes")? },
        "bind" => Call::Bind(words.number("a port")?),
        "unbind" => Call::Unbind,
        "send" => Call::Send(words.number::<u32>("a number of bytes")? as usize),
        "receive" => Call::Receive(words.number::<u32>("a number of bytes")? as usize),
        _ => return Err(words.unknown("an event", &[&EVENTS[..], &CALLS[..]].concat())),
    })
}

fn opening(words: &mut Words<'_>) -> Result<Opening, ParseError> {
    let mut opening = Opening {
        active: false,
        options: Vec::new(),
        window_bytes: 65_535,
        round_trip: Duration::from_millis(10),
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "active" => opening.active = true,
            "passive" => opening.active = false,
            "win" => opening.window_bytes = words.number("a number of bytes")?,
            "rtt" => opening.round_trip = words.length("a round trip")?,
            "timestamps" => {
                opening.options.push(TcpOption::Timestamps { value: Number::Absent, echo: Number::Absent });
            }
            _ => match option(&word, words)? {
                Some(option) => opening.options.push(option),
                None => {
                    return Err(words.unknown(
                        "part of an opening",
                        &["active", "passive", "win", "rtt", "mss", "sackok", "ts", "shift"],
                    ));
                }
            },
        }
    }
    Ok(opening)
}

/// Parses a TCP option that starts with `word`.
fn option(word: &str, words: &mut Words<'_>) -> Result<Option<TcpOption>, ParseError> {
    Ok(Some(match word {
        "mss" => TcpOption::Mss(words.number("a segment size")?),
        "sackok" => TcpOption::SackPermitted,
        "shift" => TcpOption::Shift(words.number("a shift")?),
        "ts" => {
            let value = if words.takes("val") { words.asked("a timestamp")? } else { Number::Absent };
            let echo = if words.takes("ecr") { words.asked("a timestamp")? } else { Number::Absent };
            TcpOption::Timestamps { value, echo }
        }
        "sack" => {
            let mut blocks = vec![words.block()?];
            while words.peek().is_some_and(|word| word.contains(':')) {
                blocks.push(words.block()?);
            }
            TcpOption::Sack(blocks)
        }
        "fast-open" if words.takes("granted") => TcpOption::FastOpen(Cookie::Granted),
        "fast-open" if words.peek().is_some_and(is_cookie) => TcpOption::FastOpen(Cookie::Is(words.hex()?)),
        "fast-open" => TcpOption::FastOpen(Cookie::Request),
        "opt" => TcpOption::Raw(words.hex()?),
        _ => return Ok(None),
    }))
}

/// Returns whether a word is a Fast Open cookie: at least eight hexadecimal digits.
fn is_cookie(word: &str) -> bool {
    word.len() >= 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

pub(crate) fn packet(words: &mut Words<'_>) -> Result<Packet, ParseError> {
    let whole = whole_packet(words)?;
    if !words.takes("cut") {
        return Ok(whole);
    }
    let by = words.number::<u16>("a fragment length")?;
    if by == 0 || by % 8 != 0 {
        return Err(words.error_before("the length of a fragment must be a multiple of eight", None));
    }
    let without = if words.takes("without") { Some(words.number::<u32>("a count")? as usize) } else { None };
    let backwards = words.takes("backwards");
    Ok(Packet::Cut { packet: Box::new(whole), by: by.into(), without, backwards })
}

/// Parses a packet before fragmentation.
fn whole_packet(words: &mut Words<'_>) -> Result<Packet, ParseError> {
    if words.takes("icmp") {
        return icmp(words);
    }
    if words.takes("udp") {
        let bytes = words.number::<u16>("a number of bytes")?.into();
        return Ok(Packet::Udp { bytes, wrong_sum: words.takes("badsum") });
    }
    if words.takes("fragment") {
        let (begin, end) = words.range("a range of the packet")?;
        return Ok(Packet::Fragment { begin: begin as usize, end: end as usize, more: words.takes("more") });
    }
    if words.takes("packet") {
        return Ok(Packet::Raw(words.hex()?));
    }
    if words.takes("payload") {
        return Ok(Packet::Payload { protocol: words.number("a protocol number")?, bytes: words.hex()? });
    }
    let mut segment = Segment::default();
    let mut times = 1;
    loop {
        if let Some(bytes) = words.literal() {
            segment.bytes = bytes.len();
            segment.content = Content::Literal(bytes);
            continue;
        }
        if words.peek() == Some("cut") {
            break;
        }
        let Some(word) = words.next() else { break };
        if let Some((_, flag)) = FLAGS.iter().find(|(name, _)| *name == word) {
            segment.flags = segment.flags | *flag;
            continue;
        }
        match word.as_str() {
            "seq" if words.takes("any") => segment.sequence = Number::Any,
            "seq" => {
                let (begin, behind) = words.range("a sequence range")?;
                segment.sequence = Number::Is(begin);
                segment.bytes = segment.bytes.max((behind - begin) as usize);
            }
            "len" => segment.bytes = words.number("a number of bytes")?,
            "by" => segment.by = Some(words.number::<u16>("a segment length")?.max(1).into()),
            "ack" => {
                segment.flags = segment.flags | Flags::ACK;
                segment.acknowledgment = words.asked("an acknowledgment")?;
            }
            "win" => segment.window = Some(words.number("a 16-bit window")?),
            "urg" => segment.urgent = Some(words.number("an urgent pointer")?),
            "evil" => segment.content = Content::Evil,
            "no-ts" => segment.without_timestamps = true,
            "badsum" => segment.wrong_sum = true,
            "ttl" => segment.ip_fields.time_to_live = Some(words.number("a time to live")?),
            "df" => segment.ip_fields.dont_fragment = Some(true),
            "no-df" => segment.ip_fields.dont_fragment = Some(false),
            "tos" => segment.ip_fields.traffic_class = Some(words.number("a traffic class")?),
            "no-options" => segment.options = Some(Vec::new()),
            "x" => times = words.number::<u32>("a count")? as usize,
            _ => match option(&word, words)? {
                Some(option) => segment.options.get_or_insert_default().push(option),
                None => {
                    return Err(words.unknown(
                        "part of a segment",
                        &[
                            "SYN",
                            "FIN",
                            "RST",
                            "PSH",
                            "URG",
                            "ECE",
                            "CWR",
                            "seq",
                            "ack",
                            "win",
                            "urg",
                            "len",
                            "by",
                            "mss",
                            "sackok",
                            "ts",
                            "shift",
                            "fast-open",
                            "sack",
                            "opt",
                            "no-options",
                            "no-ts",
                            "evil",
                            "badsum",
                            "ttl",
                            "df",
                            "no-df",
                            "tos",
                            "cut",
                            "fragment",
                            "x",
                            "icmp",
                            "udp",
                            "packet",
                            "payload",
                        ],
                    ));
                }
            },
        }
    }
    Ok(Packet::Tcp { segment, times })
}

fn icmp(words: &mut Words<'_>) -> Result<Packet, ParseError> {
    let kind = words.word("a kind of message")?;
    let message = match kind.as_str() {
        "echo-request" | "echo-reply" => {
            let bytes = if words.takes("len") { words.number("a number of bytes")? } else { 0 };
            if kind == "echo-reply" { Message::EchoReply { bytes } } else { Message::EchoRequest { bytes } }
        }
        "unreachable" => {
            let word = words.word("a kind of unreachable")?;
            let names = UNREACHABLE.map(|(name, _, _)| name);
            let known = names.iter().find(|name| **name == word);
            Message::Unreachable(known.ok_or_else(|| words.unknown("a kind of unreachable", &names))?)
        }
        "too-long" => {
            let mtu = if words.takes("mtu") { words.number("a packet length")? } else { 0 };
            Message::TooLong { mtu }
        }
        "time-exceeded" => Message::TimeExceeded,
        "parameter-problem" => Message::ParameterProblem,
        "source-quench" => Message::SourceQuench,
        _ => {
            let known = [
                "echo-request",
                "echo-reply",
                "unreachable",
                "too-long",
                "time-exceeded",
                "parameter-problem",
                "source-quench",
            ];
            return Err(words.unknown("a kind of message", &known));
        }
    };
    let quoting = if words.takes("quoting") {
        if !words.takes("seq") {
            return Err(words
                .error_here("`seq` is missing here", Some("write for example quoting seq 1:1461".into())));
        }
        let (sequence, behind) = words.range("a sequence range")?;
        Some(Quote { sequence, bytes: (behind - sequence) as usize })
    } else {
        None
    };
    Ok(Packet::Icmp { message, quoting })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(text: &str) -> (usize, usize, String, String) {
        let error = Talk::read("t", text, &|_| None).expect_err("a syntax error");
        (error.line, error.column, error.message, error.hint.unwrap_or_default())
    }

    #[test]
    fn a_syntax_error_has_a_position_and_a_hint() {
        for (text, line, column, message, hint) in [
            ("<- SYN sak", 1, 8, "`sak` is not part of a segment", "did you mean `sack`?"),
            ("\n+4x -> ack 1", 2, 1, "`+4x` is not a duration", "write +40ms"),
            ("wirte 5", 1, 1, "`wirte` is not an event", "did you mean `write`?"),
            (
                "& ack 1",
                1,
                1,
                "`&` continues a burst, but no packet or call precedes it",
                "write it after a line with `<-` or a call",
            ),
            (
                "<- seq 9:5 ack 1",
                1,
                8,
                "`9:5` is not a sequence range",
                "write FIRST:END, where END is the number after the last byte",
            ),
            ("<- ack", 1, 7, "an acknowledgment is missing here", ""),
            ("within 5ms..1ms -> ack 1", 1, 8, "invalid span", "write for example 30ms..50ms"),
            (
                "eventually silence",
                1,
                1,
                "only an expected packet or completion may have a time range",
                "use `->` or `told`",
            ),
            ("write \"abc", 1, 7, "unterminated string", ""),
            ("silence now", 1, 9, "unexpected word", ""),
            ("<- opt 123", 1, 11, "expected bytes in hex", "two digits per byte"),
            ("<- win 70000", 1, 8, "`70000` is not a 16-bit window", ""),
            ("include nowhere", 1, 9, "cannot read the file", ""),
        ] {
            assert_eq!(error_of(text), (line, column, message.into(), hint.into()), "{text}");
        }
    }

    #[test]
    fn a_packet_is_formatted_as_it_was_written() {
        for text in [
            "SYN seq 0 win 65535 mss 1460 sackok ts val 5 ecr 0 shift 7",
            "PSH seq 1:1461 ack 1 win 512",
            "seq 1 ack any sack 5:9 11:20",
            "FIN seq 5 ack 1 urg 7",
            "RST seq -5",
            "seq 1:6 ack 1 \"hello\"",
            "seq 1:14601 by 1460 ack 1",
            "SYN seq 0 opt 0102ff x 5",
            "icmp too-long mtu 1400 quoting seq 1:1461",
            "icmp unreachable port",
            "udp 100 badsum",
            "udp 3000 cut 1480 without 2",
            "packet 45000014",
            "payload 6 ffee",
            "seq 1:1461 ack 1 cut 512 without 2",
            "icmp echo-request len 3000 cut 1480 backwards",
            "fragment 0:1480 more",
            "seq 1:5 ack 1 ttl 64 no-df tos 2",
        ] {
            let mut words = Words::of("t", 1, text).unwrap();
            assert_eq!(packet(&mut words).unwrap().to_string(), text);
        }
    }

    #[test]
    fn the_parser_does_not_panic_on_random_words() {
        let words =
            ["<-", "->", "seq", "1:5", ":", "\"", "x", "any", "+1ms", "within", "..", "é", "sack", "0x", "-"];
        let mut chance = kiban_base::SimRng::from_seed(7);
        let mut read = 0;
        for _ in 0..20_000 {
            let count = chance.below(6);
            let text: Vec<&str> =
                (0..count).map(|_| words[chance.below(words.len() as u64) as usize]).collect();
            read += usize::from(Talk::read("t", &text.join(" "), &|_| None).is_ok());
        }
        assert!(read > 0);
    }
}
