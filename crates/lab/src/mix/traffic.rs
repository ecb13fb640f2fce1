//! Sources and sinks of a plan's flows. The virtual network and a real network use the same sources and
//! sinks, so that both carry the same cells.
//!
//! Random    each circuit has its own generator, seeded with the plan's seed and the circuit's number among
//!           all circuits of the plan. Its traffic therefore does not depend on which other circuits run.

use super::plan::{Fec, Flow, Kind, Plan, Word};
use kiban_atm::aal1::Form;
use kiban_atm::wire::aal1::fec::Code;
use kiban_atm::wire::atm::Vc;
use kiban_atm::{Contract, Interval, Penalty};
use kiban_base::{Instant, SimRng};
use kiban_sim::Terminal;
use kiban_sim::traffic::{
    FrameSink, FrameSource, Jpeg, JpegConfig, Outlet, Periodic, Shared, Sporadic, StreamConfig, StreamSink,
    StreamSource, Unit,
};
use std::time::Duration;

/// Damage to a constant-rate stream is reported in units of one picture time (30 pictures per second).
pub(super) const PICTURE: Duration = Duration::from_nanos(1_000_000_000 / 30);
/// Audio: 16,000 16-bit samples per second, in packets of 20 ms.
const AUDIO_MBPS: f64 = 0.256;
const AUDIO_PERIOD: Duration = Duration::from_millis(20);
/// Control data of a lecture.
const DATA_OCTETS: usize = 200;
const DATA_PERIOD: Duration = Duration::from_secs(1);

/// The speed of light in fibre (paper \[2\], §2.1).
const FIBRE_KM_PER_SECOND: f64 = 210_000.0;

/// The number of octets after which TCP's progress is recorded.
pub(super) const BLOCK_OCTETS: u64 = 64 << 10;

/// Returns, for each circuit of a plan, the number of its flow.
pub(super) fn circuits(plan: &Plan) -> Vec<usize> {
    let flows = plan.flows.iter().enumerate();
    flows.flat_map(|(number, flow)| std::iter::repeat_n(number, flow.copies)).collect()
}

/// Returns the random number generator of a circuit.
fn rng(plan: &Plan, circuit: usize) -> SimRng {
    SimRng::from_seed(plan.seed ^ 0x6d69_7865_6421).fork(circuit as u64 + 1)
}

/// Returns the transmission time of a cell on the plan's lines.
pub(super) fn cell_time(plan: &Plan) -> Interval {
    Interval::of_line((plan.network.line_mbps * 1e6) as u64)
}

/// Returns the source of a circuit's cells. TCP flows are not generated here: boards send them.
pub(super) fn source(plan: &Plan, circuit: usize, vc: Vc, ledger: Shared) -> Box<dyn Terminal> {
    let all = circuits(plan);
    let flow = &plan.flows[all[circuit]];
    let mut rng = rng(plan, circuit);
    let contract = flow.shape_mbps.map(|mbps| contract(mbps, slot_us(plan)));
    let outlet = Outlet { vc, cell_time: cell_time(plan), contract };
    let begin = Duration::from_secs_f64(flow.begin_s);
    let end = Instant::ZERO + Duration::from_secs_f64(flow.end_s.unwrap_or(plan.seconds).min(plan.seconds));
    if flow.kind.is_stream() {
        let begin = begin + Duration::from_nanos(rng.below(1_000_000));
        Box::new(StreamSource::new(outlet, flow.stream(plan.seconds), begin, end, ledger))
    } else {
        let later = move |unit: Unit| Unit { at: unit.at + begin, ..unit };
        let copy = all[..circuit].iter().filter(|other| **other == all[circuit]).count();
        let program = Box::new(plan.program(flow, copy, rng).map(later));
        Box::new(FrameSource::new(outlet, program, flow.frame_octets, end, ledger))
    }
}

/// Returns the sink of a flow, for a run of `seconds`.
pub(super) fn sink(flow: &Flow, seconds: f64, ledger: Shared) -> Box<dyn Terminal> {
    if flow.kind.is_stream() {
        Box::new(StreamSink::new(flow.stream(seconds), ledger))
    } else {
        Box::new(FrameSink::new(flow.frame_octets, ledger))
    }
}

impl Flow {
    /// Returns the configuration of AAL1. The sink estimates the source's rate within a run of `seconds`.
    pub(super) fn stream(&self, seconds: f64) -> StreamConfig {
        let form = match (self.fec, self.block_octets) {
            (Fec::Short, _) => Form::Corrected(Code::Short),
            (Fec::Long, _) => Form::Corrected(Code::Long),
            (Fec::None, Some(block_octets)) => Form::Structured { block_octets },
            (Fec::None, None) => Form::Stream,
        };
        let mbps = self.mbps.unwrap_or((super::MPEG2_VIDEO_BPS + super::MPEG2_AUDIO_BPS) * 1e-6);
        let bits_per_second = (mbps * 1e6).round() as u64;
        let settle = Duration::from_secs_f64((seconds / 20.0).clamp(0.1, 4.0));
        let (stamps, clock_ppm) = (self.stamps, self.clock_ppm);
        StreamConfig { form, bits_per_second, stamps, period: PICTURE, clock_ppm, settle }
    }

    fn pictures(&self) -> JpegConfig {
        JpegConfig {
            pictures_per_second: self.pictures_per_second,
            ranges: self.ranges.iter().map(|[low, high]| (low * 1e6, high * 1e6)).collect(),
            scene: Duration::from_secs_f64(self.scene_s),
            spread: self.spread,
            frame_octets_max: self.frame_octets,
        }
    }
}

impl Plan {
    /// Returns the units that the source of a flow's copy sends, with their times.
    fn program(&self, flow: &Flow, copy: usize, mut rng: SimRng) -> Box<dyn Iterator<Item = Unit>> {
        match flow.kind {
            Kind::Audio => {
                let octets = flow.mbps.unwrap_or(AUDIO_MBPS) * 1e6 / 8.0 * AUDIO_PERIOD.as_secs_f64();
                Box::new(Periodic::new(AUDIO_PERIOD, (octets.round() as usize).max(1), &mut rng))
            }
            Kind::Data => Box::new(Sporadic::new(DATA_PERIOD, DATA_OCTETS, rng)),
            _ => {
                let parts = flow.composes.iter().map(|name| self.part(name, copy)).collect();
                Box::new(Jpeg::server(flow.pictures(), parts, rng))
            }
        }
    }

    /// Returns the pictures of a flow that a server composes, and how long they take to it.
    fn part(&self, name: &str, copy: usize) -> (Jpeg, Duration) {
        let number = self.flows.iter().position(|flow| flow.name == name).expect("the plan is valid");
        let flow = &self.flows[number];
        let first = self.flows[..number].iter().map(|flow| flow.copies).sum::<usize>();
        let pictures = Jpeg::new(flow.pictures(), rng(self, first + copy));
        let km = |site: &Word| self.site(site).map_or(0.0, |site| self.sites[site].km);
        let km = if Plan::is_local(flow) { 0.0 } else { km(&flow.from) + km(&flow.to) };
        (pictures, Duration::from_secs_f64(km / FIBRE_KM_PER_SECOND))
    }
}

/// Returns the contract to which a flow's circuits are policed, if any.
pub(super) fn police(flow: &Flow) -> Option<(Contract, Penalty)> {
    flow.police_mbps.map(|mbps| (contract(mbps, flow.police_cdvt_us), Penalty::Drop))
}

pub(super) fn contract(mbps: f64, tolerance_us: f64) -> Contract {
    let peak = Interval::of_line(((mbps * 1e6).round() as u64).max(1));
    Contract::peak(peak, Duration::from_nanos((tolerance_us * 1e3).round() as u64))
}

/// Returns the time of one cell slot in microseconds. On a slotted line, a shaper needs this much tolerance
/// to reach its rate.
pub(super) fn slot_us(plan: &Plan) -> f64 {
    (424.0 / plan.network.line_mbps * 1e3).ceil() * 1e-3
}
