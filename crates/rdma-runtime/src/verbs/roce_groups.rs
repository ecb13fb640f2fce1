//! Multicast groups over RoCEv2 (IBTA volume 1 §10.5, Annex A17): the sockets and queue pairs of each group.
//!
//! Sending    a datagram to a group's GID goes to the group's address from the socket of the queue pair's
//!            port, through the interface of the device. The system loops a copy back to this host.
//! Receiving  a socket bound to the group and to port 4791 for each group of a device, open while queue pairs
//!            are attached. The system joins the group (IGMP, MLD) and gives a copy to each such socket of
//!            any process and user. A socket at port 4791 of an address receives no multicast.
//! Self       as with rdma_rxe, a queue pair that sends to a group to which it is attached receives the
//!            datagram.
//! Limits     at most [`MULTICAST_GROUPS_MAX`] groups in a process, and [`MULTICAST_QPS_MAX`] queue pairs in
//!            a group.

use kiban_os::udp::UdpLink;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

/// Maximum number of groups, each of which has a socket.
pub const MULTICAST_GROUPS_MAX: usize = 1024;
/// Maximum number of queue pairs that are attached to a group.
pub const MULTICAST_QPS_MAX: usize = 1024;

/// A group of a device: the address of the device, and that of the group.
pub(super) type GroupKey = (IpAddr, IpAddr);

/// The queue pairs of a group.
pub(super) struct Group {
    pub(super) socket: UdpLink,
    /// The attached queue pairs.
    pub(super) qps: Vec<u32>,
}

/// The groups of a process.
#[derive(Default)]
pub(super) struct Groups {
    pub(super) of: BTreeMap<GroupKey, Group>,
}

impl Groups {
    /// Attaches a queue pair. `join` opens the socket of a new group.
    pub(super) fn attach(
        &mut self,
        key: GroupKey,
        qp: u32,
        join: impl FnOnce() -> io::Result<UdpLink>,
    ) -> io::Result<()> {
        let groups = self.of.len();
        match self.of.get_mut(&key) {
            Some(Group { qps, .. }) if qps.contains(&qp) => {}
            Some(Group { qps, .. }) if qps.len() >= MULTICAST_QPS_MAX => {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            Some(Group { qps, .. }) => qps.push(qp),
            None if groups >= MULTICAST_GROUPS_MAX => return Err(io::ErrorKind::OutOfMemory.into()),
            None => drop(self.of.insert(key, Group { socket: join()?, qps: vec![qp] })),
        }
        Ok(())
    }

    /// Detaches a queue pair. Returns whether it was attached.
    pub(super) fn detach(&mut self, key: GroupKey, qp: u32) -> bool {
        let Some(Group { qps, .. }) = self.of.get_mut(&key) else { return false };
        let Some(at) = qps.iter().position(|attached| *attached == qp) else { return false };
        qps.remove(at);
        if qps.is_empty() {
            // Closing the socket leaves the group.
            self.of.remove(&key);
        }
        true
    }

    /// Returns whether a queue pair is attached to a group.
    pub(super) fn has(&self, qp: u32) -> bool {
        self.of.values().any(|group| group.qps.contains(&qp))
    }
}
