//! The file that every run transfers.

use kiban_base::SimRng;

/// Bytes of the paper's file.
pub(super) const FILE_BYTES: usize = 2 << 20;

/// Makes the contents of the paper's file so many times over: the same in every run.
pub(super) fn contents(files: usize) -> Vec<u8> {
    let mut rng = SimRng::from_seed(5);
    (0..files * FILE_BYTES).map(|_| rng.draw() as u8).collect()
}
