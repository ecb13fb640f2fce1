//! The paper's transfer of a file from the initiator to the responder, in virtual time.

use kiban_base::SimRng;
use kiban_osi::ftam::filestore::Path;
use kiban_osi::ftam::initiator::{Job, Outcome};
use kiban_osi::wire::ftam::{BinaryParameters, Document};
use kiban_osi::wire::lapb;
use kiban_sim::osi::{Boards, Setup};
use std::time::Duration;

/// The size of the paper's file in bytes.
pub const FILE_BYTES: usize = 2 << 20;

/// Returns pseudo-random contents, the same in every run.
pub(super) fn contents(bytes: usize) -> Vec<u8> {
    let mut rng = SimRng::from_seed(5);
    (0..bytes).map(|_| rng.draw() as u8).collect()
}

/// A transfer that has ended.
pub struct Run {
    /// The boards, with what their tasks have spent.
    pub boards: Boards,
    /// How long the transfer took.
    pub took: Duration,
    /// Bits that the sender's line carried during the transfer.
    pub bits: u64,
}

/// Returns the bits that the first board's line has carried: frames, flags and inserted zeros.
fn carried(boards: &Boards) -> u64 {
    boards
        .line(0)
        .map(|line| line.counters())
        .map_or(0, |line| line.bytes * 8 + line.frames * lapb::line_bits(0) as u64 + line.stuffed_bits)
}

/// Transfers a file of `bytes` bytes.
pub fn run(setup: &Setup, bytes: usize) -> Run {
    let mut boards = Boards::new(setup);
    let contents = contents(bytes);
    let (local, remote) = (Path::read("file").expect("a name"), "file");
    boards.disk(0).put(&local, &contents);
    boards.connect().expect("nothing is in the way");
    let (begun, before) = (boards.now(), carried(&boards));
    let document = Document::UnstructuredBinary(BinaryParameters::NONE);
    let job = Job::Put { local: local.clone(), remote: remote.into(), document };
    assert_eq!(boards.job(job), Ok(Outcome::Done));
    assert!(boards.disk(1).contents(&local) == Some(&contents[..]), "the file arrives as it was");
    let took = boards.now().since(begun);
    Run { bits: carried(&boards) - before, boards, took }
}

/// Returns the throughput of a transfer as the paper defines it, Mbit/s: it is doubled in loopback, where one
/// processor does the work of both ends.
pub(crate) fn mbps(loops: bool, bytes: usize, took: Duration) -> f64 {
    let factor = if loops { 2.0 } else { 1.0 };
    factor * bytes as f64 * 8.0 / took.as_secs_f64() / 1e6
}
