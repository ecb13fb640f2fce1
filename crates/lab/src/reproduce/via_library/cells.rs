//! Table 3: packet loss by polling time and receive buffer, over all packet sizes.

use super::host::{Host, KB, MB, Received, descriptors};
use crate::Table;
use kiban_base::Wait;
use kiban_os::lock;
use kiban_sim::waiting::Level;
use serde::Serialize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The result for one packet size of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Size {
    /// The packet size, KB.
    pub packet_kb: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets lost.
    pub lost: u64,
    /// CPU use, percent.
    pub cpu_percent: f64,
    /// How long flow control stopped the sender, in percent of the run.
    pub held_percent: f64,
}

impl Size {
    fn of(packet_kb: u64, received: &Received) -> Size {
        Size {
            packet_kb,
            packets: received.packets,
            lost: received.lost,
            cpu_percent: received.cpu_percent(),
            held_percent: received.held.as_secs_f64() / received.outcome.elapsed.as_secs_f64() * 100.0,
        }
    }

    /// Returns the packet loss, percent.
    pub fn loss_percent(&self) -> f64 {
        self.lost as f64 / self.packets as f64 * 100.0
    }
}

/// A cell: one wait policy, one buffer size, one reliability level.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// The wait policy.
    pub wait: String,
    /// The receive buffer, MB.
    pub buffer_mb: u64,
    /// The results for each packet size, in ascending order.
    pub sizes: Vec<Size>,
}

impl Cell {
    /// Returns the number of packets lost, over all sizes.
    pub fn lost(&self) -> u64 {
        self.sizes.iter().map(|size| size.lost).sum()
    }

    /// Returns the number of packets sent, over all sizes.
    pub fn packets(&self) -> u64 {
        self.sizes.iter().map(|size| size.packets).sum()
    }

    /// Returns the size with the highest loss; `None` if nothing was lost.
    pub fn worst(&self) -> Option<Size> {
        let lossy = self.sizes.iter().filter(|size| size.lost > 0);
        lossy.max_by(|one, other| one.loss_percent().total_cmp(&other.loss_percent())).copied()
    }

    /// Returns the smallest and the largest packet size with loss, KB; `None` if nothing was lost.
    pub fn lossy_kb(&self) -> Option<(u64, u64)> {
        let mut lossy = self.sizes.iter().filter(|size| size.lost > 0).map(|size| size.packet_kb);
        let first = lossy.next()?;
        Some((first, lossy.next_back().unwrap_or(first)))
    }
}

/// The parameters of a cell.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The host.
    pub host: Host,
    /// The wait policy.
    pub wait: Wait,
    /// The reliability level.
    pub level: Level,
    /// The buffer, MB.
    pub buffer_mb: u64,
}

/// Packet sizes in KB and the number of packets of each.
pub(super) type Load = Vec<(u64, u64)>;

/// Returns the smallest size at which a process that polls for `spin` sleeps between two packets. Of all
/// sizes at which it sleeps, this is the one at which most packets arrive during a stall.
pub(super) fn past_cliff(host: &Host, spin: Duration, sizes_kb: &[u64]) -> Option<u64> {
    sizes_kb.iter().copied().find(|&size| host.gap(size * KB) > host.work + spin)
}

/// Computes cells on all processors; calls `done` after every packet size.
pub(super) fn make(plans: &[(Plan, Load)], done: &(dyn Fn() + Sync)) -> Vec<Cell> {
    let tasks = plans.iter().enumerate().flat_map(|(at, (_, load))| load.iter().map(move |size| (at, *size)));
    let mut tasks: Vec<(usize, (u64, u64))> = tasks.collect();
    // Start with the longest tasks, so that all processors finish at about the same time.
    tasks.sort_by_key(|(at, (kb, packets))| (std::cmp::Reverse(*packets), *at, *kb));
    let (next, made) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(&(at, (kb, packets))) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let Plan { host, wait, level, buffer_mb } = &plans[at].0;
            let received = host.receive(*wait, *level, descriptors(buffer_mb * MB), kb * KB, packets);
            lock(&made).push((at, Size::of(kb, &received)));
            done();
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let mut made = made.into_inner().expect("no thread panicked while it held the lock");
    made.sort_by_key(|(at, size)| (*at, size.packet_kb));
    let cell = |(at, (plan, _)): (usize, &(Plan, Load))| Cell {
        wait: plan.wait.to_string(),
        buffer_mb: plan.buffer_mb,
        sizes: made.iter().filter(|(of, _)| *of == at).map(|(_, size)| *size).collect(),
    };
    plans.iter().enumerate().map(cell).collect()
}

/// Formats a percentage, with enough digits for losses of one in ten million.
pub(super) fn percent(value: f64) -> String {
    match value {
        0.0 => "none".to_owned(),
        0.001.. => format!("{value:.3}"),
        _ => format!("{value:.5}"),
    }
}

/// Returns cells as a text table.
pub(super) fn table(title: &str, cells: &[Cell]) -> Table {
    let mut table = Table::new(title)
        .text_column("wait")
        .number_column("buffer MB")
        .number_column("packets")
        .number_column("lost")
        .number_column("most, %")
        .number_column("at KB")
        .number_column("lossy KB")
        .number_column("CPU % at 50 KB")
        .number_column("held %");
    for cell in cells {
        let worst = cell.worst();
        let at_50 = cell.sizes.iter().find(|size| size.packet_kb == 50);
        let held = cell.sizes.iter().map(|size| size.held_percent).fold(0.0, f64::max);
        table.row([
            cell.wait.clone(),
            cell.buffer_mb.to_string(),
            cell.packets().to_string(),
            cell.lost().to_string(),
            worst.map_or("none".to_owned(), |size| percent(size.loss_percent())),
            worst.map_or(String::new(), |size| size.packet_kb.to_string()),
            cell.lossy_kb().map_or(String::new(), |(from, to)| format!("{from}..{to}")),
            at_50.map_or(String::new(), |size| format!("{:.1}", size.cpu_percent)),
            if held > 0.0 { format!("{held:.2}") } else { String::new() },
        ]);
    }
    table
}
