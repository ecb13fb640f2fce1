//! A TCP session in all its states. An input is a sequence of segments, calls from the host, and time steps.
//!
//! Set-up    a board has two remote hosts: a *peer* with an established session, which then sends arbitrary
//!           segments, and a *canary*, a well-behaved peer whose session the attacker tries to damage from
//!           outside.
//! Content   every byte of a stream is determined by its position, and the peer always sends the byte for
//!           that position, so that the bytes that the host reads can be checked whichever segments carried
//!           them.
//! Checks    after every step, the host has read a prefix of the peer's stream. The board has sent a prefix
//!           of the bytes that the host wrote, within the offered window, in segments of at most the peer's
//!           MSS. It acknowledges no data that was not sent, and never moves an acknowledgement or a window
//!           edge back. One segment causes few answers, and the accounting is consistent (outstanding data
//!           was written). At the end, the canary's stream is complete, no session is left, and memory is
//!           free.

use crate::features::Features;
use crate::input::Input;
use crate::tcpip::craft;
use crate::tcpip::ip_board::{address6, port};
use crate::tcpip::stand::{BOARD, BOARD6, PEER, PEER6, Stand, check_sent, memory};
use kiban_base::numbers::protocol;
use kiban_board::{BoardConfig, Completion, StreamId};
use kiban_tcpip::tcp::{Config, KeepAlive, LossDetection, SynCookies};
use kiban_tcpip::wire::tcp::{Flags, Header, Options, Sequence};
use kiban_tcpip::wire::{icmp, icmpv6, tcp};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

const LISTENED: u16 = 80;
const CANARY_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
const CANARY: SocketAddr = SocketAddr::new(IpAddr::V4(CANARY_ADDRESS), 5000);
/// Minimum length of the canary's stream in bytes.
const CANARY_BYTES: u32 = 200;
/// Maximum number of segments without payload that one segment may cause: acknowledgements for a few
/// out-of-order segments, and a window update.
const ANSWERS_MAX: usize = 4;
/// Maximum number of steps per input; the rest of the input is ignored.
const STEPS_MAX: usize = 400;

/// Returns the board's address and port as another host sees them.
fn board_at(other: SocketAddr, port: u16) -> SocketAddr {
    SocketAddr::new(if other.is_ipv4() { BOARD.into() } else { BOARD6.into() }, port)
}

/// Returns the byte at position `place` of a stream, counted from its SYN.
fn content(salt: u32, place: u32) -> u8 {
    ((place ^ salt).wrapping_mul(0x9e37_79b1) >> 24) as u8
}

fn bytes_of(salt: u32, place: u32, count: usize) -> Vec<u8> {
    (0..count as u32).map(|at| content(salt, place.wrapping_add(at))).collect()
}

/// The far end of a session, and its observations. Positions are distances from a side's SYN.
pub(crate) struct End {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) salt: u32,
    pub(crate) stream: StreamId,
    /// Whether the session is still the one that was opened.
    pub(crate) live: bool,
    pub(crate) initial: u32,
    pub(crate) shift: u8,
    pub(crate) mss: usize,
    pub(crate) window: u16,
    /// The position of our next byte.
    pub(crate) next: u32,
    /// One past the highest position that we have ever sent, as a sequence number or in an acknowledgement.
    pub(crate) named: u32,
    /// The highest right window edge that we have offered, as a position of the board's stream.
    pub(crate) offered: u32,
    pub(crate) board_initial: u32,
    pub(crate) board_shift: u8,
    pub(crate) board_stamps: bool,
    /// One past the highest position that the board has sent.
    pub(crate) board_sent: u32,
    /// The position up to which the board has acknowledged, and the right edge of its window.
    pub(crate) acknowledged: u32,
    pub(crate) board_offered: u32,
    /// Positions up to which the host has read and written.
    pub(crate) read: u32,
    pub(crate) written: u32,
    pub(crate) finished: bool,
}

/// The parameters with which a session is opened.
pub(crate) struct Opening {
    pub(crate) local: SocketAddr,
    pub(crate) initial: u32,
    pub(crate) window: u16,
    pub(crate) options: Options,
    /// Whether the board opens it.
    pub(crate) active: bool,
}

impl End {
    /// Performs a correct handshake.
    pub(crate) fn open(stand: &mut Stand, opening: Opening) -> End {
        let Opening { local, initial, window, options, active } = opening;
        let mut remote = board_at(local, LISTENED);
        let mut stream = None;
        if active {
            let opened = stand.board.host().open(local).expect("there is a port and a route");
            stream = Some(opened);
            stand.drain();
        }
        let syn = |remote: SocketAddr, flags, acknowledgment| Header {
            source_port: local.port(),
            target_port: remote.port(),
            sequence: Sequence(initial),
            acknowledgment: Sequence(acknowledgment),
            flags,
            window,
            urgent: 0,
            options,
        };
        if !active {
            assert!(stand.packet(&craft::tcp((local, remote), &syn(remote, Flags::SYN, 0), &[], b"")));
        }
        let board_syn = stand.sent.pop_front().expect("a SYN of the board");
        let (_, load) = check_sent(&board_syn);
        let (board_syn, _) = Header::read(load).expect("checked");
        assert!(board_syn.flags.has(Flags::SYN) && stand.sent.is_empty(), "{board_syn:?}");
        remote.set_port(board_syn.source_port);
        let acknowledgment = board_syn.sequence.0.wrapping_add(1);
        let answer = match active {
            true => syn(remote, Flags::SYN | Flags::ACK, acknowledgment),
            false => Header {
                sequence: Sequence(initial.wrapping_add(1)),
                options: Options::NONE,
                ..syn(remote, Flags::ACK, acknowledgment)
            },
        };
        let stamp = |value: Option<tcp::Timestamps>| {
            value.map(|theirs| tcp::Timestamps { value: 1, echo: theirs.value })
        };
        let mut answer = answer;
        if options.timestamps.is_some() {
            answer.options.timestamps = stamp(board_syn.options.timestamps);
        }
        assert!(stand.packet(&craft::tcp((local, remote), &answer, &[], b"")));
        let completion: Vec<_> = stand.completions.drain(..).collect();
        let stream = completion.iter().find_map(|completion| match completion {
            Completion::Opened { stream: opened } => Some(*opened).filter(|_| stream == Some(*opened)),
            Completion::Accepted { stream, remote, .. } => Some(*stream).filter(|_| *remote == local),
            _ => None,
        });
        stand.sent.clear();
        let both = options.window_shift.zip(board_syn.options.window_shift);
        let shift = both.map_or(0, |(ours, _)| ours.min(14));
        End {
            local,
            remote,
            salt: u32::from(local.port()),
            stream: stream.expect("a handshake opens a session"),
            live: true,
            initial,
            shift,
            // RFC 9293 §3.7.1, MUST-15: the default for a peer that sends no MSS option.
            mss: usize::from(options.mss.unwrap_or(if local.is_ipv6() { 1220 } else { 536 }).max(64)),
            window,
            next: 1,
            named: 1,
            offered: 1 + if active { u32::from(window) } else { u32::from(window) << shift },
            board_initial: board_syn.sequence.0,
            board_shift: both.map_or(0, |(_, theirs)| theirs.min(14)),
            board_stamps: options.timestamps.is_some() && board_syn.options.timestamps.is_some(),
            board_sent: 1,
            acknowledged: 1,
            board_offered: 1,
            read: 1,
            written: 1,
            finished: false,
        }
    }

    /// Returns the header of a correct segment: it has the next sequence number and acknowledges everything.
    pub(crate) fn header(&self) -> Header {
        Header {
            source_port: self.local.port(),
            target_port: self.remote.port(),
            sequence: Sequence(self.initial.wrapping_add(self.next)),
            acknowledgment: Sequence(self.board_initial.wrapping_add(self.board_sent)),
            flags: Flags::ACK,
            window: self.window,
            urgent: 0,
            options: Options::NONE,
        }
    }

    /// Returns a correct timestamp option, if timestamps are in use.
    fn stamped(&self, stand: &Stand) -> Options {
        let value = (stand.now.as_nanos() / 1_000_000) as u32;
        let timestamps = self.board_stamps.then_some(tcp::Timestamps { value, echo: 0 });
        Options { timestamps, ..Options::NONE }
    }

    /// Returns our payload at a sequence number.
    pub(crate) fn payload(&self, sequence: Sequence, count: usize) -> Vec<u8> {
        bytes_of(self.salt, sequence.0.wrapping_sub(self.initial), count)
    }

    /// Sends a segment to the board. Returns whether it had memory for it.
    pub(crate) fn send(
        &mut self,
        stand: &mut Stand,
        header: &Header,
        options: &[u8],
        payload: &[u8],
    ) -> bool {
        let packet = craft::tcp((self.local, self.remote), header, options, payload);
        let arrived = stand.packet(&packet);
        if arrived {
            self.name(header, payload.len());
        }
        arrived
    }

    /// Records what the board may have learned from a segment.
    fn name(&mut self, header: &Header, payload_bytes: usize) {
        {
            let length = header.sequence_bytes(payload_bytes);
            let end = header.sequence.0.wrapping_add(length).wrapping_sub(self.initial);
            if end < 1 << 31 {
                self.named = self.named.max(end);
            }
            let acknowledged = header.acknowledgment.0.wrapping_sub(self.board_initial);
            // If the board ignores an acknowledgement of data that it never sent, it also ignores the window
            // edge in that segment.
            if header.flags.has(Flags::ACK) && acknowledged <= self.board_sent {
                let edge = acknowledged + (u32::from(header.window) << self.shift);
                self.offered = self.offered.max(edge);
            }
        }
    }

    /// Handles a segment from the board.
    pub(crate) fn hear(&mut self, load: &[u8]) {
        let (header, used) = Header::read(load).expect("checked");
        if !self.live || header.flags.has(Flags::RST) || header.flags.has(Flags::SYN) {
            return;
        }
        let payload = &load[used..];
        let place = header.sequence.0.wrapping_sub(self.board_initial);
        let end = place.wrapping_add(header.sequence_bytes(payload.len()));
        assert!(place <= end && end < 1 << 31, "segment for byte {place}");
        if !payload.is_empty() {
            assert!(
                payload.len() + used - 20 <= self.mss.max(64),
                "{} bytes in a segment to {}",
                payload.len(),
                self.local
            );
            assert_eq!(payload, bytes_of(!self.salt, place, payload.len()), "the host's bytes at {place}");
            assert!(place.wrapping_add(payload.len() as u32) <= self.written, "never written");
        }
        // A closed window is probed with one byte (RFC 9293 §3.8.6.1).
        if end > place {
            assert!(
                end <= self.offered + 1,
                "{end} is beyond the right edge of the window at {} of {}",
                self.offered,
                self.local
            );
        }
        self.board_sent = self.board_sent.max(end);
        if header.flags.has(Flags::ACK) {
            let acknowledged = header.acknowledgment.0.wrapping_sub(self.initial);
            assert!(acknowledged <= self.named, "{acknowledged} is acknowledged of {}", self.named);
            assert!(acknowledged >= self.acknowledged, "an acknowledgement goes back to {acknowledged}");
            self.acknowledged = acknowledged;
            let edge = acknowledged + (u32::from(header.window) << self.board_shift);
            // RFC 7323 §2.4: a scaled window cannot express every edge.
            let grain = (1 << self.board_shift) - 1;
            assert!(edge + grain >= self.board_offered, "the window is taken back to {edge}");
            self.board_offered = self.board_offered.max(edge);
        }
    }

    /// The host reads up to `count` bytes, which must be the next ones of the stream.
    pub(crate) fn read(&mut self, stand: &mut Stand, count: usize) {
        let mut bytes = vec![0; count];
        if let Ok(count) = stand.board.host().read(self.stream, &mut bytes) {
            assert_eq!(bytes[..count], bytes_of(self.salt, self.read, count), "read at {}", self.read);
            self.read += count as u32;
            assert!(self.read <= self.named);
        }
        stand.drain();
    }

    pub(crate) fn write(&mut self, stand: &mut Stand, count: usize) {
        let bytes = bytes_of(!self.salt, self.written, count);
        if let Ok(count) = stand.board.host().write(self.stream, &bytes) {
            assert!(count <= bytes.len());
            self.written += count as u32;
        }
        stand.drain();
    }

    /// Checks the accounting of a live session.
    fn check_books(&self, stand: &mut Stand) {
        if let Ok(info) = stand.board.host().info(self.stream) {
            assert!(info.outstanding_bytes <= self.board_sent, "una <= next");
            assert!(info.queued_bytes < self.written, "what is queued was written");
            assert!(info.congestion_window_bytes > 0 && info.mss > 0);
        }
    }
}

/// The board, the peer and the canary.
struct Scene {
    stand: Stand,
    peer: End,
    canary: End,
}

impl Scene {
    fn new(input: &mut Input<'_>) -> Scene {
        let choice = input.byte();
        let mut tcp = match choice % 8 {
            1 => Config::bsd43(),
            2 => Config::solaris23(),
            3 => Config { loss_detection: LossDetection::Sack, pacing: true, ..Config::default() },
            _ => Config::default(),
        };
        let more = input.byte();
        let wishes = |bit: u8| more >> bit & 1 == 1;
        tcp.syn_cookies = if wishes(0) { SynCookies::Always } else { tcp.syn_cookies };
        tcp.autotune |= wishes(1);
        tcp.receive_buffer_max_bytes = 200_000;
        tcp.send_buffer_max_bytes = 100_000;
        tcp.keep_alive_interval = Duration::from_secs(1);
        tcp.receive_buffer_bytes = if choice & 8 == 0 { 16 << 10 } else { 100_000 };
        tcp.send_buffer_bytes = 16 << 10;
        tcp.floor_bytes = 4 << 10;
        if choice & 16 == 0 && choice.is_multiple_of(8) {
            tcp.sack = true;
        }
        let config = BoardConfig {
            memory: memory(),
            tcp,
            ports: vec![port()],
            addresses: vec![address6()],
            v6_only: false,
            ..BoardConfig::default()
        };
        let mut stand = Stand::new(&config);
        stand
            .board
            .host()
            .listen(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), LISTENED))
            .expect("there is no listener yet");
        let opening = Opening {
            local: CANARY,
            initial: 0xffff_ff80,
            window: 1000,
            options: Options::NONE,
            active: false,
        };
        let canary = End::open(&mut stand, opening);
        let which = input.byte();
        let some = |bit: u8| which >> bit & 1 == 1;
        let options = Options {
            mss: some(0).then_some(input.short()),
            window_shift: some(1).then_some(input.byte()),
            sack_permitted: some(2),
            timestamps: some(3).then_some(tcp::Timestamps { value: 1, echo: 0 }),
            ..Options::NONE
        };
        let local =
            if wishes(2) { SocketAddr::new(PEER6.into(), 4000) } else { SocketAddr::new(PEER.into(), 4000) };
        let opening = Opening {
            local,
            initial: input.long(),
            window: input.short(),
            options,
            active: choice & 32 != 0,
        };
        let peer = End::open(&mut stand, opening);
        if wishes(3) {
            let second = Duration::from_secs(1);
            let patience = (Some(KeepAlive::after(second * 5)), Some(second * 20));
            // Set the timeouts of the peer's session only, because the canary may be silent for longer.
            stand.board.host().set_timeouts(peer.stream, patience.0, patience.1).expect("it is open");
        }
        Scene { stand, peer, canary }
    }

    /// Handles the segments that the board has sent, and continues the canary's connection.
    fn look(&mut self) -> usize {
        let mut answers = 0;
        for completion in std::mem::take(&mut self.stand.completions) {
            match completion {
                Completion::Ended { stream, .. } => {
                    assert!(stream != self.canary.stream, "the canary's session is ended from outside");
                    if stream == self.peer.stream {
                        self.peer.live = false;
                    }
                }
                Completion::PeerFinished { stream } if stream == self.peer.stream => {
                    assert!(!self.peer.finished, "the peer finishes twice");
                    self.peer.finished = true;
                }
                // In this case, the attacker has opened another session.
                Completion::Accepted { stream, .. } => {
                    self.stand.board.host().abort(stream).expect("it was reported just now");
                    self.stand.drain();
                }
                _ => {}
            }
        }
        for packet in std::mem::take(&mut self.stand.sent) {
            let (ip, load) = check_sent(&packet);
            if ip.protocol != Some(protocol::TCP) {
                answers += 1;
                continue;
            }
            let port = u16::from_be_bytes([load[2], load[3]]);
            for end in [&mut self.peer, &mut self.canary] {
                if SocketAddr::new(ip.target, port) == end.local {
                    end.hear(load);
                }
            }
            let (header, used) = Header::read(load).expect("checked");
            answers += usize::from(header.sequence_bytes(load.len() - used) == 0);
        }
        self.peer.check_books(&mut self.stand);
        answers
    }

    /// Sends the canary's next bytes, from the first unacknowledged one on; its host reads them.
    fn sing(&mut self) {
        let Scene { stand, canary, .. } = self;
        let from = canary.acknowledged;
        canary.next = from;
        let mut header = canary.header();
        header.options = canary.stamped(stand);
        let payload = canary.payload(header.sequence, 24);
        canary.send(stand, &header, &[], &payload);
        canary.read(stand, 4096);
        self.look();
    }

    fn step(&mut self, what: u8, input: &mut Input<'_>) -> bool {
        let Scene { stand, peer, .. } = self;
        let mut is_packet = true;
        match what % 24 {
            // Send correct data, or retransmit a part of it.
            0..=3 => {
                let back = if what & 1 == 0 { 0 } else { u32::from(input.byte()) };
                let ahead = if what & 2 == 0 { 0 } else { u32::from(input.byte()) * 8 };
                let count = usize::from(input.byte()) * 6;
                let place = peer.next.saturating_sub(back).max(1) + ahead;
                let sequence = Sequence(peer.initial.wrapping_add(place));
                let header = Header { sequence, options: peer.stamped(stand), ..peer.header() };
                let payload = peer.payload(sequence, count);
                peer.send(stand, &header, &[], &payload);
                if ahead == 0 {
                    peer.next = peer.next.max(place + count as u32);
                }
            }
            4 => {
                peer.window = input.short();
                let header = Header { options: peer.stamped(stand), ..peer.header() };
                peer.send(stand, &header, &[], &[]);
            }
            // An arbitrary segment.
            5..=7 => {
                let mut header = peer.header();
                header.sequence += input.distance();
                header.acknowledgment += input.distance();
                header.flags = Flags(input.byte());
                header.window = input.short();
                header.urgent = if header.flags.has(Flags::URG) { input.short() } else { 0 };
                let mut raw: &[u8] = &[];
                match what % 24 {
                    5 => raw = input.take(usize::from(what / 24) * 4),
                    6 => {
                        let value = (stand.now.as_nanos() / 1_000_000) as u32;
                        let stamps = tcp::Timestamps {
                            value: value.wrapping_add(input.distance()),
                            echo: value.wrapping_add(input.distance()),
                        };
                        header.options.timestamps = Some(stamps);
                    }
                    _ => header.options = peer.stamped(stand),
                }
                for _ in 0..usize::from(what / 24) % 4 {
                    let left = Sequence(peer.board_initial.wrapping_add(peer.board_sent)) - input.distance();
                    header.options.sack.push(tcp::SackBlock { left, right: left + input.distance() });
                }
                let count = usize::from(input.short() % 1440);
                let payload = peer.payload(header.sequence, count);
                peer.send(stand, &header, raw, &payload);
            }
            8 => {
                peer.write(stand, usize::from(input.short() % 8192));
                is_packet = false;
            }
            9 => {
                peer.read(stand, usize::from(input.short() % 8192));
                is_packet = false;
            }
            10 if what / 24 % 4 == 3 => {
                // Mark the written data as urgent. This fails after the FIN.
                let _ = stand.board.host().send_urgent(peer.stream);
                stand.drain();
                is_packet = false;
            }
            10 => {
                // This fails if the stream has ended or was closed.
                let _ = stand.board.host().finish(peer.stream);
                stand.drain();
                is_packet = false;
            }
            11 if input.byte().is_multiple_of(4) => {
                let host = &mut stand.board.host();
                // This fails if the stream is already closed or aborted.
                let _ = if what & 1 == 0 { host.close(peer.stream) } else { host.abort(peer.stream) };
                peer.live &= what & 1 == 0;
                stand.drain();
                is_packet = false;
            }
            12 | 13 => {
                stand.pass(Duration::from_millis(u64::from(input.short() % 4096)));
                is_packet = false;
            }
            14 => {
                stand.tick();
                is_packet = false;
            }
            // The clock jumps: forward by hours, or back by a little.
            15 => {
                let hours = input.byte();
                if hours.is_multiple_of(16) {
                    stand.now += Duration::from_secs(u64::from(hours / 16) * 3600);
                }
                let then = stand.now;
                stand.now =
                    kiban_base::Instant::from_nanos(then.as_nanos().saturating_sub(u64::from(hours) << 20));
                stand.board.handle(kiban_board::Input::Timeout, stand.now);
                stand.drain();
                stand.now = then;
                is_packet = false;
            }
            16 => {
                let count = usize::from(input.byte());
                let mut packet = input.take(count).to_vec();
                craft::mend(&mut packet);
                // Send an arbitrary packet, unless its source happens to be the canary or the peer, because
                // the packet could then belong to one of their sessions.
                let theirs = |at: usize, address: &[u8]| packet.get(at..at + address.len()) == Some(address);
                let sources = [CANARY_ADDRESS.octets(), PEER.octets()];
                if !sources.iter().any(|source| theirs(12, source)) && !theirs(8, &PEER6.octets()) {
                    stand.packet(&packet);
                }
            }
            17 => self.complain(input),
            // Send correct data in another form: in fragments, in any order, with one duplicated; or after a
            // chain of extension headers.
            18 if what / 24 % 2 == 1 => {
                let count = usize::from(input.byte()) * 4;
                let header = Header { options: peer.stamped(stand), ..peer.header() };
                let payload = peer.payload(header.sequence, count);
                peer.name(&header, payload.len());
                let packet = craft::tcp((peer.local, peer.remote), &header, &[], &payload);
                if what / 24 % 4 == 1 {
                    let mut pieces = craft::fragments(&packet, 8 + usize::from(input.byte()) * 2);
                    let count = pieces.len();
                    pieces.swap(0, usize::from(input.byte()) % count);
                    pieces.push(pieces[0].clone());
                    for piece in pieces.iter().take(32) {
                        stand.packet(piece);
                    }
                    is_packet = false;
                } else if peer.local.is_ipv6() {
                    stand.packet(&craft::behind_options(&packet, usize::from(input.byte()) % 12));
                }
                peer.next = peer.next.max(peer.acknowledged);
            }
            // Flip a bit, which the checksum detects.
            18 => {
                let header = peer.header();
                let payload = peer.payload(header.sequence, 32);
                let mut packet = craft::tcp((peer.local, peer.remote), &header, &[], &payload);
                let bit = usize::from(input.short()) % (packet.len() * 8);
                packet[bit / 8] ^= 1 << (bit % 8);
                // No checksum covers the traffic class and flow label of IPv6, so the packet is still valid.
                if peer.local.is_ipv6() {
                    peer.name(&header, payload.len());
                }
                stand.packet(&packet);
            }
            19 | 20 => self.forge(what, input),
            21 => {
                let header =
                    Header { flags: Flags::ACK | Flags::FIN, options: peer.stamped(stand), ..peer.header() };
                peer.send(stand, &header, &[], &[]);
            }
            // Send a SYN from the peer itself, either repeated or new.
            22 => {
                let sequence = Sequence(peer.initial) + input.distance();
                let header = Header { flags: Flags::SYN, sequence, ..peer.header() };
                peer.send(stand, &header, &[], &[]);
            }
            _ => self.sing(),
        }
        is_packet
    }

    /// Send an ICMP error that quotes a segment of the board, or something similar to one (RFC 5927).
    fn complain(&mut self, input: &mut Input<'_>) {
        let Scene { stand, peer, canary } = self;
        let end = if input.byte().is_multiple_of(2) { peer } else { canary };
        let place = end.board_sent.wrapping_sub(input.distance());
        let mut quoted = Header { ..end.header() };
        (quoted.source_port, quoted.target_port) = (end.remote.port(), end.local.port());
        quoted.sequence = Sequence(end.board_initial.wrapping_add(place));
        // Quote a long packet if the ICMP error reports a small MTU.
        let long = [8, 1000, 1452][usize::from(input.byte()) % 3];
        let packet = craft::tcp((end.remote, end.local), &quoted, &[], &vec![0; long]);
        let kind = input.byte();
        match (end.local.ip(), end.remote.ip()) {
            (IpAddr::V6(local), IpAddr::V6(remote)) => {
                let header = match kind % 4 {
                    0 => icmpv6::Header::TooLong { mtu: u32::from(input.short()) },
                    1 => icmpv6::Header::Unreachable { code: input.byte() % 8 },
                    2 => icmpv6::Header::TimeExceeded { code: input.byte() % 2 },
                    _ => icmpv6::Header::ParameterProblem { code: input.byte() % 3, pointer: 40 },
                };
                stand.packet(&craft::icmpv6(local, remote, header, &packet[..48]));
            }
            (local, remote) => {
                let header = match kind % 4 {
                    0 => icmp::Header::Unreachable { code: 4, next_hop_mtu: input.short() },
                    1 => icmp::Header::Unreachable { code: input.byte() % 16, next_hop_mtu: 0 },
                    2 => icmp::Header::TimeExceeded { code: input.byte() % 2 },
                    _ => icmp::Header::ParameterProblem { code: 0, pointer: input.byte() },
                };
                stand.packet(&craft::icmp(local, remote, header, &packet[..28]));
            }
        }
    }

    /// Act as an off-path attacker, who knows the canary's ports and guesses everything else (RFC 5961).
    fn forge(&mut self, what: u8, input: &mut Input<'_>) {
        let Scene { stand, canary, .. } = self;
        canary.next = canary.acknowledged;
        let mut header = canary.header();
        let far = 1 << 20 | input.long() >> 2;
        header.acknowledgment += input.distance();
        header.window = input.short();
        let mut payload = Vec::new();
        match what / 24 % 3 {
            // Send a reset with any sequence number except exactly `rcv_nxt`.
            0 => {
                header.flags = Flags::RST | Flags(input.byte() & 0x18);
                header.sequence += 1 + far % 40_000;
            }
            1 => {
                header.flags = Flags::SYN | Flags(input.byte() & 0x10);
                header.sequence += input.long();
            }
            // Data outside the window.
            _ => {
                header.flags = Flags::ACK | Flags(input.byte() & 0x29);
                header.sequence += far;
                payload = vec![0xee; usize::from(input.byte())];
            }
        }
        stand.packet(&craft::tcp((canary.local, canary.remote), &header, &[], &payload));
    }
}

pub(crate) fn run(bytes: &[u8], features: &mut Features<'_>) {
    let mut input = Input::new(bytes);
    let mut scene = Scene::new(&mut input);
    let ends_by_close = input.byte() & 1 == 1;
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        let what = input.byte();
        let is_packet = scene.step(what, &mut input);
        let answers = scene.look();
        assert!(!is_packet || answers <= ANSWERS_MAX, "{answers} answers to one segment");
        scene.sing();
    }
    scene.stand.show(features);
    let Scene { mut stand, peer, canary } = scene;
    if let Ok(info) = stand.board.host().info(peer.stream) {
        features.show(info.state as u8);
    }
    // The host closes the peer's session; then the canary's session finishes.
    let host = &mut stand.board.host();
    let _ = if ends_by_close { host.close(peer.stream) } else { host.abort(peer.stream) };
    stand.drain();
    let mut scene = Scene { stand, peer, canary };
    for _ in 0..100 {
        scene.sing();
        if scene.canary.read > CANARY_BYTES {
            break;
        }
        scene.stand.pass(Duration::from_millis(100));
        scene.look();
    }
    assert!(scene.canary.read > CANARY_BYTES, "the canary was heard to {}", scene.canary.read);
    let Scene { mut stand, canary, .. } = scene;
    stand.board.host().abort(canary.stream).expect("the canary's stream is open");
    stand.drain();
    stand.finish();
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let start = |choice: u8, more: u8| -> Vec<u8> {
        vec![choice, more, 0x0f, 5, 0xb4, 7, 0xff, 0xff, 0xff, 0xf0, 0x20, 0, 0]
    };
    let stories: [&[u8]; 8] = [
        // An input with fragments, IP options, urgent data in both directions, and a small MTU.
        &[
            42, 200, 30, 1, 90, 100, 5, 8, 16, 0, 82, 17, 0, 0, 0, 2, 0, 2, 128, 5, 0, 0, 0, 0, 0x30, 1, 0,
            0, 50, 9, 31, 0, 14,
        ],
        // An input with data in both directions, read, acknowledged and finished by both sides.
        &[0, 100, 0, 200, 9, 8, 0, 8, 4, 0, 4, 0x20, 0, 21, 10, 4, 0x20, 0, 12, 1, 0, 14],
        // An input in which the host writes while the window is closed, so that probes are sent.
        &[4, 0, 0, 8, 8, 0, 14, 14, 14, 4, 0, 1, 14, 4, 0x20, 0],
        // An input with out-of-order data, followed by the missing part.
        &[2, 50, 20, 2, 90, 20, 0, 200, 0, 200, 9, 31, 0],
        // Segments of any kind.
        &[
            5, 0, 0, 0, 0, 4, 0, 0, 0, 0, 6, 0, 0, 2, 9, 0x10, 0, 9, 0, 0, 0, 0, 0, 50, 31, 0, 0, 3, 7, 0x12,
            1, 1, 0, 9,
        ],
        // An input with losses reported by SACK blocks, and a retransmission timeout.
        &[8, 31, 0, 30, 0, 0, 2, 9, 0x10, 0x20, 0, 3, 40, 2, 10, 0, 0, 14, 14, 4, 0x20, 0],
        // An input with off-path attacks on the canary, ICMP errors and flipped bits.
        &[
            19, 1, 2, 3, 4, 0, 0, 0, 9, 4, 43, 1, 2, 3, 4, 0, 0, 0, 9, 4, 17, 0, 0, 0, 0, 2, 18, 0, 77, 22,
            0, 0,
        ],
        // An input in which the clock jumps and the host closes.
        &[0, 9, 15, 32, 15, 3, 11, 0, 0, 40, 14, 14, 35, 4],
    ];
    let mut seeds = Vec::new();
    for choice in [0, 1, 2, 3, 32, 24] {
        for more in [0, 3, 4, 15] {
            seeds.extend(stories.map(|story| [&start(choice, more), story].concat()));
        }
    }
    seeds
}
