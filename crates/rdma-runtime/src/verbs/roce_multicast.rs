//! Attaching queue pairs to multicast groups (ibv_attach_mcast(3)).

use super::engine::Engine;
use super::engine_state::EngineState;
use super::pairs::Service;
use kiban_os::udp::UdpLink;
use kiban_rdma::wire::roce::PORT;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Returns the address of a group's GID.
fn group_of(gid: [u8; 16]) -> io::Result<IpAddr> {
    let address = Ipv6Addr::from(gid).to_canonical();
    if address.is_multicast() { Ok(address) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

impl Engine {
    /// Attaches a datagram queue pair to a multicast group. Has no effect if it is attached already.
    ///
    /// # Errors
    /// The queue pair is unknown or not UD, the GID is not a multicast GID, or it is of another family
    /// than the queue pair's address ([`io::ErrorKind::InvalidInput`]); there are too many groups or queue
    /// pairs ([`io::ErrorKind::OutOfMemory`]); another program uses port 4791 of all addresses. Other
    /// protocols than RoCEv2: [`io::ErrorKind::Unsupported`].
    pub fn attach(&self, qp: u32, gid: [u8; 16]) -> io::Result<()> {
        self.turn.work(|board, _| board.attach(qp, group_of(gid)?))
    }

    /// Detaches a queue pair from a multicast group.
    ///
    /// # Errors
    /// It is not attached ([`io::ErrorKind::InvalidInput`]). Other protocols than RoCEv2:
    /// [`io::ErrorKind::Unsupported`].
    pub fn detach(&self, qp: u32, gid: [u8; 16]) -> io::Result<()> {
        self.turn.work(|board, _| board.detach(qp, group_of(gid)?))
    }
}

impl EngineState {
    fn attach(&mut self, qp: u32, group: IpAddr) -> io::Result<()> {
        let Some(roce) = &mut self.roce else { return Err(io::ErrorKind::Unsupported.into()) };
        let entry = self.qps.get(qp).filter(|entry| entry.service == Service::Datagrams);
        let address = entry.ok_or(io::ErrorKind::InvalidInput)?.address;
        let mut groups = std::mem::take(&mut roce.groups);
        let attached = groups.attach((address, group), qp, || {
            let socket = UdpLink::join(SocketAddr::new(group, PORT), address)?;
            roce.prepare(&socket).map(|()| socket)
        });
        roce.groups = groups;
        attached
    }

    fn detach(&mut self, qp: u32, group: IpAddr) -> io::Result<()> {
        let Some(roce) = &mut self.roce else { return Err(io::ErrorKind::Unsupported.into()) };
        let address = self.qps.get(qp).ok_or(io::ErrorKind::InvalidInput)?.address;
        let was_attached = roce.groups.detach((address, group), qp);
        if was_attached { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// Returns whether a queue pair is attached to a multicast group: it cannot be destroyed.
    pub(super) fn is_attached(&self, qp: u32) -> bool {
        self.roce.as_ref().is_some_and(|roce| roce.groups.has(qp))
    }
}
