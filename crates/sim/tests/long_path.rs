//! A long path with losses, and a line that many share: what congestion control makes of them, beside what is published.
//!
//! Path      two boards with IP ports; a line of 1 Gbit/s (or less) each way, 50 ms long; every n-th data segment lost.
//! Published CUBIC: RFC 9438 §5.1, the average window of a flow that loses every (1/p)-th packet,
//!           (C (3 + β) / (4 (1 − β)))^¼ · RTT^¾ / p^¾ segments, β = 0.7, C = 0.4: 187 at 100 ms and 10⁻⁴ (its table 1).
//!           Reno: Mathis et al. 1997, √(3/2p) segments with an acknowledgement a segment (1.22 / √p), and the table of RFC
//!           9438 §5.2 has 120. The sawtooth's own constant with losses at even distance is √(3/2).
//! Measured  segments delivered in a minute and more, by round trips: the average window.

use kiban_board::{
    Board, BoardConfig, Completion, Input, IpPortConfig, MemoryConfig, Output, PortConfig, StreamId,
};
use kiban_ground::{Instant, Pdu};
use kiban_stack::tcp::{Config, CongestionControl};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const MSS: u32 = 1460;
const ROUND_TRIP: Duration = Duration::from_millis(100);

/// One direction: a line with a queue, then a length.
struct Line {
    bits_per_second: u64,
    free_at: Instant,
    /// Packets that wait for the line.
    queue_max: usize,
    under_way: VecDeque<(Instant, Pdu)>,
    /// Every n-th packet with payload is lost.
    lose_every: Option<u64>,
    loaded: u64,
}

impl Line {
    fn send(&mut self, pdu: Pdu, now: Instant) {
        let bytes = pdu.len();
        if bytes > 100 {
            self.loaded += 1;
            if self.lose_every.is_some_and(|n| self.loaded.is_multiple_of(n)) {
                return;
            }
        }
        let length = Duration::from_nanos(bytes as u64 * 8_000_000_000 / self.bits_per_second);
        let waiting = self.free_at.since(now).as_nanos() / length.as_nanos().max(1);
        if waiting as usize > self.queue_max {
            return;
        }
        self.free_at = self.free_at.max(now) + length;
        self.under_way.push_back((self.free_at + ROUND_TRIP / 2, pdu));
    }
}

/// Streams from board 0 to board 1, written as fast as they may and read at once.
struct Path {
    boards: [Board; 2],
    lines: [Line; 2],
    deadlines: [Instant; 2],
    now: Instant,
    sending: Vec<StreamId>,
    /// By stream in the order of acceptance: bytes read.
    receiving: Vec<(StreamId, u64)>,
}

fn address(side: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + side as u8])
}

impl Path {
    fn new(
        tcp: &Config,
        bits_per_second: u64,
        queue_max: usize,
        lose_every: Option<u64>,
        streams: usize,
    ) -> Path {
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
            Board::new(&BoardConfig {
                seed: side as u64,
                memory,
                tcp: tcp.clone(),
                ports,
                ..BoardConfig::default()
            })
        });
        let line = |lose_every| Line {
            bits_per_second,
            free_at: Instant::ZERO,
            queue_max,
            under_way: VecDeque::new(),
            lose_every,
            loaded: 0,
        };
        let mut path = Path {
            boards,
            lines: [line(lose_every), line(None)],
            deadlines: [Instant::ZERO; 2],
            now: Instant::ZERO,
            sending: Vec::new(),
            receiving: Vec::new(),
        };
        let server = SocketAddr::new(address(1), 80);
        path.boards[1].host().listen(server).unwrap();
        for _ in 0..streams {
            path.sending.push(path.boards[0].host().open(server).unwrap());
        }
        path
    }

    /// Bytes that each stream has delivered by `until`.
    fn run(&mut self, until: Instant) -> Vec<u64> {
        loop {
            (0..2).for_each(|side| self.drain(side));
            let arrival = |line: &Line| line.under_way.front().map_or(Instant::NEVER, |first| first.0);
            let next =
                [arrival(&self.lines[0]), arrival(&self.lines[1]), self.deadlines[0], self.deadlines[1]];
            let next = next.into_iter().min().unwrap();
            if next > until {
                self.now = until;
                return self.receiving.iter().map(|stream| stream.1).collect();
            }
            self.now = self.now.max(next);
            for side in 0..2 {
                let line = &mut self.lines[1 - side];
                let count = line.under_way.partition_point(|packet| packet.0 <= self.now);
                if count > 0 {
                    let mut packets: VecDeque<Pdu> =
                        line.under_way.drain(..count).map(|packet| packet.1).collect();
                    self.boards[side].handle(Input::Packets { port: 0, packets: &mut packets }, self.now);
                } else if self.deadlines[side] <= self.now {
                    self.boards[side].handle(Input::Timeout, self.now);
                }
            }
        }
    }

    fn drain(&mut self, side: usize) {
        loop {
            match self.boards[side].poll() {
                Output::Transmit { pdu, .. } => self.lines[side].send(pdu, self.now),
                Output::Idle { deadline } => {
                    self.deadlines[side] = deadline;
                    return;
                }
                Output::Completions => {
                    let mut host = self.boards[side].host();
                    while let Some(told) = host.completion() {
                        match told {
                            Completion::Opened { stream } | Completion::Writable { stream } => {
                                while host.write(stream, &[0x5a; 64 << 10]).unwrap() == 64 << 10 {}
                            }
                            Completion::Accepted { stream, .. } => self.receiving.push((stream, 0)),
                            Completion::Readable { stream } => {
                                let place = self.receiving.iter().position(|its| its.0 == stream).unwrap();
                                while let Some(slice) = host.take(stream).unwrap() {
                                    self.receiving[place].1 += slice.len() as u64;
                                }
                            }
                            told => panic!("{told:?}"),
                        }
                    }
                }
            }
        }
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

/// The average window in segments over `seconds`, after `settle` seconds.
fn average_window(congestion: CongestionControl, lose_every: u64, settle: u64, seconds: u64) -> f64 {
    let at = |seconds: u64| Instant::ZERO + Duration::from_secs(seconds);
    let mut path = Path::new(&config(congestion, 16 << 20), 1_000_000_000, 100_000, Some(lose_every), 1);
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
fn sixty_sessions_on_one_line_have_a_share_each() {
    // Windows that the line's queue holds: nothing is lost, the port shares the line in turns.
    let at = |seconds: u64| Instant::ZERO + Duration::from_secs(seconds);
    let tcp = config(CongestionControl::Cubic, 64 << 10);
    let mut path = Path::new(&tcp, 100_000_000, 20_000, None, 60);
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
