//! Socket options that rustix does not have.

use libc::{c_int, socklen_t};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Sets an option; `value` must have the type that it takes.
///
/// # Errors
/// The system refuses.
pub(crate) fn set<T>(socket: impl AsFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let (pointer, length) = (std::ptr::from_ref(value).cast(), size_of::<T>() as socklen_t);
    // SAFETY: the system only reads `value`, and what it points to, which outlive the call. The options that
    // this crate sets take no other memory.
    let result = unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, pointer, length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
