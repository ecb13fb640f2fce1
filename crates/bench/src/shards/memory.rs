//! Two boards in memory, divided into shards.
//!
//! Joined    each thread drives one shard of each board, and passes packets between them through queues. If
//!           both boards hash with the same key, the shards of a flow have the same number on both, and no
//!           packet is handed on. With different keys, packets arrive at the wrong shard as with `packet:`,
//!           in both directions.
//! Rings     bounded queues of the standard library, as those of [`kiban_link::ShardRings`].
//! Work      each shard of the first board opens [`STREAMS`] connections and writes while there is room; the
//!           second board reads into a buffer. Packets have at most the MTU, are cut and merged at the ports,
//!           and have computed and verified checksums.
//! Checks    every shard has its own connections. With one key, no packet was handed on, and nothing was
//!           retransmitted.
//! Counted   payload bytes read, per wall-clock time, while all threads run.
//! Left out  devices and the kernel.

use kiban_base::{Instant, Pdu, RngKey};
use kiban_board::{
    Board, BoardConfig, Completion, Input, IpPortConfig, MemoryConfig, Output, Parcel, PortConfig,
    ShardConfig, Steering, StreamId,
};
use kiban_os::clock::{Clock, pin_thread};
use kiban_tcpip::tcp;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Connections of each shard.
pub(super) const STREAMS: usize = 8;
pub(super) const MSS: u16 = 1460;
/// Parcels that a ring holds, and that are taken from it in one turn, as those of a driver.
const RING_PARCELS: usize = 1024;
const PARCELS_PER_TURN: usize = 2 * kiban_link::BURST;
const PORT: u16 = 80;
const PIECE_BYTES: usize = 64 << 10;
/// Time after which a shard no longer waits for the others, which have failed.
pub(super) const GIVE_UP: Duration = Duration::from_secs(300);

pub(super) fn address(side: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + side as u8])
}

pub(super) fn config(side: usize, shard: Option<ShardConfig>) -> BoardConfig {
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
    BoardConfig { memory, tcp, ports, shard, ..BoardConfig::default() }
}

/// A shard's side of the rings between the shards of a board.
pub(super) struct Rings {
    inbox: Receiver<Parcel>,
    outboxes: Vec<SyncSender<Parcel>>,
    arrived: VecDeque<Parcel>,
}

impl Rings {
    pub(super) fn between(shards: usize) -> Vec<Rings> {
        let (outboxes, inboxes): (Vec<_>, Vec<_>) = (0..shards).map(|_| sync_channel(RING_PARCELS)).unzip();
        let side = |inbox| Rings { inbox, outboxes: outboxes.clone(), arrived: VecDeque::new() };
        inboxes.into_iter().map(side).collect()
    }

    /// Passes a board's parcels to the other shards. Packets that find a full ring are dropped.
    pub(super) fn pass(&self, board: &mut Board) {
        while let Some((to, parcel)) = board.parcel() {
            let _ = self.outboxes[to].try_send(parcel);
        }
    }

    /// Takes parcels that have arrived, at most `count`.
    pub(super) fn take(&mut self, count: usize) -> &mut VecDeque<Parcel> {
        self.arrived.extend(self.inbox.try_iter().take(count));
        &mut self.arrived
    }
}

/// One shard of each of the two boards.
struct Lane {
    boards: [Board; 2],
    rings: [Rings; 2],
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
    fn new(number: usize, steering: [Steering; 2], rings: [Rings; 2]) -> Lane {
        let key = |side| RngKey::for_simulation(2 * number as u64 + side);
        let mut lane = Lane {
            boards: [0, 1].map(|side| {
                let shard = ShardConfig { number, steering: steering[side] };
                Board::new(&config(side, Some(shard)), key(side as u64))
            }),
            rings,
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
        let Lane { boards, rings, wires, writable, piece, buffer, read } = self;
        let (board, rings) = (&mut boards[side], &mut rings[side]);
        board.handle(Input::Packets { port: 0, packets: &mut wires[1 - side] }, now);
        let parcels = rings.take(PARCELS_PER_TURN);
        if !parcels.is_empty() {
            board.handle(Input::Parcels { parcels }, now);
        }
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
        rings.pass(board);
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

    /// Returns the number of packets that the shards of both boards have handed on.
    fn handed_on(&self) -> u64 {
        self.boards.iter().map(|board| board.counter("shard", "handed_on")).sum()
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

/// The keys with which the two boards hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    /// One key: each packet arrives at the shard of its flow.
    One,
    /// Different keys: 1/N of the packets arrive at the shard of their flow.
    Two,
}

/// What shards in memory achieve together.
#[derive(Clone, Copy, Default)]
pub(super) struct Goodput {
    pub(super) gbit_per_second: f64,
    /// Packets handed on, in both directions, for each 1460 bytes of payload.
    pub(super) handed_on: f64,
}

/// Measures the goodput of shards, each on a core of its own. `is_quiet` says that no other process disturbs
/// them, so that nothing is retransmitted.
#[expect(clippy::disallowed_methods, reason = "the flows are the same in each run")]
pub(super) fn goodput(
    shards: usize,
    keys: Keys,
    cpus: [usize; 2],
    length: Duration,
    is_quiet: bool,
) -> Goodput {
    let zero: &[(&str, &str)] = match (keys, is_quiet) {
        (Keys::One, true) => &ZERO_MEASURED,
        (Keys::One, false) => &ZERO,
        (Keys::Two, _) => &ZERO[1..],
    };
    let steering = |key| Steering::new(shards, RngKey::for_simulation(key));
    let steering = [steering(7), steering(if keys == Keys::One { 7 } else { 8 })];
    let (begin, end) = (&AtomicUsize::new(0), &AtomicUsize::new(0));
    let rings = Rings::between(shards).into_iter().zip(Rings::between(shards));
    let results: Vec<Goodput> = std::thread::scope(|scope| {
        let shard = |(number, (one, other)): (usize, (Rings, Rings))| {
            move || {
                pin_thread(cpus[number % 2]).expect("the CPU is allowed");
                let clock = Clock::new();
                let mut lane = Lane::new(number, steering, [one, other]);
                // Every connection is open, and its window has grown, when the measurement begins.
                let give_up = clock.now() + GIVE_UP;
                while lane.read < 4 * (STREAMS * PIECE_BYTES) as u64 {
                    lane.turn(&clock);
                    assert!(clock.now() < give_up, "the connections transfer data");
                }
                lane.meet(begin, shards, &clock);
                let (from, before, handed) = (clock.now(), lane.read, lane.handed_on());
                while clock.now() < from + length {
                    lane.turn(&clock);
                }
                let (bytes, handed) = ((lane.read - before) as f64, lane.handed_on() - handed);
                let seconds = clock.now().since(from).as_secs_f64();
                lane.meet(end, shards, &clock);
                lane.check(zero);
                Goodput {
                    gbit_per_second: bytes * 8e-9 / seconds,
                    handed_on: handed as f64 * f64::from(MSS) / bytes,
                }
            }
        };
        let threads: Vec<_> = rings.enumerate().map(|rings| scope.spawn(shard(rings))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends by itself")).collect()
    });
    Goodput {
        gbit_per_second: results.iter().map(|its| its.gbit_per_second).sum(),
        handed_on: results.iter().map(|its| its.handed_on).sum::<f64>() / shards as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiban_os::clock::allowed_cpus;

    fn two(keys: Keys) -> Goodput {
        let cpus = allowed_cpus().expect("a thread can query its CPUs");
        let cpus = [cpus[0], *cpus.last().expect("there is one")];
        goodput(2, keys, cpus, Duration::from_millis(20), false)
    }

    #[test]
    fn two_shards_transfer_data_without_handing_on_packets() {
        assert!(two(Keys::One).gbit_per_second > 0.0);
    }

    #[test]
    fn two_shards_hand_on_packets_that_arrive_at_the_wrong_one() {
        let result = two(Keys::Two);
        assert!(result.gbit_per_second > 0.0 && result.handed_on > 0.0);
    }
}
