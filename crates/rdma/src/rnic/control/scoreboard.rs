//! The scoreboard of a requester: which packets in flight have arrived, and which are lost.
//!
//! Purpose     towards a peer that retransmits selectively, only what is lost is sent again.
//! Positions   one slot for each position that is not done: a packet of a request, or of an expected
//!             response.
//! Lost        every transmission has a serial number. The network keeps the order of a flow, so a packet is
//!             lost once a later transmission has arrived. This also finds retransmissions that are lost. The
//!             last packets of all have no later one: for these, the acknowledgement timer expires.
//! Ambiguity   if a packet was sent again, its arrival may be that of the first transmission. It proves that
//!             earlier transmissions are lost only if it comes a round trip after the last one; otherwise,
//!             one packet too many would have everything in flight sent again.
//! Requests    a request has arrived if the peer says so, but is done only once the peer has executed it,
//!             with everything before it. The peer may keep a read until then: its response is not lost, and
//!             counts as asked for when it is executed.
//! Cost        constant for each packet sent, acknowledged or lost.
//! Limits      as many slots as the requester's window has packets. `lost` has each of them once; `order`
//!             forgets earlier transmissions of what was sent again once they are more than the slots.

use alloc::collections::VecDeque;
use core::ops::Range;
use core::time::Duration;
use kiban_base::Instant;

/// How many entries `order` may have beside two for each slot before it is cleaned up.
const ORDER_SPARE: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    InFlight,
    /// A read request has arrived, and the peer keeps it until what is missing before it arrives.
    Kept,
    /// To be sent again.
    Lost,
    Arrived,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The number and the time of its last transmission, and whether there was an earlier one.
    serial: u64,
    sent_at: Instant,
    was_sent_before: bool,
    state: State,
    /// Whether it is a packet of a response.
    is_response: bool,
    /// Whether it is in `Scoreboard::lost`.
    is_queued: bool,
}

/// The packets in flight.
#[derive(Debug, Default)]
pub(in super::super) struct Scoreboard {
    /// The position of the first slot.
    base: u64,
    slots: VecDeque<Slot>,
    /// The transmissions that may be in flight, oldest first: serial number and position.
    order: VecDeque<(u64, u64)>,
    /// The number of the next transmission, and the highest that has arrived.
    next_serial: u64,
    arrived_serial: u64,
    /// The shortest time from a transmission to the report of its arrival.
    round_trip_min: Option<Duration>,
    /// The peer has executed all requests before this position.
    executed: u64,
    /// Positions to be sent again. Some may have arrived since.
    lost: VecDeque<u64>,
    /// How many slots are lost.
    lost_count: usize,
    /// Whether something has arrived since [`Scoreboard::take_news`].
    has_news: bool,
}

impl Scoreboard {
    fn slot(&self, position: u64) -> Option<&Slot> {
        self.slots.get(usize::try_from(position.checked_sub(self.base)?).ok()?)
    }

    /// Changes the state of a position, if it is in flight. Returns its slot.
    fn set(&mut self, position: u64, state: State) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(usize::try_from(position.checked_sub(self.base)?).ok()?)?;
        self.lost_count -= usize::from(slot.state == State::Lost);
        self.lost_count += usize::from(state == State::Lost);
        self.has_news |= slot.state != state && matches!(state, State::Arrived | State::Kept);
        slot.state = state;
        Some(slot)
    }

    /// Draws conclusions from the arrival of the last transmission of a position.
    fn learn(&mut self, position: u64, now: Instant) {
        let Some(&Slot { serial, sent_at, was_sent_before, .. }) = self.slot(position) else { return };
        let round_trip = now.since(sent_at);
        if was_sent_before {
            if self.round_trip_min.is_none_or(|least| round_trip < least) {
                return;
            }
        } else {
            self.round_trip_min = Some(self.round_trip_min.map_or(round_trip, |least| least.min(round_trip)));
        }
        self.arrived_serial = self.arrived_serial.max(serial);
    }

    /// Records that the packets at these positions were sent or, if they are packets of a response, asked
    /// for.
    pub(in super::super) fn on_sent(&mut self, positions: Range<u64>, is_response: bool, now: Instant) {
        for position in positions {
            let serial = self.next_serial;
            self.next_serial += 1;
            self.order.push_back((serial, position));
            let state = State::InFlight;
            match self.set(position, state) {
                Some(slot) => (slot.serial, slot.sent_at, slot.was_sent_before) = (serial, now, true),
                None => {
                    // After a stale RNR NAK, requests are sent again that the peer has executed.
                    let is_executed = position < self.executed && !is_response;
                    let state = if is_executed { State::Arrived } else { state };
                    let (was_sent_before, is_queued) = (false, false);
                    let slot = Slot { serial, sent_at: now, was_sent_before, state, is_response, is_queued };
                    self.slots.push_back(slot);
                }
            }
        }
        if self.order.len() > 2 * self.slots.len() + ORDER_SPARE {
            let mut order = core::mem::take(&mut self.order);
            order
                .retain(|(serial, position)| self.slot(*position).is_some_and(|slot| slot.serial == *serial));
            self.order = order;
        }
    }

    /// Returns whether the packet at a position is still expected.
    pub(in super::super) fn is_missing(&self, position: u64) -> bool {
        self.slot(position).is_some_and(|slot| slot.state != State::Arrived)
    }

    /// Returns whether the peer was believed to keep the request at a position.
    pub(in super::super) fn is_kept(&self, position: u64) -> bool {
        let is_kept = |slot: &Slot| match slot.state {
            State::Kept => true,
            State::Arrived => !slot.is_response,
            State::InFlight | State::Lost => false,
        };
        position >= self.executed && self.slot(position).is_some_and(is_kept)
    }

    /// Records that the packet at a position has arrived.
    pub(in super::super) fn on_arrived(&mut self, position: u64, now: Instant) {
        if self.is_missing(position) {
            self.set(position, State::Arrived);
            self.learn(position, now);
        }
    }

    /// Records that the peer keeps a read request, whose response has these positions.
    pub(in super::super) fn on_kept(&mut self, positions: Range<u64>, now: Instant) {
        self.learn(positions.start, now);
        for position in positions {
            if self.is_missing(position) {
                self.set(position, State::Kept);
            }
        }
    }

    /// Records that the peer has executed all requests before a position.
    pub(in super::super) fn on_executed(&mut self, upto: u64, now: Instant) {
        for position in self.executed.max(self.base)..upto.min(self.base + self.slots.len() as u64) {
            let Some(&Slot { state, is_response, .. }) = self.slot(position) else { continue };
            if !is_response {
                self.on_arrived(position, now);
            } else if state == State::Kept {
                self.on_sent(position..position + 1, true, now);
            }
        }
        self.has_news |= upto > self.executed;
        self.executed = self.executed.max(upto);
    }

    /// Returns whether something has arrived since the last call.
    pub(in super::super) fn take_news(&mut self) -> bool {
        core::mem::take(&mut self.has_news)
    }

    /// Returns the position before which the peer has executed all requests.
    pub(in super::super) fn executed(&self) -> u64 {
        self.executed
    }

    /// Forgets what is done, and returns the first position that is not.
    pub(in super::super) fn settle(&mut self) -> u64 {
        while let Some(slot) = self.slots.front()
            && slot.state == State::Arrived
            && (slot.is_response || self.base < self.executed)
        {
            self.slots.pop_front();
            self.base += 1;
        }
        self.base
    }

    /// Finds what is lost, and returns how many packets.
    pub(in super::super) fn find_lost(&mut self) -> u32 {
        let mut count = 0;
        while let Some(&(serial, position)) = self.order.front()
            && serial <= self.arrived_serial
        {
            self.order.pop_front();
            if self.slot(position).is_some_and(|slot| (slot.serial, slot.state) == (serial, State::InFlight))
            {
                if self.set_lost(position) {
                    self.lost.push_back(position);
                }
                count += 1;
            }
        }
        count
    }

    /// Takes the packet at a position for lost. Returns whether it is to be put into `lost`.
    fn set_lost(&mut self, position: u64) -> bool {
        let slot = self.set(position, State::Lost);
        slot.is_some_and(|slot| !core::mem::replace(&mut slot.is_queued, true))
    }

    /// Takes the packets at these positions for lost, unless a response has arrived. They are sent first.
    pub(in super::super) fn lose(&mut self, positions: Range<u64>) {
        for position in positions.rev() {
            // A request that has arrived is sent again, too: the report of its execution may be lost.
            if (self.is_missing(position) || self.is_kept(position)) && self.set_lost(position) {
                self.lost.push_front(position);
            }
        }
    }

    /// Forgets everything from a position on, because the peer drops it. It is sent anew.
    pub(in super::super) fn truncate(&mut self, position: u64) {
        let length = usize::try_from(position.saturating_sub(self.base)).unwrap_or(usize::MAX);
        let dropped = self.slots.iter().skip(length);
        self.lost_count -= dropped.filter(|slot| slot.state == State::Lost).count();
        self.slots.truncate(length);
        self.lost.retain(|lost| *lost < position);
    }

    /// Returns the next position to be sent again.
    pub(in super::super) fn next_lost(&mut self) -> Option<u64> {
        while let Some(&position) = self.lost.front() {
            if self.is_lost(position) {
                return Some(position);
            }
            self.lost.pop_front();
            if let Some(index) = position.checked_sub(self.base)
                && let Some(slot) = self.slots.get_mut(index as usize)
            {
                slot.is_queued = false;
            }
        }
        None
    }

    /// Returns whether something is to be sent again.
    pub(in super::super) fn has_lost(&self) -> bool {
        self.lost_count > 0
    }

    fn is_lost(&self, position: u64) -> bool {
        self.slot(position).is_some_and(|slot| slot.state == State::Lost)
    }

    /// Returns the end of the lost positions that begin with the next one and end before `end` at the latest.
    pub(in super::super) fn lost_run(&mut self, end: u64) -> Option<u64> {
        let first = self.next_lost()?;
        let run = self.lost.iter().zip(first..end);
        let run = run.take_while(|(position, expected)| **position == *expected && self.is_lost(*expected));
        Some(first + run.count() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const NOW: Instant = Instant::ZERO;

    fn board(requests: u64) -> Scoreboard {
        let mut board = Scoreboard::default();
        board.on_sent(0..requests, false, NOW);
        board
    }

    /// Returns what is to be sent again, and sends it.
    fn resend(board: &mut Scoreboard) -> Vec<u64> {
        let mut sent = Vec::new();
        while let Some(position) = board.next_lost() {
            board.on_sent(position..position + 1, false, NOW);
            sent.push(position);
        }
        sent
    }

    #[test]
    fn what_precedes_an_arrival_is_lost_once() {
        let mut board = board(10);
        board.on_arrived(3, NOW);
        board.on_arrived(6, NOW);
        assert_eq!(board.find_lost(), 5);
        assert_eq!(resend(&mut board), [0, 1, 2, 4, 5]);
        board.on_arrived(9, NOW);
        assert_eq!(board.find_lost(), 2);
        assert_eq!(resend(&mut board), [7, 8], "the first five are on their way");
        assert_eq!(board.settle(), 0, "nothing is executed");
    }

    #[test]
    fn a_lost_retransmission_is_noticed_when_a_later_packet_arrives() {
        let mut board = board(4);
        board.on_arrived(2, NOW);
        assert_eq!(board.find_lost(), 2);
        assert_eq!(resend(&mut board), [0, 1]);
        board.on_arrived(3, NOW);
        assert_eq!(board.find_lost(), 0, "it was sent before the retransmissions");
        board.on_sent(4..5, false, NOW);
        board.on_arrived(4, NOW);
        assert_eq!(board.find_lost(), 2);
        assert_eq!(resend(&mut board), [0, 1]);
        board.on_executed(5, NOW);
        assert_eq!(board.settle(), 5);
        assert_eq!((board.find_lost(), board.slots.len(), board.order.len()), (0, 0, 0));
    }

    #[test]
    fn a_packet_that_arrives_after_all_is_not_sent_again() {
        let mut board = board(3);
        board.on_arrived(2, NOW);
        assert_eq!(board.find_lost(), 2);
        board.on_arrived(0, NOW);
        assert!(board.has_lost());
        assert_eq!(resend(&mut board), [1]);
        assert!(!board.has_lost());
    }

    #[test]
    fn the_response_of_a_read_that_is_kept_is_awaited() {
        let mut board = board(1);
        board.on_sent(1..4, true, NOW);
        board.on_sent(4..5, false, NOW);
        board.on_kept(1..4, NOW);
        board.on_arrived(4, NOW);
        assert_eq!(board.find_lost(), 1);
        assert_eq!(resend(&mut board), [0]);
        board.on_executed(5, NOW);
        assert_eq!((board.find_lost(), board.settle()), (0, 1), "the response is on its way");
        // Its first and last packets arrive.
        board.on_arrived(1, NOW);
        board.on_arrived(3, NOW);
        assert_eq!((board.find_lost(), board.settle()), (1, 2));
        assert_eq!((board.next_lost(), board.lost_run(4)), (Some(2), Some(3)));
    }

    #[test]
    fn lost_packets_of_a_response_form_runs() {
        let mut board = Scoreboard::default();
        board.on_sent(0..8, true, NOW);
        board.on_arrived(2, NOW);
        board.on_arrived(6, NOW);
        board.find_lost();
        assert_eq!((board.next_lost(), board.lost_run(8)), (Some(0), Some(2)));
        board.on_sent(0..2, true, NOW);
        assert_eq!((board.next_lost(), board.lost_run(5)), (Some(3), Some(5)));
    }

    #[test]
    fn the_timer_sends_the_first_packets_before_others() {
        let mut board = board(6);
        board.on_arrived(4, NOW);
        board.find_lost();
        board.on_sent(0..1, false, NOW);
        board.lose(0..1);
        assert_eq!(resend(&mut board), [0, 1, 2, 3]);
    }

    #[test]
    fn the_arrival_of_a_first_transmission_does_not_make_later_packets_lost() {
        let at = |micros| NOW + Duration::from_micros(micros);
        let mut board = board(4);
        // The report of 0 and 1 is lost, and that of 2 takes a round trip of 100 microseconds.
        board.on_arrived(2, at(100));
        assert_eq!(board.find_lost(), 2);
        board.on_sent(4..6, false, at(100));
        for position in [0, 1] {
            board.on_sent(position..position + 1, false, at(101));
        }
        board.on_arrived(0, at(120));
        assert_eq!(board.find_lost(), 0);
        board.on_arrived(1, at(201));
        assert_eq!(
            board.find_lost(),
            3,
            "a round trip after the last transmission of 1: 3, 4 and 5 are lost"
        );
    }

    #[test]
    fn a_peer_that_refuses_again_and_again_costs_no_memory() {
        // A read of 500 packets, and a request that stays in flight before it.
        let mut board = board(1);
        board.on_sent(1..501, true, NOW);
        for _ in 0..1000 {
            board.lose(1..501);
            // What the peer says to be kept may be refused, too.
            board.on_kept(1..501, NOW);
            board.lose(1..501);
        }
        assert_eq!((board.lost.len(), board.next_lost(), board.lost_run(501)), (500, Some(1), Some(501)));
        for _ in 0..1000 {
            board.lose(1..501);
            board.on_sent(1..501, true, NOW);
        }
        assert!(board.order.len() <= 2 * 501 + ORDER_SPARE, "{}", board.order.len());
        assert_eq!(board.next_lost(), None);
        board.on_arrived(500, NOW);
        assert_eq!((board.find_lost(), board.next_lost()), (500, Some(0)));
    }

    #[test]
    fn requests_that_are_sent_again_after_their_execution_are_done() {
        let mut board = board(4);
        // A stale RNR NAK of 1 comes before the acknowledgement of all.
        board.on_executed(1, NOW);
        board.truncate(1);
        board.on_executed(4, NOW);
        assert_eq!(board.settle(), 1);
        board.on_sent(1..4, false, NOW);
        assert_eq!((board.settle(), board.find_lost()), (4, 0));
    }
}
