//! Runs a script line by line. A failure says what was expected and what happened instead. After one, the
//! script goes on: a packet that differs stands for the expected one, and an unexpected packet is dropped.

use crate::script::{
    Call, Content, Cookie, FLAGS, IpFields, Line, Number, Opening, Packet, Segment, Talk, TcpOption, What,
    When, length_of,
};
use crate::settings::Settings;
use crate::side::Connection;
use crate::world::{Entry, HostEvent, OTHERS, Transmitted, World, pieces};
use kiban_base::Instant;
use kiban_capture as capture;
use kiban_tcpip::tcp::State;
use kiban_tcpip::wire::tcp::Flags;
use std::fmt;
use std::time::Duration;

/// The number of recent lines that a failure shows.
const RECENT: usize = 12;
/// The width up to which the expected and the actual line stand beside each other; wider ones stand one above
/// the other.
const BESIDE_WIDTH_MAX: usize = 100;
/// The number of failures after which a script is given up: later ones mostly follow from the first.
const FAILURES_MAX: usize = 10;
/// What is added to a missing completion about the end of a stream.
const GIVEN_UP: &str =
    ": after `close` or `abort`, the host is told nothing more; use `finish`, or check `sessions 0`";
/// How long a line with `eventually` waits.
const EVENTUALLY: Duration = Duration::from_secs(3600);

/// The result of running a script.
#[derive(Clone, Debug)]
pub struct Report {
    /// The reasons why the script failed; none if it passed.
    pub failures: Vec<Failure>,
    /// A feature that the stack does not have; the script was skipped.
    pub waits_for: Option<String>,
    /// The recorded exchange, as a script.
    pub trace: String,
    /// The packets on the wire, as a pcap file of IP packets.
    pub capture: Vec<u8>,
    /// Virtual time from the first line to the last.
    pub lasted: Duration,
}

/// Where and why a script failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
    /// The line of the script.
    pub expected: String,
    /// What happened instead, in the same notation; empty if nothing happened.
    pub came: String,
    /// The most recent lines of the exchange; empty if an earlier failure of the script has them.
    pub recent: String,
}

/// Marks the words of a line that the other line does not have.
fn marked(line: &str, other: &str, colour: &str) -> String {
    let others: Vec<&str> = other.split_whitespace().collect();
    let mark = |word: &str| match others.contains(&word) {
        true => word.to_owned(),
        false => format!("{colour}{word}\x1b[0m"),
    };
    line.split(' ').map(mark).collect::<Vec<_>>().join(" ")
}

impl Failure {
    /// Formats the failure for a terminal: what differs between the expected and the actual line is green in
    /// the one and red in the other.
    pub fn coloured(&self) -> String {
        let expected = marked(&self.expected, &self.came, "\x1b[32m");
        let came = marked(&self.came, &self.expected, "\x1b[31m");
        if self.came.is_empty() { self.to_string() } else { self.shown(&expected, &came) }
    }

    fn shown(&self, expected: &str, came: &str) -> String {
        let Failure { file, line, message, recent, .. } = self;
        let mut text = format!("{file}:{line}: {message}\n");
        // The colours take no width.
        let [left, right] = [&self.expected, &self.came].map(|line| line.chars().count());
        let width = left.max("expected".len());
        if came.is_empty() {
            text += &format!("  expected  {expected}");
        } else if width + right + 4 > BESIDE_WIDTH_MAX {
            text += &format!("  expected  {expected}\n  actual    {came}");
        } else {
            let pad = " ".repeat(width - left);
            text += &format!("  {:<width$}  actual\n  {expected}{pad}  {came}", "expected");
        }
        if !recent.is_empty() {
            text += "\n  the conversation so far:";
            recent.lines().for_each(|line| text += &format!("\n    {line}"));
        }
        text
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown(&self.expected, &self.came))
    }
}

impl std::error::Error for Failure {}

/// The reason why a line failed, and what happened instead.
pub(crate) struct Mismatch {
    message: String,
    came: String,
    then: Then,
}

/// How a script goes on after a mismatch.
#[derive(Clone, Copy)]
enum Then {
    /// With the next line.
    Next,
    /// With the same line: something happened before it that no line expected.
    Again,
    /// Not at all: the line has an error.
    Stop,
}

impl Mismatch {
    fn new(message: impl Into<String>, came: String) -> Mismatch {
        Mismatch { message: message.into(), came, then: Then::Next }
    }

    fn stop(message: String) -> Mismatch {
        Mismatch { then: Then::Stop, ..Mismatch::from(message) }
    }
}

impl From<String> for Mismatch {
    fn from(message: String) -> Mismatch {
        Mismatch::new(message, String::new())
    }
}

impl From<&str> for Mismatch {
    fn from(message: &str) -> Mismatch {
        Mismatch::from(message.to_string())
    }
}

/// Runs a script.
pub fn run(talk: &Talk) -> Report {
    let mut runner = Runner::new();
    let failures = if talk.waits_for.is_none() { runner.lines(&talk.lines) } else { Vec::new() };
    let mut trace: String = talk.head.lines().map(|line| format!("# {line}\n")).collect();
    runner.said.iter().for_each(|said| trace += &format!("{said}\n"));
    let mut file = Vec::new();
    capture::FileHeader::new(capture::LINK_TYPE_RAW).write(&mut file);
    let mut lasted = Duration::ZERO;
    if let Some(world) = &runner.world {
        trace += &written(world, &world.log);
        lasted = runner.mark.since(world.zero);
        for (at, packet) in &world.wire {
            let header = capture::FileHeader::new(capture::LINK_TYPE_RAW);
            let bytes = packet.len() as u32;
            capture::RecordHeader {
                nanoseconds: at.as_nanos(),
                captured_bytes: bytes,
                original_bytes: bytes,
            }
            .write(&header, &mut file);
            file.extend(packet);
        }
    }
    Report { failures, waits_for: talk.waits_for.clone(), trace, capture: file, lasted }
}

/// Formats log entries as a script, each with the time since the previous one.
fn written(world: &World, log: &[Entry]) -> String {
    let mut text = String::new();
    let mut before = world.zero;
    for (index, Entry { at, label, text: words }) in log.iter().enumerate() {
        let when = match (index, *at == before) {
            (0, _) if *at >= world.zero => length_of(at.since(world.zero)),
            (0, _) => String::new(),
            (_, true) => String::new(),
            (_, false) => format!("+{}", length_of(at.since(before))),
        };
        before = *at;
        // Later lines of a burst have the same time and connection as the burst's first line.
        let goes_on = words.starts_with("& ");
        let label = if goes_on { String::new() } else { named(label) };
        text += &format!("{when:<9} {label}{words}\n");
    }
    text
}

pub(crate) struct Runner {
    settings: Settings,
    /// Lines that changed settings or declared connections; they are repeated in the trace.
    said: Vec<String>,
    world: Option<World>,
    /// The time of the previous line.
    pub(crate) mark: Instant,
    /// Whether the current line continues the burst of the previous one.
    joined: bool,
}

impl Runner {
    pub(crate) fn new() -> Runner {
        let (said, mark) = (Vec::new(), Instant::ZERO);
        Runner { settings: Settings::new(), said, world: None, mark, joined: false }
    }

    /// Runs all lines; returns the failures.
    fn lines(&mut self, lines: &[Line]) -> Vec<Failure> {
        let mut failures = Vec::new();
        for line in lines {
            loop {
                let mark = self.mark;
                let Err(mismatch) = self.line(line) else { break };
                let then = mismatch.then;
                let mut failure = self.failure(line, mismatch);
                // The conversation is shown once.
                if !failures.is_empty() {
                    failure.recent.clear();
                }
                failures.push(failure);
                match then {
                    Then::Stop => return failures,
                    _ if failures.len() == FAILURES_MAX => return failures,
                    Then::Next => break,
                    Then::Again => self.mark = mark,
                }
            }
        }
        if failures.is_empty()
            && let Some(last) = lines.last()
        {
            failures.extend(self.end().err().map(|mismatch| self.failure(last, mismatch)));
        }
        failures
    }

    /// Returns the failure of a line, with the exchange until then.
    pub(crate) fn failure(&self, line: &Line, Mismatch { message, came, .. }: Mismatch) -> Failure {
        Failure {
            file: line.file.clone(),
            line: line.number,
            message,
            expected: line.text.trim().to_string(),
            came,
            recent: self.world.as_ref().map_or(String::new(), |world| {
                let from = world.log.len().saturating_sub(RECENT);
                written(world, &world.log[from..])
            }),
        }
    }

    pub(crate) fn world(&mut self) -> &mut World {
        if self.world.is_none() {
            let world = World::new(self.settings.clone());
            self.mark = world.now;
            self.world = Some(world);
        }
        self.world.as_mut().expect("created above")
    }

    pub(crate) fn line(&mut self, line: &Line) -> Result<(), Mismatch> {
        match &line.what {
            What::Set { name, value } => {
                self.before_the_board(line)?;
                return self.settings.set(name, value).map_err(Mismatch::stop);
            }
            What::Profile(name) => {
                self.before_the_board(line)?;
                return self.settings.profile(name).map_err(Mismatch::stop);
            }
            What::Connection { port, local, address } => {
                let label = line.label.clone().ok_or("a connection needs a name: `b: conn port 5001`")?;
                self.said.push(line.text.trim().to_string());
                self.world().declare(&label, *address, *port, *local);
                return Ok(());
            }
            _ => {}
        }
        let joined = std::mem::replace(&mut self.joined, line.more);
        let world = self.world();
        (world.joined, world.more) = (joined, line.more);
        let (from, until) = self.span(line.when)?;
        let label = line.label.as_deref();
        match &line.what {
            What::Transmit(packet) => self.expect_packets(label, packet, from, until)?,
            What::Completion(words) => self.expect_completion(label, words, from, until)?,
            what => {
                if !joined {
                    self.quiet_until(until, !is_check(what))?;
                }
                self.act(label, what)?;
            }
        }
        self.world().fault.take().map_or(Ok(()), |fault| Err(Mismatch::stop(fault)))
    }

    fn before_the_board(&mut self, line: &Line) -> Result<(), Mismatch> {
        self.said.push(line.text.trim().to_string());
        match self.world {
            Some(_) => Err(Mismatch::stop("settings must come before the first event".into())),
            None => Ok(()),
        }
    }

    /// Returns the earliest and the latest time at which a line may happen.
    fn span(&mut self, when: When) -> Result<(Instant, Instant), Mismatch> {
        self.world();
        let mark = self.mark;
        let world = self.world();
        let (from, until) = match when {
            When::Same => (mark, mark),
            When::At(length) => (world.zero + length, world.zero + length),
            When::After(length) => (mark + length, mark + length),
            When::Within(from, to) => (mark + from, mark + to),
            When::Eventually => (mark, mark + EVENTUALLY),
        };
        if until < mark {
            Err("this time is before that of the previous line".into())
        } else {
            Ok((from, until))
        }
    }

    /// Advances the time to the time of an action or a check. Fails if the board has sent a packet or a
    /// completion that no line expected.
    fn quiet_until(&mut self, until: Instant, wants_quiet: bool) -> Result<(), Mismatch> {
        self.mark = until;
        let world = self.world();
        let before = until.as_nanos();
        let unexpected = move |world: &World| {
            let early = |at: Instant| wants_quiet || at.as_nanos() < before;
            world.transmitted.front().is_some_and(|seen| early(seen.at))
                || world.host_events.front().is_some_and(|event| early(event.at))
        };
        if !world.pass(until, unexpected)? {
            return Ok(());
        }
        let (message, came) = if let Some(seen) = world.transmitted.pop_front() {
            ("unexpected packet", in_words(world, &seen))
        } else if let Some(event) = world.host_events.pop_front() {
            ("unexpected completion", told(world, &event))
        } else {
            return Ok(());
        };
        Err(Mismatch { then: Then::Again, ..Mismatch::new(message, came) })
    }

    pub(crate) fn end(&mut self) -> Result<(), Mismatch> {
        let mark = self.mark;
        self.quiet_until(mark, true)?;
        let world = self.world();
        if let Some(fault) = world.fault.take() {
            return Err(fault.into());
        }
        if world.ends_with_all_memory_free()? {
            Ok(())
        } else {
            Err("packet memory was not freed after the end of the script".into())
        }
    }

    // ---- Expectations

    fn expect_packets(
        &mut self,
        label: Option<&str>,
        packet: &Packet,
        from: Instant,
        until: Instant,
    ) -> Result<(), Mismatch> {
        let (wanted, times) = match packet {
            Packet::Tcp { segment, times } => (
                pieces(segment).into_iter().map(|piece| Packet::Tcp { segment: piece, times: 1 }).collect(),
                *times,
            ),
            other => (vec![other.clone()], 1),
        };
        for _ in 0..times {
            for wanted in &wanted {
                self.expect_packet(label, wanted, from, until)?;
            }
        }
        Ok(())
    }

    fn expect_packet(
        &mut self,
        label: Option<&str>,
        wanted: &Packet,
        from: Instant,
        until: Instant,
    ) -> Result<(), Mismatch> {
        let world = self.world();
        if !world.pass(until, |world| !world.transmitted.is_empty())? {
            let when = length_of(until.since(world.zero));
            self.mark = until;
            return Err(format!("no packet by {when}").into());
        }
        let seen = world.transmitted.pop_front().expect("checked above");
        let came = in_words(world, &seen);
        let wrong = |message: &str| Err(Mismatch::new(message, came.clone()));
        self.mark = seen.at;
        let world = self.world();
        if let Some(difference) = differs(world, label, wanted, &seen) {
            return wrong(&difference);
        }
        if seen.at < from {
            return wrong("the packet is too early");
        }
        if seen.at > until {
            return wrong("the packet is too late");
        }
        Ok(())
    }

    fn expect_completion(
        &mut self,
        label: Option<&str>,
        words: &str,
        from: Instant,
        until: Instant,
    ) -> Result<(), Mismatch> {
        let world = self.world();
        if !world.pass(until, |world| !world.host_events.is_empty())? {
            let when = length_of(until.since(world.zero));
            let has_given_up =
                world.connection(label).is_ok_and(|index| world.connections[index].stream.is_none())
                    && words.starts_with("ended");
            let hint = if has_given_up { GIVEN_UP } else { "" };
            self.mark = until;
            return Err(format!("no completion by {when}{hint}").into());
        }
        let event = world.host_events.pop_front().expect("checked above");
        let came = told(world, &event);
        self.mark = event.at;
        let message = if event.label != label.unwrap_or("") {
            "the completion is for another connection"
        } else if event.words != words {
            "another completion was reported"
        } else if event.at < from {
            "the completion is too early"
        } else if event.at > until {
            "the completion is too late"
        } else {
            return Ok(());
        };
        Err(Mismatch::new(message, came))
    }

    // ---- Actions and checks

    fn act(&mut self, label: Option<&str>, what: &What) -> Result<(), Mismatch> {
        let world = self.world();
        match what {
            What::Arrive(burst) => Ok(world.arrive(label, burst)?),
            What::Host { call, refused } => {
                let at = world.log.len();
                let outcome = world.call(label, call)?;
                if let (Err(_), Some(words)) = (&outcome, refused) {
                    world.log[at].text += &format!(" refused {words}");
                }
                match (outcome, refused) {
                    (Ok(()), None) => Ok(()),
                    (Ok(()), Some(_)) => Err("the call did not fail".into()),
                    (Err(refusal), None) => Err(format!("the call failed: {refusal}").into()),
                    (Err(refusal), Some(words)) if refusal.to_string().contains(words.as_str()) => Ok(()),
                    (Err(refusal), Some(_)) => {
                        Err(Mismatch::new("the call failed with another error", refusal.to_string()))
                    }
                }
            }
            What::Reads(reads) => {
                let word = if *reads { "reads" } else { "waits" };
                world.note(None, format!("host {word}"));
                world.set_reads(*reads);
                Ok(())
            }
            What::Link(runs) => {
                world.note(None, format!("link {}", if *runs { "runs" } else { "stops" }));
                world.set_link(*runs);
                Ok(())
            }
            What::Hold { pool, pages } => {
                let pages_in_words = if *pages == usize::MAX { "all".into() } else { pages.to_string() };
                world.note(None, format!("hold {} {pages_in_words}", pool.word()));
                world.hold(*pool, *pages);
                Ok(())
            }
            What::Established(opening) => self.establish(label, opening),
            What::Silence => {
                world.note(None, "silence".into());
                Ok(())
            }
            What::Got(bytes) => {
                let index = world.connection(label)?;
                let got = world.connections[index].got;
                if got == *bytes { Ok(()) } else { Err(format!("the host has read {got} bytes").into()) }
            }
            What::Sessions(count) => {
                let there = world.board.sessions();
                if there == *count { Ok(()) } else { Err(format!("the board has {there} sessions").into()) }
            }
            What::Counter { name, value } => {
                let (family, counter) = name.split_once('.').ok_or("a counter is named FAMILY.NAME")?;
                let mut known = None;
                world.board.counters(&mut |its_family, its_name, value| {
                    if (its_family, its_name) == (family, counter) {
                        known = Some(known.unwrap_or(0) + value);
                    }
                });
                match known {
                    Some(counted) if counted == *value => Ok(()),
                    Some(counted) => Err(format!("{name} is {counted}").into()),
                    None => Err(format!("there is no counter {name}").into()),
                }
            }
            What::Info(fields) => info(world, label, fields),
            What::Transmit(_)
            | What::Completion(_)
            | What::Set { .. }
            | What::Profile(_)
            | What::Connection { .. } => Ok(()),
        }
    }

    /// Performs a handshake that is not part of the script; the script's time starts after it.
    fn establish(&mut self, label: Option<&str>, opening: &Opening) -> Result<(), Mismatch> {
        let is_first = self.world().log.is_empty();
        let mark = self.mark;
        let world = self.world();
        let index = world.connection(label)?;
        if is_first {
            world.zero = mark + opening.round_trip;
        }
        let shift = opening.options.iter().find_map(|option| match option {
            TcpOption::Shift(shift) => Some((*shift).min(14)),
            _ => None,
        });
        let syn = Segment {
            sequence: Number::Is(0),
            window: Some(opening.window_bytes.min(0xffff) as u16),
            options: Some(opening.options.clone()),
            flags: Flags::SYN,
            ..Segment::default()
        };
        let window = (opening.window_bytes >> shift.unwrap_or(0)).min(0xffff) as u16;
        let acknowledgment = Number::Is(1);
        let until = mark + opening.round_trip;
        let told = if opening.active {
            world.call(label, &Call::Open { from: None })?.map_err(|refusal| refusal.to_string())?;
            self.next_segment(index, Flags::SYN)?;
            self.quiet_until(until, true)?;
            let flags = Flags::SYN | Flags::ACK;
            let answer = Packet::Tcp { segment: Segment { flags, acknowledgment, ..syn }, times: 1 };
            self.world().arrive(label, &[answer])?;
            self.next_segment(index, Flags::ACK)?;
            self.world().connections[index].window = window;
            "opened"
        } else {
            let port = world.connections[index].local_port.unwrap_or(80);
            let log = world.log.len();
            match world.call(label, &Call::Listen(port))? {
                Ok(()) => {}
                // The handshake of another connection has already opened the listener.
                Err(kiban_board::HostError::Tcp(kiban_tcpip::tcp::Refusal::AddressInUse)) => {
                    world.log.truncate(log)
                }
                Err(refusal) => return Err(refusal.to_string().into()),
            }
            world.arrive(label, &[Packet::Tcp { segment: syn, times: 1 }])?;
            self.next_segment(index, Flags::SYN | Flags::ACK)?;
            self.quiet_until(until, true)?;
            let answer =
                Segment { flags: Flags::ACK, acknowledgment, window: Some(window), ..Segment::default() };
            self.world().arrive(label, &[Packet::Tcp { segment: answer, times: 1 }])?;
            "accepted"
        };
        self.expect_completion(label, told, until, until)
    }

    /// Takes the next segment of a handshake from the board, which must have these flags.
    fn next_segment(&mut self, index: usize, flags: Flags) -> Result<(), Mismatch> {
        let world = self.world();
        let Some(seen) = world.transmitted.pop_front() else {
            return Err("no packet in the handshake".into());
        };
        match &seen.packet {
            Packet::Tcp { segment, .. } if segment.flags == flags && seen.connection == Some(index) => Ok(()),
            _ => {
                let came = in_words(world, &seen);
                Err(Mismatch::new("another packet in the handshake", came))
            }
        }
    }
}

/// Returns whether a line only checks something and has no effect.
fn is_check(what: &What) -> bool {
    matches!(what, What::Info(_) | What::Got(_) | What::Sessions(_) | What::Counter { .. })
}

/// Returns the name of a connection as it begins a line; nothing for the one without a name.
fn named(label: &str) -> String {
    if label.is_empty() { String::new() } else { format!("{label}: ") }
}

fn in_words(world: &World, seen: &Transmitted) -> String {
    let label = seen.connection.map_or("", |index| world.connections[index].label.as_str());
    format!("{} {}-> {}", length_of(seen.at.since(world.zero)), named(label), seen.packet)
}

fn told(world: &World, event: &HostEvent) -> String {
    format!("{} {}told {}", length_of(event.at.since(world.zero)), named(&event.label), event.words)
}

/// The fields that `info` can check.
const INFO_WORDS: [&str; 28] = [
    "state",
    "mss",
    "srtt",
    "rttvar",
    "min-rtt",
    "rto",
    "cwnd",
    "ssthresh",
    "window",
    "outstanding",
    "queued",
    "retransmitted",
    "segments-in",
    "segments-out",
    "bytes-in",
    "bytes-acknowledged",
    "early",
    "repeated",
    "duplicate-sacks",
    "receive-window",
    "dscp",
    "heard-tos",
    "receive-buffer",
    "send-buffer",
    "busy",
    "window-limited",
    "buffer-limited",
    "gone",
];

fn info(world: &mut World, label: Option<&str>, fields: &[(String, String)]) -> Result<(), Mismatch> {
    let index = world.connection(label)?;
    let known = world.info(index);
    for (name, wanted) in fields {
        let Some(info) = &known else {
            if name == "gone" {
                continue;
            }
            return Err("the session is gone".into());
        };
        let value = match name.as_str() {
            "state" => state_in_words(info.state).to_string(),
            "mss" => info.mss.to_string(),
            "srtt" => length_of(info.round_trip),
            "rttvar" => length_of(info.round_trip_variation),
            "min-rtt" => length_of(info.least_round_trip),
            "cwnd" => info.congestion_window_bytes.to_string(),
            "ssthresh" => {
                info.slow_start_threshold_bytes.map_or_else(|| "none".into(), |bytes| bytes.to_string())
            }
            "retransmitted" => info.retransmitted_bytes.to_string(),
            "window" => info.send_window_bytes.to_string(),
            "outstanding" => info.outstanding_bytes.to_string(),
            "queued" => info.queued_bytes.to_string(),
            "rto" => length_of(info.retransmission_timeout),
            "segments-in" => info.segments_in.to_string(),
            "segments-out" => info.segments_out.to_string(),
            "bytes-in" => info.bytes_in.to_string(),
            "bytes-acknowledged" => info.bytes_acknowledged.to_string(),
            "early" => info.out_of_order_segments.to_string(),
            "repeated" => info.duplicate_segments.to_string(),
            "duplicate-sacks" => info.duplicate_sacks.to_string(),
            "receive-window" => info.receive_window_bytes.to_string(),
            "dscp" => info.dscp.to_string(),
            "heard-tos" => info.received_traffic_class.to_string(),
            "receive-buffer" => info.receive_buffer_bytes.to_string(),
            "send-buffer" => info.send_buffer_bytes.to_string(),
            "busy" => length_of(info.busy),
            "window-limited" => length_of(info.window_limited),
            "buffer-limited" => length_of(info.buffer_limited),
            "gone" => return Err("the session still exists".into()),
            _ => return Err(format!("unknown field `{name}`: known are {}", INFO_WORDS.join(", ")).into()),
        };
        if value != *wanted {
            let came = format!("{name} {value}");
            return Err(Mismatch::new(format!("the session's {name} differs"), came));
        }
    }
    Ok(())
}

/// Returns a state's name in RFC 9293.
fn state_in_words(state: State) -> &'static str {
    match state {
        State::SynSent => "SYN-SENT",
        State::SynReceived => "SYN-RECEIVED",
        State::Established => "ESTABLISHED",
        State::FinWait1 => "FIN-WAIT-1",
        State::FinWait2 => "FIN-WAIT-2",
        State::CloseWait => "CLOSE-WAIT",
        State::Closing => "CLOSING",
        State::LastAck => "LAST-ACK",
        State::TimeWait => "TIME-WAIT",
        State::Closed => "CLOSED",
    }
}

/// Returns a sentence that describes how a packet differs from the expected one, or `None` if there is no
/// difference.
fn differs(world: &World, label: Option<&str>, wanted: &Packet, seen: &Transmitted) -> Option<String> {
    let connection = seen.connection.map(|index| &world.connections[index]);
    let name = connection.map_or("", |connection| connection.label.as_str());
    match (wanted, &seen.packet) {
        (Packet::Tcp { segment: wanted, .. }, Packet::Tcp { segment: came, .. }) => {
            if name != label.unwrap_or("") {
                let whose =
                    if name == OTHERS { "an undeclared connection".into() } else { format!("`{name}`") };
                return Some(format!("the packet belongs to {whose}"));
            }
            segment_differs(connection?, wanted, came, seen)
        }
        (Packet::Udp { .. }, Packet::Udp { .. }) if name != label.unwrap_or("") => {
            Some(format!("the packet belongs to `{name}`"))
        }
        (wanted, came) if wanted == came => None,
        _ => Some("another packet was sent".into()),
    }
}

fn segment_differs(
    connection: &Connection,
    wanted: &Segment,
    came: &Segment,
    seen: &Transmitted,
) -> Option<String> {
    // Compare PSH only if the line mentions it.
    let mask = if wanted.flags.has(Flags::PSH) { Flags::NONE } else { Flags::PSH };
    if wanted.flags.without(mask) != came.flags.without(mask) {
        let [came, wanted] = [came, wanted].map(|segment| flags_in_words(segment.flags.without(mask)));
        return Some(format!("the flags differ: {wanted} expected, {came} received"));
    }
    if wanted.bytes != came.bytes {
        return Some("the length differs".into());
    }
    let is_pure = came.bytes == 0 && !came.flags.has_any(Flags::SYN | Flags::FIN | Flags::RST);
    let sequence = match wanted.sequence {
        Number::Absent if is_pure => Number::Is(seen.next),
        other => other,
    };
    if matches!(sequence, Number::Is(_)) && sequence != came.sequence {
        return Some(match wanted.sequence {
            Number::Absent => format!("the sequence number is not {}, the next one to send", seen.next),
            _ => "the sequence number differs".into(),
        });
    }
    if matches!(wanted.acknowledgment, Number::Is(_)) && wanted.acknowledgment != came.acknowledgment {
        return Some("the acknowledgment differs".into());
    }
    if wanted.window.is_some() && wanted.window != came.window {
        return Some("the window differs".into());
    }
    if wanted.urgent.is_some() && wanted.urgent != came.urgent {
        return Some("the urgent pointer differs".into());
    }
    if let Some(difference) = options_differ(wanted, came).or_else(|| ip_fields_differ(wanted, seen)) {
        return Some(difference);
    }
    let first = match came.sequence {
        Number::Is(sequence) => sequence - 1 + i64::from(came.flags.has(Flags::SYN)),
        _ => 0,
    };
    let expected = match &wanted.content {
        Content::Literal(bytes) => Some(bytes.as_slice()),
        _ => usize::try_from(first)
            .ok()
            .and_then(|first| connection.written.get(first..first + seen.payload.len())),
    };
    if !seen.payload.is_empty() && expected != Some(&seen.payload) {
        return Some("the payload is not what the host wrote at this position".into());
    }
    None
}

/// Lists all flags that are set, including ACK.
fn flags_in_words(flags: Flags) -> String {
    let all = FLAGS.into_iter().chain([("ACK", Flags::ACK)]);
    let words: Vec<&str> = all.filter(|(_, flag)| flags.has(*flag)).map(|(word, _)| word).collect();
    if words.is_empty() { "none".into() } else { words.join(" ") }
}

/// Compares the IP header fields that the line specifies.
fn ip_fields_differ(wanted: &Segment, seen: &Transmitted) -> Option<String> {
    let IpFields { time_to_live, dont_fragment, traffic_class } = wanted.ip_fields;
    let its = seen.ip_fields;
    if time_to_live.is_some() && time_to_live != its.time_to_live {
        return Some(format!("the TTL is {}", its.time_to_live?));
    }
    if dont_fragment.is_some() && dont_fragment != its.dont_fragment {
        return Some("the DF flag differs".into());
    }
    if traffic_class.is_some() && traffic_class != its.traffic_class {
        return Some(format!("the traffic class is {}", its.traffic_class?));
    }
    None
}

/// Compares options. SACK blocks are always compared. On a SYN, all options are compared if the line
/// specifies any. Otherwise only those that the line specifies are compared.
fn options_differ(wanted: &Segment, came: &Segment) -> Option<String> {
    let none = Vec::new();
    let came_options = came.options.as_ref().unwrap_or(&none);
    let said = wanted.options.as_ref().unwrap_or(&none);
    let blocks =
        |options: &[TcpOption]| options.iter().find(|option| matches!(option, TcpOption::Sack(_))).cloned();
    if blocks(said) != blocks(came_options) {
        return Some("the SACK blocks differ".into());
    }
    if wanted.without_timestamps
        && came_options.iter().any(|option| matches!(option, TcpOption::Timestamps { .. }))
    {
        return Some("the packet carries timestamps".into());
    }
    let all = wanted.options.is_some() && (came.flags.has(Flags::SYN) || said.is_empty());
    if all && (said.len() != came_options.len() || !said.iter().zip(came_options).all(|(a, b)| fits(a, b))) {
        return Some("the options differ".into());
    }
    let missing = said.iter().find(|option| !came_options.iter().any(|other| fits(option, other)));
    missing.map(|option| format!("the packet does not carry `{option}`"))
}

fn fits(wanted: &TcpOption, came: &TcpOption) -> bool {
    let number = |wanted: &Number, came: &Number| !matches!(wanted, Number::Is(_)) || wanted == came;
    match (wanted, came) {
        (
            TcpOption::Timestamps { value, echo },
            TcpOption::Timestamps { value: its_value, echo: its_echo },
        ) => number(value, its_value) && number(echo, its_echo),
        (TcpOption::FastOpen(Cookie::Granted), TcpOption::FastOpen(Cookie::Is(_))) => true,
        _ => wanted == came,
    }
}
