//! Probes: datagrams to which the server replies, alone or beside a load over TCP.
//!
//! ```text
//!  0 nonce (8)  8 number (4)  12 kind (1)  13 type of service as the server received it (1)  14 zero (2)
//! 16 arrivals at the server so far (8)  24 arrival (8)  32 departure of the reply (8)  40 padding
//! ```
//!
//! Format    all numbers in network byte order; times are nanoseconds of the server's clock. A probe has
//!           zeros from 13 on.
//! Length    a reply is never longer than its probe, so a server cannot be used to amplify traffic. A probe
//!           may ask for a reply of [`PROBE_OCTETS`], so that a lost reply can be told from a lost probe.
//! Times     departure of the probe, arrival at the server, departure of the reply, arrival of the reply: the
//!           four timestamps of NTP (RFC 5905 §8). Arrivals are timestamps of the kernels.
//! Load      connections that carry as much as they can, in both directions. They are reset at the end, so
//!           that data in the buffers of the hosts does not disturb the next measurement. They use
//!           [`LOAD_CONGESTION`] if this end may, because others, such as BBR, keep the queue short that the
//!           load is to fill.

use super::nonce::Nonce;
use super::tcp::Stream;
use crate::mix::real::wire::NONCE_OCTETS;
use kiban_base::Instant;
use kiban_measure::capture::clock_offset;
use kiban_measure::socket::is_congestion_allowed;
use kiban_measure::{Settings, TcpInfo};
use kiban_os::Clock;
use kiban_os::clock::machine_nanos;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The shortest probe, and the header of each.
pub(crate) const PROBE_OCTETS: usize = 40;
/// The longest probe: what fits into a UDP datagram over IPv4.
pub(crate) const PROBE_OCTETS_MAX: usize = 65_507;
/// The maximum number of probes of a measurement.
pub(crate) const PROBES_MAX: u32 = 1 << 20;
/// The maximum number of connections in each direction.
pub(crate) const LOAD_CONNECTIONS_MAX: u16 = 16;
/// The congestion control of a load, which fills a queue until it drops packets.
pub(crate) const LOAD_CONGESTION: &str = "cubic";
/// The interval for which the bytes of a load are counted.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);
/// Bytes read or written at a time.
pub(crate) const LOAD_BYTES: usize = 64 << 10;
/// The start of a load, during which its connections reach their rate.
pub(crate) const RAMP: Duration = Duration::from_secs(1);
/// How often a thread that carries load checks whether it has to end.
pub(crate) const LOAD_LOOK: Duration = Duration::from_millis(50);

/// The values of the octet that says what a datagram is.
const KIND_AT: usize = 12;
const ASKS_LONG: u8 = 0;
const ASKS_SHORT: u8 = 1;
const REPLY: u8 = 2;

/// What a client asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProbeRequest {
    /// The announced length, ms.
    pub(crate) millis: u32,
    /// The number of connections on which the client sends.
    pub(crate) up: u16,
    /// The number of connections on which the server sends.
    pub(crate) down: u16,
    /// The type of service of the replies; `None` if each has that of its probe, as it arrived.
    pub(crate) tos: Option<u8>,
}

/// What the server observed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ProbeOutcome {
    /// Different probes that arrived.
    pub(crate) distinct: u64,
    /// Probes that had arrived before.
    pub(crate) duplicates: u64,
    /// Probes that arrived after one with a higher number (RFC 4737 §3.3).
    pub(crate) reordered: u64,
    /// Probes without a reply, because the server's rate limit did not allow it.
    pub(crate) refused: u64,
    /// Datagrams dropped because the server's socket buffer was full.
    pub(crate) dropped_here: Option<u64>,
    /// The date at zero of the server's clock, nanoseconds since 1970.
    pub(crate) date: u64,
    /// Replies that the server's host did not take.
    pub(crate) unsent: u64,
    /// The bytes that the client's connections carried, and when the server began to count them.
    pub(crate) up: Volume,
    /// The segments of the server's connections; `None` from a server that does not report them.
    #[serde(default)]
    pub(crate) down_segments: Option<Segments>,
    /// What limited the server's connections; `None` without them, or from a server that does not report it.
    #[serde(default)]
    pub(crate) down_limits: Option<LoadLimits>,
    /// The congestion control of the server's connections; `None` without them, or if it is not known.
    #[serde(default)]
    pub(crate) down_congestion: Option<String>,
    /// Whether the server's rate limit slowed the load.
    pub(crate) rate_limited: bool,
    /// The path MTU to the client that the server's kernel knows.
    pub(crate) known_mtu: Option<u32>,
}

/// Segments with data that the connections of a load sent after `RAMP`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Segments {
    /// All segments, retransmissions included.
    pub sent: u64,
    /// Retransmitted segments.
    pub retransmits: u64,
}

impl Segments {
    /// Returns the share of retransmitted segments, percent; `None` if nothing was sent.
    pub fn retransmits_percent(self) -> Option<f64> {
        (self.sent > 0).then(|| 100.0 * self.retransmits as f64 / self.sent as f64)
    }

    /// Adds the segments of a connection between two readings of its kernel; those of its whole life if the
    /// first reading is missing.
    fn add(&mut self, before: Option<TcpInfo>, after: &TcpInfo) {
        let before = before.unwrap_or_default();
        let Some(sent) = after.data_segs_out else { return };
        self.sent += u64::from(sent.saturating_sub(before.data_segs_out.unwrap_or(0)));
        self.retransmits += u64::from(after.total_retrans.saturating_sub(before.total_retrans));
    }
}

/// What limited the connections of a load after [`RAMP`], apart from the path.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct LoadLimits {
    /// The share of the time in which the send buffer was too small, of the connection with the least share.
    pub(crate) send_buffer: f64,
    /// The share of the time in which the receiver's window was full, likewise.
    pub(crate) window: f64,
    /// The sums of segments in flight and of congestion windows, over all readings at which more data could
    /// have been sent.
    pub(crate) in_flight: u64,
    pub(crate) congestion_window: u64,
}

impl LoadLimits {
    /// Returns the limits of both.
    fn and(self, other: LoadLimits) -> LoadLimits {
        LoadLimits {
            send_buffer: self.send_buffer.min(other.send_buffer),
            window: self.window.min(other.window),
            in_flight: self.in_flight + other.in_flight,
            congestion_window: self.congestion_window + other.congestion_window,
        }
    }
}

/// What the connections of a load sent after [`RAMP`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoadSent {
    pub(crate) segments: Segments,
    pub(crate) limits: Option<LoadLimits>,
}

/// Observes what a connection of a load sends after [`RAMP`].
pub(crate) struct SendMeter {
    /// When the next reading is due.
    next: Instant,
    before: Option<TcpInfo>,
    in_flight: u64,
    congestion_window: u64,
}

impl SendMeter {
    /// Returns a meter that begins to observe at this time.
    pub(crate) fn new(from: Instant) -> SendMeter {
        SendMeter { next: from, before: None, in_flight: 0, congestion_window: 0 }
    }

    /// Reads the connection if a reading is due.
    pub(crate) fn look(&mut self, stream: &Stream, now: Instant) {
        if now < self.next {
            return;
        }
        self.next = now + INTERVAL;
        let Ok(info) = stream.info() else { return };
        self.before.get_or_insert(info);
        if info.notsent_bytes.is_some_and(|bytes| bytes > 0) {
            self.in_flight += u64::from(info.unacked);
            self.congestion_window += u64::from(info.snd_cwnd);
        }
    }

    /// Adds what the connection has sent.
    pub(crate) fn finish(self, stream: &Stream, sent: &mut LoadSent) {
        let Ok(after) = stream.info() else { return };
        sent.segments.add(self.before, &after);
        if let Some(limits) = self.limits(&after) {
            sent.limits = Some(sent.limits.map_or(limits, |others| others.and(limits)));
        }
    }

    /// Returns what limited the connection until a last reading; `None` if the kernel does not say.
    fn limits(&self, after: &TcpInfo) -> Option<LoadLimits> {
        let before = self.before?;
        let since = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?) as f64);
        let busy = since(after.busy_us, before.busy_us)?.max(1.0);
        Some(LoadLimits {
            send_buffer: since(after.sndbuf_limited_us, before.sndbuf_limited_us)? / busy,
            window: since(after.rwnd_limited_us, before.rwnd_limited_us)? / busy,
            in_flight: self.in_flight,
            congestion_window: self.congestion_window,
        })
    }
}

/// Bytes carried in each [`INTERVAL`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Volume {
    /// The start of the first interval, nanoseconds of the clock of the end that counts.
    pub(crate) begin: u64,
    pub(crate) bytes: Vec<u64>,
}

impl Volume {
    pub(crate) fn new(begin: Instant) -> Volume {
        Volume { begin: begin.as_nanos(), bytes: Vec::new() }
    }

    /// Counts bytes that arrived now. `intervals_max` bounds the memory.
    pub(crate) fn add(&mut self, bytes: u64, now: Instant, intervals_max: usize) {
        let place = (now.as_nanos().saturating_sub(self.begin) / INTERVAL.as_nanos() as u64) as usize;
        if place < intervals_max {
            self.bytes.resize(self.bytes.len().max(place + 1), 0);
            self.bytes[place] += bytes;
        }
    }
}

/// Returns the settings of the connections of a load.
pub(crate) fn load_settings() -> Settings {
    let is_allowed = is_congestion_allowed(LOAD_CONGESTION);
    Settings { congestion: is_allowed.then(|| LOAD_CONGESTION.to_owned()), ..Settings::default() }
}

/// A probe, as the server reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Probe {
    pub(crate) number: u32,
    pub(crate) is_short_reply: bool,
}

/// What a reply adds to the number of its probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reply {
    pub(crate) number: u32,
    /// The type of service with which the probe arrived at the server.
    pub(crate) tos: u8,
    /// The number of probes that had arrived at the server.
    pub(crate) arrivals: u64,
    /// When the probe arrived, and when the reply left.
    pub(crate) arrival: u64,
    pub(crate) departure: u64,
}

/// Writes a probe into `octets`, whose length is that of the datagram.
pub(crate) fn write_probe(octets: &mut [u8], nonce: &Nonce, probe: Probe) {
    octets[..PROBE_OCTETS].fill(0);
    octets[..NONCE_OCTETS].copy_from_slice(&nonce.prefix());
    octets[NONCE_OCTETS..KIND_AT].copy_from_slice(&probe.number.to_be_bytes());
    octets[KIND_AT] = if probe.is_short_reply { ASKS_SHORT } else { ASKS_LONG };
}

/// Reads a probe with this nonce.
pub(crate) fn read_probe(octets: &[u8], nonce: &Nonce) -> Option<Probe> {
    let is_short_reply = match head(octets, nonce)? {
        ASKS_LONG => false,
        ASKS_SHORT => true,
        _ => return None,
    };
    let number = u32_at(octets, NONCE_OCTETS);
    (number < PROBES_MAX).then_some(Probe { number, is_short_reply })
}

/// Turns the probe in `octets` into its reply.
pub(crate) fn write_reply(octets: &mut [u8], reply: &Reply) {
    octets[KIND_AT] = REPLY;
    octets[13] = reply.tos;
    for (at, value) in [(16, reply.arrivals), (24, reply.arrival), (32, reply.departure)] {
        octets[at..at + 8].copy_from_slice(&value.to_be_bytes());
    }
}

/// Reads a reply with this nonce.
pub(crate) fn read_reply(octets: &[u8], nonce: &Nonce) -> Option<Reply> {
    (head(octets, nonce)? == REPLY).then(|| Reply {
        number: u32_at(octets, NONCE_OCTETS),
        tos: octets[13],
        arrivals: u64_at(octets, 16),
        arrival: u64_at(octets, 24),
        departure: u64_at(octets, 32),
    })
}

/// Returns the kind of a datagram that has a whole header and this nonce.
fn head(octets: &[u8], nonce: &Nonce) -> Option<u8> {
    (octets.len() >= PROBE_OCTETS && octets.starts_with(&nonce.prefix())).then(|| octets[KIND_AT])
}

fn u32_at(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*octets[at..].first_chunk().expect("the header is whole"))
}

fn u64_at(octets: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(*octets[at..].first_chunk().expect("the header is whole"))
}

/// Returns the date at zero of a clock, nanoseconds since 1970.
pub(crate) fn date_of(clock: Clock) -> u64 {
    let nanos = machine_nanos();
    // A reading that was interrupted is too small.
    let offset = (0..5).map(|_| clock_offset()).max().expect("there are some");
    nanos.wrapping_add(offset).wrapping_sub(clock.at(nanos).as_nanos())
}

/// Returns the octets with which a connection of a load begins. The client's connections come first.
pub(crate) fn greeting(nonce: &Nonce, number: u16) -> Vec<u8> {
    [&nonce.greeting()[..], &number.to_be_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_and_replies_round_trip_and_anything_else_is_rejected() {
        let (nonce, other) = (Nonce::random().expect("random"), Nonce::random().expect("random"));
        let probe = Probe { number: 70_000, is_short_reply: true };
        let mut octets = vec![0x5a; 100];
        write_probe(&mut octets, &nonce, probe);
        assert_eq!(read_probe(&octets, &nonce), Some(probe));
        assert_eq!((read_probe(&octets, &other), read_reply(&octets, &nonce)), (None, None));
        assert_eq!(read_probe(&octets[..PROBE_OCTETS - 1], &nonce), None);
        let reply = Reply { number: 70_000, tos: 3, arrivals: 9, arrival: 1 << 40, departure: (1 << 40) + 5 };
        write_reply(&mut octets, &reply);
        assert_eq!((read_reply(&octets, &nonce), read_probe(&octets, &nonce)), (Some(reply), None));
        write_probe(&mut octets, &nonce, Probe { number: PROBES_MAX, is_short_reply: false });
        assert_eq!(read_probe(&octets, &nonce), None, "the number is beyond the limit");
        octets[KIND_AT] = 9;
        assert_eq!((read_reply(&octets, &nonce), read_probe(&octets, &nonce)), (None, None));
    }

    #[test]
    fn segments_of_connections_add_up() {
        let info =
            |sent, total_retrans| TcpInfo { data_segs_out: Some(sent), total_retrans, ..TcpInfo::default() };
        let mut segments = Segments::default();
        assert_eq!(segments.retransmits_percent(), None);
        segments.add(Some(info(100, 50)), &info(400, 110));
        segments.add(None, &info(100, 20));
        segments.add(None, &TcpInfo { total_retrans: 9, ..TcpInfo::default() });
        assert_eq!(segments, Segments { sent: 400, retransmits: 80 });
        assert_eq!(segments.retransmits_percent(), Some(20.0));
    }

    #[test]
    fn a_load_has_the_least_share_of_its_connections() {
        let info = |busy_ms: u64, window_ms: u64, buffer_ms: u64| TcpInfo {
            busy_us: Some(busy_ms * 1000),
            rwnd_limited_us: Some(window_ms * 1000),
            sndbuf_limited_us: Some(buffer_ms * 1000),
            ..TcpInfo::default()
        };
        let meter = |in_flight| SendMeter {
            before: Some(info(1000, 900, 0)),
            in_flight,
            congestion_window: 100,
            ..SendMeter::new(Instant::ZERO)
        };
        let one = meter(50).limits(&info(3000, 900, 1800)).expect("the kernel says it");
        assert_eq!((one.send_buffer, one.window), (0.9, 0.0));
        let both = one.and(meter(80).limits(&info(2000, 1000, 1000)).expect("the kernel says it"));
        let expected = LoadLimits { send_buffer: 0.9, window: 0.0, in_flight: 130, congestion_window: 200 };
        assert_eq!(both, expected);
        assert_eq!(
            both.and(meter(0).limits(&info(2000, 900, 0)).expect("the kernel says it")).send_buffer,
            0.0
        );
        assert_eq!(meter(0).limits(&TcpInfo::default()), None);
    }

    #[test]
    fn a_volume_counts_by_interval_in_bounded_memory() {
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let mut volume = Volume::new(at(1000));
        for (millis, bytes) in [(1000, 1), (1099, 2), (1350, 4), (990, 8), (9000, 16)] {
            volume.add(bytes, at(millis), 10);
        }
        assert_eq!(volume.bytes, [11, 0, 0, 4]);
    }
}
