//! Tests of the switch, and a comparison with a model that handles each cell as an event.

mod atm;

use atm::*;
use kiban_atm::wire::atm::{Header, Interface, Vc};
use kiban_atm::{
    Category, Circuit, ConnectionId, Contract, FABRIC_DELAY, Interval, OC3C_BITS_PER_SECOND, Penalty,
    Reassembly, Route, RouteError, RxCircuit, Segmentation, Service, SlotClock, Switch, SwitchPort,
    TimedCell, TxCircuit,
};
use kiban_base::{Instant, SimRng};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::time::Duration;

const OC3C: Interval = Interval::of_line(OC3C_BITS_PER_SECOND);

/// The textbook leaky bucket, in units of 1/scale ns.
#[derive(Clone)]
struct Bucket {
    increment: i128,
    limit: i128,
    scale: i128,
    level: i128,
    last: i128,
}

impl Bucket {
    fn new(contract: &Contract) -> Bucket {
        let (numerator, scale) = contract.peak.ratio();
        let limit = contract.tolerance.as_nanos() as i128 * i128::from(scale);
        Bucket { increment: numerator.into(), limit, scale: scale.into(), level: 0, last: 0 }
    }

    fn conforms(&mut self, at: Instant) -> bool {
        let at = i128::from(at.as_nanos()) * self.scale;
        let level = self.level - (at - self.last);
        if level > self.limit {
            return false;
        }
        (self.level, self.last) = (level.max(0) + self.increment, at);
        true
    }
}

/// Models one output port, with an event for every cell and a check at every slot. Returns the cells that
/// leave the port.
fn model(
    ports: &[SwitchPort],
    delay: Duration,
    routes: &[Route],
    arrivals: &[(usize, TimedCell)],
    out_port: usize,
) -> Vec<TimedCell> {
    let config = &ports[out_port];
    let mut buckets: Vec<_> =
        routes.iter().map(|route| route.police.map(|(c, p)| (Bucket::new(&c), p))).collect();
    let mut inputs = VecDeque::new();
    for (port, cell) in arrivals {
        let header = Header::from_word(ports[*port].interface, cell.header);
        let matches = |route: &&Route| {
            route.in_port == *port && route.in_connection == ConnectionId::Circuit(header.vc)
        };
        let Some(index) = routes.iter().position(|route| matches(&route)) else { continue };
        let ConnectionId::Circuit(vc) = routes[index].out_connection else {
            panic!("the model knows circuits")
        };
        let mut header = Header { vc, gfc: 0, ..header };
        if let Some((bucket, penalty)) = &mut buckets[index]
            && !bucket.conforms(cell.at)
        {
            if *penalty == Penalty::Drop || header.clp {
                continue;
            }
            header.clp = true;
        }
        if routes[index].out_port == out_port {
            inputs.push_back((cell.at + delay, index, header, cell.payload));
        }
    }
    let mut queues: Vec<VecDeque<TimedCell>> = vec![VecDeque::new(); routes.len()];
    let mut spoiled: Vec<Option<Spoiled>> = vec![None; routes.len()];
    let mut inside = vec![false; routes.len()];
    let (mut ring, mut out, mut slot) = (VecDeque::new(), Vec::new(), 0);
    while !inputs.is_empty() || !ring.is_empty() {
        let start = Instant::from_nanos(slot_start(config.cell_time, slot));
        slot += 1;
        while inputs.front().is_some_and(|(moment, ..)| *moment <= start) {
            let (_, index, mut header, payload) = inputs.pop_front().unwrap();
            let waiting: usize = queues.iter().map(VecDeque::len).sum();
            let last = header.is_last();
            let room = queues[index].len() < routes[index].queue_cells_max
                && waiting < config.port_cells_max
                && !(header.clp && waiting >= config.low_priority_cells_max);
            let mut taken = room;
            if routes[index].frame_discard && header.is_user() {
                let first = !inside[index];
                inside[index] = !last;
                if first {
                    spoiled[index] = None;
                    if !room || waiting >= config.early_cells_max {
                        spoiled[index] = Some(Spoiled::Whole);
                    }
                }
                taken = match spoiled[index] {
                    Some(Spoiled::Whole) => false,
                    Some(Spoiled::Rest) => last && room,
                    None => room,
                };
                if !taken && spoiled[index].is_none() {
                    spoiled[index] = Some(Spoiled::Rest);
                }
            }
            if !taken {
                continue;
            }
            if waiting >= config.mark_cells_min && header.is_user() {
                header.pti |= 2;
            }
            if queues[index].is_empty() {
                ring.push_back(index);
            }
            queues[index].push_back(TimedCell::new(Instant::ZERO, header.to_word(config.interface), payload));
        }
        if let Some(index) = ring.pop_front() {
            let cell = queues[index].pop_front().unwrap();
            out.push(TimedCell { at: Instant::from_nanos(slot_start(config.cell_time, slot)), ..cell });
            if !queues[index].is_empty() {
                ring.push_back(index);
            }
        }
    }
    out
}

#[derive(Clone, Copy, PartialEq)]
enum Spoiled {
    Whole,
    Rest,
}

/// Builds the input of a line on which frames of the given circuits use `load` of every 100 slots.
fn traffic(
    seed: u64,
    line: Interval,
    circuits: &[Vc],
    interface: Interface,
    cells: usize,
    load: u64,
) -> Vec<TimedCell> {
    let mut chance = SimRng::from_seed(seed);
    let mut clock = SlotClock::new(line);
    let mut train = Vec::new();
    for number in 0..cells {
        clock.step();
        if chance.below(100) >= load {
            continue;
        }
        let vc = circuits[chance.below(circuits.len() as u64) as usize];
        let header = Header {
            pti: if chance.below(50) == 0 { 5 } else { u8::from(chance.below(6) == 0) },
            clp: chance.below(8) == 0,
            ..Header::user(vc, false)
        };
        let mut payload = [0; 48];
        payload[..16].copy_from_slice(&((seed as u128) << 64 | number as u128).to_be_bytes());
        train.push(TimedCell::new(clock.start(), header.to_word(interface), payload));
    }
    train
}

#[derive(Clone, Debug)]
struct World {
    ports: Vec<SwitchPort>,
    routes: Vec<Route>,
    delay: Duration,
    load: u64,
    seed: u64,
}

fn threshold(range: std::ops::Range<usize>) -> impl Strategy<Value = usize> {
    prop_oneof![Just(usize::MAX), range]
}

fn world() -> impl Strategy<Value = World> {
    let line = prop_oneof![Just(OC3C), Just(Interval::of_line(99_000_000))];
    let port = (line, any::<bool>(), 4usize..80, threshold(1..40), threshold(1..40), threshold(1..40))
        .prop_map(|(cell_time, nni, port_cells_max, low, early, mark)| SwitchPort {
            cell_time,
            interface: if nni { Interface::Nni } else { Interface::Uni },
            port_cells_max,
            low_priority_cells_max: low,
            early_cells_max: early,
            mark_cells_min: mark,
        });
    let police = prop::option::of((50_000u64..200_000, 0u64..40_000, any::<bool>()));
    let route = (0usize..3, 3usize..60, police, any::<bool>());
    (prop::collection::vec(port, 3), prop::collection::vec(route, 12), 0u64..20_000, 10u64..101, any::<u64>())
        .prop_map(|(ports, routes, delay, load, seed)| {
            // On each port, cells of four circuits arrive.
            let routes =
                routes.into_iter().enumerate().map(|(index, (out_port, queue, police, frame_discard))| {
                    Route {
                        in_port: index / 4,
                        in_connection: ConnectionId::Circuit(Vc::new(1, 40 + index as u16 % 4)),
                        out_port,
                        out_connection: ConnectionId::Circuit(Vc::new(2, 200 + index as u16)),
                        queue_cells_max: queue,
                        police: police.map(|(rate, tolerance, tag)| {
                            let penalty = if tag { Penalty::Tag } else { Penalty::Drop };
                            (
                                Contract::peak(Interval::per_second(rate), Duration::from_nanos(tolerance)),
                                penalty,
                            )
                        }),
                        shape: None,
                        service: Service::UBR,
                        group: None,
                        frame_discard,
                    }
                });
            World { routes: routes.collect(), ports, delay: Duration::from_nanos(delay), load, seed }
        })
}

fn check(world: &World) {
    let mut switch = Switch::new(&world.ports, world.delay);
    world.routes.iter().for_each(|route| switch.add(*route).unwrap());
    // The last of these circuits has no table entry.
    let circuits: Vec<Vc> = (0..5).map(|n| Vc::new(1, 40 + n)).collect();
    let trains: Vec<Vec<TimedCell>> = (0..3)
        .map(|port| {
            traffic(
                world.seed ^ port,
                world.ports[port as usize].cell_time,
                &circuits,
                world.ports[port as usize].interface,
                400,
                world.load,
            )
        })
        .collect();
    let mut arrivals: Vec<(usize, TimedCell)> = trains
        .iter()
        .enumerate()
        .flat_map(|(port, train)| train.iter().map(move |cell| (port, *cell)))
        .collect();
    arrivals.sort_by_key(|(port, cell)| (cell.at, *port));

    let (mut chance, mut now, mut out) = (SimRng::from_seed(world.seed), 0, vec![Vec::new(); 3]);
    let mut rest: Vec<&[TimedCell]> = trains.iter().map(Vec::as_slice).collect();
    while rest.iter().any(|train| !train.is_empty()) {
        now += chance.below(60_000);
        let mut batch = Vec::new();
        for (port, train) in rest.iter_mut().enumerate() {
            let (part, after) = train.split_at(train.partition_point(|cell| cell.at.as_nanos() <= now));
            batch.push((port, part));
            *train = after;
        }
        switch.arrive_merged(&mut batch);
        for (port, out) in out.iter_mut().enumerate() {
            if chance.below(2) == 0 {
                let ahead = chance.below(world.delay.as_nanos() as u64 + 1);
                switch.advance(port, Instant::from_nanos(now + ahead), out);
            }
        }
    }
    for (port, out) in out.iter_mut().enumerate() {
        let (foretold, seen) = (switch.next_end(port), out.len());
        switch.advance(port, LATER, out);
        let end =
            out[seen..].iter().find(|cell| cell.header >> 1 & 5 != 0).map_or(Instant::NEVER, |cell| cell.at);
        assert_eq!(foretold, end, "the next end at port {port}");
        let expected = model(&world.ports, world.delay, &world.routes, &arrivals, port);
        if let Some(at) = (0..out.len().max(expected.len())).find(|at| out.get(*at) != expected.get(*at)) {
            panic!("port {port}, cell {at}: {:?}, the model says {:?}", out.get(at), expected.get(at));
        }
        assert_eq!((switch.waiting(port), switch.next_end(port)), (0, Instant::NEVER));
    }
    let counters = switch.counters();
    let gone = counters.cells_unrouted
        + counters.cells_policed
        + counters.cells_dropped_priority
        + counters.cells_dropped_queue_full
        + counters.cells_dropped_port_full
        + counters.cells_dropped_early
        + counters.cells_dropped_partial;
    assert_eq!(counters.cells_in, counters.cells_out + gone, "every cell is accounted for");
}

proptest! {
    #[test]
    fn a_switch_forwards_in_cell_exact_time(world in world()) {
        check(&world);
    }
}

/// Each of two inputs uses more than half of an output's rate, in whole frames; the output is reassembled.
fn overload(change: impl Fn(&mut SwitchPort, &mut Route)) -> (Switch, Reassembly, usize) {
    let mut bench = Bench::new(4096);
    let mut config = SwitchPort::plain(OC3C, Interface::Uni, 600);
    let names: Vec<ConnectionId> = (0..8).map(|circuit| ConnectionId::Circuit(vc(circuit))).collect();
    let mut routes: Vec<Route> = (0..8).map(|c| Route::plain(c / 4, names[c], 2, names[c], 600)).collect();
    routes.iter_mut().for_each(|route| change(&mut config, route));
    let mut switch = Switch::new(&[config; 3], FABRIC_DELAY);
    routes.into_iter().for_each(|route| switch.add(route).unwrap());
    let mut trains = [Vec::new(), Vec::new()];
    for (port, train) in trains.iter_mut().enumerate() {
        // The lines have different speeds, because in lockstep the second would lose every cell and the first
        // none.
        let line = if port == 0 { OC3C } else { Interval::of_line(120_000_000) };
        let mut down = Segmentation::new(line, Interface::Uni);
        for circuit in (0..4).map(|c| c + 4 * port as u32) {
            down.open(Circuit(circuit), outlet(circuit));
            for seed in 0..20 {
                let pdu = bench.pdu(&pattern(seed, 2000), 48, &[2000]);
                down.send(Circuit(circuit), pdu, Instant::ZERO).unwrap();
            }
        }
        down.advance(LATER, train, &mut bench.copies);
    }
    switch.arrive_merged(&mut [(0, &trains[0]), (1, &trains[1])]);
    let (mut out, mut up) = (Vec::new(), Reassembly::new(Interface::Uni));
    switch.advance(2, LATER, &mut out);
    (0..8).for_each(|circuit| up.open(Circuit(circuit), RxCircuit::classical_ip(vc(circuit))));
    let whole = frames(&bench.receive(&mut up, &out)).len();
    (switch, up, whole)
}

#[test]
fn early_discard_drops_whole_frames_only() {
    // A frame has 42 cells. Eight frames may be in progress when the threshold is reached.
    let (switch, up, whole) = overload(|port, route| {
        port.early_cells_max = 600 - 8 * 42;
        route.frame_discard = true;
    });
    let counters = switch.counters();
    assert!(counters.frames_dropped_early > 20, "{counters:?}");
    assert_eq!(counters.cells_dropped_early, counters.frames_dropped_early * 42);
    assert_eq!((up.counters().frames_crc_wrong, up.counters().frames_length_wrong), (0, 0));
    assert_eq!(whole as u64 + counters.frames_dropped_early, 160);
}

#[test]
fn without_frame_discard_a_few_cells_spoil_many_frames() {
    let (switch, up, whole) = overload(|_, _| {});
    let (_, _, whole_partial) = overload(|_, route| route.frame_discard = true);
    let (_, _, whole_early) = overload(|port, route| {
        port.early_cells_max = 600 - 8 * 42;
        route.frame_discard = true;
    });
    assert!(switch.counters().cells_dropped_port_full > 1000);
    assert!(up.counters().frames_crc_wrong > 20, "{:?} {whole} {whole_partial} {whole_early}", up.counters());
    assert!(whole < whole_partial && whole_partial <= whole_early, "{whole} {whole_partial} {whole_early}");
}

#[test]
fn three_in_a_hundred_cells_too_fast_spoil_nearly_every_frame() {
    // Paper [2]'s service polices to 67.815 Mbit/s. With a shaper at the same rate nothing is lost; with a
    // shaper that is 3 % faster, almost everything is.
    for (excess, whole_expected) in [(100, 20), (103, 0)] {
        let rate = 67_815_000;
        let mut bench = Bench::new(4096);
        let (mut down, mut train) = (Segmentation::new(OC3C, Interface::Uni), Vec::new());
        let shaped = Contract::peak(Interval::of_line(rate * excess / 100), Duration::from_nanos(2832));
        down.open(Circuit(0), TxCircuit { contract: Some(shaped), ..outlet(0) });
        for seed in 0..20 {
            let pdu = bench.pdu(&pattern(seed, 8240), 48, &[4096]);
            down.send(Circuit(0), pdu, Instant::ZERO).unwrap();
        }
        down.advance(LATER, &mut train, &mut bench.copies);
        let mut switch = Switch::new(&[SwitchPort::plain(OC3C, Interface::Uni, 100); 2], FABRIC_DELAY);
        let name = ConnectionId::Circuit(vc(0));
        // Use a tolerance of a few slots, because cells are sent in slots, so they may arrive up to one slot
        // early.
        let contract = Contract::peak(Interval::of_line(rate), Duration::from_micros(20));
        switch
            .add(Route { police: Some((contract, Penalty::Drop)), ..Route::plain(0, name, 1, name, 100) })
            .unwrap();
        switch.arrive(0, &train);
        let mut out = Vec::new();
        switch.advance(1, LATER, &mut out);
        let (_, mut up) = ports(1, 9188, 1);
        let whole = frames(&bench.receive(&mut up, &out)).len();
        let lost = switch.counters().cells_policed as f64 / train.len() as f64;
        assert_eq!(whole, whole_expected, "frames whole at {excess} %");
        assert!((lost - (1.0 - 100.0 / excess as f64)).abs() < 0.002, "{lost} lost at {excess} %");
    }
}

#[test]
fn an_empty_switch_adds_its_delay_and_the_wait_for_a_slot() {
    let mut switch = Switch::new(&[SwitchPort::plain(LINE, Interface::Uni, 9); 2], FABRIC_DELAY);
    let name = ConnectionId::Circuit(vc(0));
    switch.add(Route::plain(0, name, 1, ConnectionId::Circuit(Vc::new(0, 77)), 9)).unwrap();
    let word = Header::user(vc(0), true).to_word(Interface::Uni);
    switch.arrive(0, &[TimedCell::new(Instant::from_nanos(5001), word, [1; 48])]);
    // Time 5001 + 10000 is in the slot that starts at 15000; the next slot starts at 17500 and ends at 20000.
    assert_eq!(switch.next_end(1), Instant::from_nanos(20_000));
    let mut out = Vec::new();
    switch.advance(1, Instant::from_nanos(17_500), &mut out);
    assert!(out.is_empty());
    switch.advance(1, Instant::from_nanos(17_501), &mut out);
    let word = Header::user(Vc::new(0, 77), true).to_word(Interface::Uni);
    assert_eq!(out, [TimedCell::new(Instant::from_nanos(20_000), word, [1; 48])]);
}

#[test]
fn a_path_keeps_its_channels_and_a_circuit_goes_before_a_path() {
    let ports = [SwitchPort::plain(LINE, Interface::Uni, 9), SwitchPort::plain(LINE, Interface::Nni, 9)];
    let mut switch = Switch::new(&ports, Duration::ZERO);
    switch.add(Route::plain(0, ConnectionId::Path(7), 1, ConnectionId::Path(0xabc), 9)).unwrap();
    switch
        .add(Route::plain(
            0,
            ConnectionId::Circuit(Vc::new(7, 50)),
            1,
            ConnectionId::Circuit(Vc::new(3, 51)),
            9,
        ))
        .unwrap();
    let cell = |vci, gfc, at| {
        let header = Header { gfc, ..Header::user(Vc::new(7, vci), false) };
        TimedCell::new(Instant::from_nanos(at), header.to_word(Interface::Uni), [0; 48])
    };
    switch.arrive(0, &[cell(33, 0xf, 0), cell(50, 0, 10_000), cell(34, 0, 20_000)]);
    let mut out = Vec::new();
    switch.advance(1, LATER, &mut out);
    let names: Vec<Vc> = out.iter().map(|cell| Header::from_word(Interface::Nni, cell.header).vc).collect();
    assert_eq!(names, [Vc::new(0xabc, 33), Vc::new(3, 51), Vc::new(0xabc, 34)]);
    assert!(out.iter().all(|cell| TimedCell::new(cell.at, cell.header, cell.payload) == *cell));
}

#[test]
fn a_wrong_header_does_not_cross() {
    let mut switch = Switch::new(&[SwitchPort::plain(LINE, Interface::Uni, 9); 2], Duration::ZERO);
    let name = ConnectionId::Circuit(vc(0));
    switch.add(Route::plain(0, name, 1, name, 9)).unwrap();
    let good = TimedCell::new(Instant::ZERO, Header::user(vc(0), true).to_word(Interface::Uni), [0; 48]);
    let train = [
        TimedCell { header: good.header ^ 1 << 6, ..good },
        TimedCell { header: good.header ^ 1 << 6, ..good },
        good,
        TimedCell::new(Instant::ZERO, 1, [0x6a; 48]),
    ];
    switch.arrive(0, &train);
    let mut out = Vec::new();
    switch.advance(1, LATER, &mut out);
    assert_eq!(
        out.iter().map(|cell| (cell.header, cell.hec)).collect::<Vec<_>>(),
        [(good.header, good.hec); 2]
    );
    let counters = switch.counters();
    assert_eq!((counters.cells_hec_corrected, counters.cells_hec_bad, counters.cells_idle), (1, 1, 1));
}

#[test]
fn entries_come_and_go_and_contradictions_are_refused() {
    let mut switch = Switch::new(&[SwitchPort::plain(LINE, Interface::Uni, 9); 2], Duration::ZERO);
    let (circuit, path) = (ConnectionId::Circuit(vc(0)), ConnectionId::Path(0));
    let plain = Route::plain(0, circuit, 1, circuit, 9);
    assert_eq!(switch.add(Route { out_port: 2, ..plain }), Err(RouteError::UnknownPort));
    assert_eq!(switch.add(Route { out_connection: path, ..plain }), Err(RouteError::KindsDiffer));
    let path_with_frames = Route { in_connection: path, out_connection: path, frame_discard: true, ..plain };
    assert_eq!(switch.add(path_with_frames), Err(RouteError::PathWithFrames));
    let word = Header::user(vc(0), true).to_word(Interface::Uni);
    for round in 0..3 {
        assert_eq!(switch.add(plain), Ok(()));
        assert_eq!(switch.add(plain), Err(RouteError::InUse));
        switch.arrive(0, &[TimedCell::new(Instant::from_nanos(round), word, [0; 48])]);
        assert_eq!(switch.waiting(1), 1);
        assert!(switch.remove(0, circuit));
        assert!(!switch.remove(0, circuit));
        assert_eq!((switch.waiting(1), switch.next_end(1)), (0, Instant::NEVER));
        switch.arrive(0, &[TimedCell::new(Instant::from_nanos(round), word, [0; 48])]);
    }
    assert_eq!(switch.counters().cells_unrouted, 3);
}

/// Cells of a circuit, back to back from time zero.
fn burst(vc: Vc, cells: usize) -> Vec<TimedCell> {
    let mut clock = SlotClock::new(OC3C);
    let cell = |number: usize| {
        clock.step();
        let word = Header::user(vc, false).to_word(Interface::Uni);
        let mut payload = [0; 48];
        payload[..8].copy_from_slice(&number.to_be_bytes());
        TimedCell::new(clock.start(), word, payload)
    };
    (0..cells).map(cell).collect()
}

/// A path of a quarter of the line. Its circuits are served by category and weight, each from its own queue;
/// another circuit of the port has the rest of the line.
#[test]
fn a_group_is_shaped_as_a_whole_and_serves_its_circuits_by_category_and_weight() {
    let port = SwitchPort::plain(OC3C, Interface::Uni, 10_000);
    let mut switch = Switch::new(&[port; 5], FABRIC_DELAY);
    let (peak, slot) = (Interval::of_line(OC3C_BITS_PER_SECOND / 4), Duration::from_nanos(2832));
    let group = switch.add_group(4, Contract::peak(peak, slot), Service::UBR).expect("port 4 exists");
    let vc = |number: u16| Vc::new(3, 40 + number);
    let services = [
        Service { category: Category::Cbr, weight: 1 },
        Service { category: Category::Ubr, weight: 3 },
        Service { category: Category::Ubr, weight: 1 },
    ];
    let route = |number: u16| {
        let name = ConnectionId::Circuit(vc(number));
        Route::plain(number.into(), name, 4, name, 300)
    };
    for (number, service) in services.into_iter().enumerate() {
        switch.add(Route { service, group: Some(group), ..route(number as u16) }).expect("a new entry");
    }
    switch.add(route(3)).expect("a new entry");
    // Each circuit sends 100 cells at the line rate, the CBR circuit 20.
    let trains = [20, 100, 100, 300].map(|cells| cells);
    let trains: Vec<Vec<TimedCell>> =
        trains.into_iter().enumerate().map(|(number, cells)| burst(vc(number as u16), cells)).collect();
    let mut inputs: Vec<(usize, &[TimedCell])> =
        trains.iter().enumerate().map(|(port, train)| (port, &train[..])).collect();
    switch.arrive_merged(&mut inputs);
    let mut out = Vec::new();
    let first_end = switch.next_end(4);
    switch.advance(4, Instant::from_nanos(10_000_000), &mut out);
    assert_eq!((out.len(), switch.is_empty(), first_end), (520, true, Instant::NEVER));
    let number = |cell: &TimedCell| Header::from_word(Interface::Uni, cell.header).vc.vci - 40;
    let of_group: Vec<&TimedCell> = out.iter().filter(|cell| number(cell) < 3).collect();
    // The group leaves at its contract: a cell in every fourth slot.
    let length = of_group[219].at.since(of_group[0].at).as_secs_f64();
    let rate = 219.0 * 424.0 / length;
    assert!((rate / (OC3C_BITS_PER_SECOND as f64 / 4.0) - 1.0).abs() < 0.01, "{rate}");
    // The CBR circuit is served as its cells arrive. Of the others, one has three times the cells.
    let last_cbr = of_group.iter().rposition(|cell| number(cell) == 0).expect("it has cells");
    assert!(last_cbr < 25, "{last_cbr}");
    let middle: Vec<u16> = of_group[40..120].iter().map(|cell| number(cell)).collect();
    let count = |which| middle.iter().filter(|number| **number == which).count();
    assert_eq!((count(1), count(2)), (60, 20), "{middle:?}");
    // Each circuit's cells keep their order.
    for circuit in 0..4 {
        let cells = out.iter().filter(|cell| number(cell) == circuit);
        assert!(cells.map(|cell| cell.payload).is_sorted(), "{circuit}");
    }
}

#[test]
fn an_entry_of_a_group_takes_its_cells_along_and_the_group_stays() {
    let port = SwitchPort::plain(OC3C, Interface::Uni, 10_000);
    let mut switch = Switch::new(&[port; 2], FABRIC_DELAY);
    let slow = Contract::peak(Interval::of_line(1_000_000), Duration::ZERO);
    let group = Some(switch.add_group(1, slow, Service::UBR).expect("port 1 exists"));
    let name = |number: u16| ConnectionId::Circuit(Vc::new(3, 40 + number));
    let route = |number| Route { group, ..Route::plain(0, name(number), 1, name(number), 300) };
    switch.add(route(0)).expect("a new entry");
    switch.arrive(0, &burst(Vc::new(3, 40), 10));
    assert!(switch.waiting(1) >= 9);
    assert!(switch.remove(0, name(0)));
    assert_eq!(switch.waiting(1), 0);
    switch.add(route(1)).expect("a new entry");
    let later: Vec<TimedCell> = burst(Vc::new(3, 41), 5)
        .into_iter()
        .map(|cell| TimedCell { at: cell.at + Duration::from_millis(10), ..cell })
        .collect();
    switch.arrive(0, &later);
    let mut out = Vec::new();
    switch.advance(1, Instant::from_nanos(1_000_000_000), &mut out);
    assert!((5..=6).contains(&out.len()) && switch.is_empty(), "{}", out.len());
    let wrong = [
        (Route { group, ..Route::plain(0, name(2), 0, name(2), 9) }, RouteError::UnknownGroup),
        (Route { shape: Some(slow), ..route(2) }, RouteError::ShapeInGroup),
    ];
    for (route, error) in wrong {
        assert_eq!(switch.add(route), Err(error));
    }
    assert!(matches!(switch.add_group(2, slow, Service::UBR), Err(RouteError::UnknownPort)));
}
