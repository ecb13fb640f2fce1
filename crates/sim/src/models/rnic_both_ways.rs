//! Both directions of the RDMA NIC of paper \[3\] at once: the send module and the receive module share the
//! steering tag table (SMT), the physical buffer lists (PBLMT) and the DMA controller (DMAC).
//!
//! Source    figures 8 and 9 of the paper connect both modules to these three blocks. The paper measures each
//!           direction alone.
//! Model     each direction takes its steps one after another, as in [`Clocks::in_sequence`]. A step that
//!           uses a shared block waits until the block is free; the direction that has waited longest is
//!           next.
//! Assumed   whether the DMAC moves the data of both directions at the same time ([`Dmac`]): the paper does
//!           not say.
//!
//! \[3\]: Uchiyama and others, *Implementation of the RDMA communication mechanism on ExpEther*, 2008.

use super::rnic_clocks::{Clocks, mib_per_second};
use kiban_rdma::rnic::clocks::Step;

/// How the DMA controller moves data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dmac {
    /// Reads and writes have a word per clock each.
    OnePathEach,
    /// One word per clock in total: the data of one segment moves at a time.
    OnePathForBoth,
}

/// Throughput of both directions while both are busy.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BothWays {
    /// MiB/s sent.
    pub send: f64,
    /// MiB/s received.
    pub receive: f64,
}

/// The shared blocks.
#[derive(Clone, Copy)]
enum Shared {
    Smt,
    Pblmt,
    /// Accepts requests.
    DmaRequests,
    /// Moves data.
    DmaData,
}

impl Shared {
    fn of(step: Step, dmac: Dmac) -> Option<Shared> {
        match step {
            Step::ReadStag => Some(Shared::Smt),
            Step::ReadPbl => Some(Shared::Pblmt),
            Step::DmaRequest => Some(Shared::DmaRequests),
            Step::WritePayload(_) | Step::ReceivePayload(_) if dmac == Dmac::OnePathForBoth => {
                Some(Shared::DmaData)
            }
            _ => None,
        }
    }
}

/// One direction on its way through its steps.
struct Direction<'a> {
    steps: &'a [Step],
    next: usize,
    now: u64,
    bytes: u64,
}

impl Direction<'_> {
    /// Returns the next step and the earliest clock at which it can start.
    fn wish(&self, clocks: &Clocks) -> Option<(Step, u64)> {
        let step = *self.steps.get(self.next)?;
        let before = self.next.checked_sub(1).map(|at| self.steps[at]);
        Some((step, self.now + clocks.pause_between(before, step)))
    }

    fn take(&mut self, step: Step, start: u64, clocks: &Clocks) {
        self.now = start + clocks.of(step);
        self.next += 1;
        if let Step::WritePayload(bytes) | Step::ReceivePayload(bytes) = step {
            self.bytes += u64::from(bytes);
        }
    }
}

impl Clocks {
    /// Runs both directions from the same clock until one of them has taken all its steps, and returns the
    /// throughput of each until then. The lists should be long, because segments in progress do not count.
    pub fn both_ways(&self, sending: &[Step], receiving: &[Step], dmac: Dmac) -> BothWays {
        let mut directions = [sending, receiving].map(|steps| Direction { steps, next: 0, now: 0, bytes: 0 });
        let mut free = [0; Shared::DmaData as usize + 1];
        while let [Some(send), Some(receive)] = [0, 1].map(|at: usize| directions[at].wish(self)) {
            // The earlier wish is served first. At the same clock the receiver is, because its FIFO fills up.
            let (at, (step, wish)) = if send.1 < receive.1 { (0, send) } else { (1, receive) };
            let start = match Shared::of(step, dmac) {
                None => wish,
                Some(block) => {
                    let start = wish.max(free[block as usize]);
                    free[block as usize] = start + self.of(step);
                    start
                }
            };
            directions[at].take(step, start, self);
        }
        let clocks = directions.iter().map(|direction| direction.now).fold(1, u64::max);
        let [send, receive] = directions.map(|direction| mib_per_second(direction.bytes, clocks));
        BothWays { send, receive }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rnic_clocks::RDMA_NIC_2008;
    use super::*;

    /// A message of one segment.
    fn sent(bytes: u32) -> Vec<Step> {
        let front = [Step::ReadStag, Step::ReadPbl, Step::DmaRequest, Step::DmaLength, Step::SegmentLength];
        front.into_iter().chain([Step::Header(14), Step::ReadDma, Step::WritePayload(bytes)]).collect()
    }

    fn received(bytes: u32) -> Vec<Step> {
        vec![
            Step::ReceiveHeader(14),
            Step::ReadStag,
            Step::ReadPbl,
            Step::DmaRequest,
            Step::ReceivePayload(bytes),
        ]
    }

    #[test]
    fn a_direction_beside_an_idle_one_is_as_fast_as_alone() {
        let clocks = RDMA_NIC_2008;
        let (sending, idle) = (sent(1456).repeat(100), vec![Step::Accept; 1_000_000]);
        let both = clocks.both_ways(&sending, &idle, Dmac::OnePathForBoth);
        let alone = clocks.in_sequence(&sending);
        assert_eq!((both.send, both.receive), (mib_per_second(alone.bytes, alone.end), 0.0));
    }

    #[test]
    fn a_look_up_waits_for_the_other_directions_look_up() {
        let clocks = RDMA_NIC_2008;
        // Both ask for the same table all the time, so each has half of it.
        let look_ups = |payload: fn(u32) -> Step| [Step::ReadStag, payload(8)].repeat(1000);
        let both = clocks.both_ways(
            &look_ups(Step::WritePayload),
            &look_ups(Step::ReceivePayload),
            Dmac::OnePathEach,
        );
        let half = mib_per_second(8, 2 * clocks.read_stag);
        for rate in [both.send, both.receive] {
            assert!((rate / half - 1.0).abs() < 0.01, "{rate} beside {half}");
        }
    }

    #[test]
    fn one_path_for_the_data_of_both_directions_halves_long_segments() {
        let clocks = RDMA_NIC_2008;
        let (sending, receiving) = (sent(1456).repeat(1000), received(1456).repeat(1000));
        let each = clocks.both_ways(&sending, &receiving, Dmac::OnePathEach);
        let shared = clocks.both_ways(&sending, &receiving, Dmac::OnePathForBoth);
        let path = mib_per_second(8, 1);
        assert!(each.send + each.receive > 1.5 * path, "{each:?}");
        assert!(shared.send + shared.receive <= path, "{shared:?}");
        assert!(shared.send + shared.receive > 0.9 * path, "{shared:?}");
    }
}
