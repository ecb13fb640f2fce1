//! Settings of IP, with the source of each default.

use core::time::Duration;

/// The settings of IP.
#[derive(Clone, Debug)]
pub struct Config {
    /// Hop limit of packets that we send (RFC 1700's recommendation, and Linux's).
    pub hop_limit: u8,
    /// Whether TCP's segments must not be fragmented on the path: IPv4 sets DF (RFC 1191 §3).
    pub path_mtu_discovery: bool,
    /// Smallest path MTU accepted for IPv4, bytes (RFC 791: 68; Linux: 552, since attackers report small
    /// values to slow others down). On a narrower path DF is not set. The minimum of IPv6 is 1280 (RFC 8201
    /// §4).
    pub path_mtu_floor: u16,
    /// Time after which a larger path MTU is tried again (RFC 1191 §6.3, RFC 8201 §4: 10 minutes).
    pub path_mtu_age: Duration,
    /// Maximum number of path MTUs that are remembered.
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
    /// Maximum memory that fragments may hold, bytes. A board uses a quarter of its receive memory if that is
    /// less.
    pub bytes_max: usize,
    /// Maximum number of fragments held. A board uses a quarter of its PDUs if that is less.
    pub fragments_max: usize,
    /// Maximum number of incomplete datagrams.
    pub datagrams_max: usize,
    /// Maximum number of fragments of one datagram: 64 KB in packets of 576 bytes.
    pub fragments_of_one_max: usize,
    /// How long a datagram may stay incomplete, from its first fragment on (RFC 1122 §3.3.2 and RFC 8200
    /// §4.5: 60 s; Linux has 30 s).
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
