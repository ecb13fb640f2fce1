//! Runs a plan in virtual time: builds the star network, lets the sources send, and records the cells of each
//! sample.
//!
//! ```text
//! source ─┐                                                                     ┌─ sink
//! source ─┼─ site's switch ─ [edge: shapes paths] ─ network's switch ─ ... ─ site's switch ─┼─ sink
//! board  ─┘   circuits                              polices paths, a line each              └─ board
//! ```
//!
//! Names     path n of the plan has VPI n + 1; the VCIs of the flows' circuits start at 32. At a terminal's
//!           own port, a circuit has VPI 0.
//! Shaping   a path with one queue is shaped by the site's edge. If its circuits have their own queues, it is
//!           a group of the site's switch, which serves them by category and weight.
//! Queues    each circuit and each port has a queue of `queue_cells`; a full queue drops single cells. A port
//!           with a group has no limit beside those of its circuits.
//! End       sources stop at `seconds`. Then traffic in transit gets time to arrive; whatever is still
//!           missing after that counts as lost.
//! Bulk      two boards of kiban, with LLC/SNAP, MTU 9180 and TCP. Their cells are counted on the lines to
//!           the boards, so the delays of individual cells are not known. Delay variation is computed from
//!           blocks of 64 KiB instead, as the variation of the interval between the completion of one block
//!           and that of the next.

use super::collect::{Collected, NewSamples};
use super::outcome::{Medium, Network, Outcome};
use super::plan::{Flow, Kind, Plan, Pvc, Queues};
use super::traffic::{self, BLOCK_OCTETS, contract, slot_us};
use kiban_atm::wire::atm::{Interface, VCI_USER_FIRST, Vc};
use kiban_atm::{ConnectionId, FABRIC_DELAY, GroupId, Penalty, Route, Service, Switch, SwitchPort};
use kiban_base::Instant;
use kiban_board::{
    AtmPortConfig, BoardConfig, CircuitConfig, Completion, Host, MemoryConfig, PortConfig, StreamId,
};
use kiban_sim::traffic::{CellLog, FrameSink, FrameSource, Shared, StreamSink};
use kiban_sim::{
    Attachment, BoardNumber, ImpairmentConfig, LineNumber, Pair, Program, SwitchNumber, TerminalNumber, World,
};
use kiban_tcpip::tcp;
use std::any::Any;
use std::net::SocketAddr;
use std::time::Duration;

/// The longest virtual time between two calls of [`World::collect`].
const STRIDE: Duration = Duration::from_millis(10);
/// How long traffic in transit may take to arrive after the sources have stopped; TCP may take longer.
const DRAIN: Duration = Duration::from_secs(1);
const DRAIN_TCP: Duration = Duration::from_secs(20);
/// Metres from a terminal or board to its site's switch.
const LOCAL_METRES: f64 = 20.0;

/// One end of a circuit at its site.
enum End {
    Terminal(TerminalNumber),
    Board(BoardNumber),
}

/// One end of a flow.
struct Circuit {
    flow: usize,
    ledger: Shared,
    ends: [End; 2],
    /// The line out of the source and the line into the sink. In the other direction, these lines carry TCP's
    /// acknowledgements.
    lines: [Option<LineNumber>; 2],
    /// The values of two counters at the previous sample: for TCP, the cells on these two lines; for other
    /// flows, the units sent and the units damaged.
    seen: [u64; 2],
    /// The number of intervals between TCP blocks that earlier samples contain.
    gaps: usize,
    /// When the circuit's program starts; `None` once it has started.
    begins: Option<Instant>,
}

struct Star {
    world: World,
    switches: Vec<SwitchNumber>,
    edges: Vec<SwitchNumber>,
    network: SwitchNumber,
    circuits: Vec<Circuit>,
}

/// Runs a plan from [`Plan::read`] or [`Plan::lecture`](super::Lecture::plan); calls `done` with the
/// progress, 0 to 1.
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
        let port = SwitchPort::plain(traffic::cell_time(plan), Interface::Uni, plan.network.queue_cells);
        let circuits: Vec<(usize, &Flow)> =
            traffic::circuits(plan).into_iter().map(|number| (number, &plan.flows[number])).collect();
        // Port 0 of a site's switch leads to the network; each of the other ports leads to one end of a
        // circuit.
        let mut ends = vec![0; plan.sites.len()];
        let mut places = Vec::new();
        for (_, flow) in &circuits {
            let place = |ends: &mut Vec<usize>, name| {
                let site = plan.site(name).expect("the plan is valid");
                ends[site] += 1;
                (site, ends[site])
            };
            places.push([place(&mut ends, &flow.from), place(&mut ends, &flow.to)]);
        }
        let has_groups =
            |site| plan.pvcs.iter().any(|pvc| pvc.queues == Queues::Circuits && plan.ends(pvc).0 == site);
        let site = |(site, ends): (usize, &usize)| {
            let mut ports = vec![port; 1 + ends];
            // Circuits with queues of their own do not share the port's buffer: one could fill it.
            if has_groups(site) {
                ports[0].port_cells_max = usize::MAX;
            }
            Switch::new(&ports, FABRIC_DELAY)
        };
        let mut sites: Vec<Switch> = ends.iter().enumerate().map(site).collect();
        let mut network = Switch::new(&vec![port; plan.sites.len()], FABRIC_DELAY);
        let room = plan.network.queue_cells;
        for (number, pvc) in plan.pvcs.iter().enumerate() {
            let (from, to) = plan.ends(pvc);
            let name = ConnectionId::Path(number as u16 + 1);
            let penalty = if pvc.tag { Penalty::Tag } else { Penalty::Drop };
            let police = pvc.police.then(|| (contract(pvc.mbps, pvc.cdvt_us), penalty));
            let route = Route { police, ..Route::plain(from, name, to, name, room) };
            network.add(route).expect("path numbers are unique");
        }
        let groups: Vec<Option<GroupId>> = plan.pvcs.iter().map(|pvc| group(plan, pvc, &mut sites)).collect();
        for (number, ((_, flow), ends)) in circuits.iter().zip(&places).enumerate() {
            let vci = VCI_USER_FIRST + number as u16;
            let local = ConnectionId::Circuit(Vc::new(0, vci));
            let service = flow.service();
            if Plan::is_local(flow) {
                let [(site, port), (_, other_port)] = *ends;
                let route = Route::plain(port, local, other_port, local, room);
                let route = Route { service, police: traffic::police(flow), ..route };
                sites[site].add(route).expect("a port has one circuit");
                continue;
            }
            let mut lead = |from: usize, to: usize, path: Option<usize>, police| {
                let Some(path) = path else { return };
                let far = ConnectionId::Circuit(Vc::new(path as u16 + 1, vci));
                let ((site, port), (other, other_port)) = (ends[from], ends[to]);
                let group = groups[path];
                let own = flow.queue_cells.unwrap_or(room);
                let route = Route { service, group, police, ..Route::plain(port, local, 0, far, own) };
                sites[site].add(route).expect("a port has one circuit");
                let route = Route { service, ..Route::plain(0, far, other_port, local, room) };
                sites[other].add(route).expect("circuit names are unique");
            };
            lead(0, 1, plan.path(flow), traffic::police(flow));
            if flow.kind == Kind::Bulk {
                lead(1, 0, plan.path_back(flow), None);
            }
        }
        let switches: Vec<SwitchNumber> = sites.into_iter().map(|site| world.add_switch(site)).collect();
        let network = world.add_switch(network);
        let mut edges = Vec::new();
        for (number, site) in plan.sites.iter().enumerate() {
            let mut uplink = Attachment::Switch(switches[number], 0);
            if plan.pvcs.iter().any(|pvc| is_shaped_whole(pvc) && plan.ends(pvc).0 == number) {
                let edge = world.add_switch(edge(plan, number, port));
                join(&mut world, uplink, Attachment::Switch(edge, 0), LOCAL_METRES);
                uplink = Attachment::Switch(edge, 1);
                edges.push(edge);
            }
            join(&mut world, uplink, Attachment::Switch(network, number), site.km * 1000.0);
        }
        let mut star = Star { world, switches, edges, network, circuits: Vec::new() };
        for (number, ((flow, _), ends)) in circuits.iter().zip(places).enumerate() {
            star.add(plan, *flow, number, ends);
        }
        star
    }

    /// Adds both ends of a circuit, on the ports of their sites.
    fn add(&mut self, plan: &Plan, number: usize, circuit: usize, places: [(usize, usize); 2]) {
        let flow = &plan.flows[number];
        let (ledger, vc) = (CellLog::shared(), Vc::new(0, VCI_USER_FIRST + circuit as u16));
        let mut begins = None;
        let ends = if flow.kind == Kind::Bulk {
            begins = Some(Instant::ZERO + Duration::from_secs_f64(flow.begin_s));
            [0, 1].map(|side| End::Board(self.world.add_board(&board(plan, flow, side, vc))))
        } else {
            let source = traffic::source(plan, circuit, vc, ledger.clone());
            let sink = traffic::sink(flow, plan.seconds, ledger.clone());
            [source, sink].map(|terminal| End::Terminal(self.world.add_terminal(terminal)))
        };
        let mut lines = [None, None];
        for side in 0..2 {
            let (site, port) = places[side];
            let plug = match ends[side] {
                End::Terminal(terminal) => Attachment::Terminal(terminal),
                End::Board(board) => Attachment::Board(board, 0),
            };
            let (up, down) =
                join(&mut self.world, plug, Attachment::Switch(self.switches[site], port), LOCAL_METRES);
            lines[side] = Some(if side == 0 { up } else { down });
        }
        self.circuits.push(Circuit { flow: number, ledger, ends, lines, seen: [0; 2], gaps: 0, begins });
    }

    /// Starts the TCP flows that are due.
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
            self.world.run_program(*sink, Box::new(Drain::default()));
            self.world.run_program(*source, Box::new(Bulk { end, stream: None, ended: false }));
        }
    }

    /// Returns the events of each flow since the last call.
    fn take(&mut self, flows: usize) -> Vec<NewSamples> {
        let mut all: Vec<NewSamples> = std::iter::repeat_with(NewSamples::default).take(flows).collect();
        for circuit in &mut self.circuits {
            circuit.take(&mut self.world, &mut all[circuit.flow]);
        }
        all
    }

    /// Adds a sample of each flow.
    fn tell(&mut self, flows: &mut [Collected], (from, until): (Instant, Instant)) {
        let fresh = self.take(flows.len());
        for (flow, fresh) in flows.iter_mut().zip(fresh) {
            flow.sample(&fresh, from.as_secs_f64(), until.since(from).as_secs_f64());
            flow.add(fresh);
        }
    }

    fn finish(mut self, plan: &Plan, mut flows: Vec<Collected>) -> Outcome {
        // Add what arrived after the last sample.
        let rest = self.take(flows.len());
        flows.iter_mut().zip(rest).for_each(|(flow, fresh)| flow.add(fresh));
        for circuit in &self.circuits {
            let outcome = &mut flows[circuit.flow].outcome;
            match &circuit.ends {
                [End::Board(source), End::Board(sink)] => {
                    outcome.retransmissions += self.world.board(*source).counter("tcp", "retransmits");
                    outcome.octets += self.world.program::<Drain>(*sink).map_or(0, |drain| drain.octets);
                }
                [_, End::Terminal(sink)] => {
                    if let Some(sink) = self.world.terminal::<StreamSink>(*sink) {
                        outcome.add(sink.counters());
                        outcome.set_clock_error(plan.flows[circuit.flow].clock_ppm, sink);
                    }
                }
                _ => {}
            }
        }
        let counters = *self.world.switch(self.network).counters();
        let others = self.switches.iter().chain(&self.edges);
        let others: Vec<_> = others.map(|other| *self.world.switch(*other).counters()).collect();
        let full = |counters: &kiban_atm::SwitchCounters| {
            counters.cells_dropped_port_full + counters.cells_dropped_queue_full
        };
        let network = Network {
            kind: Medium::Virtual,
            cells_in: counters.cells_in,
            cells_policed: counters.cells_policed
                + others.iter().map(|other| other.cells_policed).sum::<u64>(),
            cells_tagged: counters.cells_tagged,
            cells_dropped_full: full(&counters) + others.iter().map(full).sum::<u64>(),
        };
        let flows =
            flows.into_iter().zip(&plan.flows).map(|(flow, said)| flow.finish(plan.seconds, said)).collect();
        Outcome {
            title: plan.title.clone(),
            seed: plan.seed,
            seconds: plan.seconds,
            flows,
            network,
            real: None,
        }
    }
}

impl Circuit {
    /// Adds the events since the previous call to `fresh`.
    fn take(&mut self, world: &mut World, fresh: &mut NewSamples) {
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
            [_, End::Board(sink)] => {
                if let Some(drain) = world.program::<Drain>(*sink) {
                    fresh.tally.delays.extend(&drain.gaps[self.gaps..]);
                    self.gaps = drain.gaps.len();
                }
                let now = self.lines.map(|line| line.map_or(0, |line| world.line(line).cells()));
                fresh.tally.offered += now[0] - self.seen[0];
                fresh.tally.carried += now[1] - self.seen[1];
                self.seen = now;
            }
            _ => {}
        }
    }
}

impl Plan {
    /// Returns the sites of a path.
    fn ends(&self, pvc: &Pvc) -> (usize, usize) {
        let site = |name| self.site(name).expect("the plan is valid");
        (site(&pvc.from), site(&pvc.to))
    }
}

/// Returns whether a path is shaped with one queue for all its circuits, by the edge.
fn is_shaped_whole(pvc: &Pvc) -> bool {
    pvc.shape && pvc.queues == Queues::Path
}

/// Adds the group of a path that is shaped with a queue for each circuit, to the switch of its site.
fn group(plan: &Plan, pvc: &Pvc, sites: &mut [Switch]) -> Option<GroupId> {
    let site = &mut sites[plan.ends(pvc).0];
    let add = || site.add_group(0, contract(pvc.mbps, slot_us(plan)), Service::UBR).expect("port 0 exists");
    (pvc.queues == Queues::Circuits).then(add)
}

/// Returns the switch at a site's edge, which shapes the site's paths.
fn edge(plan: &Plan, site: usize, port: SwitchPort) -> Switch {
    let mut edge = Switch::new(&[port; 2], FABRIC_DELAY);
    for (number, pvc) in plan.pvcs.iter().enumerate() {
        let name = ConnectionId::Path(number as u16 + 1);
        let (from, to) = plan.ends(pvc);
        let room = plan.network.queue_cells;
        if from == site {
            let shape = is_shaped_whole(pvc).then(|| contract(pvc.mbps, slot_us(plan)));
            edge.add(Route { shape, ..Route::plain(0, name, 1, name, room) }).expect("path names are unique");
        } else if to == site {
            edge.add(Route::plain(1, name, 0, name, room)).expect("path names are unique");
        }
    }
    edge
}

fn join(world: &mut World, one: Attachment, other: Attachment, metres: f64) -> (LineNumber, LineNumber) {
    world.connect(one, other, metres, ImpairmentConfig::NONE).expect("both plugs are new")
}

/// The TCP port of the bulk flows.
const PORT: u16 = 5001;

fn board(plan: &Plan, flow: &Flow, side: usize, vc: Vc) -> BoardConfig {
    let contract = flow.shape_mbps.map(|mbps| contract(mbps, slot_us(plan)));
    let prefix = kiban_tcpip::ip::Prefix::new(Pair::address(0), 24);
    let mut port = AtmPortConfig::oc3c(Pair::address(side), prefix);
    port.line_bits_per_second = (plan.network.line_mbps * 1e6) as u64;
    port.circuits.push(CircuitConfig { contract, ..CircuitConfig::to(vc, Pair::address(1 - side)) });
    let window = flow.window_kib << 10;
    BoardConfig {
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

/// A writer that writes as much as TCP accepts until its end time.
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

/// A reader that records when each block is complete.
#[derive(Default)]
struct Drain {
    octets: u64,
    last: Option<Instant>,
    /// The interval between one block and the next, nanoseconds.
    gaps: Vec<u64>,
    ended: bool,
}

impl Drain {
    fn read(&mut self, stream: StreamId, host: &mut Host<'_>, now: Instant) {
        let mut room = [0; 9140];
        while let Ok(count @ 1..) = host.read(stream, &mut room) {
            let blocks = self.octets / BLOCK_OCTETS;
            self.octets += count as u64;
            if self.octets / BLOCK_OCTETS > blocks {
                self.gaps.extend(self.last.map(|last| now.since(last).as_nanos() as u64));
                self.last = Some(now);
            }
        }
    }
}

impl Program for Drain {
    fn start(&mut self, host: &mut Host<'_>, _now: Instant) {
        let any = SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, PORT));
        host.listen_with(any, false).expect("the board is new");
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        match completion {
            Completion::Readable { stream } => self.read(stream, host, now),
            Completion::PeerFinished { stream } | Completion::Ended { stream, .. } => {
                self.read(stream, host, now);
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
