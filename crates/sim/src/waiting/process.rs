//! The process that waits.

use super::outcome::Outcome;
use super::queue::{Packet, ReceiveQueue};
use super::stalls::Stall;
use super::stalls::Stalls;
use kiban_base::{Costs, Evidence, Instant, SimRng, Step, Wait, Waiter};
use std::time::Duration;

/// A process as the model sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// Its wait policy.
    pub wait: Wait,
    /// The costs of waiting.
    pub costs: Costs,
    /// CPU time for a packet, after which the process reposts the descriptor.
    pub work: Duration,
    /// The stalls.
    pub stalls: Vec<Stall>,
    /// Seed of the stalls.
    pub seed: u64,
}

impl Process {
    /// Waits and works until no packets are left.
    pub fn run(&self, queue: &mut impl ReceiveQueue) -> Outcome {
        let stalls = Stalls::new(&self.stalls, SimRng::from_seed(self.seed));
        let mut waiter = Waiter::new(self.wait, self.costs);
        waiter.set_guard(queue.loss_guard());
        let mut run =
            Run { process: self, queue, waiter, stalls, now: Instant::ZERO, outcome: Outcome::default() };
        run.go();
        let Run { waiter, now, mut outcome, .. } = run;
        outcome.elapsed = now.since(Instant::ZERO);
        outcome.waits = *waiter.report();
        outcome
    }
}

struct Run<'a, Q> {
    process: &'a Process,
    queue: &'a mut Q,
    waiter: Waiter,
    stalls: Stalls,
    now: Instant,
    outcome: Outcome,
}

impl<Q: ReceiveQueue> Run<'_, Q> {
    fn go(&mut self) {
        loop {
            self.queue.advance(self.now);
            if let Some(packet) = self.queue.take() {
                self.waiter.at_once();
                self.handle(packet);
            } else if !self.wait() {
                return;
            }
        }
    }

    /// Waits for a packet and handles it. Returns false if there are no more packets.
    fn wait(&mut self) -> bool {
        self.waiter.begin(self.now);
        loop {
            let Some(arrival) = self.queue.next() else {
                self.waiter.on_timeout(self.now);
                return false;
            };
            let evidence = match self.waiter.step(self.now) {
                Step::Spin { until } => {
                    self.spin(arrival, until);
                    Evidence::Spinning
                }
                Step::Sleep { until } => self.sleep(arrival, until),
            };
            self.queue.advance(self.now);
            if let Some(packet) = self.queue.take() {
                self.waiter.on_arrival(self.now, evidence);
                self.handle(packet);
                return true;
            }
        }
    }

    /// Polls until a packet arrives, `until` is reached, or the process is stalled.
    fn spin(&mut self, arrival: Instant, until: Instant) {
        let end = arrival.min(until).max(self.now);
        let (ran, lost) = self.stalls.run(end.since(self.now), &mut self.outcome);
        self.outcome.spun += ran;
        self.now = self.now + ran + lost;
        if !lost.is_zero() {
            self.waiter.on_preempted(self.now, lost);
        }
    }

    fn sleep(&mut self, arrival: Instant, until: Instant) -> Evidence {
        let costs = &self.process.costs;
        self.outcome.sleeps += 1;
        self.outcome.slept += costs.sleep;
        let by_bell = arrival.max(self.now) + costs.wake;
        let awake = if arrival <= until { by_bell } else { by_bell.min(until + costs.timer_late) };
        self.now = awake + self.stalls.wake(&mut self.outcome);
        if arrival > self.now {
            return Evidence::Unrung;
        }
        self.outcome.slept += costs.ring;
        Evidence::Rung { at: arrival }
    }

    fn handle(&mut self, packet: Packet) {
        self.outcome.taken += 1;
        self.outcome.latencies.add(self.now.since(packet.wanted));
        let mut rest = self.process.work;
        self.outcome.worked += rest;
        while !rest.is_zero() {
            let (ran, lost) = self.stalls.run(rest, &mut self.outcome);
            rest -= ran;
            self.now = self.now + ran + lost;
        }
        self.queue.advance(self.now);
        self.queue.post(self.now);
    }
}
