//! Terminals in a world: the traffic that sources send, and how an impaired line affects it.

use kiban_atm::aal1::Form;
use kiban_atm::wire::aal1::fec::Code;
use kiban_atm::wire::atm::{Interface, Vc};
use kiban_atm::{
    ConnectionId, Contract, FABRIC_DELAY, Interval, Meter, OC3C_BITS_PER_SECOND, Route, Switch, SwitchPort,
};
use kiban_base::{Instant, SimRng};
use kiban_sim::traffic::{
    CellLog, FrameSink, FrameSource, Jpeg, JpegConfig, Outlet, Periodic, StreamConfig, StreamSink,
    StreamSource,
};
use kiban_sim::{Attachment, ImpairmentConfig, Terminal, World};
use std::time::Duration;

const VC: Vc = Vc::new(0, 100);
const LINE: Interval = Interval::of_line(OC3C_BITS_PER_SECOND);

fn seconds(count: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(count)
}

fn jpeg() -> Jpeg {
    let config = JpegConfig {
        pictures_per_second: 30,
        ranges: vec![(2.1e6, 5.5e6)],
        scene: Duration::from_secs(1),
        spread: 0.15,
        frame_octets_max: 9180,
    };
    Jpeg::new(config, SimRng::from_seed(1))
}

/// Returns a world with a source and a sink, each on a port of a switch; `impairment` applies to the sink's
/// line.
fn world(
    source: impl Terminal,
    sink: impl Terminal,
    impairment: ImpairmentConfig,
) -> (World, [kiban_sim::TerminalNumber; 2]) {
    let mut world = World::new(9);
    let port = SwitchPort::plain(LINE, Interface::Uni, 8192);
    let mut switch = Switch::new(&[port; 2], FABRIC_DELAY);
    let name = ConnectionId::Circuit(VC);
    switch.add(Route::plain(0, name, 1, name, 8192)).expect("the table is empty");
    let switch = world.add_switch(switch);
    let terminals = [world.add_terminal(Box::new(source)), world.add_terminal(Box::new(sink))];
    for (side, terminal) in terminals.iter().enumerate() {
        let impairment = if side == 1 { impairment } else { ImpairmentConfig::NONE };
        world
            .connect(Attachment::Terminal(*terminal), Attachment::Switch(switch, side), 1000.0, impairment)
            .expect("both are new");
    }
    (world, terminals)
}

#[test]
fn a_source_shaped_to_a_contract_keeps_to_it_and_loses_nothing() {
    let contract = Contract::peak(Interval::of_line(20_000_000), Duration::from_micros(3));
    for shaped in [None, Some(contract)] {
        let ledger = CellLog::shared();
        let outlet = Outlet { vc: VC, cell_time: LINE, contract: shaped };
        let mut source = FrameSource::new(outlet, Box::new(jpeg()), 9180, seconds(2), ledger.clone());
        let mut cells = Vec::new();
        // The source sends the same cells whether it is polled once, or many times in strides of different
        // lengths.
        let mut now = Instant::ZERO;
        for stride in (0..).map(|number: u64| 1 + number * 7919 % 3_000_000) {
            now += Duration::from_nanos(stride);
            source.cells(now, &mut cells);
            if now > seconds(3) {
                break;
            }
        }
        let mut whole = FrameSource::new(outlet, Box::new(jpeg()), 9180, seconds(2), ledger);
        let mut at_once = Vec::new();
        whole.cells(seconds(3), &mut at_once);
        assert!(cells == at_once && source.units() == 60);
        let mut policer = Meter::new(contract);
        let starts = |at: Instant| Instant::from_nanos(at.as_nanos() - 2831);
        let broken = cells.iter().filter(|cell| !policer.police(starts(cell.at))).count();
        assert_eq!(broken == 0, shaped.is_some(), "{broken} of {}", cells.len());
    }
}

#[test]
fn the_ledger_records_losses_and_the_units_they_spoil() {
    let ledger = CellLog::shared();
    let outlet = Outlet { vc: VC, cell_time: LINE, contract: None };
    let program = Periodic::new(Duration::from_millis(20), 640, &mut SimRng::from_seed(3));
    let source = FrameSource::new(outlet, Box::new(program), 9180, seconds(4), ledger.clone());
    let sink = FrameSink::new(9180, ledger.clone());
    // The source sends 200 packets of 14 cells, and the line loses each 100th cell.
    let (mut world, [source, sink]) =
        world(source, sink, ImpairmentConfig { lose_every: 100, ..ImpairmentConfig::NONE });
    world.collect(seconds(5));
    ledger.borrow_mut().close();
    let tally = ledger.borrow_mut().take();
    assert_eq!((tally.offered, tally.carried, tally.lost, tally.strange), (2800, 2772, 28, 0));
    let units = world.terminal::<FrameSink>(sink).expect("it is one").take();
    // A packet may lose two cells. If a packet loses its last cell, the next packet is lost with it.
    assert!((166..=172).contains(&units.whole), "{units:?}");
    assert_eq!(world.terminal::<FrameSource>(source).map(|source| source.units()), Some(200));
    // Each line delays a cell by the propagation time of 1 km and by a cell time; the switch adds its own
    // delay.
    let least = tally.delays.iter().min().expect("cells came");
    assert!((20_000..26_000).contains(least), "{least}");
}

#[test]
fn a_stream_with_interleaving_survives_losses_that_damage_one_without() {
    for (form, damaged) in
        [(Form::Stream, true), (Form::Corrected(Code::Short), false), (Form::Corrected(Code::Long), false)]
    {
        let config = StreamConfig {
            form,
            bits_per_second: 5_880_000,
            stamps: false,
            period: Duration::from_millis(100),
            clock_ppm: 0.0,
            settle: Duration::from_millis(100),
        };
        let ledger = CellLog::shared();
        let outlet = Outlet { vc: VC, cell_time: LINE, contract: None };
        let source = StreamSource::new(outlet, config, Duration::ZERO, seconds(1), ledger.clone());
        let sink = StreamSink::new(config, ledger.clone());
        let (mut world, [_, sink]) =
            world(source, sink, ImpairmentConfig { lose_every: 97, ..ImpairmentConfig::NONE });
        world.collect(seconds(2));
        let tally = ledger.borrow_mut().take();
        let expected = config.line_bits_per_second() / 424.0;
        assert!((tally.offered as f64 - expected).abs() <= 2.0, "{form:?}: {}", tally.offered);
        let sink = world.terminal::<StreamSink>(sink).expect("it is one");
        assert_eq!(!sink.damaged().is_empty(), damaged, "{form:?}");
        assert_eq!(sink.counters().cells_lost, tally.lost, "{form:?}");
    }
}
