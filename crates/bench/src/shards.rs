//! Two shards of a board compared with one, in memory.
//!
//! Claim     two shards, each on a core of its own, have together at least 1.8 times the goodput of one.
//! Joined    two divided boards hash with the same key, so the shards of a flow have the same number on both.
//!           Each thread drives one shard of each board, and passes packets between them through queues.
//! Work      each shard of the first board opens [`STREAMS`] connections and writes while there is room; the
//!           second board reads into a buffer. Packets have at most the MTU, are cut and merged at the ports,
//!           and have computed and verified checksums.
//! Checks    every shard has its own connections, no packet was handed on, and nothing was retransmitted.
//! Counted   payload bytes read, per wall-clock time, while all threads run.
//! Left out  devices and the kernel; packets that arrive at the wrong shard.

use kiban_base::{Instant, Pdu, RngKey};
use kiban_board::{
    Board, BoardConfig, Completion, Input, IpPortConfig, MemoryConfig, Output, PortConfig, ShardConfig,
    Steering, StreamId,
};
use kiban_lab::{Bench, Options, Target, Trial, Unit};
use kiban_os::clock::{Clock, allowed_cpus, pin_thread};
use kiban_tcpip::tcp;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Connections of each shard.
const STREAMS: usize = 8;
const MSS: u16 = 1460;
const PORT: u16 = 80;
const PIECE_BYTES: usize = 64 << 10;
/// Time after which a shard no longer waits for the others, which have failed.
const GIVE_UP: Duration = Duration::from_secs(300);

fn address(side: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + side as u8])
}

fn config(side: usize, shard: ShardConfig) -> BoardConfig {
    let port = IpPortConfig {
        address: address(side),
        prefix: "10.0.0.0/24".parse().expect("a prefix"),
        mtu_bytes: 1500,
        packets_max: 256,
        cuts: true,
        merges: true,
        believe_sums: false,
    };
    let segment_bytes_max = (kiban_base::SLICES_MAX * usize::from(MSS)) as u32;
    let tcp = tcp::Config {
        mss: MSS,
        segment_bytes_max,
        segmentation_offload: true,
        send_buffer_bytes: 128 << 10,
        receive_buffer_bytes: 128 << 10,
        ..tcp::Config::default()
    };
    // A page holds a whole number of segments. Received data stays in the sender's pages.
    let page_bytes = 44 * usize::from(MSS);
    let memory = MemoryConfig {
        page_bytes,
        transmit_bytes: 128 * page_bytes,
        receive_bytes: 512 * page_bytes,
        pdus: 4096,
    };
    let ports = vec![PortConfig::Ip(port)];
    BoardConfig { memory, tcp, ports, shard: Some(shard), ..BoardConfig::default() }
}

/// One shard of each of the two boards.
struct Lane {
    boards: [Board; 2],
    wires: [VecDeque<Pdu>; 2],
    writable: VecDeque<StreamId>,
    piece: Vec<u8>,
    buffer: Vec<u8>,
    read: u64,
}

impl Lane {
    #[expect(
        clippy::disallowed_methods,
        reason = "both boards are in memory and behave the same in each run"
    )]
    fn new(number: usize, steering: Steering) -> Lane {
        let shard = ShardConfig { number, steering };
        let key = |side| RngKey::for_simulation(2 * number as u64 + side);
        let mut lane = Lane {
            boards: [0, 1].map(|side| Board::new(&config(side, shard), key(side as u64))),
            wires: [VecDeque::new(), VecDeque::new()],
            writable: VecDeque::new(),
            piece: crate::noise::noise(1, PIECE_BYTES),
            buffer: vec![0; PIECE_BYTES],
            read: 0,
        };
        let server = SocketAddr::new(address(1), PORT);
        lane.boards[1].host().listen(server).expect("the port is free");
        for _ in 0..STREAMS {
            lane.boards[0].host().open(server).expect("there is a route");
        }
        lane
    }

    fn turn(&mut self, clock: &Clock) {
        let now = clock.now();
        self.work(0, now);
        self.work(1, now);
    }

    fn work(&mut self, side: usize, now: Instant) {
        let Lane { boards, wires, writable, piece, buffer, read } = self;
        let board = &mut boards[side];
        board.handle(Input::Packets { port: 0, packets: &mut wires[1 - side] }, now);
        loop {
            match board.poll() {
                Output::Transmit { pdu, .. } => wires[side].push_back(pdu),
                Output::Completions => {
                    let mut host = board.host();
                    while let Some(completion) = host.completion() {
                        match completion {
                            Completion::Opened { stream } | Completion::Writable { stream } => {
                                writable.push_back(stream);
                            }
                            Completion::Readable { stream } => {
                                while let Ok(count @ 1..) = host.read(stream, buffer) {
                                    *read += count as u64;
                                }
                            }
                            Completion::Accepted { .. } => {}
                            other => panic!("unexpected in a transfer: {other:?}"),
                        }
                    }
                    if side == 0 {
                        for stream in writable.drain(..) {
                            while host.write(stream, piece).expect("the stream is open") == piece.len() {}
                        }
                    }
                }
                Output::Idle { .. } => break,
            }
        }
        assert!(board.parcel().is_none(), "each flow stays at its shard");
    }

    /// Runs turns until all shards have arrived at a point of the measurement.
    fn meet(&mut self, arrived: &AtomicUsize, shards: usize, clock: &Clock) {
        arrived.fetch_add(1, Ordering::Relaxed);
        let give_up = clock.now() + GIVE_UP;
        while arrived.load(Ordering::Relaxed) < shards {
            self.turn(clock);
            assert!(clock.now() < give_up, "another shard has failed");
        }
    }

    fn check(&self, zero: &[(&str, &str)]) {
        for board in &self.boards {
            for (family, name) in zero {
                assert_eq!(board.counter(family, name), 0, "{name}");
            }
        }
    }
}

/// Counters that are zero even if a thread has to wait for its CPU.
const ZERO: [(&str, &str); 2] = [("shard", "handed_on"), ("tcp", "checksum_errors")];
/// Counters that are zero in a measurement.
const ZERO_MEASURED: [(&str, &str); 3] = [ZERO[0], ZERO[1], ("tcp", "retransmits")];

/// Returns the goodput of this number of shards, in Gbit/s. Checks that the counters `zero` are zero.
#[expect(clippy::disallowed_methods, reason = "the flows are the same in each run")]
fn goodput(shards: usize, cpus: [usize; 2], length: Duration, zero: &[(&str, &str)]) -> f64 {
    let steering = Steering::new(shards, RngKey::for_simulation(7));
    let (begin, end) = (&AtomicUsize::new(0), &AtomicUsize::new(0));
    let rates: Vec<f64> = std::thread::scope(|scope| {
        let shard = |number: usize| {
            move || {
                pin_thread(cpus[number % 2]).expect("the CPU is allowed");
                let clock = Clock::new();
                let mut lane = Lane::new(number, steering);
                // Every connection is open, and its window has grown, when the measurement begins.
                let give_up = clock.now() + GIVE_UP;
                while lane.read < 4 * (STREAMS * PIECE_BYTES) as u64 {
                    lane.turn(&clock);
                    assert!(clock.now() < give_up, "the connections transfer data");
                }
                lane.meet(begin, shards, &clock);
                let (from, before) = (clock.now(), lane.read);
                while clock.now() < from + length {
                    lane.turn(&clock);
                }
                let rate = (lane.read - before) as f64 * 8e-9 / clock.now().since(from).as_secs_f64();
                lane.meet(end, shards, &clock);
                lane.check(zero);
                rate
            }
        };
        let threads: Vec<_> = (0..shards).map(|number| scope.spawn(shard(number))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends by itself")).collect()
    });
    rates.iter().sum()
}

pub(crate) fn run(options: &Options) {
    let mut bench = Bench::new("shards", options.clone());
    bench.options_mut().foreign_cores_max = 0.5;
    let cpus = allowed_cpus().expect("a thread can query its CPUs");
    let [first, .., last] = cpus[..] else {
        println!("shards: needs two CPUs: skipped");
        return;
    };
    let length = Duration::from_millis(if options.quick { 100 } else { 600 });
    bench.compare(
        "in memory, MTU 1500, two shards compared with one",
        Unit::GbitPerSecond,
        ("two shards", |_: &mut Trial| goodput(2, [first, last], length, &ZERO_MEASURED)),
        ("one shard", |_: &mut Trial| goodput(1, [first, last], length, &ZERO_MEASURED)),
        Target::ratio_at_least(1.8),
    );
    bench.finish();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_shards_transfer_data_without_handing_on_packets() {
        let cpus = allowed_cpus().expect("a thread can query its CPUs");
        let cpus = [cpus[0], *cpus.last().expect("there is one")];
        assert!(goodput(2, cpus, Duration::from_millis(20), &ZERO) > 0.0);
    }
}
