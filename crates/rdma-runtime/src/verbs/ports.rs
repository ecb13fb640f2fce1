//! Ports: how queue pairs find each other out of band.
//!
//! Purpose  makes a GID and a queue pair number (QPN) sufficient to locate a queue pair, without a fixed
//!          port, a directory or special privileges.
//! Numbers  the high 16 bits of a QPN are a port that the system assigned to this process at the device's
//!          address, for TCP and UDP; the low 8 bits are an index. QPNs of two processes therefore never
//!          collide, and up to 256 queue pairs share a port.
//! Opening  the TCP port is only reserved until the first of its queue pairs is ready to receive; then it
//!          listens. The UDP port receives once there is a datagram queue pair. Over EFE, connections use the
//!          UDP port, and the TCP port stays reserved.
//! Reuse    numbers are reused as late as possible: packets in flight to an old queue pair must not reach a
//!          new one.

use crate::linked_nic::LinkedNic;
use crate::tcp::{ReservedPort, TcpListenSocket};
use kiban_os::udp::UdpLink;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Number of queue pairs per port.
const INDICES: u32 = 256;
/// Maximum number of attempts to find a port that is free for TCP and UDP.
const ATTEMPTS: usize = 16;
/// Maximum number of connections waiting to be accepted at a port.
const BACKLOG: u32 = 1024;

/// Returns the port in a queue pair number.
pub(super) const fn port_of(qpn: u32) -> u16 {
    (qpn >> 8) as u16
}

/// A port at an address.
pub(super) struct Port {
    pub(super) address: IpAddr,
    /// The reserved TCP port; `None` once it listens.
    reserved: Option<ReservedPort>,
    /// The listener's number, once it listens.
    pub(super) listener: Option<u32>,
    pub(super) udp: Arc<UdpLink>,
    /// Whether EFE uses the UDP port.
    is_open_for_efe: bool,
    used: [bool; INDICES as usize],
    next: u32,
    count: u32,
}

impl Port {
    fn open(address: IpAddr) -> io::Result<Port> {
        let mut refused = None;
        for _ in 0..ATTEMPTS {
            let reserved = ReservedPort::open(SocketAddr::new(address, 0))?;
            match UdpLink::bind(SocketAddr::new(address, reserved.address()?.port())) {
                Ok(udp) => {
                    return Ok(Port {
                        address,
                        reserved: Some(reserved),
                        listener: None,
                        udp: Arc::new(udp),
                        is_open_for_efe: false,
                        used: [false; INDICES as usize],
                        next: 0,
                        count: 0,
                    });
                }
                // The port is in use for UDP, so try another.
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()))
    }

    /// Lets EFE use the UDP port.
    pub(super) fn open_for_efe(&mut self, core: &mut LinkedNic) -> io::Result<()> {
        if !self.is_open_for_efe {
            core.add_efe_port(&self.udp)?;
            self.is_open_for_efe = true;
        }
        Ok(())
    }

    /// Starts listening on the reserved TCP port. Returns the listening socket, on the first call only.
    pub(super) fn listen(&mut self) -> io::Result<Option<TcpListenSocket>> {
        self.reserved.take().map(|reserved| reserved.listen(BACKLOG)).transpose()
    }
}

/// The ports of the process.
#[derive(Default)]
pub(super) struct Ports {
    ports: BTreeMap<(IpAddr, u16), Port>,
}

impl Ports {
    /// Allocates a number for a queue pair at an address.
    pub(super) fn take_number(&mut self, address: IpAddr) -> io::Result<u32> {
        let room =
            self.ports.range_mut((address, 0)..=(address, u16::MAX)).find(|(_, port)| port.count < INDICES);
        let (number, port) = match room {
            Some((&(_, number), port)) => (number, port),
            None => {
                let port = Port::open(address)?;
                let number = port.udp.local().port();
                (number, self.ports.entry((address, number)).or_insert(port))
            }
        };
        while port.used[port.next as usize] {
            port.next = (port.next + 1) % INDICES;
        }
        let index = port.next;
        port.next = (index + 1) % INDICES;
        port.used[index as usize] = true;
        port.count += 1;
        Ok(u32::from(number) << 8 | index)
    }

    /// Frees a number. If its port has no other queue pairs, returns the port's listener.
    pub(super) fn give_back(&mut self, address: IpAddr, qpn: u32) -> Option<u32> {
        let port = self.ports.get_mut(&(address, port_of(qpn)))?;
        port.count -= u32::from(std::mem::take(&mut port.used[(qpn % INDICES) as usize]));
        if port.count > 0 {
            return None;
        }
        self.ports.remove(&(address, port_of(qpn)))?.listener
    }

    /// Returns the port of a queue pair number at an address.
    pub(super) fn port(&mut self, address: IpAddr, qpn: u32) -> Option<&mut Port> {
        self.ports.get_mut(&(address, port_of(qpn)))
    }

    /// Returns the address and port of a listener.
    pub(super) fn of_listener(&self, listener: u32) -> Option<(IpAddr, u16)> {
        let found = self.ports.iter().find(|(_, port)| port.listener == Some(listener));
        found.map(|(&place, _)| place)
    }
}
