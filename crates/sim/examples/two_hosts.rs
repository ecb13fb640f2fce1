//! Two boards with Ethernet ports: 1 MB over IPv6 through a cable that loses packets, and TCP's statistics.
//!
//! ```sh
//! cargo run --release -p kiban-sim --example two_hosts
//! ```

use kiban_base::Instant;
use kiban_base::ethernet::Mac;
use kiban_board::{BoardConfig, EthernetPortConfig, PortConfig};
use kiban_sim::program::{Receiver, Sender};
use kiban_sim::{Attachment, CableConfig, ImpairmentConfig, World};
use kiban_tcpip::ethernet::LinkConfig;
use kiban_tcpip::ip::Prefix;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

fn address(side: u16) -> IpAddr {
    IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, side])
}

fn main() {
    let mut world = World::new(1);
    let boards = [1, 2].map(|side| {
        let mut link = LinkConfig::new(Mac([2, 0, 0, 0, 0, side as u8]));
        link.addresses.push((address(side), Prefix::new(address(0), 64)));
        let ports = vec![PortConfig::Ethernet(EthernetPortConfig::on(link))];
        world.add_board(&BoardConfig { ports, ..BoardConfig::default() })
    });

    // A cable of 100 Mbit/s with 10 ms each way and 1 % packet loss.
    let impairment = ImpairmentConfig { loss: 0.01, ..ImpairmentConfig::NONE };
    let cable = CableConfig { impairment, ..CableConfig::ethernet(100_000_000, Duration::from_millis(10)) };
    let (there, _back) = world
        .connect_packets(Attachment::Board(boards[0], 0), Attachment::Board(boards[1], 0), &cable)
        .expect("both ports take frames");

    // An address is used only after duplicate address detection (RFC 4862 §5.4), which takes a second or two.
    let begin = Instant::ZERO + Duration::from_secs(5);
    world.settle(begin);
    let begin = world.now();

    let bytes = 1_000_000;
    let source = Box::new(|at: u64, buffer: &mut [u8]| buffer.fill(at as u8));
    let receiver = Receiver::new(80, 1, Box::new(|_stream| Box::new(|_at, _bytes| {})));
    let sender = Sender::new(SocketAddr::new(address(2), 80), vec![(bytes, source)]);
    world.run_program(boards[1], Box::new(receiver));
    world.run_program(boards[0], Box::new(sender));
    let done = world.run(begin + Duration::from_secs(600));

    let receiver = world.program::<Receiver>(boards[1]).expect("it was passed in");
    for stream in receiver.received() {
        let seconds = stream.last_at.since(begin).as_secs_f64();
        println!(
            "done: {done}, {} bytes from {} in {seconds:.3} virtual seconds",
            stream.bytes, stream.remote
        );
    }
    let sender = world.program::<Sender>(boards[0]).expect("it was passed in");
    for info in sender.infos().into_iter().flatten() {
        println!(
            "segments: {} sent, {} received; {} bytes retransmitted",
            info.segments_out, info.segments_in, info.retransmitted_bytes
        );
        println!(
            "RTT: {:?}, minimum {:?}; RTO: {:?}",
            info.round_trip, info.least_round_trip, info.retransmission_timeout
        );
        println!("congestion window: {} bytes, MSS {}", info.congestion_window_bytes, info.mss);
    }
    let cable = world.cable(there);
    println!("cable: {} packets sent, {} lost", cable.counters().packets, cable.impairment_counters().lost);
}
