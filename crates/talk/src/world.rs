//! The simulation that a script runs in: one board, its host, and a peer at the other end of a link without
//! delay.
//!
//! Down      packets that the script injects and the host's calls are processed at once, and the board is
//!           polled until it is idle.
//! Up        packets that the board sends, and its completions, are queued with their times until the script
//!           expects them.
//! Time      advances only where the script says so, from deadline to deadline.
//! Log       records all events in the notation of scripts, in the order in which they happened.

use crate::packet;
use crate::script::{
    Bytes, Call, Content, Cookie, IpFields, Message, Number, Packet, Pool, Quote, Segment, TcpOption,
};
use crate::settings::Settings;
use crate::side::Connection;
use kiban_base::numbers::protocol;
use kiban_base::{Instant, Page, Pdu};
use kiban_board::{Board, Completion, HostError, Input, KeepAlive, Output, Reason, StreamId};
use kiban_tcpip::ip::IcmpErrorKind;
use kiban_tcpip::udp::SocketId;
use kiban_tcpip::wire::tcp::Flags;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

/// The maximum number of deadlines within one line of a script. If there are more, the board is assumed never
/// to become idle.
const DEADLINES_MAX: usize = 100_000;
/// How long a script's sessions may take to end after the last line.
const AFTERWARDS: Duration = Duration::from_secs(24 * 3600);
/// The name of connections that the script has not declared.
pub(crate) const OTHERS: &str = "others";

/// A packet that has left the board.
pub(crate) struct Transmitted {
    pub(crate) at: Instant,
    pub(crate) connection: Option<usize>,
    pub(crate) packet: Packet,
    pub(crate) payload: Vec<u8>,
    /// The board's next sequence number after this packet, relative to its SYN.
    pub(crate) next: i64,
    pub(crate) ip_fields: IpFields,
}

/// A completion for the host.
pub(crate) struct HostEvent {
    pub(crate) at: Instant,
    pub(crate) label: String,
    pub(crate) words: String,
}

/// A line of the log.
pub(crate) struct Entry {
    pub(crate) at: Instant,
    pub(crate) label: String,
    pub(crate) text: String,
}

pub(crate) struct World {
    pub(crate) board: Board,
    pub(crate) now: Instant,
    /// The start of the script.
    pub(crate) zero: Instant,
    local: IpAddr,
    settings: Settings,
    pub(crate) connections: Vec<Connection>,
    pub(crate) transmitted: VecDeque<Transmitted>,
    pub(crate) host_events: VecDeque<HostEvent>,
    pub(crate) log: Vec<Entry>,
    /// All packets on the link, for a capture.
    pub(crate) wire: Vec<(Instant, Vec<u8>)>,
    /// An error that no script can expect, such as wrong bytes or a packet that cannot be parsed.
    pub(crate) fault: Option<String>,
    listener: Option<u32>,
    /// The Fast Open cookie that the board granted last.
    granted: Vec<u8>,
    socket: Option<SocketId>,
    /// Whether the host reads data as soon as it arrives.
    pub(crate) reads: bool,
    /// Whether the current line continues a burst, and whether the next line will.
    pub(crate) joined: bool,
    pub(crate) more: bool,
    /// Pages of the board's memory that the script holds.
    held: Vec<Page>,
    undeclared_peers: u16,
}

impl World {
    pub(crate) fn new(settings: Settings) -> World {
        // Start at a later time, because some events happen before the start of the script.
        let now = Instant::ZERO + Duration::from_secs(1000);
        World {
            board: Board::new(&settings.board(), settings.key()),
            now,
            zero: now,
            local: settings.local(),
            settings,
            connections: Vec::new(),
            transmitted: VecDeque::new(),
            host_events: VecDeque::new(),
            log: Vec::new(),
            wire: Vec::new(),
            fault: None,
            listener: None,
            granted: Vec::new(),
            socket: None,
            reads: true,
            joined: false,
            more: false,
            held: Vec::new(),
            undeclared_peers: 0,
        }
    }

    // ---- Connections

    /// Declares a connection; numbers that are not given have default values.
    pub(crate) fn declare(
        &mut self,
        label: &str,
        host: Option<u8>,
        port: Option<u16>,
        local: Option<u16>,
    ) -> usize {
        let host = host.unwrap_or(2);
        let remote = SocketAddr::new(self.settings.host(host), port.unwrap_or(5000));
        self.connections.push(Connection::new(label, remote, local, self.settings.peer_initial));
        self.connections.len() - 1
    }

    /// Returns the index of a connection by its name. The connection without a name is created on demand.
    pub(crate) fn connection(&mut self, label: Option<&str>) -> Result<usize, String> {
        let name = label.unwrap_or("");
        if name == OTHERS {
            self.undeclared_peers += 1;
            let port = 20_000 + self.undeclared_peers;
            return Ok(self.declare(OTHERS, Some(99), Some(port), Some(80)));
        }
        match self.connections.iter().position(|connection| connection.label == name) {
            Some(index) => Ok(index),
            None if name.is_empty() => Ok(self.declare("", None, None, None)),
            None => Err(format!("there is no connection `{name}`: declare it with `{name}: conn port 5001`")),
        }
    }

    fn of_stream(&self, stream: StreamId) -> Option<usize> {
        self.connections.iter().position(|connection| connection.stream == Some(stream))
    }

    fn label(&self, connection: Option<usize>) -> String {
        connection.map_or(String::new(), |index| self.connections[index].label.clone())
    }

    pub(crate) fn note(&mut self, connection: Option<usize>, text: String) {
        let label = self.label(connection);
        self.log.push(Entry { at: self.now, label, text });
    }

    // ---- Time

    /// Advances the time to `until`, or until `stop` returns true. Returns whether `stop` returned true.
    pub(crate) fn pass(&mut self, until: Instant, stop: impl Fn(&World) -> bool) -> Result<bool, String> {
        for _ in 0..DEADLINES_MAX {
            let deadline = self.drain();
            if stop(self) {
                return Ok(true);
            }
            if deadline > until {
                self.now = self.now.max(until);
                return Ok(false);
            }
            self.now = self.now.max(deadline);
            self.board.handle(Input::Timeout, self.now);
        }
        Err("the board never becomes idle: it always has another deadline".into())
    }

    /// Polls, unless the burst continues.
    fn answer(&mut self) {
        if !self.more {
            self.drain();
        }
    }

    /// Polls until the board is idle; returns its next deadline.
    pub(crate) fn drain(&mut self) -> Instant {
        loop {
            match self.board.poll() {
                Output::Transmit { pdu, .. } => self.on_packet(pdu),
                Output::Completions => self.on_completions(),
                Output::Idle { deadline } => return deadline,
            }
        }
    }

    fn fail(&mut self, fault: String) {
        self.fault.get_or_insert(fault);
    }

    // ---- Packets of the board

    fn on_packet(&mut self, pdu: Pdu) {
        let bytes: Vec<u8> = pdu.runs().flatten().copied().collect();
        drop(pdu);
        self.wire.push((self.now, bytes.clone()));
        match self.read_packet(&bytes) {
            Ok(seen) => {
                self.note(seen.connection, format!("-> {}", seen.packet));
                self.transmitted.push_back(seen);
            }
            Err(fault) => {
                self.note(None, format!("-> {}", Packet::Raw(bytes)));
                self.fail(format!("the board sent an invalid packet: {fault}"));
            }
        }
    }

    fn read_packet(&mut self, bytes: &[u8]) -> Result<Transmitted, &'static str> {
        let opened = packet::open(bytes)?;
        let ip_fields = opened.ip_fields;
        if opened.protocol == protocol::UDP && opened.fragment.is_none() {
            let (_, port, payload) = packet::open_udp(&opened)?;
            let remote = SocketAddr::new(opened.target, port);
            let connection = self.connections.iter().position(|connection| connection.remote == remote);
            if payload != Connection::datagram(payload.len(), true) {
                return Err("its payload is not what the host sent");
            }
            let packet = Packet::Udp { bytes: payload.len(), wrong_sum: false };
            return Ok(Transmitted {
                at: self.now,
                connection,
                packet,
                payload: Vec::new(),
                next: 0,
                ip_fields,
            });
        }
        if opened.protocol != protocol::TCP || opened.fragment.is_some() {
            let packet = packet::other_in_words(&opened);
            return Ok(Transmitted {
                at: self.now,
                connection: None,
                packet,
                payload: Vec::new(),
                next: 0,
                ip_fields,
            });
        }
        let raw = packet::open_tcp(&opened)?;
        let remote = SocketAddr::new(opened.target, raw.target_port);
        let found = self.connections.iter().position(|connection| {
            connection.remote == remote && connection.local_port.is_none_or(|port| port == raw.source_port)
        });
        let index = found.unwrap_or_else(|| {
            self.connections.push(Connection::new(
                OTHERS,
                remote,
                Some(raw.source_port),
                self.settings.peer_initial,
            ));
            self.connections.len() - 1
        });
        let connection = &mut self.connections[index];
        connection.local_port = Some(raw.source_port);
        let stamp = packet::stamp_in(raw.options);
        if raw.flags.has(Flags::SYN) && connection.board.initial != Some(raw.sequence) {
            // This is the first SYN, or the SYN of a new incarnation of the connection.
            connection.board.initial = Some(raw.sequence);
            connection.board.next = 0;
            connection.written = std::mem::take(&mut connection.written_before_syn);
        }
        if raw.flags.has(Flags::SYN) {
            connection.board.stamps = stamp.is_some();
        }
        if let Some(stamp) = stamp {
            connection.board.first_stamp.get_or_insert(stamp);
            connection.board.last_stamp = stamp;
        }
        let segment = packet::in_words(&raw, connection);
        for option in segment.options.iter().flatten() {
            if let TcpOption::FastOpen(Cookie::Is(cookie)) = option {
                self.granted.clone_from(cookie);
            }
        }
        if let Number::Is(begin) = segment.sequence
            && !raw.flags.has(Flags::RST)
        {
            let control = raw.flags.has(Flags::SYN) as i64 + raw.flags.has(Flags::FIN) as i64;
            let end = begin + segment.bytes as i64 + control;
            connection.board.next = connection.board.next.max(end);
        }
        Ok(Transmitted {
            at: self.now,
            connection: Some(index),
            packet: Packet::Tcp { segment, times: 1 },
            payload: raw.payload.to_vec(),
            next: connection.board.next,
            ip_fields,
        })
    }

    // ---- Completions

    fn on_completions(&mut self) {
        while let Some(completion) = self.board.host().completion() {
            let (connection, words) = match completion {
                Completion::Opened { stream } => (self.of_stream(stream), "opened".to_string()),
                Completion::Accepted { stream, remote, .. } => {
                    let mut known = self.connections.iter();
                    let free = known.position(|known| known.remote == remote && known.stream.is_none());
                    // The connection may be a new incarnation of one that has ended.
                    let found =
                        free.or_else(|| self.connections.iter().position(|known| known.remote == remote));
                    if let Some(index) = found {
                        self.connections[index].stream = Some(stream);
                    }
                    (found, "accepted".into())
                }
                Completion::Readable { stream } => {
                    let connection = self.of_stream(stream);
                    if self.reads {
                        if let Some(index) = connection {
                            self.read(index, usize::MAX);
                        }
                        continue;
                    }
                    (connection, "readable".into())
                }
                Completion::Writable { stream } => (self.of_stream(stream), "writable".into()),
                Completion::Urgent { stream, bytes } => (self.of_stream(stream), format!("urgent {bytes}")),
                Completion::PeerFinished { stream } => (self.of_stream(stream), "finished".into()),
                Completion::Ended { stream, reason } => {
                    let word = match reason {
                        Reason::Closed => "closed".to_string(),
                        Reason::Refused => "refused".into(),
                        Reason::Reset => "reset".into(),
                        Reason::TimedOut => "timed-out".into(),
                        Reason::Unreachable => "unreachable".into(),
                        Reason::Aborted => "aborted".into(),
                        #[allow(unreachable_patterns)]
                        other => format!("{other:?}").to_lowercase(),
                    };
                    (self.of_stream(stream), format!("ended {word}"))
                }
                Completion::Datagram { .. } => (None, "datagram".into()),
                Completion::DatagramError { remote, kind, .. } => {
                    let connection = self.connections.iter().position(|other| other.remote == remote);
                    let words = match kind {
                        IcmpErrorKind::Unreachable { .. } => "unreachable",
                        IcmpErrorKind::FragmentationNeeded { .. } => "too-long",
                        IcmpErrorKind::TimeExceeded { .. } => "time-exceeded",
                        IcmpErrorKind::ParameterProblem { .. } => "parameter-problem",
                    };
                    (connection, format!("datagram-trouble {words}"))
                }
                Completion::EchoReply { bytes, .. } => (None, format!("echo-reply {bytes}")),
                other => (None, format!("{other:?}")),
            };
            self.note(connection, format!("told {words}"));
            let label = self.label(connection);
            self.host_events.push_back(HostEvent { at: self.now, label, words });
        }
    }

    /// Reads and checks at most `count` bytes; returns the number of bytes read.
    fn read(&mut self, index: usize, count: usize) -> usize {
        let Some(stream) = self.connections[index].stream else { return 0 };
        let mut buffer = vec![0; count.min(64 << 10)];
        let mut total = 0;
        while total < count {
            let most = buffer.len().min(count - total);
            let got = match self.board.host().read(stream, &mut buffer[..most]) {
                Ok(0) | Err(_) => break,
                Ok(got) => got,
            };
            total += got;
            let connection = &mut self.connections[index];
            let first = connection.begin + connection.got as i64;
            let wrong = (0..got).find(|at| buffer[*at] != connection.peer_byte(first + *at as i64));
            connection.got += got as u64;
            if let Some(wrong) = wrong {
                let place = first + wrong as i64;
                self.fail(format!(
                    "the byte that the host read at position {place} is not what the peer sent"
                ));
            }
        }
        total
    }

    // ---- Packets of the peer

    /// Delivers a burst. The board sends its response after all of the burst has arrived.
    pub(crate) fn arrive(&mut self, label: Option<&str>, burst: &[Packet]) -> Result<(), String> {
        let mut packets = Vec::new();
        let first = self.log.len();
        for packet in burst {
            packets.append(&mut self.lay_out(label, packet)?);
        }
        for Entry { text, .. } in self.log.iter_mut().skip(first + usize::from(!self.joined)) {
            *text = text.replacen("<-", "&", 1);
        }
        self.deliver(packets)?;
        self.answer();
        Ok(())
    }

    /// Delivers packets as bytes, without polling the board.
    pub(crate) fn deliver(&mut self, packets: Vec<Vec<u8>>) -> Result<(), String> {
        let mut pdus = VecDeque::new();
        for bytes in packets {
            pdus.push_back(self.lay_down(&bytes)?);
            self.wire.push((self.now, bytes));
        }
        self.board.handle(Input::Packets { port: 0, packets: &mut pdus }, self.now);
        Ok(())
    }

    /// Builds the packets that a line describes.
    fn lay_out(&mut self, label: Option<&str>, packet: &Packet) -> Result<Vec<Vec<u8>>, String> {
        let mut packets = Vec::new();
        match packet {
            Packet::Tcp { segment, times } => {
                for _ in 0..*times {
                    let index = self.connection(label)?;
                    packets.extend(pieces(segment).iter().map(|piece| self.speak(index, piece)));
                }
            }
            Packet::Icmp { message, quoting } => packets.push(self.message(label, message, *quoting)?),
            Packet::Udp { bytes, wrong_sum } => {
                let index = self.connection(label)?;
                self.note(Some(index), format!("<- {packet}"));
                packets.push(packet::datagram(&self.connections[index], self.local, *bytes, *wrong_sum));
            }
            Packet::Raw(bytes) => {
                self.note(None, format!("<- {packet}"));
                packets.push(bytes.clone());
            }
            Packet::Payload { protocol, bytes } => {
                self.note(None, format!("<- {packet}"));
                packets.push(packet::ip(self.settings.host(2), self.local, *protocol, bytes));
            }
            Packet::Cut { packet, by, without, backwards } => {
                for whole in self.lay_out(label, packet)? {
                    let mut cut = packet::cut(&whole, *by);
                    if let Some(number) = without.filter(|number| (1..=cut.len()).contains(number)) {
                        cut.remove(number - 1);
                    }
                    if *backwards {
                        cut.reverse();
                    }
                    packets.append(&mut cut);
                }
                if let Some(Entry { text, .. }) = self.log.last_mut() {
                    let order = if *backwards { " backwards" } else { "" };
                    let hole = without.map_or(String::new(), |number| format!(" without {number}"));
                    *text += &format!(" cut {by}{hole}{order}");
                }
            }
            Packet::Fragment { .. } => {
                return Err(
                    "`fragment` applies only to packets from the board: use `cut` for packets from the peer"
                        .into(),
                );
            }
        }
        Ok(packets)
    }

    /// Copies a packet into the board's memory, as a link does.
    fn lay_down(&mut self, bytes: &[u8]) -> Result<Pdu, String> {
        let scarce = "the board has no memory for received packets: raise it with `set memory.receive_bytes`";
        let memory = self.board.memory_mut();
        let mut pdu = memory.pdus.take().ok_or(scarce)?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let slice = memory.receive.take().and_then(|mut page| page.append(rest)).ok_or(scarce)?;
            rest = &rest[slice.len()..];
            pdu.push_body(slice).map_err(|_| "the packet is longer than the maximum PDU")?;
        }
        Ok(pdu)
    }

    /// Sets the fields that the line omits.
    fn complete(&self, index: usize, said: &Segment) -> Segment {
        let stamp = (self.now.as_nanos() as i64 - self.zero.as_nanos() as i64).div_euclid(1_000_000);
        let connection = &self.connections[index];
        let is_syn = said.flags.has(Flags::SYN);
        let begin = match said.sequence {
            Number::Is(begin) => begin,
            _ => connection.peer.next,
        };
        let mut segment = Segment { sequence: Number::Is(begin), ..said.clone() };
        if said.flags.has(Flags::ACK) && !matches!(said.acknowledgment, Number::Is(_)) {
            segment.acknowledgment = Number::Is(connection.board.next);
        }
        segment.window.get_or_insert(connection.window);
        let options = segment.options.get_or_insert_default();
        let stamped = options.iter().any(|option| matches!(option, TcpOption::Timestamps { .. }));
        if !stamped && !is_syn && connection.stamps() && !said.without_timestamps {
            options.insert(0, TcpOption::Timestamps { value: Number::Absent, echo: Number::Absent });
        }
        for option in options {
            if let TcpOption::FastOpen(cookie) = option
                && *cookie == Cookie::Granted
            {
                *cookie = Cookie::Is(self.granted.clone());
            }
            if let TcpOption::Timestamps { value, echo } = option {
                if !matches!(value, Number::Is(_)) {
                    *value = Number::Is(stamp);
                }
                if !matches!(echo, Number::Is(_)) {
                    *echo = Number::Is(connection.board.relative_stamp(connection.board.last_stamp));
                }
            }
        }
        segment
    }

    /// Returns the bytes of a segment of the peer as an IP packet.
    pub(crate) fn encode(&mut self, index: usize, said: &Segment) -> Vec<u8> {
        // Until the board has sent a segment, use the listener's port.
        self.connections[index].local_port.get_or_insert(80);
        packet::segment(&self.connections[index], self.local, &self.complete(index, said))
    }

    /// Completes a segment, remembers its fields, and returns its bytes.
    fn speak(&mut self, index: usize, said: &Segment) -> Vec<u8> {
        let segment = self.complete(index, said);
        let connection = &mut self.connections[index];
        connection.local_port.get_or_insert(80);
        let is_syn = said.flags.has(Flags::SYN);
        let Number::Is(begin) = segment.sequence else { unreachable!("the segment was completed") };
        let options = segment.options.as_deref().unwrap_or_default();
        let stamped = options.iter().any(|option| matches!(option, TcpOption::Timestamps { .. }));
        connection.peer.stamps |= is_syn && stamped;
        let counts = !said.flags.has(Flags::RST) && !said.wrong_sum && said.content != Content::Evil;
        if counts {
            let control = is_syn as i64 + said.flags.has(Flags::FIN) as i64;
            connection.peer.next = connection.peer.next.max(begin + said.bytes as i64 + control);
            connection.window = segment.window.unwrap_or(connection.window);
            if is_syn {
                (connection.begin, connection.got) = (begin + 1, 0);
                connection.peer.stamps &= stamped;
            }
            if let Content::Literal(bytes) = &said.content {
                let first = begin + is_syn as i64;
                for (place, byte) in (first..).zip(bytes) {
                    connection.literals.entry(place).or_insert(*byte);
                }
            }
        }
        let bytes = packet::segment(&self.connections[index], self.local, &segment);
        self.note(Some(index), format!("<- {segment}"));
        bytes
    }

    fn message(
        &mut self,
        label: Option<&str>,
        message: &Message,
        quoting: Option<Quote>,
    ) -> Result<Vec<u8>, String> {
        let index = self.connection(label)?;
        let bytes = packet::message(&self.connections[index], self.local, message, quoting);
        self.note(Some(index), format!("<- {}", Packet::Icmp { message: message.clone(), quoting }));
        Ok(bytes)
    }

    // ---- Calls of the host

    /// Calls the host interface. The inner error is the board's.
    pub(crate) fn call(&mut self, label: Option<&str>, call: &Call) -> Result<Result<(), HostError>, String> {
        let index = self.connection(label)?;
        let joined = if self.joined { "& " } else { "" };
        self.note(Some(index), format!("{joined}{call}"));
        // The board's clock shows the time of its last input, so pass the current time to it first.
        self.board.handle(Input::Timeout, self.now);
        let outcome = self.do_call(index, call);
        self.answer();
        outcome
    }

    fn do_call(&mut self, index: usize, call: &Call) -> Result<Result<(), HostError>, String> {
        let remote = self.connections[index].remote;
        let known = self.connections[index].stream;
        let stream = || known.ok_or("the connection has no stream: it was neither opened nor accepted");
        Ok(match call {
            Call::Listen(port) => {
                let local = SocketAddr::new(self.local, *port);
                self.board.host().listen(local).map(|listener| self.listener = Some(listener))
            }
            Call::Unlisten => self.board.host().unlisten(self.listener.take().ok_or("there is no listener")?),
            Call::Open { from } => {
                let local = from.map(|(host, port)| SocketAddr::new(self.settings.host(host), port));
                let connection = &mut self.connections[index];
                connection.local_port = None;
                let mut host = self.board.host();
                let opened = match local {
                    Some(local) => host.open_from(local, remote),
                    None => host.open(remote),
                };
                opened.map(|stream| connection.stream = Some(stream))
            }
            Call::OpenWith(count) => {
                let connection = &mut self.connections[index];
                (connection.local_port, connection.written) = (None, Vec::new());
                let bytes = connection.host_bytes(*count);
                match self.board.host().open_with_data(None, remote, &bytes) {
                    Err(refused) => Err(refused),
                    Ok((stream, taken)) => {
                        connection.stream = Some(stream);
                        connection.written_before_syn = bytes[..taken].to_vec();
                        Ok(())
                    }
                }
            }
            Call::Write { bytes, takes } => {
                let bytes = match bytes {
                    Bytes::Count(count) => self.connections[index].host_bytes(*count),
                    Bytes::Literal(bytes) => bytes.clone(),
                };
                match self.board.host().write(stream()?, &bytes) {
                    Err(refused) => Err(refused),
                    Ok(taken) if taken == takes.unwrap_or(bytes.len()) => {
                        self.connections[index].written.extend(&bytes[..taken]);
                        Ok(())
                    }
                    Ok(taken) => return Err(format!("the board accepted {taken} of {} bytes", bytes.len())),
                }
            }
            Call::Read(count) => {
                stream()?;
                let got = self.read(index, *count);
                if got != *count {
                    return Err(format!("only {got} of {count} bytes could be read"));
                }
                Ok(())
            }
            Call::Dscp(dscp) => match (known, self.listener) {
                (None, Some(listener)) => self.board.host().set_listener_dscp(listener, *dscp),
                _ => self.board.host().set_dscp(stream()?, *dscp),
            },
            Call::UnsentMax(most) => {
                self.board.host().set_unsent_bytes_max(stream()?, NonZeroU32::new(*most))
            }
            Call::QuickAck(is_on) => self.board.host().set_quick_ack(stream()?, *is_on),
            Call::Nagle(nagle) => self.board.host().set_nagle(stream()?, *nagle),
            Call::Urgent => self.board.host().send_urgent(stream()?),
            Call::Patience { keep_alive, user_timeout } => {
                self.board.host().set_timeouts(stream()?, keep_alive.map(KeepAlive::after), *user_timeout)
            }
            Call::Finish => self.board.host().finish(stream()?),
            Call::Close => {
                self.connections[index].stream = None;
                let stream = stream()?;
                self.board.host().close(stream)
            }
            Call::Abort => {
                self.connections[index].stream = None;
                let stream = stream()?;
                self.board.host().abort(stream)
            }
            Call::Bind(port) => {
                self.connections[index].local_port = Some(*port);
                let bound = self.board.host().bind(SocketAddr::new(self.local, *port));
                bound.map(|socket| self.socket = Some(socket))
            }
            Call::Unbind => self.board.host().unbind(self.socket.take().ok_or("no socket is bound")?),
            Call::Send(count) => {
                let socket = self.socket.ok_or("no socket is bound")?;
                self.board.host().send_to(socket, remote, &Connection::datagram(*count, true))
            }
            Call::Receive(count) => {
                let socket = self.socket.ok_or("no socket is bound")?;
                let mut buffer = vec![0; usize::from(u16::MAX)];
                match self.board.host().receive_from(socket, &mut buffer) {
                    Err(refused) => Err(refused),
                    Ok(None) => return Err("the socket has no datagram".into()),
                    Ok(Some((from, got))) if (from, got) == (remote, *count) => {
                        if buffer[..got] != Connection::datagram(got, false) {
                            return Err("the datagram's payload is not what the peer sent".into());
                        }
                        Ok(())
                    }
                    Ok(Some((from, got))) => {
                        return Err(format!("the next datagram has {got} bytes and comes from {from}"));
                    }
                }
            }
            Call::Ping { bytes } => self.board.host().ping(remote.ip(), 1, 1, &vec![0x42; *bytes]),
        })
    }

    /// Sets whether the host reads data at once, or only where the script says so.
    pub(crate) fn set_reads(&mut self, reads: bool) {
        self.reads = reads;
        if reads {
            self.board.handle(Input::Timeout, self.now);
            (0..self.connections.len()).for_each(|index| {
                self.read(index, usize::MAX);
            });
            self.drain();
        }
    }

    /// Sets whether the link takes packets from the board.
    pub(crate) fn set_link(&mut self, runs: bool) {
        self.board.hold(0, !runs);
        self.board.handle(Input::Room, self.now);
        self.drain();
    }

    /// Takes up to `pages` free pages from the board's memory until the end of the script.
    pub(crate) fn hold(&mut self, pool: Pool, pages: usize) {
        let memory = self.board.memory_mut();
        let pool = match pool {
            Pool::Transmit => &mut memory.transmit,
            Pool::Receive => &mut memory.receive,
        };
        self.held.extend(std::iter::from_fn(|| pool.take()).take(pages));
    }

    /// Returns TCP's view of a connection; `None` if the connection no longer exists.
    pub(crate) fn info(&mut self, index: usize) -> Option<kiban_tcpip::tcp::Info> {
        let stream = self.connections[index].stream?;
        self.board.host().info(stream).ok().map(|info| info.until(self.now))
    }

    /// Aborts all connections, and advances the time without further packets from the peer. Returns whether
    /// all memory is then free.
    pub(crate) fn ends_with_all_memory_free(&mut self) -> Result<bool, String> {
        self.held.clear();
        self.board.hold(0, false);
        self.board.handle(Input::Timeout, self.now);
        for index in 0..self.connections.len() {
            if let Some(stream) = self.connections[index].stream.take() {
                // The abort fails if the stream has ended already.
                let _ = self.board.host().abort(stream);
            }
        }
        let log = self.log.len();
        let wire = self.wire.len();
        self.pass(self.now + AFTERWARDS, |world| world.board.sessions() == 0)?;
        self.log.truncate(log);
        self.wire.truncate(wire);
        Ok(self.board.memory_mut().is_all_free())
    }
}

/// Splits a run of data into segments. Only the last of them has FIN and PSH.
pub(crate) fn pieces(run: &Segment) -> Vec<Segment> {
    let (Some(by), Number::Is(begin)) = (run.by, run.sequence) else { return vec![run.clone()] };
    let ends = Flags::FIN | Flags::PSH;
    (0..run.bytes)
        .step_by(by)
        .map(|at| {
            let bytes = by.min(run.bytes - at);
            let is_last = at + bytes == run.bytes;
            Segment {
                sequence: Number::Is(begin + at as i64),
                bytes,
                by: None,
                flags: if is_last { run.flags } else { run.flags.without(ends) },
                ..run.clone()
            }
        })
        .collect()
}
