//! A participant in an RTP session: its own stream, the sources that it hears, and its reports.
//!
//! Members      the participant and every source that is valid or has sent RTCP. A member that has not been
//!              heard for five intervals has left; one that has not sent RTP for two is no sender (§6.3.5).
//! Round trip   the other end's report block says how long it kept our last sender report (§6.4.1). The time
//!              since that report, minus the delay, is a round trip, measured with our clock alone.
//! Goodbye      sent at once, unless there are more than 50 members: then it waits its turn (§6.3.7).

use super::interval::{Interval, Members};
use super::source::{Source, Verdict, units};
use crate::wire::rtcp::{self, CNAME, COUNT_MAX, Compound, Packet, ReportBlock, Reports, SenderInfo};
use crate::wire::rtp;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;
use kiban_base::{Instant, Malformed};

/// Intervals without a packet after which a member has left.
const MEMBER_INTERVALS: u32 = 5;
/// Intervals without RTP after which a member is no sender.
const SENDER_INTERVALS: u32 = 2;
/// Members beyond which a goodbye waits its turn.
const BYE_MEMBERS_MAX: u32 = 50;
/// The headers of UDP and IPv4, which count as part of a compound packet (§6.2).
const UDP_IP_BYTES: usize = 28;
/// The probable length of a compound packet, before one was sent.
const EXPECTED_BYTES: usize = 100;
/// The longest canonical name that is kept, bytes.
const CNAME_BYTES_MAX: usize = 64;

kiban_base::counters! {
    /// Counters of a session.
    pub struct Counters {
        /// RTCP datagrams that are malformed.
        malformed,
        /// Packets with our own SSRC: a collision, or a loop (§8.2).
        collisions,
        /// Packets from sources beyond the limit.
        sources_beyond_max,
        /// Compound RTCP packets received.
        reports_in,
        /// Compound RTCP packets sent.
        reports_out,
    }
}

/// The configuration of a participant.
#[derive(Clone, Debug)]
pub struct Config {
    /// Our synchronisation source, a random number.
    pub ssrc: u32,
    /// Our canonical name, at most 255 bytes.
    pub cname: Vec<u8>,
    /// The frequency of the payload's clock, Hz.
    pub clock_hz: u32,
    /// The bandwidth of RTCP, bytes per second: usually 5 % of the session's.
    pub rtcp_bandwidth: f64,
    /// The NTP timestamp of [`Instant::ZERO`].
    pub ntp_at_zero: u64,
    /// The maximum number of sources.
    pub sources_max: usize,
}

impl Default for Config {
    /// A clock of 90 kHz, RTCP at 5 % of 1 Mbit/s, and at most 64 sources.
    fn default() -> Config {
        Config {
            ssrc: 0,
            cname: Vec::new(),
            clock_hz: 90_000,
            rtcp_bandwidth: 6250.0,
            ntp_at_zero: 0,
            sources_max: 64,
        }
    }
}

/// What the other end reports about our stream.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PeerReport {
    /// Who reports.
    pub ssrc: u32,
    /// The report.
    pub block: ReportBlock,
    /// The round trip, if it could be measured.
    pub round_trip: Option<Duration>,
}

struct Peer {
    source: Source,
    cname: Vec<u8>,
    heard_at: Instant,
    sent_rtp_at: Option<Instant>,
    /// Whether it has sent RTCP.
    has_reported: bool,
    has_left: bool,
    /// Whether RTP has arrived since our last report.
    is_news: bool,
    about_us: Option<PeerReport>,
    /// The sender's own account, from its last report.
    sent: Option<SenderInfo>,
}

impl Peer {
    fn is_member(&self) -> bool {
        !self.has_left && (self.has_reported || self.source.is_valid())
    }
}

/// Read access to a source.
#[derive(Clone, Copy, Debug)]
pub struct SourceView<'a> {
    /// Its SSRC.
    pub ssrc: u32,
    /// Its canonical name; empty if it is not known.
    pub cname: &'a [u8],
    /// Its stream.
    pub source: &'a Source,
    /// Whether it has said goodbye or has fallen silent.
    pub has_left: bool,
    /// Packets and octets that it has sent, by its own account.
    pub sent: Option<SenderInfo>,
    /// What it reports about our stream.
    pub about_us: Option<PeerReport>,
}

/// A packet that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Its header.
    pub header: rtp::Header<'a>,
    /// Its payload.
    pub payload: &'a [u8],
    /// Whether it is part of its source's stream; `None` if the source is beyond the limit, or is ourselves.
    pub verdict: Option<Verdict>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Active,
    /// A goodbye is due; the number of members that say goodbye too.
    Leaving(u32),
    Left,
}

/// A participant in a session.
pub struct Session {
    config: Config,
    peers: BTreeMap<u32, Peer>,
    interval: Interval,
    sequence: u16,
    sent: SenderInfo,
    sent_rtp_at: Option<Instant>,
    state: State,
    counters: Counters,
}

impl core::fmt::Debug for Session {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Session({:#010x}, {} sources)", self.config.ssrc, self.peers.len())
    }
}

impl Session {
    /// Joins a session. `sequence` is the first sequence number of our stream and `unit` a number from 0 to
    /// 1, both random.
    pub fn new(config: Config, sequence: u16, unit: f64, now: Instant) -> Session {
        let alone = Members { all: 1, senders: 0, is_sender: false };
        let interval = Interval::new(config.rtcp_bandwidth, EXPECTED_BYTES, now, alone, unit);
        let sent = SenderInfo { ntp: 0, rtp_timestamp: 0, packets: 0, octets: 0 };
        Session {
            config,
            peers: BTreeMap::new(),
            interval,
            sequence,
            sent,
            sent_rtp_at: None,
            state: State::Active,
            counters: Counters::default(),
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Iterates over the sources that were heard.
    pub fn sources(&self) -> impl Iterator<Item = SourceView<'_>> {
        self.peers.iter().map(|(ssrc, peer)| SourceView {
            ssrc: *ssrc,
            cname: &peer.cname,
            source: &peer.source,
            has_left: peer.has_left,
            sent: peer.sent,
            about_us: peer.about_us,
        })
    }

    /// Returns the packets and octets of our own stream.
    pub fn sent(&self) -> SenderInfo {
        self.sent
    }

    /// Returns a point in time in units of the payload's clock, which is the timestamp of a packet whose
    /// payload was sampled then.
    pub fn timestamp(&self, at: Instant) -> u32 {
        units(at, self.config.clock_hz)
    }

    fn ntp(&self, at: Instant) -> u64 {
        let fraction = (u128::from(at.as_nanos()) << 32) / 1_000_000_000;
        self.config.ntp_at_zero.wrapping_add(fraction as u64)
    }

    /// Writes the header of our stream's next packet at the front of `packet`, and counts it as sent.
    /// Returns the length of the header.
    ///
    /// # Panics
    /// If `packet` is shorter than the header.
    pub fn stamp(
        &mut self,
        packet: &mut [u8],
        payload_type: u8,
        marker: bool,
        sampled_at: Instant,
        now: Instant,
    ) -> usize {
        let header = rtp::Header {
            is_padded: false,
            marker,
            payload_type,
            sequence: self.sequence,
            timestamp: self.timestamp(sampled_at),
            ssrc: self.config.ssrc,
            csrcs: &[],
            extension: None,
        };
        let length = header.write(packet);
        self.sequence = self.sequence.wrapping_add(1);
        self.sent.packets = self.sent.packets.wrapping_add(1);
        self.sent.octets = self.sent.octets.wrapping_add((packet.len() - length) as u32);
        self.sent_rtp_at = Some(now);
        length
    }

    /// Returns the entry of a source, which is created if there is room.
    fn peer(&mut self, ssrc: u32, now: Instant) -> Option<&mut Peer> {
        if ssrc == self.config.ssrc {
            self.counters.collisions += 1;
            return None;
        }
        if !self.peers.contains_key(&ssrc) && self.peers.len() >= self.config.sources_max {
            self.counters.sources_beyond_max += 1;
            return None;
        }
        let clock_hz = self.config.clock_hz;
        let peer = self.peers.entry(ssrc).or_insert_with(|| Peer {
            source: Source::new(ssrc, clock_hz),
            cname: Vec::new(),
            heard_at: now,
            sent_rtp_at: None,
            has_reported: false,
            has_left: false,
            is_news: false,
            about_us: None,
            sent: None,
        });
        peer.heard_at = now;
        Some(peer)
    }

    /// Handles an RTP packet.
    ///
    /// # Errors
    /// The packet is malformed.
    pub fn on_rtp<'a>(&mut self, bytes: &'a [u8], now: Instant) -> Result<Arrival<'a>, Malformed> {
        let (header, used) = rtp::Header::read(bytes)?;
        let payload = header.payload(&bytes[used..]);
        let verdict = self.peer(header.ssrc, now).map(|peer| {
            peer.sent_rtp_at = Some(now);
            (peer.is_news, peer.has_left) = (true, false);
            peer.source.on_packet(header.sequence, header.timestamp, now)
        });
        Ok(Arrival { header, payload, verdict })
    }

    /// Handles a compound RTCP packet.
    ///
    /// # Errors
    /// The packet is malformed; nothing of it was used.
    pub fn on_rtcp(&mut self, bytes: &[u8], now: Instant) -> Result<(), Malformed> {
        let compound = Compound::read(bytes).inspect_err(|_| self.counters.malformed += 1)?;
        self.counters.reports_in += 1;
        self.interval.on_packet(bytes.len() + UDP_IP_BYTES);
        for packet in compound.iter() {
            match packet {
                Packet::SenderReport { ssrc, info, reports } => {
                    if let Some(peer) = self.peer(ssrc, now) {
                        peer.source.on_sender_report(info.ntp, now);
                        peer.sent = Some(info);
                    }
                    self.on_reports(ssrc, reports, now);
                }
                Packet::ReceiverReport { ssrc, reports } => self.on_reports(ssrc, reports, now),
                Packet::SourceDescription(chunks) => {
                    for chunk in chunks.iter() {
                        let Some(name) = chunk.item(CNAME) else { continue };
                        if let Some(peer) = self.peer(chunk.ssrc, now) {
                            peer.cname = name[..name.len().min(CNAME_BYTES_MAX)].to_vec();
                        }
                    }
                }
                Packet::Bye(goodbye) => {
                    for ssrc in goodbye.ssrcs() {
                        // An unknown source need not be remembered because it leaves.
                        if let Some(peer) = self.peers.get_mut(&ssrc) {
                            peer.has_left = true;
                        }
                        if let State::Leaving(count) = &mut self.state {
                            *count += 1;
                        }
                    }
                    self.interval.on_departure(self.members(), now);
                }
                Packet::Other { .. } => {}
            }
        }
        Ok(())
    }

    fn on_reports(&mut self, from: u32, reports: Reports<'_>, now: Instant) {
        let (ssrc, ntp) = (self.config.ssrc, self.ntp(now));
        let Some(peer) = self.peer(from, now) else { return };
        peer.has_reported = true;
        if let Some(block) = reports.iter().find(|block| block.ssrc == ssrc) {
            let waited = ((ntp >> 16) as u32)
                .wrapping_sub(block.last_report)
                .wrapping_sub(block.delay_since_last_report);
            // A negative result means that the report is wrong, or that the clocks' resolutions differ.
            let is_measured = block.last_report != 0 && (waited as i32) >= 0;
            let round_trip =
                is_measured.then(|| Duration::from_nanos((u64::from(waited) * 1_000_000_000) >> 16));
            peer.about_us = Some(PeerReport { ssrc: from, block, round_trip });
        }
    }

    /// Returns the members at present.
    pub fn members(&self) -> Members {
        if let State::Leaving(count) = self.state {
            return Members { all: 1 + count, senders: 0, is_sender: false };
        }
        let members = self.peers.values().filter(|peer| peer.is_member());
        let senders = members.clone().filter(|peer| peer.sent_rtp_at.is_some());
        let is_sender = self.sent_rtp_at.is_some();
        Members {
            all: 1 + members.count() as u32,
            senders: senders.count() as u32 + u32::from(is_sender),
            is_sender,
        }
    }

    /// Removes members that have fallen silent (§6.3.5).
    fn expire(&mut self, now: Instant) {
        let interval = self.interval.calculated(self.members());
        let is_over = |at: Instant, intervals: u32| now.since(at) > interval * intervals;
        for peer in self.peers.values_mut() {
            peer.has_left |= is_over(peer.heard_at, MEMBER_INTERVALS);
            peer.sent_rtp_at = peer.sent_rtp_at.filter(|at| !is_over(*at, SENDER_INTERVALS));
        }
        self.sent_rtp_at = self.sent_rtp_at.filter(|at| !is_over(*at, SENDER_INTERVALS));
    }

    /// Returns when [`Session::poll`] must be called.
    pub fn deadline(&self) -> Instant {
        if self.state == State::Left { Instant::NEVER } else { self.interval.deadline() }
    }

    /// Returns a compound RTCP packet if one is due. `unit` draws a random number from 0 to 1.
    pub fn poll(&mut self, mut unit: impl FnMut() -> f64, now: Instant) -> Option<Vec<u8>> {
        if self.deadline() > now {
            return None;
        }
        self.expire(now);
        if !self.interval.on_timer(self.members(), unit(), now) {
            return None;
        }
        let packet = if self.state == State::Active { self.report(now) } else { self.goodbye(now) };
        self.counters.reports_out += 1;
        self.interval.on_sent(packet.len() + UDP_IP_BYTES, self.members(), unit(), now);
        Some(packet)
    }

    /// Leaves the session. Returns the goodbye to send; `None` if it must wait its turn, and
    /// [`Session::poll`] returns it.
    pub fn leave(&mut self, unit: f64, now: Instant) -> Option<Vec<u8>> {
        if self.state != State::Active {
            return None;
        }
        // A participant that has sent neither RTP nor RTCP leaves silently (§6.3.7).
        if self.sent.packets == 0 && self.counters.reports_out == 0 {
            self.state = State::Left;
            return None;
        }
        if self.members().all <= BYE_MEMBERS_MAX {
            return Some(self.goodbye(now));
        }
        self.state = State::Leaving(0);
        let bandwidth = self.config.rtcp_bandwidth;
        self.interval = Interval::new(bandwidth, EXPECTED_BYTES, now, self.members(), unit);
        None
    }

    /// Returns a report about the sources heard since the last one, ours being first.
    fn report(&mut self, now: Instant) -> Vec<u8> {
        let ssrc = self.config.ssrc;
        let ntp = self.ntp(now);
        let mut blocks = Vec::new();
        let news = self.peers.values_mut().filter(|peer| peer.is_news && peer.source.is_valid());
        // Sources beyond the first 31 have their turn in the next report.
        for peer in news.take(COUNT_MAX) {
            blocks.extend_from_slice(&peer.source.report(now).bytes());
            peer.is_news = false;
        }
        let reports = Reports::of(&blocks);
        let mut datagram = Vec::new();
        if self.sent_rtp_at.is_some() {
            let info = SenderInfo { ntp, rtp_timestamp: self.timestamp(now), ..self.sent };
            Packet::SenderReport { ssrc, info, reports }.append(&mut datagram);
        } else {
            Packet::ReceiverReport { ssrc, reports }.append(&mut datagram);
        }
        rtcp::append_cname(ssrc, &self.config.cname, &mut datagram);
        datagram
    }

    fn goodbye(&mut self, now: Instant) -> Vec<u8> {
        let mut datagram = self.report(now);
        rtcp::append_bye(self.config.ssrc, &mut datagram);
        self.state = State::Left;
        datagram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn session(ssrc: u32) -> Session {
        let cname = alloc::format!("{ssrc}@test").into_bytes();
        Session::new(Config { ssrc, cname, clock_hz: 8000, ..Config::default() }, 100, 0.5, at(0))
    }

    fn packet(from: &mut Session, millis: u64) -> Vec<u8> {
        let mut packet = alloc::vec![0; 12 + 160];
        from.stamp(&mut packet, 0, false, at(millis), at(millis));
        packet
    }

    /// Sends a packet every 20 ms for `seconds`, with RTCP in both directions, over a path of 30 ms one way.
    fn exchange(sender: &mut Session, receiver: &mut Session, seconds: u64) {
        let mut in_flight: Vec<(u64, bool, Vec<u8>)> = Vec::new();
        for now in 0..seconds * 1000 {
            let arrived: Vec<_> = in_flight.extract_if(.., |(due, ..)| *due == now).collect();
            for (_, is_back, bytes) in arrived {
                let to = if is_back { &mut *sender } else { &mut *receiver };
                if rtcp::is_rtcp(&bytes) {
                    to.on_rtcp(&bytes, at(now)).expect("valid");
                } else {
                    to.on_rtp(&bytes, at(now)).expect("valid");
                }
            }
            if now % 20 == 0 {
                in_flight.push((now + 30, false, packet(sender, now)));
            }
            in_flight.extend(sender.poll(|| 0.5, at(now)).map(|bytes| (now + 30, false, bytes)));
            in_flight.extend(receiver.poll(|| 0.5, at(now)).map(|bytes| (now + 30, true, bytes)));
        }
    }

    #[test]
    fn sender_and_receiver_exchange_reports_and_measure_the_round_trip() {
        let (mut sender, mut receiver) = (session(1), session(2));
        exchange(&mut sender, &mut receiver, 20);
        let view = receiver.sources().next().expect("the sender");
        assert_eq!((view.ssrc, view.cname), (1, &b"1@test"[..]));
        assert_eq!((view.source.lost(), view.source.jitter()), (0, 0));
        assert!(view.sent.is_some_and(|sent| sent.packets > 100 && sent.octets == 160 * sent.packets));
        let about = sender.sources().next().and_then(|view| view.about_us).expect("the receiver reports");
        let round_trip = about.round_trip.expect("it has heard a sender report").as_micros();
        assert!((59_900..=60_100).contains(&round_trip), "{round_trip}");
        assert_eq!((about.block.ssrc, about.block.lost), (1, 0));
        assert_eq!(sender.members(), Members { all: 2, senders: 1, is_sender: true });
        // The minimum interval of 5 s, divided by 1.218, and less at the beginning.
        assert!((4..=6).contains(&sender.counters().reports_out), "{:?}", sender.counters());
    }

    #[test]
    fn a_goodbye_is_sent_at_once_and_the_member_leaves() {
        let (mut sender, mut receiver) = (session(1), session(2));
        exchange(&mut sender, &mut receiver, 10);
        let bye = sender.leave(0.5, at(10_000)).expect("two members do not wait");
        assert_eq!(sender.deadline(), Instant::NEVER);
        let before = receiver.deadline();
        receiver.on_rtcp(&bye, at(10_030)).expect("valid");
        assert!(receiver.sources().all(|view| view.has_left));
        assert!(receiver.deadline() < before, "the next report comes earlier");
        // A participant that has sent nothing leaves silently.
        assert_eq!(session(3).leave(0.5, at(0)), None);
    }

    #[test]
    fn in_a_large_session_a_goodbye_waits_its_turn() {
        let mut own = session(1);
        for ssrc in 2..62 {
            let mut other = session(ssrc);
            packet(&mut other, 0);
            let report = other.leave(0.5, at(0)).expect("a small session");
            // A report without the goodbye at its end.
            own.on_rtcp(&report[..report.len() - 8], at(0)).expect("valid");
        }
        assert_eq!(own.members().all, 61);
        packet(&mut own, 0);
        assert_eq!(own.leave(0.5, at(10)), None);
        let due = own.deadline();
        assert!(due > at(10));
        let bye = own.poll(|| 0.5, due).expect("nobody else leaves");
        let last = Compound::read(&bye).expect("valid").iter().last();
        assert!(matches!(last, Some(Packet::Bye(goodbye)) if goodbye.ssrcs().eq([1])));
    }

    #[test]
    fn silent_members_expire_and_sources_are_limited() {
        let mut own = session(1);
        let mut other = session(2);
        for count in 0..3 {
            own.on_rtp(&packet(&mut other, 20 * count), at(20 * count)).expect("valid");
        }
        assert_eq!(own.members(), Members { all: 2, senders: 1, is_sender: false });
        // Five intervals of 5 s later, the other has left.
        let mut now = own.deadline();
        for _ in 0..10 {
            own.poll(|| 0.5, now);
            now = own.deadline();
        }
        assert_eq!(own.members(), Members { all: 1, senders: 0, is_sender: false });
        let mut limited = session(1);
        limited.config.sources_max = 1;
        for ssrc in [2, 3, 1] {
            let bytes = packet(&mut session(ssrc), 0);
            assert_eq!(limited.on_rtp(&bytes, at(0)).expect("valid").verdict.is_some(), ssrc == 2);
        }
        assert_eq!((limited.counters().sources_beyond_max, limited.counters().collisions), (1, 1));
        assert!(limited.on_rtcp(&[0x80, 202, 0, 0], at(0)).is_err());
        assert_eq!(limited.counters().malformed, 1);
    }
}
