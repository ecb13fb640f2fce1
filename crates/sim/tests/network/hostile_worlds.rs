//! Simulations with congestion, losses and exact timing: several switches and circuits, policing, frame
//! discard, cell loss, long lines.

use kiban_atm::wire::aal5;
use kiban_atm::wire::atm::{Interface, Vc};
use kiban_atm::{
    ConnectionId, Contract, FABRIC_DELAY, Interval, OC3C_BITS_PER_SECOND, Penalty, Route, Switch, SwitchPort,
};
use kiban_base::{Instant, SimRng};
use kiban_board::{
    AtmPortConfig, BoardConfig, CircuitConfig, Completion, Host, PortConfig, Reason, SocketId, StreamId,
};
use kiban_sim::program::{Receiver, Sender, Sink, Source};
use kiban_sim::{
    Attachment, BoardNumber, ImpairmentConfig, LineNumber, Pair, Plan, Program, SwitchNumber, World, check,
};
use kiban_tcpip::ip::Prefix;
use kiban_tcpip::tcp;
use std::any::Any;
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

/// T = 331250/117 ns on an OC-3c.
const SLOT: (u64, u64) = (331_250, 117);
/// The payload rate of an OC-3c in Mbit/s, if each frame carries 8192 bytes in 172 cells.
const LINE_MBPS: f64 = 149.76 * 8192.0 / (172.0 * 53.0);

fn address(board: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + board as u8])
}

fn socket(board: usize, port: u16) -> SocketAddr {
    SocketAddr::new(address(board), port)
}

fn noise(seed: u64, length: usize) -> Rc<Vec<u8>> {
    let mut rng = SimRng::from_seed(seed);
    Rc::new((0..length).map(|_| rng.draw() as u8).collect())
}

fn tcp_with(window_bytes: u32, mss: u16) -> tcp::Config {
    tcp::Config {
        mss,
        segment_bytes_max: mss.into(),
        receive_buffer_bytes: window_bytes,
        send_buffer_bytes: 2 * window_bytes,
        ..tcp::Config::default()
    }
}

/// Boards around switches in a row; every board has a circuit to every other.
struct Net {
    world: World,
    boards: Vec<BoardNumber>,
    switches: Vec<SwitchNumber>,
    /// The line from each board to its switch.
    sending: Vec<LineNumber>,
}

/// The configuration of a network.
#[derive(Clone)]
struct Setup {
    /// The switch of each board.
    boards: Vec<usize>,
    switches: usize,
    tcp: tcp::Config,
    metres: f64,
    impairment: ImpairmentConfig,
    queue_cells: usize,
    frame_discard: bool,
    early_cells: usize,
    police: Option<Contract>,
    shape: Option<Contract>,
    /// By how much each board's line is slower than the line of the previous board, bit/s. Lines of exactly
    /// the same rate would stay in phase, so that a full queue would always lose the cells of the same board.
    slower: u64,
}

impl Setup {
    fn new(boards: &[usize], tcp: tcp::Config) -> Setup {
        Setup {
            boards: boards.to_vec(),
            switches: boards.iter().max().unwrap() + 1,
            tcp,
            metres: 100.0,
            impairment: ImpairmentConfig::NONE,
            queue_cells: 16_384,
            frame_discard: false,
            early_cells: usize::MAX,
            police: None,
            shape: None,
            slower: 0,
        }
    }

    fn build(&self) -> Net {
        let mut world = World::new(1);
        let count = self.boards.len();
        let boards: Vec<_> = (0..count).map(|board| world.add_board(&self.board(board))).collect();
        // Each switch has a port for every board, one to the previous switch and one to the next switch.
        let (before, behind) = (count, count + 1);
        let port = SwitchPort {
            early_cells_max: self.early_cells,
            ..SwitchPort::plain(Interval::of_line(OC3C_BITS_PER_SECOND), Interface::Uni, self.queue_cells)
        };
        let switches: Vec<_> = (0..self.switches)
            .map(|at| {
                let mut switch = Switch::new(&vec![port; count + 2], FABRIC_DELAY);
                let side = |board: usize| match self.boards[board].cmp(&at) {
                    std::cmp::Ordering::Less => before,
                    std::cmp::Ordering::Equal => board,
                    std::cmp::Ordering::Greater => behind,
                };
                for from in 0..count {
                    for to in (0..count).filter(|to| *to != from && side(*to) != side(from)) {
                        // Between switches, the identifier of a circuit is made from both boards' numbers; on
                        // a board's line, from the number of the other board.
                        let name = |port: usize, other: usize| match port == before || port == behind {
                            true => ConnectionId::Circuit(Vc::new(1, (32 + from * count + to) as u16)),
                            false => ConnectionId::Circuit(Vc::new(0, 100 + other as u16)),
                        };
                        let (input, output) = (side(from), side(to));
                        let plain = Route::plain(
                            input,
                            name(input, to),
                            output,
                            name(output, from),
                            self.queue_cells,
                        );
                        let police =
                            self.police.filter(|_| input == from).map(|contract| (contract, Penalty::Drop));
                        switch.add(Route { frame_discard: self.frame_discard, police, ..plain }).unwrap();
                    }
                }
                world.add_switch(switch)
            })
            .collect();
        let sending = (0..count)
            .map(|board| {
                let plug = Attachment::Switch(switches[self.boards[board]], board);
                world
                    .connect(Attachment::Board(boards[board], 0), plug, self.metres, self.impairment)
                    .unwrap()
                    .0
            })
            .collect();
        for at in 1..self.switches {
            let (one, other) =
                (Attachment::Switch(switches[at - 1], behind), Attachment::Switch(switches[at], before));
            world.connect(one, other, self.metres, self.impairment).unwrap();
        }
        Net { world, boards, switches, sending }
    }

    fn board(&self, board: usize) -> BoardConfig {
        let mut port = AtmPortConfig::oc3c(address(board), Prefix::new(address(0), 24));
        port.line_bits_per_second -= board as u64 * self.slower;
        for other in (0..self.boards.len()).filter(|other| *other != board) {
            let vc = Vc::new(0, 100 + other as u16);
            let circuit = CircuitConfig { contract: self.shape, ..CircuitConfig::to(vc, address(other)) };
            port.circuits.push(circuit);
        }
        BoardConfig { tcp: self.tcp.clone(), ports: vec![PortConfig::Atm(port)], ..BoardConfig::default() }
    }
}

/// A stream to be transferred, and its result.
struct Job {
    bytes: Rc<Vec<u8>>,
    got: Rc<RefCell<Vec<u8>>>,
}

impl Net {
    /// Starts a transfer; each uses its own port.
    fn send(&mut self, from: usize, to: usize, port: u16, bytes: Rc<Vec<u8>>) -> Job {
        let got = Rc::new(RefCell::new(Vec::new()));
        let place = got.clone();
        let make = move |_| -> Sink {
            let place = place.clone();
            Box::new(move |_, bytes| place.borrow_mut().extend_from_slice(bytes))
        };
        self.world.run_program(self.boards[to], Box::new(Receiver::new(port, 1, Box::new(make))));
        let (part, length) = (bytes.clone(), bytes.len() as u64);
        let source: Source = Box::new(move |at, buffer| {
            buffer.copy_from_slice(&part[at as usize..at as usize + buffer.len()]);
        });
        self.world
            .run_program(self.boards[from], Box::new(Sender::new(socket(to, port), vec![(length, source)])));
        Job { bytes, got }
    }

    /// Runs until all transfers are done, and checks everything. Returns how long it took.
    fn finish(&mut self, jobs: &[Job]) -> f64 {
        let done = self.world.run(self.world.now() + Duration::from_secs(20_000));
        let seconds = self.world.now().as_secs_f64();
        assert!(done, "{:?}", self.world);
        for (number, job) in jobs.iter().enumerate() {
            assert_eq!(check::stream(number, &job.bytes, &job.got.borrow()), []);
        }
        assert_eq!(check::check_idle(&mut self.world, &self.boards), []);
        seconds
    }

    fn switched(&self, name: &str) -> u64 {
        let mut total = 0;
        for switch in &self.switches {
            self.world
                .switch(*switch)
                .counters()
                .each(&mut |its, value| total += if its == name { value } else { 0 });
        }
        total
    }
}

/// Sends one datagram at a random time.
struct Shot {
    target: SocketAddr,
    bytes: usize,
}

impl Program for Shot {
    fn start(&mut self, host: &mut Host<'_>, _now: Instant) {
        let socket = host.bind("0.0.0.0:9".parse().unwrap()).unwrap();
        host.send_to(socket, self.target, &vec![0x5a; self.bytes]).unwrap();
        host.unbind(socket).unwrap();
    }
    fn on_completion(&mut self, _: Completion, _: &mut Host<'_>, _: Instant) {}
    fn is_done(&self) -> bool {
        true
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Records when datagrams arrive.
struct Watch {
    socket: Option<SocketId>,
    expected: usize,
    seen: Rc<RefCell<Vec<(Instant, usize)>>>,
}

impl Program for Watch {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        self.socket = Some(host.bind("0.0.0.0:7".parse().unwrap()).unwrap());
    }
    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        if let Completion::Datagram { socket } = completion {
            while let Some((_, count)) = host.receive_from(socket, &mut [0; 10_000]).unwrap() {
                self.seen.borrow_mut().push((now, count));
            }
        }
    }
    fn is_done(&self) -> bool {
        self.seen.borrow().len() == self.expected
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Computes a line of slots by hand: a cell offered at t leaves at the end of the first free slot that starts
/// at t or later.
fn through_line(offered: &[u64]) -> Vec<u64> {
    let (numerator, denominator) = SLOT;
    let mut free = 0;
    offered
        .iter()
        .map(|at| {
            let slot = (at * denominator).div_ceil(numerator).max(free);
            free = slot + 1;
            free * numerator / denominator
        })
        .collect()
}

#[test]
fn the_latency_of_a_datagram_is_that_of_the_hand_calculation_to_the_nanosecond() {
    for switches in [1, 2, 3] {
        for metres in [0.0, 100.0, 12_345.0, 1_000_000.0] {
            for bytes in [1, 12, 13, 1000, 9152] {
                let places = [0, switches - 1];
                let setup = Setup { metres, ..Setup::new(&places, tcp::Config::default()) };
                let mut net = setup.build();
                let seen = Rc::new(RefCell::new(Vec::new()));
                let watch = Watch { socket: None, expected: 1, seen: seen.clone() };
                net.world.run_program(net.boards[1], Box::new(watch));
                net.world.run_program(net.boards[0], Box::new(Shot { target: socket(1, 7), bytes }));
                assert!(net.world.run(Instant::from_nanos(1_000_000_000)));

                let cells = aal5::cells(8 + 20 + 8 + bytes);
                let propagation = (metres / 2.1e8 * 1e9).round() as u64;
                let mut moments = through_line(&vec![0; cells]);
                for _ in 0..switches {
                    let offered: Vec<_> = moments.iter().map(|at| at + propagation + 10_000).collect();
                    moments = through_line(&offered);
                }
                let expected = Instant::from_nanos(moments[cells - 1] + propagation);
                assert_eq!(
                    *seen.borrow(),
                    [(expected, bytes)],
                    "{switches} switches, {metres} m, {bytes} bytes in {cells} cells"
                );
            }
        }
    }
}

/// A datagram takes as long after the world has been idle for a long time as at the start.
#[test]
fn a_late_datagram_is_as_fast_as_an_early_one() {
    let setup = Setup::new(&[0, 1, 1], tcp_with(64 << 10, 8192));
    let mut net = setup.build();
    let job = net.send(2, 1, 80, noise(1, 500_000));
    net.finish(&[job]);
    for pause_millis in [1, 37, 5000, 123_456] {
        let start = net.world.now() + Duration::from_millis(pause_millis);
        // There are no events in the meantime. Unfinished programs keep the run going until its time limit.
        let seen = Rc::new(RefCell::new(Vec::new()));
        net.world.take_programs(net.boards[1]);
        net.world.take_programs(net.boards[0]);
        let watch = Watch { socket: None, expected: 1, seen: seen.clone() };
        net.world.run_program(net.boards[1], Box::new(Listener(watch)));
        net.world.run_program(net.boards[0], Box::new(Shot { target: socket(1, 7), bytes: 9000 }));
        let began = net.world.now();
        assert!(net.world.run(start + Duration::from_secs(1)));
        let cells = aal5::cells(9036);
        let propagation = (100.0 / 2.1e8 * 1e9_f64).round() as u64;
        let mut moments = through_line(&vec![began.as_nanos(); cells]);
        for _ in 0..2 {
            let offered: Vec<_> = moments.iter().map(|at| at + propagation + 10_000).collect();
            moments = through_line(&offered);
        }
        let expected = Instant::from_nanos(moments[cells - 1] + propagation);
        assert_eq!(*seen.borrow(), [(expected, 9000)], "began at {began:?}");
        net.world.settle(start);
    }
}

/// A `Watch` for a port that an earlier one may have bound already.
struct Listener(Watch);

impl Program for Listener {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        self.0.socket = host.bind("0.0.0.0:7".parse().unwrap()).ok();
    }
    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        self.0.on_completion(completion, host, now);
    }
    fn is_done(&self) -> bool {
        self.0.is_done()
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[test]
fn five_boards_on_three_switches_talk_all_to_all() {
    for impairment in [ImpairmentConfig::NONE, ImpairmentConfig::from_seed(4), ImpairmentConfig::from_seed(5)]
    {
        let places = [0, 0, 1, 2, 2];
        let mut net = Setup { impairment, ..Setup::new(&places, tcp_with(48 << 10, 8192)) }.build();
        let mut jobs = Vec::new();
        for from in 0..places.len() {
            for to in (0..places.len()).filter(|to| *to != from) {
                let port = 1000 + (from * places.len() + to) as u16;
                jobs.push(net.send(from, to, port, noise(port.into(), 60_000)));
            }
        }
        net.finish(&jobs);
        assert!(impairment != ImpairmentConfig::NONE || net.switched("cells_unrouted") == 0);
    }
}

/// A network that polices slightly below the offered rate drops a cell from nearly every frame, so goodput
/// collapses. A board that shapes to the same contract gets nearly the full contract rate.
#[test]
fn policing_breaks_streams_that_are_not_shaped() {
    let slot = 331_250.0 / 117.0;
    let contract = Contract::peak(
        Interval::every(Duration::from_nanos((slot / 0.95) as u64)),
        Duration::from_micros(40),
    );
    let run = |shape: Option<Contract>| {
        let base = Setup::new(&[0, 0], tcp_with(64 << 10, 8192));
        let mut net = Setup { police: Some(contract), shape, ..base }.build();
        let job = net.send(0, 1, 80, noise(1, 2_000_000));
        let seconds = net.finish(&[job]);
        (2_000_000.0 * 8.0 / seconds / 1e6, net.switched("cells_policed"))
    };
    let (collapsed, policed) = run(None);
    assert!(policed > 100 && collapsed < LINE_MBPS * 0.2, "{collapsed} Mbit/s, {policed} cells policed");
    let (shaped, policed) = run(Some(contract));
    assert!(policed == 0 && shaped > LINE_MBPS * 0.95 * 0.95, "{shaped} Mbit/s, {policed} cells policed");
}

/// Four boards send to one at the same time. Early packet discard drops whole frames, so that the remaining
/// ones are useful (Romanow and Floyd 1995); if single cells are dropped, nearly every frame loses some.
#[test]
fn early_packet_discard_saves_goodput() {
    let run = |frame_discard: bool| {
        let base = Setup::new(&[0; 5], tcp::Config::default());
        let early_cells = if frame_discard { 1000 } else { usize::MAX };
        let mut net =
            Setup { queue_cells: 2000, frame_discard, early_cells, slower: 100_000, ..base }.build();
        for from in 0..4 {
            for _ in 0..30 {
                net.world.run_program(net.boards[from], Box::new(Shot { target: socket(4, 7), bytes: 9000 }));
            }
        }
        let seen = Rc::new(RefCell::new(Vec::new()));
        let watch = Watch { socket: None, expected: 120, seen: seen.clone() };
        net.world.run_program(net.boards[4], Box::new(watch));
        assert!(!net.world.run(Instant::from_nanos(1_000_000_000)), "not everything can pass");
        let broken = net.world.board(net.boards[4]).counter("reassembly", "frames_crc_wrong");
        let came = seen.borrow().len();
        (came, broken)
    };
    let ((whole, broken), (whole_without, broken_without)) = (run(true), run(false));
    // While all four boards send, a quarter of the datagrams get through, in addition to those in the queue.
    assert!(whole >= 30 && whole >= 2 * whole_without, "{whole} against {whole_without} datagrams");
    assert!(broken == 0 && broken_without > 10, "{broken} against {broken_without} broken frames");
}

/// Cells of one circuit stay in order, even if cells of other circuits overtake them.
#[test]
fn cells_of_different_circuits_interleave_without_breaking_frames() {
    let impairment =
        ImpairmentConfig { reorder: 0.01, hold_back: Duration::from_millis(1), ..ImpairmentConfig::NONE };
    let mut net = Setup { impairment, ..Setup::new(&[0, 0, 1], tcp_with(48 << 10, 8192)) }.build();
    let jobs: Vec<_> = [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)]
        .into_iter()
        .zip(80..)
        .map(|((from, to), port)| net.send(from, to, port, noise(port.into(), 300_000)))
        .collect();
    net.finish(&jobs);
    let held = net
        .sending
        .clone()
        .into_iter()
        .map(|line| net.world.line(line).impairment_counters().reordered)
        .sum::<u64>();
    assert!(held > 100, "{held}");
    for board in net.boards {
        assert_eq!(net.world.board(board).counter("reassembly", "frames_crc_wrong"), 0);
    }
}

/// Writes as much as possible, and records how the stream ends.
struct Stubborn {
    target: SocketAddr,
    left: usize,
    stream: Option<StreamId>,
    ended: Rc<RefCell<Option<Reason>>>,
}

impl Stubborn {
    fn pump(&mut self, host: &mut Host<'_>) {
        let Some(stream) = self.stream else { return };
        self.left -= host.write(stream, &vec![7; self.left]).unwrap_or(0);
        if self.left == 0 {
            host.finish(stream).ok();
        }
    }
}

impl Program for Stubborn {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        self.stream = host.open(self.target).ok();
    }
    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, _: Instant) {
        match completion {
            Completion::Opened { .. } | Completion::Writable { .. } => self.pump(host),
            Completion::Ended { stream, reason } => {
                *self.ended.borrow_mut() = Some(reason);
                host.close(stream).ok();
            }
            _ => {}
        }
    }
    fn is_done(&self) -> bool {
        self.ended.borrow().is_some()
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[test]
fn losing_one_cell_in_twenty_slows_short_frames_and_ends_long_ones() {
    let impairment = ImpairmentConfig { loss: 0.05, ..ImpairmentConfig::NONE };
    // A frame of 13 cells survives two lines one time in four, so everything arrives eventually if
    // retransmission continues. A run of fifteen losses, after which a session is aborted by default, occurs
    // about once in thirty segments.
    let patient =
        tcp::Config { rto_retries: 100, rto_max: Duration::from_secs(5), ..tcp_with(16 << 10, 536) };
    for seed in 0..3 {
        let mut net = Setup { impairment, ..Setup::new(&[0, 0], patient.clone()) }.build();
        let job = net.send(0, 1, 80, noise(seed, 10_000));
        net.finish(&[job]);
    }
    // A frame of 172 cells never survives, so the session times out and the host gets an error.
    let mut net = Setup { impairment, ..Setup::new(&[0, 0], tcp_with(16 << 10, 8192)) }.build();
    let ended = Rc::new(RefCell::new(None));
    let make = |_| -> Sink { Box::new(|_, _| ()) };
    net.world.run_program(net.boards[1], Box::new(Receiver::new(80, 1, Box::new(make))));
    let stubborn = Stubborn { target: socket(1, 80), left: 500_000, stream: None, ended: ended.clone() };
    net.world.run_program(net.boards[0], Box::new(stubborn));
    net.world.run(Instant::from_nanos(3_000_000_000_000));
    assert_eq!(*ended.borrow(), Some(Reason::TimedOut));
    net.world.settle(net.world.now() + Duration::from_secs(1000));
    assert!(net.world.board_mut(net.boards[0]).memory_mut().is_all_free());
    assert_eq!(net.world.board(net.boards[0]).sessions(), 0);
}

/// On a line of 1000 km, the window limits the throughput to one window per round trip.
#[test]
fn on_a_long_line_throughput_is_the_window_over_the_round_trip() {
    for window in [32 << 10, 64 << 10, 128 << 10] {
        let mut pair = Pair::new(&Plan { metres: 1_000_000.0, ..Plan::with_window(window) });
        let length = u64::from(window) * 100;
        let make = |_| -> Sink { Box::new(|_, _| ()) };
        pair.world.run_program(pair.boards[1], Box::new(Receiver::new(80, 1, Box::new(make))));
        let source: Source = Box::new(|_, buffer| buffer.fill(7));
        let sender = Sender::new(Pair::socket(1, 80), vec![(length, source)]);
        pair.world.run_program(pair.boards[0], Box::new(sender));
        assert!(pair.world.run(Instant::from_nanos(1_000_000_000_000)));
        let programs = pair.world.take_programs(pair.boards[1]);
        let received = programs[0].as_any().downcast_ref::<Receiver>().unwrap().received()[0];
        // Each window takes one round trip: four lines, two switch fabrics, the transmission of two segments
        // (because the receiver acknowledges every second one) and of a two-cell acknowledgement, and the
        // wait for a slot at each hop.
        let slot = 331_250e-9 / 117.0;
        let round_trip = 4.0 * 1e6 / 2.1e8 + 2.0 * 10e-6 + (2.0 * 172.0 + 2.0 + 4.0) * slot;
        let seconds = received.last_at.since(received.first_at.unwrap()).as_secs_f64();
        let (reached, expected) = (length as f64 / seconds, f64::from(window) / round_trip);
        assert!(
            (reached / expected - 1.0).abs() < 0.02,
            "{window}: {reached} against {expected} bytes a second"
        );
    }
}
