//! Short transfers: the start of the EFE-like transport beside TCP's slow start, on the same network of
//! 10 Gbit/s.
//!
//! Network   hosts around one switch with queues of 64 frames. A full frame and its acknowledgement take
//!           10 us.
//! TCP       kiban's own, between boards with Ethernet ports, with an initial window of 10 segments (RFC
//!           6928) and of 2, which was usual when paper \[3\] was written. The hosts know each other's MAC
//!           addresses.
//! Time      from the connection request until the target has read the last byte.
//!
//! `cargo test -p kiban-sim --test nics efe_start -- --nocapture` prints the table in docs/efe.md.

use kiban_base::Instant;
use kiban_base::ethernet::Mac;
use kiban_board::{BoardConfig, EthernetPortConfig, PortConfig};
use kiban_sim::program::{Receiver, Sender, Sink, Source};
use kiban_sim::{BoardNumber, CableConfig, Star, StarConfig, Stream, Switch, World};
use kiban_tcpip::ethernet::LinkConfig;
use kiban_tcpip::ip::Prefix;
use kiban_tcpip::tcp;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Payload bytes of a segment; a TCP segment has as many, except for the last 12.
const SEGMENT_BYTES: u64 = 1460;
/// Nanoseconds that a frame with this payload takes on the line: 28 bytes of EFE's header (TCP's and IP's are
/// 40), and 38 of Ethernet's header, FCS, preamble and gap.
const FRAME_NANOS: f64 = (SEGMENT_BYTES + 28 + 38) as f64 * 0.8;
const PORT: u16 = 80;
const LIMIT: Duration = Duration::from_secs(60);

fn address(host: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, 1 + host as u8).into()
}

/// Returns the time until the last of the flows is complete, microseconds, and the frames that the switch
/// dropped.
fn efe(hosts: usize, flows: usize, segments: u64) -> (f64, u64) {
    let stream = |number: usize| {
        let mut stream = Stream::new(1 + number % hosts, 0, segments);
        stream.segment_bytes = SEGMENT_BYTES as usize;
        stream
    };
    let streams = (0..hosts * flows).map(stream).collect();
    let mut star = Star::new(&StarConfig::ten_gigabit(hosts + 1), streams);
    assert!(star.run(Instant::ZERO + LIMIT), "all arrive");
    assert!(star.streams.iter().all(|stream| stream.wrong == 0));
    let last = star.streams.iter().map(|stream| stream.read_at).max().expect("there are flows");
    (last.as_nanos() as f64 / 1e3, star.switch.port_counters().queue_full)
}

/// Returns the same for TCP with this initial window.
fn tcp(hosts: usize, flows: usize, segments: u64, initial_window_segments: u32) -> (f64, u64) {
    let mut world = World::new(1);
    let star = StarConfig::ten_gigabit(hosts + 1);
    let number = world.add_ethernet_switch(Switch::new(&vec![star.down; hosts + 1], 1));
    let boards: Vec<BoardNumber> = (0..=hosts)
        .map(|host| {
            let addresses = vec![(address(host), Prefix::new(address(0), 24))];
            let link = LinkConfig { addresses, ..LinkConfig::new(Mac([2, 0, 0, 0, 0, host as u8])) };
            let ports = vec![PortConfig::Ethernet(EthernetPortConfig::on(link))];
            let tcp = tcp::Config { initial_window_segments, ..tcp::Config::default() };
            let board = world.add_board(&BoardConfig { ports, tcp, ..BoardConfig::default() });
            let up = CableConfig { packets_max: 2, holds: true, ..star.up };
            world.connect_to_switch(board, 0, (number, host), &up).expect("an Ethernet port");
            board
        })
        .collect();
    // One byte from each host: afterwards, the hosts know each other's MAC addresses.
    run(&mut world, &boards, (PORT + 1, 1, 1));
    let begin = world.now();
    let dropped = world.ethernet_switch(number).port_counters().queue_full;
    let last = run(&mut world, &boards, (PORT, flows, segments * SEGMENT_BYTES));
    let dropped = world.ethernet_switch(number).port_counters().queue_full - dropped;
    (last.since(begin).as_nanos() as f64 / 1e3, dropped)
}

/// Sends `flows` streams of `bytes` from every other board to the first. Returns the time of the last byte.
fn run(world: &mut World, boards: &[BoardNumber], (port, flows, bytes): (u16, usize, u64)) -> Instant {
    let sink = |_| -> Sink { Box::new(|_, _| {}) };
    world.run_program(boards[0], Box::new(Receiver::new(port, flows * (boards.len() - 1), Box::new(sink))));
    for board in &boards[1..] {
        let source = || -> Source { Box::new(|at, buffer: &mut [u8]| buffer.fill(at as u8)) };
        let streams = (0..flows).map(|_| (bytes, source())).collect();
        world.run_program(*board, Box::new(Sender::new(SocketAddr::new(address(0), port), streams)));
    }
    assert!(world.run(world.now() + LIMIT), "all arrive");
    let mut receiver = None;
    for program in world.take_programs(boards[0]) {
        if let Some(found) = program.as_any().downcast_ref::<Receiver>() {
            receiver = Some(found.received());
        }
    }
    for board in &boards[1..] {
        world.take_programs(*board);
    }
    let received = receiver.expect("it ran");
    assert!(received.iter().all(|stream| stream.bytes == bytes));
    received.iter().map(|stream| stream.last_at).max().expect("there are flows")
}

#[test]
fn short_transfers_are_never_far_from_the_line_rate() {
    println!(
        "| hosts | flows of each | segments | line, us | EFE-like, us | TCP, us | TCP, initial window 2, us |"
    );
    for (hosts, flows, segments) in
        [(1, 1, 1), (1, 1, 8), (1, 1, 32), (1, 1, 128), (1, 8, 8), (4, 1, 32), (16, 1, 8), (16, 8, 8)]
    {
        let line = (hosts * flows) as f64 * segments as f64 * FRAME_NANOS / 1e3;
        let (efe, efe_dropped) = efe(hosts, flows, segments);
        let (tcp_ten, ten_dropped) = tcp(hosts, flows, segments, 10);
        let (tcp_two, two_dropped) = tcp(hosts, flows, segments, 2);
        println!(
            "| {hosts} | {flows} | {segments} | {line:.0} | {efe:.0} ({efe_dropped}) | {tcp_ten:.0} \
             ({ten_dropped}) | {tcp_two:.0} ({two_dropped}) |"
        );
        // Two round trips for the connection and the first window.
        assert!(efe <= 1.5 * line + 40.0, "{hosts} x {flows} x {segments}: {efe}");
        // A single transfer is as fast as with the slow start of 2008; no transfer waits for a long timeout.
        assert!(hosts * flows > 1 || efe <= tcp_two, "{segments}: {efe} {tcp_two}");
        assert!(ten_dropped == 0 || efe < tcp_ten / 10.0, "{hosts} x {flows} x {segments}: {efe} {tcp_ten}");
    }
}
