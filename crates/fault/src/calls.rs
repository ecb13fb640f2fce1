//! The system calls that are intercepted, and the faults that a kernel may return from each (the ERRORS
//! section of its manual page).

use libc::{
    EADDRINUSE, EADDRNOTAVAIL, EAGAIN, ECONNABORTED, ECONNREFUSED, EINTR, EIO, EMFILE, ENFILE, ENOBUFS,
    ENOLCK, ENOMEM, ENOSPC, c_long,
};

/// A family of calls with the same possible faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// Reads from a file.
    Read,
    /// Writes to a file.
    Write,
    /// Reads from a socket.
    Receive,
    /// Writes to a socket.
    Send,
    /// Waits for files.
    Wait,
    /// Accepts a connection.
    Accept,
    /// Opens a file by name.
    Open,
    /// Creates a descriptor.
    Descriptor,
    /// Duplicates a descriptor.
    Duplicate,
    /// Creates or changes a mapping.
    Memory,
    /// Creates a thread or a process.
    Thread,
    /// Syncs data to disk.
    Sync,
    /// Changes a directory.
    Folder,
    /// Removes a name.
    Remove,
    /// Changes the size of a file.
    Size,
    /// Reads a directory or a file's metadata.
    Look,
    /// Gives a socket its address.
    Bind,
    /// Connects a socket.
    Connect,
    /// Adds a file to an epoll set.
    Watch,
    /// Sets an option of a socket.
    Option,
    /// Locks a file.
    Lock,
    /// Creates or changes an eBPF map, program or link.
    Bpf,
    /// Controls a device.
    Control,
}

/// The intercepted calls: number, name, family.
pub const CALLS: &[(c_long, &str, Family)] = &[
    (libc::SYS_read, "read", Family::Read),
    (libc::SYS_pread64, "pread64", Family::Read),
    (libc::SYS_readv, "readv", Family::Read),
    (libc::SYS_preadv, "preadv", Family::Read),
    (libc::SYS_write, "write", Family::Write),
    (libc::SYS_pwrite64, "pwrite64", Family::Write),
    (libc::SYS_writev, "writev", Family::Write),
    (libc::SYS_pwritev, "pwritev", Family::Write),
    (libc::SYS_recvfrom, "recvfrom", Family::Receive),
    (libc::SYS_recvmsg, "recvmsg", Family::Receive),
    (libc::SYS_recvmmsg, "recvmmsg", Family::Receive),
    (libc::SYS_sendto, "sendto", Family::Send),
    (libc::SYS_sendmsg, "sendmsg", Family::Send),
    (libc::SYS_sendmmsg, "sendmmsg", Family::Send),
    (libc::SYS_poll, "poll", Family::Wait),
    (libc::SYS_ppoll, "ppoll", Family::Wait),
    (libc::SYS_select, "select", Family::Wait),
    (libc::SYS_pselect6, "pselect6", Family::Wait),
    (libc::SYS_epoll_wait, "epoll_wait", Family::Wait),
    (libc::SYS_epoll_pwait, "epoll_pwait", Family::Wait),
    (libc::SYS_epoll_pwait2, "epoll_pwait2", Family::Wait),
    (libc::SYS_accept, "accept", Family::Accept),
    (libc::SYS_accept4, "accept4", Family::Accept),
    (libc::SYS_open, "open", Family::Open),
    (libc::SYS_openat, "openat", Family::Open),
    (libc::SYS_openat2, "openat2", Family::Open),
    (libc::SYS_socket, "socket", Family::Descriptor),
    (libc::SYS_socketpair, "socketpair", Family::Descriptor),
    (libc::SYS_pipe2, "pipe2", Family::Descriptor),
    (libc::SYS_eventfd2, "eventfd2", Family::Descriptor),
    (libc::SYS_epoll_create1, "epoll_create1", Family::Descriptor),
    (libc::SYS_timerfd_create, "timerfd_create", Family::Descriptor),
    (libc::SYS_memfd_create, "memfd_create", Family::Descriptor),
    (libc::SYS_signalfd4, "signalfd4", Family::Descriptor),
    (libc::SYS_inotify_init1, "inotify_init1", Family::Descriptor),
    (libc::SYS_pidfd_open, "pidfd_open", Family::Descriptor),
    (libc::SYS_dup, "dup", Family::Duplicate),
    (libc::SYS_fcntl, "fcntl", Family::Duplicate),
    (libc::SYS_mmap, "mmap", Family::Memory),
    (libc::SYS_mremap, "mremap", Family::Memory),
    (libc::SYS_mprotect, "mprotect", Family::Memory),
    (libc::SYS_brk, "brk", Family::Memory),
    (libc::SYS_clone, "clone", Family::Thread),
    (libc::SYS_clone3, "clone3", Family::Thread),
    (libc::SYS_fork, "fork", Family::Thread),
    (libc::SYS_vfork, "vfork", Family::Thread),
    (libc::SYS_fsync, "fsync", Family::Sync),
    (libc::SYS_fdatasync, "fdatasync", Family::Sync),
    (libc::SYS_syncfs, "syncfs", Family::Sync),
    (libc::SYS_rename, "rename", Family::Folder),
    (libc::SYS_renameat, "renameat", Family::Folder),
    (libc::SYS_renameat2, "renameat2", Family::Folder),
    (libc::SYS_linkat, "linkat", Family::Folder),
    (libc::SYS_mkdir, "mkdir", Family::Folder),
    (libc::SYS_mkdirat, "mkdirat", Family::Folder),
    (libc::SYS_unlink, "unlink", Family::Remove),
    (libc::SYS_unlinkat, "unlinkat", Family::Remove),
    (libc::SYS_ftruncate, "ftruncate", Family::Size),
    (libc::SYS_fallocate, "fallocate", Family::Size),
    (libc::SYS_getdents64, "getdents64", Family::Look),
    (libc::SYS_statx, "statx", Family::Look),
    (libc::SYS_newfstatat, "newfstatat", Family::Look),
    (libc::SYS_bind, "bind", Family::Bind),
    (libc::SYS_listen, "listen", Family::Bind),
    (libc::SYS_connect, "connect", Family::Connect),
    (libc::SYS_epoll_ctl, "epoll_ctl", Family::Watch),
    (libc::SYS_setsockopt, "setsockopt", Family::Option),
    (libc::SYS_flock, "flock", Family::Lock),
    (libc::SYS_bpf, "bpf", Family::Bpf),
    (libc::SYS_ioctl, "ioctl", Family::Control),
];

/// A command of bpf(2); the others that kiban uses create a descriptor.
const BPF_MAP_UPDATE_ELEM: u64 = 2;

/// The kind of file to which a descriptor refers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum File {
    /// A file or directory that has a name.
    Regular,
    /// A byte-stream socket.
    Stream,
    /// A message socket.
    Message,
    /// A pipe.
    Pipe,
    /// An eventfd, a device, a timer, or no descriptor at all.
    Other,
}

/// The properties of a call that determine which faults are legal.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Its number.
    pub number: c_long,
    /// Its family.
    pub family: Family,
    /// Its arguments.
    pub arguments: [u64; 6],
    /// The kind of file to which the first argument, a descriptor, refers.
    pub file: File,
    /// Whether the call never blocks: O_NONBLOCK or MSG_DONTWAIT.
    pub never_waits: bool,
    /// Whether epoll watches the file edge-triggered.
    pub by_edges: bool,
    /// Maximum number of bytes that the call may transfer.
    pub bytes: u64,
}

/// The fault injected into a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Injection {
    /// The call is skipped and returns this error.
    Errno(i32),
    /// The call transfers fewer bytes than requested.
    Short,
    /// The call is delayed until a given number of other calls has been intercepted, or until no other thread
    /// makes progress.
    Stall(u32),
    /// The process is killed (SIGKILL) before the call.
    Kill,
}

/// Finds a call in the table.
pub fn find(number: c_long) -> Option<(&'static str, Family)> {
    CALLS.iter().find(|call| call.0 == number).map(|call| (call.1, call.2))
}

impl Call {
    /// Lists the errors and short counts that a kernel may return from this call. [`Injection::Stall`] and
    /// [`Injection::Kill`] are always legal.
    pub fn legal(&self) -> Vec<Injection> {
        if self.family == Family::Write && self.arguments[0] == 2 {
            // Writes to standard error never fail, because tests check the program's messages there.
            return Vec::new();
        }
        let is_socket = matches!(self.file, File::Stream | File::Message);
        let mut errors: Vec<i32> = match self.family {
            Family::Read if self.file == File::Regular => vec![EIO, EINTR],
            Family::Write if self.file == File::Regular => vec![ENOSPC, EIO, EINTR],
            Family::Receive => vec![ENOMEM],
            Family::Send => vec![ENOMEM, ENOBUFS],
            Family::Write if is_socket => vec![ENOMEM, ENOBUFS],
            Family::Read | Family::Write => vec![],
            Family::Wait if matches!(self.number, libc::SYS_poll | libc::SYS_ppoll | libc::SYS_select) => {
                vec![EINTR, ENOMEM]
            }
            Family::Wait => vec![EINTR],
            Family::Accept => vec![EMFILE, ENFILE, ENOMEM, ENOBUFS, ECONNABORTED],
            Family::Open if self.creates() => vec![EMFILE, ENFILE, ENOMEM, EINTR, EIO, ENOSPC],
            Family::Open => vec![EMFILE, ENFILE, ENOMEM, EINTR, EIO],
            Family::Descriptor => vec![EMFILE, ENFILE, ENOMEM],
            Family::Duplicate if self.duplicates() => vec![EMFILE],
            // Of fcntl's lock commands, only F_SETLKW waits; the other commands have no errors caused by the
            // system.
            Family::Duplicate => vec![],
            Family::Memory => vec![ENOMEM],
            Family::Thread => vec![EAGAIN, ENOMEM],
            Family::Sync => vec![EIO, ENOSPC, EINTR],
            Family::Folder => vec![ENOSPC, EIO, ENOMEM],
            Family::Remove => vec![EIO, ENOMEM],
            Family::Size if self.number == libc::SYS_fallocate => vec![ENOSPC, EIO, EINTR],
            Family::Size => vec![EIO, EINTR],
            Family::Look if self.number == libc::SYS_getdents64 => vec![EIO],
            Family::Look => vec![ENOMEM],
            Family::Bind => vec![EADDRINUSE],
            Family::Connect => vec![ECONNREFUSED, EADDRNOTAVAIL],
            // EPOLL_CTL_ADD.
            Family::Watch if self.arguments[1] == 1 => vec![ENOMEM, ENOSPC],
            Family::Watch => vec![],
            Family::Option => vec![ENOMEM],
            Family::Lock => vec![EINTR, ENOLCK],
            Family::Bpf if self.arguments[0] == BPF_MAP_UPDATE_ELEM => vec![ENOMEM],
            Family::Bpf => vec![EMFILE, ENFILE, ENOMEM],
            // Most requests read a property, for which the kernel needs no memory.
            Family::Control if self.arguments[1] == libc::TUNSETIFF => vec![ENOMEM],
            Family::Control => vec![],
        };
        let moves = matches!(self.family, Family::Read | Family::Write | Family::Receive | Family::Send);
        let waits = is_socket || self.file == File::Pipe;
        if waits && (moves || self.family == Family::Accept) {
            match self.never_waits {
                false => errors.push(EINTR),
                true if self.by_edges => {}
                true => errors.push(EAGAIN),
            }
        }
        let mut legal: Vec<Injection> = errors.into_iter().map(Injection::Errno).collect();
        let is_atomic = self.file == File::Pipe && self.family == Family::Write && self.bytes <= 4096;
        let has_parts = matches!(self.file, File::Regular | File::Stream | File::Pipe) && !is_atomic;
        let is_many = matches!(self.number, libc::SYS_recvmmsg | libc::SYS_sendmmsg);
        if moves && has_parts && !is_many && !self.by_edges && self.bytes > 1 {
            legal.push(Injection::Short);
        }
        legal
    }

    fn creates(&self) -> bool {
        let flags = match self.number {
            libc::SYS_open => self.arguments[1],
            libc::SYS_openat => self.arguments[2],
            // The flags of openat2 are in memory, not in a register, so treat the call as an open without
            // O_CREAT.
            _ => 0,
        };
        flags & libc::O_CREAT as u64 != 0
    }

    fn duplicates(&self) -> bool {
        let commands = [libc::F_DUPFD as u64, libc::F_DUPFD_CLOEXEC as u64];
        self.number == libc::SYS_dup || commands.contains(&self.arguments[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: c_long, file: File, never_waits: bool, by_edges: bool) -> Call {
        let (_, family) = find(number).expect("it is in the table");
        Call { number, family, arguments: [0; 6], file, never_waits, by_edges, bytes: 100 }
    }

    #[test]
    fn only_faults_that_a_kernel_can_return_are_injected() {
        use Injection::{Errno, Short};
        for (given, wanted) in [
            (
                call(libc::SYS_write, File::Regular, false, false),
                vec![Errno(ENOSPC), Errno(EIO), Errno(EINTR), Short],
            ),
            (call(libc::SYS_read, File::Stream, false, false), vec![Errno(EINTR), Short]),
            (call(libc::SYS_read, File::Stream, true, false), vec![Errno(EAGAIN), Short]),
            (call(libc::SYS_recvfrom, File::Stream, true, true), vec![Errno(ENOMEM)]),
            (call(libc::SYS_recvmsg, File::Message, true, false), vec![Errno(ENOMEM), Errno(EAGAIN)]),
            (call(libc::SYS_write, File::Pipe, false, false), vec![Errno(EINTR)]),
            (call(libc::SYS_read, File::Other, true, false), vec![]),
            (call(libc::SYS_fcntl, File::Other, false, false), vec![Errno(EMFILE)]),
            (call(libc::SYS_epoll_ctl, File::Other, false, false), vec![]),
            (
                call(libc::SYS_bpf, File::Other, false, false),
                vec![Errno(EMFILE), Errno(ENFILE), Errno(ENOMEM)],
            ),
            (call(libc::SYS_ioctl, File::Other, false, false), vec![]),
        ] {
            assert_eq!(given.legal(), wanted, "{given:?}");
        }
    }
}
