//! TUN devices of this host's kernel.

use crate::device::{Device, Port};
use kiban_base::Pdu;
use kiban_link::frames::tun::{TunLink, TunMode};
use kiban_link::{BURST, BURST_BYTES, Link, LinkContext, LinkTraits};
use kiban_tokio::unix::register_file;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::time::Sleep;

/// How long packets stay in the device while there is no memory for them.
const NO_MEMORY_PAUSE: Duration = Duration::from_millis(1);

/// A TUN device: IP packets to and from this host's kernel.
///
/// The kernel passes TCP segments of up to 64 KB uncut in both directions, and leaves out their checksums
/// (virtio-net headers, `TUNSETOFFLOAD`). On systems without this support, each segment is a packet.
///
/// Creating a device needs CAP_NET_ADMIN in the network namespace; a user can open a device that root has
/// created for that user. Its addresses and routes are set as usual:
///
/// ```console
/// # ip address add 10.0.0.1/24 dev tun0; ip link set tun0 up
/// ```
#[derive(Debug)]
pub struct Tun {
    link: TunLink,
}

impl Tun {
    /// Opens a device, or creates it if there is none by that name; a device created here is removed with the
    /// stack. The MTU is the interface's, so set it before.
    ///
    /// # Errors
    /// The process lacks the privilege, or another program uses the device.
    pub fn open(name: &str) -> io::Result<Tun> {
        Ok(Tun { link: TunLink::open(name, TunMode::Packets, true)? })
    }

    /// Uses a device that is already open, for example by a process in another network namespace, whose MTU
    /// is given in bytes. It must be a TUN device that was opened with `IFF_NO_PI`, with or without
    /// `IFF_VNET_HDR`.
    ///
    /// # Errors
    /// `InvalidInput`: the file is not a TUN device.
    pub fn of_file(file: OwnedFd, mtu_bytes: usize) -> io::Result<Tun> {
        let link = TunLink::of_file(file, mtu_bytes)?;
        if link.carries() != TunMode::Packets {
            let why = "the file is a TAP device, which carries Ethernet frames: open a TUN device";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(Tun { link })
    }

    /// Returns the interface's name.
    pub fn name(&self) -> &str {
        self.link.name()
    }

    /// Reads the interface's MTU again after it has been changed.
    ///
    /// # Errors
    /// The device is gone.
    pub fn refresh_mtu(&mut self) -> io::Result<()> {
        self.link.refresh_mtu()
    }
}

impl From<Tun> for Device {
    fn from(tun: Tun) -> Device {
        Device(Box::new(TunPort { link: tun.link, file: None, pause: None }))
    }
}

struct TunPort {
    link: TunLink,
    /// A duplicate of the device's descriptor, registered with the task's runtime.
    file: Option<AsyncFd<OwnedFd>>,
    /// Set while packets wait in the device because there is no memory.
    pause: Option<Pin<Box<Sleep>>>,
}

impl Port for TunPort {
    fn traits(&self) -> LinkTraits {
        self.link.traits()
    }

    fn register(&mut self) -> io::Result<()> {
        let file = self.link.file().expect("a device has a file").try_clone_to_owned()?;
        self.file = Some(register_file(file)?);
        Ok(())
    }

    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        lent: &mut LinkContext<'_>,
        into: &mut VecDeque<Pdu>,
    ) -> Poll<io::Result<()>> {
        let TunPort { link, file, pause } = self;
        let file = file.as_ref().expect("a device is registered first");
        if let Some(sleep) = pause {
            ready!(sleep.as_mut().poll(cx));
            *pause = None;
        }
        loop {
            let mut guard = ready!(file.poll_read_ready(cx))?;
            let before = link.counters();
            link.receive(lent, into)?;
            let after = link.counters();
            if after.no_memory > before.no_memory {
                let mut sleep = Box::pin(tokio::time::sleep(NO_MEMORY_PAUSE));
                if sleep.as_mut().poll(cx).is_pending() {
                    *pause = Some(sleep);
                }
            }
            let units = after.units_in + after.malformed - before.units_in - before.malformed;
            // A full burst may have left packets in the device. Otherwise, it was read until it had no more.
            let is_full = units >= BURST as u64 || after.bytes_in - before.bytes_in >= BURST_BYTES;
            if pause.is_none() && !is_full {
                guard.clear_ready();
            }
            if units > 0 || pause.is_some() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        units: &mut VecDeque<Pdu>,
        lent: &mut LinkContext<'_>,
    ) -> Poll<io::Result<()>> {
        let file = self.file.as_ref().expect("a device is registered first");
        loop {
            self.link.send(units, lent)?;
            if units.is_empty() {
                return Poll::Ready(Ok(()));
            }
            // The device has refused a packet, so readiness that was noticed earlier is out of date.
            ready!(file.poll_write_ready(cx))?.clear_ready();
        }
    }
}
