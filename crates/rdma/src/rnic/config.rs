//! Settings of an RDMA NIC.

use core::time::Duration;

kiban_base::settings! {
    /// Settings of an RDMA NIC. Most are limits on numbers of objects; a request that exceeds a limit is
    /// refused.
    pub struct Config {
        /// Maximum number of protection domains.
        pds_max: usize = 4096,
        /// Maximum number of steering tags: regions and windows.
        stags_max: usize = 1 << 20,
        /// Maximum number of blocks in a physical buffer list.
        blocks_max: usize = 512,
        /// Maximum number of completion queues.
        cqs_max: usize = 16384,
        /// Maximum number of completions in one queue.
        cq_entries_max: usize = 1 << 20,
        /// Maximum number of queue pairs.
        qps_max: usize = 65536,
        /// Maximum number of shared receive queues.
        srqs_max: usize = 4096,
        /// Maximum number of work requests in one queue.
        work_max: usize = 32768,
        /// Maximum number of scatter/gather elements in a work request.
        sges_max: usize = 32,
        /// Maximum number of bytes of inline data.
        inline_bytes_max: usize = 512,
        /// Maximum number of outstanding reads and atomics from the peer, per queue pair.
        ird_max: u16 = 128,
        /// Maximum number of outstanding reads and atomics to the peer, per queue pair.
        ord_max: u16 = 128,
        /// Maximum number of asynchronous events queued for the host.
        events_max: usize = 4096,
        /// Maximum time until a new connection has exchanged its MPA start frames. siw waits 10 s for a
        /// request and 5 s for a reply.
        start_timeout: Duration = Duration::from_secs(10),
        /// Maximum time for the host to accept or reject a connection request.
        answer_timeout: Duration = Duration::from_secs(60),
        /// Maximum number of connections that have not sent a start frame or that wait for the host's
        /// answer. When there are more, the oldest is dropped, preferably one that has not sent a start
        /// frame.
        waiting_max: usize = 1024,
        /// Whether a segment ends where a DMA transfer ends, that is, where a scatter/gather element or a
        /// block of its region ends. This models the RNIC of Uchiyama and others (2008, section 6.2.3), whose
        /// FIFO has one byte mask per transfer.
        cut_at_transfers: bool = false,
    }
}
