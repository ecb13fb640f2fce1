//! A plan in virtual time: the star is built, sources send, and what became of their cells is told for each sample.
//!
//! ```text
//! source ─┐                                                                     ┌─ sink
//! source ─┼─ site's switch ─ [edge: shapes paths] ─ network's switch ─ ... ─ site's switch ─┼─ sink
//! board  ─┘   circuits                              polices paths, a line each              └─ board
//! ```
//!
//! Names     path n of the plan is VPI n + 1; circuits of flows are VCIs from 32 on. At its own port a circuit is in path 0.
//! Queues    of each circuit and of each port hold `queue_cells`; what finds none free is dropped cell by cell.
//! End       sources stop at `seconds`; then what is under way may arrive, so that what is missing afterwards is lost.
//! Bulk      two boards that we ship, with LLC/SNAP, MTU 9180 and TCP; its cells are counted on their lines, so that there is
//!           no delay of each.

use super::outcome::{FlowOutcome, Network, Outcome, Sample};
use super::plan::{Fec, Flow, Kind, Plan, Pvc};
use crate::stats::{quantile, sorted};
use kiban_board::{
    AtmPortConfig, BoardConfig, CircuitConfig, Completion, Host, MemoryConfig, PortConfig, StreamId,
};
use kiban_ground::{Chance, Instant};
use kiban_sim::program::Receiver;
use kiban_sim::traffic::{
    FrameSink, FrameSource, Jpeg, JpegConfig, Ledger, Outlet, Periodic, Shared, Sporadic, StreamConfig,
    StreamSink, StreamSource, Tally, Unit,
};
use kiban_sim::{BoardNumber, Harm, LineNumber, Pair, Plug, Program, SwitchNumber, TerminalNumber, World};
use kiban_stack::atm::aal1::Form;
use kiban_stack::atm::{Contract, FABRIC_DELAY, Interval, Name, Penalty, Route, Switch, SwitchPort};
use kiban_stack::tcp;
use kiban_wire::aal1::fec::Code;
use kiban_wire::atm::{Interface, VCI_USER_FIRST, Vc};
use std::any::Any;
use std::net::SocketAddr;
use std::time::Duration;

/// Terminals are handed what has arrived at least so often.
const STRIDE: Duration = Duration::from_millis(10);
/// What is under way may arrive for so long after the sources have stopped; TCP may for longer.
const DRAIN: Duration = Duration::from_secs(1);
const DRAIN_TCP: Duration = Duration::from_secs(20);
/// Metres from a terminal or board to its site's switch.
const LOCAL_METRES: f64 = 20.0;
/// Damage of a stream is told in pictures.
const PICTURE: Duration = Duration::from_nanos(1_000_000_000 / 30);
/// Audio: 16 kHz of 16 bit, in packets of 20 ms.
const AUDIO_MBPS: f64 = 0.256;
const AUDIO_PERIOD: Duration = Duration::from_millis(20);
/// Data that control a lecture.
const DATA_OCTETS: usize = 200;
const DATA_PERIOD: Duration = Duration::from_secs(1);

/// One end of a circuit at its site.
enum End {
    Terminal(TerminalNumber),
    Board(BoardNumber),
}

/// One of a flow.
struct Circuit {
    flow: usize,
    ledger: Shared,
    ends: [End; 2],
    /// The line out of the source, and the one into the sink; those of the way back are TCP's.
    lines: [Option<LineNumber>; 2],
    /// What has been read of those lines.
    seen: [u64; 2],
    /// When its program begins, if it has not.
    begins: Option<Instant>,
}

/// What has happened to a flow since somebody asked.
#[derive(Default)]
struct Fresh {
    tally: Tally,
    /// Units that were sent, that came whole, and that are known not to.
    units: u64,
    whole: u64,
    lost: u64,
    unit_delays: Vec<u64>,
}

/// What is collected of a flow.
#[derive(Default)]
struct Collected {
    delays: Vec<u64>,
    unit_delays: Vec<u64>,
    outcome: FlowOutcome,
    offered: u64,
    carried: u64,
    units: u64,
    whole: u64,
    damaged: u64,
}

struct Star {
    world: World,
    switches: Vec<SwitchNumber>,
    edges: Vec<SwitchNumber>,
    network: SwitchNumber,
    circuits: Vec<Circuit>,
}

/// Runs a plan that [`Plan::read`] or [`Plan::lecture`](super::Lecture::plan) has made; `done` is told how much of it is over, 0 to 1.
pub fn run(plan: &Plan, done: &mut dyn FnMut(f64)) -> Outcome {
    let mut star = Star::new(plan);
    let mut flows: Vec<Collected> = plan.flows.iter().map(Collected::of).collect();
    let sample = Duration::from_millis(plan.sample_ms);
    let end = Instant::ZERO + Duration::from_secs_f64(plan.seconds);
    let (mut now, mut from) = (Instant::ZERO, Instant::ZERO);
    while now < end {
        let until = (from + sample).min(end);
        while now < until {
            now = (now + STRIDE).min(until);
            star.begin(now, end);
            star.world.collect(now);
            done(now.as_secs_f64() / plan.seconds);
        }
        star.tell(&mut flows, (from, until));
        from = until;
    }
    let is_tcp = plan.flows.iter().any(|flow| flow.kind == Kind::Bulk);
    let quiet = end + if is_tcp { DRAIN_TCP } else { DRAIN };
    while now < quiet && !(is_tcp && star.world.is_done() && now > end + DRAIN) {
        now += STRIDE * 10;
        star.world.collect(now);
    }
    star.circuits.iter().for_each(|circuit| circuit.ledger.borrow_mut().close());
    star.finish(plan, flows)
}

impl Star {
    fn new(plan: &Plan) -> Star {
        let mut world = World::new(plan.seed);
        let line_bps = (plan.network.line_mbps * 1e6) as u64;
        let cell_time = Interval::of_line(line_bps);
        let port = SwitchPort::plain(cell_time, Interface::Uni, plan.network.queue_cells);
        let circuits: Vec<(usize, &Flow)> = plan
            .flows
            .iter()
            .enumerate()
            .flat_map(|(number, flow)| std::iter::repeat_n((number, flow), flow.copies))
            .collect();
        // Ports of a site's switch: 0 towards the network, then one for each end of a circuit.
        let mut ends = vec![0; plan.sites.len()];
        let mut places = Vec::new();
        for (_, flow) in &circuits {
            let place = |ends: &mut Vec<usize>, name| {
                let site = plan.site(name).expect("the plan was judged");
                ends[site] += 1;
                (site, ends[site])
            };
            places.push([place(&mut ends, &flow.from), place(&mut ends, &flow.to)]);
        }
        let mut sites: Vec<Switch> =
            ends.iter().map(|ends| Switch::new(&vec![port; 1 + ends], FABRIC_DELAY)).collect();
        let mut network = Switch::new(&vec![port; plan.sites.len()], FABRIC_DELAY);
        let room = plan.network.queue_cells;
        for (number, pvc) in plan.pvcs.iter().enumerate() {
            let (from, to) = plan.ends(pvc);
            let name = Name::Path(number as u16 + 1);
            let penalty = if pvc.tag { Penalty::Tag } else { Penalty::Drop };
            let police = pvc.police.then(|| (contract(pvc.mbps, pvc.cdvt_us), penalty));
            let route = Route { police, ..Route::plain(from, name, to, name, room) };
            network.add(route).expect("each path has a number of its own");
        }
        for (number, ((_, flow), ends)) in circuits.iter().zip(&places).enumerate() {
            let vci = VCI_USER_FIRST + number as u16;
            let local = Name::Circuit(Vc::new(0, vci));
            let mut lead = |from: usize, to: usize| {
                let (there, back) = if from == 0 { (&flow.from, &flow.to) } else { (&flow.to, &flow.from) };
                let Some(path) = plan.pvc(there, back) else { return };
                let far = Name::Circuit(Vc::new(path as u16 + 1, vci));
                let ((site, port), (other, other_port)) = (ends[from], ends[to]);
                sites[site].add(Route::plain(port, local, 0, far, room)).expect("a port has one circuit");
                sites[other]
                    .add(Route::plain(0, far, other_port, local, room))
                    .expect("a circuit has one name");
            };
            lead(0, 1);
            if flow.kind == Kind::Bulk {
                lead(1, 0);
            }
        }
        let switches: Vec<SwitchNumber> = sites.into_iter().map(|site| world.add_switch(site)).collect();
        let network = world.add_switch(network);
        let mut edges = Vec::new();
        for (number, site) in plan.sites.iter().enumerate() {
            let mut uplink = Plug::Switch(switches[number], 0);
            if plan.pvcs.iter().any(|pvc| pvc.shape && plan.ends(pvc).0 == number) {
                let edge = world.add_switch(edge(plan, number, port));
                join(&mut world, uplink, Plug::Switch(edge, 0), LOCAL_METRES);
                uplink = Plug::Switch(edge, 1);
                edges.push(edge);
            }
            join(&mut world, uplink, Plug::Switch(network, number), site.km * 1000.0);
        }
        let mut star = Star { world, switches, edges, network, circuits: Vec::new() };
        let chance = Chance::from_seed(plan.seed ^ 0x6d69_7865_6421);
        for (number, ((flow, _), ends)) in circuits.iter().zip(places).enumerate() {
            let chance = chance.fork(number as u64 + 1);
            star.add(plan, *flow, VCI_USER_FIRST + number as u16, ends, chance, cell_time);
        }
        star
    }

    /// Both ends of a circuit, on the ports of their sites.
    fn add(
        &mut self,
        plan: &Plan,
        number: usize,
        vci: u16,
        places: [(usize, usize); 2],
        mut chance: Chance,
        cell_time: Interval,
    ) {
        let flow = &plan.flows[number];
        let (ledger, vc) = (Ledger::shared(), Vc::new(0, vci));
        let contract = flow.shape_mbps.map(|mbps| contract(mbps, slot_us(plan)));
        let outlet = Outlet { vc, cell_time, contract };
        let begin = Duration::from_secs_f64(flow.begin_s);
        let end =
            Instant::ZERO + Duration::from_secs_f64(flow.end_s.unwrap_or(plan.seconds).min(plan.seconds));
        let mut begins = None;
        let ends = if flow.kind == Kind::Bulk {
            begins = Some(Instant::ZERO + begin);
            [0, 1].map(|side| End::Board(self.world.add_board(&board(plan, flow, side, vc, contract))))
        } else if flow.kind.is_stream() {
            let config = flow.stream();
            let begin = begin + Duration::from_nanos(chance.below(1_000_000));
            let source = StreamSource::new(outlet, config, begin, end, ledger.clone());
            let sink = StreamSink::new(config, ledger.clone());
            [Box::new(source) as Box<dyn kiban_sim::Terminal>, Box::new(sink)]
                .map(|terminal| End::Terminal(self.world.add_terminal(terminal)))
        } else {
            let later = move |unit: Unit| Unit { at: unit.at + begin, ..unit };
            let program = Box::new(flow.program(chance).map(later));
            let source = FrameSource::new(outlet, program, flow.frame_octets, end, ledger.clone());
            let sink = FrameSink::new(flow.frame_octets, ledger.clone());
            [Box::new(source) as Box<dyn kiban_sim::Terminal>, Box::new(sink)]
                .map(|terminal| End::Terminal(self.world.add_terminal(terminal)))
        };
        let mut lines = [None, None];
        for side in 0..2 {
            let (site, port) = places[side];
            let plug = match ends[side] {
                End::Terminal(terminal) => Plug::Terminal(terminal),
                End::Board(board) => Plug::Board(board, 0),
            };
            let (up, down) =
                join(&mut self.world, plug, Plug::Switch(self.switches[site], port), LOCAL_METRES);
            lines[side] = Some(if side == 0 { up } else { down });
        }
        self.circuits.push(Circuit { flow: number, ledger, ends, lines, seen: [0; 2], begins });
    }

    /// TCP flows whose time has come.
    fn begin(&mut self, now: Instant, end: Instant) {
        for circuit in &mut self.circuits {
            let (Some(begins), [End::Board(source), End::Board(sink)]) = (circuit.begins, &circuit.ends)
            else {
                continue;
            };
            if begins > now {
                continue;
            }
            circuit.begins = None;
            let receiver = Receiver::new(PORT, 1, Box::new(|_| Box::new(|_, _| {})));
            self.world.run_program(*sink, Box::new(receiver));
            self.world.run_program(*source, Box::new(Bulk { end, stream: None, ended: false }));
        }
    }

    /// What has happened since it was told last, flow by flow.
    fn take(&mut self, flows: usize) -> Vec<Fresh> {
        let mut all: Vec<Fresh> = std::iter::repeat_with(Fresh::default).take(flows).collect();
        for circuit in &mut self.circuits {
            circuit.take(&mut self.world, &mut all[circuit.flow]);
        }
        all
    }

    /// What has happened goes into a sample of each flow.
    fn tell(&mut self, flows: &mut [Collected], (from, until): (Instant, Instant)) {
        let fresh = self.take(flows.len());
        for (flow, fresh) in flows.iter_mut().zip(fresh) {
            flow.sample(&fresh, from.as_secs_f64(), until.since(from).as_secs_f64());
            flow.add(fresh);
        }
    }

    fn finish(mut self, plan: &Plan, mut flows: Vec<Collected>) -> Outcome {
        // What came after the last sample.
        let rest = self.take(flows.len());
        flows.iter_mut().zip(rest).for_each(|(flow, fresh)| flow.add(fresh));
        for circuit in &self.circuits {
            let outcome = &mut flows[circuit.flow].outcome;
            match &circuit.ends {
                [End::Board(source), End::Board(sink)] => {
                    outcome.retransmissions += self.world.board(*source).counter("tcp", "retransmissions");
                    if let Some(receiver) = self.world.program::<Receiver>(*sink) {
                        outcome.octets += receiver.received().iter().map(|stream| stream.bytes).sum::<u64>();
                    }
                }
                [_, End::Terminal(sink)] => {
                    if let Some(sink) = self.world.terminal::<StreamSink>(*sink) {
                        outcome.add(sink.counters());
                        outcome.clock_ppm = sink.clock_ratio().map(|ratio| (ratio - 1.0) * 1e6);
                    }
                }
                _ => {}
            }
        }
        let counters = *self.world.switch(self.network).counters();
        let others = self.switches.iter().chain(&self.edges);
        let others: Vec<_> = others.map(|other| *self.world.switch(*other).counters()).collect();
        let full = |counters: &kiban_stack::atm::SwitchCounters| {
            counters.cells_dropped_port_full + counters.cells_dropped_queue_full
        };
        let network = Network {
            cells_in: counters.cells_in,
            cells_policed: counters.cells_policed,
            cells_tagged: counters.cells_tagged,
            cells_dropped_full: full(&counters) + others.iter().map(full).sum::<u64>(),
        };
        let flows = flows.into_iter().zip(&plan.flows).map(|(flow, said)| flow.finish(plan, said)).collect();
        Outcome { title: plan.title.clone(), seed: plan.seed, seconds: plan.seconds, flows, network }
    }
}

impl Circuit {
    /// What has happened since the last call is added.
    fn take(&mut self, world: &mut World, fresh: &mut Fresh) {
        match &self.ends {
            [End::Terminal(source), End::Terminal(sink)] => {
                let mut tally = self.ledger.borrow_mut().take();
                fresh.tally.offered += tally.offered;
                fresh.tally.carried += tally.carried;
                fresh.tally.lost += tally.lost;
                fresh.tally.strange += tally.strange;
                fresh.tally.delays.append(&mut tally.delays);
                if let Some(source) = world.terminal::<FrameSource>(*source) {
                    fresh.units += source.units() - self.seen[0];
                    self.seen[0] = source.units();
                }
                if let Some(sink) = world.terminal::<FrameSink>(*sink) {
                    let mut units = sink.take();
                    fresh.whole += units.whole;
                    fresh.lost += units.lost;
                    fresh.unit_delays.append(&mut units.delays);
                } else if let Some(sink) = world.terminal::<StreamSink>(*sink) {
                    let damaged = sink.damaged().len() as u64;
                    fresh.lost += damaged - self.seen[1];
                    self.seen[1] = damaged;
                }
            }
            _ => {
                let now = self.lines.map(|line| line.map_or(0, |line| world.line(line).cells()));
                fresh.tally.offered += now[0] - self.seen[0];
                fresh.tally.carried += now[1] - self.seen[1];
                self.seen = now;
            }
        }
    }
}

impl Collected {
    fn of(flow: &Flow) -> Collected {
        let outcome = FlowOutcome {
            name: flow.name.clone(),
            kind: Some(flow.kind),
            from: flow.from.text.clone(),
            to: flow.to.text.clone(),
            copies: flow.copies,
            ..FlowOutcome::default()
        };
        Collected { outcome, ..Collected::default() }
    }

    fn sample(&mut self, fresh: &Fresh, at_s: f64, seconds: f64) {
        let mbps = |cells: u64| (cells * 424) as f64 / seconds * 1e-6;
        let (p50, p99) = variation_us(&fresh.tally.delays);
        let is_stream = self.outcome.kind.is_some_and(Kind::is_stream);
        let pictures = (seconds / PICTURE.as_secs_f64()).round() as u64 * self.outcome.copies as u64;
        self.outcome.samples.push(Sample {
            at_s,
            offered_mbps: mbps(fresh.tally.offered),
            carried_mbps: mbps(fresh.tally.carried),
            cells_lost: fresh.tally.lost,
            units: if is_stream { pictures } else { fresh.units },
            units_lost: fresh.lost,
            variation_us_p50: p50,
            variation_us_p99: p99,
        });
    }

    fn add(&mut self, mut fresh: Fresh) {
        self.offered += fresh.tally.offered;
        self.carried += fresh.tally.carried;
        self.units += fresh.units;
        self.whole += fresh.whole;
        self.damaged += fresh.lost;
        self.outcome.cells_strange += fresh.tally.strange;
        self.delays.append(&mut fresh.tally.delays);
        self.unit_delays.append(&mut fresh.unit_delays);
    }

    fn finish(mut self, plan: &Plan, flow: &Flow) -> FlowOutcome {
        let mbps = |cells: u64| (cells * 424) as f64 / plan.seconds * 1e-6;
        let outcome = &mut self.outcome;
        (outcome.cells, outcome.cells_lost) = (self.offered, self.offered.saturating_sub(self.carried));
        (outcome.offered_mbps, outcome.carried_mbps) = (mbps(self.offered), mbps(self.carried));
        (outcome.variation_us_p50, outcome.variation_us_p99) = variation_us(&self.delays);
        let delays = sorted(&self.unit_delays.iter().map(|nanos| *nanos as f64 * 1e-6).collect::<Vec<_>>());
        outcome.unit_ms_p50 = quantile(&delays, 0.5);
        outcome.unit_ms_p99 = quantile(&delays, 0.99);
        let sends = (flow.end_s.unwrap_or(plan.seconds).min(plan.seconds) - flow.begin_s).max(0.0);
        match flow.kind {
            Kind::Constant | Kind::Mpeg2 => {
                outcome.units = (sends / PICTURE.as_secs_f64()).round() as u64 * flow.copies as u64;
                // Damage may be met after the last of them: it is one of theirs.
                outcome.units_lost = self.damaged.min(outcome.units);
            }
            Kind::Bulk => outcome.goodput_mbps = Some(outcome.octets as f64 * 8e-6 / sends.max(1e-3)),
            _ => (outcome.units, outcome.units_lost) = (self.units, self.units.saturating_sub(self.whole)),
        }
        self.outcome
    }
}

/// By how much delays exceed the shortest, microseconds: half of them by no more, and 99 of 100.
fn variation_us(delays: &[u64]) -> (Option<f64>, Option<f64>) {
    let Some(least) = delays.iter().min() else { return (None, None) };
    let sorted = sorted(&delays.iter().map(|delay| (delay - least) as f64 * 1e-3).collect::<Vec<_>>());
    (quantile(&sorted, 0.5), quantile(&sorted, 0.99))
}

impl Plan {
    /// The sites of a path.
    fn ends(&self, pvc: &Pvc) -> (usize, usize) {
        let site = |name| self.site(name).expect("the plan was judged");
        (site(&pvc.from), site(&pvc.to))
    }
}

impl Flow {
    /// As AAL1 is told of it.
    pub(super) fn stream(&self) -> StreamConfig {
        let form = match (self.fec, self.block_octets) {
            (Fec::Short, _) => Form::Corrected(Code::Short),
            (Fec::Long, _) => Form::Corrected(Code::Long),
            (Fec::None, Some(block_octets)) => Form::Structured { block_octets },
            (Fec::None, None) => Form::Stream,
        };
        let mbps = self.mbps.unwrap_or((super::MPEG2_VIDEO_BPS + super::MPEG2_AUDIO_BPS) * 1e-6);
        let bits_per_second = (mbps * 1e6).round() as u64;
        StreamConfig { form, bits_per_second, stamps: self.stamps, period: PICTURE }
    }

    /// When it sends what.
    fn program(&self, mut chance: Chance) -> Box<dyn Iterator<Item = Unit>> {
        match self.kind {
            Kind::Audio => {
                let octets = self.mbps.unwrap_or(AUDIO_MBPS) * 1e6 / 8.0 * AUDIO_PERIOD.as_secs_f64();
                Box::new(Periodic::new(AUDIO_PERIOD, (octets.round() as usize).max(1), &mut chance))
            }
            Kind::Data => Box::new(Sporadic::new(DATA_PERIOD, DATA_OCTETS, chance)),
            _ => Box::new(Jpeg::new(
                JpegConfig {
                    pictures_per_second: self.pictures_per_second,
                    ranges: self.ranges.iter().map(|[low, high]| (low * 1e6, high * 1e6)).collect(),
                    scene: Duration::from_secs_f64(self.scene_s),
                    spread: self.spread,
                    frame_octets_max: self.frame_octets,
                },
                chance,
            )),
        }
    }
}

fn contract(mbps: f64, tolerance_us: f64) -> Contract {
    let peak = Interval::of_line(((mbps * 1e6).round() as u64).max(1));
    Contract::peak(peak, Duration::from_nanos((tolerance_us * 1e3).round() as u64))
}

/// A shaper on a line of slots needs a tolerance of a slot to reach its rate.
fn slot_us(plan: &Plan) -> f64 {
    (424.0 / plan.network.line_mbps * 1e3).ceil() * 1e-3
}

/// The switch at a site's edge that shapes paths.
fn edge(plan: &Plan, site: usize, port: SwitchPort) -> Switch {
    let mut edge = Switch::new(&[port; 2], FABRIC_DELAY);
    for (number, pvc) in plan.pvcs.iter().enumerate() {
        let name = Name::Path(number as u16 + 1);
        let (from, to) = plan.ends(pvc);
        let room = plan.network.queue_cells;
        if from == site {
            let shape = pvc.shape.then(|| contract(pvc.mbps, slot_us(plan)));
            edge.add(Route { shape, ..Route::plain(0, name, 1, name, room) }).expect("a path has one name");
        } else if to == site {
            edge.add(Route::plain(1, name, 0, name, room)).expect("a path has one name");
        }
    }
    edge
}

fn join(world: &mut World, one: Plug, other: Plug, metres: f64) -> (LineNumber, LineNumber) {
    world.join(one, other, metres, Harm::NONE).expect("both plugs are new")
}

/// A port that nobody else has.
const PORT: u16 = 5001;

fn board(plan: &Plan, flow: &Flow, side: usize, vc: Vc, contract: Option<Contract>) -> BoardConfig {
    let prefix = kiban_stack::ip::Prefix::new(Pair::address(0), 24);
    let mut port = AtmPortConfig::oc3c(Pair::address(side), prefix);
    port.line_bits_per_second = (plan.network.line_mbps * 1e6) as u64;
    port.circuits.push(CircuitConfig { contract, ..CircuitConfig::to(vc, Pair::address(1 - side)) });
    let window = flow.window_kib << 10;
    BoardConfig {
        seed: plan.seed.wrapping_mul(31) ^ u64::from(vc.vci) << 1 | side as u64,
        memory: MemoryConfig { transmit_bytes: 2 << 20, receive_bytes: 2 << 20, ..MemoryConfig::default() },
        tcp: tcp::Config {
            mss: 9140,
            segment_bytes_max: 9140,
            receive_buffer_bytes: window,
            send_buffer_bytes: window,
            ..tcp::Config::default()
        },
        ports: vec![PortConfig::Atm(port)],
        ..BoardConfig::default()
    }
}

/// A writer that writes all it may until its end.
struct Bulk {
    end: Instant,
    stream: Option<StreamId>,
    ended: bool,
}

impl Bulk {
    fn pump(&mut self, host: &mut Host<'_>, now: Instant) {
        let Some(stream) = self.stream else { return };
        if now >= self.end {
            let _ = host.finish(stream);
            return;
        }
        while let Ok(1..) = host.write(stream, &[0x5a; 9140]) {}
    }
}

impl Program for Bulk {
    fn start(&mut self, host: &mut Host<'_>, _now: Instant) {
        self.stream = host.open(SocketAddr::new(Pair::address(1), PORT)).ok();
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        match completion {
            Completion::Opened { .. } | Completion::Writable { .. } => self.pump(host, now),
            Completion::Ended { stream, .. } => {
                self.ended = true;
                let _ = host.close(stream);
            }
            _ => {}
        }
    }

    fn is_done(&self) -> bool {
        self.ended
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
