//! The receiving end of a mix: takes the cells out of datagrams, polices them, and passes them to the same
//! sinks as in the virtual network.
//!
//! Time      the arrival time of a cell is its due time plus the transit time of its datagram. The cells of a
//!           datagram therefore keep the intervals at which they were due. The sender's lateness is excluded,
//!           and all effects of the network are included. The two clocks are not synchronised, so only
//!           differences of delays are reported.
//! Police    GCRA is applied to all cells of a path in the order of these times. A cell waits for [`HOLD`],
//!           because cells of other circuits with earlier times may still arrive.
//! Order     a circuit keeps the order of its cells, as in ATM. A datagram that arrives after a later one is
//!           counted as reordered (RFC 4737 §3.3), and its cells are dropped, because the AAL cannot use
//!           them.
//! Bounds    the number of waiting cells is limited, and so is the number of missing datagrams that are still
//!           awaited. Frames and matrices have limits of their own.

use super::super::traffic::{self, contract};
use super::delays::Delays;
use super::messages::{FlowSample, FlowTotal, Incoming, MixRequest, MixTotal, Policed};
use super::wire::{self, NONCE_OCTETS};
use crate::mix::plan::Flow;
use kiban_atm::wire::atm::CELL_BYTES;
use kiban_atm::{Meter, TimedCell};
use kiban_base::Instant;
use kiban_sim::Terminal;
use kiban_sim::traffic::{CellLog, FrameSink, StreamSink};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::time::Duration;

/// How long cells wait for earlier cells of other circuits: longer than it takes to fill a datagram, plus
/// scheduling delays.
pub(crate) const HOLD: Duration = Duration::from_millis(20);
/// The maximum number of cells that wait.
const HELD_MAX: usize = 1 << 18;
/// The maximum number of missing datagrams of a circuit that are still awaited.
const MISSING_MAX: usize = 4096;
/// Added to all times, so that they do not become negative if the start message arrives late.
const BIAS: Duration = Duration::from_secs(10);
/// The bit in a cell's header that marks low priority (CLP).
const CLP: u32 = 1;

/// The receiving state of one circuit.
struct Circuit {
    flow: usize,
    path: Option<usize>,
    sink: Box<dyn Terminal>,
    /// The number of the next expected datagram, and of the next expected cell.
    next: (u32, u64),
    missing: BTreeSet<u32>,
    last: Instant,
    damaged: u64,
    came: u64,
}

/// A waiting cell: its time, its order of arrival and circuit, and its slot in `cells`.
type Held = Reverse<(Instant, u64, usize)>;

#[derive(Default)]
struct FlowState {
    sample: FlowSample,
    sample_delays: Delays,
    total: FlowTotal,
    delays: Delays,
    unit_delays: Delays,
}

/// The receiving end of a mix.
pub(crate) struct Receiver {
    nonce: [u8; NONCE_OCTETS],
    circuits: Vec<Circuit>,
    flows: Vec<FlowState>,
    paths: Vec<(Meter, bool)>,
    held: BinaryHeap<Held>,
    /// The waiting cells, in the slots to which `held` refers.
    cells: slab::Slab,
    order: u64,
    sample: Duration,
    sample_end: Instant,
    samples: Vec<Vec<FlowSample>>,
    left: usize,
    /// The shortest delay in each quarter of the run.
    quarters: [Option<i64>; 4],
    length: Duration,
}

/// Cells in reusable slots.
mod slab {
    use super::TimedCell;

    #[derive(Default)]
    pub(crate) struct Slab {
        cells: Vec<TimedCell>,
        free: Vec<usize>,
    }

    impl Slab {
        pub(crate) fn put(&mut self, cell: TimedCell) -> usize {
            if let Some(place) = self.free.pop() {
                self.cells[place] = cell;
                place
            } else {
                self.cells.push(cell);
                self.cells.len() - 1
            }
        }

        pub(crate) fn take(&mut self, place: usize) -> TimedCell {
            self.free.push(place);
            self.cells[place]
        }
    }
}

impl Incoming {
    /// Returns the flow as the plan describes it, without the sender's settings.
    fn flow(&self) -> Flow {
        Flow {
            mbps: self.mbps,
            fec: self.fec,
            block_octets: self.block_octets.map(|octets| octets as usize),
            stamps: self.stamps,
            clock_ppm: self.clock_ppm,
            frame_octets: self.frame_octets as usize,
            window_kib: self.window_kib,
            ranges: vec![[1.0, 1.0]],
            ..Flow::new("", self.kind, "", "")
        }
    }

    /// Validates the request; the error says what is wrong.
    pub(crate) fn validate(&self, paths: usize) -> Result<(), String> {
        self.flow().validate().map_err(|(wrong, remedy)| format!("{wrong}: {remedy}"))?;
        if self.path.is_some_and(|path| path as usize >= paths) {
            return Err("a flow names a path that does not exist".into());
        }
        Ok(())
    }
}

impl Policed {
    /// Validates the request; the error says what is wrong.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let good = (0.001..=100_000.0).contains(&self.mbps) && (0.001..=1e8).contains(&self.cdvt_us);
        if good { Ok(()) } else { Err("a contract has an invalid rate or tolerance".into()) }
    }
}

impl Receiver {
    /// Creates the receiver for a validated request.
    pub(crate) fn new(request: &MixRequest, nonce: [u8; NONCE_OCTETS]) -> Receiver {
        let length = Duration::from_millis(request.millis.into());
        let circuits = request.flows.iter().enumerate().flat_map(|(number, flow)| {
            let circuit = move |_| Circuit {
                flow: number,
                path: flow.path.map(|path| path as usize),
                // Loss is computed from sequence numbers, so the log of cells is not used at this end.
                sink: traffic::sink(&flow.flow(), length.as_secs_f64(), CellLog::shared()),
                next: (0, 0),
                missing: BTreeSet::new(),
                last: Instant::ZERO,
                damaged: 0,
                came: 0,
            };
            (0..flow.copies).map(circuit)
        });
        let sample = Duration::from_millis(request.sample_ms.into());
        Receiver {
            nonce,
            circuits: circuits.collect(),
            flows: request.flows.iter().map(|_| FlowState::default()).collect(),
            paths: request
                .paths
                .iter()
                .map(|path| (Meter::new(contract(path.mbps, path.cdvt_us)), path.tag))
                .collect(),
            held: BinaryHeap::new(),
            cells: slab::Slab::default(),
            order: 0,
            sample,
            sample_end: Instant::ZERO + BIAS + sample,
            samples: Vec::new(),
            left: length.as_millis().div_ceil(sample.as_millis().max(1)) as usize,
            quarters: [None; 4],
            length,
        }
    }

    /// Handles a datagram that arrived `at` nanoseconds after the start message; negative if it arrived
    /// before. Returns false if the datagram does not belong to this session.
    pub(crate) fn on_datagram(&mut self, octets: &[u8], at: i64) -> bool {
        let Some((head, cells)) = wire::read(octets).filter(|(head, _)| head.nonce == self.nonce) else {
            return false;
        };
        let Some(circuit) = self.circuits.get_mut(usize::from(head.circuit)) else { return false };
        let flow = &mut self.flows[circuit.flow];
        let delay = at - head.sent as i64;
        let (number, cell) = circuit.next;
        if head.number < number {
            if circuit.missing.remove(&head.number) {
                flow.total.reordered += 1;
                flow.delays.push(delay);
                flow.sample_delays.push(delay);
                flow.total.datagrams += 1;
                flow.total.cells += cells.len() as u64;
                circuit.came += 1;
            } else {
                flow.total.strange += cells.len() as u64;
            }
            return true;
        }
        let room = MISSING_MAX.saturating_sub(circuit.missing.len());
        circuit.missing.extend((number..head.number).take(room));
        flow.sample.cells_lost += head.cell.saturating_sub(cell);
        circuit.next = (head.number.saturating_add(1), head.cell + cells.len() as u64);
        circuit.came += 1;
        flow.total.datagrams += 1;
        flow.delays.push(delay);
        flow.sample_delays.push(delay);
        let quarter = (4 * at.max(0) as u128 / self.length.as_nanos().max(1)).min(3) as usize;
        let least = &mut self.quarters[quarter];
        *least = Some(least.map_or(delay, |least| least.min(delay)));
        let bias = BIAS.as_nanos() as i64;
        for mut cell in cells {
            let nanos = (cell.at.as_nanos() as i64 + delay + bias).max(0) as u64;
            // Keep the cells of a circuit in order.
            cell.at = Instant::from_nanos(nanos).max(circuit.last + Duration::from_nanos(1));
            circuit.last = cell.at;
            let place = self.cells.put(cell);
            self.held.push(Reverse((cell.at, self.order << 10 | u64::from(head.circuit), place)));
            self.order += 1;
        }
        while self.held.len() > HELD_MAX {
            self.release();
        }
        true
    }

    /// Polices the first waiting cell and passes it on.
    fn release(&mut self) {
        let Some(Reverse((at, number, place))) = self.held.pop() else { return };
        while self.left > 1 && at >= self.sample_end {
            self.close();
        }
        let mut cell = self.cells.take(place);
        let circuit = &mut self.circuits[(number & 0x3ff) as usize];
        let flow = &mut self.flows[circuit.flow];
        if let Some((meter, tag)) = circuit.path.map(|path| &mut self.paths[path])
            && !meter.police(at)
        {
            if !*tag {
                flow.total.policed += 1;
                flow.sample.cells_lost += 1;
                return;
            }
            flow.total.tagged += 1;
            cell.header |= CLP;
        }
        flow.total.cells += 1;
        flow.sample.cells += 1;
        circuit.sink.arrive(&[cell]);
    }

    /// Advances the time: polices and passes on the cells that have waited long enough.
    pub(crate) fn on_time(&mut self, at: Duration) {
        let horizon = Instant::ZERO + (BIAS + at).saturating_sub(HOLD);
        while self.held.peek().is_some_and(|Reverse((first, ..))| *first <= horizon) {
            self.release();
        }
        while self.left > 1 && horizon >= self.sample_end {
            self.close();
        }
    }

    /// Records octets of a TCP circuit, and the intervals between its blocks, in nanoseconds.
    pub(crate) fn on_stream(&mut self, circuit: usize, octets: u64, gaps: &[u64]) {
        let flow = &mut self.flows[self.circuits[circuit].flow];
        flow.total.octets += octets;
        flow.sample.octets += octets;
        for gap in gaps {
            flow.delays.push(*gap as i64);
            flow.sample_delays.push(*gap as i64);
        }
    }

    /// Ends the sample.
    fn close(&mut self) {
        self.ask_sinks();
        let take = |flow: &mut FlowState| {
            let variation_us = std::mem::take(&mut flow.sample_delays).variation_us();
            FlowSample { variation_us, ..std::mem::take(&mut flow.sample) }
        };
        self.samples.push(self.flows.iter_mut().map(take).collect());
        self.sample_end += self.sample;
        self.left = self.left.saturating_sub(1);
    }

    fn ask_sinks(&mut self) {
        for circuit in &mut self.circuits {
            let flow = &mut self.flows[circuit.flow];
            if let Some(sink) = circuit.sink.as_any_mut().downcast_mut::<FrameSink>() {
                let units = sink.take();
                flow.total.whole += units.whole;
                flow.sample.units_lost += units.lost;
                let bias = BIAS.as_nanos() as i64;
                units.delays.iter().for_each(|delay| flow.unit_delays.push(*delay as i64 - bias));
            } else if let Some(sink) = circuit.sink.as_any_mut().downcast_mut::<StreamSink>() {
                let damaged = sink.damaged().len() as u64;
                flow.sample.units_lost += damaged - circuit.damaged;
                flow.total.damaged += damaged - circuit.damaged;
                circuit.damaged = damaged;
            }
        }
    }

    /// Returns the finished samples.
    pub(crate) fn samples(&mut self) -> Vec<Vec<FlowSample>> {
        std::mem::take(&mut self.samples)
    }

    /// Returns whether the given numbers of datagrams have arrived on all circuits.
    pub(crate) fn has_all(&self, sent: &[u64]) -> bool {
        self.circuits.iter().zip(sent).all(|(circuit, sent)| circuit.came >= *sent)
    }

    /// Ends the session and returns samples and totals.
    pub(crate) fn finish(mut self) -> (Vec<Vec<FlowSample>>, MixTotal) {
        while !self.held.is_empty() {
            self.release();
        }
        self.close();
        let samples = self.samples();
        for circuit in &mut self.circuits {
            let Some(sink) = circuit.sink.as_any_mut().downcast_mut::<StreamSink>() else { continue };
            let total = &mut self.flows[circuit.flow].total;
            total.tell_stream(sink);
        }
        let flows = self.flows.into_iter().map(|mut flow| {
            flow.total.variation_us = flow.delays.variation_us();
            let least = flow.delays.least().unwrap_or(0);
            flow.total.unit_ms = flow.unit_delays.above_us(least).map(|us| us.map(|us| us * 1e-3));
            flow.total
        });
        let drift_us = match self.quarters {
            [Some(first), .., Some(last)] => Some((last - first) as f64 * 1e-3),
            _ => None,
        };
        (samples, MixTotal { flows: flows.collect(), drift_us, ..MixTotal::default() })
    }
}

impl FlowTotal {
    /// Records AAL1's counters and the estimate of the source's clock, from the last copy that has an
    /// estimate.
    fn tell_stream(&mut self, sink: &StreamSink) {
        let counters = sink.counters();
        self.matrices += counters.matrices;
        self.matrices_corrected += counters.matrices_corrected;
        self.matrices_uncorrectable += counters.matrices_uncorrectable;
        self.sequence_losses += counters.sequence_losses;
        self.clock_ppm = sink.clock_ratio().map(|ratio| (ratio - 1.0) * 1e6).or(self.clock_ppm);
        if let Some(recovered) = sink.recovered() {
            self.recovered_ppm = Some(recovered.ppm);
            self.buffer_below_ms = self.buffer_below_ms.max(recovered.below_ms);
            self.buffer_above_ms = self.buffer_above_ms.max(recovered.above_ms);
            self.slips += recovered.slips;
        }
    }
}

/// Returns the line rate of `cells` in `seconds` on an ATM line, Mbit/s.
pub(crate) fn line_mbps(cells: u64, seconds: f64) -> f64 {
    (cells * CELL_BYTES as u64 * 8) as f64 / seconds.max(1e-9) * 1e-6
}

#[cfg(test)]
mod tests {
    use super::super::edge::Edge;
    use super::super::wire;
    use super::*;
    use crate::mix::{Plan, run};

    const NONCE: [u8; NONCE_OCTETS] = *b"a nonce!";

    fn plan(path: &str, flows: &str) -> Plan {
        let text = format!(
            "seconds = 2\nsample_ms = 500\n[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n[[pvc]]\nfrom = \"a\"\nto = \"b\"\n{path}\n{flows}"
        );
        Plan::read(&text).expect("a good plan")
    }

    fn flow(kind: &str, more: &str) -> String {
        format!("[[flow]]\nname = \"{kind}\"\nkind = \"{kind}\"\nfrom = \"a\"\nto = \"b\"\n{more}\n")
    }

    /// Returns all datagrams of a plan with their due times, in sending order.
    fn datagrams(plan: &Plan) -> Vec<(Instant, Vec<u8>)> {
        let flows: Vec<usize> = (0..plan.flows.len()).collect();
        let mut edge = Edge::new(plan, &flows, NONCE);
        let (end, mut now, mut all) = (2_000_000_000, 0, Vec::new());
        while now < end {
            now += 13_000_000;
            edge.make(Instant::from_nanos(now));
        }
        edge.make(Instant::from_nanos(end + 1_000_000_000));
        edge.end();
        while let Some((due, mut datagram)) = edge.take(Instant::from_nanos(u64::MAX)) {
            wire::stamp(&mut datagram, due.as_nanos());
            all.push((due, datagram));
        }
        all
    }

    /// Receives a plan's datagrams; `transit` gives the transit time of each, or `None` for a loss.
    fn received(
        plan: &Plan,
        transit: impl Fn(usize) -> Option<Duration>,
    ) -> (Vec<Vec<FlowSample>>, MixTotal) {
        let request = plan.leaving("a").expect("flows leave").request;
        let mut receiver = Receiver::new(&request, NONCE);
        let mut arrivals: Vec<(Duration, Vec<u8>)> = datagrams(plan)
            .into_iter()
            .enumerate()
            .filter_map(|(number, (due, octets))| {
                transit(number).map(|transit| (Duration::from_nanos(due.as_nanos()) + transit, octets))
            })
            .collect();
        arrivals.sort_by_key(|(at, _)| *at);
        let mut samples = Vec::new();
        for (at, octets) in arrivals {
            assert!(receiver.on_datagram(&octets, at.as_nanos() as i64));
            receiver.on_time(at);
            samples.extend(receiver.samples());
        }
        let (rest, total) = receiver.finish();
        samples.extend(rest);
        (samples, total)
    }

    const TRANSIT: Duration = Duration::from_millis(3);

    #[test]
    fn a_constant_delay_gives_the_results_of_the_virtual_network() {
        let flows = flow("mpeg2", "fec = \"short\"")
            + &flow("jpeg", "ranges = [[2.1, 5.5]]\nshape_mbps = 8\ncopies = 2")
            + &flow("audio", "")
            + &flow("data", "");
        let plan = plan("mbps = 60", &flows);
        let outcome = run(&plan, &mut |_| {});
        let (samples, total) = received(&plan, |_| Some(TRANSIT));
        assert_eq!(samples.len(), 4);
        for (place, (flow, total)) in outcome.flows.iter().zip(&total.flows).enumerate() {
            assert_eq!((total.cells, total.policed, total.strange), (flow.cells, 0, 0), "{}", flow.name);
            assert_eq!(samples.iter().map(|sample| sample[place].cells).sum::<u64>(), flow.cells);
            assert_eq!(total.variation_us, [Some(0.0), Some(0.0)]);
            assert_eq!(total.damaged, 0);
            assert_eq!(total.matrices.abs_diff(flow.matrices), 0, "{}", flow.name);
            if !flow.kind.is_some_and(crate::mix::Kind::is_stream) {
                assert_eq!(total.whole, flow.units, "{}", flow.name);
                // The real network's delay does not include propagation, which cannot be measured here: 0.2
                // ms for 40 km of fibre, plus the switches.
                let (here, there) = (total.unit_ms[0].expect("units"), flow.unit_ms_p50.expect("units"));
                assert!((0.2..0.3).contains(&(there - here)), "{}: {here} {there}", flow.name);
            }
        }
        assert_eq!(total.drift_us, Some(0.0));
    }

    #[test]
    fn policing_depends_on_cell_times_and_not_on_packing() {
        // Both networks police the same cells, but in the virtual network they pass through the queue of a
        // site's switch first.
        let plan = plan("mbps = 6\ncdvt_us = 100", &flow("jpeg", "ranges = [[4.0, 5.0]]\nshape_mbps = 12"));
        let expected = run(&plan, &mut |_| {}).network.cells_policed as f64;
        let (_, total) = received(&plan, |_| Some(TRANSIT));
        let policed = total.flows[0].policed as f64;
        assert!(expected > 1000.0 && (policed - expected).abs() < 0.01 * expected, "{policed} {expected}");
        // A stream below its contract conforms although its cells arrive 25 at a time. With jitter beyond the
        // tolerance, it does not.
        let plan = self::plan("mbps = 6\ncdvt_us = 100", &flow("constant", "mbps = 5"));
        let (_, total) = received(&plan, |_| Some(TRANSIT));
        assert_eq!(total.flows[0].policed, 0);
        // Of every ten datagrams, each is delayed until the last one arrives, so that their cells arrive back
        // to back.
        let jitter = |number: usize| Some(TRANSIT + Duration::from_millis(9 - number as u64 % 10));
        let (_, total) = received(&plan, jitter);
        assert!(total.flows[0].policed > 100, "{:?}", total.flows[0]);
    }

    #[test]
    fn lost_late_and_duplicate_datagrams_are_distinguished() {
        let plan = plan("mbps = 60", &flow("constant", "mbps = 5"));
        let all = datagrams(&plan);
        let cells = |number: usize| wire::read(&all[number].1).expect("a datagram").1.len() as u64;
        let sum: u64 = (0..all.len()).map(cells).sum();
        // Datagram 10 is lost; datagram 20 arrives after later ones.
        let transit = |number: usize| match number {
            10 => None,
            20 => Some(TRANSIT + Duration::from_millis(30)),
            _ => Some(TRANSIT),
        };
        let (samples, total) = received(&plan, transit);
        let flow = &total.flows[0];
        assert_eq!((flow.cells, flow.reordered), (sum - cells(10), 1));
        assert_eq!(flow.datagrams, all.len() as u64 - 1);
        assert_eq!(samples[0][0].cells_lost, cells(10) + cells(20), "what is late looks lost at first");
        assert!(flow.variation_us[1].is_some_and(|p99| p99 < 30_000.0), "one of two thousand");
        assert_eq!(flow.damaged, 1, "both gaps are in one thirtieth of a second");

        let request = plan.leaving("a").expect("flows leave").request;
        let mut receiver = Receiver::new(&request, NONCE);
        for _ in 0..2 {
            assert!(receiver.on_datagram(&all[0].1, 3_000_000));
        }
        let mut strange = all[1].1.clone();
        strange[0] ^= 1;
        assert!(!receiver.on_datagram(&strange, 3_000_000), "another session's");
        strange[0] ^= 1;
        strange[9] = 200;
        assert!(!receiver.on_datagram(&strange, 3_000_000), "an unknown circuit");
        let (_, total) = receiver.finish();
        assert_eq!((total.flows[0].cells, total.flows[0].strange), (cells(0), cells(0)));
    }

    #[test]
    fn a_shaped_path_conforms_and_the_clock_is_estimated_despite_jitter() {
        let shaped = plan("mbps = 6\ncdvt_us = 100\nshape = true", &flow("jpeg", "ranges = [[4.0, 5.0]]"));
        let (_, total) = received(&shaped, |_| Some(TRANSIT));
        assert_eq!((total.flows[0].policed, total.flows[0].damaged), (0, 0));

        let clock = plan("mbps = 60", &flow("constant", "mbps = 5\nclock_ppm = 100"));
        let jitter = |number: usize| {
            let micros = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55;
            Some(TRANSIT + Duration::from_micros(micros))
        };
        let (_, total) = received(&clock, jitter);
        let flow = &total.flows[0];
        let ppm = flow.recovered_ppm.expect("there was time");
        // The jitter of half a millisecond is mostly averaged out over the measured half second.
        assert!((ppm - 100.0).abs() < 500.0 && flow.slips == 0, "{ppm}");
        let [Some(p50), Some(p99)] = flow.variation_us else { panic!("{flow:?}") };
        assert!((200.0..312.0).contains(&p50) && (480.0..512.0).contains(&p99), "{p50} {p99}");
    }
}
