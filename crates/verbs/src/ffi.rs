//! The boundary to C: errors and panics in exported functions.
//!
//! Purpose   turns a panic into an error code, because it must not unwind through C frames.
//! Errors    there are two conventions, as in rdma-core: most `ibv_*` functions return the errno value, and
//!           `rdma_*` functions set errno and return -1.
//! Limits    a pointer that is not null cannot be checked for validity.

use core::ffi::c_int;
use std::io::{Write, stderr};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of a C function; returns `broken` if it panics.
pub(crate) fn catch_panics<T>(broken: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(broken)
}

/// Returns the errno of the last call that failed.
pub(crate) fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Sets errno.
pub(crate) fn set_errno(error: c_int) {
    // SAFETY: __errno_location() returns a valid pointer to the calling thread's errno.
    unsafe { *libc::__errno_location() = error };
}

/// Sets errno and returns -1.
pub(crate) fn fail_with_errno(error: c_int) -> c_int {
    set_errno(error);
    -1
}

/// Returns 0 on success, or the errno.
pub(crate) fn errno_or_zero(work: impl FnOnce() -> Result<(), c_int>) -> c_int {
    catch_panics(libc::EIO, || work().err().unwrap_or(0))
}

/// Returns the value, or sets errno and returns -1.
pub(crate) fn value_or_minus_one(work: impl FnOnce() -> Result<c_int, c_int>) -> c_int {
    catch_panics(-1, || work().unwrap_or_else(fail_with_errno))
}

/// Returns the pointer, or sets errno and returns null.
pub(crate) fn pointer<T>(work: impl FnOnce() -> Result<*mut T, c_int>) -> *mut T {
    catch_panics(core::ptr::null_mut(), || {
        work().unwrap_or_else(|error| {
            set_errno(error);
            core::ptr::null_mut()
        })
    })
}

/// Returns the errno value of a system error.
pub(crate) fn errno_of(error: &std::io::Error) -> c_int {
    use std::io::ErrorKind;
    error.raw_os_error().unwrap_or(match error.kind() {
        ErrorKind::AddrInUse => libc::EADDRINUSE,
        ErrorKind::AddrNotAvailable => libc::EADDRNOTAVAIL,
        ErrorKind::PermissionDenied => libc::EACCES,
        ErrorKind::NetworkUnreachable => libc::ENETUNREACH,
        ErrorKind::HostUnreachable => libc::EHOSTUNREACH,
        ErrorKind::OutOfMemory => libc::ENOMEM,
        ErrorKind::InvalidInput => libc::EINVAL,
        _ => libc::EIO,
    })
}

/// Returns the errno value of a system error. If an address is in use, it also writes the error, because the
/// value does not say who uses the address.
pub(crate) fn errno_of_told(error: &std::io::Error) -> c_int {
    if error.kind() == std::io::ErrorKind::AddrInUse {
        // If the message cannot be written, the program still gets the error.
        let _ = writeln!(stderr(), "kiban: {error}");
    }
    errno_of(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_do_not_cross_the_c_border() {
        assert_eq!(catch_panics(libc::EIO, || panic!("this message is part of the test")), libc::EIO);
        assert_eq!(catch_panics(libc::EIO, || 0), 0);
    }

    #[test]
    fn fail_with_errno_returns_minus_one() {
        assert_eq!(fail_with_errno(libc::EPROTO), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EPROTO));
    }
}
