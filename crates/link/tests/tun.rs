//! A board and this host's kernel, connected by TUN or TAP.

mod net;

use kiban_base::{Instant, Wait};
use kiban_board::{
    Board, BoardConfig, Completion, Host, IpPortConfig, MemoryConfig, PortConfig, Program, StreamId,
};
use kiban_link::Driver;
use kiban_link::Link;
use kiban_link::frames::tun::{TunLink, TunMode};
use kiban_os::Clock;
use kiban_os::interface;
use kiban_os::random;
use kiban_tcpip::tcp;
use std::any::Any;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};

/// A program that reads everything sent to one port, and sends `bytes` to each client of another port.
struct Ends {
    bytes: u64,
    received: u64,
    sending: Option<(StreamId, u64)>,
    source: u32,
    buffer: Vec<u8>,
    ended: usize,
}

impl Ends {
    fn pump(&mut self, host: &mut Host<'_>) {
        let Some((stream, sent)) = &mut self.sending else { return };
        while *sent < self.bytes {
            let count = (self.bytes - *sent).min(self.buffer.len() as u64) as usize;
            let count = host.write(*stream, &self.buffer[..count]).unwrap_or(0);
            *sent += count as u64;
            if count == 0 {
                return;
            }
        }
        let _ = host.finish(*stream);
    }
}

impl Program for Ends {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        host.listen(SocketAddr::from(([10, 9, 0, 2], 9))).expect("the port is free");
        self.source = host.listen(SocketAddr::from(([10, 9, 0, 2], 19))).expect("the port is free");
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, _: Instant) {
        match completion {
            Completion::Accepted { stream, listener, .. } if listener == self.source => {
                self.sending = Some((stream, 0));
                self.pump(host);
            }
            Completion::Writable { .. } => self.pump(host),
            Completion::Readable { stream } => {
                while let Ok(count @ 1..) = host.read(stream, &mut self.buffer) {
                    self.received += count as u64;
                }
            }
            Completion::PeerFinished { stream } => {
                let _ = host.close(stream);
            }
            Completion::Ended { stream, .. } => {
                let _ = host.close(stream);
                self.ended += 1;
            }
            _ => {}
        }
    }

    fn is_done(&self) -> bool {
        false
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn driver(offload: bool, mtu: usize, bytes: u64) -> Driver {
    let link = TunLink::open("kiban0", TunMode::Packets, offload).expect("a TUN device");
    interface::set_mtu("kiban0", mtu).expect("an MTU");
    interface::set_address("kiban0", IpAddr::from([10, 9, 0, 1]), 24).expect("an address");
    interface::set_up("kiban0").expect("up");
    let whole = link.traits().whole_segments;
    let mss = (mtu - 40) as u16;
    let config = BoardConfig {
        memory: MemoryConfig {
            page_bytes: 4096,
            transmit_bytes: 64 << 20,
            receive_bytes: 64 << 20,
            pdus: 16384,
        },
        tcp: tcp::Config {
            mss,
            segment_bytes_max: if whole { 65_000 } else { u32::from(mss) },
            send_buffer_bytes: 2 << 20,
            receive_buffer_bytes: 2 << 20,
            ack_unit: tcp::AckUnit::Mss,
            ..tcp::Config::default()
        },
        ports: vec![PortConfig::Ip(IpPortConfig {
            address: IpAddr::from([10, 9, 0, 2]),
            prefix: "10.9.0.0/24".parse().expect("a prefix"),
            mtu_bytes: mtu,
            packets_max: 256,
            cuts: false,
            merges: !whole,
            believe_sums: true,
        })],
        ..BoardConfig::default()
    };
    let mut driver =
        Driver::new(Board::new(&config, random::key().expect("a key")), Clock::new()).expect("files");
    driver.attach_packets(0, Box::new(link));
    driver.add(Box::new(Ends {
        bytes,
        received: 0,
        sending: None,
        source: 0,
        buffer: vec![7; 256 << 10],
        ended: 0,
    }));
    driver
}

#[test]
fn bulk_both_ways() {
    if !net::enter() {
        return;
    }
    // A multiple of the buffer size, so that the peer sends exactly this many bytes.
    let bytes: u64 = 64 << 20;
    for (offload, mtu) in [(true, 1500), (false, 1500), (false, 9180)] {
        let mut driver = driver(offload, mtu, bytes);
        let mut waiting = driver.waiting(Wait::Adaptive);
        std::thread::scope(|scope| {
            let peer = scope.spawn(move || {
                let mut buffer = vec![3; 256 << 10];
                let mut out = TcpStream::connect("10.9.0.2:9").expect("the board listens");
                for _ in 0..bytes / buffer.len() as u64 {
                    out.write_all(&buffer).expect("sent");
                }
                drop(out);
                let mut from = TcpStream::connect("10.9.0.2:19").expect("the board listens");
                let mut received = 0;
                while let count @ 1.. = from.read(&mut buffer).expect("read") {
                    received += count as u64;
                }
                assert_eq!(received, bytes);
            });
            driver.run(&mut waiting, Instant::NEVER, |_| peer.is_finished());
            peer.join().expect("the peer is content");
        });
        assert_eq!(
            driver.program::<Ends>(0).expect("the program was added").received,
            bytes,
            "offload {offload}, MTU {mtu}"
        );
        let counters = driver.link_counters(0).expect("the link is there");
        assert_eq!((counters.no_memory, counters.malformed, counters.send_errors), (0, 0, 0));
        // With offload, large segments cross the link whole, so there are far fewer units than packets.
        let packets = bytes / mtu as u64;
        assert_eq!(counters.units_in < packets / 4, offload, "{} units of {packets}", counters.units_in);
        assert_eq!(counters.units_out < packets / 4, offload, "{} units of {packets}", counters.units_out);
    }
}
