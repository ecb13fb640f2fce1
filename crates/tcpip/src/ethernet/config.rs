//! Settings of an Ethernet link, with the source of each default.

use crate::guest::GuestConfig;
use crate::ip::Prefix;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;
use kiban_base::ethernet::Mac;

/// Settings of a link.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Our MAC address.
    pub mac: Mac,
    /// Our addresses and the directly connected nets. IPv6 addresses are used after duplicate address
    /// detection.
    pub addresses: Vec<(IpAddr, Prefix)>,
    /// MTU of the link: the longest IP packet, bytes.
    pub mtu_bytes: usize,
    /// Settings of the neighbour cache.
    pub neighbours: NeighbourConfig,
    /// Settings of IPv6 addresses and routers.
    pub autoconf: AutoconfConfig,
    /// Whether an IPv4 address is leased by DHCP.
    pub dhcp: bool,
    /// What the one guest of the link gets, if the board configures it.
    pub guest: Option<GuestConfig>,
    /// Number of announcements of each IPv4 address at the start (RFC 5227 §2.3: 2).
    pub announcements: u8,
    /// Which shard of a board the link belongs to.
    pub role: Role,
}

/// The shard of a board that a link belongs to. The links of a port's shards have the same addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    /// The board is not divided.
    #[default]
    Alone,
    /// The first shard: it gets the frames of ARP, neighbour discovery and DHCP, and reports neighbours to
    /// the others.
    First,
    /// Another shard: it asks the first one for neighbours, and sends nothing of its own.
    Other,
}

impl LinkConfig {
    /// Creates settings with the standard MTU (RFC 894) and only the IPv6 link-local address.
    pub fn new(mac: Mac) -> LinkConfig {
        LinkConfig {
            mac,
            addresses: Vec::new(),
            mtu_bytes: 1500,
            neighbours: NeighbourConfig::default(),
            autoconf: AutoconfConfig::default(),
            dhcp: false,
            guest: None,
            announcements: 2,
            role: Role::Alone,
        }
    }

    /// Returns the settings for the link of a shard.
    pub fn of_shard(mut self, number: usize) -> LinkConfig {
        self.role = if number == 0 { Role::First } else { Role::Other };
        if self.role == Role::Other {
            // The first shard configures, verifies and announces the addresses.
            (self.autoconf.enabled, self.dhcp, self.announcements) = (false, false, 0);
            self.guest = None;
        }
        self
    }
}

/// Settings of the neighbour cache.
#[derive(Clone, Copy, Debug)]
pub struct NeighbourConfig {
    /// Maximum number of neighbours in the cache (Linux: 1024).
    pub neighbours_max: usize,
    /// Maximum number of packets that wait for one neighbour (RFC 4861 §7.2.2: at least one).
    pub queue_max: usize,
    /// Maximum number of packets that wait for all neighbours together.
    pub queued_max: usize,
    /// How long a neighbour stays reachable after an answer, ±50 % (RFC 4861 §10: 30 s); a router may
    /// advertise another time.
    pub reachable: Duration,
    /// How long a stale neighbour is used before it is probed (RFC 4861 §10: 5 s).
    pub delay: Duration,
    /// Interval between solicitations (RFC 4861 §10, RFC 1122 §2.3.2.1: 1 s).
    pub retransmit: Duration,
    /// Multicast solicitations (or ARP broadcasts) for one neighbour (RFC 4861 §10: 3).
    pub multicast_solicits: u8,
    /// Unicast probes of a neighbour (RFC 4861 §10: 3).
    pub unicast_solicits: u8,
}

impl Default for NeighbourConfig {
    fn default() -> NeighbourConfig {
        NeighbourConfig {
            neighbours_max: 1024,
            queue_max: 3,
            queued_max: 64,
            reachable: Duration::from_secs(30),
            delay: Duration::from_secs(5),
            retransmit: Duration::from_secs(1),
            multicast_solicits: 3,
            unicast_solicits: 3,
        }
    }
}

/// Settings of IPv6 addresses and routers.
#[derive(Clone, Copy, Debug)]
pub struct AutoconfConfig {
    /// Whether IPv6 is enabled on the link.
    pub enabled: bool,
    /// Whether routers are solicited and their advertisements accepted (RFC 4862: SLAAC).
    pub accept_routers: bool,
    /// Whether redirects from the first hop are accepted.
    pub accept_redirects: bool,
    /// How interface identifiers are made.
    pub identifier: Identifier,
    /// Number of duplicate address detection probes sent before an address is used (RFC 4862 §5.1: 1); 0
    /// disables them.
    pub probes: u8,
    /// Maximum number of IPv6 addresses.
    pub addresses_max: usize,
    /// Maximum number of prefixes.
    pub prefixes_max: usize,
    /// Maximum number of default routers.
    pub routers_max: usize,
}

impl Default for AutoconfConfig {
    fn default() -> AutoconfConfig {
        AutoconfConfig {
            enabled: true,
            accept_routers: true,
            accept_redirects: false,
            identifier: Identifier::Eui64,
            probes: 1,
            addresses_max: 16,
            prefixes_max: 16,
            routers_max: 8,
        }
    }
}

/// How the interface identifier of an autoconfigured address is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Identifier {
    /// From the MAC (RFC 4291 appendix A).
    Eui64,
    /// Opaque and stable, from a key (RFC 7217).
    Opaque {
        /// The secret key; the same key yields the same addresses.
        key: [u64; 2],
    },
}
