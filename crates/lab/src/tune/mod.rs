//! Choosing the wait policy and the receive buffer of a VI on this machine, as paper \[4\] does: by measuring
//! loss and CPU use.
//!
//! Set-up    a sender in this process and a receiver in another one ([`receiver`]), each pinned to a
//!           processor of its own if there are two. A computing workload shares the receiver's processor
//!           (§2.1: reception and processing in parallel on one computer).
//! Loss      unreliable delivery over shared memory and over UDP through the loopback: what arrives while no
//!           descriptor is free, or while the socket's buffer is full, is lost.
//! Load      62.5 MB/s, as in the model of the paper's host, but at most one message every 100 us: evenly
//!           spaced (paced), or in bursts of [`plan::BURST`] back to back (§4.3: バースト転送).
//! CPU       the receiving thread's CPU time, and the sending thread's CPU time for posting, apart. The
//!           sender spins between messages; that time is not counted.
//! Choice    [`report::Tune::recommended`]: of the settings that lose least, the one with the lowest CPU use
//!           of the receiver at the paper's 50 KB.
//! Limits    descriptors share [`receiver::SLOTS`] pieces of memory, because the contents are not examined.
//!           The result is that of this machine at this time: other load is reported with it.

pub mod plan;
pub mod receiver;
pub mod report;
mod sender;

pub use plan::Plan;
pub use report::Tune;

use crate::environment::Environment;
use crate::load::{ForeignLoad, Meter, ProcMeter};
use kiban_os::clock::{Clock, allowed_cpus};
use std::process::Command;

/// Measures all cells of a plan. `receiver` starts a process that calls [`receiver::serve`] with its standard
/// input and output; `done` is called after each cell.
///
/// # Errors
/// The receiving process cannot be started or ends early, or a NIC cannot be opened.
pub fn measure(plan: &Plan, receiver: Command, done: &mut dyn FnMut()) -> Result<Tune, String> {
    let cpus = allowed_cpus().unwrap_or_default();
    let mut remote = sender::Remote::start(receiver)?;
    let mut meter = ProcMeter::new(Clock::new());
    let before = meter.read();
    let mut cells = Vec::new();
    for cell in plan.cells() {
        cells.push(remote.measure(&cell, &cpus)?);
        done();
    }
    let foreign_cores = before.zip(meter.read()).map(|(start, end)| ForeignLoad::between(start, end).cores());
    Ok(Tune {
        environment: Environment::read(),
        apart: cpus.len() > 1,
        workload: plan.workload,
        foreign_cores,
        recommended: report::recommend(&cells),
        cells,
    })
}
