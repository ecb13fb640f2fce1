//! An impaired link: loss, delay, a rate, reordering, duplicates and flipped bits, reproducible from a seed.
//!
//! Purpose          apply the impairments of the simulator's lines and cables ([`kiban_board::impairment`])
//!                  to any real link, in both directions.
//! Path             a unit waits while those before it are sent at `rate`, then travels for `delay` plus up
//!                  to `jitter`. It is impaired on the way, as on a cable of the simulator. Jitter keeps the
//!                  order; `reorder` does not (for cells, it holds back one circuit).
//! Copies           units in transit are held in separate memory and occupy no pages of the board.
//! Limits           in each direction, at most `units_max` units wait for the line, and as many are in
//!                  transit; further ones are dropped and counted.
//! Segments         if the link carries segments whole, each segment is a unit. To impair packets, open the
//!                  link without offloads.
//! Time             real time: units are sent in the driver's next turn, within the accuracy of its sleep.

use super::unit::{ReceivePage, Unit};
use super::{Link, LinkContext, LinkCounters, LinkTraits};
use kiban_base::{Instant, SimRng};
use kiban_board::impairment::{Impairment, ImpairmentConfig, ImpairmentCounters};
use kiban_board::pace::Pacer;
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// When to retry if the link below has no room.
const RETRY_AFTER: Duration = Duration::from_micros(200);

/// The impairments, for each direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImpairConfig {
    /// The rate, bit/s; with `None`, units are sent as fast as the link below allows.
    pub rate: Option<u64>,
    /// The one-way delay of a unit.
    pub delay: Duration,
    /// The maximum additional delay.
    pub jitter: Duration,
    /// Loss, flipped bits, duplicates, reordering.
    pub impairment: ImpairmentConfig,
    /// Maximum number of units that wait for the line, and also of units in transit.
    pub units_max: usize,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for ImpairConfig {
    fn default() -> ImpairConfig {
        let impairment = ImpairmentConfig { hold_back: Duration::from_millis(1), ..ImpairmentConfig::NONE };
        ImpairConfig {
            rate: None,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            impairment,
            units_max: 4096,
            seed: 1,
        }
    }
}

kiban_base::counters! {
    /// Drops that are not impairments.
    pub struct ImpairCounters {
        /// Units dropped because too many were waiting or in transit.
        queue_full,
    }
}

/// One direction.
struct Direction<C> {
    pace: Pacer,
    impairment: Impairment,
    rng: SimRng,
    /// Arrival time of the last unit. No later unit arrives before it, unless the later unit is reordered.
    last: Instant,
    in_transit: VecDeque<(Instant, C)>,
}

impl<C> Direction<C> {
    fn new(config: &ImpairConfig, number: u64) -> Direction<C> {
        let rng = SimRng::from_seed(config.seed).fork(number);
        Direction {
            pace: Pacer::default(),
            impairment: Impairment::new(config.impairment, rng.fork(1)),
            rng,
            last: Instant::ZERO,
            in_transit: VecDeque::new(),
        }
    }

    /// Puts a unit on the impaired path. Returns whether there was room for it.
    fn enter<U: Unit<Copy = C>>(&mut self, unit: &U, config: &ImpairConfig, now: Instant) -> bool {
        let left = match config.rate {
            Some(rate) => self.pace.admit(unit.bytes(), rate, config.units_max, now),
            None => Some(now),
        };
        let (Some(left), true) = (left, self.in_transit.len() < 2 * config.units_max) else { return false };
        let jitter = Duration::from_nanos(match config.jitter.as_nanos() as u64 {
            0 => 0,
            most => self.rng.below(most + 1),
        });
        self.last = self.last.max(left + config.delay + jitter);
        let under_way = &mut self.in_transit;
        U::impair(unit.copy(), self.last, &mut self.impairment, &mut |at, copy| {
            // A unit that was held back is queued behind those that overtook it.
            let position = match under_way.back() {
                Some(last) if last.0 > at => under_way.partition_point(|other| other.0 <= at),
                _ => under_way.len(),
            };
            under_way.insert(position, (at, copy));
        });
        true
    }

    /// Outputs the units that have arrived by `now`, as long as there is memory. Units for which there is no
    /// memory are counted.
    fn leave<U: Unit<Copy = C>>(
        &mut self,
        page: &mut ReceivePage,
        lent: &mut LinkContext<'_>,
        into: &mut VecDeque<U>,
        starved: &mut u64,
    ) {
        while self.in_transit.front().is_some_and(|front| front.0 <= lent.now) {
            let (_, copy) = self.in_transit.pop_front().expect("there is one");
            match U::from_copy(&copy, page, lent) {
                Some(unit) => into.push_back(unit),
                None => *starved += 1,
            }
        }
    }

    fn deadline(&self) -> Instant {
        self.in_transit.front().map_or(Instant::NEVER, |front| front.0)
    }
}

/// An impairment around a link.
pub struct Impaired<U: Unit, L: ?Sized = dyn Link<U>> {
    config: ImpairConfig,
    inward: Direction<U::Copy>,
    outward: Direction<U::Copy>,
    /// Units that the link below delivered in one call.
    fresh: VecDeque<U>,
    /// Units that have completed the impaired path, but that the link below has not taken yet.
    leaving: VecDeque<U>,
    page: ReceivePage,
    /// Units in and out, as seen by the board.
    counters: LinkCounters,
    impaired: ImpairCounters,
    retry_at: Instant,
    link: Box<L>,
}

impl<U: Unit, L: Link<U> + ?Sized> Impaired<U, L> {
    /// Wraps a link.
    pub fn new(link: Box<L>, config: ImpairConfig) -> Impaired<U, L> {
        Impaired {
            config,
            inward: Direction::new(&config, 0x696e),
            outward: Direction::new(&config, 0x6f7574),
            fresh: VecDeque::new(),
            leaving: VecDeque::new(),
            page: ReceivePage::default(),
            counters: LinkCounters::default(),
            impaired: ImpairCounters::default(),
            retry_at: Instant::NEVER,
            link,
        }
    }

    /// Returns the impairment counters of the receive and of the transmit direction.
    pub fn impairment_counters(&self) -> [&ImpairmentCounters; 2] {
        [self.inward.impairment.counters(), self.outward.impairment.counters()]
    }

    /// Returns the counters of other drops.
    pub fn drop_counters(&self) -> ImpairCounters {
        self.impaired
    }

    /// Passes units that have completed the impaired path to the link below.
    fn push(&mut self, lent: &mut LinkContext<'_>) -> io::Result<()> {
        let Impaired { outward, page, leaving, counters, .. } = self;
        outward.leave(page, lent, leaving, &mut counters.no_memory);
        self.retry_at = Instant::NEVER;
        if self.leaving.is_empty() {
            return Ok(());
        }
        self.link.send(&mut self.leaving, lent)?;
        if !self.leaving.is_empty() {
            self.retry_at = lent.now + RETRY_AFTER;
        }
        // If the link below accepts nothing for a long time, drop the oldest units, which hold the board's
        // memory.
        while self.leaving.len() > self.config.units_max {
            self.leaving.pop_front();
            self.impaired.queue_full += 1;
        }
        Ok(())
    }
}

impl<U: Unit, L: Link<U> + ?Sized> Link<U> for Impaired<U, L> {
    fn traits(&self) -> LinkTraits {
        self.link.traits()
    }

    fn receive(&mut self, lent: &mut LinkContext<'_>, into: &mut VecDeque<U>) -> io::Result<()> {
        self.push(lent)?;
        let result = self.link.receive(lent, &mut self.fresh);
        for unit in self.fresh.drain(..) {
            if !self.inward.enter(&unit, &self.config, lent.now) {
                self.impaired.queue_full += 1;
            }
        }
        let before = into.len();
        self.inward.leave(&mut self.page, lent, into, &mut self.counters.no_memory);
        for unit in into.range(before..) {
            self.counters.units_in += 1;
            self.counters.bytes_in += unit.bytes() as u64;
        }
        result
    }

    fn send(&mut self, units: &mut VecDeque<U>, lent: &mut LinkContext<'_>) -> io::Result<()> {
        for unit in units.drain(..) {
            self.counters.units_out += 1;
            self.counters.bytes_out += unit.bytes() as u64;
            if !self.outward.enter(&unit, &self.config, lent.now) {
                self.impaired.queue_full += 1;
            }
        }
        self.push(lent)
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        self.link.file()
    }

    fn deadline(&self) -> Instant {
        self.inward.deadline().min(self.outward.deadline()).min(self.retry_at).min(self.link.deadline())
    }

    fn counters(&self) -> LinkCounters {
        let below = self.link.counters();
        let total = |of: fn(&ImpairmentCounters) -> u64| self.impairment_counters().into_iter().map(of).sum();
        LinkCounters {
            no_memory: self.counters.no_memory + below.no_memory,
            malformed: below.malformed,
            wrong_sender: below.wrong_sender,
            overrun: below.overrun,
            send_errors: below.send_errors,
            no_peer: below.no_peer,
            impair_lost: total(|counters| counters.lost),
            impair_queue_full: self.impaired.queue_full,
            impair_corrupted: total(|counters| counters.corrupted),
            impair_duplicated: total(|counters| counters.duplicated),
            impair_reordered: total(|counters| counters.reordered),
            ..self.counters
        }
    }
}

impl<U: Unit, L: ?Sized> std::fmt::Debug for Impaired<U, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Impaired({:?})", self.config)
    }
}
