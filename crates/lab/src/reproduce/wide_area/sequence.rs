//! Packet sequences: figure 7 of paper \[2\], captured at the writer's host.

use super::hosts::{CapturedSegment, Experiment};
use super::map::experiment;
use kiban_base::Instant;
use kiban_tcpip::tcp;
use serde::Serialize;
use std::time::Duration;

/// An acknowledgement that follows the previous packet by at least this time was sent by the delayed-ACK
/// timer.
const STALL: Duration = Duration::from_millis(20);
/// The maximum number of lines of a sequence that are shown.
const LINES: usize = 14;

/// One line of a sequence.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Line {
    /// Time since the previous line, ms.
    pub after_ms: f64,
    /// Payload bytes of a sent segment; `None` for a received acknowledgement.
    pub bytes: Option<u32>,
    /// The sequence number of the first byte sent, or the acknowledgement number.
    pub sequence: u32,
}

/// A packet sequence and its statistics.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Sequence {
    /// The title.
    pub title: String,
    /// Size of the socket buffers, bytes.
    pub buffer: u32,
    /// Message length, bytes.
    pub message: usize,
    /// Goodput, Mbit/s.
    pub mbps: f64,
    /// Shortest and longest stall, ms: the time from the previous packet to a delayed acknowledgement.
    pub stall_ms: Option<(f64, f64)>,
    /// The longest time from the previous packet to an acknowledgement, excluding stalls, ms.
    pub answer_ms_max: f64,
    /// Segments between two stalls.
    pub segments_between_stalls: Option<usize>,
    /// Bytes between two stalls.
    pub bytes_between_stalls: Option<u32>,
    /// The different segment lengths, ascending.
    pub segment_bytes: Vec<u32>,
    /// The first lines, beginning at the first stall if there is one.
    pub lines: Vec<Line>,
}

impl Sequence {
    /// Measures one cell of the map and captures its packets.
    pub fn of(title: &str, tcp: &tcp::Config, buffer: u32, message: usize, interval: Duration) -> Sequence {
        Sequence::captured(title, &experiment(tcp, buffer, message), interval)
    }

    /// Runs an experiment and captures its packets.
    pub fn captured(title: &str, experiment: &Experiment, interval: Duration) -> Sequence {
        let outcome = experiment.run(interval, 400);
        let seen = outcome.capture;
        let gap = |at: usize| if at == 0 { Duration::ZERO } else { seen[at].0.since(seen[at - 1].0) };
        let is_stall = |at: usize| matches!(seen[at].1, CapturedSegment::Ack(_)) && gap(at) >= STALL;
        let stalls: Vec<usize> = (1..seen.len()).filter(|at| is_stall(*at)).collect();
        let between = stalls.windows(2).next().map(|pair| &seen[pair[0]..pair[1]]);
        let segments = |seen: &[(Instant, CapturedSegment)]| -> Vec<u32> {
            let length = |event: &(Instant, CapturedSegment)| match event.1 {
                CapturedSegment::Data(first, end) => Some(end - first),
                CapturedSegment::Ack(_) => None,
            };
            seen.iter().filter_map(length).collect()
        };
        let mut lengths = segments(&seen);
        lengths.sort_unstable();
        lengths.dedup();
        let stall_ms = stalls.iter().map(|at| ms(gap(*at))).fold(None, |range: Option<(f64, f64)>, gap| {
            Some(range.map_or((gap, gap), |(least, most)| (least.min(gap), most.max(gap))))
        });
        let from = stalls.first().copied().unwrap_or(0);
        let lines = (from..seen.len()).take(LINES).map(|at| {
            let (bytes, sequence) = match seen[at].1 {
                CapturedSegment::Data(first, end) => (Some(end - first), first),
                CapturedSegment::Ack(next) => (None, next),
            };
            Line { after_ms: ms(gap(at)), bytes, sequence }
        });
        Sequence {
            title: title.to_owned(),
            buffer: experiment.buffer_bytes,
            message: experiment.message_bytes,
            mbps: outcome.mbps,
            stall_ms,
            answer_ms_max: (0..seen.len())
                .filter(|at| matches!(seen[*at].1, CapturedSegment::Ack(_)) && !is_stall(*at))
                .map(|at| ms(gap(at)))
                .fold(0.0, f64::max),
            segments_between_stalls: between.map(|seen| segments(seen).len()),
            bytes_between_stalls: between.map(|seen| segments(seen).iter().sum()),
            segment_bytes: lengths,
            lines: lines.collect(),
        }
    }
}

fn ms(length: Duration) -> f64 {
    length.as_secs_f64() * 1e3
}

/// Prints the sequence as in the paper: the writer's host on the left, the reader's on the right.
impl std::fmt::Display for Sequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{}: buffers {}, message {}, {:.1} Mbit/s",
            self.title, self.buffer, self.message, self.mbps
        )?;
        for Line { after_ms, bytes, sequence } in &self.lines {
            match bytes {
                Some(bytes) => {
                    writeln!(f, "{after_ms:8.1} ms  ├─ {bytes:>5} bytes from {sequence:>8} ─────▶")?
                }
                None => writeln!(f, "{after_ms:8.1} ms  ◀────────── acknowledged {sequence:>8} ──┤")?,
            }
        }
        Ok(())
    }
}
