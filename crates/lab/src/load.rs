//! Detects CPU load by other processes during a measurement.
//!
//! Purpose   find the samples that other processes disturbed, so that they can be discarded and repeated.
//! Method    the machine's busy time (user, nice, system, interrupts, steal: all columns of the first line of
//!           `/proc/stat` except idle and iowait) minus the CPU time of this process and of its descendants,
//!           whether they are running or have been waited for. The remainder is foreign load; divided by wall
//!           time it is a number of cores.
//! Precision  `/proc/stat` counts in hundredths of a second, and each column is rounded down. A sample counts
//!           as disturbed only beyond [`GRAIN_NANOS`], so very short samples are hardly protected.
//! Limits    kernel threads that work for this process (such as softirqs in a network test) count as foreign
//!           load, so such a benchmark raises its limit. The CPU time of a grandchild whose parent was never
//!           waited for is missing from our own time and counts as foreign load.
//! Not implemented  contention for caches, memory bandwidth and clock frequency.

use std::collections::{HashMap, HashSet};
use std::fs;

use kiban_os::clock::{Clock, process_cpu_nanos};

/// The error bound of the difference between two readings: two ticks of `/proc/stat`.
pub const GRAIN_NANOS: u64 = 20_000_000;

/// `USER_HZ`, the unit of `/proc`, is 100 on every supported architecture (proc_stat(5)).
const NANOS_PER_TICK: u64 = 10_000_000;

/// One reading of the CPU times. Only differences between readings are meaningful.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// Wall-clock time.
    pub wall_nanos: u64,
    /// Busy time of all CPUs of the machine, including steal.
    pub busy_nanos: u64,
    /// CPU time of this process and its descendants.
    pub own_nanos: u64,
}

/// The CPU time of other processes between two readings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ForeignLoad {
    nanos: u64,
    wall_nanos: u64,
}

impl ForeignLoad {
    /// Computes the foreign CPU time between a reading and a later one.
    pub fn between(start: Reading, end: Reading) -> Self {
        let busy = end.busy_nanos.saturating_sub(start.busy_nanos);
        let own = end.own_nanos.saturating_sub(start.own_nanos);
        Self { nanos: busy.saturating_sub(own), wall_nanos: end.wall_nanos.saturating_sub(start.wall_nanos) }
    }

    /// Returns the foreign load in cores.
    pub fn cores(self) -> f64 {
        if self.wall_nanos == 0 { 0.0 } else { self.nanos as f64 / self.wall_nanos as f64 }
    }

    /// Returns whether the load exceeds `cores_max` by more than the error bound [`GRAIN_NANOS`].
    pub fn exceeds(self, cores_max: f64) -> bool {
        self.nanos as f64 > cores_max * self.wall_nanos as f64 + GRAIN_NANOS as f64
    }
}

/// A source of CPU times: the system, or a test.
pub trait Meter {
    /// Reads the CPU times; returns `None` if they cannot be read.
    fn read(&mut self) -> Option<Reading>;
}

/// Reads CPU times from `/proc`.
#[derive(Clone, Copy, Debug)]
pub struct ProcMeter {
    clock: Clock,
}

impl ProcMeter {
    /// Creates a meter that takes wall time from `clock`.
    pub fn new(clock: Clock) -> Self {
        Self { clock }
    }
}

impl Meter for ProcMeter {
    fn read(&mut self) -> Option<Reading> {
        let below = below_ticks(std::process::id(), &processes()?);
        let busy_ticks = busy_ticks(&fs::read_to_string("/proc/stat").ok()?)?;
        Some(Reading {
            wall_nanos: self.clock.now().as_nanos(),
            busy_nanos: busy_ticks * NANOS_PER_TICK,
            own_nanos: process_cpu_nanos() + below * NANOS_PER_TICK,
        })
    }
}

/// Returns the busy ticks of all CPUs, including steal, from the text of `/proc/stat`.
///
/// `cpu user nice system idle iowait irq softirq steal guest guest_nice`; guest time is part of user time
/// (proc_stat(5)).
fn busy_ticks(stat: &str) -> Option<u64> {
    let all = stat.lines().next()?.strip_prefix("cpu ")?;
    let columns: Vec<u64> = all.split_whitespace().map_while(|column| column.parse().ok()).collect();
    let used = |at: usize| columns.get(at).copied().unwrap_or(0);
    (columns.len() >= 4).then(|| used(0) + used(1) + used(2) + used(5) + used(6) + used(7))
}

/// The CPU times of a process from `/proc/<pid>/stat`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Process {
    pid: u32,
    parent: u32,
    own_ticks: u64,
    waited_ticks: u64,
}

impl Process {
    /// Parses columns 1, 4 and 14 to 17 of proc_pid_stat(5). The name in column 2 may contain spaces and
    /// parentheses, so columns are counted from the last closing parenthesis.
    fn parse(stat: &str) -> Option<Self> {
        let pid = stat.split_whitespace().next()?.parse().ok()?;
        let columns: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |column: usize| columns.get(column - 3)?.parse::<u64>().ok();
        Some(Self {
            pid,
            parent: columns.get(1)?.parse().ok()?,
            own_ticks: ticks(14)? + ticks(15)?,
            waited_ticks: ticks(16)? + ticks(17)?,
        })
    }
}

fn processes() -> Option<Vec<Process>> {
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let numbered = entries.filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit());
    // A process may exit between `read_dir` and the read of its file: skip it.
    Some(
        numbered
            .filter_map(|entry| Process::parse(&fs::read_to_string(entry.path().join("stat")).ok()?))
            .collect(),
    )
}

/// Returns the CPU time of a process and its descendants, which may have ended, in nanoseconds; `None` if
/// there is no such process.
pub fn tree_cpu_nanos(root: u32) -> Option<u64> {
    let processes = processes()?;
    let own = processes.iter().find(|process| process.pid == root)?.own_ticks;
    Some((own + below_ticks(root, &processes)) * NANOS_PER_TICK)
}

/// Returns the ticks of the descendants of `root`: children that it has waited for, and all running ones.
fn below_ticks(root: u32, processes: &[Process]) -> u64 {
    let mut children: HashMap<u32, Vec<&Process>> = HashMap::new();
    for process in processes {
        children.entry(process.parent).or_default().push(process);
    }
    let waited = processes.iter().find(|process| process.pid == root).map_or(0, |root| root.waited_ticks);
    let (mut total, mut open, mut seen) = (waited, vec![root], HashSet::from([root]));
    while let Some(pid) = open.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            // The list is not an atomic snapshot, so a reused pid must not cause an endless loop.
            if seen.insert(child.pid) {
                total += child.own_ticks + child.waited_ticks;
                open.push(child.pid);
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn busy_time_excludes_idle_and_iowait() {
        for (stat, expected) in [
            ("cpu  10 20 30 4000 500 6 7 8 9 10\ncpu0 1 1 1 1\n", Some(10 + 20 + 30 + 6 + 7 + 8)),
            ("cpu  1 2 3 4\n", Some(6)),
            ("cpu  1 2\n", None),
            ("intr 5\n", None),
            ("", None),
        ] {
            assert_eq!(busy_ticks(stat), expected, "{stat:?}");
        }
    }

    #[test]
    fn own_cpu_time_is_not_foreign() {
        let start = Reading { wall_nanos: 0, busy_nanos: 1_000 * MS, own_nanos: 500 * MS };
        let reading = |busy: u64, own: u64| Reading {
            wall_nanos: 300 * MS,
            busy_nanos: (1_000 + busy) * MS,
            own_nanos: (500 + own) * MS,
        };
        for (busy, own, cores, disturbed) in [
            (300, 300, 0.0, false),
            (330, 300, 0.1, false),
            (390, 300, 0.3, false), // beyond 0.25 cores, but within the error bound
            (420, 300, 0.4, true),
            (290, 300, 0.0, false), // /proc/stat is coarser than the process's own CPU clock
            (600, 0, 2.0, true),
        ] {
            let foreign = ForeignLoad::between(start, reading(busy, own));
            assert!((foreign.cores() - cores).abs() < 1e-9, "{busy} {own}: {foreign:?}");
            assert_eq!(foreign.exceeds(0.25), disturbed, "{busy} {own}: {foreign:?}");
        }
        assert_eq!(ForeignLoad::between(start, start).cores(), 0.0);
    }

    #[test]
    fn a_process_name_with_parentheses_is_parsed() {
        let stat = "42 (a) (b c) S 7 42 42 0 -1 4194304 100 0 0 0 11 12 13 14 20 0 1 0 100 0 0";
        let expected = Process { pid: 42, parent: 7, own_ticks: 23, waited_ticks: 27 };
        assert_eq!(Process::parse(stat), Some(expected));
        assert_eq!(Process::parse("42 (cut) S 7"), None);
        assert_eq!(Process::parse(""), None);
    }

    #[test]
    fn all_descendants_count_as_own_and_a_cycle_ends() {
        let process = |pid, parent, own_ticks, waited_ticks| Process { pid, parent, own_ticks, waited_ticks };
        let list = [
            process(1, 0, 1_000, 1_000),
            process(10, 1, 100, 5),
            process(11, 10, 20, 3),
            process(12, 11, 7, 0),
            process(13, 1, 400, 0),
            process(10, 12, 1, 1),
        ];
        assert_eq!(below_ticks(10, &list), 5 + 23 + 7);
        assert_eq!(below_ticks(99, &list), 0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_cpu_times_of_this_machine_can_be_read_and_increase() {
        let mut meter = ProcMeter::new(Clock::new());
        let first = meter.read().expect("Linux has /proc");
        let second = meter.read().expect("Linux has /proc");
        assert!(second.wall_nanos > first.wall_nanos && second.own_nanos > first.own_nanos);
        assert!(second.busy_nanos >= first.busy_nanos);
    }
}
