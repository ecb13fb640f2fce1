//! Opens links by address, sets up the devices that the board creates, and adds a capture point to each link.
//!
//! Devices          the devices of `tun:NAME` and `tap:NAME` get the board's MTU and this host's own address,
//!                  and are brought up; a device that the board has created is removed when the board exits.
//! Bridge           a bridge's link is promiscuous, and receives only frames whose checksums and segmentation
//!                  are complete.
//! Host             if this host's kernel owns a port's address through a device, packets pass through the
//!                  board unchanged, so neither link uses segmentation offload.

use crate::capture::{CapturePoint, CapturedLink};
use crate::config::{Carries, PortPlan};
use kiban_base::ethernet::Mac;
use kiban_link::address::Transport;
use kiban_link::pcap::{Capture, UnitKind};
use kiban_link::{Address, AnyLink};
use kiban_os::interface;
use std::io;
use std::sync::Arc;

/// Returns the kind of unit that a link with the address `address` carries.
pub(crate) fn carries(address: &str) -> Result<Carries, String> {
    let address: Address =
        address.parse().map_err(|error: kiban_link::address::AddressError| error.to_string())?;
    let of = |holds: UnitKind| match holds {
        UnitKind::Packets => Carries::Packets,
        UnitKind::Frames => Carries::Frames,
        UnitKind::Cells => Carries::Cells,
    };
    Ok(match &address.transport {
        Transport::Tun(_) => Carries::Packets,
        Transport::Tap(_)
        | Transport::TapFile(_)
        | Transport::Packet(_)
        | Transport::Xdp(_)
        | Transport::Unix(..)
        | Transport::UnixDatagrams(..) => Carries::Frames,
        Transport::Udp(holds, _) | Transport::Tcp(holds, ..) => of(*holds),
        Transport::AtmTcp(..) | Transport::Pseudowire(_) => Carries::Cells,
        Transport::Pcap(file) => {
            let capture = Capture::open(file).map_err(|error| error.to_string())?;
            of(capture.unit_kind().unwrap_or(UnitKind::Packets))
        }
    })
}

/// Returns whether a link has only two ends, so that one station is at the other. Through a tap device, this
/// is the host's kernel or a virtual machine.
pub(crate) fn has_two_ends(address: &str) -> bool {
    address.parse::<Address>().is_ok_and(|address| {
        matches!(
            address.transport,
            Transport::Tap(_)
                | Transport::TapFile(_)
                | Transport::Unix(..)
                | Transport::UnixDatagrams(..)
                | Transport::Tcp(..)
        )
    })
}

/// Returns the name of the device that the board creates and sets up for this address; `None` if it creates
/// none.
pub(crate) fn device(address: &str) -> Option<String> {
    match address.parse::<Address>().ok()?.transport {
        Transport::Tun(name) | Transport::Tap(name) => Some(name),
        _ => None,
    }
}

/// Returns the MAC address that a board must use on this link; `None` if the board may choose one.
pub(crate) fn mac(address: &str) -> io::Result<Option<Mac>> {
    address.parse::<Address>().map_err(io::Error::other)?.mac()
}

/// Returns whether a board of several shards can use the link: because it carries cells, or because it can
/// have several queues, one for each shard, and is not impaired or recorded, which would apply to each queue
/// separately.
pub(crate) fn is_for_shards(address: &str) -> Result<bool, &'static str> {
    let Ok(address) = address.parse::<Address>() else { return Ok(false) };
    if address.carries_cells() {
        return Ok(true);
    }
    if address.is_impaired() || address.options.record.is_some() {
        return Err("impairments and `record` work on one queue");
    }
    Ok(address.has_queues())
}

/// Opens the link of a port, with a queue for each shard of the board.
pub(crate) fn open(port: &PortPlan, capture: &Arc<CapturePoint>, queues: usize) -> io::Result<Vec<AnyLink>> {
    let mut address: Address = port.link.parse().map_err(io::Error::other)?;
    if port.host.is_some() || port.bridge.is_some() {
        address.options.offload = Some(false);
    }
    // Links without a network device have no MTU of their own, so use the port's.
    address.options.mtu = address.options.mtu.or(match address.transport {
        Transport::Udp(UnitKind::Packets | UnitKind::Frames, _)
        | Transport::Tcp(..)
        | Transport::Unix(..)
        | Transport::UnixDatagrams(..)
        | Transport::Pcap(_) => Some(port.mtu_bytes),
        _ => None,
    });
    // An interface receives frames addressed to other MACs only in promiscuous mode.
    if matches!(address.transport, Transport::Packet(_) | Transport::Xdp(_))
        && address.mac()? != Some(port.mac)
    {
        address.options.promiscuous = true;
    }
    let links = address.open_queues(queues)?;
    if let Transport::Tun(name) | Transport::Tap(name) = &address.transport {
        interface::set_mtu(name, port.mtu_bytes)?;
        if let Some((address, prefix)) = port.host_address {
            interface::set_address(name, address, prefix.bits())?;
        }
        interface::set_up(name)?;
    }
    Ok(links.into_iter().map(|link| with_capture(link, capture)).collect())
}

fn with_capture(link: AnyLink, capture: &Arc<CapturePoint>) -> AnyLink {
    match link {
        AnyLink::Packets(link) => {
            AnyLink::Packets(Box::new(CapturedLink::new(link, false, true, capture.clone())))
        }
        AnyLink::Frames(link) => {
            AnyLink::Frames(Box::new(CapturedLink::new(link, true, true, capture.clone())))
        }
        AnyLink::Cells(link) => {
            AnyLink::Cells(Box::new(CapturedLink::new(link, false, false, capture.clone())))
        }
    }
}

/// Opens the device through which this host's kernel owns the addresses of a port.
pub(crate) fn open_host(port: &PortPlan, device: &str, capture: &Arc<CapturePoint>) -> io::Result<AnyLink> {
    let mut address: Address = device.parse().map_err(io::Error::other)?;
    address.options.offload = Some(false);
    let link = address.open()?;
    if let Transport::Tun(name) = &address.transport {
        interface::set_mtu(name, port.mtu_bytes)?;
        let (address, prefix) = port.addresses[0];
        interface::set_address(name, address, prefix.bits())?;
        interface::set_up(name)?;
    }
    Ok(with_capture(link, capture))
}
