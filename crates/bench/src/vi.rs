//! VI through shared memory: two NICs, each polling on a core of its own.
//!
//! Claim     a message between two processes costs little more than the cache lines that it moves. It takes
//!           no system call, one copy into the shared ring, and one copy out of the ring.
//! Sides     a round trip of 8 bytes is compared with a round trip over a bare ring of cache lines. A stream
//!           of 64 KiB messages is compared with `memcpy` of 64 KiB blocks on one core. A bare ring that is
//!           filled and emptied by `memcpy` is compared with the same `memcpy`.
//! Fair      the peer is a thread with a NIC of its own. Everything between the NICs passes through the
//!           memfd, as between processes. Both sides poll, pinned to different CPUs. Round trips use reliable
//!           delivery, like the paper's cLAN; the stream uses reliable reception, which stops the sender
//!           while the receiver is off its core. The peer sleeps while other cases are measured.
//! Buffers   the stream uses 16 buffers of 64 KiB on each side, in rotation; `memcpy` uses as many,
//!           page-aligned.

use kiban_base::ring::{Consumer, Producer, Shape};
use kiban_base::{Region, SharedBytes, Wait};
use kiban_lab::{Bench, Options, Target, Trial, Unit};
use kiban_os::clock::{allowed_cpus, pin_thread};
use kiban_vi::{DataSegment, MemoryAttributes, Reliability, ViAttributes, Work};
use kiban_vi_runtime::{Address, Device, Nic};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

const BLOCK_BYTES: usize = 64 << 10;
const BLOCKS: usize = 16;
const PATIENCE: Duration = Duration::from_secs(10);

/// The task of the peer: to return every message, to discard messages, or to sleep.
const ECHO: u8 = 0;
const SINK: u8 = 1;
/// The peer sleeps until a message arrives.
const SLEEP: u8 = 2;

struct End {
    nic: Nic,
    handle: u32,
    vi: u32,
}

impl End {
    fn open(name: Option<String>, reliability: Reliability) -> End {
        let nic = Nic::open(&Device::Shm(name)).expect("shared memory is there");
        let tag = nic.create_tag().expect("room");
        let memory = Region::new(0, BLOCK_BYTES * BLOCKS);
        let handle = nic
            .register(memory, MemoryAttributes { tag, rdma_write: false, rdma_read: false })
            .expect("room");
        let attributes = ViAttributes {
            reliability,
            transfer_bytes_max: BLOCK_BYTES as u32,
            qos: 0,
            tag,
            rdma_write: false,
            rdma_read: false,
        };
        let vi = nic.create_vi(attributes, None, None).expect("room");
        End { nic, handle, vi }
    }

    fn block(&self, number: usize, length: usize) -> [DataSegment; 1] {
        let address = (number % BLOCKS * BLOCK_BYTES) as u64;
        [DataSegment { address, handle: self.handle, length: length as u32 }]
    }

    fn post_receive(&self, number: usize) {
        self.nic.post_receive(self.vi, number as u64, &self.block(number, BLOCK_BYTES)).expect("room");
    }

    fn post_send(&self, number: usize, length: usize) {
        self.nic
            .post_send(self.vi, Work::send(number as u64, &self.block(number, length)))
            .expect("connected");
    }

    /// Polls for a message and returns its block. Returns `None` if the connection is closed, and an error if
    /// it is time to sleep.
    #[inline]
    fn receive(&self, mode: &AtomicU8) -> Result<Option<usize>, ()> {
        loop {
            if let Some(done) = self.nic.receive_done(self.vi).expect("the VI is there") {
                return Ok(done.status.is_ok().then_some(done.cookie as usize));
            }
            if mode.load(Ordering::Relaxed) == SLEEP {
                return Err(());
            }
            std::hint::spin_loop();
        }
    }

    #[inline]
    fn sent_one(&self) -> usize {
        let done = self.nic.send_done(self.vi).expect("the VI is there");
        if done.is_some_and(|done| !done.status.is_ok()) {
            panic!("the connection was lost: {:?}", self.nic.event());
        }
        usize::from(done.is_some())
    }

    #[inline]
    fn sent(&self) -> usize {
        std::iter::from_fn(|| Some(self.sent_one()).filter(|done| *done > 0)).sum()
    }
}

fn peer(name: String, reliability: Reliability, mode: &AtomicU8) {
    let end = End::open(Some(name), reliability);
    (0..BLOCKS).for_each(|number| end.post_receive(number));
    let request = end.nic.connect_wait(b"bench", PATIENCE).expect("the benchmark calls");
    end.nic.accept(&request, end.vi).expect("the ends are alike");
    end.nic.set_wait(Wait::Interrupt);
    loop {
        let number = if mode.load(Ordering::Relaxed) == SLEEP {
            match end.nic.receive_wait(end.vi, Duration::from_millis(5)) {
                Ok(done) => done.status.is_ok().then_some(done.cookie as usize),
                Err(_) => continue,
            }
        } else {
            match end.receive(mode) {
                Ok(number) => number,
                Err(()) => continue,
            }
        };
        let Some(number) = number else { return };
        if mode.load(Ordering::Relaxed) == ECHO {
            end.post_send(number, 8);
            end.sent_one();
        }
        end.post_receive(number);
    }
}

/// Measures round trips; returns nanoseconds per round trip.
fn ping_pong(trial: &mut Trial, end: &End, mode: &AtomicU8) -> f64 {
    const TURNS: usize = 1000;
    mode.store(ECHO, Ordering::Relaxed);
    let span = trial.measure(|| {
        for number in 0..TURNS {
            end.post_receive(number);
            end.post_send(number, 8);
            end.receive(mode).expect("polling does not sleep").expect("connected");
            assert_eq!(end.sent_one(), 1, "the echo shows that the message arrived");
        }
        TURNS as f64
    });
    mode.store(SLEEP, Ordering::Relaxed);
    span.nanos_each()
}

/// Streams messages in one direction; returns GB/s.
fn stream(trial: &mut Trial, end: &End, mode: &AtomicU8) -> f64 {
    const MESSAGES: usize = 256;
    mode.store(SINK, Ordering::Relaxed);
    let (mut number, mut done) = (0, 0);
    let span = trial.measure(|| {
        for _ in 0..MESSAGES {
            end.post_send(number, BLOCK_BYTES);
            number += 1;
            // Keep at most half of the blocks in flight.
            while number - done >= BLOCKS / 2 {
                done += end.sent();
                std::hint::spin_loop();
            }
        }
        (MESSAGES * BLOCK_BYTES) as f64
    });
    while done < number {
        done += end.sent();
    }
    mode.store(SLEEP, Ordering::Relaxed);
    span.per_second() / 1e9
}

fn copy(trial: &mut Trial) -> f64 {
    const PAGE_BYTES: usize = 4096;
    let bytes = BLOCK_BYTES * BLOCKS;
    let (source, mut target) =
        (crate::noise::noise(1, bytes + PAGE_BYTES), crate::noise::noise(2, bytes + PAGE_BYTES));
    let (from, to) = (source.as_ptr().align_offset(PAGE_BYTES), target.as_ptr().align_offset(PAGE_BYTES));
    let (source, target) = (&source[from..from + bytes], &mut target[to..to + bytes]);
    let span = trial.measure(|| {
        for (from, to) in source.chunks_exact(BLOCK_BYTES).zip(target.chunks_exact_mut(BLOCK_BYTES)) {
            black_box(to).copy_from_slice(black_box(from));
        }
        source.len() as f64
    });
    span.per_second() / 1e9
}

/// A pair of threads connected by two rings.
struct Bare {
    out: Producer,
    into: Consumer,
}

fn bare_pair(slots: usize, payload_bytes: usize) -> (Bare, Bare) {
    let shape = Shape::new(slots, payload_bytes);
    let [there, back] = [(); 2].map(|()| Region::new(0, shape.bytes()));
    let one = Bare { out: Producer::new(&there, 0, shape), into: Consumer::new(&back, 0, shape) };
    (one, Bare { out: Producer::new(&back, 0, shape), into: Consumer::new(&there, 0, shape) })
}

impl Bare {
    fn take(&mut self, end: Option<&AtomicBool>, see: &mut dyn FnMut(SharedBytes<'_>)) -> bool {
        loop {
            if let Some(entry) = self.into.peek().expect("the producer keeps the rules") {
                see(entry);
                self.into.release();
                return true;
            }
            if end.is_some_and(|end| end.load(Ordering::Relaxed)) {
                return false;
            }
            std::hint::spin_loop();
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        while !self.out.push(bytes).expect("the consumer keeps the rules") {
            std::hint::spin_loop();
        }
    }
}

fn bare_ping_pong(trial: &mut Trial, cpu: usize) -> f64 {
    const TURNS: usize = 1000;
    let (mut one, mut two) = bare_pair(64, 56);
    let end = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let _ = pin_thread(cpu);
            while two.take(Some(&end), &mut |_| {}) {
                two.put(&[0; 8]);
            }
        });
        let span = trial.measure(|| {
            for _ in 0..TURNS {
                one.put(&[0; 8]);
                one.take(None, &mut |_| {});
            }
            TURNS as f64
        });
        end.store(true, Ordering::Relaxed);
        span.nanos_each()
    })
}

fn bare_stream(trial: &mut Trial, cpu: usize) -> f64 {
    const PIECE_BYTES: usize = 8192;
    let (mut one, mut two) = bare_pair(32, PIECE_BYTES);
    let end = AtomicBool::new(false);
    let source = crate::noise::noise(2, BLOCK_BYTES * BLOCKS);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let _ = pin_thread(cpu);
            let mut target = vec![0u8; BLOCK_BYTES * BLOCKS];
            let mut at = 0;
            while two.take(Some(&end), &mut |bytes| {
                bytes.copy_to(0, &mut target[at..at + PIECE_BYTES]);
            }) {
                at = (at + PIECE_BYTES) % target.len();
            }
        });
        let span = trial.measure(|| {
            source.chunks_exact(PIECE_BYTES).for_each(|piece| one.put(piece));
            source.len() as f64
        });
        end.store(true, Ordering::Relaxed);
        span.per_second() / 1e9
    })
}

pub(crate) fn run(options: &Options) {
    let cpus = allowed_cpus().expect("a thread can query its CPUs");
    let [one, other, ..] = cpus[..] else {
        println!("vi: needs two CPUs, {} allowed: skipped", cpus.len());
        return;
    };
    // Measure in a separate thread, so that its pinning to a CPU ends with it.
    std::thread::scope(|threads| {
        threads.spawn(|| pinned(options, one, other));
    });
}

fn pinned(options: &Options, own: usize, other: usize) {
    let _ = pin_thread(own);
    let mut bench = Bench::new("vi", options.clone());
    let round_trip = |bench: &mut Bench, end: &End, mode: &AtomicU8| {
        bench.compare(
            "round trip of 8 bytes, both polling",
            Unit::Nanoseconds,
            ("VI", |trial: &mut Trial| ping_pong(trial, end, mode)),
            ("bare ring", |trial: &mut Trial| bare_ping_pong(trial, other)),
            Target::at_most(600.0),
        );
    };
    beside_a_peer(Reliability::Delivery, other, |end, mode| round_trip(&mut bench, end, mode));
    beside_a_peer(Reliability::Reception, other, |end, mode| {
        bench.compare(
            "64 KiB messages, both polling",
            Unit::GbytePerSecond,
            ("VI", |trial: &mut Trial| stream(trial, end, mode)),
            ("memcpy", copy),
            Target::ratio_at_least(0.35),
        );
    });
    bench.compare(
        "64 KiB through a bare ring",
        Unit::GbytePerSecond,
        ("bare ring", |trial: &mut Trial| bare_stream(trial, other)),
        ("memcpy", copy),
        Target::None,
    );
    bench.finish();
}

/// Connects with a peer on another CPU, measures, and disconnects.
fn beside_a_peer(reliability: Reliability, cpu: usize, measure: impl FnOnce(&End, &AtomicU8)) {
    let mode = AtomicU8::new(SLEEP);
    let name = format!("bench-{}", std::process::id());
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let _ = pin_thread(cpu);
            peer(name.clone(), reliability, &mode);
        });
        let end = End::open(None, reliability);
        let host = format!("shm:{name}").parse().expect("an address");
        let to = Address { host, discriminator: b"bench".to_vec() };
        while end.nic.connect(end.vi, b"", &to, PATIENCE).is_err() {
            std::thread::yield_now();
        }
        measure(&end, &mode);
        end.nic.disconnect(end.vi).expect("connected");
    });
}
