//! Settings of an RDMA NIC.

use core::time::Duration;

kiban_ground::settings! {
    /// How an RDMA NIC behaves. Bounds are numbers of things; a host that asks for more is refused.
    pub struct Config {
        /// Protection domains at most.
        pds_max: usize = 4096,
        /// Steering tags at most: regions and windows.
        stags_max: usize = 1 << 20,
        /// Blocks of a physical buffer list at most.
        blocks_max: usize = 512,
        /// Completion queues at most.
        cqs_max: usize = 16384,
        /// Completions that one queue holds at most.
        cq_entries_max: usize = 1 << 20,
        /// Queue pairs at most.
        qps_max: usize = 65536,
        /// Shared receive queues at most.
        srqs_max: usize = 4096,
        /// Work requests that one queue holds at most.
        work_max: usize = 32768,
        /// Scatter/gather elements of a work request at most.
        sges_max: usize = 32,
        /// Bytes of inline data at most.
        inline_bytes_max: usize = 512,
        /// Reads and atomics of the peer's that a queue pair has under way at most.
        ird_max: u16 = 128,
        /// Reads and atomics of its own that a queue pair has under way at most.
        ord_max: u16 = 128,
        /// Asynchronous events that wait for the host at most.
        events_max: usize = 4096,
        /// How long a connection may take until the start frames are exchanged. siw: 10 s for a request, 5 s for a reply.
        start_timeout: Duration = Duration::from_secs(10),
        /// How long the host may take to answer a request to connect.
        answer_timeout: Duration = Duration::from_secs(60),
        /// Connections that have not spoken, or wait for the host's answer, at most. The oldest makes room, of those
        /// that have not spoken first.
        waiting_max: usize = 1024,
        /// A segment ends where a scatter/gather element ends, as in paper [3], whose FIFO has one mask a transfer.
        cut_at_elements: bool = false,
    }
}
