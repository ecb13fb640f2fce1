//! Settings of a VI NIC.

use core::time::Duration;

kiban_ground::settings! {
    /// How a VI NIC behaves. Bounds are numbers of things; a host that asks for more is refused.
    pub struct Config {
        /// VIs at most.
        vis_max: usize = 1024,
        /// Protection tags at most.
        tags_max: usize = 1024,
        /// Registered memories at most.
        memories_max: usize = 65536,
        /// Completion queues at most.
        completion_queues_max: usize = 1024,
        /// Descriptors that one work queue holds at most, those that wait to be dequeued among them.
        descriptors_max: usize = 4096,
        /// Data segments of a descriptor at most (cLAN had 252).
        segments_max: usize = 252,
        /// Bytes of the longest message.
        transfer_bytes_max: usize = 1 << 30,
        /// Bytes of the longest discriminator in an address.
        discriminator_bytes_max: usize = 64,
        /// Requests to connect that wait for the host at most.
        requests_max: usize = 64,
        /// RDMA Reads that one connection has under way at most, in each direction.
        reads_max: usize = 16,
        /// Packets in flight on a link that loses nothing, at most: what its far end has not acknowledged.
        window_packets: u32 = 256,
        /// The same on a link that may lose packets; halved when one is lost (RFC 8085 §3.1.1 asks for no less).
        lossy_window_packets: u32 = 64,
        /// How long an answer is awaited before packets are sent again, at first; then the measured round trip decides.
        resend_after: Duration = Duration::from_millis(30),
        /// The shortest such time: a host that is busy elsewhere answers late.
        resend_after_min: Duration = Duration::from_millis(10),
        /// How often the same packet is sent before the connection is lost; the time doubles, up to `probe_after`.
        resends_max: u32 = 6,
        /// After so much silence on a link that may lose packets, the peer is asked for a sign of life.
        probe_after: Duration = Duration::from_millis(250),
        /// How often it is asked in vain, a quarter of that time apart, before the connection is lost: 0.9 s in all.
        probes_max: u32 = 10,
        /// How long a reliable delivery waits for a peer whose receive queue is dry, before the connection is lost. The
        /// VI Architecture loses it at once (0). (Reliable reception waits as long as it takes; unreliable delivery
        /// drops the message.)
        dry_patience: Duration = Duration::ZERO,
        /// How often a sender that waits for a dry receive queue asks again, if it is not told.
        dry_retry: Duration = Duration::from_millis(5),
        /// Asynchronous events that wait for the host at most.
        events_max: usize = 1024,
    }
}
