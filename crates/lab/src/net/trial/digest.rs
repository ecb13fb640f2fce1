//! The digest of a short capture: which segments were held back, and for how long.
//!
//! Held      data that waited for an acknowledgement. At the sender, Nagle's algorithm and a delayed
//!           acknowledgement together have this signature: data is sent, no packet follows for a round trip
//!           and at least 20 ms, a pure acknowledgement arrives, and a short segment is sent within 2 ms. If
//!           at most one segment was in flight, the window did not hold the short segment back.
//! Resent    bytes that were sent twice, because they were lost, or considered lost.
//! Shut      the peer advertises a window of less than one segment.
//! Receiver  a capture at the receiver shows the same, but the released segment follows a round trip after
//!           the acknowledgement. It does not show segments that were lost before they arrived.

use kiban_measure::{Direction, Frame};
use kiban_tcpip::wire::ip::version;
use kiban_tcpip::wire::ipv4;
use serde::{Deserialize, Serialize};

/// How much longer than a round trip the shortest gap is that counts as a wait for a timer, ns.
pub(in crate::net) const GAP_NANOS: u64 = 20_000_000;
/// The longest time from an acknowledgement to the segment that it released, ns.
const RELEASE_NANOS: u64 = 2_000_000;

/// One parsed packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Segment {
    /// Nanoseconds since the capture's first packet.
    pub nanoseconds: u64,
    /// Whether the packet was sent; otherwise it was received.
    pub sent: bool,
    /// The sequence number.
    pub sequence: u32,
    /// The acknowledgement number.
    pub acknowledged: u32,
    /// Bytes of payload.
    pub bytes: u32,
    /// The window field, not scaled.
    pub window: u16,
    /// The flags' byte.
    pub flags: u8,
}

/// Whether the SYN or FIN flag is set.
const SYN_FIN: u8 = 0b11;

impl Segment {
    /// Parses a packet; `None` if it is not TCP, or truncated.
    pub fn read(frame: &Frame, begin: u64) -> Option<Segment> {
        let packet = &frame.kept;
        let (ip_bytes, total) = match version(packet)? {
            4 => {
                let total = u16::from_be_bytes(*packet.get(2..4)?.first_chunk()?);
                (ipv4::header_bytes(packet), usize::from(total))
            }
            6 => (40, 40 + usize::from(u16::from_be_bytes(*packet.get(4..6)?.first_chunk()?))),
            _ => return None,
        };
        // Segments that an offload has merged may be too long for the length field of the header.
        let total = if total <= 40 { frame.wire_bytes as usize } else { total };
        let tcp = packet.get(ip_bytes..ip_bytes + 20)?;
        let word = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
        let header_bytes = ip_bytes + usize::from(tcp[12] >> 4) * 4;
        Some(Segment {
            nanoseconds: frame.nanoseconds.saturating_sub(begin),
            sent: frame.direction == Direction::Sent,
            sequence: word(4),
            acknowledged: word(8),
            bytes: total.saturating_sub(header_bytes) as u32,
            window: u16::from_be_bytes([tcp[14], tcp[15]]),
            flags: tcp[13],
        })
    }

    /// Parses a capture.
    pub fn read_all(frames: &[Frame]) -> Vec<Segment> {
        let begin = frames.iter().map(|frame| frame.nanoseconds).min().unwrap_or(0);
        frames.iter().filter_map(|frame| Segment::read(frame, begin)).collect()
    }
}

/// The digest of a capture.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Digest {
    /// The number of packets.
    pub packets: usize,
    /// Gaps of 20 ms and, at the sender, a round trip, or longer, while data was unacknowledged.
    pub gaps: u64,
    /// Gaps in which data was held back until a delayed acknowledgement.
    pub held: u64,
    /// The median time for which they were held, ms.
    pub held_ms: f64,
    /// Gaps that ended with a retransmission.
    pub sent_again: u64,
    /// Gaps that ended with an acknowledgement that was not followed by a short segment.
    pub others: u64,
    /// The smallest window field after the handshake, not scaled.
    pub window_min: u16,
}

impl Digest {
    /// Analyses a capture at the receiver of data whose segments have at most `mss_bytes`, over a path with
    /// the given round-trip time.
    pub fn of_received(segments: &[Segment], mss_bytes: u32, round_trip_us: f64) -> Digest {
        let swapped = segments.iter().map(|segment| Segment { sent: !segment.sent, ..*segment });
        let release_nanos = RELEASE_NANOS + (round_trip_us * 1e3) as u64;
        Digest::read(&swapped.collect::<Vec<_>>(), mss_bytes, GAP_NANOS, release_nanos)
    }

    /// Analyses a capture of a sender whose segments have at most `mss_bytes`, over a path with the given
    /// round-trip time.
    pub fn of(segments: &[Segment], mss_bytes: u32, round_trip_us: f64) -> Digest {
        let gap_nanos = GAP_NANOS + (round_trip_us * 1e3) as u64;
        Digest::read(segments, mss_bytes, gap_nanos, RELEASE_NANOS)
    }

    /// Analyses packets from the sender's point of view. Gaps take at least `gap_nanos`, and a released
    /// segment follows within `release_nanos`.
    fn read(segments: &[Segment], mss_bytes: u32, gap_nanos: u64, release_nanos: u64) -> Digest {
        let mut digest = Digest { packets: segments.len(), window_min: u16::MAX, ..Digest::default() };
        let mut held_ms = Vec::new();
        let (mut sent_end, mut acknowledged): (Option<u32>, Option<u32>) = (None, None);
        for (at, segment) in segments.iter().enumerate() {
            if segment.flags & SYN_FIN != 0 {
                continue;
            }
            let before = at.checked_sub(1).map(|before| &segments[before]);
            let gap = before.map_or(0, |before| segment.nanoseconds.saturating_sub(before.nanoseconds));
            // If a capture starts in the middle of a connection, the amount of unacknowledged data before the
            // capture is unknown; assume that there was little.
            let under_way = match (sent_end, acknowledged) {
                (Some(end), Some(next)) => end.wrapping_sub(next),
                (Some(_), None) => 1,
                (None, _) => 0,
            };
            let is_again = segment.sent
                && segment.bytes > 0
                && sent_end.is_some_and(|end| (segment.sequence.wrapping_sub(end) as i32) < 0);
            if gap >= gap_nanos && under_way > 0 {
                digest.gaps += 1;
                if is_again {
                    digest.sent_again += 1;
                } else if !segment.sent && segment.bytes == 0 {
                    let release = segments.get(at + 1);
                    let released = release.is_some_and(|next| {
                        let after = next.nanoseconds.saturating_sub(segment.nanoseconds);
                        next.sent && (1..mss_bytes).contains(&next.bytes) && after <= release_nanos
                    });
                    let released = released && under_way <= mss_bytes;
                    if released {
                        digest.held += 1;
                        held_ms.push(gap as f64 * 1e-6);
                    } else {
                        digest.others += 1;
                    }
                }
            }
            if segment.sent {
                let end = segment.sequence.wrapping_add(segment.bytes);
                sent_end = Some(match sent_end {
                    Some(old) if (end.wrapping_sub(old) as i32) < 0 => old,
                    _ => end,
                });
            } else {
                acknowledged = Some(segment.acknowledged);
                digest.window_min = digest.window_min.min(segment.window);
            }
        }
        digest.held_ms = crate::stats::median(&held_ms).unwrap_or(0.0);
        digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets as (ms, sent, sequence, acknowledged, bytes).
    fn segments(rows: &[(f64, bool, u32, u32, u32)]) -> Vec<Segment> {
        let read = |&(ms, sent, sequence, acknowledged, bytes): &(f64, bool, u32, u32, u32)| Segment {
            nanoseconds: (ms * 1e6) as u64,
            sent,
            sequence,
            acknowledged,
            bytes,
            window: 500,
            flags: 0x10,
        };
        rows.iter().map(read).collect()
    }

    #[test]
    fn gaps_are_classified() {
        for (what, rows, expected) in [
            (
                "a body held until a delayed acknowledgement",
                &[
                    (0.0, true, 100, 1, 40),
                    (41.7, false, 1, 140, 0),
                    (41.71, true, 140, 1, 960),
                    (41.73, false, 1, 1100, 1),
                ][..],
                (1, 1, 0, 0),
            ),
            (
                "the fast case",
                &[
                    (0.0, true, 100, 1, 40),
                    (0.012, true, 140, 1, 960),
                    (0.017, false, 1, 1100, 0),
                    (0.022, false, 1, 1100, 1),
                ][..],
                (0, 0, 0, 0),
            ),
            (
                "the user thinks: nothing is outstanding",
                &[(0.0, true, 100, 1, 40), (0.1, false, 1, 140, 1), (80.0, true, 140, 2, 40)][..],
                (0, 0, 0, 0),
            ),
            (
                "a loss",
                &[(0.0, true, 100, 1, 40), (210.0, true, 100, 1, 40), (210.1, false, 1, 140, 1)][..],
                (1, 0, 1, 0),
            ),
            (
                "the peer thinks: its reply comes late, with data",
                &[(0.0, true, 100, 1, 40), (60.0, false, 1, 140, 1), (60.1, true, 140, 2, 40)][..],
                (1, 0, 0, 0),
            ),
            (
                "a window that opens: whole segments leave",
                &[(0.0, true, 100, 1, 1448), (41.0, false, 1, 1548, 0), (41.1, true, 1548, 1, 1448)][..],
                (1, 0, 0, 1),
            ),
            (
                "a full window: more than a segment was under way",
                &[
                    (0.0, false, 1, 100, 0),
                    (0.0, true, 100, 1, 1448),
                    (0.1, true, 1548, 1, 1448),
                    (41.0, false, 1, 2996, 0),
                    (41.1, true, 2996, 1, 700),
                ][..],
                (1, 0, 0, 1),
            ),
            (
                "a short flight that nothing follows at once",
                &[(0.0, true, 100, 1, 40), (41.0, false, 1, 140, 0), (47.0, true, 140, 1, 40)][..],
                (1, 0, 0, 1),
            ),
        ] {
            let digest = Digest::of(&segments(rows), 1448, 100.0);
            let seen = (digest.gaps, digest.held, digest.sent_again, digest.others);
            assert_eq!(seen, expected, "{what}");
        }
    }

    #[test]
    fn a_round_trip_is_no_gap() {
        let rows = |wait: f64| {
            segments(&[
                (0.0, true, 100, 1, 40),
                (wait, false, 1, 140, 0),
                (wait + 0.1, true, 140, 1, 960),
                (2.0 * wait, false, 1, 1100, 1),
            ])
        };
        let seen = |wait| Digest::of(&rows(wait), 1448, 30_000.0);
        assert_eq!((seen(30.5).gaps, seen(30.5).held), (0, 0));
        // With a delayed acknowledgement.
        assert_eq!((seen(71.0).gaps, seen(71.0).held), (2, 1));
    }

    #[test]
    fn a_receiver_s_capture_shows_data_that_was_held_a_round_trip_away() {
        // The acknowledgement is sent after 41 ms, and the body arrives a round trip of 9 ms later.
        let rows = [
            (0.0, false, 100, 1, 40),
            (41.0, true, 1, 140, 0),
            (50.0, false, 140, 1, 960),
            (50.1, true, 1, 1100, 1),
        ];
        let held = |round_trip_us| Digest::of_received(&segments(&rows), 1448, round_trip_us).held;
        assert_eq!((held(9000.0), held(100.0)), (1, 0));
    }

    #[test]
    fn sequence_numbers_may_wrap() {
        let rows = [
            (0.0, true, u32::MAX - 9, 1, 40),
            (44.0, false, 1, 30, 0),
            (44.1, true, 30, 1, 960),
            (44.2, false, 1, 990, 1),
        ];
        let digest = Digest::of(&segments(&rows), 1448, 100.0);
        assert_eq!((digest.gaps, digest.held), (1, 1));
        assert!((digest.held_ms - 44.0).abs() < 0.01);
    }

    #[test]
    fn a_packet_is_read_from_its_ip_header_on() {
        let mut kept = vec![0u8; 40];
        kept[0] = 0x45;
        kept[2..4].copy_from_slice(&1000u16.to_be_bytes());
        kept[24..28].copy_from_slice(&7u32.to_be_bytes());
        kept[32] = 0x50;
        kept[33] = 0x18;
        kept[34..36].copy_from_slice(&77u16.to_be_bytes());
        let frame = Frame { nanoseconds: 1_000_100, direction: Direction::Sent, kept, wire_bytes: 1000 };
        let segment = Segment::read(&frame, 1_000_000).expect("TCP");
        assert_eq!((segment.sequence, segment.bytes, segment.window, segment.nanoseconds), (7, 960, 77, 100));
        for length in 0..40 {
            let cut = Frame { kept: frame.kept[..length].to_vec(), ..frame.clone() };
            assert_eq!(Segment::read(&cut, 0), None, "{length}");
        }
    }
}
