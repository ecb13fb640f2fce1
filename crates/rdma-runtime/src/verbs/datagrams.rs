//! Datagrams between queue pairs: over UDP, from port to port.
//!
//! Purpose  any queue pair can send to any other whose GID, number and Q_Key it knows.
//! Ports    a queue pair's number contains its port ([`super::ports`]); the number in the datagram selects
//!          one of the port's 256 queue pairs.
//! GRH      in a receive, the payload is preceded by the 40 bytes of a global route header (GRH). It has the
//!          format of an IPv6 header and contains the GIDs of both ends.
//! Limits   lost datagrams are not retransmitted. Q_Keys are sent in the clear, as in every implementation.

use super::pairs::QueuePairs;
use super::ports::{Port, Ports, port_of};
use crate::linked_nic::LinkedNic;
use kiban_rdma::roce::grh;
use kiban_rdma::wire::datagram::Header;
use rustix::event::epoll;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

/// Maximum number of datagrams received from one port before it is the next port's turn.
const TURN_DATAGRAMS: usize = 64;
/// Size in bytes of a port's socket receive buffer, including the system's overhead: enough for some
/// thousands of datagrams.
const QUEUE_BYTES: usize = 8 << 20;
/// Size in bytes of the buffer for one datagram: larger than the longest.
const ROOM_BYTES: usize = 8192;

/// The ports with datagram queue pairs.
pub(super) struct Datagrams {
    epoll: OwnedFd,
    /// Number of datagram queue pairs per port.
    open: BTreeMap<(IpAddr, u16), u32>,
    room: Vec<u8>,
    leaving: Vec<u8>,
    more: bool,
}

impl Datagrams {
    pub(super) fn open(outer: &OwnedFd) -> io::Result<Datagrams> {
        Ok(Datagrams {
            epoll: outer.try_clone()?,
            open: BTreeMap::new(),
            room: vec![0; ROOM_BYTES],
            leaving: Vec::new(),
            more: false,
        })
    }

    /// Counts another datagram queue pair at a port. The first one opens it.
    pub(super) fn open_port(&mut self, port: &Port) -> io::Result<()> {
        let place = (port.address, port.udp.local().port());
        if !self.open.contains_key(&place) {
            port.udp.request_receive_buffer(QUEUE_BYTES);
            watch(&self.epoll, &*port.udp)?;
        }
        *self.open.entry(place).or_insert(0) += 1;
        Ok(())
    }

    /// Decrements the number of datagram queue pairs at a port. Returns whether it was the last.
    fn close_port(&mut self, place: (IpAddr, u16)) -> bool {
        let Some(count) = self.open.get_mut(&place) else { return false };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            self.open.remove(&place);
        }
        is_last
    }

    /// Removes a datagram queue pair from its port.
    pub(super) fn close(&mut self, ports: &mut Ports, address: IpAddr, qpn: u32) {
        if self.close_port((address, port_of(qpn)))
            && let Some(port) = ports.port(address, qpn)
        {
            // This fails only if the socket is not watched.
            let _ = epoll::delete(&self.epoll, &*port.udp);
        }
    }

    /// Receives datagrams and passes them to their queue pairs.
    pub(super) fn take(&mut self, core: &mut LinkedNic, qps: &QueuePairs, ports: &mut Ports) {
        self.more = false;
        for &(address, number) in self.open.keys() {
            let Some(port) = ports.port(address, u32::from(number) << 8) else { continue };
            for turn in 0.. {
                if turn == TURN_DATAGRAMS {
                    self.more = true;
                    break;
                }
                let Some((length, from)) = port.udp.receive(&mut self.room) else { break };
                // Ignore everything that is not one of our datagrams.
                let Ok((header, at)) = Header::read(&self.room[..length]) else { continue };
                // The source queue pair's number must match the port.
                if port_of(header.source) != from.port() {
                    continue;
                }
                if let Some(qp) = qps.named(address, header.destination) {
                    let payload = &self.room[at..length];
                    let route = grh(from.ip().to_canonical(), address, payload.len());
                    core.nic.core.datagram(qp, &route, &header, payload);
                }
            }
        }
    }

    /// Sends the datagrams that queue pairs have posted.
    pub(super) fn send(&mut self, core: &mut LinkedNic, qps: &QueuePairs, ports: &mut Ports) {
        while let Some(outgoing) = core.nic.core.next_datagram(&mut self.leaving) {
            let Some(entry) = qps.get(outgoing.from) else { continue };
            let Some(port) = ports.port(entry.address, entry.qpn) else { continue };
            let to = Ipv6Addr::from(outgoing.gid).to_canonical();
            // If the socket cannot take the datagram, it is lost, as on any network.
            port.udp.send(&self.leaving, SocketAddr::new(to, port_of(outgoing.header.destination)));
        }
    }

    pub(super) fn has_more(&self) -> bool {
        self.more
    }
}

/// Watches a file on the engine's epoll until the file is closed.
fn watch(epoll: &OwnedFd, file: impl AsFd) -> io::Result<()> {
    let data = epoll::EventData::new_u64(0);
    Ok(epoll::add(epoll, file, data, epoll::EventFlags::IN | epoll::EventFlags::ET)?)
}
