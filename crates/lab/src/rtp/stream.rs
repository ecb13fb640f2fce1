//! A stream to be sent: packets of equal length at equal intervals.

use kiban_base::Instant;
use kiban_tcpip::rtp::{Config, Session};
use kiban_tcpip::wire::rtp::HEADER_BYTES;
use std::time::Duration;

/// RTCP's part of a session's bandwidth (RFC 3550 §6.2).
const RTCP_PART: f64 = 0.05;
/// The headers of UDP and IPv4.
const UDP_IP_BYTES: usize = 28;

/// A stream.
#[derive(Clone, PartialEq, Debug)]
pub struct Stream {
    /// The payload type.
    pub payload_type: u8,
    /// The frequency of the payload's clock, Hz.
    pub clock_hz: u32,
    /// Bytes of payload in a packet.
    pub payload_bytes: usize,
    /// The time between two packets.
    pub interval: Duration,
}

impl Default for Stream {
    /// PCMU (RFC 3551): 8 kHz, 20 ms in each packet.
    fn default() -> Stream {
        Stream { payload_type: 0, clock_hz: 8000, payload_bytes: 160, interval: Duration::from_millis(20) }
    }
}

impl Stream {
    /// Returns the bandwidth of RTCP for a session with this number of such streams, bytes per second.
    pub fn rtcp_bandwidth(&self, streams: usize) -> f64 {
        let bytes = (self.payload_bytes + HEADER_BYTES + UDP_IP_BYTES) as f64;
        RTCP_PART * streams as f64 * bytes / self.interval.as_secs_f64().max(1e-6)
    }
}

/// A sender: its session, and when its next packet is due.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) session: Session,
    stream: Stream,
    begin: Instant,
    count: u64,
    packets: u64,
}

impl Sender {
    /// Creates a sender of `packets` packets, the first of which is due at `begin`.
    pub(super) fn new(stream: &Stream, session: Session, begin: Instant, packets: u64) -> Sender {
        Sender { session, stream: stream.clone(), begin, count: 0, packets }
    }

    /// Creates the session of a sender.
    pub(super) fn session(
        stream: &Stream,
        streams: usize,
        config: Config,
        random: u64,
        now: Instant,
    ) -> Session {
        let rtcp_bandwidth = stream.rtcp_bandwidth(streams);
        let config = Config { clock_hz: stream.clock_hz, rtcp_bandwidth, ..config };
        Session::new(config, random as u16, (random >> 16) as f64 / (1u64 << 48) as f64, now)
    }

    /// Returns when the next packet is due; `None` if all were sent.
    pub(super) fn due(&self) -> Option<Instant> {
        let offset = self.stream.interval.checked_mul(u32::try_from(self.count).ok()?)?;
        (self.count < self.packets).then(|| self.begin + offset)
    }

    /// Returns the next packet. Its timestamp is the time at which it was due, so that a late sender shows as
    /// jitter, as a late packet does.
    pub(super) fn packet(&mut self, now: Instant) -> Option<Vec<u8>> {
        let due = self.due()?;
        let mut packet = vec![0x5a; HEADER_BYTES + self.stream.payload_bytes];
        self.session.stamp(&mut packet, self.stream.payload_type, self.count == 0, due, now);
        self.count += 1;
        Some(packet)
    }
}
