//! A board and this host's kernel, connected by TUN or by a packet socket on a veth.

mod net;

use kiban_base::{Instant, Wait};
use kiban_board::{
    Board, BoardConfig, Completion, EthernetPortConfig, Host, IpPortConfig, MemoryConfig, PortConfig,
    Program, StreamId,
};
use kiban_link::frames::tun::{TunLink, TunMode};
use kiban_link::{Address, AnyLink, Driver};
use kiban_os::Clock;
use kiban_os::interface;
use kiban_os::random;
use kiban_tcpip::ethernet::LinkConfig;
use kiban_tcpip::tcp;
use std::any::Any;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};

/// The interface of the board's port.
const PORT: &str = "kiban0";

/// What the board sends.
static SENT: [u8; 256 << 10] = [7; 256 << 10];

/// A program that reads everything sent to one port, and sends `bytes` to each client of another port.
struct Ends {
    bytes: u64,
    received: u64,
    /// Received bytes that the peer did not send: it sends 3 only.
    wrong: usize,
    sending: Option<(StreamId, u64)>,
    source: u32,
    buffer: Vec<u8>,
    ended: usize,
}

impl Ends {
    fn pump(&mut self, host: &mut Host<'_>) {
        let Some((stream, sent)) = &mut self.sending else { return };
        while *sent < self.bytes {
            let count = (self.bytes - *sent).min(SENT.len() as u64) as usize;
            let count = host.write(*stream, &SENT[..count]).unwrap_or(0);
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
                    self.wrong += self.buffer[..count].iter().filter(|byte| **byte != 3).count();
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

/// Opens a TUN device whose other end has the address 10.9.0.1.
fn tun(offload: bool, mtu: usize) -> AnyLink {
    let link = TunLink::open(PORT, TunMode::Packets, offload).expect("a TUN device");
    interface::set_mtu(PORT, mtu).expect("an MTU");
    interface::set_address(PORT, IpAddr::from([10, 9, 0, 1]), 24).expect("an address");
    interface::set_up(PORT).expect("up");
    AnyLink::Packets(Box::new(link))
}

/// A board with the address 10.9.0.2 on a link.
fn driver(link: AnyLink, bytes: u64) -> Driver {
    let traits = link.traits();
    let (whole, mtu) = (traits.whole_segments, traits.mtu_bytes);
    let mss = (mtu - 40) as u16;
    let (address, prefix) = (IpAddr::from([10, 9, 0, 2]), "10.9.0.0/24".parse().expect("a prefix"));
    let port = match &link {
        AnyLink::Frames(_) => {
            let mac = interface::mac(PORT).expect("the interface exists");
            let link = LinkConfig { addresses: vec![(address, prefix)], ..LinkConfig::new(mac) };
            PortConfig::Ethernet(EthernetPortConfig { believe_sums: true, ..EthernetPortConfig::on(link) })
        }
        _ => PortConfig::Ip(IpPortConfig {
            address,
            prefix,
            mtu_bytes: mtu,
            packets_max: 256,
            cuts: false,
            merges: !whole,
            believe_sums: true,
        }),
    };
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
            ..tcp::Config::default()
        },
        ports: vec![port],
        ..BoardConfig::default()
    };
    let mut driver =
        Driver::new(Board::new(&config, random::key().expect("a key")), Clock::new()).expect("files");
    driver.attach(0, link);
    driver.add(Box::new(Ends {
        bytes,
        received: 0,
        wrong: 0,
        sending: None,
        source: 0,
        buffer: vec![0; 256 << 10],
        ended: 0,
    }));
    driver
}

/// Sends `bytes` in each direction between the board and a kernel socket; every byte must arrive unchanged.
fn exchange(driver: &mut Driver, bytes: u64) {
    let mut waiting = driver.waiting(Wait::Adaptive);
    std::thread::scope(|scope| {
        let peer = scope.spawn(move || {
            let mut buffer = vec![3; 256 << 10];
            let mut out = TcpStream::connect("10.9.0.2:9").expect("the board listens");
            for _ in 0..bytes / buffer.len() as u64 {
                out.write_all(&buffer).expect("sent");
            }
            out.shutdown(Shutdown::Write).expect("connected");
            let mut from = TcpStream::connect("10.9.0.2:19").expect("the board listens");
            let (mut received, mut wrong) = (0, 0);
            while let count @ 1.. = from.read(&mut buffer).expect("read") {
                received += count as u64;
                wrong += buffer[..count].iter().filter(|byte| **byte != 7).count();
            }
            assert_eq!((received, wrong), (bytes, 0), "from the board");
            // The board closes its end when it has read everything.
            assert_eq!(out.read(&mut buffer).expect("read"), 0);
        });
        driver.run(&mut waiting, Instant::NEVER, |_| peer.is_finished());
        peer.join().expect("the peer is content");
    });
    let ends = driver.program::<Ends>(0).expect("the program was added");
    assert_eq!((ends.received, ends.wrong), (bytes, 0), "to the board");
}

#[test]
fn bulk_both_ways() {
    if !net::enter() {
        return;
    }
    // The length is a multiple of the buffer size, so that the peer sends exactly this many bytes.
    let bytes: u64 = 64 << 20;
    for (offload, mtu) in [(true, 1500), (false, 1500), (false, 9180)] {
        let mut driver = driver(tun(offload, mtu), bytes);
        exchange(&mut driver, bytes);
        let counters = driver.link_counters(0).expect("the link is there");
        assert_eq!((counters.no_memory, counters.malformed, counters.send_errors), (0, 0, 0));
        // With offload, large segments cross the link whole, so there are far fewer units than packets.
        let packets = bytes / mtu as u64;
        assert_eq!(counters.units_in < packets / 4, offload, "{} units of {packets}", counters.units_in);
        assert_eq!(counters.units_out < packets / 4, offload, "{} units of {packets}", counters.units_out);
    }
}

/// The kernel leaves checksums and segmentation to the card. A bit that is flipped before they are done would
/// reach the application.
#[test]
fn no_flipped_bit_reaches_an_application() {
    if !net::enter() {
        return;
    }
    net::ip(&format!("link add {PORT} type veth peer name lab1"));
    interface::set_up(PORT).expect("up");
    interface::set_address("lab1", [10, 9, 0, 1].into(), 24).expect("an address");
    interface::set_up("lab1").expect("up");
    let address: Address = format!("packet:{PORT},corrupt=2%,seed=3").parse().expect("an address");
    let bytes = 16 << 20;
    let mut driver = driver(address.open().expect("a link"), bytes);
    exchange(&mut driver, bytes);
    let counters = driver.link_counters(0).expect("the link is there");
    assert!(counters.impair_corrupted > 100 && counters.malformed == 0, "{counters:?}");
    // Impairments apply to packets, not to the kernel's segments of up to 64 KB.
    assert!(counters.bytes_in / counters.units_in < 1500, "{counters:?}");
}
