//! Devices: where a stack's packets come from and go to.
//!
//! Packets          a [`PacketDevice`] carries one IP packet per call. The board cuts and merges TCP segments
//!                  itself, so TCP runs once for up to 64 KB, whatever the MTU.
//! Back-pressure    a packet that the device does not take stays in the board, whose queue holds back the
//!                  senders.

use kiban_base::Pdu;
use kiban_link::unit::{ReceivePage, Unit};
use kiban_link::{BURST, LinkContext, LinkTraits};
use kiban_tcpip::wire::ipv4::PACKET_BYTES_MAX;
use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll};

/// A source and sink of IP packets, such as a tunnel or a virtual machine's network card.
///
/// The methods are called under the stack's lock: they must not block, and must not use the stack.
///
/// ```
/// use kiban_stack::{PacketDevice, Stack};
/// use std::io;
/// use std::task::{Context, Poll, ready};
/// use tokio::net::UdpSocket;
///
/// /// IP packets in UDP datagrams.
/// struct Tunnel(UdpSocket);
///
/// impl PacketDevice for Tunnel {
///     fn mtu_bytes(&self) -> usize {
///         1400
///     }
///     fn poll_receive(&mut self, cx: &mut Context<'_>, packet: &mut [u8]) -> Poll<io::Result<usize>> {
///         let mut buffer = tokio::io::ReadBuf::new(packet);
///         match ready!(self.0.poll_recv(cx, &mut buffer)) {
///             Ok(()) => Poll::Ready(Ok(buffer.filled().len())),
///             // The other end is not there yet; an empty packet is dropped.
///             Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Poll::Ready(Ok(0)),
///             Err(error) => Poll::Ready(Err(error)),
///         }
///     }
///     fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
///         match ready!(self.0.poll_send(cx, packet)) {
///             Err(error) if error.kind() != io::ErrorKind::ConnectionRefused => Poll::Ready(Err(error)),
///             // Sent or lost, as in networks.
///             _ => Poll::Ready(Ok(())),
///         }
///     }
/// }
///
/// # async fn example(socket: UdpSocket) -> io::Result<()> {
/// let stack = Stack::new(Tunnel(socket))?;
/// # Ok(())
/// # }
/// ```
pub trait PacketDevice: Send + 'static {
    /// Returns the longest IP packet that the device carries, in bytes: 576 to 65,535. It is read once.
    fn mtu_bytes(&self) -> usize;

    /// Receives the next packet, from its IP header on, into `packet`, which has room for 65,535 bytes.
    /// Returns the packet's length. Malformed packets are dropped by the stack.
    ///
    /// # Errors
    /// The device has failed; the stack ends.
    fn poll_receive(&mut self, cx: &mut Context<'_>, packet: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Sends a packet, or drops it, as networks do. While the device returns `Pending`, the stack's senders
    /// wait; the same packet is passed again.
    ///
    /// # Errors
    /// The device has failed; the stack ends.
    fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>>;
}

/// Any device of a stack: a [`PacketDevice`], or a [`Tun`](crate::Tun).
pub struct Device(pub(crate) Box<dyn Port>);

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Device")
    }
}

impl<D: PacketDevice> From<D> for Device {
    fn from(device: D) -> Device {
        let (received, sent) = (vec![0; PACKET_BYTES_MAX].into(), Vec::new());
        Device(Box::new(Packets { device, page: ReceivePage::default(), received, sent }))
    }
}

/// A device as the board's port sees it.
pub(crate) trait Port: Send {
    fn traits(&self) -> LinkTraits;

    /// Registers the device with the current runtime, before the first call of another method.
    fn register(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Appends a burst of packets. Returns `Pending` once there are no more.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        lent: &mut LinkContext<'_>,
        into: &mut VecDeque<Pdu>,
    ) -> Poll<io::Result<()>>;

    /// Sends packets from the front of `units`. Returns `Pending` if some are left.
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        units: &mut VecDeque<Pdu>,
        lent: &mut LinkContext<'_>,
    ) -> Poll<io::Result<()>>;
}

/// A packet device, with the buffers through which packets pass.
struct Packets<D> {
    device: D,
    page: ReceivePage,
    /// Room for the longest packet.
    received: Box<[u8]>,
    sent: Vec<u8>,
}

impl<D: PacketDevice> Port for Packets<D> {
    fn traits(&self) -> LinkTraits {
        LinkTraits { mtu_bytes: self.device.mtu_bytes(), whole_segments: false }
    }

    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        lent: &mut LinkContext<'_>,
        into: &mut VecDeque<Pdu>,
    ) -> Poll<io::Result<()>> {
        let Packets { device, page, received, .. } = self;
        for _ in 0..BURST {
            match device.poll_receive(cx, received) {
                Poll::Ready(Ok(length)) => {
                    let packet = received.get(..length).unwrap_or_default();
                    // A packet that is empty, or for which there is no memory, is lost.
                    into.extend(Pdu::from_received(packet, page, lent));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        units: &mut VecDeque<Pdu>,
        lent: &mut LinkContext<'_>,
    ) -> Poll<io::Result<()>> {
        let Packets { device, sent, .. } = self;
        while let Some(pdu) = units.front() {
            sent.clear();
            pdu.append_to(sent);
            std::task::ready!(device.poll_send(cx, sent))?;
            units.pop_front().into_iter().for_each(|pdu| lent.memory.pdus.give(pdu));
        }
        Poll::Ready(Ok(()))
    }
}
