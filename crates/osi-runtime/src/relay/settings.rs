//! Settings of the relay's circuits.

use kiban_osi::x25::Modulo;
use std::time::Duration;

/// Maximum number of bytes waiting for one side. If more are waiting, the relay stops reading from the other
/// side.
pub const WAITING_BYTES_MAX: usize = 128 << 10;

/// Settings of circuits.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Packet size in octets for calls made by this end: 16 to 4096, a power of two.
    pub packet_bytes: u16,
    /// Window in packets for calls made by this end: up to 7, or up to 127 with modulo 128.
    pub window: u8,
    /// Packet sequence numbering for calls made by this end.
    pub modulo: Modulo,
    /// The time limit for each intermediate state, such as call set-up, clearing, and sending the last data.
    pub state_timeout: Duration,
    /// Maximum number of circuits, over all listeners.
    pub circuits_max: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            packet_bytes: 1024,
            window: 7,
            modulo: Modulo::Eight,
            state_timeout: Duration::from_secs(30),
            circuits_max: 1000,
        }
    }
}
