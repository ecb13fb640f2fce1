//! Copying with the Internet checksum compared with plain copying.
//!
//! Claim     the checksum is computed while bytes are copied (paper \[1\]: during the DMA), so it must cost
//!           little more than copying.
//! Sides     [`copy_and_sum`] and `copy_from_slice` (the C library's memcpy), over the same buffers.
//! Fair      on both sides, source and target begin on a page boundary. Consecutive blocks cover a working
//!           set, half of which is source and half target. A sample lasts hundreds of milliseconds, so every
//!           block is touched many times.
//! Sets      256 KiB fit in a second-level cache. 8 MiB fit only in the third-level cache, where memory
//!           latency hides more of the additions.
//! Left out  main memory, because packets never reach it if their pages are reused quickly.

use kiban_base::copy_and_sum;
use kiban_lab::{Bench, Options, Target, Trial, Unit};
use std::cell::RefCell;
use std::hint::black_box;
use std::ops::Range;

const PAGE_BYTES: usize = 4096;
const BLOCKS_BYTES: [usize; 4] = [8 << 10, 16 << 10, 32 << 10, 64 << 10];

/// Half of a working set: bytes that begin on a page boundary.
struct Half {
    bytes: Vec<u8>,
    aligned: Range<usize>,
}

impl Half {
    fn new(length: usize) -> Half {
        let bytes = crate::noise::noise(length as u64, length + PAGE_BYTES);
        let start = bytes.as_ptr().align_offset(PAGE_BYTES);
        let half = Half { bytes, aligned: start..start + length };
        assert!(half.bytes[half.aligned.clone()].as_ptr().addr().is_multiple_of(PAGE_BYTES));
        half
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[self.aligned.clone()]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.aligned.clone()]
    }
}

/// Copies the whole source to the target, block by block, until the sample is over; returns GB/s.
fn sample(
    trial: &mut Trial,
    halves: &RefCell<[Half; 2]>,
    block_bytes: usize,
    mut copy: impl FnMut(&mut [u8], &[u8]),
) -> f64 {
    let [source, target] = &mut *halves.borrow_mut();
    let (source, target) = (source.bytes(), target.bytes_mut());
    let span = trial.measure(|| {
        for (from, to) in source.chunks_exact(block_bytes).zip(target.chunks_exact_mut(block_bytes)) {
            copy(black_box(to), black_box(from));
        }
        source.len() as f64
    });
    span.per_second() / 1e9
}

pub(crate) fn run(options: &Options) {
    let mut bench = Bench::new("sum", options.clone());
    for (cache, set_bytes, ratio) in [("L2", 256 << 10, 0.7), ("L3", 8 << 20, 0.9)] {
        let halves = RefCell::new([Half::new(set_bytes / 2), Half::new(set_bytes / 2)]);
        for block_bytes in BLOCKS_BYTES {
            let title = format!(
                "blocks of {} KiB in {} KiB ({cache}), page-aligned",
                block_bytes >> 10,
                set_bytes >> 10
            );
            let fused = |trial: &mut Trial| {
                sample(trial, &halves, block_bytes, |to, from| {
                    black_box(copy_and_sum(to, from));
                })
            };
            let plain =
                |trial: &mut Trial| sample(trial, &halves, block_bytes, |to, from| to.copy_from_slice(from));
            bench.compare(
                &title,
                Unit::GbytePerSecond,
                ("copy and sum", fused),
                ("memcpy", plain),
                Target::ratio_at_least(ratio),
            );
        }
    }
    bench.finish();
}
