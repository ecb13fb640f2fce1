//! One direction of a connection, as its sender saw it.
//!
//! Purpose          reconstruct from a capture at any place when the sender sent each segment, and when it
//!                  learned of each acknowledgement.
//! Method           an acknowledgement that is captured at time t reaches the sender, and a segment that it
//!                  releases comes back to the place of the capture, `lag` later. Delaying acknowledgements
//!                  by the lag, and leaving segments where they are, gives the sender's view, shifted by a
//!                  constant. At the sender, the lag is nearly zero; at the receiver, it is the round trip.
//! Lag              as the handshake shows it and, under load, timestamps (`lag`) or the repairs of losses
//!                  ([`Timeline::repairs`]).
//! Round trip       from a segment to its acknowledgement, plus the lag.
//! Limits           segments that were lost before the place of the capture are not in it: their
//!                  retransmissions look like segments that fill a hole.

use super::connection::{Connection, Packet};
use super::lag;
use crate::figures::{MILLISECOND, percentile};
use crate::place::Place;
use kiban_tcpip::wire::tcp::{Flags, Sequence};
use std::collections::{BTreeMap, BTreeSet};

/// How much the processing time of a host varies.
const LAG_JITTER: u64 = 200_000;
/// The tick of most timestamps; the shortest that RFC 7323 §5.4 allows.
const TICK: u64 = MILLISECOND;
/// An answer that takes longer is not prompt, whatever the round trip.
const PROMPT_MAX: u64 = 250 * MILLISECOND;
/// The smallest segment that an MTU leaves: 256 bytes, less the headers, in the smallest networks.
const SEGMENT_MIN: i64 = 200;
/// How many segments are searched for the first one after path MTU discovery.
const DISCOVERY_MAX: usize = 1000;
/// Fewer packets do not show that their sender numbers them.
const NUMBERED_MIN: usize = 20;
/// A larger step is no number.
const MISSING_MAX: u16 = 9;
/// A window that is open, but by how much is not known.
pub(crate) const WINDOW_UNKNOWN: i64 = 1 << 40;

/// A segment with payload, in byte offsets from the first byte of the stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) number: u32,
    pub(crate) at: u64,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) push: bool,
    /// Packets of the sender before it that are missing, if it [numbers them](Timeline::is_numbered).
    pub(crate) missing: u16,
}

impl Segment {
    pub(crate) fn bytes(&self) -> i64 {
        self.end - self.start
    }
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    pub(crate) number: u32,
    /// When it was captured.
    pub(crate) captured: u64,
    /// When the sender learned of it, on the clock of the segments.
    pub(crate) at: u64,
    /// How much earlier than measured that is, ns.
    pub(crate) early: u64,
    pub(crate) acknowledged: i64,
    /// How many bytes had arrived, those above holes included (RFC 2018).
    pub(crate) delivered: i64,
    /// The window in bytes, scaled. Without the handshake: 0, or [`WINDOW_UNKNOWN`].
    pub(crate) window: i64,
    /// The window field, unscaled.
    pub(crate) field: i64,
    /// Whether it carries no data.
    pub(crate) is_pure: bool,
    /// Whether it acknowledges nothing new and reports data above a hole, or repeats its predecessor.
    pub(crate) is_duplicate: bool,
    /// Bytes that had arrived before and arrived again (D-SACK, RFC 2883).
    pub(crate) repeated: Option<(i64, i64)>,
}

/// One direction of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    pub(crate) sends: Vec<Segment>,
    pub(crate) acks: Vec<Ack>,
    /// The largest payload of a segment that the sender may send, as far as known.
    pub(crate) mss: i64,
    /// The same, as the ends have agreed on it.
    pub(crate) mss_offered: i64,
    /// The first segment that is as small as the path needs: larger ones had been lost before.
    pub(crate) discovered: Option<usize>,
    /// Whether the sender numbers its packets by their identification, as Linux does.
    pub(crate) is_numbered: bool,
    /// Whether the sender is the server.
    pub(crate) is_server: bool,
    /// Whether the scale of the windows is known.
    pub(crate) knows_windows: bool,
    /// Whether the capture was made at the sender, or near it.
    pub(crate) is_at_sender: bool,
    /// Whether timestamps show how the lag varies.
    pub(crate) has_lags: bool,
    /// The shortest time from the place of the capture to the receiver and back.
    pub(crate) near: u64,
    /// The shortest time from the place of the capture to the sender and back.
    pub(crate) far: u64,
    /// The shortest of these times under load, but for a tenth of them; `None` if timestamps do not tell it.
    far_loaded: Option<u64>,
    /// Whether both times are known: they count as 0 otherwise.
    pub(crate) knows_trip: bool,
    /// Round trips measured under load: when, and how long.
    pub(crate) round_trips: Vec<(u64, u64)>,
    /// Lags under load that losses show: when, how long, and the packets. Empty if timestamps tell the lag.
    pub(crate) repairs: Vec<Repair>,
}

/// A loss and its repair: the acknowledgement that made the sender repair it, and the retransmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Repair {
    pub(crate) asked: u64,
    pub(crate) lag: u64,
    pub(crate) packets: [u32; 2],
}

/// Extends sequence numbers to offsets that do not wrap.
struct Offsets {
    last: Sequence,
    offset: i64,
}

impl Offsets {
    fn of(&mut self, sequence: Sequence) -> i64 {
        let step = i64::from(sequence.0.wrapping_sub(self.last.0) as i32);
        (self.last, self.offset) = (sequence, self.offset + step);
        self.offset
    }
}

/// Ranges above the acknowledgement that the receiver reported.
#[derive(Default)]
struct Reported {
    ranges: BTreeMap<i64, i64>,
    bytes: i64,
}

impl Reported {
    fn remove(&mut self, left: i64) -> i64 {
        let right = self.ranges.remove(&left).unwrap_or(left);
        self.bytes -= right - left;
        right
    }

    fn add(&mut self, mut left: i64, mut right: i64) {
        while let Some((&start, &end)) = self.ranges.range(..=right).next_back().filter(|one| *one.1 >= left)
        {
            self.remove(start);
            (left, right) = (left.min(start), right.max(end));
        }
        if left < right {
            self.ranges.insert(left, right);
            self.bytes += right - left;
        }
    }

    /// Removes what is below the acknowledgement.
    fn acknowledge(&mut self, acknowledged: i64) {
        while let Some((&start, _)) = self.ranges.first_key_value().filter(|one| *one.0 < acknowledged) {
            let end = self.remove(start);
            self.add(acknowledged, end);
        }
    }
}

impl Timeline {
    /// Reconstructs the direction from `sender` to the other end, with windows scaled by `shift`, if that is
    /// known.
    pub(crate) fn of(connection: &Connection, sender: usize, shift: Option<u8>) -> Timeline {
        let mut timeline =
            Timeline { is_server: sender == 1, knows_windows: shift.is_some(), ..Timeline::default() };
        let packets = &connection.packets;
        let handshake = lag::handshake(connection);
        let sent = || packets.iter().filter(|packet| packet.end == sender);
        let first = connection.syn[sender].map(|syn| syn.sequence + 1);
        let first = first.or_else(|| sent().find(|packet| packet.bytes > 0).map(|packet| packet.sequence));
        let Some(first) = first else { return timeline };
        let mut offsets = Offsets { last: first, offset: 0 };
        let mut acked = Offsets { last: first, offset: 0 };
        let mut reported = Reported::default();
        // How many packets of the sender have the number after the one before, or one that is a little
        // higher.
        let (mut number, mut next, mut close, mut all) = (0u16, 0, 0, 0);
        let mut before: Option<Ack> = None;
        for packet in packets {
            if packet.flags.has_any(Flags::SYN.with(Flags::RST)) {
                continue;
            }
            if packet.end == sender {
                let missing = packet.identification.wrapping_sub(number).wrapping_sub(1);
                number = packet.identification;
                (all, next) = (all + 1, next + usize::from(missing == 0));
                close += usize::from(missing < MISSING_MAX);
                let start = offsets.of(packet.sequence);
                // A keep-alive (RFC 9293 §3.8.4) repeats one byte that was acknowledged, or none.
                let known = before.map_or(0, |ack| ack.acknowledged);
                if packet.bytes > 0 && !(packet.bytes == 1 && start + 1 == known) {
                    let end = start + i64::from(packet.bytes);
                    let push = packet.flags.has(Flags::PSH);
                    timeline.sends.push(Segment {
                        number: packet.number,
                        at: packet.at,
                        start,
                        end,
                        push,
                        missing,
                    });
                }
            } else if packet.flags.has(Flags::ACK) {
                let mut ack = Ack {
                    number: packet.number,
                    captured: packet.at,
                    at: packet.at,
                    early: 0,
                    acknowledged: acked.of(packet.acknowledgment),
                    delivered: 0,
                    window: match (shift, packet.window) {
                        (Some(shift), window) => i64::from(window) << shift,
                        (None, 0) => 0,
                        (None, _) => WINDOW_UNKNOWN,
                    },
                    field: i64::from(packet.window),
                    is_pure: packet.bytes == 0,
                    is_duplicate: false,
                    repeated: None,
                };
                let blocks = packet.sack.as_slice();
                let offset = |edge: Sequence| {
                    ack.acknowledged + i64::from(edge.0.wrapping_sub(packet.acknowledgment.0) as i32)
                };
                blocks.iter().for_each(|block| reported.add(offset(block.left), offset(block.right)));
                let known = before.map_or(0, |before| before.delivered);
                reported.acknowledge(ack.acknowledged);
                ack.delivered = known.max(ack.acknowledged + reported.bytes);
                if let Some(block) = blocks.first() {
                    // RFC 2883 §4: the first block is below the acknowledgement, or inside the second.
                    let second = blocks.get(1);
                    let is_repeated = block.right.le(packet.acknowledgment)
                        || second
                            .is_some_and(|outer| outer.left.le(block.left) && block.right.le(outer.right));
                    ack.repeated = is_repeated.then(|| (offset(block.left), offset(block.right)));
                }
                let same = before.is_some_and(|before| {
                    before.acknowledged == ack.acknowledged && before.field == ack.field && ack.is_pure
                });
                ack.is_duplicate = (same || !blocks.is_empty()) && ack.repeated.is_none();
                timeline.acks.push(ack);
                before = Some(ack);
            }
        }
        timeline.is_numbered = all >= NUMBERED_MIN && next * 3 >= all * 2 && close * 20 >= all * 19;
        // With timestamps, every segment carries 12 bytes fewer than the MSS (RFC 6691 §2).
        let stamps = if packets.iter().any(|packet| packet.timestamps.is_some()) { 12 } else { 0 };
        // Both ends say what they can receive; a sender's own limit is that of its interface.
        let offered = connection.syn.iter().flatten().filter_map(|syn| syn.mss).min();
        let offered = offered.map_or(1448, |mss| i64::from(mss) - stamps);
        timeline.measure(packets, sender, handshake);
        timeline.mss_offered = offered.max(1);
        let discovered = timeline.path_mtu_discovery();
        timeline.discovered = discovered.map(|(first, _)| first);
        timeline.mss = discovered.map_or_else(|| timeline.effective_mss(offered).max(1), |(_, unit)| unit);
        if !timeline.has_lags {
            timeline.repairs = timeline.repairs();
        }
        timeline
    }

    /// Measures the lag and the round trips, and moves the acknowledgements to the sender's view.
    fn measure(&mut self, packets: &[Packet], sender: usize, handshake: Option<(u64, u64)>) {
        let (near, shortest) = self.near_samples();
        let (to_server, to_client) = handshake.unzip();
        let (to_receiver, to_sender) =
            if sender == 0 { (to_server, to_client) } else { (to_client, to_server) };
        let nearest = [shortest, to_receiver].into_iter().flatten().min();
        let lags = lag::samples(packets, sender);
        self.has_lags = !lags.is_empty();
        let least = lags.iter().map(|(_, lag)| *lag).min();
        self.far_loaded = percentile(lags.iter().map(|(_, lag)| *lag).collect(), 10);
        let farthest = [least, to_sender, lag::answered(packets, sender)].into_iter().flatten().min();
        (self.near, self.far) = (nearest.unwrap_or(0), farthest.unwrap_or(0));
        self.knows_trip = nearest.is_some() && farthest.is_some();
        // A queue that was empty during the handshake may be between the sender and the capture. Timestamps
        // do not show what is shorter than their tick.
        let queued = self.far_loaded.filter(|loaded| *loaded > self.far + TICK);
        let far = self.far.max(queued.unwrap_or(0));
        self.is_at_sender = far < (self.near + far) / 8;
        for ack in &mut self.acks {
            let lag = if self.is_at_sender { 0 } else { lag::around(&lags, ack.captured, self.far) };
            // Slightly too early, so that no segment seems to precede the acknowledgement that released it.
            ack.early = (lag / 16 + LAG_JITTER).min(lag);
            ack.at = ack.captured + lag - ack.early;
        }
        // The sender learns of acknowledgements in the order in which they passed.
        let mut latest = 0;
        for ack in &mut self.acks {
            latest = latest.max(ack.at);
            ack.at = latest;
        }
        let acks = &self.acks;
        self.round_trips = near
            .into_iter()
            .map(|(ack, near)| (acks[ack].captured, near + (acks[ack].at - acks[ack].captured)))
            .collect();
    }

    /// Returns the lags that losses show. A sender repairs a loss at once when it learns that three segments
    /// above the hole have arrived (RFC 5681 §3.2, RFC 6675 §5), so the lag is the time from the
    /// acknowledgement that says so to the segment that fills the hole. Of losses that are repaired together,
    /// only the first counts, because the sender spreads the other retransmissions. If the retransmission is
    /// lost as well, a timer repairs the loss, after a silence.
    fn repairs(&self) -> Vec<Repair> {
        let mut repairs = Vec::new();
        let mut acks = self.acks.iter().peekable();
        let (mut known, mut duplicates, mut highest, mut recovered) = (0, 0, 0, 0);
        // The acknowledgement that asks for a retransmission, and the longest silence since then.
        let mut asked: Option<(Ack, u64)> = None;
        let mut last = 0;
        for send in &self.sends {
            while let Some(ack) = acks.next_if(|ack| ack.number < send.number) {
                if ack.acknowledged > known {
                    (known, duplicates, asked) = (ack.acknowledged, 0, None);
                }
                duplicates += u32::from(ack.is_duplicate);
                let is_reported = duplicates >= 3 || ack.delivered - known >= 3 * self.mss;
                if asked.is_none() && is_reported && known >= recovered {
                    asked = Some((*ack, 0));
                }
            }
            if let Some((ack, silence)) = &mut asked {
                *silence = (*silence).max(send.at - last.max(ack.captured));
                let lag = send.at - ack.captured;
                if (send.start..send.end).contains(&ack.acknowledged) {
                    if *silence * 2 <= lag {
                        let packets = [ack.number, send.number];
                        repairs.push(Repair { asked: ack.captured, lag, packets });
                    }
                    // What was sent before the retransmission belongs to the same repair.
                    (asked, recovered) = (None, highest);
                }
            }
            (last, highest) = (send.at, highest.max(send.end));
        }
        repairs
    }

    /// Returns the largest payload that the sender sends in bulk, at most `offered`: a sender may use less
    /// than the receiver offers. Segments that a program cut, by small writes, carry PSH.
    fn effective_mss(&self, offered: i64) -> i64 {
        let largest = self.sends.iter().map(Segment::bytes).max().unwrap_or(0);
        if largest >= offered {
            // Segments that the network card cuts are larger.
            return offered;
        }
        let close = (self.near + self.far) / 2;
        let in_a_row = self.sends.windows(2).filter(|pair| {
            let is_cut = !pair[0].push && pair.iter().all(|send| send.bytes() == largest);
            is_cut && pair[1].at - pair[0].at < close
        });
        if in_a_row.count() * 3 >= self.sends.len() { largest } else { offered }
    }

    /// Returns the first segment that is smaller because an ICMP message told the sender the MTU of the
    /// path (RFC 1191), and how much the path carries: it repeats the begin of a full one, and those that
    /// follow are as long, or multiples if the network card cuts them.
    fn path_mtu_discovery(&self) -> Option<(usize, i64)> {
        let mut full = BTreeSet::new();
        let is_smaller = |send: &Segment| {
            let is_repeated = full.contains(&send.start);
            if send.bytes() >= self.mss_offered {
                full.insert(send.start);
            }
            is_repeated && (SEGMENT_MIN..self.mss_offered * 9 / 10).contains(&send.bytes())
        };
        let first = self.sends.iter().take(DISCOVERY_MAX).position(is_smaller)?;
        let (bytes, after) = (self.sends[first].bytes(), &self.sends[first..]);
        let is_unit = |unit: &i64| {
            let multiples = after.iter().filter(|send| send.bytes() % unit == 0).count();
            after.len() >= 10 && multiples * 10 >= after.len() * 9
        };
        let mut units =
            (1..=bytes / SEGMENT_MIN).filter(|parts| bytes % parts == 0).map(|parts| bytes / parts);
        units.find(is_unit).map(|unit| (first, unit))
    }

    /// Returns how long the narrowest link takes for a full segment, ns: the spacing of segments behind it,
    /// or of acknowledgements before it. Returns this percentile of the spacings.
    pub(crate) fn packet_time(&self, percent: usize) -> u64 {
        let spacing = |times: Vec<(u64, i64)>| -> Vec<u64> {
            let pairs = times.windows(5).map(|run| {
                let bytes = (run[4].1 - run[0].1).max(0);
                ((run[4].0 - run[0].0) as i128 * i128::from(self.mss), i128::from(bytes))
            });
            pairs.filter(|(_, bytes)| *bytes > 0).map(|(time, bytes)| (time / bytes) as u64).collect()
        };
        let times = if self.is_at_sender {
            self.acks.iter().map(|ack| (ack.captured, ack.acknowledged)).collect()
        } else {
            self.sends.iter().map(|send| (send.at, send.end)).collect()
        };
        percentile(spacing(times), percent).unwrap_or(0)
    }

    /// Returns, for each acknowledgement that a segment caused at once, its index and the time since then,
    /// and the shortest time, those included that the receiver may have delayed.
    fn near_samples(&self) -> (Vec<(usize, u64)>, Option<u64>) {
        let (mut samples, mut shortest) = (Vec::new(), None);
        let mut waiting = self.sends.iter().peekable();
        let (mut newest, mut highest, mut known) = (None::<Segment>, 0, 0);
        // Karn's rule: what was sent twice is not measured (RFC 6298 §3).
        let mut repeated = i64::MIN;
        let mut has_hole = false;
        for (index, ack) in self.acks.iter().enumerate() {
            let mut count = 0;
            // What arrived above a hole is acknowledged late: when the hole is filled.
            let was_hole =
                std::mem::replace(&mut has_hole, ack.is_duplicate || ack.delivered > ack.acknowledged);
            while let Some(send) =
                waiting.next_if(|send| send.at <= ack.captured && send.end <= ack.acknowledged)
            {
                count += 1;
                if send.start < highest {
                    repeated = highest;
                } else {
                    newest = Some(*send);
                }
                highest = highest.max(send.end);
            }
            let advances = ack.acknowledged > known;
            known = known.max(ack.acknowledged);
            // A lone segment may wait for the receiver's timer, so it counts only as a short sample.
            if let Some(send) = newest.take_if(|send| advances && send.end == ack.acknowledged)
                && send.start >= repeated
                && !was_hole
                && !ack.is_duplicate
            {
                let near = ack.captured - send.at;
                shortest = Some(shortest.map_or(near, |shortest: u64| shortest.min(near)));
                // An answer to all that was sent includes the time that a program took to prepare it.
                if !ack.is_pure && waiting.peek().is_none_or(|next| next.at > ack.captured) {
                    continue;
                }
                if count > 1 || near < 20 * MILLISECOND || !ack.is_pure {
                    samples.push((index, near));
                } else if let Some((_, before)) = samples.last() {
                    // Under a growing queue, single segments are acknowledged late as well.
                    if near < before + before / 2 {
                        samples.push((index, near));
                    }
                }
            }
        }
        (samples, shortest)
    }

    /// Returns the last acknowledgement that was captured at `at` or before.
    pub(crate) fn last_captured(&self, at: u64) -> Option<&Ack> {
        let after = self.acks.partition_point(|ack| ack.captured <= at);
        after.checked_sub(1).map(|last| &self.acks[last])
    }

    /// Returns the time since the last acknowledgement that was captured before `at`, ns.
    pub(crate) fn silence_before(&self, at: u64) -> u64 {
        self.last_captured(at).map_or(u64::MAX, |ack| at - ack.captured)
    }

    /// Returns the shortest round trip, ns.
    pub(crate) fn shortest_round_trip(&self) -> u64 {
        self.near + self.far
    }

    /// Returns how soon after an acknowledgement a segment follows that it released, ns: processing and
    /// jitter.
    pub(crate) fn soon(&self) -> u64 {
        (self.shortest_round_trip() / 8).clamp(3 * MILLISECOND, 20 * MILLISECOND)
    }

    /// Returns how soon after data of the peer a prompt answer follows, ns. Away from the sender, the time
    /// that the link takes for the data is not known.
    pub(crate) fn prompt(&self) -> u64 {
        match self.known_round_trip() {
            None => PROMPT_MAX,
            Some(_) if self.is_at_sender => self.soon(),
            Some(trip) => (trip / 2).max(10 * MILLISECOND),
        }
    }

    /// Returns the shortest round trip, ns, if all of it was measured.
    pub(crate) fn known_round_trip(&self) -> Option<u64> {
        Some(self.shortest_round_trip()).filter(|trip| self.knows_trip && *trip > 0)
    }

    /// Returns the given percentile of the round trips under load, ns.
    pub(crate) fn round_trip(&self, percent: usize) -> u64 {
        percentile(self.round_trips.iter().map(|(_, trip)| *trip).collect(), percent)
            .unwrap_or_else(|| self.shortest_round_trip())
    }

    /// Returns whether round trips show how long packets wait, wherever they do.
    pub(crate) fn knows_load(&self) -> bool {
        self.is_at_sender || self.has_lags
    }

    /// Returns a round trip that nine of ten exceeded under load, ns.
    pub(crate) fn least_loaded_round_trip(&self) -> Option<u64> {
        let low = self.round_trip(10);
        if self.is_at_sender { Some(low) } else { self.far_loaded.map(|far| low.max(self.near + far)) }
    }

    /// Returns whether the capture was made at the sender, in the middle, or at the receiver of this
    /// direction.
    pub(crate) fn place(&self, sender: usize) -> Place {
        if self.knows_trip { Place::of(self.near, self.far, sender) } else { Place::Unknown }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what a receiver captures of segments of 1000 bytes that come every 10 ms, until `silent_from`:
    /// the fifth is lost, and its retransmission comes at `repaired`, ms.
    fn with_loss(silent_from: u64, repaired: u64) -> Timeline {
        let mut timeline = Timeline { mss: 1000, ..Timeline::default() };
        for at in (0..=repaired).step_by(10).filter(|at| *at < silent_from || *at == repaired) {
            let start = if at == repaired { 4000 } else { at as i64 * 100 + if at < 40 { 0 } else { 1000 } };
            let (number, at) = (timeline.sends.len() as u32 * 2, at * MILLISECOND);
            let (end, push, missing) = (start + 1000, false, 0);
            timeline.sends.push(Segment { number, at, start, end, push, missing });
            timeline.acks.push(Ack {
                number: number + 1,
                captured: at,
                at,
                early: 0,
                acknowledged: end.min(4000),
                delivered: end.min(4000),
                window: 1 << 20,
                field: 1 << 14,
                is_pure: true,
                is_duplicate: end > 5000,
                repeated: None,
            });
        }
        timeline
    }

    #[test]
    fn the_repair_of_a_loss_shows_the_lag() {
        // The segments at 40, 50 and 60 ms follow the hole.
        let (asked, lag) = (60 * MILLISECOND, 300 * MILLISECOND);
        let timeline = with_loss(u64::MAX, 360);
        let packets = [13, timeline.sends.last().expect("the retransmission").number];
        assert_eq!(timeline.repairs(), [Repair { asked, lag, packets }]);
        // Without a queue. The retransmission of a retransmission that was lost waits for a timer.
        assert_eq!(with_loss(u64::MAX, 80).repairs()[0].lag, 20 * MILLISECOND);
        assert_eq!(with_loss(80, 360).repairs(), []);
    }
}
