//! A parsed script: lines with a time and an event. Segments are formatted in the notation in which they are
//! parsed.

use kiban_base::Setting;
use kiban_tcpip::tcp::Nagle;
use kiban_tcpip::wire::tcp::Flags;
use std::fmt;
use std::time::Duration;

/// A script.
#[derive(Clone, Debug)]
pub struct Talk {
    /// The file's name, for messages.
    pub file: String,
    /// The comment at the top, which says what the script tests and on which clause the test is based.
    pub head: String,
    /// A feature that the stack does not have, so the script is only parsed, not run.
    pub waits_for: Option<String>,
    pub(crate) lines: Vec<Line>,
}

/// One line of a script.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) file: String,
    pub(crate) number: usize,
    pub(crate) text: String,
    pub(crate) when: When,
    /// The connection's name; `None` for the default connection.
    pub(crate) label: Option<String>,
    pub(crate) what: What,
    /// Whether the next line belongs to the same burst (`&`).
    pub(crate) more: bool,
}

/// The time of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum When {
    /// At the same time as the previous line.
    Same,
    /// At this time after the start of the script.
    At(Duration),
    /// A time after the previous line.
    After(Duration),
    /// Within this range of times after the previous line.
    Within(Duration, Duration),
    /// Any time within an hour.
    Eventually,
}

/// An event or a check.
#[derive(Clone, Debug)]
pub(crate) enum What {
    Set {
        name: String,
        value: String,
    },
    Profile(String),
    /// Declares a connection, whose name is the line's label.
    Connection {
        port: Option<u16>,
        local: Option<u16>,
        address: Option<u8>,
    },
    Established(Opening),
    /// A burst from the peer.
    Arrive(Vec<Packet>),
    Transmit(Packet),
    Host {
        call: Call,
        refused: Option<String>,
    },
    /// `host reads` or `host waits`.
    Reads(bool),
    /// `link runs` or `link stops`.
    Link(bool),
    /// Takes up to this number of free pages from the board's memory.
    Hold {
        pool: Pool,
        pages: usize,
    },
    Completion(String),
    Silence,
    Info(Vec<(String, String)>),
    Got(u64),
    Sessions(usize),
    Counter {
        name: String,
        value: u64,
    },
}

/// A pool of pages in the board's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pool {
    Transmit,
    Receive,
}

impl Pool {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Pool::Transmit => "transmit",
            Pool::Receive => "receive",
        }
    }
}

/// A call of the host.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Listen(u16),
    Unlisten,
    Open {
        from: Option<(u8, u16)>,
    },
    /// `open with`: Fast Open, with this number of bytes.
    OpenWith(usize),
    Write {
        bytes: Bytes,
        takes: Option<usize>,
    },
    Read(usize),
    Urgent,
    Nagle(Nagle),
    /// The limit of unsent bytes; 0 for none.
    UnsentMax(u32),
    /// Whether acknowledgements are not delayed.
    QuickAck(bool),
    /// The DSCP of the stream's packets or, before there is a stream, of the listener's.
    Dscp(u8),
    Patience {
        keep_alive: Option<Duration>,
        user_timeout: Option<Duration>,
    },
    Finish,
    Close,
    Abort,
    Ping {
        bytes: usize,
    },
    Bind(u16),
    Unbind,
    Send(usize),
    Receive(usize),
}

/// The payload of a stream: generated or literal bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Bytes {
    Count(usize),
    Literal(Vec<u8>),
}

/// A handshake that is not part of the script.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    pub(crate) active: bool,
    pub(crate) options: Vec<TcpOption>,
    pub(crate) window_bytes: u32,
    pub(crate) round_trip: Duration,
}

/// The packet that a line describes after its arrow.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Packet {
    Tcp {
        segment: Segment,
        times: usize,
    },
    Icmp {
        message: Message,
        quoting: Option<Quote>,
    },
    /// A datagram of `bytes` bytes between the connection's two ports.
    Udp {
        bytes: usize,
        wrong_sum: bool,
    },
    /// A whole IP packet.
    Raw(Vec<u8>),
    /// The payload of an IP packet.
    Payload {
        protocol: u8,
        bytes: Vec<u8>,
    },
    /// A packet in fragments of `by` bytes.
    Cut {
        packet: Box<Packet>,
        by: usize,
        without: Option<usize>,
        backwards: bool,
    },
    /// A fragment that the board sent: its range in the IP payload, and whether more follow.
    Fragment {
        begin: usize,
        end: usize,
        more: bool,
    },
}

/// The IP header fields that a line specifies. If a field is not specified, packets to the board have the
/// usual value, and packets from the board are not checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct IpFields {
    pub(crate) time_to_live: Option<u8>,
    /// IPv4 only.
    pub(crate) dont_fragment: Option<bool>,
    pub(crate) traffic_class: Option<u8>,
}

/// An ICMP message of either family.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    EchoRequest {
        bytes: usize,
    },
    EchoReply {
        bytes: usize,
    },
    /// Destination unreachable: `net`, `host`, `protocol`, `port`, `admin`.
    Unreachable(&'static str),
    TooLong {
        mtu: u32,
    },
    TimeExceeded,
    ParameterProblem,
    SourceQuench,
}

/// The words of `unreachable`, with the codes of ICMP (RFC 792, RFC 1122 §3.2.2.1) and ICMPv6 (RFC 4443
/// §3.1).
pub(crate) const UNREACHABLE: [(&str, u8, u8); 5] =
    [("net", 0, 0), ("host", 1, 3), ("protocol", 2, 1), ("port", 3, 4), ("admin", 13, 1)];

/// The board's segment that an ICMP error quotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Quote {
    pub(crate) sequence: i64,
    pub(crate) bytes: usize,
}

/// A number that a line may omit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Number {
    #[default]
    Absent,
    Any,
    Is(i64),
}

/// A segment, with the fields that a line specifies or, if the board has sent it, with all fields.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Segment {
    pub(crate) flags: Flags,
    pub(crate) sequence: Number,
    pub(crate) bytes: usize,
    /// The maximum length of the segments into which a run of data is split.
    pub(crate) by: Option<usize>,
    pub(crate) content: Content,
    pub(crate) acknowledgment: Number,
    pub(crate) window: Option<u16>,
    pub(crate) urgent: Option<u16>,
    /// The options in wire order, without padding; `None` if the line does not specify any.
    pub(crate) options: Option<Vec<TcpOption>>,
    pub(crate) without_timestamps: bool,
    pub(crate) wrong_sum: bool,
    pub(crate) ip_fields: IpFields,
}

/// The contents of a payload.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Content {
    /// The generated bytes of the segment's position in the stream.
    #[default]
    Stream,
    /// Bytes that must never be delivered.
    Evil,
    Literal(Vec<u8>),
}

/// The value of a Fast Open option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Cookie {
    /// No cookie: the option requests one.
    Request,
    /// The cookie that the board granted last; if expected, any cookie.
    Granted,
    Is(Vec<u8>),
}

/// A TCP option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum TcpOption {
    Mss(u16),
    SackPermitted,
    Timestamps { value: Number, echo: Number },
    Shift(u8),
    FastOpen(Cookie),
    Sack(Vec<(i64, i64)>),
    Raw(Vec<u8>),
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Absent => Ok(()),
            Number::Any => f.write_str("any"),
            Number::Is(number) => number.fmt(f),
        }
    }
}

impl fmt::Display for TcpOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TcpOption::Mss(mss) => write!(f, "mss {mss}"),
            TcpOption::SackPermitted => f.write_str("sackok"),
            TcpOption::Timestamps { value, echo } => {
                f.write_str("ts")?;
                if *value != Number::Absent {
                    write!(f, " val {value}")?;
                }
                if *echo != Number::Absent {
                    write!(f, " ecr {echo}")?;
                }
                Ok(())
            }
            TcpOption::Shift(shift) => write!(f, "shift {shift}"),
            TcpOption::FastOpen(Cookie::Request) => f.write_str("fast-open"),
            TcpOption::FastOpen(Cookie::Granted) => f.write_str("fast-open granted"),
            TcpOption::FastOpen(Cookie::Is(bytes)) => {
                f.write_str("fast-open ")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            TcpOption::Sack(blocks) => {
                f.write_str("sack")?;
                blocks.iter().try_for_each(|(left, right)| write!(f, " {left}:{right}"))
            }
            TcpOption::Raw(bytes) => {
                f.write_str("opt ")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

/// The flags that have a word of their own. (ACK is expressed by `ack`.)
pub(crate) const FLAGS: [(&str, Flags); 7] = [
    ("SYN", Flags::SYN),
    ("FIN", Flags::FIN),
    ("RST", Flags::RST),
    ("PSH", Flags::PSH),
    ("URG", Flags::URG),
    ("ECE", Flags::ECE),
    ("CWR", Flags::CWR),
];

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = Vec::new();
        words
            .extend(FLAGS.iter().filter(|(_, flag)| self.flags.has(*flag)).map(|(word, _)| word.to_string()));
        match (self.sequence, self.bytes) {
            (Number::Absent, 0) => {}
            (Number::Is(begin), bytes) if bytes > 0 => {
                words.push(format!("seq {begin}:{}", begin + bytes as i64));
            }
            (number, _) => words.push(format!("seq {number}")),
        }
        if let Some(by) = self.by {
            words.push(format!("by {by}"));
        }
        if self.flags.has(Flags::ACK) {
            words.push(format!("ack {}", self.acknowledgment));
        }
        words.extend(self.window.map(|window| format!("win {window}")));
        words.extend(self.urgent.map(|urgent| format!("urg {urgent}")));
        words.extend(self.options.iter().flatten().map(TcpOption::to_string));
        match &self.content {
            Content::Stream => {}
            Content::Evil => words.push("evil".into()),
            Content::Literal(bytes) => words.push(format!("\"{}\"", bytes.escape_ascii())),
        }
        if self.without_timestamps {
            words.push("no-ts".into());
        }
        if self.wrong_sum {
            words.push("badsum".into());
        }
        words.extend(self.ip_fields.time_to_live.map(|hops| format!("ttl {hops}")));
        words.extend(self.ip_fields.dont_fragment.map(|dont| if dont { "df" } else { "no-df" }.into()));
        words.extend(self.ip_fields.traffic_class.map(|class| format!("tos {class}")));
        f.write_str(&words.join(" "))
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Message::EchoRequest { bytes } => write!(f, "icmp echo-request len {bytes}"),
            Message::EchoReply { bytes } => write!(f, "icmp echo-reply len {bytes}"),
            Message::Unreachable(what) => write!(f, "icmp unreachable {what}"),
            Message::TooLong { mtu } => write!(f, "icmp too-long mtu {mtu}"),
            Message::TimeExceeded => f.write_str("icmp time-exceeded"),
            Message::ParameterProblem => f.write_str("icmp parameter-problem"),
            Message::SourceQuench => f.write_str("icmp source-quench"),
        }
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = |f: &mut fmt::Formatter<'_>, bytes: &[u8]| {
            bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
        };
        match self {
            Packet::Tcp { segment, times: 1 } => segment.fmt(f),
            Packet::Tcp { segment, times } => write!(f, "{segment} x {times}"),
            Packet::Icmp { message, quoting } => {
                message.fmt(f)?;
                match quoting {
                    Some(Quote { sequence, bytes: 0 }) => write!(f, " quoting seq {sequence}"),
                    Some(Quote { sequence, bytes }) => {
                        write!(f, " quoting seq {sequence}:{}", sequence + *bytes as i64)
                    }
                    None => Ok(()),
                }
            }
            Packet::Udp { bytes, wrong_sum } => {
                write!(f, "udp {bytes}")?;
                if *wrong_sum { f.write_str(" badsum") } else { Ok(()) }
            }
            Packet::Raw(bytes) => {
                f.write_str("packet ")?;
                hex(f, bytes)
            }
            Packet::Payload { protocol, bytes } => {
                write!(f, "payload {protocol} ")?;
                hex(f, bytes)
            }
            Packet::Cut { packet, by, without, backwards } => {
                write!(f, "{packet} cut {by}")?;
                without.map_or(Ok(()), |number| write!(f, " without {number}"))?;
                if *backwards { f.write_str(" backwards") } else { Ok(()) }
            }
            Packet::Fragment { begin, end, more } => {
                write!(f, "fragment {begin}:{end}")?;
                if *more { f.write_str(" more") } else { Ok(()) }
            }
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Call::Listen(port) => write!(f, "listen {port}"),
            Call::Unlisten => f.write_str("unlisten"),
            Call::Open { from: None } => f.write_str("open"),
            Call::OpenWith(count) => write!(f, "open with {count}"),
            Call::Open { from: Some((host, port)) } => write!(f, "open from {host} {port}"),
            Call::Write { bytes, takes } => {
                match bytes {
                    Bytes::Count(count) => write!(f, "write {count}")?,
                    Bytes::Literal(bytes) => write!(f, "write \"{}\"", bytes.escape_ascii())?,
                }
                takes.map_or(Ok(()), |takes| write!(f, " takes {takes}"))
            }
            Call::Read(count) => write!(f, "read {count}"),
            Call::Urgent => f.write_str("urgent"),
            Call::Dscp(dscp) => write!(f, "dscp {dscp}"),
            Call::UnsentMax(most) => write!(f, "unsent-max {most}"),
            Call::QuickAck(is_on) => write!(f, "quick-ack {}", if *is_on { "on" } else { "off" }),
            Call::Nagle(nagle) => write!(f, "nagle {}", nagle.show()),
            Call::Patience { keep_alive, user_timeout } => {
                f.write_str("patience")?;
                let said = [("keep-alive", keep_alive), ("user-timeout", user_timeout)];
                said.into_iter().try_for_each(|(name, length)| {
                    length.map_or(Ok(()), |length| write!(f, " {name} {}", length_of(length)))
                })
            }
            Call::Finish => f.write_str("finish"),
            Call::Close => f.write_str("close"),
            Call::Abort => f.write_str("abort"),
            Call::Ping { bytes } => write!(f, "ping {bytes}"),
            Call::Bind(port) => write!(f, "bind {port}"),
            Call::Unbind => f.write_str("unbind"),
            Call::Send(bytes) => write!(f, "send {bytes}"),
            Call::Receive(bytes) => write!(f, "receive {bytes}"),
        }
    }
}

/// Formats a duration.
pub(crate) fn length_of(length: Duration) -> String {
    let nanos = length.as_nanos();
    let (unit, word) = match nanos {
        0 => return "0ms".into(),
        n if n.is_multiple_of(1_000_000_000) => (1_000_000_000, "s"),
        n if n >= 1_000_000 => (1_000_000, "ms"),
        n if n >= 1000 => (1000, "us"),
        _ => (1, "ns"),
    };
    let fraction = format!("{:0width$}", nanos % unit, width = unit.to_string().len() - 1);
    match fraction.trim_end_matches('0') {
        "" => format!("{}{word}", nanos / unit),
        fraction => format!("{}.{fraction}{word}", nanos / unit),
    }
}

/// A syntax error in a script: its position and the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// The line of the script.
    pub text: String,
    /// What is wrong.
    pub message: String,
    /// A suggestion.
    pub hint: Option<String>,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ParseError { file, line, column, text, message, hint } = self;
        writeln!(f, "{file}:{line}:{column}: {message}")?;
        writeln!(f, "{line:>6} | {text}")?;
        write!(f, "       | {:>width$}", "^", width = column)?;
        hint.as_ref().map_or(Ok(()), |hint| write!(f, " {hint}"))
    }
}

impl std::error::Error for ParseError {}
