//! A cause, and the packets that prove it.

use crate::cause::Cause;

/// A cause and its evidence.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Finding {
    /// The cause.
    pub cause: Cause,
    /// The end whose data were slow: 0 the client, 1 the server.
    pub sender: usize,
    /// Time lost, milliseconds.
    pub lost_ms: f64,
    /// Time lost as a percentage of the direction's time.
    pub lost_percent: f64,
    /// The reason, with figures.
    pub because: String,
    /// What to do.
    pub advice: &'static str,
    /// The packets that prove it.
    pub evidence: Vec<Evidence>,
}

/// Packets that show a cause.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Evidence {
    /// The numbers of the packets in the file, as in Wireshark.
    pub packets: Vec<u32>,
    /// When it happened, seconds after the first packet of the connection.
    pub at_s: f64,
    /// How long it took, milliseconds.
    pub lost_ms: f64,
    /// What the packets show.
    pub what: String,
}
