//! One cell of the table: a producer and a receiver on two CPUs, one traffic, one policy.
//!
//! Producer  spins until a message is due, notes the moment, makes it visible, rings. If it comes late (somebody had its
//!           core), what follows moves back: there is no flood to catch up.
//! Receiver  takes message by message through [`Waiting::wait`] and notes the latency: from the producer's moment to having it.
//! Counted   from message number `warm` on: latencies, CPU time of the receiver, length of the producer's calls that woke it.
//! Hogs      a thread on each of the two CPUs that does nothing but use it.

use kiban_ground::{Bell, Chance, Costs, Instant, optimum};
use kiban_real::clock::{machine_nanos, pin_thread, process_cpu_nanos, thread_cpu_nanos};
use kiban_real::{EventSleeper, Sleeper, Waiting};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// More late than this, a producer lost its core.
const LATE_NANOS: u64 = 50_000;

/// Idle time is told in hundredths of a second, and read twice.
const GRAIN_NANOS: u64 = 12_000_000;

/// A kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Traffic {
    Constant { micros: u64 },
    Exponential { micros: u64 },
    Bursts { length: u64, micros: u64, pause_micros: u64 },
    Periodic { micros: u64, jitter_micros: u64 },
}

impl Traffic {
    pub(super) fn name(self) -> String {
        let length = |micros: u64| {
            if micros.is_multiple_of(1000) { format!("{} ms", micros / 1000) } else { format!("{micros} us") }
        };
        match self {
            Traffic::Constant { micros } => format!("constant {}", length(micros)),
            Traffic::Exponential { micros } => format!("exponential {}", length(micros)),
            Traffic::Bursts { length: count, micros, pause_micros } => {
                format!("bursts {count} x {micros} us / {}", length(pause_micros))
            }
            Traffic::Periodic { micros, jitter_micros } => {
                format!("periodic {} +- {jitter_micros} us", length(micros))
            }
        }
    }

    /// The mean gap in microseconds.
    pub(super) fn mean_micros(self) -> f64 {
        match self {
            Traffic::Constant { micros }
            | Traffic::Exponential { micros }
            | Traffic::Periodic { micros, .. } => micros as f64,
            Traffic::Bursts { length, micros, pause_micros } => {
                ((length - 1) * micros + pause_micros) as f64 / length as f64
            }
        }
    }

    /// Gaps in nanoseconds, the same for every policy.
    pub(super) fn gaps(self, messages: usize) -> Vec<u64> {
        let mut chance = Chance::from_seed(2000);
        let mut early = 0;
        (0..messages as u64)
            .map(|at| match self {
                Traffic::Constant { micros } => micros * 1000,
                Traffic::Exponential { micros } => {
                    (-(1.0 - chance.unit()).ln() * micros as f64 * 1000.0) as u64
                }
                Traffic::Bursts { length, micros, pause_micros } => {
                    1000 * if at.is_multiple_of(length) { pause_micros } else { micros }
                }
                // Around a clock: what came late makes the next gap shorter.
                Traffic::Periodic { micros, jitter_micros } => {
                    let late = chance.below(2 * jitter_micros * 1000 + 1);
                    let gap = micros * 1000 + late - early;
                    early = late;
                    gap
                }
            })
            .collect()
    }
}

/// What a cell came to.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    /// Latencies, rising, in nanoseconds.
    pub(super) latencies: Vec<u64>,
    /// When the counted messages were sent.
    arrivals: Vec<Instant>,
    start: Instant,
    wall_nanos: u64,
    receiver_cpu_nanos: u64,
    ring_nanos: u64,
    rings: u64,
    /// Latencies of messages that ended a wait: sum and number.
    woken: (u64, u64),
    /// What others used of the two CPUs meanwhile, as far as it is known.
    foreign_nanos: u64,
}

impl Cell {
    pub(super) fn percentile_micros(&self, percent: usize) -> f64 {
        self.latencies[(self.latencies.len() - 1) * percent / 100] as f64 / 1000.0
    }

    pub(super) fn cpu_percent(&self) -> f64 {
        self.receiver_cpu_nanos as f64 * 100.0 / self.wall_nanos as f64
    }

    /// What others used meanwhile, in cores.
    pub(super) fn foreign_cores(&self) -> f64 {
        self.foreign_nanos as f64 / self.wall_nanos as f64
    }

    /// Whether that is too much to believe the figures: more than 2 % and what the accounts are coarse by.
    pub(super) fn is_disturbed(&self) -> bool {
        self.foreign_nanos > GRAIN_NANOS + self.wall_nanos / 50
    }

    /// What was paid a message, in microseconds: CPU time of the receiver and of ringing, and the latency of every message.
    pub(super) fn cost_micros(&self, price: f64) -> f64 {
        let latency: u64 = self.latencies.iter().sum();
        let nanos = (self.receiver_cpu_nanos + self.ring_nanos) as f64 + price * latency as f64;
        nanos / 1000.0 / self.latencies.len() as f64
    }

    /// What the optimum would have paid a message for these arrivals, in microseconds.
    pub(super) fn optimum_micros(&self, costs: &Costs) -> f64 {
        optimum(self.start, &self.arrivals, costs) as f64 / 1000.0 / self.arrivals.len() as f64
    }

    /// What a sleep costs here, from a cell in which the receiver slept whenever nothing was there.
    pub(super) fn costs(&self, base: &Costs) -> Costs {
        if self.rings == 0 || self.woken.1 == 0 {
            return *base;
        }
        Costs {
            wake: Duration::from_nanos(self.woken.0 / self.woken.1),
            sleep: Duration::from_nanos(self.receiver_cpu_nanos / self.rings),
            ring: Duration::from_nanos(self.ring_nanos / self.rings),
            ..*base
        }
    }
}

/// What both threads see.
struct Queue {
    bell: Bell,
    sleeper: EventSleeper,
    sent: AtomicU64,
    moments: Vec<AtomicU64>,
    ready: Barrier,
}

/// Runs a cell. `cpus`: of the producer and of the receiver.
pub(super) fn run(waiting: &mut Waiting, gaps: &[u64], warm: usize, cpus: [usize; 2]) -> Cell {
    let queue = Queue {
        bell: Bell::new(),
        sleeper: EventSleeper::new().expect("an eventfd may be opened"),
        sent: AtomicU64::new(0),
        moments: gaps.iter().map(|_| AtomicU64::new(0)).collect(),
        ready: Barrier::new(2),
    };
    let before = Accounts::read();
    let mut cell = std::thread::scope(|scope| {
        let producer = scope.spawn(|| {
            pin_thread(cpus[0]).expect("this CPU was allowed");
            produce(&queue, gaps, warm)
        });
        let receiver = scope.spawn(|| {
            pin_thread(cpus[1]).expect("this CPU was allowed");
            receive(&queue, waiting, warm)
        });
        let (ring_nanos, rings) = producer.join().expect("the producer does not panic");
        Cell { ring_nanos, rings, ..receiver.join().expect("the receiver does not panic") }
    });
    cell.foreign_nanos = Accounts::foreign(before, Accounts::read());
    cell
}

/// The time of all CPUs that was neither idle nor ours is somebody else's. (The machine's sampled columns of busy time are
/// too coarse for a tenth of a second; idle time is exact but for its unit.)
#[derive(Clone, Copy)]
struct Accounts {
    wall: u64,
    own: u64,
    idle: Option<(u64, u64)>,
}

impl Accounts {
    fn read() -> Accounts {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        Accounts { wall: machine_nanos(), own: process_cpu_nanos(), idle: idle_nanos(&stat) }
    }

    fn foreign(before: Accounts, after: Accounts) -> u64 {
        let (Some((idle_before, _)), Some((idle_after, cpus))) = (before.idle, after.idle) else { return 0 };
        let there_was = (after.wall - before.wall) * cpus;
        there_was.saturating_sub(idle_after - idle_before).saturating_sub(after.own - before.own)
    }
}

/// Idle time of all CPUs (`idle` and `iowait`, proc_stat(5)), and how many there are.
fn idle_nanos(stat: &str) -> Option<(u64, u64)> {
    const NANOS_PER_TICK: u64 = 10_000_000;
    let cpus = stat.lines().filter(|line| line.starts_with("cpu")).count().checked_sub(1)?;
    let mut columns = stat.lines().next()?.split_whitespace().skip(4).map(str::parse::<u64>);
    let idle = columns.next()?.ok()? + columns.next()?.ok()?;
    Some((idle * NANOS_PER_TICK, cpus as u64))
}

fn produce(queue: &Queue, gaps: &[u64], warm: usize) -> (u64, u64) {
    let (mut ring_nanos, mut rings) = (0, 0);
    queue.ready.wait();
    let mut due = machine_nanos();
    for (number, gap) in gaps.iter().enumerate() {
        due += gap;
        let mut now = machine_nanos();
        while now < due {
            std::hint::spin_loop();
            now = machine_nanos();
        }
        if now > due + LATE_NANOS {
            due = now;
        }
        queue.moments[number].store(now, Ordering::Relaxed);
        queue.sent.store(number as u64 + 1, Ordering::Release);
        if queue.bell.ring(machine_nanos) {
            let before = machine_nanos();
            queue.sleeper.wake(&queue.bell);
            if number >= warm {
                ring_nanos += machine_nanos() - before;
                rings += 1;
            }
        }
    }
    (ring_nanos, rings)
}

fn receive(queue: &Queue, waiting: &mut Waiting, warm: usize) -> Cell {
    let messages = queue.moments.len();
    let mut cell = Cell { latencies: Vec::with_capacity(messages), ..Cell::default() };
    let (mut cpu, mut wall) = (0, 0);
    let mut at_once = 0;
    queue.ready.wait();
    for number in 0..messages {
        if number == warm {
            (cpu, wall) = (thread_cpu_nanos(), machine_nanos());
            cell.start = Instant::from_nanos(wall);
        }
        let look = || (queue.sent.load(Ordering::Acquire) > number as u64).then_some(());
        waiting.wait(&queue.bell, &queue.sleeper, Instant::NEVER, look).expect("there is no deadline");
        let (now, sent) = (machine_nanos(), queue.moments[number].load(Ordering::Relaxed));
        if number >= warm {
            let latency = now.saturating_sub(sent);
            cell.latencies.push(latency);
            cell.arrivals.push(Instant::from_nanos(sent));
            if waiting.report().at_once == at_once {
                cell.woken = (cell.woken.0 + latency, cell.woken.1 + 1);
            }
        }
        at_once = waiting.report().at_once;
    }
    cell.receiver_cpu_nanos = thread_cpu_nanos() - cpu;
    cell.wall_nanos = machine_nanos() - wall;
    cell.latencies.sort_unstable();
    cell
}

/// Somebody else who wants the CPUs, until dropped.
pub(super) struct Hogs {
    stop: &'static AtomicBool,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Hogs {
    /// One on each of `cpus`. Only one set may be about.
    pub(super) fn on(cpus: [usize; 2]) -> Hogs {
        static STOP: AtomicBool = AtomicBool::new(false);
        STOP.store(false, Ordering::Relaxed);
        let threads = cpus.map(|cpu| {
            std::thread::spawn(move || {
                pin_thread(cpu).expect("this CPU was allowed");
                while !STOP.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        });
        Hogs { stop: &STOP, threads: threads.into() }
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("a hog does not panic");
        }
    }
}
