//! The one's-complement sum of the Internet protocols (RFC 1071).
//!
//! Purpose   compute the sum while bytes are copied, and never read them a second time.
//! Value     a [`Sum`] is the folded 16-bit one's-complement sum of a run of bytes, taken as big-endian
//!           words; an odd last byte is padded with zero. Sums of adjacent runs combine if the parity of the
//!           preceding length is known (RFC 1071 §2: the sum of a run at an odd offset has its bytes
//!           swapped).
//! Speed     one loop over 64-bit words copies and adds. AVX2 and AVX-512 versions are chosen at run time.
//!           The machine's byte order does not matter until the end (RFC 1071 §2(B)).

/// The one's-complement sum of a run of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Hash)]
pub struct Sum(u16);

impl Sum {
    /// The sum of no bytes.
    pub const ZERO: Sum = Sum(0);

    /// Creates a sum from its folded value, given as a big-endian word.
    pub const fn from_word(word: u16) -> Sum {
        Sum(word)
    }

    /// Creates a sum from bytes added as words of any width in machine order (RFC 1071 §2(B)).
    #[inline]
    pub const fn of_native(wide: u64) -> Sum {
        fold_native(wide)
    }

    /// Computes the sum of `bytes` in one read.
    #[inline]
    pub fn of(bytes: &[u8]) -> Sum {
        fold_native(lanes::sum(bytes))
    }

    /// Returns the folded value as a big-endian word, not complemented.
    pub const fn word(self) -> u16 {
        self.0
    }

    /// Returns the value to store in a checksum field: the complement (RFC 1071 §1).
    pub const fn checksum(self) -> u16 {
        !self.0
    }

    /// Returns whether a run *including its checksum field* is intact: the sum is all ones (RFC 1071 §1).
    pub const fn is_intact(self) -> bool {
        self.0 == 0xffff
    }

    /// Adds the sums of two runs that both start at an even offset.
    pub const fn plus(self, other: Sum) -> Sum {
        let wide = self.0 as u32 + other.0 as u32;
        Sum((wide as u16).wrapping_add((wide >> 16) as u16))
    }

    /// Subtracts the sum of a run at an even offset.
    pub const fn minus(self, other: Sum) -> Sum {
        self.plus(Sum(!other.0))
    }

    /// Returns the sum of the same run at `offset`: byte-swapped if the offset is odd.
    pub const fn at(self, offset: usize) -> Sum {
        if offset & 1 == 1 { Sum(self.0.swap_bytes()) } else { self }
    }

    /// Returns the sum of a run of `length` bytes (`self`) directly followed by `next`.
    pub const fn then(self, length: usize, next: Sum) -> Sum {
        self.plus(next.at(length))
    }
}

/// Copies `source` into `target` and returns the sum of the bytes, reading and writing each byte once.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn copy_and_sum(target: &mut [u8], source: &[u8]) -> Sum {
    assert_eq!(target.len(), source.len(), "a fused copy moves equal lengths");
    // SAFETY: the source is a slice of the target's length.
    unsafe { copy_and_sum_from(target, source.as_ptr()) }
}

/// Like [`copy_and_sum`], from memory that others may write to concurrently: each byte is read once, so the
/// sum matches the bytes written.
///
/// # Safety
/// `target.len()` bytes must be readable at `source`.
#[inline]
pub(crate) unsafe fn copy_and_sum_from(target: &mut [u8], source: *const u8) -> Sum {
    // SAFETY: the caller guarantees that the source is readable.
    fold_native(unsafe { lanes::copy(target, source) })
}

/// Folds a native-order accumulator into a big-endian word.
#[inline]
const fn fold_native(mut wide: u64) -> Sum {
    wide = (wide & 0xffff_ffff) + (wide >> 32);
    // The sum has at most 33 bits, then 18, then 17, with room for the last carry.
    wide = (wide & 0xffff) + (wide >> 16 & 0xffff) + (wide >> 32);
    wide = (wide & 0xffff) + (wide >> 16);
    wide += wide >> 16;
    Sum(u16::from_be(wide as u16))
}

/// The loops. Each returns the unfolded sum of the bytes as native 16-bit words.
mod lanes {
    /// Runs of up to this length use the portable loop, because dispatching would cost more than it saves.
    const SHORT_BYTES: usize = 96;

    #[inline]
    pub(super) fn sum(bytes: &[u8]) -> u64 {
        #[cfg(all(target_arch = "x86_64", not(target_os = "none")))]
        if bytes.len() > SHORT_BYTES {
            return x86::sum(bytes);
        }
        portable_sum(bytes)
    }

    /// # Safety
    /// `target.len()` bytes must be readable at `source`. This applies to all copying functions here.
    #[inline]
    pub(super) unsafe fn copy(target: &mut [u8], source: *const u8) -> u64 {
        #[cfg(all(target_arch = "x86_64", not(target_os = "none")))]
        if target.len() > SHORT_BYTES {
            // SAFETY: the caller guarantees that the source is readable.
            return unsafe { x86::copy(target, source) };
        }
        // SAFETY: the caller guarantees that the source is readable.
        unsafe { portable_copy(target, source) }
    }

    #[inline(always)]
    fn add(total: u64, word: u64) -> u64 {
        total + (word & 0xffff_ffff) + (word >> 32)
    }

    /// Pads an odd tail of fewer than eight bytes with zeros to a native word.
    #[inline(always)]
    fn tail(bytes: &[u8]) -> u64 {
        let mut word = [0u8; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_ne_bytes(word)
    }

    #[inline(always)]
    fn portable_sum(bytes: &[u8]) -> u64 {
        let (words, rest) = bytes.as_chunks::<8>();
        let total = words.iter().fold(0, |total, word| add(total, u64::from_ne_bytes(*word)));
        add(total, tail(rest))
    }

    #[inline(always)]
    unsafe fn portable_copy(target: &mut [u8], source: *const u8) -> u64 {
        let (places, rest) = target.as_chunks_mut::<8>();
        let done = places.len() * 8;
        let mut total = 0;
        for (at, place) in places.iter_mut().enumerate() {
            // SAFETY: the caller guarantees that as many words are readable as the target has.
            *place = unsafe { source.add(at * 8).cast::<[u8; 8]>().read() };
            total = add(total, u64::from_ne_bytes(*place));
        }
        // SAFETY: the remaining source is as long as the remaining target.
        unsafe { core::ptr::copy(source.add(done), rest.as_mut_ptr(), rest.len()) };
        add(total, tail(rest))
    }

    #[cfg(all(target_arch = "x86_64", not(target_os = "none")))]
    mod x86 {
        use core::arch::x86_64::*;

        // CPU feature detection needs no system call, but the macro exists only in std.
        extern crate std;
        use core::sync::atomic::{AtomicU8, Ordering};
        use std::arch::is_x86_feature_detected as has;

        const UNKNOWN: u8 = 0;
        const PORTABLE: u8 = 1;
        const AVX2: u8 = 2;
        const VNNI: u8 = 3;

        /// Returns the feature level of this processor, detected once.
        #[inline(always)]
        fn level() -> u8 {
            static LEVEL: AtomicU8 = AtomicU8::new(UNKNOWN);
            match LEVEL.load(Ordering::Relaxed) {
                UNKNOWN => {
                    let level = if has!("avx512f") && has!("avx512bw") && has!("avx512vnni") {
                        VNNI
                    } else if has!("avx2") {
                        AVX2
                    } else {
                        PORTABLE
                    };
                    LEVEL.store(level, Ordering::Relaxed);
                    level
                }
                known => known,
            }
        }

        #[inline]
        pub(super) fn sum(bytes: &[u8]) -> u64 {
            match level() {
                // SAFETY: `level` returns `VNNI` only on a processor with the AVX-512 features that it needs.
                VNNI => unsafe { sum_vnni(bytes) },
                // SAFETY: `level` returns `AVX2` only on a processor with AVX2.
                AVX2 => unsafe { sum_avx2(bytes) },
                _ => super::portable_sum(bytes),
            }
        }

        #[inline]
        pub(super) unsafe fn copy(target: &mut [u8], source: *const u8) -> u64 {
            // SAFETY: `level` detected the features that each function was compiled for; the caller
            // guarantees that the source is readable.
            unsafe {
                match level() {
                    VNNI => copy_vnni(target, source),
                    AVX2 => copy_avx2(target, source),
                    _ => super::portable_copy(target, source),
                }
            }
        }

        /// The portable code compiled for AVX2, which the compiler vectorises.
        #[target_feature(enable = "avx2")]
        fn sum_avx2(bytes: &[u8]) -> u64 {
            super::portable_sum(bytes)
        }

        #[target_feature(enable = "avx2")]
        unsafe fn copy_avx2(target: &mut [u8], source: *const u8) -> u64 {
            // SAFETY: the caller guarantees that the source is readable.
            unsafe { super::portable_copy(target, source) }
        }

        /// Sums even and odd bytes separately with the dot-product instruction: two operations per 64 bytes.
        /// A 32-bit lane grows by at most 2 × 255 per step, so it stays below 2^31 for `STEPS_MAX` steps.
        struct Pair {
            even: __m512i,
            odd: __m512i,
        }

        const STEPS_MAX: usize = 1 << 20;

        impl Pair {
            #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
            fn new() -> Pair {
                Pair { even: _mm512_setzero_si512(), odd: _mm512_setzero_si512() }
            }

            #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
            fn add(&mut self, block: __m512i) {
                self.even = _mm512_dpbusd_epi32(self.even, block, _mm512_set1_epi16(0x0001));
                self.odd = _mm512_dpbusd_epi32(self.odd, block, _mm512_set1_epi16(0x0100));
            }

            #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
            fn total(self) -> u64 {
                let wide = |lanes: __m512i| {
                    let low = _mm512_cvtepu32_epi64(_mm512_castsi512_si256(lanes));
                    let high = _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64::<1>(lanes));
                    _mm512_reduce_add_epi64(_mm512_add_epi64(low, high)) as u64
                };
                wide(self.even) + (wide(self.odd) << 8)
            }
        }

        #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
        fn sum_vnni(bytes: &[u8]) -> u64 {
            let mut total = 0u64;
            let (blocks, rest) = bytes.as_chunks::<64>();
            for run in blocks.chunks(STEPS_MAX) {
                let (mut first, mut second) = (Pair::new(), Pair::new());
                let (pairs, single) = run.as_chunks::<2>();
                for [a, b] in pairs {
                    // SAFETY: an unaligned load of 64 bytes from an array of 64 bytes.
                    unsafe {
                        first.add(_mm512_loadu_si512(a.as_ptr().cast()));
                        second.add(_mm512_loadu_si512(b.as_ptr().cast()));
                    }
                }
                for a in single {
                    // SAFETY: `a` is an array of 64 bytes, and the load may be unaligned.
                    first.add(unsafe { _mm512_loadu_si512(a.as_ptr().cast()) });
                }
                total += first.total() + second.total();
            }
            total + super::portable_sum(rest)
        }

        #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
        unsafe fn copy_vnni(target: &mut [u8], mut source: *const u8) -> u64 {
            let mut total = 0u64;
            let (blocks, rest) = target.as_chunks_mut::<64>();
            for run in blocks.chunks_mut(STEPS_MAX) {
                let (mut first, mut second) = (Pair::new(), Pair::new());
                let (pairs, single) = run.as_chunks_mut::<2>();
                for [to_a, to_b] in pairs {
                    // SAFETY: unaligned loads of 64 bytes that the caller guarantees, and stores into arrays
                    // of 64 bytes.
                    unsafe {
                        let (a, b) =
                            (_mm512_loadu_si512(source.cast()), _mm512_loadu_si512(source.add(64).cast()));
                        _mm512_storeu_si512(to_a.as_mut_ptr().cast(), a);
                        _mm512_storeu_si512(to_b.as_mut_ptr().cast(), b);
                        first.add(a);
                        second.add(b);
                        source = source.add(128);
                    }
                }
                for to_a in single {
                    // SAFETY: the caller guarantees 64 more readable bytes at `source`; `to_a` has 64 bytes.
                    unsafe {
                        let a = _mm512_loadu_si512(source.cast());
                        _mm512_storeu_si512(to_a.as_mut_ptr().cast(), a);
                        first.add(a);
                        source = source.add(64);
                    }
                }
                total += first.total() + second.total();
            }
            // SAFETY: `source` has advanced as far as the target.
            total + unsafe { super::portable_copy(rest, source) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// The definition in RFC 1071 §1, word by word.
    fn by_definition(bytes: &[u8]) -> Sum {
        let mut total = 0u32;
        for pair in bytes.chunks(2) {
            total += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
            total = (total & 0xffff) + (total >> 16);
        }
        Sum(total as u16)
    }

    #[test]
    fn the_example_of_rfc_1071_sums_to_ddf2() {
        assert_eq!(Sum::of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]).word(), 0xddf2);
    }

    #[test]
    fn a_long_run_of_ones_does_not_overflow_a_lane() {
        // Miri runs only the portable loop, whose single accumulator cannot overflow.
        let bytes = vec![0xff; if cfg!(miri) { 1 << 10 } else { 1 << 27 } + 3];
        assert_eq!(Sum::of(&bytes), by_definition(&bytes));
    }

    proptest! {
        #[test]
        fn every_loop_agrees_with_the_definition(bytes in prop::collection::vec(any::<u8>(), 0..700), skip in 0usize..8) {
            let source = &bytes[skip.min(bytes.len())..];
            let expected = by_definition(source);
            prop_assert_eq!(Sum::of(source), expected);
            let mut target = vec![0; source.len()];
            prop_assert_eq!(copy_and_sum(&mut target, source), expected);
            prop_assert_eq!(&target[..], source);
        }

        #[test]
        fn a_run_cut_anywhere_joins_to_the_same_sum(bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0usize..300) {
            let (front, back) = bytes.split_at(at.min(bytes.len()));
            let joined = Sum::of(front).then(front.len(), Sum::of(back));
            let whole = Sum::of(&bytes);
            // In one's complement, 0 and 0xffff both represent zero.
            prop_assert_eq!(joined.word() % 0xffff, whole.word() % 0xffff);
            let less = whole.minus(Sum::of(back).at(front.len()));
            prop_assert_eq!(less.word() % 0xffff, Sum::of(front).word() % 0xffff);
        }

        #[test]
        fn a_run_with_its_checksum_is_intact(words in prop::collection::vec(any::<u16>(), 1..50)) {
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            let checksum = Sum::of(&bytes).checksum();
            bytes.extend(checksum.to_be_bytes());
            prop_assert!(Sum::of(&bytes).is_intact());
        }
    }
}
