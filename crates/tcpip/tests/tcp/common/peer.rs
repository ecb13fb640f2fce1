//! One station, and a peer that the test drives segment by segment: for floods, memory, and calls that packet
//! scripts (run by `crates/talk`) do not have.
//!
//! Numbers are relative: ours to our initial sequence number, the peer's to [`PEER`].

use super::station::{Frame, Sizes, Station, frames_of};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use kiban_base::{Instant, Page};
use kiban_tcpip::tcp::{Config, Indication, Refusal, SessionId, State};
use kiban_tcpip::wire::tcp::{Flags, Header, Options, Sequence};

/// The peer's initial sequence number: its stream wraps around the sequence space early.
pub(crate) const PEER: Sequence = Sequence(0xffff_f000);
pub(crate) const PEER_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));
pub(crate) const PEER_PORT: u16 = 5000;
pub(crate) const PORT: u16 = 80;

pub(crate) struct Peer {
    pub(crate) station: Station,
    pub(crate) now: Instant,
    pub(crate) session: Option<SessionId>,
    /// Our initial sequence number, learned from our SYN.
    pub(crate) initial: Sequence,
    /// Whether we have seen our own SYN, from which `initial` was learned.
    knows_initial: bool,
    /// The indications, in words.
    pub(crate) up: Vec<String>,
    pub(crate) got: Vec<u8>,
    /// Number of segments that the port takes in one settle.
    pub(crate) room: usize,
    /// Whether delivered data is consumed at once.
    pub(crate) reads: bool,
    pub(crate) frames: Vec<Frame>,
    pub(crate) peer_port: u16,
    page: Option<Page>,
}

/// Returns a header from the peer, with relative numbers.
pub(crate) fn seg(flags: Flags, sequence: u32, acknowledgment: u32, window: u16) -> Header {
    Header {
        source_port: PEER_PORT,
        target_port: PORT,
        sequence: Sequence(sequence),
        acknowledgment: Sequence(acknowledgment),
        flags,
        window,
        urgent: 0,
        options: Options::NONE,
    }
}

pub(crate) const ACK: Flags = Flags::ACK;
pub(crate) const SYN: Flags = Flags::SYN;
pub(crate) const RST: Flags = Flags::RST;
pub(crate) const FIN: Flags = Flags::FIN;

impl Peer {
    pub(crate) fn new(config: Config) -> Peer {
        Peer {
            station: Station::new(1, config, Sizes::default(), 1),
            now: super::at_ms(1000),
            session: None,
            initial: Sequence(0),
            knows_initial: false,
            up: Vec::new(),
            got: Vec::new(),
            room: 1000,
            reads: true,
            frames: Vec::new(),
            peer_port: PEER_PORT,
            page: None,
        }
    }

    pub(crate) fn local(&self) -> SocketAddr {
        SocketAddr::new(self.station.address, PORT)
    }

    pub(crate) fn remote(&self) -> SocketAddr {
        SocketAddr::new(PEER_ADDRESS, self.peer_port)
    }

    pub(crate) fn listening(config: Config) -> Peer {
        let mut talk = Peer::new(config);
        talk.station.tcp.listen(talk.local()).expect("nobody listens yet");
        talk
    }

    pub(crate) fn opening(config: Config) -> Peer {
        let mut talk = Peer::new(config);
        let (local, remote, now) = (talk.local(), talk.remote(), talk.now);
        talk.session = talk.station.with(now, |tcp, cx, _| tcp.open(local, remote, 0, cx)).ok();
        talk.settle();
        talk
    }

    /// Returns a session that we accepted. The peer's window is 60,000 bytes, its MSS 1000, without window
    /// scaling.
    pub(crate) fn established(config: Config) -> Peer {
        Peer::established_with(config, 60_000, Options { mss: Some(1000), ..Options::NONE })
    }

    pub(crate) fn established_with(config: Config, window: u16, options: Options) -> Peer {
        let mut talk = Peer::listening(config);
        talk.hear(Header { options, ..seg(SYN, 0, 0, window) }, b"");
        talk.hear(seg(ACK, 1, 1, window), b"");
        assert_eq!(talk.state(), Some(State::Established));
        talk.frames.clear();
        talk.up.clear();
        talk
    }

    pub(crate) fn state(&self) -> Option<State> {
        self.session.and_then(|session| self.station.tcp.info(session)).map(|info| info.state)
    }

    pub(crate) fn id(&self) -> SessionId {
        self.session.expect("there is a session")
    }

    pub(crate) fn settle(&mut self) {
        for _ in 0..100 {
            while let Some(indication) = self.station.out.up.pop_front() {
                self.on_indication(indication);
            }
            let (now, room) = (self.now, self.room);
            self.station.settle(room, now);
            while let Some(segment) = self.station.out.down.pop_front() {
                for frame in frames_of(segment) {
                    let (header, _) = frame.header();
                    if header.flags.has(Flags::SYN) && !self.knows_initial {
                        (self.initial, self.knows_initial) = (header.sequence, true);
                    }
                    self.frames.push(frame);
                }
            }
            if self.station.out.up.is_empty() {
                return;
            }
        }
        panic!("the station does not come to rest");
    }

    fn on_indication(&mut self, indication: Indication) {
        let word = match indication {
            Indication::Opened { .. } => "opened".into(),
            Indication::Accepted { session, .. } => {
                self.session.get_or_insert(session);
                "accepted".into()
            }
            Indication::Data { session, pdu } => {
                let bytes: Vec<u8> = pdu.body().iter().flat_map(|slice| slice.bytes()).copied().collect();
                self.on_bytes(session, &bytes)
            }
            Indication::Piece { session, slice } => self.on_bytes(session, slice.bytes()),
            Indication::Sent { bytes, .. } => format!("sent {bytes}"),
            Indication::Writable { .. } => "writable".into(),
            Indication::Starved { .. } => "starved".into(),
            Indication::Urgent { bytes, .. } => format!("urgent {bytes}"),
            Indication::NegativeAdvice { target, .. } => format!("doubtful {target}"),
            Indication::Finished { .. } => "finished".into(),
            Indication::Gone { reason, .. } => format!("gone: {reason:?}"),
        };
        self.up.push(word);
    }

    fn on_bytes(&mut self, session: SessionId, bytes: &[u8]) -> String {
        self.got.extend_from_slice(bytes);
        if self.reads {
            self.consume_of(session, bytes.len());
        }
        format!("data {}", bytes.len())
    }

    fn consume_of(&mut self, session: SessionId, count: usize) {
        let now = self.now;
        self.station.with(now, |tcp, cx, out| tcp.consume(session, count as u32, cx, out));
    }

    pub(crate) fn consume(&mut self, count: usize) {
        self.consume_of(self.id(), count);
        self.settle();
    }

    /// Delivers a segment from the peer, with relative numbers, and settles.
    pub(crate) fn hear(&mut self, header: Header, payload: &[u8]) {
        self.arrive(header, payload);
        self.settle();
    }

    /// Delivers a segment without settling: the burst continues.
    pub(crate) fn arrive(&mut self, header: Header, payload: &[u8]) {
        let acknowledgment = match header.flags.has(Flags::ACK) {
            true => self.initial + header.acknowledgment.0,
            false => header.acknowledgment,
        };
        let source_port = if header.source_port == PEER_PORT { self.peer_port } else { header.source_port };
        let header = Header { source_port, sequence: PEER + header.sequence.0, acknowledgment, ..header };
        let frame = Frame::of(PEER_ADDRESS, self.station.address, &header, payload);
        assert!(self.station.arrive(&frame, self.now), "there is memory");
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let count = self.station.write(self.id(), &mut self.page, rest).expect("within room");
            assert!(count > 0, "there is room for what the test writes");
            rest = &rest[count..];
        }
        self.settle();
    }

    pub(crate) fn finish(&mut self) -> Result<(), Refusal> {
        let result = self.station.tcp.finish(self.id());
        self.page = None;
        self.settle();
        result
    }

    pub(crate) fn abort(&mut self) {
        let (id, now) = (self.id(), self.now);
        self.station.with(now, |tcp, cx, out| tcp.abort(id, cx, out)).expect("a live session");
        self.settle();
    }

    /// Advances the time, handling the deadlines on the way.
    pub(crate) fn pass(&mut self, length: Duration) {
        let until = self.now + length;
        for _ in 0..100_000 {
            let deadline = self.station.tcp.deadline();
            if deadline > until {
                self.now = until;
                return;
            }
            // A deadline may be early, or even in the past, if the timer wheel has not been advanced for a
            // long time.
            self.now = self.now.max(deadline);
            self.settle();
        }
        panic!("deadlines without end");
    }

    /// Returns the segments sent since the last call, in words: flags, first byte, length, acknowledgment,
    /// window.
    pub(crate) fn said(&mut self) -> Vec<String> {
        let frames = core::mem::take(&mut self.frames);
        frames.iter().map(|frame| self.in_words(frame)).collect()
    }

    fn in_words(&self, frame: &Frame) -> String {
        let (header, payload) = frame.header();
        let sequence = self.initial.distance(header.sequence) as i32;
        let mut words = format!("{} {sequence}+{}", header.flags, payload.len());
        if header.flags.has(Flags::ACK) {
            words += &format!(" ack {}", PEER.distance(header.acknowledgment) as i32);
        }
        if header.flags.has_any(Flags::ACK | Flags::SYN) {
            words += &format!(" win {}", header.window);
        }
        if let Some(mss) = header.options.mss {
            words += &format!(" mss {mss}");
        }
        if let Some(shift) = header.options.window_shift {
            words += &format!(" shift {shift}");
        }
        if header.options.sack_permitted {
            words += " sack-permitted";
        }
        if let Some(stamps) = header.options.timestamps {
            words += &format!(" echo {}", stamps.echo);
        }
        if header.flags.has(Flags::URG) {
            words += &format!(" urgent {}", header.urgent);
        }
        for block in header.options.sack.as_slice() {
            let place = |edge| PEER.distance(edge) as i32;
            words += &format!(" sack {}..{}", place(block.left), place(block.right));
        }
        words
    }

    /// Returns the indications since the last call.
    pub(crate) fn told(&mut self) -> Vec<String> {
        core::mem::take(&mut self.up)
    }

    /// Like `said`, without the window, which most tests ignore.
    pub(crate) fn said_briefly(&mut self) -> Vec<String> {
        let brief = |words: &String| words.split(" win").next().expect("a first part").to_string();
        self.said().iter().map(brief).collect()
    }

    /// Checks that all memory is free and no session is left.
    pub(crate) fn check_home(&mut self) {
        self.page = None;
        assert_eq!(self.station.tcp.sessions(), 0, "the table is empty");
        assert!(self.station.memory.is_all_free(), "memory has come home");
        assert!(!self.station.tcp.has_work(0));
    }
}

/// Returns a byte pattern that differs at each position.
pub(crate) fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|n| (n % 251) as u8).collect()
}
