//! What only RoCEv2 connections have in a report.

/// What only a RoCEv2 connection has.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Details {
    /// The queue pair of each end, if packets to it were captured.
    pub queue_pairs: [Option<u32>; 2],
    /// Payload of a full packet, bytes.
    pub path_mtu: u32,
    /// The requests of the client, and those of the server.
    pub flows: [Flow; 2],
}

/// What was counted of the requests of one end, and of their answers.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Flow {
    /// Messages: Sends, Writes, Reads and atomics.
    pub messages: u32,
    /// Payload that was sent again, bytes.
    pub bytes_again: u64,
    /// NAKs with a sequence error.
    pub sequence_naks: u32,
    /// NAKs because no receive was posted.
    pub rnr_naks: u32,
    /// Congestion notifications, to either end.
    pub notifications: usize,
    /// Packets with a congestion mark (CE).
    pub marked: usize,
    /// Packets that arrived in another order.
    pub reordered: u32,
    /// Packets that the network doubled.
    pub duplicates: u32,
    /// Packets with a wrong ICRC, of either end; only packets that were captured as a whole are checked.
    pub icrc_errors: usize,
}
