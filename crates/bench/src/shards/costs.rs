//! Costs that the model needs and that no other row measures.
//!
//! Handing on   one core passes bursts of datagrams of 1472 bytes to the shard on another core, through a
//!              ring. What the second core needs more than for datagrams that arrive there directly is the
//!              cost of taking them, with the cache lines that come from the other core.
//! Shared       the work of two cores on one resource, compared with that of one: copying between buffers
//!              larger than the caches, and writing packets to two queues of a TUN device, which the kernel
//!              drops. If each core becomes slower, the cores are taken to exclude each other for this time.

use super::memory::{GIVE_UP, Rings, address, config};
use crate::link::{DEVICE, KERNEL, in_a_namespace};
use kiban_base::{Pdu, RngKey};
use kiban_board::{Board, BoardConfig, Input, MemoryConfig, Output, ShardConfig, SocketId, Steering};
use kiban_link::frames::tun::{TunLink, TunMode};
use kiban_os::clock::{Clock, pin_thread, thread_cpu_nanos};
use kiban_os::interface;
use std::collections::VecDeque;
use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const PORT: u16 = 5000;
const DATAGRAM_BYTES: usize = 1472;
/// Datagrams that arrive at once; a socket holds as many.
const BURST: usize = 64;
/// Datagrams that may be on the way to the other shard.
const UNDER_WAY_MAX: usize = 4 * BURST;
/// Bytes that each core copies from and to, much more than its share of the caches.
const COPY_BYTES: usize = 128 << 20;

/// The cost of handing a packet on, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandOn {
    /// At the shard at which it has arrived.
    pub(super) pass: f64,
    /// At the shard of its flow, in addition to its processing.
    pub(super) take: f64,
}

fn with_small_pages(config: BoardConfig) -> BoardConfig {
    let bytes = 8 << 20;
    let memory =
        MemoryConfig { page_bytes: 2048, transmit_bytes: bytes, receive_bytes: bytes, ..config.memory };
    BoardConfig { memory, ..config }
}

/// An undivided board that sends datagrams of a flow.
struct Sender {
    board: Board,
    socket: SocketId,
    payload: Vec<u8>,
}

impl Sender {
    #[expect(clippy::disallowed_methods, reason = "the datagrams are the same in each run")]
    fn to_shard_1(steering: Steering) -> Sender {
        let remote = SocketAddr::new(address(1), PORT);
        let local = (2000..)
            .map(|port| SocketAddr::new(address(0), port))
            .find(|local| steering.of_flow(*local, remote) == 1)
            .expect("half of them");
        let config = with_small_pages(config(0, None));
        let mut board = Board::new(&config, RngKey::for_simulation(1));
        let socket = board.host().bind(local).expect("the port is free");
        Sender { board, socket, payload: crate::noise::noise(6, DATAGRAM_BYTES) }
    }

    fn burst(&mut self, clock: &Clock, into: &mut VecDeque<Pdu>) {
        let Sender { board, socket, payload } = self;
        board.handle(Input::Timeout, clock.now());
        for _ in 0..BURST {
            let remote = SocketAddr::new(address(1), PORT);
            board.host().send_to(*socket, remote, payload).expect("there is memory");
        }
        loop {
            match board.poll() {
                Output::Transmit { pdu, .. } => into.push_back(pdu),
                Output::Completions => {}
                Output::Idle { .. } => return,
            }
        }
    }
}

/// A shard of the receiving board.
struct Receiver {
    board: Board,
    socket: SocketId,
    buffer: Vec<u8>,
}

impl Receiver {
    #[expect(clippy::disallowed_methods, reason = "the datagrams are the same in each run")]
    fn new(number: usize, steering: Steering) -> Receiver {
        let shard = ShardConfig { number, steering };
        let key = RngKey::for_simulation(2 + number as u64);
        let mut board = Board::new(&with_small_pages(config(1, Some(shard))), key);
        let socket = board.host().bind(SocketAddr::new(address(1), PORT)).expect("the port is free");
        Receiver { board, socket, buffer: vec![0; DATAGRAM_BYTES] }
    }

    /// Processes input until there is nothing more to do; returns the number of datagrams received.
    fn work(&mut self, input: Input<'_>, clock: &Clock) -> usize {
        let Receiver { board, socket, buffer } = self;
        board.handle(input, clock.now());
        loop {
            match board.poll() {
                Output::Transmit { .. } => {}
                Output::Completions => while board.host().completion().is_some() {},
                Output::Idle { .. } => break,
            }
        }
        let mut host = board.host();
        std::iter::from_fn(|| host.receive_from(*socket, buffer).ok().flatten()).count()
    }
}

/// Measures the cost of handing packets on from one core to another.
#[expect(clippy::disallowed_methods, reason = "the datagrams are the same in each run")]
pub(super) fn hand_on(cpus: [usize; 2], length: Duration) -> HandOn {
    let clock = Clock::new();
    let steering = Steering::new(2, RngKey::for_simulation(3));
    let mut rings = Rings::between(2).into_iter();
    let (first, mut second) = (rings.next().expect("two"), rings.next().expect("two"));
    let (passed, taken, over) = (&AtomicUsize::new(0), &AtomicUsize::new(0), &AtomicBool::new(false));
    let own = |nanos: Duration, count: usize| nanos.as_nanos() as f64 / count.max(1) as f64;
    std::thread::scope(|scope| {
        let take = scope.spawn(move || {
            pin_thread(cpus[1]).expect("the CPU is allowed");
            let mut shard = Receiver::new(1, steering);
            let (mut busy, mut count) = (Duration::ZERO, 0);
            while !over.load(Ordering::Acquire) {
                if passed.load(Ordering::Acquire) - count < BURST {
                    std::hint::spin_loop();
                    continue;
                }
                let from = clock.now();
                let parcels = second.take(BURST);
                let arrived = parcels.len();
                let received = shard.work(Input::Parcels { parcels }, &clock);
                busy += clock.now().since(from);
                assert_eq!(arrived, received, "the shard has the flow's socket");
                count += arrived;
                taken.store(count, Ordering::Release);
            }
            own(busy, count)
        });
        let pass = scope.spawn(move || {
            pin_thread(cpus[0]).expect("the CPU is allowed");
            // The datagrams of the flow arrive at its own shard.
            let (mut sender, mut packets) = (Sender::to_shard_1(steering), VecDeque::new());
            let mut direct = Receiver::new(1, steering);
            let (mut busy, mut count) = (Duration::ZERO, 0);
            let until = clock.now() + length / 2;
            while clock.now() < until {
                sender.burst(&clock, &mut packets);
                let from = clock.now();
                count += direct.work(Input::Packets { port: 0, packets: &mut packets }, &clock);
                busy += clock.now().since(from);
            }
            let plain = own(busy, count);
            // They arrive at the other shard.
            let mut shard = Receiver::new(0, steering);
            let (mut busy, mut count) = (Duration::ZERO, 0);
            let until = clock.now() + length;
            while clock.now() < until {
                while count - taken.load(Ordering::Acquire) > UNDER_WAY_MAX {
                    std::hint::spin_loop();
                    assert!(clock.now() < until + GIVE_UP, "the other shard takes datagrams");
                }
                sender.burst(&clock, &mut packets);
                let from = clock.now();
                shard.work(Input::Packets { port: 0, packets: &mut packets }, &clock);
                first.pass(&mut shard.board);
                busy += clock.now().since(from);
                count += BURST;
                passed.store(count, Ordering::Release);
            }
            (plain, own(busy, count))
        });
        let (plain, pass) = pass.join().expect("it ends by itself");
        over.store(true, Ordering::Release);
        let take = take.join().expect("it ends by itself");
        HandOn { pass, take: (take - plain).max(0.0) }
    })
}

/// Returns the CPU time per step of one core that works alone, and of each of two cores that work at once, in
/// nanoseconds. `steps` does work on one core and returns the number of its steps.
fn alone_and_together(
    cpus: [usize; 2],
    length: Duration,
    steps: impl Fn(usize) -> Box<dyn FnMut() -> usize> + Sync,
) -> [f64; 2] {
    let clock = Clock::new();
    [1, 2].map(|cores| {
        let begun = &AtomicUsize::new(0);
        let steps = &steps;
        let each: Vec<f64> = std::thread::scope(|scope| {
            let core = |number: usize| {
                move || {
                    pin_thread(cpus[number]).expect("the CPU is allowed");
                    let mut step = steps(number);
                    step();
                    begun.fetch_add(1, Ordering::AcqRel);
                    while begun.load(Ordering::Acquire) < cores {
                        std::hint::spin_loop();
                    }
                    let (until, from, mut count) = (clock.now() + length, thread_cpu_nanos(), 0);
                    while clock.now() < until {
                        count += step();
                    }
                    (thread_cpu_nanos() - from) as f64 / count as f64
                }
            };
            let threads: Vec<_> = (0..cores).map(|number| scope.spawn(core(number))).collect();
            threads.into_iter().map(|thread| thread.join().expect("it ends by itself")).collect()
        });
        each.iter().sum::<f64>() / cores as f64
    })
}

/// Returns the time to copy a byte, alone and with another core that copies, in nanoseconds.
pub(super) fn copy(cpus: [usize; 2], length: Duration) -> [f64; 2] {
    alone_and_together(cpus, length, |_| {
        let (source, mut target) = (vec![1u8; COPY_BYTES], vec![0u8; COPY_BYTES]);
        let mut at = 0;
        Box::new(move || {
            let piece = 1 << 20;
            at = (at + piece) % COPY_BYTES;
            target[at..at + piece].copy_from_slice(&source[at..at + piece]);
            black_box(&mut target);
            piece
        })
    })
}

/// Returns the time to write a packet of 1500 bytes to a queue of a TUN device, alone and while another core
/// writes to another queue, in nanoseconds.
pub(super) fn device(cpus: [usize; 2], length: Duration) -> [f64; 2] {
    let done = in_a_namespace(|| {
        let queue = || TunLink::open_queue(DEVICE, TunMode::Packets, true).map(TunLink::into_file);
        let queues = [queue(), queue()].map(|file| file.map(File::from).map_err(|error| error.to_string()));
        let [one, other] = queues;
        let queues = [one?, other?];
        interface::set_address(DEVICE, IpAddr::from(KERNEL), 24).map_err(|error| error.to_string())?;
        interface::set_up(DEVICE).map_err(|error| error.to_string())?;
        Ok(alone_and_together(cpus, length, |number| {
            let mut file = queues[number].try_clone().expect("the process may open files");
            // A virtio header, and an IPv4 packet whose header checksum is wrong.
            let mut packet = vec![0; 10 + 1500];
            packet[10] = 0x45;
            Box::new(move || {
                for _ in 0..BURST {
                    assert_eq!(file.write(&packet).expect("the device is up"), packet.len());
                }
                BURST
            })
        }))
    });
    done.expect("it worked before")
}
