//! Copying host memory that may no longer be mapped.
//!
//! Purpose          a program may unmap memory that it has registered, or truncate the file behind it. A
//!                  hardware NIC is not affected, because registration pins the pages. Here, the copy must
//!                  fail instead of the process.
//! Method           one assembly routine, which uses no stack, makes all accesses. If an access faults, the
//!                  handler of SIGSEGV and SIGBUS (`kiban_os::faults`) resumes at the routine's error exit
//!                  ([`recovery`]), as the kernel does with its exception table. This costs nothing while no
//!                  access faults. Without the handler, a fault ends the process, as usual.
//! Order            bytes are stored in ascending order, the last one by the last store, because programs
//!                  poll the last byte of a message. Runs of 2, 4 and 8 bytes are single loads and stores.
//! Speed            the loops use the widest registers that are common (AVX, NEON). `rep movsb`, which the C
//!                  library uses for long runs, would be slower: on AMD Zen it falls to a fifteenth of its
//!                  speed when source and target have similar offsets within their pages (glibc bug 30994;
//!                  measured: 2 GB/s instead of 30).
//! Not implemented  other processors and operating systems, and Miri, use `core::ptr::copy`, for which there
//!                  is no recovery.

pub use routine::recovery;
pub(crate) use routine::{copy, is_readable};

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
mod routine {
    #[cfg(target_arch = "x86_64")]
    extern crate std;

    use core::ffi::c_void;

    #[cfg(target_arch = "x86_64")]
    core::arch::global_asm!(include_str!("copy/x86_64.s"));

    #[cfg(target_arch = "aarch64")]
    core::arch::global_asm!(include_str!("copy/aarch64.s"));

    unsafe extern "C" {
        fn kiban_copy(target: *mut c_void, source: *const c_void, length: usize, wide: u32) -> u32;
        fn kiban_touch(first: *const c_void, last: *const c_void) -> u32;
        fn kiban_copy_fault() -> u32;
        static kiban_copy_end: u8;
    }

    /// Copies memory that others may read or change. If source and target overlap, the result is unspecified.
    /// Returns whether all of it is mapped; if not, an unspecified part has been copied.
    ///
    /// # Safety
    /// The caller must be allowed to read `length` bytes at `source` and to write them at `target`. If a
    /// signal handler uses [`recovery`], they may have been unmapped.
    #[inline]
    pub(crate) unsafe fn copy(source: *const u8, target: *mut u8, length: usize) -> bool {
        #[cfg(target_arch = "x86_64")]
        let wide = length > 64 && std::arch::is_x86_feature_detected!("avx");
        #[cfg(not(target_arch = "x86_64"))]
        let wide = false;
        // SAFETY: the caller guarantees that the routine may access these bytes; a fault makes it return 0.
        unsafe { kiban_copy(target.cast(), source.cast(), length, u32::from(wide)) != 0 }
    }

    /// Returns whether `length` bytes at `base` are mapped for reading. Reads a byte of every page.
    ///
    /// # Safety
    /// As for the source of [`copy`].
    #[inline]
    pub(crate) unsafe fn is_readable(base: *const u8, length: usize) -> bool {
        // SAFETY: as in `copy`; the last byte is one of the `length` bytes.
        length == 0 || unsafe { kiban_touch(base.cast(), base.add(length - 1).cast()) != 0 }
    }

    /// Returns the address at which a thread must resume after a fault of the instruction at `address`;
    /// `None` if that instruction does not belong to a copy.
    pub fn recovery(address: usize) -> Option<usize> {
        let end = &raw const kiban_copy_end;
        let routine = kiban_copy as *const () as usize..end.addr();
        routine.contains(&address).then_some(kiban_copy_fault as *const () as usize)
    }
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
mod routine {
    /// Bytes moved per copy, so that the C library does not use `rep movsb`.
    const RUN_BYTES: usize = 2048;

    /// Copies memory that others may read or change. If source and target overlap, the result is unspecified.
    /// Returns true.
    ///
    /// # Safety
    /// `length` bytes must be readable at `source` and writable at `target`.
    #[inline]
    pub(crate) unsafe fn copy(source: *const u8, target: *mut u8, length: usize) -> bool {
        let mut at = 0;
        while at < length {
            let run = (length - at).min(RUN_BYTES);
            // SAFETY: the run lies within the ranges that the caller guarantees.
            unsafe { core::ptr::copy(source.add(at), target.add(at), run) };
            at += run;
        }
        true
    }

    /// Returns true.
    ///
    /// # Safety
    /// As for the source of [`copy`].
    #[inline]
    pub(crate) unsafe fn is_readable(_base: *const u8, _length: usize) -> bool {
        true
    }

    /// Returns `None`: there is no recovery.
    pub fn recovery(_address: usize) -> Option<usize> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn all_lengths_and_offsets_are_copied_and_nothing_else() {
        let lengths = (0..300).chain([511, 512, 513, 2047, 2048, 4095, 4096, 4097, 10_000]);
        let source: Vec<u8> = (0..11_000u32).map(|at| (at * 7 / 3) as u8 | 1).collect();
        for length in lengths.filter(|length| !cfg!(miri) || length % 37 == 0) {
            for (from, to) in [(0, 0), (1, 0), (0, 1), (3, 18), (17, 31), (64, 33)] {
                let mut target = alloc::vec![0; 11_000];
                // SAFETY: both vectors are longer than the offsets and the length.
                assert!(unsafe { copy(source.as_ptr().add(from), target.as_mut_ptr().add(to), length) });
                assert_eq!(target[to..to + length], source[from..from + length], "{length} {from} {to}");
                let rest = [&target[..to], &target[to + length..]].concat();
                assert!(rest.iter().all(|byte| *byte == 0), "{length} {from} {to}: nothing else");
            }
        }
    }

    #[test]
    fn mapped_memory_is_readable() {
        let bytes = alloc::vec![0u8; 9000];
        for length in [0, 1, 2, 4096, 4097, 9000] {
            // SAFETY: the vector is long enough.
            assert!(unsafe { is_readable(bytes.as_ptr(), length) });
        }
    }

    #[test]
    fn other_code_is_not_recovered() {
        assert_eq!(recovery(other_code_is_not_recovered as *const () as usize), None);
        assert_eq!(recovery(0), None);
    }
}
