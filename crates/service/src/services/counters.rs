//! Counters of a service, and of the programs that use a NIC; the guest of a network.

use crate::config::Forwarded;

kiban_base::counters! {
    /// Counters of a service.
    pub struct ServiceCounters {
        /// Sessions started.
        accepted,
        /// Connections refused because no session was free.
        refused,
        /// Sessions that ended with an orderly close.
        ended,
        /// Sessions that were reset, timed out, or were closed by the service.
        aborted,
        /// Sessions closed because they were idle.
        idle_timeouts,
        /// Sessions reset to make room for another address.
        displaced,
        /// Payload bytes received.
        bytes_in,
        /// Payload bytes sent.
        bytes_out,
        /// Datagrams that programs received.
        datagrams_in,
        /// Datagrams that programs sent.
        datagrams_out,
        /// Datagrams of programs that the board did not send: no route, or no packet memory.
        datagrams_refused,
        /// Requests answered successfully.
        requests,
        /// Requests answered with an error.
        errors,
    }
}

kiban_base::counters! {
    /// Counters of a program that uses the board's RDMA NIC.
    pub struct ProgramCounters {
        /// Requests executed: objects created, changed or destroyed, connections.
        requests,
        /// Requests refused.
        refused,
        /// Work requests posted to send queues.
        sends,
        /// Receives posted.
        receives,
        /// Completions delivered.
        completions,
        /// Times that a completion waited because the program's ring was full.
        full_rings,
    }
}

/// What a service does for its guest: the open ports that are forwarded, in ranges, and what does not work.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GuestView {
    /// TCP ports of this host.
    pub tcp: Vec<Forwarded>,
    /// UDP ports of this host.
    pub udp: Vec<Forwarded>,
    /// TCP ports of the guest's loopback.
    pub guest_tcp: Vec<Forwarded>,
    /// UDP ports of the guest's loopback.
    pub guest_udp: Vec<Forwarded>,
    /// Why something that the guest tried does not work.
    pub warning: Option<&'static str>,
}

/// A program that uses the board's RDMA NIC.
#[derive(Clone, Debug)]
pub struct ProgramView {
    /// The number of its attachment: a process can be attached more than once.
    pub client: u64,
    /// Its process ID; 0 if it is in another PID namespace.
    pub pid: u32,
    /// Its queue pairs.
    pub queue_pairs: usize,
    /// Its completion queues.
    pub completion_queues: usize,
    /// Its regions and windows.
    pub keys: usize,
    /// Bytes of memory shared with it.
    pub shared_bytes: usize,
    /// Notices that wait until it reads others.
    pub notices: usize,
    /// Its counters.
    pub counters: ProgramCounters,
}
