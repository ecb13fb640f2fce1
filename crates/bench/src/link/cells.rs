//! Two boards that exchange ATM cells in UDP datagrams: measures how many cells per second one core carries
//! in each direction if it runs both boards.
//!
//! Traffic   a TCP stream in each direction, so that every cell carries payload that is segmented, sent
//!           through the system's UDP, reassembled and checked.
//! Core      both boards share one pinned thread; the system's work for their sockets runs on the same core.
//! Line      a multiple of the rate of an OC-3c, so that the core is the limit and not the line.
//! Counted   cells that arrive at each board in an interval; the result is the lower rate of the two
//!           directions.

use super::device::{SINK, in_a_namespace};
use super::flood::Flood;
use kiban_atm::wire::atm::Vc;
use kiban_base::Instant;
use kiban_board::{AtmPortConfig, Board, BoardConfig, CircuitConfig, MemoryConfig, PortConfig};
use kiban_link::{Address, AnyLink, Driver};
use kiban_os::Clock;
use kiban_os::clock::pin_thread;
use kiban_os::random;
use kiban_tcpip::tcp;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Cells per second of an OC-3c (I.432: 149.76 Mbit/s of payload in cells of 424 bits).
pub(super) const OC3C: f64 = 353_208.0;

const OWN: [[u8; 4]; 2] = [[10, 9, 2, 1], [10, 9, 2, 2]];

/// Returns the number of cells per second in the slower direction. `packed` puts several cells into a
/// datagram; the line rate is `lines` times the rate of an OC-3c.
pub(super) fn run(packed: bool, lines: u64, cpu: usize, length: Duration) -> f64 {
    run_with(packed, lines, cpu, length, &|link, _| link).per_second
}

/// The cells of a run.
pub(super) struct Cells {
    pub(super) per_second: f64,
    /// Cells that have arrived at both boards since the start.
    pub(super) arrived: u64,
}

/// Like [`run`], with links that `wrap` has changed.
pub(super) fn run_with(
    packed: bool,
    lines: u64,
    cpu: usize,
    length: Duration,
    wrap: &(dyn Fn(AnyLink, Clock) -> AnyLink + Sync),
) -> Cells {
    let done = in_a_namespace(|| {
        pin_thread(cpu).map_err(|error| error.to_string())?;
        let clock = Clock::new();
        let mut drivers = [0, 1].map(|side| driver(side, packed, lines, clock, wrap));
        // Let the streams reach their steady rates before measuring.
        turn_until(&mut drivers, clock, clock.now() + length / 2);
        let (before, from) = (arrived(&drivers), clock.now());
        turn_until(&mut drivers, clock, from + length);
        let (after, seconds) = (arrived(&drivers), clock.now().since(from).as_secs_f64());
        let each = [0, 1].map(|side| (after[side] - before[side]) as f64 / seconds);
        for driver in &drivers {
            let flood = driver.program::<Flood>(0).expect("it is there");
            assert!(flood.received() > 0, "payload arrives both ways");
        }
        Ok(Cells { per_second: each[0].min(each[1]), arrived: after.iter().sum() })
    });
    done.expect("it worked before")
}

fn turn_until(drivers: &mut [Driver; 2], clock: Clock, until: Instant) {
    while clock.now() < until {
        for driver in &mut *drivers {
            driver.turn();
        }
    }
}

fn arrived(drivers: &[Driver; 2]) -> [u64; 2] {
    [0, 1].map(|side| drivers[side].link_counters(0).expect("the link is there").units_in)
}

fn driver(
    side: usize,
    packed: bool,
    lines: u64,
    clock: Clock,
    wrap: &dyn Fn(AnyLink, Clock) -> AnyLink,
) -> Driver {
    let [own, peer] = [OWN[side], OWN[1 - side]].map(IpAddr::from);
    let ends = [(7000, 7001), (7001, 7000)][side];
    let form = if packed { ",packed" } else { "" };
    let address = format!("udp-cells:127.0.0.1:{}-127.0.0.1:{}{form}", ends.0, ends.1);
    let address: Address = address.parse().expect("an address");
    let mut port = AtmPortConfig::oc3c(own, "10.9.2.0/24".parse().expect("a prefix"));
    port.line_bits_per_second *= lines;
    port.circuits.push(CircuitConfig::to(Vc::new(0, 100), peer));
    let config = BoardConfig {
        memory: MemoryConfig { transmit_bytes: 16 << 20, receive_bytes: 32 << 20, ..MemoryConfig::default() },
        tcp: tcp::Config {
            mss: 9140,
            segment_bytes_max: 9140,
            send_buffer_bytes: 1 << 20,
            receive_buffer_bytes: 1 << 20,
            ..tcp::Config::default()
        },
        ports: vec![PortConfig::Atm(port)],
        ..BoardConfig::default()
    };
    let mut driver =
        Driver::new(Board::new(&config, random::key().expect("the system has random numbers")), clock)
            .expect("files can be opened");
    driver.attach(0, wrap(address.open().expect("the loopback accepts sockets"), clock));
    // One board opens the connection; both boards send.
    driver.add(Box::new(match side {
        0 => Flood::to(SocketAddr::new(peer, SINK), 1),
        _ => Flood::at(own),
    }));
    driver
}
