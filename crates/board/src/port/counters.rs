//! Counters of a port, and the part of its queue that a packet may use.

kiban_base::counters! {
    /// Counters of a port.
    pub struct PortCounters {
        /// Packets for a neighbour that no circuit leads to.
        no_circuit,
        /// Packets that found the port's queue full.
        queue_full,
        /// Frames that carried neither IPv4 nor ATMARP.
        not_ip,
        /// Frames that carried none of Ethernet, on a circuit of a bridge.
        not_ethernet,
        /// Ethernet frames with a wrong FCS.
        fcs_errors,
        /// Packets that found no memory.
        no_memory,
        /// Packets that passed to or from the host ([`HostPortConfig`](crate::HostPortConfig)).
        host_packets,
        /// Packets of the host's that no route leads on, or for many.
        no_route,
    }
}

/// The part of its port's queue that a packet may use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueLimit {
    /// The room that [`Port::room`] has granted.
    Granted,
    /// Half of the queue, for packets that no flow control limits, so that a flood of replies leaves room for
    /// the streams.
    Half,
}
