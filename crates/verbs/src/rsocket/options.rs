//! Options of rsockets (rsetsockopt, rgetsockopt).
//!
//! Purpose   provides the options of rdma-core, with its defaults. Other options fail with ENOTSUP, as in
//!           rdma-core.
//! Sizes     are fixed once a connection has been started.
//! TCP       most TCP options are accepted without effect: the NIC never delays data, and has its own
//!           keep-alive.

use super::stream::Sizes;
use super::wire::{scaled, unscaled};
use core::ffi::{c_int, c_void};
use libc::socklen_t;

/// The level of rsocket options (`rdma/rsocket.h`).
const SOL_RDMA: c_int = 0x10000;
const RDMA_SQSIZE: c_int = 0;
const RDMA_RQSIZE: c_int = 1;
const RDMA_INLINE: c_int = 2;
const RDMA_IOMAPSIZE: c_int = 3;
const RDMA_ROUTE: c_int = 4;

/// The minimum and maximum number of entries in a queue.
const WORKS: (u16, u16) = (16, 16384);
/// The minimum and maximum size of a buffer in bytes.
const BUFFER: (u32, u32) = (4096, 64 << 20);
/// The maximum number of bytes that the NIC sends inline.
const INLINE_MAX: u16 = 512;

/// A socket's options.
#[derive(Clone, Debug)]
pub(super) struct Options {
    send_bytes: u32,
    receive_bytes: u32,
    send_works: u16,
    receive_works: u16,
    inline_bytes: u16,
    iomap: u16,
    pub(super) only_v6: bool,
    reuse_address: bool,
    keep_alive: bool,
    keep_alive_seconds: c_int,
    out_of_band_inline: bool,
    linger: (bool, c_int),
    no_delay: bool,
    tos: c_int,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            send_bytes: 1 << 18,
            receive_bytes: 1 << 19,
            send_works: 384,
            receive_works: 384,
            inline_bytes: 64,
            iomap: 0,
            only_v6: false,
            reuse_address: false,
            keep_alive: false,
            keep_alive_seconds: 7200,
            out_of_band_inline: false,
            linger: (true, 0),
            no_delay: false,
            tos: 0,
        }
    }
}

/// Reads an int that the program passes.
///
/// # Safety
/// `at` points to `bytes` bytes, or is null.
unsafe fn int(at: *const c_void, bytes: socklen_t) -> Result<c_int, c_int> {
    if at.is_null() {
        return Err(libc::EFAULT);
    }
    if (bytes as usize) < size_of::<c_int>() {
        return Err(libc::EINVAL);
    }
    // SAFETY: `at` points to at least four bytes, as checked above; they may be unaligned.
    Ok(unsafe { at.cast::<c_int>().read_unaligned() })
}

fn works(value: c_int) -> u16 {
    value.clamp(c_int::from(WORKS.0), c_int::from(WORKS.1)) as u16
}

/// Returns twice the requested size, as Linux does.
fn buffer(value: c_int) -> u32 {
    let wanted = u32::try_from(value).unwrap_or(u32::MAX).saturating_mul(2);
    wanted.clamp(BUFFER.0, BUFFER.1).next_multiple_of(128)
}

impl Options {
    /// Returns the sizes of a connection.
    pub(super) fn sizes(&self) -> Sizes {
        Sizes {
            send_bytes: self.send_bytes as usize,
            receive_bytes: self.receive_bytes as usize,
            send_works: self.send_works,
            receive_works: self.receive_works,
            inline_bytes: usize::from(self.inline_bytes),
            iomap: self.iomap,
        }
    }

    /// Sets an option. Sizes cannot be changed if `is_open` is true.
    ///
    /// # Safety
    /// `at` points to `bytes` bytes, or is null.
    pub(super) unsafe fn set(
        &mut self,
        level: c_int,
        name: c_int,
        at: *const c_void,
        bytes: socklen_t,
        is_open: bool,
    ) -> Result<(), c_int> {
        // SAFETY: the caller of `set` guarantees that `at` is null or points to `bytes` bytes.
        let value = unsafe { int(at, bytes) };
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => self.reuse_address = value? != 0,
            (libc::SOL_SOCKET, libc::SO_RCVBUF) if !is_open => self.receive_bytes = buffer(value?),
            (libc::SOL_SOCKET, libc::SO_SNDBUF) if !is_open => self.send_bytes = buffer(value?),
            (libc::SOL_SOCKET, libc::SO_RCVBUF | libc::SO_SNDBUF) => drop(value?),
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let on = value?;
                if (bytes as usize) < size_of::<libc::linger>() {
                    return Err(libc::EINVAL);
                }
                // SAFETY: `at` points to at least as many bytes as a `linger` has, as checked above; they may
                // be unaligned.
                let linger = unsafe { at.cast::<libc::linger>().read_unaligned() };
                self.linger = (on != 0, linger.l_linger);
            }
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => self.keep_alive = value? != 0,
            (libc::SOL_SOCKET, libc::SO_OOBINLINE) => self.out_of_band_inline = value? != 0,
            (libc::IPPROTO_IP, libc::IP_TOS) => self.tos = value?,
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => match value? {
                seconds if seconds > 0 => self.keep_alive_seconds = seconds,
                _ => return Err(libc::EINVAL),
            },
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => self.no_delay = value? != 0,
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT | libc::TCP_KEEPINTVL | libc::TCP_MAXSEG) => drop(value?),
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {}
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => self.only_v6 = value? != 0,
            (SOL_RDMA, RDMA_SQSIZE..=RDMA_ROUTE) if is_open => return Err(libc::EINVAL),
            (SOL_RDMA, RDMA_SQSIZE) => self.send_works = works(value?),
            (SOL_RDMA, RDMA_RQSIZE) => self.receive_works = works(value?),
            (SOL_RDMA, RDMA_INLINE) => self.inline_bytes = value?.clamp(0, c_int::from(INLINE_MAX)) as u16,
            (SOL_RDMA, RDMA_IOMAPSIZE) => {
                self.iomap = unscaled(scaled(value?.clamp(0, c_int::from(u16::MAX)) as u16));
            }
            // An InfiniBand path is accepted and ignored.
            (SOL_RDMA, RDMA_ROUTE) => {}
            _ => return Err(libc::ENOTSUP),
        }
        Ok(())
    }

    /// Returns the value of a numeric option.
    pub(super) fn get(&self, level: c_int, name: c_int) -> Result<c_int, c_int> {
        Ok(match (level, name) {
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => self.reuse_address.into(),
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => self.keep_alive.into(),
            (libc::SOL_SOCKET, libc::SO_OOBINLINE) => self.out_of_band_inline.into(),
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => self.receive_bytes.cast_signed(),
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => self.send_bytes.cast_signed(),
            (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
            (libc::SOL_SOCKET, libc::SO_BROADCAST) => 0,
            (libc::IPPROTO_IP, libc::IP_TOS) => self.tos,
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => self.no_delay.into(),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => self.keep_alive_seconds,
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT | libc::TCP_KEEPINTVL | libc::TCP_CONGESTION) => 1,
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => 2048,
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => self.only_v6.into(),
            (SOL_RDMA, RDMA_SQSIZE) => self.send_works.into(),
            (SOL_RDMA, RDMA_RQSIZE) => self.receive_works.into(),
            (SOL_RDMA, RDMA_INLINE) => self.inline_bytes.into(),
            (SOL_RDMA, RDMA_IOMAPSIZE) => self.iomap.into(),
            _ => return Err(libc::ENOTSUP),
        })
    }

    /// Returns the value of SO_LINGER.
    pub(super) fn linger(&self) -> libc::linger {
        libc::linger { l_onoff: self.linger.0.into(), l_linger: self.linger.1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(
        options: &mut Options,
        level: c_int,
        name: c_int,
        value: c_int,
        is_open: bool,
    ) -> Result<(), c_int> {
        // SAFETY: `value` is a local `int` of four bytes.
        unsafe { options.set(level, name, (&raw const value).cast(), 4, is_open) }
    }

    #[test]
    fn options_are_reported_as_by_rdma_core() {
        let rows = [
            (libc::SOL_SOCKET, libc::SO_SNDBUF, 1000, 4096),
            (libc::SOL_SOCKET, libc::SO_RCVBUF, 1 << 20, 2 << 20),
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 7, 1),
            (libc::IPPROTO_TCP, libc::TCP_NODELAY, 1, 1),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 9, 9),
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1, 1),
            (libc::IPPROTO_IP, libc::IP_TOS, 16, 16),
            (SOL_RDMA, RDMA_SQSIZE, 1, 16),
            (SOL_RDMA, RDMA_RQSIZE, 100, 100),
            (SOL_RDMA, RDMA_INLINE, 4096, 512),
            (SOL_RDMA, RDMA_IOMAPSIZE, 200, 128),
        ];
        for (level, name, value, expected) in rows {
            let mut options = Options::default();
            assert_eq!(set(&mut options, level, name, value, false), Ok(()), "{level} {name}");
            assert_eq!(options.get(level, name), Ok(expected), "{level} {name}");
        }
    }

    #[test]
    fn wrong_values_and_unknown_options_are_refused() {
        let mut options = Options::default();
        let rows = [
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 0, false, libc::EINVAL),
            (SOL_RDMA, RDMA_SQSIZE, 64, true, libc::EINVAL),
            (SOL_RDMA, 99, 1, false, libc::ENOTSUP),
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO, 1, false, libc::ENOTSUP),
        ];
        for (level, name, value, is_open, error) in rows {
            assert_eq!(set(&mut options, level, name, value, is_open), Err(error), "{level} {name}");
        }
        let (level, name) = (libc::IPPROTO_TCP, libc::TCP_NODELAY);
        let value = 1u8;
        // SAFETY: null is refused before it is read, and one byte is too short to be read.
        unsafe {
            assert_eq!(options.set(level, name, core::ptr::null(), 4, false), Err(libc::EFAULT));
            assert_eq!(options.set(level, name, (&raw const value).cast(), 1, false), Err(libc::EINVAL));
        }
        assert_eq!(options.get(level, name), Ok(0));
    }
}
