//! The scoreboard: which bytes were sent, when, and whether they were SACKed or lost (RFC 2018, RFC 6675, RFC
//! 8985 §5.2).
//!
//! Records          there is one record per outstanding segment, in stream order, from the first
//!                  unacknowledged byte to the last byte sent. A record is *sacked* (the peer holds it),
//!                  *lost* (presumed lost), or neither.
//! Flight           an estimate of the bytes in the network, RFC 6675's `pipe`: the bytes of records that are
//!                  neither sacked nor lost, or that are lost and retransmitted. It is updated as records
//!                  change, never recomputed.
//! Large segments   a segment handed down in one piece is one record of many units of one MSS each. SACK
//!                  blocks are rounded inward to unit boundaries, so a peer cannot split records into tiny
//!                  parts: the number of records is bounded by the units in flight.
//! Cost             without loss, each segment costs one push and each acknowledgement one pop. In recovery,
//!                  runs of sacked records are skipped by a stride kept in the first record of each run, and
//!                  only the new part of a grown SACK block is read. Loss detection continues where it
//!                  stopped: first transmissions are in stream order, and retransmissions have a queue of
//!                  their own. So if a peer reports holes endlessly, each costs no more than the first.
//! Without SACK     each duplicate ACK means that *some* segment has arrived; the bytes counted in this way
//!                  are deducted from the flight.

use crate::wire::tcp::{SACK_BLOCKS_MAX, SackBlock, Sequence};
use alloc::collections::VecDeque;
use core::time::Duration;
use kiban_base::Instant;

#[derive(Clone, Copy, Debug)]
struct Record {
    start: Sequence,
    end: Sequence,
    sent_at: Instant,
    /// Bytes per packet.
    unit: u16,
    sacked: bool,
    lost: bool,
    /// Lost, and retransmitted since.
    retransmitted: bool,
    /// Whether the segment was sent more than once, and so is not valid as an RTT sample (Karn).
    ambiguous: bool,
    /// If the record is sacked, at least this number of consecutive records, including this one, are sacked;
    /// zero counts as one.
    stride: u32,
}

impl Record {
    #[inline]
    fn bytes(&self) -> u32 {
        self.start.distance(self.end)
    }

    #[inline]
    fn in_flight(&self) -> bool {
        !self.sacked && (!self.lost || self.retransmitted)
    }

    /// Returns whether this record was sent before the segment that ends at `end` and was sent at `moment`.
    /// Of two segments sent at the same time, the one with the lower end was first (RFC 8985 §6.2, step 2:
    /// RACK_sent_after).
    #[inline]
    fn sent_before(&self, moment: Instant, end: Sequence) -> bool {
        self.sent_at < moment || (self.sent_at == moment && self.end.lt(end))
    }
}

/// The bytes that one acknowledgement reports as delivered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivery {
    /// Bytes newly known to have arrived.
    pub(crate) bytes: u32,
    /// How many of these bytes SACK blocks covered.
    pub(crate) sacked_bytes: u32,
    /// The latest transmission among these bytes: its send time, its end, and whether it was a
    /// retransmission.
    pub(crate) latest: Option<(Instant, Sequence, bool)>,
    /// The latest send time among segments sent only once: an RTT sample.
    pub(crate) rtt_sample: Option<(Instant, Sequence)>,
    /// Whether a segment sent more than once was cumulatively acknowledged: earlier segments waited for it,
    /// so they are not valid RTT samples.
    pub(crate) acks_retransmission: bool,
    /// The lowest byte among segments sent only once; it may reveal reordering.
    pub(crate) lowest_first: Option<Sequence>,
}

impl Delivery {
    #[inline]
    fn note(&mut self, record: &Record) {
        self.bytes += record.bytes();
        let later = self.latest.is_none_or(|(moment, end, _)| {
            record.sent_at > moment || (record.sent_at == moment && end.lt(record.end))
        });
        if later {
            self.latest = Some((record.sent_at, record.end, record.ambiguous));
        }
        if !record.ambiguous {
            if self.rtt_sample.is_none_or(|(moment, _)| moment <= record.sent_at) {
                self.rtt_sample = Some((record.sent_at, record.end));
            }
            self.lowest_first =
                Some(self.lowest_first.map_or(record.start, |lowest| lowest.min(record.start)));
        }
    }
}

/// The scoreboard of one session.
#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    records: VecDeque<Record>,
    flight: u32,
    /// Bytes that are lost and not yet retransmitted.
    lost: u32,
    sacked: u32,
    dup_acked: u32,
    /// No record before this one is lost and not yet retransmitted.
    lost_from: usize,
    /// Every record before this one is sacked, or was marked as lost once.
    fresh_from: usize,
    /// Every record before this one is sacked or lost; `above` counts the bytes sacked from here on (RFC
    /// 6675).
    border: usize,
    above: u32,
    /// Retransmissions in order of send time: time, start, end.
    retransmissions: VecDeque<(Instant, Sequence, Sequence)>,
    /// End of the highest sacked record.
    highest: Option<Sequence>,
    /// The SACK blocks of the last acknowledgement that carried any.
    known: [SackBlock; SACK_BLOCKS_MAX],
}

impl Scoreboard {
    /// Returns the estimate of the bytes in flight.
    #[inline]
    pub(crate) fn flight(&self) -> u32 {
        self.flight.saturating_sub(self.dup_acked)
    }

    /// Returns the lost bytes that wait for retransmission.
    #[inline]
    pub(crate) fn lost(&self) -> u32 {
        self.lost
    }

    /// Returns the number of bytes that the peer holds out of order, according to SACK or duplicate ACKs.
    #[inline]
    pub(crate) fn sacked(&self) -> u32 {
        self.sacked + self.dup_acked
    }

    /// Returns the end of the highest sacked run.
    pub(crate) fn highest_sacked(&self) -> Option<Sequence> {
        self.highest
    }

    /// Clears the scoreboard: the session restarts from its first unacknowledged byte.
    pub(crate) fn clear(&mut self) {
        *self = Scoreboard { records: core::mem::take(&mut self.records), ..Scoreboard::default() };
        self.records.clear();
    }

    /// Records new data at the end of the stream.
    #[inline]
    pub(crate) fn on_sent(&mut self, start: Sequence, end: Sequence, unit: u16, now: Instant, again: bool) {
        self.flight += start.distance(end);
        self.records.push_back(Record {
            start,
            end,
            sent_at: now,
            unit: unit.max(1),
            sacked: false,
            lost: false,
            retransmitted: false,
            ambiguous: again,
            stride: 0,
        });
    }

    /// Processes a cumulative acknowledgement up to `ack`.
    #[inline]
    pub(crate) fn on_acknowledged(&mut self, ack: Sequence, delivery: &mut Delivery) {
        let mut popped = 0;
        while let Some(front) = self.records.front_mut() {
            if !front.start.lt(ack) {
                break;
            }
            let mut done = *front;
            let whole = front.end.le(ack);
            if !whole {
                done.end = ack;
                front.start = ack;
            } else {
                popped += 1;
            }
            if done.sacked {
                self.sacked -= done.bytes();
                // `popped` already counts this record if it is removed.
                if popped - usize::from(whole) >= self.border {
                    self.above -= done.bytes();
                }
            } else {
                delivery.note(&done);
                delivery.acks_retransmission |= done.ambiguous;
                if done.in_flight() {
                    self.flight -= done.bytes();
                } else {
                    self.lost -= done.bytes();
                }
            }
            if !whole {
                break;
            }
            self.records.pop_front();
        }
        for cursor in [&mut self.lost_from, &mut self.fresh_from, &mut self.border] {
            *cursor = cursor.saturating_sub(popped);
        }
        while self.retransmissions.front().is_some_and(|(_, _, end)| end.le(ack)) {
            self.retransmissions.pop_front();
        }
        if self.highest.is_some_and(|highest| highest.le(ack)) {
            self.highest = None;
        }
    }

    /// Processes SACK blocks, all of which lie between the first unacknowledged byte and the last byte sent.
    pub(crate) fn on_sack(&mut self, blocks: &[SackBlock], delivery: &mut Delivery) {
        let mut news = [SackBlock::default(); SACK_BLOCKS_MAX];
        for (place, block) in blocks.iter().enumerate().take(SACK_BLOCKS_MAX) {
            let mut left = block.left;
            // Blocks grow at their end, so skip the part that the last acknowledgement already covered.
            for known in &self.known {
                if known.left.le(left) && left.lt(known.right) {
                    left = known.right;
                }
            }
            let right =
                if left.lt(block.right) { self.mark(left, block.right, delivery) } else { block.right };
            news[place] = SackBlock { left: block.left, right };
        }
        self.known = news;
    }

    /// Marks the units within `left..right` as sacked. Returns the end up to which every unit is marked.
    fn mark(&mut self, left: Sequence, right: Sequence, delivery: &mut Delivery) -> Sequence {
        let mut covered = right;
        let first = self.records.partition_point(|record| record.end.le(left));
        let mut index = first;
        while let Some(record) = self.records.get(index).copied() {
            if !record.start.lt(right) {
                break;
            }
            if record.sacked {
                index += self.run(index);
                continue;
            }
            // Only units that lie wholly within the block count. The last unit may be short.
            let unit = u32::from(record.unit);
            let from = match record.start.lt(left) {
                true => record.start.distance(left).div_ceil(unit) * unit,
                false => 0,
            };
            let upto = match right.lt(record.end) {
                true => record.start.distance(right) / unit * unit,
                false => record.bytes(),
            };
            if right.lt(record.end) {
                covered = record.start + upto;
            }
            if from >= upto {
                index += 1;
                continue;
            }
            if upto < record.bytes() {
                self.cut(index, upto);
            }
            if from > 0 {
                self.cut(index, from);
                index += 1;
            }
            let record = &mut self.records[index];
            let (bytes, flies) = (record.bytes(), record.in_flight());
            (record.sacked, record.stride) = (true, 1);
            delivery.note(record);
            delivery.sacked_bytes += bytes;
            let end = record.end;
            if flies {
                self.flight -= bytes;
            } else {
                self.lost -= bytes;
            }
            self.sacked += bytes;
            self.above += if index >= self.border { bytes } else { 0 };
            self.highest = Some(self.highest.map_or(end, |highest| highest.max(end)));
            index += 1;
        }
        // Join runs that are now adjacent into one stride.
        if let Some(start) = self.records.get(first).filter(|record| record.sacked).map(|_| first) {
            self.run(start);
        }
        if first > 0 && self.records[first - 1].sacked {
            self.run(first - 1);
        }
        covered
    }

    /// Returns the number of consecutive sacked records from `index` on, and stores it as the stride.
    fn run(&mut self, index: usize) -> usize {
        let mut next = index;
        while let Some(record) = self.records.get(next) {
            if !record.sacked {
                break;
            }
            next += (record.stride as usize).max(1);
        }
        let run = next - index;
        self.records[index].stride = run as u32;
        run
    }

    /// Splits the record at `index`, which is not sacked, `at` bytes from its start.
    fn cut(&mut self, index: usize, at: u32) {
        let mut rest = self.records[index];
        rest.start += at;
        self.records[index].end = rest.start;
        self.records.insert(index + 1, rest);
        for cursor in [&mut self.lost_from, &mut self.fresh_from, &mut self.border] {
            // A cursor beyond the record moves past both halves.
            *cursor += usize::from(*cursor > index);
        }
    }

    // ---- Loss ----

    fn mark_lost(&mut self, index: usize) {
        let record = &mut self.records[index];
        if record.in_flight() {
            self.flight -= record.bytes();
            self.lost += record.bytes();
            (record.lost, record.retransmitted) = (true, false);
            self.lost_from = self.lost_from.min(index);
        }
    }

    /// Counts a duplicate ACK without SACK: one segment of `mss` bytes has left the network (RFC 5681 §3.2).
    pub(crate) fn on_dup_ack(&mut self, mss: u32) {
        self.dup_acked = (self.dup_acked + mss).min(self.flight);
    }

    /// Deducts `bytes` cumulatively acknowledged without SACK, all but the first segment, from those counted
    /// by duplicate ACKs.
    pub(crate) fn deduct_dup_acked(&mut self, bytes: u32, mss: u32) {
        self.dup_acked = self.dup_acked.saturating_sub(bytes.saturating_sub(mss)).min(self.flight);
    }

    /// Clears the count of duplicate ACKs: everything is acknowledged.
    pub(crate) fn clear_dup_acked(&mut self) {
        self.dup_acked = 0;
    }

    /// Marks the first outstanding unit as lost (RFC 6582: a partial ACK, or the third duplicate).
    pub(crate) fn mark_first_lost(&mut self) {
        let Some(record) = self.records.front() else { return };
        if record.lost && !record.retransmitted || record.sacked {
            return;
        }
        if record.bytes() > u32::from(record.unit) {
            self.cut(0, u32::from(record.unit));
        }
        self.mark_lost(0);
        self.dup_acked = self.dup_acked.min(self.flight);
    }

    /// Marks everything that is not sacked as lost, after a timeout (RFC 6298 §5.4, RFC 6675 §5.1).
    pub(crate) fn mark_all_lost(&mut self) {
        for index in 0..self.records.len() {
            if !self.records[index].sacked {
                self.mark_lost(index);
            }
        }
        self.retransmissions.clear();
        self.dup_acked = 0;
    }

    /// Clears the marks of lost records that were sent only once: they are late, not lost.
    pub(crate) fn unmark_lost(&mut self) {
        for record in &mut self.records {
            if record.lost && !record.ambiguous && !record.sacked {
                record.lost = false;
                self.flight += record.bytes();
                self.lost -= record.bytes();
            }
        }
        (self.fresh_from, self.border, self.above) = (0, 0, self.sacked);
    }

    /// Limits units to `unit` bytes after the path MTU fell; lost data is resent in smaller units.
    pub(crate) fn shorten(&mut self, unit: u16) {
        for record in &mut self.records {
            record.unit = record.unit.min(unit.max(1));
        }
    }

    /// Clears all SACK marks, because the peer discarded data that it had SACKed (RFC 2018 §8).
    pub(crate) fn renege(&mut self) {
        for record in &mut self.records {
            if core::mem::take(&mut record.sacked) {
                self.flight += if record.in_flight() { record.bytes() } else { 0 };
                self.lost += if record.in_flight() { 0 } else { record.bytes() };
            }
        }
        (self.sacked, self.highest, self.lost_from) = (0, None, 0);
        (self.fresh_from, self.border, self.above) = (0, 0, 0);
        let resent = self.records.iter().filter(|record| record.lost && record.retransmitted);
        self.retransmissions = resent.map(|record| (record.sent_at, record.start, record.end)).collect();
        self.retransmissions.make_contiguous().sort_by_key(|(sent_at, ..)| *sent_at);
        self.known = [SackBlock::default(); SACK_BLOCKS_MAX];
    }

    /// Returns whether the first outstanding record is sacked, which means that the peer reneged.
    pub(crate) fn is_reneged(&self) -> bool {
        self.records.front().is_some_and(|record| record.sacked)
    }

    /// Marks records with `bytes` sacked above them as lost (RFC 6675 §4, IsLost). Returns whether there were
    /// any.
    pub(crate) fn mark_lost_below(&mut self, bytes: u32) -> bool {
        let before = self.lost;
        // Lost and sacked records stay lost or sacked, so the border only advances.
        while self.above >= bytes
            && let Some(record) = self.records.get(self.border).copied()
        {
            if record.sacked {
                if self.above - record.bytes() < bytes {
                    break;
                }
                self.above -= record.bytes();
            } else if !record.lost {
                // Retransmissions are not marked as lost again before a timeout.
                self.mark_lost(self.border);
            }
            self.border += 1;
        }
        self.lost > before
    }

    /// Marks records as lost that were sent before the latest delivered transmission and more than `patience`
    /// ago (RFC 8985 §6.2, step 5). Returns whether there were any, and when the next becomes overdue if
    /// nothing else arrives.
    pub(crate) fn mark_overdue_lost(
        &mut self,
        latest: (Instant, Sequence),
        patience: Duration,
        now: Instant,
    ) -> (bool, Instant) {
        let before = self.lost;
        let fresh = self.mark_overdue_originals_lost(latest, patience, now);
        let again = self.mark_overdue_retransmissions_lost(latest, patience, now);
        (self.lost > before, fresh.min(again))
    }

    /// Checks first transmissions, in stream order. If one is not overdue, neither are those after it.
    fn mark_overdue_originals_lost(
        &mut self,
        (moment, end): (Instant, Sequence),
        patience: Duration,
        now: Instant,
    ) -> Instant {
        while let Some(record) = self.records.get(self.fresh_from).copied() {
            if record.sacked {
                self.fresh_from += self.run(self.fresh_from);
                continue;
            }
            if !record.lost {
                if !record.sent_before(moment, end) {
                    return Instant::NEVER;
                }
                let due = record.sent_at + patience;
                if due > now {
                    return due;
                }
                self.mark_lost(self.fresh_from);
            }
            self.fresh_from += 1;
        }
        Instant::NEVER
    }

    /// Checks retransmissions, in order of send time.
    fn mark_overdue_retransmissions_lost(
        &mut self,
        (moment, end): (Instant, Sequence),
        patience: Duration,
        now: Instant,
    ) -> Instant {
        while let Some((sent_at, from, to)) = self.retransmissions.front().copied() {
            let due = sent_at + patience;
            if sent_at > moment || (sent_at == moment && !to.lt(end)) {
                return Instant::NEVER;
            }
            let mut index = self.records.partition_point(|record| record.end.le(from));
            while let Some(record) = self.records.get(index).copied()
                && record.start.lt(to)
            {
                if record.sacked {
                    index += self.run(index);
                    continue;
                }
                if record.lost && record.retransmitted && record.sent_at == sent_at {
                    if due > now {
                        return due;
                    }
                    self.mark_lost(index);
                }
                index += 1;
            }
            self.retransmissions.pop_front();
        }
        Instant::NEVER
    }

    // ---- Retransmission ----

    /// Takes the first run of lost bytes for retransmission: at most `most` bytes, and at least one unit.
    pub(crate) fn take_lost(&mut self, most: u32, now: Instant) -> Option<(Sequence, u32)> {
        if self.lost == 0 {
            return None;
        }
        let waits = |record: &Record| record.lost && !record.retransmitted && !record.sacked;
        let mut index = self.lost_from;
        while !waits(self.records.get(index)?) {
            index += if self.records[index].sacked { self.run(index) } else { 1 };
        }
        let unit = u32::from(self.records[index].unit);
        let most = (most / unit).max(1) * unit;
        if self.records[index].bytes() > most {
            self.cut(index, most);
        }
        // Join neighbouring lost records.
        let mut last = index;
        let mut bytes = self.records[index].bytes();
        while let Some(next) = self.records.get(last + 1) {
            if !waits(next) || bytes + next.bytes() > most {
                break;
            }
            bytes += next.bytes();
            last += 1;
        }
        let end = self.records[last].end;
        self.records.drain(index + 1..=last);
        for cursor in [&mut self.fresh_from, &mut self.border] {
            *cursor = if *cursor > last { *cursor - (last - index) } else { (*cursor).min(index + 1) };
        }
        let record = &mut self.records[index];
        record.end = end;
        record.sent_at = now;
        (record.retransmitted, record.ambiguous) = (true, true);
        self.lost -= bytes;
        self.flight += bytes;
        self.lost_from = index + 1;
        let start = self.records[index].start;
        self.retransmissions.push_back((now, start, end));
        Some((start, bytes))
    }

    /// Marks the bytes that `take_lost` took beyond the first `sent` as lost again.
    pub(crate) fn put_back(&mut self, start: Sequence, sent: u32) {
        let mut index = self.records.partition_point(|record| record.start.lt(start));
        if sent > 0 {
            self.cut(index, sent);
            index += 1;
        }
        self.mark_lost(index);
    }

    /// Takes the last outstanding unit that is not sacked, for a tail probe (RFC 8985 §7.3). The unit counts
    /// as sent now.
    pub(crate) fn take_last(&mut self, now: Instant) -> Option<(Sequence, u32)> {
        let mut index = self.records.iter().rposition(Record::in_flight)?;
        let unit = u32::from(self.records[index].unit);
        let bytes = self.records[index].bytes();
        if bytes > unit {
            self.cut(index, (bytes - 1) / unit * unit);
            index += 1;
        }
        let record = &mut self.records[index];
        record.sent_at = now;
        record.ambiguous = true;
        let (start, end) = (record.start, record.end);
        if record.retransmitted {
            self.retransmissions.push_back((now, start, end));
        }
        Some((start, start.distance(end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const UNIT: u32 = 10;
    /// The sequence numbers wrap during the test.
    const BEGIN: Sequence = Sequence(0xffff_ff80);

    /// The reference model: the state of one unit.
    #[derive(Clone, Copy, Default)]
    struct Unit {
        sacked: bool,
        lost: bool,
        resent: bool,
        /// Whether it was taken for retransmission.
        twice: bool,
        sent_at: Instant,
    }

    #[derive(Clone, Debug)]
    enum Step {
        Send(u32),
        Acknowledge(u32),
        /// SACK blocks as (offset from the first unacknowledged byte, length).
        Sack(Vec<(u32, u32)>),
        LoseBelow(u32),
        /// (age of the latest delivered transmission, RACK timeout), milliseconds.
        Overdue(u64, u64),
        LoseAll,
        LoseNone,
        Again(u32),
        PutBack(u32, u32),
        Renege,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (1u32..5).prop_map(Step::Send),
            2 => (1u32..8).prop_map(Step::Acknowledge),
            4 => prop::collection::vec((0u32..200, 1u32..120), 1..4).prop_map(Step::Sack),
            2 => (1u32..60).prop_map(Step::LoseBelow),
            3 => (0u64..30, 0u64..30).prop_map(|(ago, patience)| Step::Overdue(ago, patience)),
            1 => Just(Step::LoseAll),
            1 => Just(Step::LoseNone),
            3 => (1u32..50).prop_map(Step::Again),
            1 => (1u32..50, 0u32..3).prop_map(|(most, units)| Step::PutBack(most, units)),
            1 => Just(Step::Renege),
        ];
        prop::collection::vec(step, 1..150)
    }

    proptest! {
        #[test]
        fn the_scoreboard_agrees_with_a_model(steps in steps()) {
            let mut board = Scoreboard::default();
            let mut model: VecDeque<Unit> = VecDeque::new();
            let (mut una, mut now) = (BEGIN, Instant::ZERO);
            for step in steps {
                now += Duration::from_millis(1);
                let next = una + model.len() as u32 * UNIT;
                let mut delivery = Delivery::default();
                match step {
                    Step::Send(units) => {
                        board.on_sent(next, next + units * UNIT, UNIT as u16, now, false);
                        model.extend((0..units).map(|_| Unit { sent_at: now, ..Unit::default() }));
                    }
                    Step::Acknowledge(units) => {
                        let units = units.min(model.len() as u32);
                        una += units * UNIT;
                        board.on_acknowledged(una, &mut delivery);
                        let fresh = model.drain(..units as usize).filter(|unit| !unit.sacked).count();
                        prop_assert_eq!(delivery.bytes, fresh as u32 * UNIT);
                    }
                    Step::Sack(ranges) => {
                        let out = model.len() as u32 * UNIT;
                        let blocks: Vec<_> = ranges
                            .iter()
                            .filter(|(from, _)| *from < out)
                            .map(|(from, count)| SackBlock {
                                left: una + *from,
                                right: una + (from + count).min(out),
                            })
                            .collect();
                        board.on_sack(&blocks, &mut delivery);
                        let mut fresh = 0;
                        for (index, unit) in model.iter_mut().enumerate() {
                            let (left, right) = (una + index as u32 * UNIT, una + (index as u32 + 1) * UNIT);
                            let named = blocks.iter().any(|block| block.left.le(left) && right.le(block.right));
                            fresh += u32::from(named && !unit.sacked);
                            unit.sacked |= named;
                        }
                        prop_assert_eq!(delivery.sacked_bytes, fresh * UNIT);
                    }
                    Step::LoseBelow(bytes) => {
                        board.mark_lost_below(bytes);
                        let mut above = 0;
                        for unit in model.iter_mut().rev() {
                            if above >= bytes && !unit.sacked {
                                unit.resent &= unit.lost;
                                unit.lost = true;
                            }
                            above += if unit.sacked { UNIT } else { 0 };
                        }
                    }
                    Step::Overdue(ago, patience) => {
                        let ms = Duration::from_millis;
                        let latest = Instant::from_nanos(now.as_nanos().saturating_sub(ago * 1_000_000));
                        let before = board.lost();
                        let (found, again_at) = board.mark_overdue_lost((latest, una + (1 << 20)), ms(patience), now);
                        let mut next = Instant::NEVER;
                        for unit in model.iter_mut() {
                            let flies = !unit.sacked && (!unit.lost || unit.resent);
                            if flies && unit.sent_at <= latest {
                                if unit.sent_at + ms(patience) <= now {
                                    (unit.lost, unit.resent) = (true, false);
                                } else {
                                    next = next.min(unit.sent_at + ms(patience));
                                }
                            }
                        }
                        prop_assert_eq!(again_at, next);
                        prop_assert_eq!(found, board.lost() > before);
                    }
                    Step::LoseAll => {
                        board.mark_all_lost();
                        for unit in model.iter_mut().filter(|unit| !unit.sacked) {
                            (unit.lost, unit.resent) = (true, false);
                        }
                    }
                    Step::LoseNone => {
                        board.unmark_lost();
                        model.iter_mut().filter(|unit| !unit.sacked && !unit.twice).for_each(|unit| unit.lost = false);
                    }
                    Step::Again(most) | Step::PutBack(most, _) => {
                        let waits = |unit: &Unit| unit.lost && !unit.resent && !unit.sacked;
                        let first = model.iter().position(waits);
                        let taken = board.take_lost(most, now);
                        prop_assert_eq!(taken.map(|(at, _)| una.distance(at) / UNIT), first.map(|first| first as u32));
                        if let (Some((at, bytes)), Some(first)) = (taken, first) {
                            prop_assert!(bytes <= most.max(UNIT) && bytes >= UNIT);
                            let mut sent = bytes / UNIT;
                            if let Step::PutBack(_, units) = step && units < sent {
                                board.put_back(at, units * UNIT);
                                sent = units;
                            }
                            // Bytes that were put back count as retransmitted, too: they give no RTT sample.
                            let taken = model.iter_mut().skip(first).take((bytes / UNIT) as usize);
                            taken.for_each(|unit| unit.twice = true);
                            for unit in model.iter_mut().skip(first).take(sent as usize) {
                                prop_assert!(waits(unit));
                                (unit.resent, unit.sent_at) = (true, now);
                            }
                        }
                    }
                    Step::Renege => {
                        board.renege();
                        model.iter_mut().for_each(|unit| unit.sacked = false);
                    }
                }
                let sum = |which: &dyn Fn(&Unit) -> bool| model.iter().filter(|unit| which(unit)).count() as u32 * UNIT;
                prop_assert_eq!(board.sacked(), sum(&|unit| unit.sacked));
                prop_assert_eq!(board.lost(), sum(&|unit| !unit.sacked && unit.lost && !unit.resent));
                prop_assert_eq!(board.flight(), sum(&|unit| !unit.sacked && (!unit.lost || unit.resent)));
            }
        }
    }

    /// RFC 8985 §6.2: a segment sent before one that has arrived is lost once a round trip plus the
    /// reordering window has passed.
    #[test]
    fn a_segment_sent_before_a_delivered_one_is_lost_after_the_reordering_window() {
        let mut board = Scoreboard::default();
        let ms = |n: u64| Instant::from_nanos(n * 1_000_000);
        for n in 0..4u32 {
            board.on_sent(BEGIN + n * UNIT, BEGIN + (n + 1) * UNIT, UNIT as u16, ms(u64::from(n)), false);
        }
        let mut delivery = Delivery::default();
        board.on_sack(&[SackBlock { left: BEGIN + 2 * UNIT, right: BEGIN + 3 * UNIT }], &mut delivery);
        let latest = delivery.latest.map(|(moment, end, _)| (moment, end)).unwrap();
        assert_eq!(latest, (ms(2), BEGIN + 3 * UNIT));
        let patience = Duration::from_millis(20);
        // At 20 ms the first is overdue, the second 1 ms later. The fourth was sent after the segment that
        // arrived.
        assert_eq!(board.mark_overdue_lost(latest, patience, ms(20)), (true, ms(21)));
        assert_eq!((board.lost(), board.flight()), (UNIT, 2 * UNIT));
        assert_eq!(board.mark_overdue_lost(latest, patience, ms(21)), (true, Instant::NEVER));
        assert_eq!(board.take_lost(2 * UNIT, ms(21)), Some((BEGIN, 2 * UNIT)));
        board.on_sack(&[SackBlock { left: BEGIN + 2 * UNIT, right: BEGIN + 4 * UNIT }], &mut delivery);
        // Retransmitted at 21 ms: lost again once a segment sent later has arrived.
        assert!(!board.mark_overdue_lost((ms(30), BEGIN + 4 * UNIT), patience, ms(40)).0);
        assert!(board.mark_overdue_lost((ms(30), BEGIN + 4 * UNIT), patience, ms(41)).0);
        assert_eq!(board.lost(), 2 * UNIT);
    }
}
