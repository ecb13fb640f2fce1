//! The reports of receivers and senders, one row per stream.

use super::stream::Sender;
use crate::mix::real::delays::Delays;
use crate::table::Table;
use kiban_tcpip::rtp::{Session, SourceView, Verdict};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// A received stream.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ReceivedStream {
    /// The synchronisation source.
    pub ssrc: u32,
    /// Its canonical name; empty if it has sent none.
    pub cname: String,
    /// Packets that arrived and are part of the stream, with duplicates.
    pub packets: u64,
    /// Packets that were expected.
    pub expected: u64,
    /// Expected minus received packets: negative if more were duplicated than lost.
    pub lost: i64,
    /// Packets that arrived after one with a higher sequence number.
    pub reordered: u64,
    /// Duplicates.
    pub duplicates: u64,
    /// Packets outside the statistics: the first one, and packets with sequence numbers far off.
    pub ignored: u64,
    /// The jitter of RFC 3550, ms.
    pub jitter_ms: f64,
    /// The transit time above the shortest one, ms: median, 99th percentile, maximum.
    pub variation_ms: Option<[f64; 3]>,
    /// The shortest transit time, ms; `None` if sender and receiver do not share a clock.
    pub one_way_ms: Option<f64>,
    /// Packets that the sender had sent at its last report.
    pub sent: Option<u32>,
    /// Whether the sender has left the session.
    pub has_left: bool,
}

/// What a receiver has measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Received {
    /// The streams, by SSRC.
    pub streams: Vec<ReceivedStream>,
    /// Datagrams that are neither RTP nor RTCP.
    pub malformed: u64,
    /// Datagrams that this host dropped because its socket buffer was full, if the system tells; they count
    /// as lost.
    pub dropped_here: Option<u64>,
}

/// The transit times of each source.
#[derive(Default)]
pub(super) struct Transits(BTreeMap<u32, (u32, Delays)>);

impl Transits {
    /// Records the transit time of a packet that is part of its stream.
    pub(super) fn on_packet(
        &mut self,
        session: &Session,
        ssrc: u32,
        verdict: Option<Verdict>,
        clock_hz: u32,
    ) {
        let source = session.sources().find(|view| view.ssrc == ssrc).and_then(|view| view.source.transit());
        let Some(transit) = source.filter(|_| verdict == Some(Verdict::Valid)) else { return };
        let (first, delays) = self.0.entry(ssrc).or_insert_with(|| (transit, Delays::default()));
        let units = i64::from(transit.wrapping_sub(*first) as i32);
        delays.push(units * 1_000_000_000 / i64::from(clock_hz.max(1)));
    }

    fn variation_ms(&self, ssrc: u32) -> Option<[f64; 3]> {
        let (_, delays) = self.0.get(&ssrc)?;
        let [p50, p99] = delays.variation_us();
        Some([p50? * 1e-3, p99? * 1e-3, delays.greatest_us(delays.least()?)? * 1e-3])
    }

    /// Returns the shortest transit time of a source whose clock is ours, ms. The source's last report says
    /// which of its timestamps belongs to which time.
    fn one_way_ms(
        &self,
        view: &SourceView<'_>,
        session: &Session,
        at_zero: u64,
        clock_hz: u32,
    ) -> Option<f64> {
        let (first, delays) = self.0.get(&view.ssrc)?;
        let sent = view.sent?;
        let nanos = (u128::from(sent.ntp.wrapping_sub(at_zero)) * 1_000_000_000) >> 32;
        let reported =
            session.timestamp(kiban_base::Instant::ZERO + std::time::Duration::from_nanos(nanos as u64));
        let offset = first.wrapping_add(sent.rtp_timestamp).wrapping_sub(reported) as i32;
        Some(f64::from(offset) * 1e3 / f64::from(clock_hz.max(1)) + delays.least()? as f64 * 1e-6)
    }
}

impl Received {
    /// Sums up. `clock` is the NTP timestamp of time zero if all senders use this clock.
    pub(super) fn of(session: &Session, transits: &Transits, clock_hz: u32, clock: Option<u64>) -> Received {
        let stream = |view: SourceView<'_>| ReceivedStream {
            ssrc: view.ssrc,
            cname: crate::remote::protocol::plain(&String::from_utf8_lossy(view.cname)),
            packets: view.source.received(),
            expected: view.source.expected(),
            lost: view.source.lost(),
            reordered: view.source.reordered(),
            duplicates: view.source.duplicates(),
            ignored: view.source.ignored(),
            jitter_ms: view.source.jitter_us() * 1e-3,
            variation_ms: transits.variation_ms(view.ssrc),
            one_way_ms: clock.and_then(|zero| transits.one_way_ms(&view, session, zero, clock_hz)),
            sent: view.sent.map(|sent| sent.packets),
            has_left: view.has_left,
        };
        Received {
            streams: session.sources().map(stream).collect(),
            malformed: session.counters().malformed,
            dropped_here: None,
        }
    }
}

impl fmt::Display for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads =
            ["packets", "lost", "%", "reordered", "duplicates", "jitter ms", "p50 ms", "p99 ms", "max ms"];
        let table = Table::new("Streams received").text_column("SSRC").text_column("name");
        let mut table = heads.iter().fold(table, |table, head| table.number_column(head));
        let shares_clock = self.streams.iter().any(|stream| stream.one_way_ms.is_some());
        if shares_clock {
            table = table.number_column("one-way ms");
        }
        let ms = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.3}"));
        for stream in &self.streams {
            let percent = 100.0 * stream.lost as f64 / stream.expected.max(1) as f64;
            let variation = |at: usize| ms(stream.variation_ms.map(|variation| variation[at]));
            let mut cells = vec![
                format!("{:08x}", stream.ssrc),
                stream.cname.clone(),
                stream.packets.to_string(),
                stream.lost.to_string(),
                format!("{percent:.2}"),
                stream.reordered.to_string(),
                stream.duplicates.to_string(),
                ms(Some(stream.jitter_ms)),
                variation(0),
                variation(1),
                variation(2),
            ];
            cells.extend(shares_clock.then(|| ms(stream.one_way_ms)));
            table.row(cells);
        }
        table.remark("p50, p99, max: the transit time above the shortest one");
        if shares_clock {
            table.remark("one-way: the shortest transit time; sender and receiver use the same clock");
        }
        if self.malformed > 0 {
            table.remark(format!("{} datagrams were neither RTP nor RTCP", self.malformed));
        }
        if let Some(dropped) = self.dropped_here.filter(|dropped| *dropped > 0) {
            table
                .remark(format!("{dropped} datagrams were dropped by this host: its socket buffer was full"));
        }
        write!(f, "{table}")
    }
}

/// A sent stream, with the receiver's last report about it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SentStream {
    /// The synchronisation source.
    pub ssrc: u32,
    /// Packets sent.
    pub packets: u32,
    /// Bytes of payload sent.
    pub payload_bytes: u32,
    /// Packets that the receiver reports as lost; `None` if it has not reported.
    pub lost: Option<i32>,
    /// The jitter that it reports, ms.
    pub jitter_ms: Option<f64>,
    /// The round trip, ms.
    pub round_trip_ms: Option<f64>,
}

/// What a sender knows.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Sent {
    /// The streams.
    pub streams: Vec<SentStream>,
}

impl Sent {
    pub(super) fn of(senders: &[(u32, Sender)], clock_hz: u32) -> Sent {
        let stream = |(ssrc, sender): &(u32, Sender)| {
            let report = sender.session.sources().find_map(|view| view.about_us);
            let jitter =
                report.map(|report| f64::from(report.block.jitter) * 1e3 / f64::from(clock_hz.max(1)));
            let trip = report.and_then(|report| report.round_trip);
            SentStream {
                ssrc: *ssrc,
                packets: sender.session.sent().packets,
                payload_bytes: sender.session.sent().octets,
                lost: report.map(|report| report.block.lost),
                jitter_ms: jitter,
                round_trip_ms: trip.map(|trip| trip.as_secs_f64() * 1e3),
            }
        };
        Sent { streams: senders.iter().map(stream).collect() }
    }
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = ["packets", "payload bytes", "lost", "jitter ms", "RTT ms"];
        let table = Table::new("Streams sent, and the receiver's last report").text_column("SSRC");
        let mut table = heads.iter().fold(table, |table, head| table.number_column(head));
        let ms = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.3}"));
        for stream in &self.streams {
            table.row([
                format!("{:08x}", stream.ssrc),
                stream.packets.to_string(),
                stream.payload_bytes.to_string(),
                stream.lost.map_or("-".to_owned(), |lost| lost.to_string()),
                ms(stream.jitter_ms),
                ms(stream.round_trip_ms),
            ]);
        }
        if self.streams.iter().any(|stream| stream.lost.is_none()) {
            table.remark("- : no report arrived; receivers report every few seconds");
        }
        write!(f, "{table}")
    }
}
