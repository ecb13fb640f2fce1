//! Refuses io_uring(7) to this process and to the programs that it starts.
//!
//! Purpose   a program whose sockets are served by a preloaded library must not open them through io_uring,
//!           which the library does not see. `io_uring_setup` fails with ENOSYS, as on a kernel without
//!           io_uring, so that programs fall back to system calls.
//! Privilege a process with CAP_SYS_ADMIN installs the filter as it is. Others must also give up gaining
//!           privileges (no_new_privs): programs with set-user-ID then run with the user's own.

use crate::calls::compile;
use seccompiler::{BpfProgram, SeccompAction, sock_filter};
use std::collections::BTreeMap;
use std::io;

/// The arguments of seccomp(2): `struct sock_fprog`.
#[repr(C)]
struct Program {
    length: u16,
    filter: *const sock_filter,
}

/// Makes `io_uring_setup` fail with ENOSYS in this thread and in everything that it starts or becomes.
///
/// # Errors
/// The system has no seccomp filters, or does not permit them.
pub fn refuse_io_uring() -> io::Result<()> {
    let rules = BTreeMap::from([(libc::SYS_io_uring_setup, Vec::new())]);
    let filter = compile(rules, SeccompAction::Errno(libc::ENOSYS as u32)).map_err(io::Error::other)?;
    match install(&filter) {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            rustix::thread::set_no_new_privs(true)?;
            install(&filter)
        }
        done => done,
    }
}

fn install(filter: &BpfProgram) -> io::Result<()> {
    let length = u16::try_from(filter.len()).map_err(io::Error::other)?;
    let program = Program { length, filter: filter.as_ptr() };
    // SAFETY: `program` describes `filter`; the kernel copies both before the call returns.
    let done =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
