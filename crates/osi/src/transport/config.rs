//! Configuration of a transport machine.

use crate::AcceptedSelectors;
use crate::wire::tpkt;
use core::time::Duration;

/// The smallest TPDU size in bytes.
pub const TPDU_BYTES_MIN: usize = 128;
/// The largest TPDU size in bytes that X.224 allows in class 0; it applies over X.25.
pub const TPDU_BYTES_MAX_X25: usize = 2048;

/// The kind of network below the transport layer.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Network {
    /// TPKTs over TCP (RFC 1006).
    #[default]
    Tpkt,
    /// X.25 virtual calls (ISO 8878).
    X25,
}

/// Configuration of a transport machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The network below.
    pub network: Network,
    /// Maximum TPDU size in bytes, including the header: 128 to 65531 over RFC 1006, 128 to 2048 over X.25.
    /// Other values are clamped to that range.
    pub tpdu_bytes_max: usize,
    /// Maximum length of a received TSDU in bytes.
    pub tsdu_bytes_max: usize,
    /// The reference that identifies this connection to the peer; it must not be 0.
    pub reference: u16,
    /// The called transport selectors that are accepted.
    pub accepted_selectors: AcceptedSelectors,
    /// Time limit for establishing a connection: the wait for the CC after a CR, or for the CR on a new
    /// network connection.
    pub connect_timeout: Option<Duration>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            network: Network::Tpkt,
            tpdu_bytes_max: tpkt::TPDU_BYTES_MAX,
            tsdu_bytes_max: 16 << 20,
            reference: 1,
            accepted_selectors: AcceptedSelectors::Any,
            connect_timeout: Some(Duration::from_secs(60)),
        }
    }
}

impl Config {
    pub(super) fn bytes_max(&self) -> usize {
        match self.network {
            Network::Tpkt => self.tpdu_bytes_max.clamp(TPDU_BYTES_MIN, tpkt::TPDU_BYTES_MAX),
            Network::X25 => self.tpdu_bytes_max.clamp(TPDU_BYTES_MIN, TPDU_BYTES_MAX_X25),
        }
    }
}
