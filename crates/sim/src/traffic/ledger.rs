//! A ledger of a flow: records which cells were sent, and which arrived when.
//!
//! Cells have no numbers, so they are identified by their payloads, which sources make unique. A network
//! keeps the order within a circuit, so when a cell arrives, all earlier cells that have not arrived are
//! lost. The loss counters of the sources and sinks themselves are not used.

use kiban_base::Instant;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// How far ahead in the log to search for an arriving cell. This is further than all queues and lines can
/// hold.
const AHEAD_MAX: usize = 1 << 17;

/// Events since the last call of `take`.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Cells sent.
    pub offered: u64,
    /// Cells that arrived.
    pub carried: u64,
    /// Cells known to be lost.
    pub lost: u64,
    /// Cells with an unknown payload, and duplicates.
    pub strange: u64,
    /// The delay of each cell that arrived, in nanoseconds.
    pub delays: Vec<u64>,
}

/// The log of a flow.
#[derive(Debug, Default)]
pub struct CellLog {
    under_way: VecDeque<(u64, Instant)>,
    tally: Tally,
}

/// A log that the source and the sink of a flow share.
pub type Shared = Rc<RefCell<CellLog>>;

impl CellLog {
    /// Returns an empty log.
    pub fn shared() -> Shared {
        Shared::default()
    }

    /// Records a cell that was sent.
    pub fn sent(&mut self, payload: &[u8; 48], at: Instant) {
        self.under_way.push_back((print(payload), at));
        self.tally.offered += 1;
    }

    /// Records a cell that arrived.
    pub fn arrived(&mut self, payload: &[u8; 48], at: Instant) {
        let print = print(payload);
        let found = self.under_way.iter().take(AHEAD_MAX).position(|(sent, _)| *sent == print);
        let Some(before) = found else {
            self.tally.strange += 1;
            return;
        };
        self.tally.lost += before as u64;
        self.tally.carried += 1;
        let (_, sent) = self.under_way.drain(..=before).next_back().expect("it was found");
        self.tally.delays.push(at.since(sent).as_nanos() as u64);
    }

    /// Ends the log: cells still in transit are lost.
    pub fn close(&mut self) {
        self.tally.lost += self.under_way.len() as u64;
        self.under_way.clear();
    }

    /// Returns the events since the last call.
    pub fn take(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }
}

/// Returns a hash of a payload.
fn print(payload: &[u8; 48]) -> u64 {
    let (words, _) = payload.as_chunks::<8>();
    words.iter().fold(0, |print: u64, word| {
        (print.rotate_left(23) ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_not_received_before_the_next_is_lost() {
        let mut ledger = CellLog::default();
        let at = Instant::from_nanos;
        for number in 0..6 {
            ledger.sent(&[number; 48], at(100 * u64::from(number)));
        }
        ledger.arrived(&[0; 48], at(50));
        ledger.arrived(&[3; 48], at(400));
        ledger.arrived(&[3; 48], at(401));
        ledger.arrived(&[4; 48], at(470));
        let tally = ledger.take();
        assert_eq!((tally.offered, tally.carried, tally.lost, tally.strange), (6, 3, 2, 1));
        assert_eq!(tally.delays, [50, 100, 70]);
        ledger.close();
        assert_eq!(ledger.take().lost, 1);
    }
}
