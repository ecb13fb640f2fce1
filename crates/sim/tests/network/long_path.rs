//! A long path with losses, and a line shared by many streams: congestion control compared with published
//! results.
//!
//! Path      two boards with IP ports are joined by a cable of 1 Gbit/s (or less) and 50 ms in each
//!           direction. Every n-th packet with data is lost (the only packet without data is the SYN). A lost
//!           packet still takes its time on the line.
//! Published CUBIC: RFC 9438 §5.1, the average window of a flow that loses every (1/p)-th packet, (C (3 + β)
//!           / (4 (1 − β)))^¼ · RTT^¾ / p^¾ segments, β = 0.7, C = 0.4: 187 at 100 ms and 10⁻⁴ (its table 1).
//!           Reno: Mathis et al. 1997, √(3/2p) segments with one acknowledgement per segment (1.22 / √p), and
//!           the table of RFC 9438 §5.2 has 120. The constant of a sawtooth with evenly spaced losses is
//!           √(3/2).
//! Measured  segments delivered in a minute or more, per round trip: the average window.

use kiban_base::Instant;
use kiban_board::{BoardConfig, Completion, Host, IpPortConfig, MemoryConfig, PortConfig, StreamId};
use kiban_sim::{Attachment, BoardNumber, CableConfig, ImpairmentConfig, Program, World};
use kiban_tcpip::tcp::{Config, CongestionControl};
use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const MSS: u32 = 1460;
const ROUND_TRIP: Duration = Duration::from_millis(100);

/// A program that writes to its streams as fast as possible.
struct Writer(usize);

impl Program for Writer {
    fn start(&mut self, host: &mut Host<'_>, _now: Instant) {
        for _ in 0..self.0 {
            host.open(SocketAddr::new(address(1), 80)).unwrap();
        }
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, _now: Instant) {
        match completion {
            Completion::Opened { stream } | Completion::Writable { stream } => {
                while host.write(stream, &[0x5a; 64 << 10]).unwrap() == 64 << 10 {}
            }
            told => panic!("{told:?}"),
        }
    }

    fn is_done(&self) -> bool {
        false
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A program that reads its streams at once, and counts the bytes of each, in the order of acceptance.
#[derive(Default)]
struct Reader(Vec<(StreamId, u64)>);

impl Program for Reader {
    fn start(&mut self, host: &mut Host<'_>, _now: Instant) {
        host.listen(SocketAddr::new(address(1), 80)).unwrap();
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, _now: Instant) {
        match completion {
            Completion::Accepted { stream, .. } => self.0.push((stream, 0)),
            Completion::Readable { stream } => {
                let place = self.0.iter().position(|its| its.0 == stream).unwrap();
                while let Some(slice) = host.take(stream).unwrap() {
                    self.0[place].1 += slice.len() as u64;
                }
            }
            told => panic!("{told:?}"),
        }
    }

    fn is_done(&self) -> bool {
        false
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Two boards, a cable between them, and streams from board 0 to board 1.
struct Path {
    world: World,
    receiver: BoardNumber,
}

fn address(side: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + side as u8])
}

impl Path {
    fn new(tcp: &Config, bits_per_second: u64, packets_max: usize, lose_every: u64, streams: usize) -> Path {
        let mut world = World::new(1);
        let boards = [0, 1].map(|side| {
            let port = IpPortConfig {
                address: address(side),
                prefix: "10.0.0.0/24".parse().unwrap(),
                mtu_bytes: 1500,
                packets_max: 16_384,
                cuts: false,
                merges: false,
                believe_sums: true,
            };
            let memory = MemoryConfig {
                page_bytes: 2048,
                transmit_bytes: 64 << 20,
                receive_bytes: 64 << 20,
                pdus: 40_000,
            };
            let ports = vec![PortConfig::Ip(port)];
            world.add_board(&BoardConfig { memory, tcp: tcp.clone(), ports, ..BoardConfig::default() })
        });
        let cable = CableConfig { packets_max, ..CableConfig::ip(bits_per_second, ROUND_TRIP / 2) };
        let ends = boards.map(|board| Attachment::Board(board, 0));
        let (there, _) = world.connect_packets(ends[0], ends[1], &cable).unwrap();
        world.cable(there).set_config(CableConfig {
            impairment: ImpairmentConfig { lose_every, ..ImpairmentConfig::NONE },
            ..cable
        });
        world.run_program(boards[1], Box::<Reader>::default());
        world.run_program(boards[0], Box::new(Writer(streams)));
        Path { world, receiver: boards[1] }
    }

    /// Returns the number of bytes that each stream has delivered by `until`.
    fn run(&mut self, until: Instant) -> Vec<u64> {
        self.world.run(until);
        let reader = self.world.program::<Reader>(self.receiver).expect("it was passed in");
        reader.0.iter().map(|stream| stream.1).collect()
    }
}

fn config(congestion: CongestionControl, window_bytes: u32) -> Config {
    Config {
        mss: MSS as u16,
        segment_bytes_max: MSS,
        congestion,
        sack: true,
        send_buffer_bytes: window_bytes,
        receive_buffer_bytes: window_bytes,
        ..Config::default()
    }
}

/// Returns the average window in segments over `seconds`, after the first `settle` seconds.
fn average_window(congestion: CongestionControl, lose_every: u64, settle: u64, seconds: u64) -> f64 {
    let at = |seconds: u64| Instant::ZERO + Duration::from_secs(seconds);
    let mut path = Path::new(&config(congestion, 16 << 20), 1_000_000_000, 100_000, lose_every, 1);
    let before = path.run(at(settle))[0];
    let bytes = path.run(at(settle + seconds))[0] - before;
    bytes as f64 / f64::from(MSS) / (seconds as f64 / ROUND_TRIP.as_secs_f64())
}

#[test]
fn cubic_and_reno_have_the_windows_that_are_published() {
    let p: f64 = 1e-4;
    let round_trip = ROUND_TRIP.as_secs_f64();
    let cubic = (0.4 * 3.7 / (4.0 * 0.3_f64)).powf(0.25) * (round_trip / p).powf(0.75);
    let reno = (1.5 / p).sqrt();
    for (congestion, published) in [(CongestionControl::Cubic, cubic), (CongestionControl::Reno, reno)] {
        let found = average_window(congestion, 10_000, 60, 600);
        println!("{congestion:?}: {found:.1} segments on average, published {published:.1}");
        assert!((found / published - 1.0).abs() < 0.1, "{congestion:?}: {found:.1}, not {published:.1}");
    }
}

#[test]
fn sixty_sessions_share_one_line() {
    // The windows fit into the line's queue, so nothing is lost and the streams take turns.
    let at = |seconds: u64| Instant::ZERO + Duration::from_secs(seconds);
    let tcp = config(CongestionControl::Cubic, 64 << 10);
    let mut path = Path::new(&tcp, 100_000_000, 20_000, 0, 60);
    let before = path.run(at(10));
    let after = path.run(at(40));
    let each: Vec<f64> = after.iter().zip(&before).map(|(after, before)| (after - before) as f64).collect();
    let mean = each.iter().sum::<f64>() / each.len() as f64;
    let far = each.iter().map(|bytes| (bytes / mean - 1.0).abs()).fold(0.0, f64::max);
    let mbit_per_second = mean * 60.0 * 8.0 / 30.0 / 1e6;
    println!("{mbit_per_second:.1} Mbit/s together, nobody more than {:.2} % from the mean", far * 100.0);
    assert_eq!(each.len(), 60);
    assert!(far < 0.04, "{:.2} % from the mean", far * 100.0);
    assert!(
        mbit_per_second > 0.95 * 100.0 * 1460.0 / 1500.0,
        "the line is used: {mbit_per_second:.1} Mbit/s"
    );
}
