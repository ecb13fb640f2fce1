//! The TUN device between the kernel and the board or stub behind it, and counters of the bytes that cross
//! it.

use kiban_base::Instant;
use kiban_link::frames::tun::{TunLink, TunMode};
use kiban_os::interface;
use std::net::IpAddr;

/// The kernel's address, and the address of the board or stub behind the device.
pub(crate) const KERNEL: [u8; 4] = [10, 9, 0, 1];
pub(crate) const BEHIND: [u8; 4] = [10, 9, 0, 2];
/// The ports of the board or stub. On connections to the first port it receives bytes; on connections to the
/// second it sends bytes.
pub(super) const SINK: u16 = 9;
pub(super) const SOURCE: u16 = 19;
pub(crate) const DEVICE: &str = "kiban0";
/// The number of bytes that an application reads or writes at a time.
pub(super) const BUFFER_BYTES: usize = 256 << 10;

/// The direction of the payload, as seen by the board or stub behind the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    Receives,
    Sends,
}

/// The offloads of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Device {
    pub(super) mtu_bytes: usize,
    /// Whether segments larger than the MTU cross the device whole.
    pub(super) whole: bool,
}

impl Device {
    pub(super) fn mss(self) -> usize {
        self.mtu_bytes - 40
    }
}

/// The number of bytes transferred, and the times of the first and the last of them.
#[derive(Clone, Copy, Default)]
pub(super) struct Taken {
    pub(super) bytes: u64,
    pub(super) first: Option<Instant>,
    pub(super) last: Option<Instant>,
}

impl Taken {
    pub(super) fn take(&mut self, bytes: usize, now: Instant) {
        self.first.get_or_insert(now);
        self.last = Some(now);
        self.bytes += bytes as u64;
    }

    pub(super) fn gbit_per_second(&self) -> f64 {
        let (Some(first), Some(last)) = (self.first, self.last) else { return 0.0 };
        self.bytes as f64 * 8e-9 / last.since(first).as_secs_f64()
    }
}

/// Runs `work` in a thread with its own network namespace.
pub(crate) fn in_a_namespace<T: Send>(work: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            interface::enter_new_namespace().map_err(|error| error.to_string())?;
            work()
        });
        inside.join().expect("the thread ends by itself")
    })
}

/// Opens the device in this thread's namespace.
pub(super) fn open(device: Device) -> std::io::Result<TunLink> {
    let mut link = TunLink::open(DEVICE, TunMode::Packets, device.whole)?;
    interface::set_mtu(DEVICE, device.mtu_bytes)?;
    interface::set_queue(DEVICE, 1000)?;
    interface::set_address(DEVICE, IpAddr::from(KERNEL), 24)?;
    interface::set_up(DEVICE)?;
    link.refresh_mtu()?;
    Ok(link)
}
