//! Settings of IP, with the source of each default.

use core::time::Duration;

/// The settings of IP.
#[derive(Clone, Debug)]
pub struct Config {
    /// Hop limit of packets that we send (as RFC 1700 recommends; Linux uses the same).
    pub hop_limit: u8,
    /// Whether TCP segments must not be fragmented on the path. If set, IPv4 packets carry DF (RFC 1191 §3).
    pub path_mtu_discovery: bool,
    /// Smallest path MTU accepted for IPv4, bytes. RFC 791 requires 68. Linux uses 552, since attackers
    /// report small values to slow connections down. On a path with a smaller MTU, DF is not set. The IPv6
    /// minimum is 1280 (RFC 8201 §4).
    pub path_mtu_floor: u16,
    /// Time after which a larger path MTU is tried again (RFC 1191 §6.3, RFC 8201 §4: 10 minutes).
    pub path_mtu_age: Duration,
    /// Maximum number of entries in the path MTU cache.
    pub paths_max: usize,
    /// Limits of reassembly.
    pub reassembly: ReassemblyConfig,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            hop_limit: 64,
            path_mtu_discovery: true,
            path_mtu_floor: 552,
            path_mtu_age: Duration::from_secs(600),
            paths_max: 256,
            reassembly: ReassemblyConfig::default(),
        }
    }
}

/// Limits of reassembly.
#[derive(Clone, Copy, Debug)]
pub struct ReassemblyConfig {
    /// Maximum memory that fragments may hold, bytes. On a board, the limit is a quarter of its receive
    /// memory, if that is lower.
    pub bytes_max: usize,
    /// Maximum number of fragments held. On a board, the limit is a quarter of its PDU buffers, if that is
    /// lower.
    pub fragments_max: usize,
    /// Maximum number of incomplete datagrams.
    pub datagrams_max: usize,
    /// Maximum number of fragments per datagram; allows 64 KB in packets of 576 bytes.
    pub fragments_of_one_max: usize,
    /// How long a datagram may stay incomplete after its first fragment arrived (RFC 1122 §3.3.2 and RFC 8200
    /// §4.5: 60 s; Linux: 30 s).
    pub timeout: Duration,
}

impl Default for ReassemblyConfig {
    fn default() -> ReassemblyConfig {
        ReassemblyConfig {
            bytes_max: 4 << 20,
            fragments_max: 1024,
            datagrams_max: 64,
            fragments_of_one_max: 128,
            timeout: Duration::from_secs(60),
        }
    }
}
