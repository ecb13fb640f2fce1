//! Settings of communication management.

use core::time::Duration;

/// Settings of a [`Cm`](super::Cm).
#[derive(Clone, Debug)]
pub struct CmConfig {
    /// The GUID of this channel adapter: unique, and the same for all its queue pairs.
    pub ca_guid: u64,
    /// The upper half of all communication ids, for a host that tells several managers apart by it; `None`:
    /// random.
    pub id_prefix: Option<u16>,
    /// The code of the time within which a peer should answer, 5 bits
    /// ([`timeout`](crate::wire::roce::cm::timeout)).
    pub response_timeout: u8,
    /// How often a message is retransmitted, 4 bits.
    pub max_cm_retries: u8,
    /// The code of the time that a packet takes to the peer, 5 bits.
    pub packet_lifetime: u8,
    /// The code of the time for which an MRA asks, 5 bits.
    pub service_timeout: u8,
    /// Maximum of any time that a peer chooses; all transmissions of a REP together take little longer.
    pub timeout_max: Duration,
    /// Maximum number of connections and service id resolutions, including those in TimeWait.
    pub connections_max: usize,
    /// Maximum number of peers' requests that are not established.
    pub requests_max: usize,
    /// Maximum number of them from one address.
    pub requests_per_peer_max: usize,
    /// Maximum number of services that are listened for.
    pub services_max: usize,
    /// Maximum number of MADs that wait for [`poll_transmit`](super::Cm::poll_transmit); more are dropped.
    pub transmits_max: usize,
    /// Number of events that wait for [`poll_event`](super::Cm::poll_event) above which peers' requests are
    /// dropped.
    pub events_max: usize,
}

impl Default for CmConfig {
    fn default() -> CmConfig {
        CmConfig {
            ca_guid: 0,
            id_prefix: None,
            // 1.07 s: a busy peer sends an MRA.
            response_timeout: 18,
            max_cm_retries: 15,
            // 67 ms.
            packet_lifetime: 14,
            // 69 s, like Linux.
            service_timeout: 24,
            timeout_max: Duration::from_secs(120),
            connections_max: 16_384,
            requests_max: 1024,
            requests_per_peer_max: 256,
            services_max: 4096,
            transmits_max: 4096,
            events_max: 4096,
        }
    }
}
