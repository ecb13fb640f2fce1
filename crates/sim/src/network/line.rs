//! One direction of a line: cells in transit.
//!
//! A line is an ordinary value. A consumer *pulls* the line up to the time until which it needs arrivals: the
//! sender commits its slots in a plain loop, and the cells are delayed by the propagation time, impaired, and
//! made available. There is no event per cell. The times at which frames end are kept separately, because
//! only these matter to a receiver.

use crate::network::tap::Tap;
use kiban_atm::TimedCell;
use kiban_base::{Instant, SimRng};
use kiban_board::impairment::{Impairment, ImpairmentConfig, ImpairmentCounters};
use kiban_capture as capture;
use std::collections::VecDeque;
use std::time::Duration;

/// Speed of light in fibre, in metres per second (paper \[2\]).
pub(crate) const METRES_PER_SECOND: f64 = 2.1e8;

/// Returns the propagation delay of a fibre, given its length in metres.
pub fn delay_of(metres: f64) -> Duration {
    Duration::from_nanos((metres / METRES_PER_SECOND * 1e9).round() as u64)
}

/// A line with a length and impairments.
#[derive(Debug)]
pub struct Line {
    pub(crate) delay: Duration,
    pub(crate) under_way: VecDeque<TimedCell>,
    ends: VecDeque<Instant>,
    impairment: Impairment,
    tap: Option<Tap>,
    cells: u64,
    pub(crate) fresh: Vec<TimedCell>,
}

impl Line {
    pub(crate) fn new(metres: f64, impairment: ImpairmentConfig, rng: SimRng) -> Line {
        Line {
            delay: delay_of(metres),
            under_way: VecDeque::new(),
            ends: VecDeque::new(),
            impairment: Impairment::new(impairment, rng),
            tap: None,
            cells: 0,
            fresh: Vec::new(),
        }
    }

    /// Puts a tap on the line, which records arrivals.
    ///
    /// # Panics
    /// If the tap has been used on a cable.
    pub fn set_tap(&mut self, mut tap: Tap) {
        tap.begin(capture::LINK_TYPE_ERF);
        self.tap = Some(tap);
    }

    /// Removes and returns the tap.
    pub fn take_tap(&mut self) -> Option<Tap> {
        self.tap.take()
    }

    /// Returns the number of cells sent so far.
    pub fn cells(&self) -> u64 {
        self.cells
    }

    /// Returns the counters of impairments.
    pub fn impairment_counters(&self) -> &ImpairmentCounters {
        self.impairment.counters()
    }

    /// Sends the cells in `fresh`.
    pub(crate) fn depart(&mut self) {
        self.cells += self.fresh.len() as u64;
        for cell in &mut self.fresh {
            cell.at += self.delay;
        }
        if !self.impairment.is_none() {
            self.impairment.apply(&mut self.fresh, 0);
        }
        // If a circuit was held back, its cells may arrive after cells of a later burst. Sort the later cells
        // before them.
        let late =
            self.under_way.back().zip(self.fresh.first()).is_some_and(|(last, first)| first.at < last.at);
        self.ends.extend(self.fresh.iter().filter(|cell| cell.is_end()).map(|cell| cell.at));
        if let Some(tap) = &mut self.tap {
            self.fresh.iter().for_each(|cell| tap.record_cell(cell));
        }
        self.under_way.extend(&self.fresh);
        self.fresh.clear();
        if late {
            self.under_way.make_contiguous().sort_by_key(|cell| cell.at);
            self.ends.make_contiguous().sort();
        }
    }

    /// Returns when the next frame in transit ends.
    pub(crate) fn next_end(&self) -> Instant {
        self.ends.front().copied().unwrap_or(Instant::NEVER)
    }

    /// Moves the cells that have arrived by `until` to `out`.
    pub(crate) fn arrive(&mut self, until: Instant, out: &mut Vec<TimedCell>) {
        let count = if self.under_way.back().is_none_or(|last| last.at <= until) {
            self.under_way.len()
        } else {
            self.under_way.partition_point(|cell| cell.at <= until)
        };
        // Copy whole runs of cells, which is faster than one cell per call.
        let (front, back) = self.under_way.as_slices();
        let first = count.min(front.len());
        out.extend_from_slice(&front[..first]);
        out.extend_from_slice(&back[..count - first]);
        self.under_way.drain(..count);
        while self.ends.front().is_some_and(|end| *end <= until) {
            self.ends.pop_front();
        }
    }
}
