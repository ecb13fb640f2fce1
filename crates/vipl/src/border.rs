//! The boundary to C: pointers, results and panics in calls.
//!
//! Purpose   keep unsafe code in one place. A pointer from the program is checked for null and alignment, and
//!           then read or written once.
//! Limits    a pointer that is not null cannot be checked for validity; `vipl.h` requires that it is valid.

use crate::abi::VIP_RETURN;
use core::ptr::NonNull;
use kiban_os::ignore_poison;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The result of a call. An error is the code that is returned to the program.
pub(crate) type Answer<T = ()> = Result<T, VIP_RETURN>;

/// Runs the body of a call. If the body panics, returns VIP_ERROR_RESOURCE, because a panic must not unwind
/// through C frames.
pub(crate) fn call(work: impl FnOnce() -> Answer) -> VIP_RETURN {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => VIP_RETURN::SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => VIP_RETURN::ERROR_RESOURCE,
    }
}

/// A program's pointer for a result.
#[derive(Clone, Copy)]
pub(crate) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// # Safety
    /// If it is not null, `at` is valid for writes during the call.
    pub(crate) unsafe fn at(at: *mut T) -> Answer<Out<T>> {
        match NonNull::new(at) {
            Some(place) if place.is_aligned() => Ok(Out(place)),
            _ => Err(VIP_RETURN::INVALID_PARAMETER),
        }
    }

    pub(crate) fn put(&self, value: T) {
        // SAFETY: the caller of `at` guarantees that the pointer is valid for writes during the call; the C
        // value in that memory need not be dropped.
        unsafe { self.0.write(value) }
    }
}

/// Copies the value at a program's pointer.
///
/// # Safety
/// If it is not null, `at` points to a valid `T`.
pub(crate) unsafe fn read<T: Copy>(at: *const T) -> Answer<T> {
    match NonNull::new(at.cast_mut()) {
        // SAFETY: the caller of `read` guarantees that `at` points to a valid `T`; alignment is checked
        // here.
        Some(place) if place.is_aligned() => Ok(unsafe { place.read() }),
        _ => Err(VIP_RETURN::INVALID_PARAMETER),
    }
}

pub(crate) fn reading<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    ignore_poison(lock.read())
}

pub(crate) fn writing<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    ignore_poison(lock.write())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_do_not_cross_the_c_border() {
        assert_eq!(call(|| panic!("this message is part of the test")), VIP_RETURN::ERROR_RESOURCE);
        assert_eq!(call(|| Ok(())), VIP_RETURN::SUCCESS);
        assert_eq!(call(|| Err(VIP_RETURN::TIMEOUT)), VIP_RETURN::TIMEOUT);
    }

    #[test]
    fn null_and_unaligned_pointers_are_refused() {
        let mut words = [0u32; 2];
        let crooked = words.as_mut_ptr().cast::<u8>().wrapping_add(1).cast::<u32>();
        for place in [core::ptr::null_mut(), crooked] {
            // SAFETY: both functions reject the pointer before they use it.
            let refused = unsafe { Out::at(place).is_err() && read(place).is_err() };
            assert!(refused);
        }
        // SAFETY: `words` outlives the call.
        unsafe { Out::at(&raw mut words[1]) }.expect("a valid pointer").put(7);
        assert_eq!(words, [0, 7]);
    }
}
