//! A link that is worse than it need be: loss, delay, a rate, reordering, duplicates, flipped bits, from a seed.
//!
//! Goal      the harm that the simulator's lines and cables do ([`kiban_board::harm`]), on any real link, both ways.
//! Way       a unit waits for those before it at `rate`, travels `delay` and up to `jitter` more, and meets harm on the way: as on a
//!           cable of the simulator. Jitter keeps the order; `reorder` does not (of cells it holds back a circuit).
//! Copies    what is under way stands in memory of its own, and keeps none of the board's pages.
//! Limits    `units_max` wait for the line and as many travel, in each direction; what finds no place is dropped and counted.
//! Segments  are units as well, if the link carries them whole: to impair packets, open the link without offloads.
//! Time      a real link's: units leave when the driver next looks, within the sleep's accuracy of their moment.

use super::unit::{Desk, Unit};
use super::{Lent, Link, LinkCounters, Traits};
use kiban_board::harm::{Harm, HarmCounters, Harmful};
use kiban_board::pace::Pace;
use kiban_ground::{Instant, SimRng};
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// How soon to look again when the link below has no room.
const AGAIN: Duration = Duration::from_micros(200);

/// What is done, in each direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImpairConfig {
    /// The rate, bit/s; none: as fast as the link below.
    pub rate: Option<u64>,
    /// How long a unit travels.
    pub delay: Duration,
    /// How much longer at most.
    pub jitter: Duration,
    /// Loss, flipped bits, duplicates, reordering.
    pub harm: Harm,
    /// Units that wait for the line, and that travel, at most.
    pub units_max: usize,
    /// Of all chance.
    pub seed: u64,
}

impl Default for ImpairConfig {
    fn default() -> ImpairConfig {
        let harm = Harm { hold_back: Duration::from_millis(1), ..Harm::NONE };
        ImpairConfig {
            rate: None,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            harm,
            units_max: 4096,
            seed: 1,
        }
    }
}

kiban_ground::counters! {
    /// What happened to units beside harm.
    pub struct ImpairCounters {
        /// Units that found too many waiting or under way.
        queue_full,
    }
}

/// One direction.
struct Way<C> {
    pace: Pace,
    harm: Harmful,
    chance: SimRng,
    /// No unit arrives before the one in front of it, unless it is reordered.
    last: Instant,
    under_way: VecDeque<(Instant, C)>,
}

impl<C> Way<C> {
    fn new(config: &ImpairConfig, number: u64) -> Way<C> {
        let chance = SimRng::from_seed(config.seed).fork(number);
        Way {
            pace: Pace::default(),
            harm: Harmful::new(config.harm, chance.fork(1)),
            chance,
            last: Instant::ZERO,
            under_way: VecDeque::new(),
        }
    }

    /// A unit sets out; whether it found room.
    fn enter<U: Unit<Copy = C>>(&mut self, unit: &U, config: &ImpairConfig, now: Instant) -> bool {
        let left = match config.rate {
            Some(rate) => self.pace.admit(unit.bytes(), rate, config.units_max, now),
            None => Some(now),
        };
        let (Some(left), true) = (left, self.under_way.len() < 2 * config.units_max) else { return false };
        let jitter = Duration::from_nanos(match config.jitter.as_nanos() as u64 {
            0 => 0,
            most => self.chance.below(most + 1),
        });
        self.last = self.last.max(left + config.delay + jitter);
        let under_way = &mut self.under_way;
        U::meet(unit.copy(), self.last, &mut self.harm, &mut |at, copy| {
            // What was held back stands behind those that overtook it.
            let place = match under_way.back() {
                Some(last) if last.0 > at => under_way.partition_point(|other| other.0 <= at),
                _ => under_way.len(),
            };
            under_way.insert(place, (at, copy));
        });
        true
    }

    /// What has arrived by `now` comes out, as long as there is memory; what finds none is counted.
    fn leave<U: Unit<Copy = C>>(
        &mut self,
        desk: &mut Desk,
        lent: &mut Lent<'_>,
        into: &mut VecDeque<U>,
        starved: &mut u64,
    ) {
        while self.under_way.front().is_some_and(|front| front.0 <= lent.now) {
            let (_, copy) = self.under_way.pop_front().expect("there is one");
            match U::of_copy(&copy, desk, lent) {
                Some(unit) => into.push_back(unit),
                None => *starved += 1,
            }
        }
    }

    fn deadline(&self) -> Instant {
        self.under_way.front().map_or(Instant::NEVER, |front| front.0)
    }
}

/// A link around a link.
pub struct Impaired<U: Unit, L: ?Sized = dyn Link<U>> {
    config: ImpairConfig,
    inward: Way<U::Copy>,
    outward: Way<U::Copy>,
    /// What came from the link below in one call.
    fresh: VecDeque<U>,
    /// What has travelled, and the link below did not take yet.
    leaving: VecDeque<U>,
    desk: Desk,
    /// Units in and out as seen from above.
    counters: LinkCounters,
    impaired: ImpairCounters,
    again: Instant,
    link: Box<L>,
}

impl<U: Unit, L: Link<U> + ?Sized> Impaired<U, L> {
    /// Impairs a link.
    pub fn new(link: Box<L>, config: ImpairConfig) -> Impaired<U, L> {
        Impaired {
            config,
            inward: Way::new(&config, 0x696e),
            outward: Way::new(&config, 0x6f7574),
            fresh: VecDeque::new(),
            leaving: VecDeque::new(),
            desk: Desk::default(),
            counters: LinkCounters::default(),
            impaired: ImpairCounters::default(),
            again: Instant::NEVER,
            link,
        }
    }

    /// What harm was done to what arrived, and to what left.
    pub fn harm(&self) -> [&HarmCounters; 2] {
        [self.inward.harm.counters(), self.outward.harm.counters()]
    }

    /// What was dropped beside.
    pub fn impaired(&self) -> ImpairCounters {
        self.impaired
    }

    /// What has travelled leaves.
    fn push(&mut self, lent: &mut Lent<'_>) -> io::Result<()> {
        let Impaired { outward, desk, leaving, counters, .. } = self;
        outward.leave(desk, lent, leaving, &mut counters.starved);
        self.again = Instant::NEVER;
        if self.leaving.is_empty() {
            return Ok(());
        }
        self.link.send(&mut self.leaving, lent)?;
        if !self.leaving.is_empty() {
            self.again = lent.now + AGAIN;
        }
        // It takes nothing for long: these hold the board's memory.
        while self.leaving.len() > self.config.units_max {
            self.leaving.pop_front();
            self.impaired.queue_full += 1;
        }
        Ok(())
    }
}

impl<U: Unit, L: Link<U> + ?Sized> Link<U> for Impaired<U, L> {
    fn traits(&self) -> Traits {
        self.link.traits()
    }

    fn receive(&mut self, lent: &mut Lent<'_>, into: &mut VecDeque<U>) -> io::Result<()> {
        self.push(lent)?;
        let result = self.link.receive(lent, &mut self.fresh);
        for unit in self.fresh.drain(..) {
            if !self.inward.enter(&unit, &self.config, lent.now) {
                self.impaired.queue_full += 1;
            }
        }
        let before = into.len();
        self.inward.leave(&mut self.desk, lent, into, &mut self.counters.starved);
        for unit in into.range(before..) {
            self.counters.units_in += 1;
            self.counters.bytes_in += unit.bytes() as u64;
        }
        result
    }

    fn send(&mut self, units: &mut VecDeque<U>, lent: &mut Lent<'_>) -> io::Result<()> {
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
        self.inward.deadline().min(self.outward.deadline()).min(self.again).min(self.link.deadline())
    }

    fn counters(&self) -> LinkCounters {
        let below = self.link.counters();
        let harm = |of: fn(&HarmCounters) -> u64| self.harm().into_iter().map(of).sum();
        LinkCounters {
            starved: self.counters.starved + below.starved,
            malformed: below.malformed,
            strangers: below.strangers,
            overrun: below.overrun,
            refused: below.refused,
            harm_lost: harm(|counters| counters.lost),
            harm_queue_full: self.impaired.queue_full,
            harm_flipped: harm(|counters| counters.flipped),
            harm_doubled: harm(|counters| counters.doubled),
            harm_held_back: harm(|counters| counters.held_back),
            ..self.counters
        }
    }
}

impl<U: Unit, L: ?Sized> std::fmt::Debug for Impaired<U, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Impaired({:?})", self.config)
    }
}
