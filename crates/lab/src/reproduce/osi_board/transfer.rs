//! The contents of the transferred file.

use kiban_base::SimRng;

/// The size of the paper's file in bytes.
pub(super) const FILE_BYTES: usize = 2 << 20;

/// Returns pseudo-random contents of `files` times the paper's file size, the same in every run.
pub(super) fn contents(files: usize) -> Vec<u8> {
    let mut rng = SimRng::from_seed(5);
    (0..files * FILE_BYTES).map(|_| rng.draw() as u8).collect()
}
