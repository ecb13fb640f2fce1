//! Groups (multicast): the memberships of datagram sockets.
//!
//! Join       the first socket that joins a group on a port makes the port listen to it, and an Ethernet link
//!            reports it (IGMP, MLD). The last one that leaves ends this.
//! Receive    like Linux with IP_MULTICAST_ALL (its default), a socket on the wildcard address receives the
//!            datagrams to its port of all groups that any socket has joined on the port where they arrive.
//! Limits     [`MEMBERSHIPS_MAX`] for each socket.

use super::streams::Host;
use crate::error::HostError;
use core::net::IpAddr;
use kiban_tcpip::udp::{Refusal, SocketId};

/// Maximum number of groups that a socket can join (Linux: `net.ipv4.igmp_max_memberships`).
pub const MEMBERSHIPS_MAX: usize = 20;

impl Host<'_> {
    /// Joins a group with a socket, on the port that has the address `interface`; if that is unspecified, on
    /// the port of the route to the group, or else on the first one with an address of its family.
    ///
    /// # Errors
    /// [`HostError::NoRoute`]: there is no such port. [`HostError::Udp`]: there is no such socket; `group` is
    /// not a multicast address; the socket has joined it already (`AddressInUse`) or has joined too many.
    pub fn join(&mut self, socket: SocketId, group: IpAddr, interface: IpAddr) -> Result<(), HostError> {
        let port = self.group_port(socket, group, interface)?;
        let memberships = &self.board.stack.edge.memberships;
        if memberships.contains(&(socket, port, group)) {
            return Err(Refusal::AddressInUse.into());
        }
        if memberships.iter().filter(|(member, ..)| *member == socket).count() >= MEMBERSHIPS_MAX {
            return Err(Refusal::TooMany.into());
        }
        self.board.stack.edge.memberships.push((socket, port, group));
        self.board.stack.listen_to_group(port, group, true);
        Ok(())
    }

    /// Leaves a group: on the port that [`join`](Self::join) would choose now or, if the socket has not
    /// joined it there, on any port.
    ///
    /// # Errors
    /// [`HostError::Udp`]: there is no such socket; the socket has not joined the group (`BadAddress`).
    pub fn leave(&mut self, socket: SocketId, group: IpAddr, interface: IpAddr) -> Result<(), HostError> {
        self.board.stack.ip.udp.local(socket)?;
        // Routes and addresses may have changed since the join.
        let chosen = self.group_port(socket, group, interface).ok();
        let memberships = &mut self.board.stack.edge.memberships;
        let own =
            || memberships.iter().enumerate().filter(|(_, known)| (known.0, known.2) == (socket, group));
        let at = own().find(|(_, known)| Some(known.1) == chosen).or_else(|| own().next()).map(|(at, _)| at);
        let (_, port, _) = memberships.swap_remove(at.ok_or(Refusal::BadAddress)?);
        self.board.stack.listen_to_group(port, group, false);
        Ok(())
    }

    /// Leaves all groups of a socket.
    pub(super) fn leave_all(&mut self, socket: SocketId) {
        while let Some(at) = self.board.stack.edge.memberships.iter().position(|(its, ..)| *its == socket) {
            let (_, port, group) = self.board.stack.edge.memberships.swap_remove(at);
            self.board.stack.listen_to_group(port, group, false);
        }
    }

    fn group_port(&self, socket: SocketId, group: IpAddr, interface: IpAddr) -> Result<usize, HostError> {
        let stack = &self.board.stack;
        stack.ip.udp.local(socket)?;
        if !group.is_multicast() || group.is_ipv4() != interface.is_ipv4() {
            return Err(Refusal::BadAddress.into());
        }
        let port = match interface.is_unspecified() {
            true => stack.ip.ip.port_for_group(group),
            false => stack.ip.ip.port_of(interface),
        };
        port.ok_or(HostError::NoRoute)
    }
}
