//! The data that the benchmarks copy and send.

/// Returns bytes that differ from position to position and from seed to seed.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut rng = kiban_base::SimRng::from_seed(seed);
    let mut bytes = vec![0; length];
    bytes.chunks_mut(8).for_each(|word| word.copy_from_slice(&rng.draw().to_ne_bytes()[..word.len()]));
    bytes
}
