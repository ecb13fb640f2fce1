//! Tables 1 and 2 of the paper measured on this machine: polling and interrupts, with packets close together
//! and far apart.
//!
//! Set-up    two threads of this process with one VI NIC each, connected by shared memory, unreliable
//!           delivery; each thread is pinned to a processor of its own, if there are two. The receiver keeps
//!           64 descriptors posted.
//! Speed     latency, from just before the send is posted until the receiver has the message, and messages
//!           per second.
//! CPU       CPU time of the receiving thread divided by wall time. The sender's cost of wake-ups is not
//!           included.
//! Loss      messages that found no descriptor. With shared memory, the receiving NIC runs in the receiving
//!           process. If this process is stalled, messages wait in the ring and then at the sender, and are
//!           not lost.
//! Foreign load  CPU use by other processes, which increases latency and reduces the CPU use of a polling
//!               receiver.
//! Limits    this is a measurement, not a test: nothing is asserted, and the environment is printed with it.

use crate::Table;
use crate::environment::Environment;
use crate::load::{ForeignLoad, Meter, ProcMeter};
use kiban_base::{Region, Wait};
use kiban_os::clock::{Clock, allowed_cpus, pin_thread, thread_cpu_nanos};
use kiban_vi::{DataSegment, MemoryAttributes, Reliability, RequestError, ViAttributes, Work};
use kiban_vi_runtime::{Address, Device, Nic};
use serde::Serialize;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

const DESCRIPTORS: u64 = 64;
const MESSAGE_BYTES: u32 = 1024;
const PATIENCE: Duration = Duration::from_secs(10);
/// If nothing arrives for this time, the sender has finished.
const SILENCE: Duration = Duration::from_millis(200);

/// The intervals between messages: one for messages close together, one for messages far apart.
const GAPS: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(2)];

/// One row of the tables.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The wait policy of the receiver.
    pub wait: String,
    /// The interval between two messages, microseconds.
    pub gap_us: f64,
    /// Messages sent.
    pub sent: u64,
    /// Messages lost.
    pub lost: u64,
    /// Messages received per second.
    pub per_second: f64,
    /// Median latency, microseconds.
    pub p50_us: f64,
    /// 99th percentile of the latency, microseconds.
    pub p99_us: f64,
    /// CPU use of the receiving thread, percent.
    pub cpu_percent: f64,
    /// Foreign load in cores; `None` if it cannot be read. A row with more than about 0.1 is unreliable.
    pub foreign_cores: Option<f64>,
}

/// All rows and their environment.
#[derive(Clone, Debug, Serialize)]
pub struct Tables {
    /// The machine.
    pub environment: Environment,
    /// Whether each end had a processor of its own.
    pub apart: bool,
    /// Tables 1 and 2.
    pub rows: Vec<Measured>,
}

/// Measures all rows, each for `length`.
///
/// # Errors
/// Shared memory or a thread cannot be created.
pub fn measure(length: Duration) -> Result<Tables, String> {
    let cpus = allowed_cpus().unwrap_or_default();
    let mut rows = Vec::new();
    for gap in GAPS {
        let hybrid = Wait::Hybrid { spin: Duration::from_micros(100) };
        for wait in [Wait::Poll, Wait::Interrupt, hybrid, Wait::Adaptive] {
            let mut meter = ProcMeter::new(Clock::new());
            let before = meter.read();
            let measured = one(wait, gap, length, &cpus)?;
            let foreign_cores =
                before.zip(meter.read()).map(|(start, end)| ForeignLoad::between(start, end).cores());
            rows.push(Measured { foreign_cores, ..measured });
        }
    }
    Ok(Tables { environment: Environment::read(), apart: cpus.len() > 1, rows })
}

struct End {
    nic: Nic,
    handle: u32,
    vi: u32,
}

impl End {
    fn open(name: Option<String>) -> Result<End, String> {
        let nic = Nic::open(&Device::Shm(name)).map_err(|error| error.to_string())?;
        let say = |error: RequestError| error.to_string();
        let tag = nic.create_tag().map_err(say)?;
        let memory = MemoryAttributes { tag, rdma_write: false, rdma_read: false };
        let bytes = DESCRIPTORS as usize * MESSAGE_BYTES as usize;
        let handle = nic.register(Region::new(0, bytes), memory).map_err(say)?;
        let attributes = ViAttributes {
            reliability: Reliability::Unreliable,
            transfer_bytes_max: MESSAGE_BYTES,
            qos: 0,
            tag,
            rdma_write: false,
            rdma_read: false,
        };
        let vi = nic.create_vi(attributes, None, None).map_err(say)?;
        Ok(End { nic, handle, vi })
    }

    fn slot(&self, number: u64) -> [DataSegment; 1] {
        let address = number % DESCRIPTORS * u64::from(MESSAGE_BYTES);
        [DataSegment { address, handle: self.handle, length: MESSAGE_BYTES }]
    }
}

fn pin(cpus: &[usize], place: usize) {
    // Pinning is optional: without it, or with one processor, the results are less exact.
    if let Some(&cpu) = cpus.get(place) {
        let _ = pin_thread(cpu);
    }
}

fn one(wait: Wait, gap: Duration, length: Duration, cpus: &[usize]) -> Result<Measured, String> {
    let clock = Clock::new();
    let count = (length.as_nanos() / gap.as_nanos()).max(1) as u64;
    let sent_at: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
    let sent_at = &sent_at;
    let (tell, address) = mpsc::channel();
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || -> Result<Measured, String> {
            pin(cpus, 0);
            let end =
                End::open(Some(format!("reproduce-{}-{}", std::process::id(), clock.now().as_nanos())))?;
            end.nic.set_wait(wait);
            let post = |number| end.nic.post_receive(end.vi, number, &end.slot(number));
            (0..DESCRIPTORS).try_for_each(post).map_err(|error| error.to_string())?;
            end.nic.listen(b"measure").map_err(|error| error.to_string())?;
            tell.send(end.nic.address()).map_err(|error| error.to_string())?;
            let request = end.nic.connect_wait(b"measure", PATIENCE).map_err(|error| error.to_string())?;
            end.nic.accept(&request, end.vi).map_err(|error| error.to_string())?;
            let mut latencies: Vec<u64> = Vec::with_capacity(count as usize);
            let (mut first, mut last) = (None, (0, 0));
            loop {
                let patience = if first.is_none() { PATIENCE } else { SILENCE + 2 * gap };
                let Ok(done) = end.nic.receive_wait(end.vi, patience) else { break };
                if !done.status.is_ok() {
                    break;
                }
                let now = clock.now().as_nanos();
                let number = done.immediate.unwrap_or_default() as usize;
                let sent = sent_at.get(number).map_or(now, |sent| sent.load(Ordering::Acquire));
                latencies.push(now.saturating_sub(sent));
                post(done.cookie).map_err(|error| error.to_string())?;
                // The interval begins with the first message, so the connection set-up is not measured.
                last = (now, thread_cpu_nanos());
                first.get_or_insert(last);
                if number as u64 + 1 == count {
                    break;
                }
            }
            let first = first.ok_or("no message arrived")?;
            let wall = (last.0 - first.0).max(1) as f64;
            latencies.sort_unstable();
            let quantile = |part: f64| {
                let at = ((latencies.len() - 1) as f64 * part) as usize;
                latencies[at] as f64 / 1e3
            };
            Ok(Measured {
                wait: wait.to_string(),
                gap_us: gap.as_secs_f64() * 1e6,
                sent: count,
                lost: count - latencies.len() as u64,
                per_second: latencies.len() as f64 / wall * 1e9,
                p50_us: quantile(0.5),
                p99_us: quantile(0.99),
                cpu_percent: (last.1 - first.1) as f64 / wall * 100.0,
                foreign_cores: None,
            })
        });
        let sender = scope.spawn(move || -> Result<(), String> {
            pin(cpus, 1);
            let Ok(host) = address.recv() else { return Ok(()) };
            let end = End::open(None)?;
            let remote = Address { host, discriminator: b"measure".to_vec() };
            end.nic.connect(end.vi, b"sender", &remote, PATIENCE).map_err(|error| error.to_string())?;
            let start = clock.now();
            for number in 0..count {
                let due = start + gap * number as u32;
                while clock.now() < due {
                    std::hint::spin_loop();
                }
                sent_at[number as usize].store(clock.now().as_nanos(), Ordering::Release);
                let slot = end.slot(number);
                let post =
                    || end.nic.post_send(end.vi, Work::send(number, &slot).with_immediate(number as u32));
                let mut posted = post();
                while posted == Err(RequestError::TooMany) {
                    // If the receiver does not get its processor, the queue stays full; the waiting time
                    // counts as latency.
                    end.nic.send_wait(end.vi, PATIENCE).map_err(|error| error.to_string())?;
                    posted = post();
                }
                posted.map_err(|error| error.to_string())?;
                while let Ok(Some(_)) = end.nic.send_done(end.vi) {}
            }
            // Let outstanding messages arrive before the connection is closed.
            let _ = end.nic.receive_wait(end.vi, SILENCE);
            Ok(())
        });
        let sent = sender.join().map_err(|_| "the sender panicked".to_owned())?;
        let received = receiver.join().map_err(|_| "the receiver panicked".to_owned())?;
        sent.and(received)
    })
}

impl Tables {
    /// Returns tables 1 and 2.
    pub fn tables(&self) -> [Table; 2] {
        let of = |title: &str, far: bool, said: [&str; 2]| {
            let mut table = Table::new(title)
                .text_column("receiver")
                .number_column("gap us")
                .number_column("p50 us")
                .number_column("p99 us")
                .number_column("messages/s")
                .number_column("lost %")
                .number_column("CPU %")
                .number_column("others")
                .text_column("paper: speed, loss, CPU");
            for row in self.rows.iter().filter(|row| (row.gap_us > 100.0) == far) {
                table.row([
                    row.wait.clone(),
                    format!("{:.0}", row.gap_us),
                    format!("{:.1}", row.p50_us),
                    format!("{:.1}", row.p99_us),
                    format!("{:.0}", row.per_second),
                    format!("{:.3}", row.lost as f64 / row.sent as f64 * 100.0),
                    format!("{:.1}", row.cpu_percent),
                    row.foreign_cores.map_or("?".to_owned(), |cores| format!("{cores:.2}")),
                    match row.wait.as_str() {
                        "poll" => said[0].to_owned(),
                        "interrupt" => said[1].to_owned(),
                        _ => String::new(),
                    },
                ]);
            }
            table
        };
        let short = of("table 1: packets close together", false, ["high, none, high", "low, some, high"]);
        let mut long = of("table 2: packets far apart", true, ["high, none, high", "high, none, low"]);
        long.remark(
            "Measured in real time: VI through shared memory, unreliable delivery, 64 descriptors of 1 KiB.",
        );
        long.remark(
            "others: CPU cores used by other processes. A row with more than about 0.1 is unreliable.",
        );
        if !self.apart {
            long.remark(
                "Both ends share ONE PROCESSOR, so a polling receiver keeps the sender from running.",
            );
        }
        long.remark(self.environment.line());
        [short, long]
    }
}

impl fmt::Display for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [short, long] = self.tables();
        write!(f, "{short}\n{long}")
    }
}
