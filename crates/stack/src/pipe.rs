//! A pair of packet devices in memory, for tests and for stacks within one process.

use crate::device::PacketDevice;
use kiban_os::lock;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// Maximum number of packets in each direction; then the sender waits.
const PACKETS_MAX: usize = 256;

/// One direction.
#[derive(Default)]
struct Way {
    packets: VecDeque<Vec<u8>>,
    /// Buffers for further packets.
    spare: Vec<Vec<u8>>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    is_closed: bool,
}

/// One end of a [`pipe`].
pub struct Pipe {
    mtu_bytes: usize,
    from: Arc<Mutex<Way>>,
    to: Arc<Mutex<Way>>,
}

/// Returns two connected devices with an MTU in bytes. A direction holds 256 packets; when it is full, the
/// sender waits. When one end is dropped, the other fails with `BrokenPipe`.
pub fn pipe(mtu_bytes: usize) -> (Pipe, Pipe) {
    let (one, other) = (Arc::<Mutex<Way>>::default(), Arc::<Mutex<Way>>::default());
    (Pipe { mtu_bytes, from: one.clone(), to: other.clone() }, Pipe { mtu_bytes, from: other, to: one })
}

impl std::fmt::Debug for Pipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pipe({} bytes)", self.mtu_bytes)
    }
}

impl PacketDevice for Pipe {
    fn mtu_bytes(&self) -> usize {
        self.mtu_bytes
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>, packet: &mut [u8]) -> Poll<io::Result<usize>> {
        let way = &mut *lock(&self.from);
        let Some(bytes) = way.packets.pop_front() else {
            if way.is_closed {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            way.reader = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let length = bytes.len().min(packet.len());
        packet[..length].copy_from_slice(&bytes[..length]);
        way.spare.push(bytes);
        way.writer.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(length))
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
        let way = &mut *lock(&self.to);
        if way.is_closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if way.packets.len() >= PACKETS_MAX {
            way.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let mut bytes = way.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(packet);
        way.packets.push_back(bytes);
        way.reader.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        for way in [&self.from, &self.to] {
            let way = &mut *lock(way);
            way.is_closed = true;
            way.reader.take().into_iter().chain(way.writer.take()).for_each(Waker::wake);
        }
    }
}
