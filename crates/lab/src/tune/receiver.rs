//! The receiving process: for each line of input, a cell, opens a NIC, prints its address, receives until the
//! sender disconnects, and prints the result.
//!
//! Each line is one JSON value. The process ends with its input.

use super::plan::{Cell, Link};
use kiban_base::{Region, Wait};
use kiban_os::clock::{Clock, allowed_cpus, pin_thread, thread_cpu_nanos};
use kiban_vi::{DataSegment, MemoryAttributes, Reliability, RequestError, ViAttributes};
use kiban_vi_runtime::{Device, Failure, Nic};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The endpoint at which the receiver listens.
pub(super) const ENDPOINT: &[u8] = b"kiban tune";
/// Pieces of memory that the descriptors share.
pub const SLOTS: u64 = 64;
/// How long to wait for the sender.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The result of one cell at the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Received {
    /// Messages received.
    pub messages: u64,
    /// CPU time of the receiving thread, nanoseconds, from the first message to the last.
    pub cpu_nanos: u64,
    /// CPU time of the computing thread during the same time, nanoseconds.
    pub computed_nanos: u64,
    /// The time from the first message to the last, nanoseconds.
    pub nanos: u64,
}

/// Serves cells until the input ends.
///
/// # Errors
/// A line is not a cell, or a NIC cannot be opened or is not connected to in time.
pub fn serve(input: impl BufRead, mut output: impl Write) -> Result<(), String> {
    if let Some(&cpu) = allowed_cpus().unwrap_or_default().first() {
        // Without pinning, the results are less exact.
        let _ = pin_thread(cpu);
    }
    for line in input.lines() {
        let line = line.map_err(|error| error.to_string())?;
        let cell: Cell = serde_json::from_str(&line).map_err(|error| error.to_string())?;
        let received = receive(&cell, &mut |address| write_line(&mut output, &address))?;
        write_line(&mut output, &received)?;
    }
    Ok(())
}

fn write_line(output: &mut impl Write, value: &impl Serialize) -> Result<(), String> {
    let text = serde_json::to_string(value).map_err(|error| error.to_string())?;
    writeln!(output, "{text}").and_then(|()| output.flush()).map_err(|error| error.to_string())
}

/// Returns the device of one end.
pub(super) fn device(link: Link) -> Device {
    match link {
        Link::Shm => Device::Shm(None),
        Link::Udp => Device::Udp(([127, 0, 0, 1], 0).into()),
    }
}

/// A NIC with one VI and registered memory.
pub(super) struct End {
    pub(super) nic: Nic,
    pub(super) vi: u32,
    handle: u32,
    bytes: u32,
}

impl End {
    pub(super) fn open(cell: &Cell) -> Result<End, String> {
        let nic = Nic::open(&device(cell.link)).map_err(|error| error.to_string())?;
        let text = |error: RequestError| error.to_string();
        let tag = nic.create_tag().map_err(text)?;
        let attributes = MemoryAttributes { tag, rdma_write: false, rdma_read: false };
        let memory = Region::new(0, cell.bytes as usize * SLOTS as usize);
        let handle = nic.register(memory, attributes).map_err(text)?;
        let vi = nic.create_vi(
            ViAttributes {
                reliability: Reliability::Unreliable,
                transfer_bytes_max: cell.bytes,
                qos: 0,
                tag,
                rdma_write: false,
                rdma_read: false,
            },
            None,
            None,
        );
        Ok(End { vi: vi.map_err(text)?, nic, handle, bytes: cell.bytes })
    }

    pub(super) fn slot(&self, number: u64) -> [DataSegment; 1] {
        let address = number % SLOTS * u64::from(self.bytes);
        [DataSegment { address, handle: self.handle, length: self.bytes }]
    }

    fn post(&self, number: u64) -> Result<(), String> {
        let posted = self.nic.post_receive(self.vi, number, &self.slot(number));
        posted.map_err(|error| error.to_string())
    }
}

/// The computing workload: a thread that computes from the first message to the end of the cell.
struct Workload {
    runs: AtomicBool,
    /// The thread's CPU time so far, nanoseconds.
    nanos: AtomicU64,
}

impl Workload {
    fn compute(&self) {
        // A real workload is limited by arithmetic or memory; this one only uses the processor.
        let mut value = 1u64;
        while self.runs.load(Ordering::Relaxed) {
            for _ in 0..4096 {
                value = std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
            }
            self.nanos.store(thread_cpu_nanos(), Ordering::Relaxed);
        }
    }
}

fn receive(cell: &Cell, tell: &mut dyn FnMut(String) -> Result<(), String>) -> Result<Received, String> {
    let wait: Wait = cell.wait.parse().map_err(|error: kiban_base::NoSuchWait| error.to_string())?;
    let end = End::open(cell)?;
    end.nic.set_wait(wait);
    (0..u64::from(cell.descriptors)).try_for_each(|number| end.post(number))?;
    end.nic.listen(ENDPOINT).map_err(|error| error.to_string())?;
    tell(end.nic.address().to_string())?;
    let request = end.nic.connect_wait(ENDPOINT, PATIENCE).map_err(|error| error.to_string())?;
    end.nic.accept(&request, end.vi).map_err(|error| error.to_string())?;
    let load = Workload { runs: AtomicBool::new(true), nanos: AtomicU64::new(0) };
    std::thread::scope(|threads| {
        // The new thread inherits this thread's processor.
        let computing = cell.workload.then(|| threads.spawn(|| load.compute()));
        let received = receive_all(&end, &load);
        load.runs.store(false, Ordering::Relaxed);
        if let Some(computing) = computing {
            computing.join().map_err(|_| "the computing thread panicked".to_owned())?;
        }
        received
    })
}

/// Receives until the sender disconnects.
fn receive_all(end: &End, load: &Workload) -> Result<Received, String> {
    let clock = Clock::new();
    let read = || [clock.now().as_nanos(), thread_cpu_nanos(), load.nanos.load(Ordering::Relaxed)];
    let (mut first, mut last, mut messages) = (None, [0; 3], 0);
    loop {
        match end.nic.receive_wait(end.vi, PATIENCE) {
            Ok(done) if done.status.is_ok() => end.post(done.cookie)?,
            // The connection has ended, and the remaining descriptors are flushed.
            Ok(_) | Err(Failure::Timeout) => break,
            Err(failure) => return Err(failure.to_string()),
        }
        messages += 1;
        last = read();
        first.get_or_insert(last);
    }
    let [nanos, cpu_nanos, computed_nanos] = match first {
        Some(first) => [0, 1, 2].map(|at: usize| last[at].saturating_sub(first[at])),
        None => [0; 3],
    };
    Ok(Received { messages, cpu_nanos, computed_nanos, nanos })
}
