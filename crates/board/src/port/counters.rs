//! What is counted at a port, and what a packet may take of its queue.

kiban_base::counters! {
    /// What happened at a port.
    pub struct PortCounters {
        /// Packets for a neighbour that no circuit leads to.
        no_circuit,
        /// Packets that found the port's queue full.
        queue_full,
        /// Frames that carried neither IPv4 nor ATMARP.
        not_ip,
        /// Frames that carried none of Ethernet, on a circuit of a bridge.
        not_ethernet,
        /// Frames of Ethernet whose FCS was wrong.
        fcs_errors,
        /// Packets that found no memory.
        no_memory,
        /// Packets that passed to or from the host ([`HostPortConfig`](crate::HostPortConfig)).
        host_packets,
        /// Packets of the host's that no route leads on, or for many.
        no_route,
    }
}

/// What a packet may take of its port's queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueLimit {
    /// The room that was asked for: [`Port::room`].
    Granted,
    /// Half of the queue: for what nobody holds back, so that a flood of answers leaves the streams theirs.
    Half,
}
