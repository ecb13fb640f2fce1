//! Lines: opens them, and moves frames between them and the node.
//!
//! Purpose          one task per line, which opens the line again whenever it has failed.
//! Transmit path    few frames are queued in front of a line, because LAPB's T1 starts when the link hands
//!                  over a frame. On a serial line, the next frame is taken when the previous one has been
//!                  sent.
//! Ethernet         frames of the type 6000, in the format of Linux's lapbether driver.
//! HDLC             a device of type ARPHRD_RAWHDLC, which passes frames unchanged. Its driver gives received
//!                  frames the protocol that is configured for the device, by default that of IP.
//! X.25 device      a device of type ARPHRD_X25 (`sethdlc x25`, lapbether), whose driver contains LAPB.
//! Limits           [`FRAMES_WAITING_MAX`] frames in front of the line; the octet-stuffing receiver keeps one
//!                  incomplete frame.

use super::address::LineAddress;
use super::input::{Input, layer};
use crate::socket;
use bytes::BytesMut;
use kiban_base::Rope;
use kiban_base::ethernet::{HEADER_BYTES, Header, Mac};
use kiban_os::packet::PacketLink;
use kiban_osi::lapb;
use kiban_osi::wire::lapb_framing::{Deframer, ETHER_TYPE_LAPB, read_lapbether, stuff, write_lapbether};
use kiban_osi::x25::switch::PortId;
use kiban_osi::x25::{Channels, Config, Interface, Modulo, Role, Sizes, Timers};
use rustix::fs::{Mode, OFlags};
use rustix::termios::{ControlModes, OptionalActions, tcdrain, tcgetattr, tcsetattr};
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::net::unix::pipe;
use tokio::sync::{Notify, mpsc};

/// Maximum number of frames that wait for a line.
const FRAMES_WAITING_MAX: usize = 2;
/// How long after a failure a line is opened again.
const REOPEN_DELAY: Duration = Duration::from_secs(1);
/// The delay before the link of a line is set up again.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// The protocol of frames from a raw HDLC device.
const ETHER_TYPE_IP: u16 = 0x0800;
/// The protocol of packets from an X.25 device.
const ETHER_TYPE_X25: u16 = 0x0805;
/// Maximum length of a frame that a device can deliver, in bytes.
const FRAME_BYTES_MAX: usize = 8192;
/// The longest packet that fits into a frame on an Ethernet with its usual MTU.
const PACKET_BYTES_MAX_ETHERNET: u16 = 1024;
/// The length of a packet header and of a LAPB header, at most.
const HEADERS_BYTES_MAX: usize = 4 + 3;

/// Settings of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineSettings {
    /// Where the line is.
    pub address: LineAddress,
    /// Whether this end is the DTE or the DCE.
    pub role: Role,
    /// Packet sequence numbering.
    pub modulo: Modulo,
    /// Default packet size in octets: a power of two from 16 to 4096.
    pub packet_bytes: u16,
    /// Default window in packets.
    pub window: u8,
    /// The two-way logical channels.
    pub channels: RangeInclusive<u16>,
    /// Frame sequence numbering.
    pub link_modulo: lapb::Modulo,
    /// k: the maximum number of unacknowledged frames.
    pub link_window: u8,
    /// T1: the time limit for the answer to a frame.
    pub reply_timeout: Duration,
    /// N2: the maximum number of times a frame is sent.
    pub attempts: u32,
    /// The time limit for the answer to a call, and for the confirmation of a clear.
    pub state_timeout: Option<Duration>,
}

impl LineSettings {
    /// Returns common values: modulo 8, packets of 128 octets, windows of 2, channels 1 to 255, k = 7, T1 of
    /// 3 s, N2 = 10.
    pub fn new(address: LineAddress, role: Role) -> LineSettings {
        let link = lapb::Config::new(role);
        LineSettings {
            address,
            role,
            modulo: Modulo::Eight,
            packet_bytes: 128,
            window: 2,
            channels: 1..=255,
            link_modulo: link.modulo,
            link_window: link.window,
            reply_timeout: link.reply_timeout,
            attempts: link.attempts_max,
            state_timeout: None,
        }
    }

    /// Creates the interface, whose link is down.
    pub(super) fn interface(&self, unit_bytes_max: usize) -> Interface {
        let is_ethernet = matches!(self.address, LineAddress::Ethernet(..));
        let packet_max = if is_ethernet { PACKET_BYTES_MAX_ETHERNET } else { 4096 };
        let mut timers = Timers::of(self.role);
        if let Some(timeout) = self.state_timeout {
            (timers.call, timers.clear) = (timeout, timeout);
        }
        let config = Config {
            modulo: self.modulo,
            channels: Channels { two_way: Some(self.channels.clone()), ..Channels::default() },
            default: Sizes::same(self.packet_bytes.min(packet_max), self.window),
            packet_bytes_max: packet_max,
            window_max: self.modulo.mask(),
            timers,
            ..layer(self.role, unit_bytes_max)
        };
        let interface = match self.address {
            LineAddress::Device(_) => Interface::on_device(config),
            _ => {
                let link = lapb::Config {
                    modulo: self.link_modulo,
                    window: self.link_window,
                    reply_timeout: self.reply_timeout,
                    attempts_max: self.attempts,
                    information_bytes_max: usize::from(packet_max) + 4,
                    ..lapb::Config::new(self.role)
                };
                Interface::new(link, config)
            }
        };
        interface.with_retry_delay(RETRY_DELAY)
    }
}

/// How frames are carried on a network device.
#[derive(Clone, Copy)]
enum Carriage {
    /// In Ethernet frames to this address; the second address is this end's.
    Ethernet(Mac, Mac),
    /// Unchanged.
    Raw,
}

/// An open line.
enum Opened {
    Stream(Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>, Option<OwnedFd>),
    Device(PacketLink, Carriage),
}

/// A line's connection to its node.
pub(super) struct LineTask {
    pub(super) port: PortId,
    pub(super) address: LineAddress,
    pub(super) node: mpsc::Sender<Input>,
    /// Wakes the node when a frame has been sent.
    pub(super) sent: Arc<Notify>,
    pub(super) listener: Option<TcpListener>,
}

impl LineTask {
    /// Keeps the line open for as long as the node exists.
    pub(super) async fn run(mut self) {
        loop {
            let failure = match self.open().await {
                Ok(opened) => {
                    let (frames, queued) = mpsc::channel(FRAMES_WAITING_MAX);
                    if self.node.send(Input::LineOpen(self.port, frames)).await.is_err() {
                        return;
                    }
                    self.carry(opened, queued).await
                }
                Err(error) => error,
            };
            let gone = Input::LineGone(self.port, failure.to_string());
            if self.node.send(gone).await.is_err() {
                return;
            }
            tokio::time::sleep(REOPEN_DELAY).await;
        }
    }

    async fn open(&mut self) -> io::Result<Opened> {
        match &self.address {
            LineAddress::Serial(path, speed) => open_serial(path, *speed),
            LineAddress::Connect(host, port) => {
                let (from, to) = socket::connect(host, *port).await?.into_split();
                Ok(Opened::Stream(Box::new(from), Box::new(to), None))
            }
            LineAddress::Listen(_) => {
                let listener = self.listener.as_ref().expect("the node has opened it");
                let (from, to) = socket::accept(listener).await?.0.into_split();
                Ok(Opened::Stream(Box::new(from), Box::new(to), None))
            }
            LineAddress::Ethernet(name, peer) => {
                let device = PacketLink::open(name, ETHER_TYPE_LAPB)?;
                let carriage = Carriage::Ethernet(peer.unwrap_or(Mac::BROADCAST), device.mac());
                Ok(Opened::Device(device, carriage))
            }
            LineAddress::Hdlc(name) => {
                Ok(Opened::Device(PacketLink::open(name, ETHER_TYPE_IP)?, Carriage::Raw))
            }
            LineAddress::Device(name) => {
                Ok(Opened::Device(PacketLink::open(name, ETHER_TYPE_X25)?, Carriage::Raw))
            }
        }
    }

    /// Moves frames both ways until the line fails.
    async fn carry(&self, opened: Opened, frames: mpsc::Receiver<Rope>) -> io::Error {
        let ended = match opened {
            Opened::Stream(from, to, tty) => {
                tokio::select! {
                    ended = self.read_stream(from) => ended,
                    ended = self.write_stream(to, tty, frames) => ended,
                }
            }
            Opened::Device(device, carriage) => {
                tokio::select! {
                    ended = self.read_device(&device, carriage) => ended,
                    ended = self.write_device(&device, carriage, frames) => ended,
                }
            }
        };
        ended.err().unwrap_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "the peer closed it"))
    }

    async fn arrived(&self, frame: Rope) -> io::Result<()> {
        let arrived = self.node.send(Input::Arrived(self.port, frame)).await;
        arrived.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    async fn read_stream(&self, mut from: Box<dyn AsyncRead + Send + Unpin>) -> io::Result<()> {
        let mut deframer = Deframer::new(FRAME_BYTES_MAX);
        let (mut buffer, mut frames) = (BytesMut::new(), Vec::new());
        loop {
            buffer.clear();
            buffer.reserve(4096);
            if from.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
            deframer.arrive(&buffer, |frame| frames.push(frame));
            for frame in frames.drain(..) {
                self.arrived(frame).await?;
            }
        }
    }

    async fn write_stream(
        &self,
        mut to: Box<dyn AsyncWrite + Send + Unpin>,
        tty: Option<OwnedFd>,
        mut frames: mpsc::Receiver<Rope>,
    ) -> io::Result<()> {
        let tty = tty.map(Arc::new);
        while let Some(frame) = frames.recv().await {
            to.write_all(&stuff(&frame.to_vec())).await?;
            if let Some(tty) = tty.clone() {
                // T1 of the next frame must not include the time that this frame waits in the driver.
                let drained =
                    kiban_tokio::runtime::blocking(c"kiban-x25-line", move || tcdrain(&*tty))?.await;
                drained.map_err(io::Error::other)??;
            }
            self.sent.notify_one();
        }
        Ok(())
    }

    async fn read_device(&self, device: &PacketLink, carriage: Carriage) -> io::Result<()> {
        // The type for pipes also drives other descriptors that epoll can wait for; a read returns one frame.
        let from = pipe::Receiver::from_owned_fd_unchecked(device.as_fd().try_clone_to_owned()?)?;
        let mut buffer = vec![0; FRAME_BYTES_MAX];
        loop {
            from.readable().await?;
            let count = match from.try_read(&mut buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            };
            match carriage {
                Carriage::Raw => self.arrived(Rope::copied(&buffer[..count])).await?,
                Carriage::Ethernet(peer, _) => {
                    let payload = buffer.get(HEADER_BYTES..count).unwrap_or_default();
                    let is_expected = match Header::read(&buffer[..count]) {
                        Ok((header, _)) => peer.is_group() || header.source == peer,
                        Err(_) => false,
                    };
                    if let Ok(frame) = read_lapbether(payload)
                        && is_expected
                    {
                        self.arrived(Rope::copied(frame)).await?;
                    }
                }
            }
        }
    }

    async fn write_device(
        &self,
        device: &PacketLink,
        carriage: Carriage,
        mut frames: mpsc::Receiver<Rope>,
    ) -> io::Result<()> {
        while let Some(mut frame) = frames.recv().await {
            if let Carriage::Ethernet(target, source) = carriage {
                write_lapbether(&mut frame);
                let mut header = [0; HEADER_BYTES];
                Header { target, source, ether_type: ETHER_TYPE_LAPB }.write(&mut header);
                frame.prepend(&header);
            }
            // If the device does not take the frame, it is lost as on any line, and LAPB sends it again.
            device.send(&frame.to_vec());
            self.sent.notify_one();
        }
        Ok(())
    }
}

/// Opens a serial line with 8 bits, no parity and no flow control.
fn open_serial(path: &Path, speed: Option<u32>) -> io::Result<Opened> {
    let explain = |error: rustix::io::Errno| {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("cannot open {}: {error}", path.display()))
    };
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let tty = rustix::fs::open(path, flags, Mode::empty()).map_err(explain)?;
    let mut settings = tcgetattr(&tty).map_err(explain)?;
    settings.make_raw();
    settings.control_modes |= ControlModes::CLOCAL | ControlModes::CREAD | ControlModes::CS8;
    settings.control_modes &= !(ControlModes::CRTSCTS | ControlModes::PARENB | ControlModes::CSTOPB);
    if let Some(speed) = speed {
        settings.set_speed(speed).map_err(explain)?;
    }
    tcsetattr(&tty, OptionalActions::Now, &settings).map_err(explain)?;
    let again = || tty.as_fd().try_clone_to_owned();
    // The types for pipes also drive other descriptors that epoll can wait for.
    let from = pipe::Receiver::from_owned_fd_unchecked(again()?)?;
    let to = pipe::Sender::from_owned_fd_unchecked(again()?)?;
    Ok(Opened::Stream(Box::new(from), Box::new(to), Some(tty)))
}

// Every frame of an interface fits into the buffers here.
const _: () = assert!(FRAME_BYTES_MAX > 4096 + HEADERS_BYTES_MAX + HEADER_BYTES + 2);
