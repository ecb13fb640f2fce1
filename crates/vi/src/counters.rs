//! Counters of a VI NIC.

kiban_base::counters! {
    /// Counters of a VI NIC.
    pub struct ViCounters {
        /// Packets received.
        packets_in,
        /// Packets sent.
        packets_out,
        /// Packets that violate the format.
        malformed,
        /// Packets for a VI that does not exist or is not connected to their sender.
        no_vi,
        /// Payload bytes copied to and from host memory.
        bytes_copied,
        /// Complete messages received.
        messages_in,
        /// Unreliable messages lost because no receive descriptor was posted.
        no_descriptor,
        /// Packets received after a gap in the sequence.
        gaps,
        /// Duplicate packets.
        duplicates,
        /// Go-back-N retransmissions, counted once per rewind and not per packet.
        retransmits,
        /// Connections that broke.
        connections_broken,
        /// Events dropped because the event queue was full.
        events_dropped,
        /// Completions dropped because the completion queue was full.
        completions_dropped,
    }
}
