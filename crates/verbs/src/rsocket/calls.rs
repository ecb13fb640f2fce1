//! The C functions of `rdma/rsocket.h`.
//!
//! Purpose   checks arguments, converts them to slices and addresses, and returns errors as -1 with errno
//!           set.
//! Vectors   reads fill all parts of a vector; rdma-core fills only the first.

use super::address;
use super::iomap;
use super::poll;
use super::repoll::Repoll;
use super::socket::Socket;
use super::world::{self, Descriptor, find, socket, world};
use crate::ffi::{catch_panics, fail_with_errno};
use core::ffi::{c_int, c_void};
use core::slice;
use core::sync::atomic::Ordering;
use libc::{epoll_event, fd_set, iovec, msghdr, nfds_t, off_t, pollfd, sockaddr, socklen_t, timeval};
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of parts in a vector (readv(2)).
const PARTS_MAX: usize = 1024;

/// Returns 0, or sets errno and returns -1.
fn answer(work: impl FnOnce() -> Result<(), c_int>) -> c_int {
    catch_panics(-1, || work().map_or_else(fail_with_errno, |()| 0))
}

/// Returns a number, or sets errno and returns -1.
fn count(work: impl FnOnce() -> Result<usize, c_int>) -> isize {
    catch_panics(-1, || {
        work().map_or_else(|error| fail_with_errno(error) as isize, |count| count.cast_signed())
    })
}

/// Returns the program's bytes as a slice.
///
/// # Safety
/// `at` points to `length` bytes, or is null.
unsafe fn bytes<'a>(at: *const c_void, length: usize) -> Result<&'a [u8], c_int> {
    match (at.is_null(), length) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(libc::EFAULT),
        // SAFETY: the caller of `bytes` guarantees that `at` points to `length` readable bytes; a slice is at
        // most isize::MAX bytes long.
        (false, _) => Ok(unsafe { slice::from_raw_parts(at.cast(), length.min(isize::MAX as usize)) }),
    }
}

/// Returns the program's buffer as a slice.
///
/// # Safety
/// `at` points to `length` writable bytes, or is null.
unsafe fn room<'a>(at: *mut c_void, length: usize) -> Result<&'a mut [u8], c_int> {
    match (at.is_null(), length) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(libc::EFAULT),
        // SAFETY: the caller of `room` guarantees that `at` points to `length` writable bytes that nothing
        // else uses; a slice is at most isize::MAX bytes long.
        (false, _) => Ok(unsafe { slice::from_raw_parts_mut(at.cast(), length.min(isize::MAX as usize)) }),
    }
}

/// Returns the parts of a vector.
///
/// # Safety
/// `at` points to `number` elements, or is null.
unsafe fn parts<'a>(at: *const iovec, number: usize) -> Result<&'a [iovec], c_int> {
    match (at.is_null(), number) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(libc::EFAULT),
        (_, number) if number > PARTS_MAX => Err(libc::EINVAL),
        // SAFETY: the caller of `parts` guarantees that `at` points to `number` elements.
        (false, number) => Ok(unsafe { slice::from_raw_parts(at, number) }),
    }
}

/// # Safety
/// The parts of the vector point to memory.
unsafe fn receive_parts(file: c_int, vector: &[iovec], flags: c_int) -> Result<usize, c_int> {
    let socket = socket(file)?;
    // SAFETY: the caller of `receive_parts` guarantees that each part points to writable memory of its
    // length.
    let rooms = vector.iter().map(|part| unsafe { room(part.iov_base, part.iov_len) });
    let mut rooms = rooms.collect::<Result<Vec<_>, _>>()?;
    receive(&socket, &mut rooms, flags)
}

fn receive(socket: &Socket, rooms: &mut [&mut [u8]], flags: c_int) -> Result<usize, c_int> {
    if flags & libc::MSG_OOB != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    socket.receive(rooms, flags)
}

/// # Safety
/// The parts of the vector point to memory.
unsafe fn send_parts(file: c_int, vector: &[iovec], flags: c_int) -> Result<usize, c_int> {
    let socket = socket(file)?;
    // SAFETY: the caller of `send_parts` guarantees that each part points to memory of its length.
    let all = vector.iter().map(|part| unsafe { bytes(part.iov_base, part.iov_len) });
    send(&socket, &all.collect::<Result<Vec<_>, _>>()?, flags)
}

fn send(socket: &Socket, parts: &[&[u8]], flags: c_int) -> Result<usize, c_int> {
    if flags & libc::MSG_OOB != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    socket.send(parts, flags)
}

// ---- creating and closing

#[unsafe(export_name = "kiban_rsocket")]
extern "C" fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    catch_panics(-1, || {
        let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        let fits = match kind & !flags {
            libc::SOCK_STREAM => matches!(protocol, 0 | libc::IPPROTO_TCP),
            libc::SOCK_DGRAM => return fail_with_errno(libc::EPROTONOSUPPORT),
            _ => return fail_with_errno(libc::ENOTSUP),
        };
        if !matches!(domain, libc::AF_INET | libc::AF_INET6) {
            return fail_with_errno(libc::EAFNOSUPPORT);
        }
        if !fits {
            return fail_with_errno(libc::EINVAL);
        }
        let made = Socket::new(domain).and_then(|socket| Ok((world()?, socket)));
        match made {
            Ok((world, socket)) => {
                if flags & libc::SOCK_NONBLOCK != 0 {
                    socket.status_flags.fetch_or(libc::O_NONBLOCK, Ordering::Relaxed);
                }
                let number = socket.number();
                world.add(number, Descriptor::Socket(socket));
                number
            }
            Err(error) => fail_with_errno(error),
        }
    })
}

/// # Safety
/// The arguments must satisfy bind(2).
#[unsafe(export_name = "kiban_rbind")]
unsafe extern "C" fn rbind(file: c_int, at: *const sockaddr, length: socklen_t) -> c_int {
    answer(|| {
        let socket = socket(file)?;
        // SAFETY: the caller of `rbind` guarantees that `at` is null or points to `length` bytes.
        socket.bind(unsafe { address::read(at, length)? })
    })
}

#[unsafe(export_name = "kiban_rlisten")]
extern "C" fn rlisten(file: c_int, backlog: c_int) -> c_int {
    answer(|| socket(file)?.listen(backlog))
}

/// # Safety
/// The arguments must satisfy accept(2).
#[unsafe(export_name = "kiban_raccept")]
unsafe extern "C" fn raccept(file: c_int, at: *mut sockaddr, length: *mut socklen_t) -> c_int {
    catch_panics(-1, || match socket(file).and_then(|socket| socket.accept()) {
        Ok(accepted) => {
            if let (_, Some(peer)) = accepted.addresses() {
                // SAFETY: the caller of `raccept` guarantees that `at` has room for `*length` bytes, or that
                // one of the pointers is null.
                unsafe { address::write(peer, accepted.family, at, length) };
            }
            accepted.number()
        }
        Err(error) => fail_with_errno(error),
    })
}

/// # Safety
/// The arguments must satisfy connect(2).
#[unsafe(export_name = "kiban_rconnect")]
unsafe extern "C" fn rconnect(file: c_int, to: *const sockaddr, length: socklen_t) -> c_int {
    answer(|| {
        let socket = socket(file)?;
        // SAFETY: the caller of `rconnect` guarantees that `to` is null or points to `length` bytes.
        socket.connect(unsafe { address::read(to, length)? })
    })
}

#[unsafe(export_name = "kiban_rshutdown")]
extern "C" fn rshutdown(file: c_int, how: c_int) -> c_int {
    answer(|| socket(file)?.shutdown(how))
}

#[unsafe(export_name = "kiban_rclose")]
extern "C" fn rclose(file: c_int) -> c_int {
    answer(|| {
        if let Descriptor::Socket(socket) = world::remove(file)? {
            socket.close();
        }
        Ok(())
    })
}

// ---- data

/// # Safety
/// The arguments must satisfy recv(2).
#[unsafe(export_name = "kiban_rrecv")]
unsafe extern "C" fn rrecv(file: c_int, at: *mut c_void, length: usize, flags: c_int) -> isize {
    // SAFETY: the caller of `rrecv` guarantees that `at` is null or points to `length` writable bytes.
    count(|| receive(&*socket(file)?, &mut [unsafe { room(at, length)? }], flags))
}

/// # Safety
/// The arguments must satisfy recvfrom(2).
#[unsafe(export_name = "kiban_rrecvfrom")]
unsafe extern "C" fn rrecvfrom(
    file: c_int,
    at: *mut c_void,
    length: usize,
    flags: c_int,
    from: *mut sockaddr,
    from_length: *mut socklen_t,
) -> isize {
    count(|| {
        let socket = socket(file)?;
        // SAFETY: the caller of `rrecvfrom` guarantees that `at` is null or points to `length` writable
        // bytes.
        let got = receive(&socket, &mut [unsafe { room(at, length)? }], flags)?;
        if let (_, Some(peer)) = socket.addresses()
            && got > 0
        {
            // SAFETY: the caller of `rrecvfrom` guarantees that `from` has room for `*from_length` bytes, or
            // that one of the pointers is null.
            unsafe { address::write(peer, socket.family, from, from_length) };
        }
        Ok(got)
    })
}

/// # Safety
/// The arguments must satisfy recvmsg(2).
#[unsafe(export_name = "kiban_rrecvmsg")]
unsafe extern "C" fn rrecvmsg(file: c_int, message: *mut msghdr, flags: c_int) -> isize {
    count(|| {
        // SAFETY: the caller of `rrecvmsg` guarantees that `message` is null or valid for reads and writes.
        let message = unsafe { message.as_mut() }.ok_or(libc::EFAULT)?;
        if !message.msg_control.is_null() && message.msg_controllen > 0 {
            return Err(libc::ENOTSUP);
        }
        // SAFETY: the caller of `rrecvmsg` guarantees that the message has `msg_iovlen` parts, each of which
        // points to writable memory.
        let got = unsafe { receive_parts(file, parts(message.msg_iov, message.msg_iovlen)?, flags)? };
        (message.msg_namelen, message.msg_flags) = (0, 0);
        Ok(got)
    })
}

/// # Safety
/// The arguments must satisfy read(2).
#[unsafe(export_name = "kiban_rread")]
unsafe extern "C" fn rread(file: c_int, at: *mut c_void, length: usize) -> isize {
    // SAFETY: the caller of `rread` guarantees that `at` is null or points to `length` writable bytes.
    count(|| receive(&*socket(file)?, &mut [unsafe { room(at, length)? }], 0))
}

/// # Safety
/// The arguments must satisfy readv(2).
#[unsafe(export_name = "kiban_rreadv")]
unsafe extern "C" fn rreadv(file: c_int, vector: *const iovec, number: c_int) -> isize {
    count(|| {
        let number = usize::try_from(number).map_err(|_| libc::EINVAL)?;
        // SAFETY: the caller of `rreadv` guarantees that `vector` has `number` parts, each of which points to
        // writable memory.
        unsafe { receive_parts(file, parts(vector, number)?, 0) }
    })
}

/// # Safety
/// The arguments must satisfy send(2).
#[unsafe(export_name = "kiban_rsend")]
unsafe extern "C" fn rsend(file: c_int, at: *const c_void, length: usize, flags: c_int) -> isize {
    // SAFETY: the caller of `rsend` guarantees that `at` is null or points to `length` bytes.
    count(|| send(&*socket(file)?, &[unsafe { bytes(at, length)? }], flags))
}

/// # Safety
/// The arguments must satisfy sendto(2).
#[unsafe(export_name = "kiban_rsendto")]
unsafe extern "C" fn rsendto(
    file: c_int,
    at: *const c_void,
    length: usize,
    flags: c_int,
    to: *const sockaddr,
    to_length: socklen_t,
) -> isize {
    count(|| {
        let socket = socket(file)?;
        // A stream is connected, so it takes no address (send(2)).
        if !to.is_null() || to_length != 0 {
            return Err(libc::EISCONN);
        }
        // SAFETY: the caller of `rsendto` guarantees that `at` is null or points to `length` bytes.
        send(&socket, &[unsafe { bytes(at, length)? }], flags)
    })
}

/// # Safety
/// The arguments must satisfy sendmsg(2).
#[unsafe(export_name = "kiban_rsendmsg")]
unsafe extern "C" fn rsendmsg(file: c_int, message: *const msghdr, flags: c_int) -> isize {
    count(|| {
        // SAFETY: the caller of `rsendmsg` guarantees that `message` is null or valid for reads.
        let message = unsafe { message.as_ref() }.ok_or(libc::EFAULT)?;
        if !message.msg_control.is_null() && message.msg_controllen > 0 {
            return Err(libc::ENOTSUP);
        }
        // SAFETY: the caller of `rsendmsg` guarantees that the message has `msg_iovlen` parts, each of which
        // points to memory.
        unsafe { send_parts(file, parts(message.msg_iov, message.msg_iovlen)?, flags) }
    })
}

/// # Safety
/// The arguments must satisfy write(2).
#[unsafe(export_name = "kiban_rwrite")]
unsafe extern "C" fn rwrite(file: c_int, at: *const c_void, length: usize) -> isize {
    // SAFETY: the caller of `rwrite` guarantees that `at` is null or points to `length` bytes.
    count(|| send(&*socket(file)?, &[unsafe { bytes(at, length)? }], 0))
}

/// # Safety
/// The arguments must satisfy writev(2).
#[unsafe(export_name = "kiban_rwritev")]
unsafe extern "C" fn rwritev(file: c_int, vector: *const iovec, number: c_int) -> isize {
    count(|| {
        let number = usize::try_from(number).map_err(|_| libc::EINVAL)?;
        // SAFETY: the caller of `rwritev` guarantees that `vector` has `number` parts, each of which points
        // to memory.
        unsafe { send_parts(file, parts(vector, number)?, 0) }
    })
}

// ---- waiting

fn milliseconds(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// # Safety
/// The arguments must satisfy poll(2).
#[unsafe(export_name = "kiban_rpoll")]
unsafe extern "C" fn rpoll(files: *mut pollfd, number: nfds_t, timeout: c_int) -> c_int {
    count(|| {
        let files = match (files.is_null(), number as usize) {
            (_, 0) => &mut [],
            (true, _) => return Err(libc::EFAULT),
            (_, number) if number > 1 << 20 => return Err(libc::EINVAL),
            // SAFETY: the caller of `rpoll` guarantees that `files` points to `number` elements.
            (false, number) => unsafe { slice::from_raw_parts_mut(files, number) },
        };
        poll::poll(files, milliseconds(timeout))
    }) as c_int
}

/// # Safety
/// The arguments must satisfy select(2).
#[unsafe(export_name = "kiban_rselect")]
unsafe extern "C" fn rselect(
    number: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    excepts: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    count(|| {
        // SAFETY: the caller of `rselect` guarantees that `timeout` is null or valid for reads.
        let timeout = match unsafe { timeout.as_ref() } {
            None => None,
            Some(time) => {
                let seconds = u64::try_from(time.tv_sec).map_err(|_| libc::EINVAL)?;
                let micros = u64::try_from(time.tv_usec).map_err(|_| libc::EINVAL)?;
                Some(Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros)))
            }
        };
        // SAFETY: the caller of `rselect` guarantees that each set is null or valid for reads and writes.
        let ready = unsafe { poll::select(number, [reads, writes, excepts], timeout)? };
        Ok(ready.unsigned_abs() as usize)
    }) as c_int
}

fn list(number: c_int) -> Result<Arc<Repoll>, c_int> {
    match find(number) {
        Ok(Descriptor::Repoll(list)) => Ok(list),
        _ => Err(libc::EINVAL),
    }
}

#[unsafe(export_name = "kiban_repoll_create")]
extern "C" fn repoll_create(_flags: c_int) -> c_int {
    catch_panics(-1, || {
        let made = world().and_then(|world| {
            let list = Repoll::new().map_err(|error| error.raw_os_error().unwrap_or(libc::EMFILE))?;
            let number = list.changes.number();
            world.add(number, Descriptor::Repoll(Arc::new(list)));
            Ok(number)
        });
        made.unwrap_or_else(fail_with_errno)
    })
}

/// # Safety
/// The arguments must satisfy epoll_ctl(2).
#[unsafe(export_name = "kiban_repoll_ctl")]
unsafe extern "C" fn repoll_ctl(
    list_number: c_int,
    operation: c_int,
    file: c_int,
    event: *mut epoll_event,
) -> c_int {
    catch_panics(libc::EIO, || {
        if file < 0 {
            return libc::EBADF;
        }
        if file == list_number {
            return libc::EINVAL;
        }
        // SAFETY: the caller of `repoll_ctl` guarantees that `event`, which is not null here, points to an
        // event.
        let event = (!event.is_null()).then(|| unsafe { event.read_unaligned() });
        list(list_number).and_then(|list| list.control(operation, file, event)).err().unwrap_or(0)
    })
}

/// # Safety
/// The arguments must satisfy epoll_wait(2).
#[unsafe(export_name = "kiban_repoll_wait")]
unsafe extern "C" fn repoll_wait(
    list_number: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    catch_panics(libc::EIO, || {
        let most = usize::try_from(most).unwrap_or(0);
        if events.is_null() || most == 0 {
            return libc::EINVAL;
        }
        let found = list(list_number).and_then(|list| {
            // SAFETY: the caller of `repoll_wait` guarantees that `events` has room for `most` events.
            list.wait(unsafe { slice::from_raw_parts_mut(events, most) }, milliseconds(timeout))
        });
        found.map_or_else(|error| error, |count| count as c_int)
    })
}

// ---- names and options

/// # Safety
/// The arguments must satisfy getpeername(2).
#[unsafe(export_name = "kiban_rgetpeername")]
unsafe extern "C" fn rgetpeername(file: c_int, at: *mut sockaddr, length: *mut socklen_t) -> c_int {
    answer(|| {
        let socket = socket(file)?;
        let (_, peer) = socket.addresses();
        // SAFETY: the caller of `rgetpeername` guarantees that `at` has room for `*length` bytes, or that one
        // of the pointers is null.
        unsafe { address::write(peer.ok_or(libc::ENOTCONN)?, socket.family, at, length) };
        Ok(())
    })
}

/// # Safety
/// The arguments must satisfy getsockname(2).
#[unsafe(export_name = "kiban_rgetsockname")]
unsafe extern "C" fn rgetsockname(file: c_int, at: *mut sockaddr, length: *mut socklen_t) -> c_int {
    answer(|| {
        let socket = socket(file)?;
        let (local, _) = socket.addresses();
        let local = local.unwrap_or_else(|| address::unspecified(socket.family));
        // SAFETY: the caller of `rgetsockname` guarantees that `at` has room for `*length` bytes, or that one
        // of the pointers is null.
        unsafe { address::write(local, socket.family, at, length) };
        Ok(())
    })
}

/// # Safety
/// The arguments must satisfy setsockopt(2).
#[unsafe(export_name = "kiban_rsetsockopt")]
unsafe extern "C" fn rsetsockopt(
    file: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    answer(|| {
        let socket = socket(file)?;
        let mut inner = socket.inner();
        let is_open = inner.has_begun();
        // SAFETY: the caller of `rsetsockopt` guarantees that `value` is null or points to `length` bytes.
        unsafe { inner.options.set(level, name, value, length, is_open) }
    })
}

/// # Safety
/// `at` points to `*length` writable bytes.
unsafe fn put<T>(value: T, at: *mut c_void, length: *mut socklen_t) -> Result<(), c_int> {
    if at.is_null() || length.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: the caller of `put` guarantees that `at` has room for `*length` bytes; at most that many are
    // copied.
    unsafe {
        let bytes = size_of::<T>().min(*length as usize);
        core::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), at.cast(), bytes);
        *length = bytes as socklen_t;
    }
    Ok(())
}

/// # Safety
/// The arguments must satisfy getsockopt(2).
#[unsafe(export_name = "kiban_rgetsockopt")]
unsafe extern "C" fn rgetsockopt(
    file: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    answer(|| {
        let socket = socket(file)?;
        socket.look();
        let mut inner = socket.inner();
        // SAFETY: the caller of `rgetsockopt` guarantees that `value` and `length` are null or valid for
        // writes; an all-zero `tcp_info` is valid.
        unsafe {
            match (level, name) {
                (libc::SOL_SOCKET, libc::SO_ERROR) => put(inner.take_error().unwrap_or(0), value, length),
                (libc::SOL_SOCKET, libc::SO_LINGER) => put(inner.options.linger(), value, length),
                (libc::SOL_SOCKET, libc::SO_DOMAIN) => put(socket.family, value, length),
                (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => {
                    put(c_int::from(inner.is_listening()), value, length)
                }
                (libc::IPPROTO_TCP, libc::TCP_INFO) => {
                    let mut info: libc::tcp_info = core::mem::zeroed();
                    // TCP_ESTABLISHED and TCP_CLOSE.
                    info.tcpi_state =
                        if inner.stream().is_some_and(|stream| stream.over.is_none()) { 1 } else { 7 };
                    info.tcpi_snd_cwnd = u32::from(inner.options.sizes().send_works);
                    put(info, value, length)
                }
                // RDMA_ROUTE: there are no InfiniBand paths.
                (0x10000, 4) => length.as_mut().map(|length| *length = 0).ok_or(libc::EFAULT),
                _ => put(inner.options.get(level, name)?, value, length),
            }
        }
    })
}

/// Implements fcntl(2) for commands whose argument is an int.
#[unsafe(export_name = "kiban_rfcntl")]
extern "C" fn rfcntl(file: c_int, command: c_int, argument: c_int) -> c_int {
    catch_panics(-1, || {
        let socket = match socket(file) {
            Ok(socket) => socket,
            Err(error) => return fail_with_errno(error),
        };
        match command {
            libc::F_GETFL => socket.status_flags.load(Ordering::Relaxed),
            libc::F_SETFL => {
                socket.status_flags.store(argument | libc::O_RDWR, Ordering::Relaxed);
                0
            }
            libc::F_GETFD => socket.file_flags.load(Ordering::Relaxed),
            libc::F_SETFD => {
                socket.file_flags.store(argument, Ordering::Relaxed);
                0
            }
            _ => fail_with_errno(libc::ENOTSUP),
        }
    })
}

// ---- I/O maps

/// # Safety
/// The memory is valid until it is unmapped, and peers may access it until then.
#[unsafe(export_name = "kiban_riomap")]
unsafe extern "C" fn riomap(
    file: c_int,
    at: *mut c_void,
    length: usize,
    protection: c_int,
    _flags: c_int,
    offset: off_t,
) -> off_t {
    catch_panics(-1, || {
        let mapped = socket(file).and_then(|socket| {
            if protection & !libc::PROT_WRITE != 0 {
                return Err(libc::EINVAL);
            }
            // SAFETY: the caller of `riomap` guarantees that the memory stays valid until `riounmap`.
            unsafe { iomap::map(&socket, at.cast(), length, protection & libc::PROT_WRITE != 0, offset) }
        });
        mapped.unwrap_or_else(|error| off_t::from(fail_with_errno(error)))
    })
}

#[unsafe(export_name = "kiban_riounmap")]
extern "C" fn riounmap(file: c_int, at: *mut c_void, length: usize) -> c_int {
    answer(|| iomap::unmap(&*socket(file)?, at.addr(), length))
}

/// # Safety
/// `at` points to `length` bytes.
#[unsafe(export_name = "kiban_riowrite")]
unsafe extern "C" fn riowrite(
    file: c_int,
    at: *const c_void,
    length: usize,
    offset: off_t,
    flags: c_int,
) -> isize {
    // SAFETY: the caller of `riowrite` guarantees that `at` points to `length` bytes.
    count(|| iomap::write(&*socket(file)?, unsafe { bytes(at, length)? }, offset, flags))
}
