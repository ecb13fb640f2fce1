//! One cell of the table: a producer and a receiver on two CPUs, one kind of traffic, one policy.
//!
//! Producer  the producer polls the clock until a message is due, records the time, publishes the message,
//!           and rings the bell. If the producer is late because another process had its core, later messages
//!           are postponed; there is no burst to catch up.
//! Receiver  the receiver takes one message at a time through [`Waiting::wait`] and records its latency, from
//!           the time that the producer recorded until the receiver has the message.
//! Counted   from message number `warm` on: the latencies, the CPU time of the receiver, and the duration of
//!           the producer's calls that woke the receiver.
//! Hogs      busy threads that compete for the CPUs: in some rows, one runs on each of the two CPUs.

use kiban_base::{Bell, Costs, Instant, SimRng, optimum};
use kiban_os::clock::{machine_nanos, pin_thread, thread_cpu_nanos};
use kiban_os::{EventSleeper, Sleeper, Waiting};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A producer that is later than this is considered to have lost its core.
const LATE_NANOS: u64 = 50_000;

/// The CPU time that other processes may use during a valid cell, in addition to 2 % of a core for the
/// kernel's own threads.
const FOREIGN_NANOS_MAX: u64 = 1_000_000;
/// The longest time that a producer may be off its core in a valid cell. A longer absence means that another
/// thread or, on a virtual machine, another guest used the core.
const LOST_NANOS_MAX: u64 = 500_000;
/// A step of the producer's loop that takes longer than this counts as time off its core. (Interrupts take
/// less.)
const AWAY_NANOS: u64 = 50_000;

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

    /// Returns the mean gap in microseconds.
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

    /// Returns the gaps in nanoseconds, which are the same for every policy.
    pub(super) fn gaps(self, messages: usize) -> Vec<u64> {
        let mut rng = SimRng::from_seed(2000);
        let mut early = 0;
        (0..messages as u64)
            .map(|at| match self {
                Traffic::Constant { micros } => micros * 1000,
                Traffic::Exponential { micros } => (-(1.0 - rng.unit()).ln() * micros as f64 * 1000.0) as u64,
                Traffic::Bursts { length, micros, pause_micros } => {
                    1000 * if at.is_multiple_of(length) { pause_micros } else { micros }
                }
                // Messages are due at fixed times, so the gap after a late message is shorter.
                Traffic::Periodic { micros, jitter_micros } => {
                    let late = rng.below(2 * jitter_micros * 1000 + 1);
                    let gap = micros * 1000 + late - early;
                    early = late;
                    gap
                }
            })
            .collect()
    }
}

/// The result of a cell.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    /// Latencies in ascending order, in nanoseconds.
    pub(super) latencies: Vec<u64>,
    /// When the counted messages were sent.
    arrivals: Vec<Instant>,
    start: Instant,
    wall_nanos: u64,
    receiver_cpu_nanos: u64,
    ring_nanos: u64,
    rings: u64,
    /// The latencies of messages that ended a wait: their sum and their number.
    woken: (u64, u64),
    /// CPU time used by other processes during the cell.
    foreign_nanos: u64,
    /// How long the producer, which never sleeps, was off its core.
    lost_nanos: u64,
}

impl Cell {
    pub(super) fn percentile_micros(&self, percent: usize) -> f64 {
        self.latencies[(self.latencies.len() - 1) * percent / 100] as f64 / 1000.0
    }

    pub(super) fn cpu_percent(&self) -> f64 {
        self.receiver_cpu_nanos as f64 * 100.0 / self.wall_nanos as f64
    }

    /// Returns the CPU use of other processes, in cores.
    pub(super) fn foreign_cores(&self) -> f64 {
        self.foreign_nanos as f64 / self.wall_nanos as f64
    }

    /// Returns whether other processes disturbed the cell so much that its results are invalid.
    pub(super) fn is_disturbed(&self, hogs: bool) -> bool {
        // With hogs, the producer is off its core half of the time.
        let lost = !hogs && self.lost_nanos > LOST_NANOS_MAX;
        lost || self.foreign_nanos > FOREIGN_NANOS_MAX + self.wall_nanos / 50
    }

    /// Returns the cost per message in microseconds: CPU time of the receiver and of ringing, and the
    /// latency.
    pub(super) fn cost_micros(&self, price: f64) -> f64 {
        let latency: u64 = self.latencies.iter().sum();
        let nanos = (self.receiver_cpu_nanos + self.ring_nanos) as f64 + price * latency as f64;
        nanos / 1000.0 / self.latencies.len() as f64
    }

    /// Returns the cost per message of the optimal policy for these arrivals, in microseconds.
    pub(super) fn optimum_micros(&self, costs: &Costs) -> f64 {
        optimum(self.start, &self.arrivals, costs) as f64 / 1000.0 / self.arrivals.len() as f64
    }

    /// Returns the cost of a sleep, measured in a cell in which the receiver slept whenever the queue was
    /// empty.
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

/// The state that both threads share.
struct Queue {
    bell: Bell,
    sleeper: EventSleeper,
    sent: AtomicU64,
    moments: Vec<AtomicU64>,
    ready: Barrier,
}

/// Sleeps until other processes leave the machine idle for a moment, or until `patience` is used up;
/// subtracts the time it took from `patience`.
pub(super) fn until_quiet(patience: &mut Duration) {
    const LOOK: Duration = Duration::from_millis(40);
    let (bell, sleeper) = (Bell::new(), EventSleeper::new().expect("an eventfd can be opened"));
    while *patience >= LOOK {
        let before = Others::read();
        bell.arm();
        sleeper.sleep(&bell, Some(LOOK));
        *patience -= LOOK;
        if Others::read().since(&before) < FOREIGN_NANOS_MAX + LOOK.as_nanos() as u64 / 50 {
            return;
        }
    }
}

/// Runs a cell. `cpus` are the CPUs of the producer and of the receiver.
pub(super) fn run(waiting: &mut Waiting, gaps: &[u64], warm: usize, cpus: [usize; 2]) -> Cell {
    let queue = Queue {
        bell: Bell::new(),
        sleeper: EventSleeper::new().expect("an eventfd can be opened"),
        sent: AtomicU64::new(0),
        moments: gaps.iter().map(|_| AtomicU64::new(0)).collect(),
        ready: Barrier::new(2),
    };
    let before = Others::read();
    let mut cell = std::thread::scope(|scope| {
        let producer = scope.spawn(|| {
            pin_thread(cpus[0]).expect("this CPU was allowed");
            produce(&queue, gaps, warm)
        });
        let receiver = scope.spawn(|| {
            pin_thread(cpus[1]).expect("this CPU was allowed");
            receive(&queue, waiting, warm)
        });
        let sent = producer.join().expect("the producer does not panic");
        let Cell { ring_nanos, rings, lost_nanos, .. } = sent;
        Cell { ring_nanos, rings, lost_nanos, ..receiver.join().expect("the receiver does not panic") }
    });
    cell.foreign_nanos = Others::read().since(&before);
    cell
}

/// The CPU time of every thread of every other process, in nanoseconds, from
/// `/proc/<pid>/task/<tid>/schedstat`. (`/proc/stat` counts in hundredths of a second, which is too coarse
/// for cells of a tenth of a second, where a single time slice of 4 ms invalidates a cell.)
struct Others(HashMap<PathBuf, u64>);

impl Others {
    fn read() -> Others {
        let own = std::process::id().to_string();
        let entries = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten();
        let is_other = |name: &OsStr| {
            name.to_str().is_some_and(|name| name != own && name.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let processes = entries(Path::new("/proc")).filter(|entry| is_other(&entry.file_name()));
        let tasks = processes.flat_map(|process| entries(&process.path().join("task")));
        let nanos = |task: &Path| {
            let text = std::fs::read_to_string(task.join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse().ok()
        };
        Others(tasks.filter_map(|task| Some((task.path(), nanos(&task.path())?))).collect())
    }

    /// Returns the CPU time that other processes have used since `before`. Processes that have exited are not
    /// counted.
    fn since(&self, before: &Others) -> u64 {
        let used =
            |(task, nanos): (&PathBuf, &u64)| nanos.saturating_sub(before.0.get(task).copied().unwrap_or(0));
        self.0.iter().map(used).sum()
    }
}

fn produce(queue: &Queue, gaps: &[u64], warm: usize) -> Cell {
    let mut cell = Cell::default();
    queue.ready.wait();
    let mut due = machine_nanos();
    for (number, gap) in gaps.iter().enumerate() {
        due += gap;
        let mut now = machine_nanos();
        while now < due {
            std::hint::spin_loop();
            let before = std::mem::replace(&mut now, machine_nanos());
            if now - before > AWAY_NANOS && number >= warm {
                cell.lost_nanos += now - before;
            }
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
                cell.ring_nanos += machine_nanos() - before;
                cell.rings += 1;
            }
        }
    }
    cell
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

/// Threads that compete for the CPUs until this value is dropped.
pub(super) struct Hogs {
    stop: &'static AtomicBool,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Hogs {
    /// Starts one thread on each of `cpus`. Only one set may exist at a time.
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
