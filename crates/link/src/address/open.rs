//! Opens the link at an address.

use super::types::{Address, AnyLink, Ends, Host, Options, Transport};
use super::types::{MTU_BYTES, UDP_MTU_BYTES};
use crate::Link;
use crate::cells::atmtcp::AtmTcp;
use crate::cells::pseudowire;
use crate::cells::pseudowire::{Pseudowire, PseudowireConfig};
use crate::cells::stream::{StreamUnits, UdpUnits};
use crate::cells::udp_cells::UdpCells;
use crate::cells::unix_datagrams::UnixDatagrams;
use crate::frames::ethernet::EthernetLink;
use crate::frames::tun::{TunLink, TunMode};
use crate::frames::xdp::XdpLink;
use crate::impair::{ImpairConfig, Impaired};
use crate::pcap::{Capture, Replay, UnitKind};
use crate::record::Recorded;
use crate::unit::Unit;
use kiban_atm::TimedCell;
use kiban_base::Pdu;
use kiban_base::ethernet::{HEADER_BYTES, Mac};
use kiban_board::impairment::ImpairmentConfig;
use kiban_os::interface;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::BorrowedFd;

impl Host {
    /// Resolves the host to its addresses.
    pub(super) fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let say = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot find host {}: {error}", self.name))
        };
        let addresses: Vec<SocketAddr> =
            (self.name.as_str(), self.port).to_socket_addrs().map_err(say)?.collect();
        if addresses.is_empty() {
            return Err(say(io::Error::new(io::ErrorKind::NotFound, "the name has no address")));
        }
        Ok(addresses)
    }
}

impl Ends {
    /// Resolves the peer to an address of the same family as the local address.
    pub(super) fn peer(&self) -> io::Result<SocketAddr> {
        let addresses = self.peer.resolve()?;
        let same = addresses.iter().find(|address| address.is_ipv4() == self.local.is_ipv4());
        same.or(addresses.first()).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Address {
    /// Returns the MAC address that a board on this link must use; `None` if the board chooses one.
    ///
    /// # Errors
    /// The interface does not exist.
    pub fn mac(&self) -> io::Result<Option<Mac>> {
        match &self.transport {
            Transport::Packet(name) | Transport::Xdp(name) => interface::mac(name).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns whether units are impaired deliberately.
    pub fn is_impaired(&self) -> bool {
        let Options { loss, corrupt, duplicate, reorder, delay, jitter, rate, .. } = &self.options;
        [loss, corrupt, duplicate, reorder].iter().any(|share| **share > 0.0)
            || !delay.is_zero()
            || !jitter.is_zero()
            || rate.is_some()
    }

    /// Opens the link.
    ///
    /// # Errors
    /// The link cannot be opened; the message says why and how to fix it.
    pub fn open(&self) -> io::Result<AnyLink> {
        self.open_one(false)
    }

    /// Opens the link with a queue for each of several shards. Most links of cells have one, for shard 0.
    ///
    /// # Errors
    /// Same as for [`Address::open`]; also if the transport has only one queue.
    pub fn open_queues(&self, queues: usize) -> io::Result<Vec<AnyLink>> {
        if queues == 1 {
            return Ok(vec![self.open()?]);
        }
        if self.carries_cells() && !self.has_queues() {
            return Ok(vec![self.open()?]);
        }
        let Options { promiscuous, device_queue, .. } = self.options;
        match &self.transport {
            Transport::Tun(_) | Transport::Tap(_) => (0..queues).map(|_| self.open_one(true)).collect(),
            Transport::Udp(UnitKind::Cells, ends) => {
                let packed = self.options.packed.unwrap_or(1);
                let links = UdpCells::open_group(ends.local, ends.peer()?, packed, queues)?;
                links.into_iter().map(|link| self.cells(link)).collect()
            }
            Transport::Packet(name) => {
                let links = EthernetLink::open_queues(name, self.offload(), promiscuous, queues)?;
                links.into_iter().map(|link| self.frames(link)).collect()
            }
            Transport::Xdp(name) => {
                let first = device_queue.unwrap_or(0);
                let links = XdpLink::open_queues(name, first..first + queues as u32, promiscuous)?;
                links.into_iter().map(|link| self.frames(link)).collect()
            }
            _ => {
                let why =
                    format!("{} has one queue: several shards need {}", self.transport, Address::WITH_QUEUES);
                Err(io::Error::new(io::ErrorKind::Unsupported, why))
            }
        }
    }

    /// The links that can have several queues, for messages.
    pub const WITH_QUEUES: &str = "tun:, tap:, packet: or xdp:, or a link of cells";

    /// Returns whether the link carries cells. A capture's link type is not known before it is opened.
    pub fn carries_cells(&self) -> bool {
        use Transport::{AtmTcp, Pseudowire, Tcp, Udp};
        matches!(
            self.transport,
            Udp(UnitKind::Cells, _) | Tcp(UnitKind::Cells, ..) | AtmTcp(..) | Pseudowire(_)
        )
    }

    /// Returns whether the link can have several queues. Cells that are impaired or recorded have one.
    pub fn has_queues(&self) -> bool {
        use Transport::{Packet, Tap, Tun, Udp, Xdp};
        match self.transport {
            Udp(UnitKind::Cells, _) => !self.is_impaired() && self.options.record.is_none(),
            _ => matches!(self.transport, Tun(_) | Tap(_) | Packet(_) | Xdp(_)),
        }
    }

    /// Returns whether large segments pass through uncut, if the link can carry them.
    fn offload(&self) -> bool {
        self.options.offload.unwrap_or(!self.is_impaired())
    }

    fn open_one(&self, is_queue: bool) -> io::Result<AnyLink> {
        let options = &self.options;
        let offload = self.offload();
        let name = self.transport.to_string();
        let mtu = options.mtu.unwrap_or(MTU_BYTES);
        let open_tun = if is_queue { TunLink::open_queue } else { TunLink::open };
        let udp_mtu = |holds: UnitKind| {
            let taken = if holds == UnitKind::Frames { HEADER_BYTES } else { 0 };
            options.mtu.unwrap_or(UDP_MTU_BYTES - taken)
        };
        Ok(match &self.transport {
            Transport::Tun(name) => self.packets(open_tun(name, TunMode::Packets, offload)?)?,
            Transport::Tap(name) => self.frames(open_tun(name, TunMode::Frames, offload)?)?,
            Transport::TapFile(number) => {
                // SAFETY: the descriptor is borrowed only for the call, which fails if it is not open.
                let file = unsafe { BorrowedFd::borrow_raw(*number) }.try_clone_to_owned()?;
                self.frames(TunLink::of_file(file, mtu)?)?
            }
            Transport::Packet(name) => {
                self.frames(EthernetLink::open(name, offload, options.promiscuous)?)?
            }
            Transport::Xdp(name) => {
                let queue = options.device_queue.unwrap_or(0);
                self.frames(XdpLink::open(name, queue, options.promiscuous)?)?
            }
            Transport::Udp(UnitKind::Cells, ends) => {
                self.cells(UdpCells::open(ends.local, ends.peer()?, options.packed.unwrap_or(1))?)?
            }
            Transport::Udp(holds, ends) => {
                let link = UdpUnits::open(ends.local, ends.peer()?, &name, udp_mtu(*holds))?;
                if *holds == UnitKind::Frames { self.frames(link)? } else { self.packets(link)? }
            }
            Transport::Tcp(holds, role, host) => {
                let addresses = &host.resolve()?;
                match holds {
                    UnitKind::Packets => self.packets(StreamUnits::open(*role, addresses, &name, mtu)?)?,
                    UnitKind::Frames => self.frames(StreamUnits::open(*role, addresses, &name, mtu)?)?,
                    UnitKind::Cells => self.cells(StreamUnits::open(*role, addresses, &name, 0)?)?,
                }
            }
            Transport::Unix(role, path) => self.frames(StreamUnits::open_unix(*role, path, &name, mtu)?)?,
            Transport::UnixDatagrams(own, peer) => {
                self.frames(UnixDatagrams::open(own, peer, &name, mtu)?)?
            }
            Transport::AtmTcp(role, host) => {
                self.cells(AtmTcp::open(*role, &host.resolve()?, &name, &options.aal0)?)?
            }
            Transport::Pseudowire(ends) => {
                let label = options.label.unwrap_or(pseudowire::LABEL_FIRST);
                let config = PseudowireConfig {
                    label,
                    label_in: options.label_in.unwrap_or(label),
                    control_word: options.control_word,
                    sequence: options.sequence.unwrap_or(true),
                    cells_max: options.cells.unwrap_or(pseudowire::CELLS),
                };
                self.cells(Pseudowire::open(ends.local, ends.peer()?, config)?)?
            }
            Transport::Pcap(file) => {
                let capture = Capture::open(file)?;
                let holds = capture.unit_kind();
                let replay = Replay::new(capture, options.take, options.speed, mtu);
                match holds {
                    Some(UnitKind::Cells) => self.cells(replay)?,
                    Some(UnitKind::Frames) => self.frames(replay)?,
                    _ => self.packets(replay)?,
                }
            }
        })
    }

    pub(super) fn packets(&self, link: impl Link<Pdu> + 'static) -> io::Result<AnyLink> {
        Ok(AnyLink::Packets(self.around(Box::new(link), false)?))
    }

    pub(super) fn frames(&self, link: impl Link<Pdu> + 'static) -> io::Result<AnyLink> {
        Ok(AnyLink::Frames(self.around(Box::new(link), true)?))
    }

    pub(super) fn cells(&self, link: impl Link<TimedCell> + 'static) -> io::Result<AnyLink> {
        Ok(AnyLink::Cells(self.around(Box::new(link), false)?))
    }

    /// Wraps a link in its impairments, and then in a recorder, which records the traffic as the board sees
    /// it.
    pub(super) fn around<U: Unit>(
        &self,
        link: Box<dyn Link<U>>,
        frames: bool,
    ) -> io::Result<Box<dyn Link<U>>> {
        let link: Box<dyn Link<U>> = match self.impairment() {
            Some(config) => Box::new(Impaired::new(link, config)),
            None => link,
        };
        Ok(match &self.options.record {
            Some(file) => Box::new(Recorded::new(link, file, frames)?),
            None => link,
        })
    }

    /// Returns the impairments, if there are any.
    pub(super) fn impairment(&self) -> Option<ImpairConfig> {
        let Options { loss, corrupt, duplicate, reorder, hold, delay, jitter, rate, queue, seed, .. } =
            self.options;
        let usual = ImpairConfig::default();
        let impairment = ImpairmentConfig {
            loss,
            bit_error: corrupt,
            duplicate,
            reorder,
            hold_back: hold.unwrap_or(usual.impairment.hold_back),
            ..ImpairmentConfig::NONE
        };
        let units_max = queue.unwrap_or(usual.units_max);
        let seed = seed.unwrap_or(usual.seed);
        self.is_impaired().then_some(ImpairConfig { rate, delay, jitter, impairment, units_max, seed })
    }
}
