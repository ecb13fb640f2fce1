//! Settings of a VI NIC.

use core::time::Duration;

kiban_base::settings! {
    /// Settings of a VI NIC. Most are limits on numbers of objects; a host that exceeds a limit gets an
    /// error.
    pub struct Config {
        /// Maximum number of VIs.
        vis_max: usize = 1024,
        /// Maximum number of protection tags.
        tags_max: usize = 1024,
        /// Maximum number of registered memories.
        memories_max: usize = 65536,
        /// Maximum number of completion queues.
        completion_queues_max: usize = 1024,
        /// Maximum number of descriptors in one work queue, including completed ones that have not been
        /// dequeued.
        descriptors_max: usize = 4096,
        /// Maximum number of data segments in a descriptor (cLAN had 252).
        segments_max: usize = 252,
        /// Maximum transfer size in bytes.
        transfer_bytes_max: usize = 1 << 30,
        /// Maximum length of a discriminator in an address, in bytes.
        discriminator_bytes_max: usize = 64,
        /// Maximum number of incoming connection requests that await the host's decision, and maximum number
        /// of listeners.
        requests_max: usize = 64,
        /// Maximum number of outstanding RDMA Reads per connection, in each direction.
        reads_max: usize = 16,
        /// Maximum number of unacknowledged packets on a lossless link.
        window_packets: u32 = 256,
        /// Maximum number of unacknowledged packets on a link that may lose packets. The number is halved on
        /// each loss (RFC 8085 §3.1.1 requires at least this reduction).
        lossy_window_packets: u32 = 64,
        /// Initial retransmission timeout (RTO). Later, the RTO is derived from the measured round-trip
        /// time.
        resend_after: Duration = Duration::from_millis(30),
        /// Minimum retransmission timeout, which allows for the late answers of a busy host.
        resend_after_min: Duration = Duration::from_millis(10),
        /// How many times the same packet is retransmitted before the connection is lost. The timeout
        /// doubles each time, up to `probe_after`.
        resends_max: u32 = 6,
        /// Idle time after which the peer is probed, on a link that may lose packets.
        probe_after: Duration = Duration::from_millis(250),
        /// Number of unanswered probes before the connection is lost. The probes are a quarter of
        /// `probe_after` apart, so this takes 0.9 s in total.
        probes_max: u32 = 10,
        /// How long reliable delivery waits for a peer whose receive queue is empty before the connection is
        /// lost. The VI Architecture requires 0: the connection is lost at once. Reliable reception waits
        /// without limit; unreliable delivery drops the message.
        dry_patience: Duration = Duration::ZERO,
        /// Interval at which a sender that waits for a receive descriptor probes the peer.
        dry_retry: Duration = Duration::from_millis(5),
        /// Maximum number of asynchronous events that await the host.
        events_max: usize = 1024,
    }
}
