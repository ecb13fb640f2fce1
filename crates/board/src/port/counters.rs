//! Counters of a port, and the part of its queue that a packet may use.

kiban_base::counters! {
    /// Counters of a port.
    pub struct PortCounters {
        /// Packets for a neighbour without a circuit.
        no_circuit,
        /// Packets dropped because the port's queue was full.
        queue_full,
        /// Frames that carried neither IPv4 nor ATMARP.
        not_ip,
        /// Frames on a circuit of a bridge that were not Ethernet frames.
        not_ethernet,
        /// Ethernet frames with a wrong FCS.
        fcs_errors,
        /// Packets dropped for lack of memory.
        no_memory,
        /// Packets forwarded to or from the host ([`HostPortConfig`](crate::HostPortConfig)).
        host_packets,
        /// Packets from the host that have no route, or whose destination is a multicast or broadcast
        /// address.
        no_route,
        /// Frames that paused priorities, or resumed them (IEEE 802.1Q §36).
        pauses,
    }
}

/// The part of a port's queue that a packet may use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueLimit {
    /// The number of segments that [`Port::room`] has granted.
    Granted,
    /// Half of the queue, for packets without flow control. The limit leaves room for the streams when there
    /// is a flood of replies.
    Half,
}
