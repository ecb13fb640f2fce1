//! The OSI board measured on this machine in real time: internal loopback between two in-memory filestores,
//! without a modelled processor.
//!
//! Throughput  bytes of the file divided by the time of the whole transfer. Unlike the paper's loopback
//!           figures, it is not doubled. One thread does the work of both ends and of both filestores, each
//!           of which copies every byte once.
//! Repeats   the best of several runs counts, because other load on the machine can only make a run slower.
//! Shares    the time of each task is measured in a separate run, because reading the clock costs time.

use super::transfer::{FILE_BYTES, contents};
use crate::table::Table;
use kiban_os::clock::{Clock, ticks};
use kiban_osi::ftam::filestore::Path;
use kiban_osi::ftam::initiator::{Job, Outcome};
use kiban_osi::stack::meter::Task;
use kiban_osi::wire::ftam::{BinaryParameters, Document};
use kiban_sim::osi::{Boards, Medium, Setup};
use serde::Serialize;

/// The scope of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The size of the file as a multiple of the paper's.
    pub files: usize,
    /// The number of runs, of which the best counts.
    pub repeats: usize,
}

impl Plan {
    /// The default scope.
    pub const FULL: Plan = Plan { files: 16, repeats: 5 };
    /// A short measurement.
    pub const QUICK: Plan = Plan { files: 2, repeats: 3 };
}

/// The result for one pair of F-DATA and TPDU sizes.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Bytes per F-DATA.
    pub fdata_bytes: usize,
    /// The maximum number of bytes per TPDU.
    pub tpdu_bytes: usize,
    /// Bytes of the file.
    pub bytes: usize,
    /// Throughput of the best run, MB/s.
    pub mb_per_second: f64,
    /// The share of the time that each task takes, percent, from the host down.
    pub shares: [f64; Task::ALL.len()],
}

/// Pairs of F-DATA and TPDU sizes: the paper's two pairs, and one that suits today's machines.
const SETTINGS: [(usize, usize); 3] = [(2000, 2048), (8000, 2048), (1 << 18, 65_531)];

/// Measures all pairs of sizes.
pub fn measure(plan: Plan) -> Vec<Measured> {
    let contents = contents(plan.files * FILE_BYTES);
    SETTINGS.map(|(fdata, tpdu)| one(fdata, tpdu, &contents, plan.repeats)).to_vec()
}

fn one(fdata_bytes: usize, tpdu_bytes: usize, contents: &[u8], repeats: usize) -> Measured {
    let setup = Setup { fdata_bytes, tpdu_bytes, ..Setup::new(Medium::Loopback) };
    let best = (0..repeats).map(|_| run(&setup, contents).0).fold(f64::MAX, f64::min);
    let (_, ticks) = run(&Setup { ticks: Some(ticks), ..setup }, contents);
    let all: u64 = ticks.iter().sum();
    Measured {
        fdata_bytes,
        tpdu_bytes,
        bytes: contents.len(),
        mb_per_second: contents.len() as f64 / best / 1e6,
        shares: ticks.map(|ticks| ticks as f64 / all.max(1) as f64 * 100.0),
    }
}

/// Runs one transfer; returns its duration in seconds, and the ticks that each task took at both ends.
pub(super) fn run(setup: &Setup, contents: &[u8]) -> (f64, [u64; Task::ALL.len()]) {
    let mut boards = Boards::new(setup);
    let local = Path::read("file").expect("a name");
    boards.disk(0).put(&local, contents);
    boards.connect().expect("nothing is in the way");
    let document = Document::UnstructuredBinary(BinaryParameters::NONE);
    let clock = Clock::new();
    let outcome = boards.job(Job::Put { local: local.clone(), remote: "file".into(), document });
    let seconds = clock.now().as_secs_f64();
    assert_eq!(outcome, Ok(Outcome::Done));
    assert!(boards.disk(1).contents(&local) == Some(contents), "the file arrives as it was");
    let mut ticks = boards.spent_ticks(0);
    ticks.iter_mut().zip(boards.spent_ticks(1)).for_each(|(one, other)| *one += other);
    (seconds, ticks)
}

/// Returns the results as a text table.
pub fn table(all: &[Measured]) -> Table {
    let heads = Table::new("today: the same wiring in internal loopback, measured on this machine")
        .number_column("F-DATA")
        .number_column("TPDU")
        .number_column("MB/s");
    let mut table =
        Task::ALL.into_iter().fold(heads, |table, task| table.number_column(&format!("{} %", task.name())));
    for one in all {
        let cells =
            [one.fdata_bytes.to_string(), one.tpdu_bytes.to_string(), format!("{:.0}", one.mb_per_second)];
        table.row(cells.into_iter().chain(one.shares.iter().map(|share| format!("{share:.0}"))));
    }
    table.remark(
        "MB/s: the throughput of the file, not doubled. One thread does the work of both ends, including \
        their in-memory disks.",
    );
    table.remark(
        "%: shares of the time, from a separate run. HIF includes the disks, FTAM's users and the driver.",
    );
    table
}
